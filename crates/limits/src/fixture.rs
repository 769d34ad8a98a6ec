//! Builders for this crate's tests: limits, scopes, a clock that the test moves.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use chrono::{DateTime, Duration, Utc};
use chrono_tz::Tz;
use domain::budget_events::Thresholds;
use domain::estimate::{Amounts, Estimate};
use domain::ids::{KeyId, LimitId, RequestId, TenantId, UpstreamId};
use domain::limits::{Dimension, Gates, Limit, Mode, Scope, Target};
use domain::money::Nanos;
use domain::periods::Period;
use domain::priority::Priority;
use domain::readings::Reading;
use uuid::Uuid;

use crate::memory::Memory;
use crate::{Admission, BudgetKey, Denial, Hold, Limits, Now, ScopeLimits, Settings, UpstreamCandidate};

/// The memory store never waits: its futures are ready at once.
pub(crate) fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("memory limits never wait"),
    }
}

pub(crate) fn at(text: &str) -> DateTime<Utc> {
    text.parse().expect("an instant")
}

pub(crate) fn tenant(number: u128) -> Scope {
    Scope::Tenant(TenantId(Uuid::from_u128(number)))
}

pub(crate) fn key(number: u128) -> Scope {
    Scope::Key(KeyId(Uuid::from_u128(number)))
}

pub(crate) fn upstream(number: u128) -> Scope {
    Scope::Upstream(UpstreamId(Uuid::from_u128(number)))
}

pub(crate) fn limit(dimension: Dimension, value: u64) -> Limit {
    Limit {
        id: LimitId(Uuid::from_u128(u128::from(value) + 1_000 * dimension as u128)),
        target: Target::Node(Scope::Global),
        dimension,
        value,
        increase: None,
        window_seconds: 60,
        burst: None,
        period: Period::Month,
        model: None,
        priority: None,
        mode: Mode::Enforce,
        gates: None,
        thresholds: Thresholds::default(),
    }
}

pub(crate) fn gated(dimension: Dimension, value: u64) -> Limit {
    Limit {
        gates: Some(Gates {
            lower_percent: 70,
            upper_percent: 90,
            upper_waits: false,
        }),
        ..limit(dimension, value)
    }
}

pub(crate) fn rehearsed(dimension: Dimension, value: u64) -> Limit {
    Limit {
        mode: Mode::Rehearse,
        ..limit(dimension, value)
    }
}

pub(crate) fn on(scope: Scope, limits: impl Into<Arc<[Limit]>>) -> ScopeLimits {
    ScopeLimits::new(scope, limits.into())
}

pub(crate) fn amounts(input_tokens: u64, output_tokens: u64, cost: i64) -> Amounts {
    Amounts {
        input_tokens,
        output_tokens,
        cost: Nanos(cost),
    }
}

/// The one gateway of a test.
pub(crate) const INSTANCE: &str = "one";

pub(crate) async fn set_budget(limits: &Limits, key: &BudgetKey, spent: i64, mark: u64, now: Now) -> bool {
    let marks = BTreeMap::from([(INSTANCE.to_owned(), mark)]);
    if let Some(redis) = limits.in_redis() {
        // Only whoever was asked to read a base may set it.
        let begun = redis.shared.begin_budget(key, Tz::UTC, 1, now).await;
        begun.expect("the server answers");
    }
    limits.set_budget(key, spent, &marks, INSTANCE, Tz::UTC, now).await
}

pub(crate) fn memory(world: &World) -> &Memory {
    world.limits.in_memory().expect("counters in memory")
}

pub(crate) fn has_budget(world: &World, key: &BudgetKey) -> bool {
    let keys = std::slice::from_ref(key);
    ready(world.limits.closed_budgets(keys, Tz::UTC, world.now)).is_empty()
}

/// Limits, a clock, and what every request of a test has in common.
pub(crate) struct World {
    pub(crate) limits: Limits,
    pub(crate) now: Now,
    pub(crate) scopes: Vec<ScopeLimits>,
    pub(crate) upstreams: Vec<UpstreamCandidate>,
    pub(crate) priority: Priority,
    /// The priority where absent.
    pub(crate) gate_priority: Option<Priority>,
    pub(crate) estimate: Estimate,
    pub(crate) rehearsal_percent: Option<u8>,
    next_id: u128,
}

impl World {
    /// One request takes 100 input, 100 output tokens and 10 nano-units; its ceiling is the same.
    pub(crate) fn new(scopes: Vec<ScopeLimits>) -> Self {
        let each = amounts(100, 100, 10);
        Self {
            limits: Limits::memory(Settings::default()),
            now: Now {
                monotonic_ms: 1_000_000,
                wall: at("2026-11-29T12:00:00Z"),
            },
            scopes,
            upstreams: Vec::new(),
            priority: Priority::Default,
            gate_priority: None,
            estimate: Estimate {
                expected: each,
                ceiling: each,
            },
            rehearsal_percent: None,
            next_id: 1,
        }
    }

    /// With every budget of the scopes known, at nothing spent.
    pub(crate) fn with_budgets(scopes: Vec<ScopeLimits>) -> Self {
        let world = Self::new(scopes);
        world.set_budgets(0, 0);
        world
    }

    pub(crate) fn set_budgets(&self, spent: i64, mark: u64) {
        for key in self.budget_keys() {
            ready(set_budget(&self.limits, &key, spent, mark, self.now));
        }
    }

    pub(crate) fn budget_keys(&self) -> Vec<BudgetKey> {
        let upstreams = self.upstreams.iter().map(|candidate| &candidate.scope);
        self.scopes
            .iter()
            .chain(upstreams)
            .flat_map(|node| {
                let budgets = node.limits.iter().filter(|limit| limit.dimension.is_budget());
                budgets.map(|limit| BudgetKey::of(node, limit, self.now.wall, Tz::UTC))
            })
            .collect()
    }

    pub(crate) fn pass(&mut self, milliseconds: u64) {
        self.now.monotonic_ms += milliseconds;
        self.now.wall += Duration::milliseconds(i64::try_from(milliseconds).expect("small"));
    }

    pub(crate) fn admission(&self) -> Admission<'_> {
        Admission {
            id: RequestId(Uuid::from_u128(self.next_id)),
            model: "m",
            priority: self.priority,
            gate_priority: self.gate_priority.unwrap_or(self.priority),
            estimate: self.estimate,
            scopes: &self.scopes,
            upstreams: &self.upstreams,
            time_zone: Tz::UTC,
            rehearsal_percent: self.rehearsal_percent,
        }
    }

    pub(crate) fn admit(&mut self) -> Result<Hold, Box<Denial>> {
        self.next_id += 1;
        ready(self.limits.admit(&self.admission(), self.now))
    }

    pub(crate) fn refused(&mut self) -> Denial {
        *self.admit().expect_err("refused")
    }

    pub(crate) fn admit_all(&mut self, count: usize) -> Vec<Hold> {
        (0..count)
            .map(|number| {
                self.admit()
                    .unwrap_or_else(|denial| panic!("number {number}: {denial:?}"))
            })
            .collect()
    }

    pub(crate) fn settle(&self, hold: Hold, actual: Amounts, seq: u64) {
        ready(hold.settle(actual, Some(seq), self.now));
    }

    /// Every limit of the scopes and upstreams.
    pub(crate) fn peek(&self) -> Vec<Reading> {
        let upstreams = self.upstreams.iter().map(|candidate| candidate.scope.clone());
        let all: Vec<ScopeLimits> = self.scopes.iter().cloned().chain(upstreams).collect();
        ready(self.limits.peek(&all, None, None, Tz::UTC, self.now))
    }

    /// Used and held of the first limit.
    pub(crate) fn first(&self) -> (i64, u64) {
        let reading = &self.peek()[0];
        (reading.used, reading.held)
    }
}

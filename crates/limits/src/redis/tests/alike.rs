//! One random history through memory and Redis: every answer and every counter is the same.

use std::sync::Arc;

use chrono_tz::Tz;
use domain::estimate::Estimate;
use domain::ids::RequestId;
use domain::limits::{Dimension, Limit, Mode, Scope};
use domain::periods::Period;
use domain::priority::Priority;
use domain::readings::Reading;
use proptest::prelude::*;
use uuid::Uuid;

use super::fixture::{Servers, Signs, noon};
use crate::fixture::{INSTANCE, amounts, gated, key, limit, on, set_budget, tenant, upstream};
use crate::{
    Admission, BudgetKey, Hold, Limits, Now, RoomLeft, ScopeLimits, Settings, UpstreamCandidate, UpstreamRoom,
};

const SETTINGS: Settings = Settings {
    lease_ms: 60_000,
    orphan_ms: 600_000,
};
const KEYS: u128 = 3;
const MODELS: [&str; 2] = ["m", "n"];

#[derive(Clone, Debug)]
enum Step {
    Admit {
        key: u128,
        priority: usize,
        raised: usize,
        model: usize,
        input: u64,
        output: u64,
        ceiling_factor: u64,
        is_reversed: bool,
    },
    Sent(prop::sample::Index),
    Settle(prop::sample::Index, u64),
    Refund(prop::sample::Index),
    Drop(prop::sample::Index),
    Lose(prop::sample::Index),
    Renew(prop::sample::Index),
    Switch(prop::sample::Index, u128),
    Tell(u128, usize, UpstreamRoom),
    Pass(u64),
    SetBack(u64),
    Reread(u64),
    Sweep,
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        12 => ((0..KEYS, 0_usize..4, raised(), 0_usize..2), (0_u64..150, 0_u64..150, 1_u64..4), any::<bool>()).prop_map(
            |((key, priority, raised, model), (input, output, ceiling_factor), is_reversed)| Step::Admit {
                key, priority, raised, model, input, output, ceiling_factor, is_reversed,
            }
        ),
        // Nothing is thought to be used: no tokens, and at no price.
        2 => (0..KEYS, 0_usize..4).prop_map(|(key, priority)| Step::Admit {
            key, priority, raised: 0, model: 0, input: 0, output: 0, ceiling_factor: 1, is_reversed: false,
        }),
        3 => index().prop_map(Step::Sent),
        5 => (index(), 0_u64..=150).prop_map(|(index, percent)| Step::Settle(index, percent)),
        1 => index().prop_map(Step::Refund),
        1 => index().prop_map(Step::Drop),
        1 => index().prop_map(Step::Lose),
        2 => index().prop_map(Step::Renew),
        2 => (index(), 1_u128..=2).prop_map(|(index, to)| Step::Switch(index, to)),
        4 => (1_u128..=2, 0_usize..2, told()).prop_map(|(number, model, told)| Step::Tell(number, model, told)),
        6 => (0_u64..9_000).prop_map(Step::Pass),
        2 => (0_u64..1_500_000).prop_map(Step::Pass),
        1 => (0_u64..200_000_000).prop_map(Step::Pass),
        1 => (0_u64..5_000).prop_map(Step::SetBack),
        2 => (0_u64..4).prop_map(Step::Reread),
        1 => Just(Step::Sweep),
    ]
}

/// How many classes higher than its priority a request is judged by gates: most have not waited.
fn raised() -> impl Strategy<Value = usize> {
    prop_oneof![3 => Just(0), 1 => 1_usize..4]
}

fn told() -> impl Strategy<Value = UpstreamRoom> {
    let left = |most: u64| {
        let reset_ms =
            prop_oneof![1 => Just(None), 3 => (0_u64..9_000).prop_map(Some), 3 => (0_u64..70_000).prop_map(Some)];
        let left = (0..most, reset_ms).prop_map(|(remaining, reset_ms)| RoomLeft { remaining, reset_ms });
        prop::option::of(left)
    };
    let sent_ms_ago = prop_oneof![Just(0), 0_u64..20_000];
    (sent_ms_ago, left(10), left(1_800), left(900), left(2_500)).prop_map(
        |(sent_ms_ago, requests, input_tokens, output_tokens, total_tokens)| UpstreamRoom {
            sent_ms_ago,
            requests,
            input_tokens,
            output_tokens,
            total_tokens,
        },
    )
}

fn limits_of(scope: &Scope) -> Vec<Limit> {
    let per = |period: Period, limit: Limit| Limit { period, ..limit };
    let burst = |burst: u64, limit: Limit| Limit {
        burst: Some(burst),
        ..limit
    };
    let rehearsed = |limit: Limit| Limit {
        mode: Mode::Rehearse,
        ..limit
    };
    let of_model = |limit: Limit| Limit {
        model: Some(MODELS[0].into()),
        ..limit
    };
    match scope {
        Scope::Global => vec![
            gated(Dimension::Requests, 14),
            burst(400, gated(Dimension::TotalTokens, 3_000)),
            limit(Dimension::Concurrency, 7),
            per(Period::Week, gated(Dimension::BudgetCost, 4_000_000)),
            rehearsed(limit(Dimension::OutputTokens, 300)),
        ],
        Scope::Tenant(_) => vec![
            per(Period::Hour, limit(Dimension::BudgetCost, 1_500_000)),
            per(Period::Hour, gated(Dimension::BudgetTokens, 9_000)),
            limit(Dimension::InputTokens, 1_000),
            Limit {
                window_seconds: 3_600,
                ..of_model(limit(Dimension::Requests, 40))
            },
            of_model(per(Period::Day, limit(Dimension::BudgetTokens, 20_000))),
        ],
        Scope::Key(_) => vec![
            limit(Dimension::Requests, 6),
            gated(Dimension::Concurrency, 4),
            burst(200, limit(Dimension::OutputTokens, 500)),
            Limit {
                priority: Some(Priority::Low),
                ..limit(Dimension::Requests, 2)
            },
            limit(Dimension::RequestOutputTokens, 400),
            rehearsed(per(Period::Month, limit(Dimension::BudgetCost, 100_000))),
        ],
        _ => vec![
            limit(Dimension::Requests, 9),
            limit(Dimension::Concurrency, 3),
            burst(300, gated(Dimension::TotalTokens, 2_000)),
            burst(1_000, of_model(limit(Dimension::InputTokens, 1_500))),
            rehearsed(gated(Dimension::OutputTokens, 700)),
            // Two limits of one counter.
            Limit {
                window_seconds: 20,
                ..gated(Dimension::Requests, 8)
            },
            Limit {
                window_seconds: 20,
                ..rehearsed(limit(Dimension::Requests, 5))
            },
            Limit {
                window_seconds: 3_600,
                ..limit(Dimension::Requests, 90)
            },
        ],
    }
}

fn node(scope: Scope) -> ScopeLimits {
    let limits = limits_of(&scope);
    on(scope, limits)
}

/// Key 0 belongs to the first tenant, the others to the second.
fn tree_of(number: u128) -> Vec<ScopeLimits> {
    let owner = tenant(number.min(1));
    vec![node(Scope::Global), node(owner), key_node(number)]
}

fn key_node(number: u128) -> ScopeLimits {
    let (Scope::Key(id), Scope::Tenant(owner)) = (key(number), tenant(number.min(1))) else {
        unreachable!("a key and a tenant");
    };
    ScopeLimits::of_key(id, owner, limits_of(&key(number)).into())
}

fn all_nodes() -> Vec<ScopeLimits> {
    [Scope::Global, tenant(0), tenant(1)]
        .into_iter()
        .map(node)
        .chain((0..KEYS).map(key_node))
        .chain([upstream(1), upstream(2)].map(node))
        .collect()
}

/// A request that ran: what was settled, for bases.
struct Settled {
    scopes: Vec<Scope>,
    model: &'static str,
    admitted_at: chrono::DateTime<chrono::Utc>,
    actual: domain::estimate::Amounts,
    seq: u64,
}

struct Both {
    holds: [Hold; 2],
    scopes: Vec<Scope>,
    model: &'static str,
    priority: Priority,
    gate_priority: Priority,
    estimate: Estimate,
    admitted_at: chrono::DateTime<chrono::Utc>,
}

struct Run {
    stores: [Limits; 2],
    signs: Arc<Signs>,
    now: Now,
    open: Vec<Both>,
    settled: Vec<Settled>,
    seq: u64,
    next_id: u128,
}

impl Run {
    async fn new(servers: &Servers) -> Self {
        servers.flush().await;
        let now = noon();
        let signs = Signs::at(now);
        Self {
            stores: [
                Limits::memory(SETTINGS),
                servers.limits(INSTANCE, SETTINGS, &signs).await,
            ],
            signs,
            now,
            open: Vec::new(),
            settled: Vec::new(),
            seq: 0,
            next_id: 0,
        }
    }

    /// What the ledger says of a budget up to `mark`.
    fn spent(&self, budget: &BudgetKey, mark: u64) -> i64 {
        let counts = |settled: &&Settled| {
            settled.seq <= mark
                && settled.scopes.contains(&budget.scope)
                && budget.span.contains(settled.admitted_at)
                && budget.model.as_deref().is_none_or(|only| only == settled.model)
        };
        self.settled
            .iter()
            .filter(counts)
            .map(|settled| match budget.dimension {
                // Budgets of cost count in micro-units, each entry rounded up: those here are whole.
                Dimension::BudgetCost => settled.actual.cost.0,
                _ => settled.actual.total_tokens().cast_signed(),
            })
            .sum()
    }

    async fn set_bases(&self, budgets: &[BudgetKey], mark: u64) -> Result<(), TestCaseError> {
        for budget in budgets {
            let spent = self.spent(budget, mark);
            let mut set = Vec::new();
            for store in &self.stores {
                set.push(set_budget(store, budget, spent, mark, self.now).await);
            }
            prop_assert_eq!(set[0], set[1], "{:?}", budget);
        }
        Ok(())
    }

    fn take(&mut self, index: &prop::sample::Index) -> Option<Both> {
        (!self.open.is_empty()).then(|| self.open.swap_remove(index.index(self.open.len())))
    }

    async fn admit(&mut self, admission: &Admission<'_>, scopes: Vec<Scope>) -> Result<(), TestCaseError> {
        for is_second in [false, true] {
            let in_memory = self.stores[0].admit(admission, self.now).await;
            let in_redis = self.stores[1].admit(admission, self.now).await;
            match (in_memory, in_redis) {
                (Ok(one), Ok(other)) => {
                    prop_assert_eq!(one.upstream(), other.upstream());
                    prop_assert_eq!(one.rehearsed(), other.rehearsed());
                    prop_assert_eq!(one.tightest(), other.tightest());
                    prop_assert_eq!(one.unknown_budgets(), other.unknown_budgets());
                    self.open.push(Both {
                        holds: [one, other],
                        scopes,
                        model: MODELS.iter().find(|model| **model == admission.model).unwrap(),
                        priority: admission.priority,
                        gate_priority: admission.gate_priority,
                        estimate: admission.estimate,
                        admitted_at: self.now.wall,
                    });
                    return Ok(());
                }
                (Err(one), Err(other)) => {
                    prop_assert_eq!(&one, &other);
                    if is_second || one.unknown_budgets.is_empty() {
                        return Ok(());
                    }
                    let mark = self.seq;
                    self.set_bases(&one.unknown_budgets, mark).await?;
                }
                (one, other) => prop_assert!(false, "memory: {:?}, Redis: {:?}", one, other),
            }
        }
        Ok(())
    }

    async fn run(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Admit {
                key: number,
                priority,
                raised,
                model,
                input,
                output,
                ceiling_factor,
                is_reversed,
            } => {
                self.next_id += 1;
                let cost = i64::try_from(input + output).unwrap() * 1_000;
                let estimate = Estimate {
                    expected: amounts(input, output, cost),
                    ceiling: amounts(
                        input * ceiling_factor,
                        output * ceiling_factor,
                        cost * ceiling_factor.cast_signed(),
                    ),
                };
                let scopes = tree_of(number);
                let order = if is_reversed { [2, 1] } else { [1, 2] };
                let upstreams = order.map(|index| UpstreamCandidate {
                    scope: node(upstream(index)),
                    index: index as usize,
                });
                let admission = Admission {
                    id: RequestId(Uuid::from_u128(self.next_id)),
                    model: MODELS[model],
                    priority: Priority::ALL[priority],
                    gate_priority: Priority::ALL[(priority + raised).min(3)],
                    estimate,
                    scopes: &scopes,
                    upstreams: &upstreams,
                    time_zone: Tz::UTC,
                    rehearsal_percent: (number == 0).then_some(20),
                };
                let explained = [
                    self.stores[0].explain(&admission, self.now).await.1,
                    self.stores[1].explain(&admission, self.now).await.1,
                ];
                prop_assert_eq!(&explained[0], &explained[1]);
                self.admit(&admission, scopes.iter().map(|of| of.scope.clone()).collect())
                    .await?;
            }
            Step::Sent(index) => {
                if let Some(mut both) = self.take(&index) {
                    both.holds.iter_mut().for_each(Hold::mark_sent);
                    self.open.push(both);
                }
            }
            Step::Settle(index, percent) => {
                if let Some(both) = self.take(&index) {
                    let expected = both.estimate.expected;
                    let share = |amount: u64| amount * percent / 100;
                    let (input, output) = (share(expected.input_tokens), share(expected.output_tokens));
                    let actual = amounts(input, output, (input + output).cast_signed() * 1_000);
                    self.seq += 1;
                    for hold in both.holds {
                        hold.settle(actual, Some(self.seq), self.now).await;
                    }
                    self.settled.push(Settled {
                        scopes: both.scopes,
                        model: both.model,
                        admitted_at: both.admitted_at,
                        actual,
                        seq: self.seq,
                    });
                }
            }
            Step::Refund(index) => {
                if let Some(both) = self.take(&index) {
                    for hold in both.holds {
                        hold.refund(self.now).await;
                    }
                }
            }
            Step::Drop(index) => drop(self.take(&index)),
            Step::Lose(index) => {
                if let Some(both) = self.take(&index) {
                    both.holds.into_iter().for_each(std::mem::forget);
                }
            }
            Step::Renew(index) => {
                if let Some(both) = self.take(&index) {
                    both.holds[0].renew(self.now).await;
                    let redis = self.stores[1].in_redis().expect("counters in Redis");
                    redis.renew_now(both.holds[1].id(), self.now).await;
                    self.open.push(both);
                }
            }
            Step::Switch(index, to) => {
                if let Some(mut both) = self.take(&index) {
                    let upstreams = [UpstreamCandidate {
                        scope: node(upstream(to)),
                        index: to as usize,
                    }];
                    let admission = Admission {
                        id: both.holds[0].id(),
                        model: both.model,
                        priority: both.priority,
                        gate_priority: both.gate_priority,
                        estimate: both.estimate,
                        scopes: &[],
                        upstreams: &upstreams,
                        time_zone: Tz::UTC,
                        rehearsal_percent: None,
                    };
                    let mut switched = Vec::new();
                    for (store, hold) in self.stores.iter().zip(&mut both.holds) {
                        switched.push(store.switch_upstream(hold, &admission, self.now).await);
                    }
                    prop_assert_eq!(&switched[0], &switched[1]);
                    self.open.push(both);
                }
            }
            Step::Tell(number, model, told) => {
                let of = node(upstream(number));
                for store in &self.stores {
                    let before = store
                        .peek(std::slice::from_ref(&of), None, None, Tz::UTC, self.now)
                        .await;
                    store.correct_upstream(&of, MODELS[model], &told, self.now).await;
                    let after = store
                        .peek(std::slice::from_ref(&of), None, None, Tz::UTC, self.now)
                        .await;
                    check_told(&told, MODELS[model], &before, &after)?;
                }
            }
            Step::Pass(ms) => {
                self.now.monotonic_ms += ms;
                self.now.wall += chrono::Duration::milliseconds(ms.cast_signed());
            }
            Step::SetBack(ms) => self.now.wall -= chrono::Duration::milliseconds(ms.cast_signed()),
            Step::Reread(behind) => {
                let mut budgets = self.stores[0].budgets(self.now).await;
                budgets.retain(|key| key.span.contains(self.now.wall));
                let mark = self.seq.saturating_sub(behind);
                self.set_bases(&budgets, mark).await?;
            }
            Step::Sweep => {
                for _ in 0..Limits::SWEEPS_PER_ROUND {
                    self.stores.iter().for_each(|store| store.sweep(self.now));
                }
            }
        }
        self.signs.pass_to(self.now);
        let redis = self.stores[1].in_redis().expect("counters in Redis");
        redis.tell_all(self.now).await;
        self.compare().await
    }

    async fn compare(&self) -> Result<(), TestCaseError> {
        let nodes = all_nodes();
        let mut readings: Vec<Vec<Reading>> = Vec::new();
        for store in &self.stores {
            readings.push(store.peek(&nodes, None, None, Tz::UTC, self.now).await);
        }
        for (one, other) in readings[0].iter().zip(&readings[1]) {
            prop_assert_eq!(one, other);
        }
        prop_assert_eq!(self.stores[0].open_holds(), self.stores[1].open_holds());
        prop_assert_eq!(self.stores[1].mode(self.now), crate::Mode::Normal);
        Ok(())
    }
}

/// Nothing that was told of shows more room than that; nothing else has changed, and nothing was counted.
fn check_told(told: &UpstreamRoom, model: &str, before: &[Reading], after: &[Reading]) -> Result<(), TestCaseError> {
    for (before, after) in before.iter().zip(after) {
        let left = match after.dimension {
            Dimension::Requests => told.requests,
            Dimension::InputTokens => told.input_tokens.or(told.total_tokens),
            Dimension::OutputTokens => told.output_tokens.or(told.total_tokens),
            Dimension::TotalTokens => told.total_tokens,
            _ => None,
        };
        let applies = after.model.as_deref().is_none_or(|only| only == model) && after.window_seconds < Some(3_600);
        match left.filter(|left| applies && left.reset_ms != Some(0)) {
            Some(left) => prop_assert!(after.remaining <= left.remaining, "{:?} of {:?}", after, told),
            None if !applies => prop_assert_eq!(before, after),
            None => {}
        }
        prop_assert_eq!((before.used, before.held), (after.used, after.held));
    }
    Ok(())
}

fn compare(cases: u32, servers: impl Future<Output = Servers>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let servers = runtime.block_on(servers);
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(steps in prop::collection::vec(step(), 1..120))| {
        runtime.block_on(async {
            let mut run = Run::new(&servers).await;
            for step in steps {
                run.run(step).await?;
            }
            Ok::<(), TestCaseError>(())
        })?;
    });
}

#[test]
fn memory_and_redis_give_the_same_answers_and_count_the_same() {
    compare(40, Servers::one());
}

#[test]
fn memory_and_a_cluster_give_the_same_answers_and_count_the_same() {
    compare(14, Servers::cluster());
}

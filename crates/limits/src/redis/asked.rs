//! What a request asks of one counter in Redis: its keys, and the numbers that the scripts compare.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use domain::estimate::Amounts;
use domain::ids::LimitId;
use domain::limits::{Dimension, Limit, Mode, Scope};
use domain::periods::Span;
use domain::priority::Priority;

use super::words::Words;
use crate::admission::{amount_of, need_of, unit_of};
use crate::budget::kept_until;
use crate::counter::ms_until;
use crate::upstream_room::may_be_told;
use crate::window::cell_ms;
use crate::{Admission, BudgetKey, ScopeLimits, Settings, names};

/// Lua counts in doubles: beyond this they are no integers any more.
const EXACT_MAX: u64 = (1 << 53) - 1;

/// One counter, and what one request takes from it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    key: String,
    kind: Kind,
    dimension: Dimension,
    need: u64,
    /// The most that may stand there before; any, if absent.
    most: Option<i64>,
    /// The same for budgets that are closed, too.
    most_gated: Option<i64>,
    /// Of an account's rates: where what its provider says is kept.
    told: Option<String>,
    /// The least that has to be left by that; any, if absent.
    least_told: Option<i64>,
}

#[derive(Clone, Debug)]
enum Kind {
    Requests {
        window_ms: u64,
        cell_ms: u64,
    },
    Tokens {
        window_ms: u64,
        cell_ms: u64,
        least: Option<u64>,
        value: u64,
        burst: u64,
        forgives: bool,
    },
    InFlight,
    Budget {
        holds: String,
        before: String,
        span: Span,
        limit: LimitId,
    },
}

/// The counters of one scope that a request counts in.
#[derive(Debug, Default)]
pub(crate) struct AskedOfScope {
    pub(crate) asked: Vec<Asked>,
    /// For each of them, the position of its limit on the scope.
    pub(crate) limits: Vec<usize>,
    /// Some limit refuses whatever is counted.
    pub(crate) refuses: bool,
}

impl AskedOfScope {
    pub(crate) fn of(of: &ScopeLimits, admission: &Admission<'_>, at: DateTime<Utc>) -> Self {
        let mut found = Self::default();
        for (index, limit) in of.limits.iter().enumerate() {
            if !limit.applies_to(admission.model, admission.priority) {
                continue;
            }
            let need = need_of(limit.dimension, &admission.estimate);
            found.refuses |= limit.mode == Mode::Enforce && refuses_always(limit, need);
            let earlier = &of.limits[..index];
            if earlier.iter().any(|other| other.slot() == limit.slot()) {
                // One slot, one counter: the first of them says how it counts, all of them how much.
                let bounds = Asked::of(of, limit, need, admission.gate_priority, admission.time_zone, at);
                let place = found
                    .limits
                    .iter()
                    .position(|&kept| of.limits[kept].slot() == limit.slot());
                if let (Some(bounds), Some(place)) = (bounds, place) {
                    let kept = &mut found.asked[place];
                    kept.most = least_of(kept.most, bounds.most);
                    kept.most_gated = least_of(kept.most_gated, bounds.most_gated);
                    kept.least_told = kept.least_told.max(bounds.least_told);
                }
                continue;
            }
            if let Some(asked) = Asked::of(of, limit, need, admission.gate_priority, admission.time_zone, at) {
                found.asked.push(asked);
                found.limits.push(index);
            }
        }
        found
    }
}

fn least_of(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// What no counter can change, as in [`crate::decide::check`].
fn refuses_always(limit: &Limit, need: u64) -> bool {
    match limit.dimension {
        Dimension::RequestSeconds => false,
        dimension if dimension.is_budget() => limit.value == 0,
        _ => limit.value == 0 || need > limit.value,
    }
}

impl Asked {
    /// `None` for caps on single requests, which count nothing.
    pub(crate) fn of(
        node: &ScopeLimits,
        limit: &Limit,
        need: u64,
        gate_priority: Priority,
        time_zone: Tz,
        at: DateTime<Utc>,
    ) -> Option<Self> {
        let key = names::limit_key(&node.scope, &limit.slot(), &names::tag(&node.scope, node.tenant));
        let (value, burst) = (exact(limit.value), exact(limit.burst_tokens()));
        let need = scaled_up(limit.dimension, need);
        let gated = most_under_gate(limit, gate_priority);
        let bounded = |room: Option<i64>| match limit.mode {
            Mode::Enforce => least_of(room, gated),
            Mode::Rehearse => None,
        };
        let window_ms = u64::from(limit.window_seconds.max(1)) * 1_000;
        let cell_ms = cell_ms(limit.window_seconds);
        let is_told = matches!(node.scope, Scope::Upstream(_)) && may_be_told(limit);
        // What is not left is used, for gates as well.
        let left_by_gate = gated.map(|most| value.cast_signed() - most);
        let enforces = limit.mode == Mode::Enforce;
        let asked = |key: String, kind, most| Self {
            told: is_told.then(|| names::told_key(&key)),
            least_told: (enforces && is_told)
                .then(|| left_by_gate.max((need > 0).then_some(need.cast_signed())))
                .flatten(),
            key,
            kind,
            dimension: limit.dimension,
            need,
            most,
            most_gated: None,
        };
        Some(match limit.dimension {
            Dimension::Requests => {
                let most = bounded(Some(value.cast_signed() - 1));
                asked(key, Kind::Requests { window_ms, cell_ms }, most)
            }
            Dimension::InputTokens | Dimension::OutputTokens | Dimension::TotalTokens => {
                let takes = need > 0;
                let most = bounded(takes.then_some((value + burst).cast_signed() - 1));
                let least = (takes && enforces).then_some(need.min(burst));
                let kind = Kind::Tokens {
                    window_ms,
                    cell_ms,
                    least,
                    value,
                    burst,
                    forgives: limit.mode == Mode::Rehearse,
                };
                asked(key, kind, most)
            }
            Dimension::Concurrency => asked(key, Kind::InFlight, bounded(Some(value.cast_signed() - 1))),
            Dimension::BudgetTokens | Dimension::BudgetCost => {
                let budget = BudgetKey::of(node, limit, at, time_zone);
                let room = scaled_down(limit.dimension, limit.value).cast_signed() - need.cast_signed();
                Self {
                    need,
                    most: (enforces && need > 0).then_some(room),
                    most_gated: gated.filter(|_| enforces),
                    ..Self::of_budget(&budget, time_zone)
                }
            }
            Dimension::RequestInputTokens | Dimension::RequestOutputTokens | Dimension::RequestSeconds => return None,
        })
    }

    /// A budget's counter, of which nothing is asked.
    pub(crate) fn of_budget(budget: &BudgetKey, time_zone: Tz) -> Self {
        let tag = names::tag(&budget.scope, budget.tenant);
        let limit_key = names::limit_key(&budget.scope, &budget.slot(), &tag);
        let key = names::budget_key(&limit_key, budget.span);
        let earlier = budget
            .period
            .span(budget.span.start - chrono::Duration::milliseconds(1), time_zone);
        Self {
            kind: Kind::Budget {
                holds: names::holds_key(&key),
                before: names::budget_key(&limit_key, earlier),
                span: budget.span,
                limit: budget.limit_id,
            },
            key,
            dimension: budget.dimension,
            need: 0,
            most: None,
            most_gated: None,
            told: None,
            least_told: None,
        }
    }

    /// The same for a request that would hold so much of it.
    pub(crate) fn holding(self, ceiling: &Amounts) -> Self {
        Self {
            need: scaled_up(self.dimension, amount_of(self.dimension, ceiling)),
            ..self
        }
    }

    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Whether leases are renewed there.
    pub(crate) fn is_leased(&self) -> bool {
        matches!(self.kind, Kind::Budget { .. } | Kind::InFlight)
    }

    /// As `admit.lua` wants it.
    pub(crate) fn to_admit(&self, settings: &Settings, at: DateTime<Utc>, keys: &mut Words, args: &mut Words) {
        keys.push(&self.key);
        match &self.kind {
            Kind::Requests { window_ms, cell_ms } => {
                args.push("r");
                args.push(cell_ms);
                args.push(window_ms);
                args.push_some(self.most);
                self.push_told(keys, args);
                args.push_some(self.least_told);
            }
            Kind::Tokens {
                window_ms,
                cell_ms,
                least,
                value,
                burst,
                forgives,
            } => {
                args.push("t");
                args.push(cell_ms);
                args.push(window_ms);
                args.push_some(self.most);
                args.push(self.need);
                args.push_some(*least);
                args.push(value);
                args.push(burst);
                args.push(u8::from(*forgives));
                self.push_told(keys, args);
                args.push_some(self.least_told);
            }
            Kind::InFlight => {
                args.push("c");
                args.push_some(self.most);
            }
            Kind::Budget {
                holds,
                before,
                span,
                limit,
            } => {
                keys.push(holds);
                keys.push(names::aside_key(&self.key));
                keys.push(before);
                args.push("b");
                args.push(self.need);
                args.push_some(self.most);
                args.push_some(self.most_gated);
                args.push(span.start.timestamp_millis());
                args.push(kept_ms(*span));
                args.push(ttl_ms(*span, settings, at));
                args.push(limit);
            }
        }
    }

    /// Where what its provider says is kept, if it may say something.
    fn push_told(&self, keys: &mut Words, args: &mut Words) {
        args.push(u8::from(self.told.is_some()));
        if let Some(told) = &self.told {
            keys.push(told);
        }
    }

    /// As `finish.lua` wants it.
    pub(crate) fn to_finish(
        &self,
        actual: &Amounts,
        settings: &Settings,
        at: DateTime<Utc>,
        keys: &mut Words,
        args: &mut Words,
    ) {
        keys.push(&self.key);
        let actual = scaled_up(self.dimension, amount_of(self.dimension, actual));
        match &self.kind {
            Kind::Requests { cell_ms, .. } => {
                args.push("r");
                args.push(cell_ms);
                self.push_told(keys, args);
            }
            Kind::Tokens { window_ms, cell_ms, .. } => {
                args.push("t");
                args.push(cell_ms);
                args.push(window_ms);
                args.push(self.need);
                args.push(actual);
                self.push_told(keys, args);
            }
            Kind::InFlight => args.push("c"),
            Kind::Budget { holds, span, .. } => {
                keys.push(holds);
                args.push("b");
                args.push(self.need);
                args.push(actual);
                args.push(ttl_ms(*span, settings, at));
            }
        }
    }

    /// As `renew.lua` wants it, where it is leased.
    pub(crate) fn to_renew(&self, settings: &Settings, at: DateTime<Utc>, keys: &mut Words, args: &mut Words) {
        match &self.kind {
            Kind::InFlight => {
                keys.push(&self.key);
                args.push("c");
            }
            Kind::Budget { holds, span, .. } => {
                keys.push(&self.key);
                keys.push(holds);
                args.push("b");
                args.push(self.need);
                args.push(ttl_ms(*span, settings, at));
            }
            Kind::Requests { .. } | Kind::Tokens { .. } => {}
        }
    }

    /// As `settle_lost.lua` wants it, where it is leased.
    pub(crate) fn to_settle_lost(
        &self,
        actual: &Amounts,
        settings: &Settings,
        at: DateTime<Utc>,
        keys: &mut Words,
        args: &mut Words,
    ) {
        match &self.kind {
            Kind::InFlight => {
                keys.push(&self.key);
                args.push("c");
            }
            Kind::Budget { holds, span, .. } => {
                keys.push(&self.key);
                keys.push(holds);
                args.push("b");
                args.push(scaled_up(self.dimension, amount_of(self.dimension, actual)));
                args.push(ttl_ms(*span, settings, at));
            }
            Kind::Requests { .. } | Kind::Tokens { .. } => {}
        }
    }

    /// As `peek.lua` wants it.
    pub(crate) fn to_peek(&self, keys: &mut Words, args: &mut Words) {
        keys.push(&self.key);
        match &self.kind {
            Kind::Requests { .. } | Kind::Tokens { .. } => {
                args.push("r");
                self.push_told(keys, args);
            }
            Kind::InFlight => args.push("c"),
            Kind::Budget {
                holds,
                before,
                span,
                limit,
            } => {
                keys.push(holds);
                keys.push(before);
                args.push("b");
                args.push(span.start.timestamp_millis());
                args.push(kept_ms(*span));
                args.push(limit);
            }
        }
    }

    /// As `begin_budget.lua` wants it; nothing where it is no budget.
    pub(crate) fn to_begin(&self, settings: &Settings, at: DateTime<Utc>, keys: &mut Words, args: &mut Words) {
        if let Kind::Budget {
            before, span, limit, ..
        } = &self.kind
        {
            keys.push(&self.key);
            keys.push(before);
            args.push(at.timestamp_millis());
            args.push(span.start.timestamp_millis());
            args.push(kept_ms(*span));
            args.push(ttl_ms(*span, settings, at));
            args.push(limit);
        }
    }

    /// As `set_budget.lua` wants it, up to the marks; nothing where it is no budget.
    pub(crate) fn to_set(
        &self,
        spent: i64,
        settings: &Settings,
        at: DateTime<Utc>,
        keys: &mut Words,
        args: &mut Words,
    ) {
        if let Kind::Budget { span, limit, .. } = &self.kind {
            keys.push(&self.key);
            args.push(at.timestamp_millis());
            args.push(ttl_ms(*span, settings, at));
            args.push(limit);
            args.push(signed_up(self.dimension, spent));
        }
    }

    /// As `set_aside.lua` wants it; nothing where it is no budget.
    pub(crate) fn to_set_aside(
        &self,
        value: u64,
        millionths: u64,
        settings: &Settings,
        at: DateTime<Utc>,
        keys: &mut Words,
        args: &mut Words,
    ) {
        if let Kind::Budget { span, .. } = &self.kind {
            keys.push(&self.key);
            keys.push(names::aside_key(&self.key));
            args.push(scaled_down(self.dimension, value));
            args.push(millionths);
            args.push(ttl_ms(*span, settings, at));
        }
    }

    /// Whether it is kept with what a provider says.
    pub(crate) fn may_be_told(&self) -> bool {
        self.told.is_some()
    }

    /// What one unit in Redis is, in the unit of the dimension.
    pub(crate) fn unit(&self) -> u64 {
        unit_of(self.dimension)
    }
}

/// How long the period before a period is remembered within it, in milliseconds.
fn kept_ms(span: Span) -> i64 {
    // The period before has about the same length; the shorter one of neighbouring months does not matter, both are
    // longer than a day.
    (kept_until(span) - span.end).num_milliseconds()
}

/// How long a budget is kept: to the end of its period, while the next may want to know of it, and while its holds live.
fn ttl_ms(span: Span, settings: &Settings, at: DateTime<Utc>) -> u64 {
    let kept_ms = kept_ms(span).unsigned_abs();
    ms_until(span.end, at) + kept_ms.max(2 * settings.lease_ms + settings.orphan_ms)
}

/// The most that may stand under the gates for what is judged by this priority.
fn most_under_gate(limit: &Limit, gate_priority: Priority) -> Option<i64> {
    let gates = limit.gates.filter(|_| gate_priority < Priority::High)?;
    let percent = match gate_priority {
        Priority::Low => gates.lower_percent,
        _ => gates.upper_percent,
    };
    let hundredths = u128::from(limit.value) * u128::from(percent);
    let threshold = hundredths.div_ceil(100 * u128::from(unit_of(limit.dimension)));
    Some(exact(u64::try_from(threshold).unwrap_or(u64::MAX)).cast_signed() - 1)
}

fn exact(number: u64) -> u64 {
    number.min(EXACT_MAX)
}

fn scaled_up(dimension: Dimension, amount: u64) -> u64 {
    exact(amount.div_ceil(unit_of(dimension)))
}

fn scaled_down(dimension: Dimension, amount: u64) -> u64 {
    exact(amount / unit_of(dimension))
}

fn signed_up(dimension: Dimension, amount: i64) -> i64 {
    let unit = unit_of(dimension).cast_signed();
    let floor = amount.div_euclid(unit);
    floor + i64::from(amount.rem_euclid(unit) > 0)
}

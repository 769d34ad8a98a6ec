//! One counter: what one slot of one scope has counted.

use chrono::{DateTime, Utc};
use domain::estimate::Amounts;
use domain::ids::{LimitId, RequestId, TenantId};
use domain::limits::{Dimension, Limit, Scope, Slot};
use domain::periods::Span;
use domain::priority::Priority;
use domain::readings::Reading;

use crate::admission::amount_of;
use crate::bucket::Bucket;
use crate::budget::{Budget, BudgetSpan, kept_until};
use crate::hold::Request;
use crate::members::Members;
use crate::reading::{self, Usage};
use crate::told::Told;
use crate::upstream_room::Telling;
use crate::window::Window;
use crate::{BudgetKey, Now, Settings};

/// Counts for every limit that fills the slot, whatever its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counter {
    /// Names it on holds; unique within its node.
    pub(crate) serial: u64,
    pub(crate) slot: Slot,
    /// Of a budget: the limit it was last met under, and the tenant of a key's.
    met_under: Option<(LimitId, Option<TenantId>)>,
    /// Holds that will come back here.
    open: u32,
    used_ms: u64,
    pub(crate) kind: Kind,
    /// Of an account: what its provider has said last.
    told: Option<Told>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Requests(Window),
    Tokens { bucket: Bucket, window: Window },
    Concurrency(Members),
    Budget(Box<Budget>),
}

/// What one hold took from one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Request { cell: u64 },
    Tokens { cell: u64, expected: u64 },
    InFlight,
    Budget { span_start: DateTime<Utc>, ceiling: u64 },
}

impl Counter {
    /// A counter for the limit's slot; `None` for caps on single requests, which count nothing.
    pub(crate) fn new(serial: u64, limit: &Limit, span: impl FnOnce() -> Span, now: Now) -> Option<Self> {
        let kind = match limit.dimension {
            Dimension::Requests => Kind::Requests(Window::new(limit.window_seconds, now.monotonic_ms)),
            Dimension::InputTokens | Dimension::OutputTokens | Dimension::TotalTokens => Kind::Tokens {
                bucket: Bucket::full(
                    limit.window_seconds,
                    limit.value,
                    limit.burst_tokens(),
                    now.monotonic_ms,
                ),
                window: Window::new(limit.window_seconds, now.monotonic_ms),
            },
            Dimension::Concurrency => Kind::Concurrency(Members::default()),
            Dimension::BudgetTokens | Dimension::BudgetCost => Kind::Budget(Box::new(Budget::new(span(), now.wall))),
            Dimension::RequestInputTokens | Dimension::RequestOutputTokens | Dimension::RequestSeconds => return None,
        };
        Some(Self {
            serial,
            slot: limit.slot(),
            met_under: None,
            open: 0,
            used_ms: now.monotonic_ms,
            kind,
            told: None,
        })
    }

    /// What another place has counted for the limit's slot.
    pub(crate) fn counted(serial: u64, limit: &Limit, kind: Kind, told: Option<Told>, now: Now) -> Self {
        Self {
            serial,
            slot: limit.slot(),
            met_under: None,
            open: 0,
            used_ms: now.monotonic_ms,
            kind,
            told,
        }
    }

    /// A budget's counter before its limit was met; `None` where the key names no budget.
    pub(crate) fn of_budget(serial: u64, key: &BudgetKey, now: Now) -> Option<Self> {
        key.dimension.is_budget().then(|| Self {
            serial,
            slot: key.slot(),
            met_under: Some((key.limit_id, key.tenant)),
            open: 0,
            used_ms: now.monotonic_ms,
            kind: Kind::Budget(Box::new(Budget::new(key.span, now.wall))),
            told: None,
        })
    }

    /// As it would be now had everything been used up at `since_ms`.
    pub(crate) fn drain(&mut self, limit: &Limit, since_ms: u64, now: Now) {
        match &mut self.kind {
            Kind::Requests(window) => {
                // One request is no burst, and tells the others how long to wait.
                *window = Window::used_up(limit.window_seconds, limit.value.saturating_sub(1), since_ms);
                window.advance(now.monotonic_ms);
            }
            Kind::Tokens { bucket, .. } => {
                *bucket = Bucket::empty(limit.window_seconds, limit.value, limit.burst_tokens(), since_ms);
                bucket.refill_as_before(now.monotonic_ms);
            }
            Kind::Concurrency(_) => {}
            Kind::Budget(budget) => budget.never_start_at_zero(),
        }
    }

    /// A request meets it under this limit.
    pub(crate) fn meet(&mut self, limit: &Limit, tenant: Option<TenantId>) {
        if matches!(self.kind, Kind::Budget(_)) {
            self.met_under = Some((limit.id, tenant));
        }
    }

    /// Whether it counts for this limit. Compares with [`Limit::slot`] without building one.
    pub(crate) fn is_for(&self, limit: &Limit) -> bool {
        let slot = &self.slot;
        slot.dimension == limit.dimension
            && slot
                .window_seconds
                .is_none_or(|seconds| seconds == limit.window_seconds)
            && slot.period.is_none_or(|period| period == limit.period)
            && slot.priority == limit.priority
            && slot.model == limit.model
    }

    /// Brings it to the present. No decision depends on how often this is done.
    pub(crate) fn advance(&mut self, limit: &Limit, settings: &Settings, zone: chrono_tz::Tz, now: Now) {
        match &mut self.kind {
            Kind::Requests(window) => window.advance(now.monotonic_ms),
            Kind::Tokens { bucket, window } => {
                bucket.refill(limit.value, limit.burst_tokens(), now.monotonic_ms);
                window.advance(now.monotonic_ms);
            }
            Kind::Concurrency(members) => members.drop_expired(0, now.monotonic_ms),
            Kind::Budget(budget) => {
                budget.span_at(now.wall, limit.period, zone);
                budget.drop_expired(settings.orphan_ms, now.monotonic_ms);
            }
        }
    }

    /// What it has counted, at the present it was advanced to.
    pub(crate) fn usage(&self, at: DateTime<Utc>) -> Usage {
        match &self.kind {
            Kind::Requests(window) | Kind::Tokens { window, .. } => Usage {
                used: i128::try_from(window.total()).unwrap_or(i128::MAX),
                held: 0,
            },
            Kind::Concurrency(members) => Usage {
                used: 0,
                held: i128::try_from(members.total()).unwrap_or(i128::MAX),
            },
            Kind::Budget(budget) => budget.find_span(at).map_or_else(Usage::default, |span| Usage {
                used: span.spent(),
                held: i128::try_from(span.holds.total()).unwrap_or(i128::MAX),
            }),
        }
    }

    /// The same in the eyes of a limit of this value: what its provider has not left is used.
    pub(crate) fn usage_under(&self, value: u64, now: Now) -> Usage {
        let usage = self.usage(now.wall);
        match self.told_room(now) {
            Some(room) => Usage {
                used: usage.used.max(i128::from(value) - room),
                ..usage
            },
            None => usage,
        }
    }

    /// What its provider says is left, for as long as that stands.
    pub(crate) fn told_room(&self, now: Now) -> Option<i128> {
        self.told.and_then(|told| told.room(now.monotonic_ms))
    }

    /// Itself as if its provider had said nothing, where that stands.
    pub(crate) fn find_untold(&self, now: Now) -> Option<Self> {
        self.told_room(now).map(|_| Self {
            told: None,
            ..self.clone()
        })
    }

    /// Milliseconds until its provider's word leaves room for `least`.
    pub(crate) fn told_wait_ms(&self, least: i128, now: Now) -> u64 {
        self.told.map_or(0, |told| told.wait_ms(least, now.monotonic_ms))
    }

    /// Hears its provider's word, unless a better one stands.
    pub(crate) fn tell(&mut self, telling: Telling, sent_ms_ago: u64, now: Now) {
        let now_ms = now.monotonic_ms;
        let yields = |told: Told| told.yields_to(telling.remaining, sent_ms_ago, now_ms);
        if self.told.is_none_or(yields) {
            self.told = Some(Told::new(telling, self.slot.window_seconds.unwrap_or(0), now_ms));
        }
    }

    /// Takes `need` for the request, whether or not there is room.
    pub(crate) fn take(&mut self, id: RequestId, need: u64, forgives: bool, lease_ms: u64, now: Now) -> Taken {
        self.open += 1;
        self.used_ms = self.used_ms.max(now.monotonic_ms);
        let expires_ms = now.monotonic_ms.saturating_add(lease_ms);
        // What is given back later does not come back here: nobody knows whether the provider has counted it.
        if let Some(told) = &mut self.told {
            told.take(need);
        }
        match &mut self.kind {
            Kind::Requests(window) => Taken::Request { cell: window.add(1) },
            Kind::Tokens { bucket, window } => {
                bucket.take(need);
                if forgives {
                    bucket.forgive_beyond_window();
                }
                Taken::Tokens {
                    cell: window.add(need),
                    expected: need,
                }
            }
            Kind::Concurrency(members) => {
                members.put(id, 1, expires_ms);
                Taken::InFlight
            }
            Kind::Budget(budget) => {
                let start = budget
                    .find_span(now.wall)
                    .map_or(budget.current().span.start, |span| span.span.start);
                if let Some(span) = budget.span_starting(start) {
                    span.holds.put(id, need, expires_ms);
                }
                Taken::Budget {
                    span_start: start,
                    ceiling: need,
                }
            }
        }
    }

    /// Puts what was really used in the place of what was taken.
    pub(crate) fn settle(&mut self, id: RequestId, taken: Taken, actual: &Amounts, seq: Option<u64>, now_ms: u64) {
        self.open = self.open.saturating_sub(1);
        let actual = amount_of(self.slot.dimension, actual);
        match (&mut self.kind, taken) {
            (Kind::Tokens { bucket, window }, Taken::Tokens { cell, expected }) => {
                bucket.refill_as_before(now_ms);
                if actual > expected {
                    bucket.take(actual - expected);
                } else {
                    bucket.give_back(expected - actual);
                }
                window.replace(cell, expected, actual);
            }
            (Kind::Concurrency(members), Taken::InFlight) => members.remove(id),
            (Kind::Budget(budget), Taken::Budget { span_start, .. }) => {
                if let Some(span) = budget.span_starting(span_start) {
                    span.holds.remove(id);
                    span.settle(actual, seq);
                }
            }
            _ => {}
        }
    }

    /// Gives back what was taken; the count of a request stays where it was sent.
    pub(crate) fn refund(&mut self, id: RequestId, taken: Taken, keep_request: bool) {
        self.open = self.open.saturating_sub(1);
        match (&mut self.kind, taken) {
            (Kind::Requests(window), Taken::Request { cell }) if !keep_request => window.replace(cell, 1, 0),
            (Kind::Tokens { bucket, window }, Taken::Tokens { cell, expected }) => {
                bucket.give_back(expected);
                window.replace(cell, expected, 0);
            }
            (Kind::Concurrency(members), Taken::InFlight) => members.remove(id),
            (Kind::Budget(budget), Taken::Budget { span_start, .. }) => {
                if let Some(span) = budget.span_starting(span_start) {
                    span.holds.remove(id);
                }
            }
            _ => {}
        }
    }

    /// Settles a request that took nothing here: it was admitted before this budget counted.
    pub(crate) fn settle_untaken(&mut self, request: &Request, actual: &Amounts, seq: Option<u64>) {
        let amount = amount_of(self.slot.dimension, actual);
        if let Some(span) = self.untaken_span(request) {
            span.holds.remove(request.id);
            span.settle(amount, seq);
        }
    }

    /// Gives back what a request holds here since it was renewed.
    pub(crate) fn refund_untaken(&mut self, request: &Request) {
        if let Some(span) = self.untaken_span(request) {
            span.holds.remove(request.id);
        }
    }

    /// Holds for a request that took nothing here when it was admitted, until it ends.
    pub(crate) fn renew_untaken(&mut self, request: &Request, expires_ms: u64) {
        let ceiling = amount_of(self.slot.dimension, &request.ceiling);
        if let Some(span) = self.untaken_span(request) {
            span.holds.put(request.id, ceiling, expires_ms);
        }
    }

    /// Where a budget counts a request, if it would have.
    fn untaken_span(&mut self, request: &Request) -> Option<&mut BudgetSpan> {
        let counts = self.counts(&request.model, request.priority);
        match &mut self.kind {
            Kind::Budget(budget) if counts => budget.find_span_mut(request.admitted_at),
            _ => None,
        }
    }

    /// Extends the lease of what was taken.
    pub(crate) fn renew(&mut self, id: RequestId, taken: Taken, expires_ms: u64) {
        match (&mut self.kind, taken) {
            (Kind::Concurrency(members), Taken::InFlight) => members.put(id, 1, expires_ms),
            (Kind::Budget(budget), Taken::Budget { span_start, ceiling }) => {
                if let Some(span) = budget.span_starting(span_start) {
                    span.holds.put(id, ceiling, expires_ms);
                }
            }
            _ => {}
        }
    }

    /// Drops what has expired without waiting for a request.
    pub(crate) fn drop_expired(&mut self, settings: &Settings, now: Now) {
        match &mut self.kind {
            Kind::Concurrency(members) => members.drop_expired(0, now.monotonic_ms),
            Kind::Budget(budget) => budget.drop_expired(settings.orphan_ms, now.monotonic_ms),
            Kind::Requests(_) | Kind::Tokens { .. } => {}
        }
    }

    /// Whether nothing would be lost without it: nothing is held, and it says what a new one would.
    pub(crate) fn is_idle(&self, now: Now) -> bool {
        if self.open > 0 || self.told_room(now).is_some() {
            return false;
        }
        let idle_ms = now.monotonic_ms.saturating_sub(self.used_ms);
        let has_refilled = idle_ms >= u64::from(self.slot.window_seconds.unwrap_or(0)) * 2 * 1_000;
        match &self.kind {
            Kind::Requests(_) => has_refilled,
            Kind::Tokens { bucket, .. } => has_refilled && bucket.is_full_by(now.monotonic_ms),
            Kind::Concurrency(members) => members.is_empty(),
            Kind::Budget(budget) => !budget.has_holds() && now.wall >= kept_until(budget.current().span),
        }
    }

    /// What `limit` has left, at the present it was advanced to. Nothing while a bucket pays back what it owes.
    pub(crate) fn remaining(&self, limit: &Limit, now: Now) -> u64 {
        if let Kind::Tokens { bucket, .. } = &self.kind
            && bucket.is_in_debt()
        {
            return 0;
        }
        let left = i128::from(limit.value).saturating_sub(self.usage_under(limit.value, now).sum());
        u64::try_from(left.max(0)).unwrap_or(u64::MAX)
    }

    /// The reading of `limit`, at the present it was advanced to.
    pub(crate) fn reading(&self, scope: &Scope, limit: &Limit, now: Now) -> Reading {
        let usage = self.usage(now.wall);
        let mut reading = Reading {
            used: clamp_i64(usage.used),
            held: u64::try_from(usage.held).unwrap_or(0),
            remaining: self.remaining(limit, now),
            utilisation_percent: self.usage_under(limit.value, now).percent_of(limit.value),
            is_known: true,
            ..reading::untouched(scope, limit, chrono_tz::UTC, now.wall)
        };
        match &self.kind {
            Kind::Requests(window) => reading.reset_ms = Some(window.wait_ms(0, now.monotonic_ms)),
            Kind::Tokens { bucket, window } => {
                let empty_in_ms = window.wait_ms(0, now.monotonic_ms);
                reading.reset_ms = bucket.full_in_ms().map(|full_in_ms| full_in_ms.max(empty_in_ms));
            }
            Kind::Concurrency(members) => reading.reset_ms = members.is_free().then_some(0),
            Kind::Budget(budget) => {
                let span = budget.find_span(now.wall);
                reading.is_known = budget.is_open(now.wall);
                reading.reset_ms = span.map(|span| ms_until(span.span.end, now.wall));
            }
        }
        let is_less = |room| room < i128::from(limit.value);
        if let Some(told) = self.told
            && told.room(now.monotonic_ms).is_some_and(is_less)
        {
            reading.reset_ms = reading.reset_ms.max(Some(told.over_in_ms(now.monotonic_ms)));
        }
        reading
    }

    /// The budget's key for the period of `at`, where it is a budget that knows that period.
    pub(crate) fn budget_key_at(&self, scope: &Scope, at: DateTime<Utc>) -> Option<BudgetKey> {
        let (Kind::Budget(budget), Some(period), Some((limit_id, tenant))) =
            (&self.kind, self.slot.period, self.met_under)
        else {
            return None;
        };
        Some(BudgetKey {
            scope: scope.clone(),
            limit_id,
            tenant,
            dimension: self.slot.dimension,
            period,
            model: self.slot.model.clone(),
            priority: self.slot.priority,
            span: budget.find_span(at)?.span,
        })
    }

    /// Whether it is a budget whose base is missing or misses something.
    pub(crate) fn wants_base(&self, at: DateTime<Utc>) -> bool {
        matches!(&self.kind, Kind::Budget(budget) if budget.wants_base(at))
    }

    /// A request that it would have counted passes by, its limit being away.
    pub(crate) fn pass_by(&mut self, model: &str, priority: Priority, now: Now) {
        let counts = self.counts(model, priority);
        if let (true, Kind::Budget(budget)) = (counts, &mut self.kind) {
            budget.pass_by(now.wall);
        }
    }

    /// Whether the slot is one for requests of this model and priority.
    fn counts(&self, model: &str, priority: Priority) -> bool {
        let slot = &self.slot;
        slot.model.as_deref().is_none_or(|only| only == model) && slot.priority.is_none_or(|only| only == priority)
    }
}

/// Milliseconds from `now` to `then`, rounded up; none where it has passed.
pub(crate) fn ms_until(then: DateTime<Utc>, now: DateTime<Utc>) -> u64 {
    let micros = (then - now).num_microseconds().unwrap_or(i64::MAX);
    u64::try_from(micros).unwrap_or(0).div_ceil(1_000)
}

fn clamp_i64(amount: i128) -> i64 {
    i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX })
}

//! Budget = base + since + holds: what the ledger has summed up, what was settled after that, and what is in flight.

use std::collections::VecDeque;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use domain::periods::{Period, Span};

use crate::BudgetBase;
use crate::members::Members;

/// Settlements remembered one by one past the mark. Beyond it neighbours are merged, and leave `since` only when the
/// mark covers both: more is counted for a while, never less.
const SINCE_ENTRIES_MAX: usize = 1_024;

/// How long requests may pass by a budget whose limit is away before it closes. Requests under the policy before and
/// after a change overlap for less: those leave it open, and its base wanted.
const UNCOUNTED_MS_MAX: i64 = 10_000;

/// How long after its period a budget's counter is remembered at most, so that scopes in use move on to the next period
/// without a rebuild.
const KEPT_AFTER_PERIOD: chrono::Duration = chrono::Duration::days(1);

/// Until when a period is remembered: a day, or as long as it lasted.
pub(crate) fn kept_until(span: Span) -> DateTime<Utc> {
    span.end + (span.end - span.start).min(KEPT_AFTER_PERIOD)
}

/// One budget's current period and the one before, whose late settlements still arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Every admission since then was counted here: a later period starts at zero.
    first_seen: DateTime<Utc>,
    /// When a request first passed by since the base was set.
    uncounted_since: Option<DateTime<Utc>>,
    current: BudgetSpan,
    previous: Option<BudgetSpan>,
}

impl Budget {
    /// Closed until its base is set.
    pub(crate) fn new(span: Span, now: DateTime<Utc>) -> Self {
        Self {
            first_seen: now,
            uncounted_since: None,
            current: BudgetSpan::new(span, None),
            previous: None,
        }
    }

    /// What another place has counted in this period; closed without a base.
    pub(crate) fn counted(span: Span, base: Option<i64>, since: u64, held: u64, set_aside: u64) -> Self {
        Self {
            current: BudgetSpan::counted(span, base, since, held, set_aside),
            ..Self::new(span, span.start)
        }
    }

    /// Periods to come are closed until they have a base, too: others count in them.
    pub(crate) fn never_start_at_zero(&mut self) {
        self.first_seen = DateTime::<Utc>::MAX_UTC;
    }

    pub(crate) fn current(&self) -> &BudgetSpan {
        &self.current
    }

    /// The period that contains `at`. Moves on to it when the current one has ended.
    pub(crate) fn span_at(&mut self, at: DateTime<Utc>, period: Period, zone: Tz) -> &mut BudgetSpan {
        if self.current.span.contains(at) {
            return &mut self.current;
        }
        if at >= self.current.span.end {
            self.move_on(period.span(at, zone), at);
            return &mut self.current;
        }
        // A request that was admitted just before midnight, or a clock that was set back.
        if !self
            .previous
            .as_ref()
            .is_some_and(|previous| previous.span.contains(at))
        {
            self.previous = None;
        }
        self.previous
            .get_or_insert_with(|| BudgetSpan::new(period.span(at, zone), None))
    }

    /// Like [`Budget::span_at`] without moving on; `None` where nothing is known of that period.
    pub(crate) fn find_span(&self, at: DateTime<Utc>) -> Option<&BudgetSpan> {
        if self.current.span.contains(at) {
            return Some(&self.current);
        }
        self.previous.as_ref().filter(|previous| previous.span.contains(at))
    }

    /// Whether a period that has not been looked at yet will start at zero.
    fn starts_at_zero(&self, span: Span, at: DateTime<Utc>) -> bool {
        span.start >= self.current.span.end && span.start >= self.first_seen && at < kept_until(self.current.span)
    }

    /// The period that starts at `start`, if it is still remembered.
    pub(crate) fn span_starting(&mut self, start: DateTime<Utc>) -> Option<&mut BudgetSpan> {
        if self.current.span.start == start {
            return Some(&mut self.current);
        }
        self.previous.as_mut().filter(|previous| previous.span.start == start)
    }

    /// Counting has begun: what was settled before is in the ledger up to the entry that `last_settled` names, and only a
    /// base that contains it opens this period. Answers the mark that is waited for; `None` where a base is known.
    pub(crate) fn begin(&mut self, span: Span, last_settled: impl FnOnce() -> u64, at: DateTime<Utc>) -> Option<u64> {
        if span.start >= self.current.span.end {
            self.move_on(span, at);
        }
        let found = self.span_starting(span.start)?;
        match found.base {
            Some(_) => None,
            None => Some(*found.opens_at_mark.get_or_insert_with(last_settled)),
        }
    }

    /// Sets what the ledger says. False where the period is over, or where more was known before.
    pub(crate) fn set_base(&mut self, span: Span, base: BudgetBase, at: DateTime<Utc>) -> bool {
        if span.start >= self.current.span.end {
            self.move_on(span, at);
        }
        let is_set = self.span_starting(span.start).is_some_and(|found| found.set_base(base));
        if is_set && self.current.span.start == span.start {
            self.uncounted_since = None;
        }
        is_set
    }

    /// A request passed by uncounted because the limit is away, or not there yet.
    pub(crate) fn pass_by(&mut self, now: DateTime<Utc>) {
        self.first_seen = self.first_seen.max(now);
        self.uncounted_since.get_or_insert(now);
    }

    /// Whether what is known of the period of `at` is enough to admit.
    pub(crate) fn is_open(&self, at: DateTime<Utc>) -> bool {
        let is_counted = self
            .uncounted_since
            .is_none_or(|since| (at - since).num_milliseconds() <= UNCOUNTED_MS_MAX);
        is_counted && self.find_span(at).is_some_and(|span| span.base.is_some())
    }

    /// Whether the base of the period of `at` is missing, or misses requests that passed by.
    pub(crate) fn wants_base(&self, at: DateTime<Utc>) -> bool {
        self.uncounted_since.is_some() || !self.is_open(at)
    }

    /// Whether the period that starts at `span.start` needs no base any more.
    pub(crate) fn has_base(&mut self, span: Span, at: DateTime<Utc>) -> bool {
        if self.starts_at_zero(span, at) {
            return true;
        }
        let is_counted = self.uncounted_since.is_none();
        is_counted && self.span_starting(span.start).is_some_and(|found| found.base.is_some())
    }

    /// Like [`Budget::find_span`].
    pub(crate) fn find_span_mut(&mut self, at: DateTime<Utc>) -> Option<&mut BudgetSpan> {
        if self.current.span.contains(at) {
            return Some(&mut self.current);
        }
        self.previous.as_mut().filter(|previous| previous.span.contains(at))
    }

    pub(crate) fn drop_expired(&mut self, orphan_ms: u64, now_ms: u64) {
        self.current.holds.drop_expired(orphan_ms, now_ms);
        if let Some(previous) = &mut self.previous {
            previous.holds.drop_expired(orphan_ms, now_ms);
        }
    }

    pub(crate) fn has_holds(&self) -> bool {
        let is_held = |span: &BudgetSpan| !span.holds.is_empty();
        is_held(&self.current) || self.previous.as_ref().is_some_and(is_held)
    }

    fn move_on(&mut self, span: Span, at: DateTime<Utc>) {
        let base = self.starts_at_zero(span, at).then_some(BudgetBase::ZERO);
        let ended = std::mem::replace(&mut self.current, BudgetSpan::new(span, base));
        self.previous = Some(ended);
        self.uncounted_since = None;
    }
}

/// One period of one budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BudgetSpan {
    pub(crate) span: Span,
    base: Option<BudgetBase>,
    /// A first base opens it only from this mark on: earlier ones lack what was settled before anybody counted here.
    opens_at_mark: Option<u64>,
    /// Settlements past the mark, in the order of their sequence numbers.
    since: VecDeque<(u64, u64)>,
    since_total: u128,
    /// Settled without an entry in the journal: no base will ever contain it.
    unjournalled: u128,
    pub(crate) holds: Members,
    /// Held back for gateways that may lose the shared counters.
    set_aside: u64,
}

impl BudgetSpan {
    /// What another place has counted.
    fn counted(span: Span, base: Option<i64>, since: u64, held: u64, set_aside: u64) -> Self {
        Self {
            base: base.map(|spent| BudgetBase { spent, mark: 0 }),
            unjournalled: u128::from(since),
            holds: Members::counted(held),
            set_aside,
            ..Self::new(span, None)
        }
    }

    fn new(span: Span, base: Option<BudgetBase>) -> Self {
        Self {
            span,
            base,
            opens_at_mark: None,
            since: VecDeque::new(),
            since_total: 0,
            unjournalled: 0,
            holds: Members::default(),
            set_aside: 0,
        }
    }

    /// What is in the way of a request, and not spent.
    pub(crate) fn held_back(&self) -> u128 {
        self.holds.total() + u128::from(self.set_aside)
    }

    pub(crate) fn base(&self) -> Option<BudgetBase> {
        self.base
    }

    /// Base and since; may be negative after a credit. Without a base it is what is known, and less than the truth.
    pub(crate) fn spent(&self) -> i128 {
        let base = self.base.map_or(0, |base| i128::from(base.spent));
        base + i128::try_from(self.since_total + self.unjournalled).unwrap_or(i128::MAX / 2)
    }

    /// Adds a settlement, unless the base contains it already.
    pub(crate) fn settle(&mut self, amount: u64, seq: Option<u64>) {
        let Some(seq) = seq else {
            self.unjournalled += u128::from(amount);
            return;
        };
        if amount == 0 || self.base.is_some_and(|base| seq <= base.mark) {
            return;
        }
        // Settlements arrive nearly in order: the place is at or near the end.
        let mut place = self.since.len();
        while place > 0 && self.since[place - 1].0 > seq {
            place -= 1;
        }
        self.since.insert(place, (seq, amount));
        self.since_total += u128::from(amount);
        if self.since.len() > SINCE_ENTRIES_MAX {
            self.merge_neighbours();
        }
    }

    fn set_base(&mut self, base: BudgetBase) -> bool {
        let least_mark = self.base.map_or(self.opens_at_mark, |known| Some(known.mark));
        if least_mark.is_some_and(|least| base.mark < least) {
            return false;
        }
        self.base = Some(base);
        while let Some(&(seq, amount)) = self.since.front() {
            if seq > base.mark {
                break;
            }
            self.since.pop_front();
            self.since_total -= u128::from(amount);
        }
        true
    }

    fn merge_neighbours(&mut self) {
        let entries = self.since.make_contiguous();
        self.since = entries
            .chunks(2)
            .map(|pair| {
                let seq = pair[pair.len() - 1].0;
                (seq, pair.iter().fold(0_u64, |sum, entry| sum.saturating_add(entry.1)))
            })
            .collect();
        self.since_total = self.since.iter().map(|entry| u128::from(entry.1)).sum();
    }
}

#[cfg(test)]
mod tests;

//! What became of the latest requests behind one door, and whether that is reason enough to open its breaker.

use std::collections::{HashMap, VecDeque};

use domain::ids::TenantId;

/// Outcomes kept of one door.
pub const OUTCOMES_MAX: usize = 128;
/// How far back they count, in milliseconds.
pub const WINDOW_MS: u64 = 300_000;
/// So many failures in a row open a breaker.
pub const FAILURES_IN_ROW: usize = 5;
/// A share of failures counts from so many outcomes on: one failure of one is no rate.
pub const OUTCOMES_MIN: usize = 20;
/// The share of failures that opens a breaker, in percent.
pub const FAILED_PERCENT_MIN: usize = 50;

/// One outcome.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    serial: u64,
    at_ms: u64,
    /// Whose request it was; nobody's, where no request of anybody could have changed it.
    tenant: Option<TenantId>,
    is_failure: bool,
}

/// The latest outcomes, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Recent(VecDeque<Outcome>);

/// Why a breaker is to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grounds {
    pub(super) measure: Measure,
    /// The tenant whose requests alone say so.
    pub(super) alone: Option<TenantId>,
}

/// What there was too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// So many failures one after the other.
    InRow(usize),
    /// A share of the latest requests.
    Share {
        /// How many failed.
        failed: usize,
        /// Of how many.
        of: usize,
    },
}

impl Recent {
    pub(super) fn note(&mut self, serial: u64, tenant: Option<TenantId>, is_failure: bool, now_ms: u64) {
        self.forget_old(now_ms);
        if self.0.len() >= OUTCOMES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Outcome {
            serial,
            at_ms: now_ms,
            tenant,
            is_failure,
        });
    }

    /// Makes a failure of what looked like a success; false where that is not remembered.
    pub(super) fn turn_to_failure(&mut self, serial: u64) -> bool {
        let found = self.0.iter_mut().rev().find(|outcome| outcome.serial == serial);
        found.map(|outcome| outcome.is_failure = true).is_some()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether another tenant's request has succeeded lately.
    pub(super) fn has_success_of_another(&self, tenant: TenantId, now_ms: u64) -> bool {
        self.current(now_ms)
            .any(|outcome| !outcome.is_failure && outcome.tenant != Some(tenant))
    }

    /// Whether it is to open. The failures of the tenant with the most of them count only where those of the others would
    /// do without, or where no other has succeeded: requests that break a provider's neck are one tenant's own.
    pub(super) fn grounds(&self, now_ms: u64) -> Option<Grounds> {
        let measure = exceeded(self.current(now_ms))?;
        let Some(suspect) = self.suspect(now_ms) else {
            return Some(Grounds { measure, alone: None });
        };
        let others = || self.current(now_ms).filter(|outcome| outcome.tenant != Some(suspect));
        let have_others_succeeded = others().any(|outcome| !outcome.is_failure);
        if have_others_succeeded && exceeded(others()).is_none() {
            return None;
        }
        let alone = others().next().is_none().then_some(suspect);
        Some(Grounds { measure, alone })
    }

    /// The tenant with the most failures.
    fn suspect(&self, now_ms: u64) -> Option<TenantId> {
        let mut failures: HashMap<TenantId, usize> = HashMap::new();
        let failed = self.current(now_ms).filter(|outcome| outcome.is_failure);
        for tenant in failed.filter_map(|outcome| outcome.tenant) {
            *failures.entry(tenant).or_default() += 1;
        }
        failures
            .into_iter()
            .max_by_key(|(tenant, count)| (*count, *tenant))
            .map(|(tenant, _)| tenant)
    }

    fn current(&self, now_ms: u64) -> impl DoubleEndedIterator<Item = &Outcome> {
        let is_current = move |outcome: &&Outcome| now_ms.saturating_sub(outcome.at_ms) <= WINDOW_MS;
        self.0.iter().filter(is_current)
    }

    fn forget_old(&mut self, now_ms: u64) {
        while self
            .0
            .front()
            .is_some_and(|outcome| now_ms.saturating_sub(outcome.at_ms) > WINDOW_MS)
        {
            self.0.pop_front();
        }
    }
}

/// Whether these are too many failures: in a row at the end, or by their share.
fn exceeded<'a>(outcomes: impl DoubleEndedIterator<Item = &'a Outcome>) -> Option<Measure> {
    let (mut in_row, mut is_row_over, mut failed, mut of) = (0, false, 0, 0);
    for outcome in outcomes.rev() {
        of += 1;
        failed += usize::from(outcome.is_failure);
        is_row_over |= !outcome.is_failure;
        in_row += usize::from(!is_row_over);
    }
    if in_row >= FAILURES_IN_ROW {
        Some(Measure::InRow(in_row))
    } else if of >= OUTCOMES_MIN && failed * 100 >= of * FAILED_PERCENT_MIN {
        Some(Measure::Share { failed, of })
    } else {
        None
    }
}

//! What this gateway may spend of budgets by itself: set aside in the shared store beforehand, so that nobody else spends
//! it. A share of the remainder as it was last known would not do: others may have spent since.
//!
//! One loss on top of another is not made good: a server that forgets everything while a gateway is cut off from it, for
//! longer than others wait, has forgotten that gateway's part, which it goes on spending.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use domain::limits::{Increase, Limit};
use parking_lot::Mutex;

use crate::{BudgetKey, Now};

/// What all gateways together set aside of what is left of a budget, in millionths.
const SET_ASIDE_MILLIONTHS: u64 = 100_000;
/// How often it is measured anew, in milliseconds.
const RENEWED_MS: u64 = 20_000;
/// How long the store keeps a part set aside for a gateway that is not heard of, in milliseconds.
pub(crate) const KEPT_MS: u64 = 3_600_000;
/// For how long the gateway spends it, in milliseconds: well before others may.
const SPENT_MS: u64 = KEPT_MS - 600_000;
/// A budget that met no request for so long sets nothing aside any more, in milliseconds.
const IDLE_MS: u64 = 600_000;
/// Budgets that something is set aside of at most.
const ALLOWANCES_MAX: usize = 100_000;

/// One budget's part, in units of the store.
#[derive(Clone, Copy, Debug, Default)]
struct Allowance {
    /// What may be spent.
    part: Option<u64>,
    /// Until when: the value that it was measured by is over then.
    spent_until: Option<DateTime<Utc>>,
    /// The budget's value when it was last met, in the unit of its dimension.
    value: u64,
    /// A higher one, while it is in force.
    increase: Option<Increase>,
    met_ms: u64,
    renewed_ms: Option<u64>,
}

impl Allowance {
    fn is_due(&self, now: Now) -> bool {
        let renewed = self.renewed_ms;
        self.is_over(now) || renewed.is_none_or(|renewed_ms| now.monotonic_ms.saturating_sub(renewed_ms) >= RENEWED_MS)
    }

    /// Whether the value that it was measured by is not in force any more.
    fn is_over(&self, now: Now) -> bool {
        self.spent_until.is_some_and(|until| until <= now.wall)
    }

    fn increase_at(&self, now: Now) -> Option<Increase> {
        self.increase.filter(|increase| now.wall < increase.until)
    }

    fn value_at(&self, now: Now) -> u64 {
        self.increase_at(now).map_or(self.value, |increase| increase.value)
    }
}

/// By budget.
#[derive(Debug, Default)]
pub(crate) struct Allowances {
    by_key: Mutex<HashMap<BudgetKey, Allowance>>,
}

impl Allowances {
    /// A request has met this budget.
    pub(crate) fn meet(&self, key: BudgetKey, limit: &Limit, now: Now) {
        let mut by_key = self.by_key.lock();
        if by_key.len() >= ALLOWANCES_MAX && !by_key.contains_key(&key) {
            return;
        }
        let allowance = by_key.entry(key).or_default();
        allowance.value = limit.value;
        allowance.increase = limit.increase_at(now.wall);
        allowance.met_ms = now.monotonic_ms;
    }

    /// What may be spent of it; nothing where nothing is known.
    pub(crate) fn part(&self, key: &BudgetKey, now: Now) -> Option<u64> {
        let by_key = self.by_key.lock();
        let allowance = by_key.get(key)?;
        let renewed_ms = allowance.renewed_ms?;
        match now.monotonic_ms.saturating_sub(renewed_ms) < SPENT_MS && !allowance.is_over(now) {
            true => allowance.part,
            false => allowance.part.map(|_| 0),
        }
    }

    /// Those that are due, with their values.
    pub(crate) fn due(&self, now: Now) -> Vec<(BudgetKey, u64)> {
        let mut by_key = self.by_key.lock();
        by_key.retain(|key, allowance| {
            key.span.end > now.wall && now.monotonic_ms.saturating_sub(allowance.met_ms) < IDLE_MS
        });
        by_key
            .iter_mut()
            .filter(|(_, allowance)| allowance.is_due(now))
            .map(|(key, allowance)| {
                allowance.spent_until = allowance.increase_at(now).map(|increase| increase.until);
                (key.clone(), allowance.value_at(now))
            })
            .collect()
    }

    /// Spends nothing of those that are due.
    pub(crate) fn suspend_due(&self, now: Now) {
        for allowance in self.by_key.lock().values_mut() {
            if allowance.is_due(now) {
                allowance.part = None;
                allowance.renewed_ms = None;
            }
        }
    }

    /// So much is set aside from now on. Of a budget without a base that is nothing, and asked again soon.
    pub(crate) fn set(&self, key: &BudgetKey, part: Option<u64>, now: Now) {
        if let Some(allowance) = self.by_key.lock().get_mut(key) {
            allowance.part = part;
            allowance.renewed_ms = part.map(|_| now.monotonic_ms);
        }
    }

    /// All of them.
    pub(crate) fn keys(&self) -> Vec<BudgetKey> {
        self.by_key.lock().keys().cloned().collect()
    }

    /// Spends nothing of these by itself from now on: their parts are about to be given back. Answers those that had some.
    pub(crate) fn give_up(&self, keys: Vec<BudgetKey>, now: Now) -> Vec<(BudgetKey, u64)> {
        let mut by_key = self.by_key.lock();
        keys.into_iter()
            .filter_map(|key| {
                let allowance = by_key.get_mut(&key)?;
                let part = allowance.part.replace(0)?;
                (part > 0).then_some((key, allowance.value_at(now)))
            })
            .collect()
    }

    /// Spends nothing of any until they are measured anew: the server may not know of them.
    pub(crate) fn forget(&self) {
        for allowance in self.by_key.lock().values_mut() {
            allowance.part = None;
            allowance.renewed_ms = None;
        }
    }
}

/// The part of what is left that one of so many gateways sets aside, in millionths.
pub(crate) fn millionths(gateways: u64) -> u64 {
    SET_ASIDE_MILLIONTHS / gateways.max(1)
}

//! What a limit's counter says.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use domain::limits::{Dimension, Limit, Scope};
use domain::readings::Reading;

use crate::Now;
use crate::counter::ms_until;
use crate::node::Level;

/// The tightest limits of a request, for its response headers. The provider account's own are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tightest {
    /// The requests limit with the least left.
    pub requests: Option<Reading>,
    /// The token limit (input, output or total) with the least left.
    pub tokens: Option<Reading>,
}

impl Tightest {
    pub(crate) fn of(tree: &[Level<'_>], now: Now) -> Self {
        Self {
            requests: tightest(tree, |dimension| dimension == Dimension::Requests, now),
            tokens: tightest(
                tree,
                |dimension| dimension.is_rate() && dimension != Dimension::Requests,
                now,
            ),
        }
    }
}

fn tightest(tree: &[Level<'_>], is_wanted: impl Fn(Dimension) -> bool, now: Now) -> Option<Reading> {
    tree.iter()
        .flat_map(|level| level.counted(now))
        .filter(|counted| is_wanted(counted.limit.dimension))
        .min_by_key(|counted| counted.remaining)
        .map(|counted| counted.counter.reading(counted.scope, counted.limit, now))
}

/// Used and held, in the unit of the dimension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) used: i128,
    pub(crate) held: i128,
}

impl Usage {
    pub(crate) fn sum(self) -> i128 {
        self.used.saturating_add(self.held)
    }

    pub(crate) fn percent_of(self, value: u64) -> f64 {
        if value == 0 {
            return 100.0;
        }
        (self.sum() as f64 / value as f64 * 100.0).max(0.0)
    }

    /// Whether it has reached `percent` of `value`.
    pub(crate) fn has_reached(self, percent: u8, value: u64) -> bool {
        self.sum().saturating_mul(100) >= i128::from(value) * i128::from(percent)
    }
}

/// The reading of a limit nothing has been counted for yet.
pub(crate) fn untouched(scope: &Scope, limit: &Limit, time_zone: Tz, at: DateTime<Utc>) -> Reading {
    let slot = limit.slot();
    let ends = slot.period.map(|period| period.span(at, time_zone).end);
    Reading {
        scope: scope.clone(),
        limit_id: limit.id,
        dimension: limit.dimension,
        window_seconds: slot.window_seconds,
        period: slot.period,
        model: slot.model,
        priority: slot.priority,
        mode: limit.mode,
        limit_value: limit.value,
        used: 0,
        held: 0,
        remaining: limit.value,
        utilisation_percent: Usage::default().percent_of(limit.value),
        reset_ms: Some(ends.map_or(0, |end| ms_until(end, at))),
        is_known: !limit.dimension.is_budget(),
    }
}

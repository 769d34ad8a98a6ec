//! What reports add up, and how complete they are.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};

use crate::ledger::LATENCY_BOUNDS_MS;
use crate::money::Nanos;
use crate::periods::Span;
use crate::usage::TokenUsage;

/// Buckets of a latency histogram: one for each bound, one open above.
pub const LATENCY_BUCKETS: usize = LATENCY_BOUNDS_MS.len() + 1;

/// How many requests took how long; bucket by bucket below [`LATENCY_BOUNDS_MS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies(pub [u64; LATENCY_BUCKETS]);

impl Latencies {
    /// How many are counted.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The latency that the share `quantile` (0 to 1) of requests does not exceed, in milliseconds, evenly spread within a
    /// bucket; the last bound for what lies above it. `None` without any request.
    pub fn quantile_ms(&self, quantile: f64) -> Option<i64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = (quantile.clamp(0.0, 1.0) * count as f64).max(f64::MIN_POSITIVE);
        let mut below = 0_u64;
        for (at, &here) in self.0.iter().enumerate() {
            let through = below + here;
            if through as f64 >= rank && here > 0 {
                let last = LATENCY_BOUNDS_MS[LATENCY_BOUNDS_MS.len() - 1];
                let Some(&upper) = LATENCY_BOUNDS_MS.get(at) else {
                    return Some(last);
                };
                let lower = if at == 0 { 0 } else { LATENCY_BOUNDS_MS[at - 1] };
                let share = (rank - below as f64) / here as f64;
                return Some(lower + ((upper - lower) as f64 * share).round() as i64);
            }
            below = through;
        }
        None
    }
}

impl AddAssign<&Self> for Latencies {
    fn add_assign(&mut self, other: &Self) {
        for (bucket, requests) in self.0.iter_mut().zip(other.0) {
            *bucket = bucket.saturating_add(requests);
        }
    }
}

/// Sums over settlements, adjustments and rejections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Requests that ran.
    pub requests: u64,
    /// Of these, those that provider or gateway failed.
    pub failed_requests: u64,
    /// Of these, those charged at a fallback price.
    pub unpriced_requests: u64,
    /// Of these, those whose usage was counted here because the provider said nothing.
    pub estimated_requests: u64,
    /// What they used.
    pub usage: TokenUsage,
    /// What they were expected to use: input.
    pub expected_input_tokens: u64,
    /// What they were expected to use: output.
    pub expected_output_tokens: u64,
    /// What they were expected to cost.
    pub expected_cost: Nanos,
    /// What they cost, before adjustments.
    pub cost: Nanos,
    /// How much of that lay above the ceilings.
    pub overrun: Nanos,
    /// Signed corrections: how many.
    pub adjustments: u64,
    /// Their input tokens.
    pub adjusted_input_tokens: i64,
    /// Their output tokens.
    pub adjusted_output_tokens: i64,
    /// Their money.
    pub adjusted_cost: Nanos,
    /// Waited for admission, milliseconds, all together.
    pub queue_ms: u64,
    /// From arrival to the end.
    pub total_latencies: Latencies,
    /// From arrival to the first byte, of those that had one.
    pub first_byte_latencies: Latencies,
    /// Refused requests by code; the words of [`crate::refusals::RefusalCode`].
    pub refusals: BTreeMap<String, u64>,
}

impl Totals {
    /// What is to be paid: cost and adjustments.
    pub fn charged(&self) -> Nanos {
        self.cost + self.adjusted_cost
    }

    /// Input and output tokens, adjustments included.
    pub fn charged_tokens(&self) -> i64 {
        i64::try_from(self.usage.total_tokens())
            .unwrap_or(i64::MAX)
            .saturating_add(self.adjusted_input_tokens)
            .saturating_add(self.adjusted_output_tokens)
    }

    /// All refused requests.
    pub fn refused_requests(&self) -> u64 {
        self.refusals.values().sum()
    }

    /// How far the expected cost was above (positive) or below the actual one, in percent of the actual; `None` where
    /// nothing was charged.
    pub fn estimate_error_percent(&self) -> Option<f64> {
        (self.cost.0 > 0).then(|| (self.expected_cost.0 - self.cost.0) as f64 * 100.0 / self.cost.0 as f64)
    }

    /// The mean wait for admission, in milliseconds.
    pub fn mean_queue_ms(&self) -> Option<u64> {
        self.queue_ms.checked_div(self.requests)
    }
}

/// Adds the sums over other entries.
impl AddAssign<&Self> for Totals {
    fn add_assign(&mut self, other: &Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.requests, other.requests);
        add(&mut self.failed_requests, other.failed_requests);
        add(&mut self.unpriced_requests, other.unpriced_requests);
        add(&mut self.estimated_requests, other.estimated_requests);
        self.usage += &other.usage;
        add(&mut self.expected_input_tokens, other.expected_input_tokens);
        add(&mut self.expected_output_tokens, other.expected_output_tokens);
        self.expected_cost += other.expected_cost;
        self.cost += other.cost;
        self.overrun += other.overrun;
        add(&mut self.adjustments, other.adjustments);
        self.adjusted_input_tokens = self.adjusted_input_tokens.saturating_add(other.adjusted_input_tokens);
        self.adjusted_output_tokens = self.adjusted_output_tokens.saturating_add(other.adjusted_output_tokens);
        self.adjusted_cost += other.adjusted_cost;
        add(&mut self.queue_ms, other.queue_ms);
        self.total_latencies += &other.total_latencies;
        self.first_byte_latencies += &other.first_byte_latencies;
        for (code, &refusals) in &other.refusals {
            add(self.refusals.entry(code.clone()).or_default(), refusals);
        }
    }
}

/// What was expected of requests beside what they used and cost, adjustments left out. What a provider did not report was
/// charged as expected, so that such requests agree with themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimates {
    /// Requests that ran.
    pub requests: u64,
    /// Of these, those whose usage was estimated here.
    pub estimated_requests: u64,
    /// Input in tokens, of all classes.
    pub input: Estimated,
    /// Output in tokens.
    pub output: Estimated,
    /// Cost in nano-units.
    pub cost: Estimated,
    /// Cost above the ceilings, which budgets had not held.
    pub overrun: Nanos,
}

impl Estimates {
    /// Those of the requests that a report adds up.
    pub fn of(totals: &Totals) -> Self {
        let nanos = |amount: Nanos| u64::try_from(amount.0).unwrap_or(0);
        Self {
            requests: totals.requests,
            estimated_requests: totals.estimated_requests,
            input: Estimated {
                expected: totals.expected_input_tokens,
                used: totals.usage.input_tokens(),
            },
            output: Estimated {
                expected: totals.expected_output_tokens,
                used: totals.usage.output_tokens,
            },
            cost: Estimated {
                expected: nanos(totals.expected_cost),
                used: nanos(totals.cost),
            },
            overrun: totals.overrun,
        }
    }
}

/// What a report by tag adds up: sums over settlements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagTotals {
    /// Requests that ran.
    pub requests: u64,
    /// Of these, those that provider or gateway failed.
    pub failed_requests: u64,
    /// What they used.
    pub usage: TokenUsage,
    /// What they cost, before adjustments: these have no tags.
    pub cost: Nanos,
}

impl TagTotals {
    /// Those of the requests that a report adds up.
    pub fn of(totals: &Totals) -> Self {
        Self {
            requests: totals.requests,
            failed_requests: totals.failed_requests,
            usage: totals.usage,
            cost: totals.cost,
        }
    }

    /// What is left of these without `part`, which is contained in them.
    pub fn without(&self, part: &Self) -> Self {
        let (all, less) = (&self.usage, &part.usage);
        Self {
            requests: self.requests.saturating_sub(part.requests),
            failed_requests: self.failed_requests.saturating_sub(part.failed_requests),
            usage: TokenUsage {
                input_fresh_tokens: all.input_fresh_tokens.saturating_sub(less.input_fresh_tokens),
                cache_read_tokens: all.cache_read_tokens.saturating_sub(less.cache_read_tokens),
                cache_write_5m_tokens: all.cache_write_5m_tokens.saturating_sub(less.cache_write_5m_tokens),
                cache_write_1h_tokens: all.cache_write_1h_tokens.saturating_sub(less.cache_write_1h_tokens),
                output_tokens: all.output_tokens.saturating_sub(less.output_tokens),
                reasoning_tokens: all.reasoning_tokens.saturating_sub(less.reasoning_tokens),
            },
            cost: self.cost - part.cost,
        }
    }
}

/// A figure as it was expected and as it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimated {
    /// What rates held before the requests ran.
    pub expected: u64,
    /// What they used.
    pub used: u64,
}

impl Estimated {
    /// Expected by used in hundredths, rounded to the nearest; `None` where nothing was used, however much was expected.
    pub fn ratio_hundredths(self) -> Option<u64> {
        let used = u128::from(self.used);
        let hundredths = (u128::from(self.expected) * 100 + used / 2).checked_div(used)?;
        Some(u64::try_from(hundredths).unwrap_or(u64::MAX))
    }
}

/// By what a report is divided. Users and keys are a tenant's, so that dividing by them also divides by tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grouping {
    /// By tenant.
    pub tenant: bool,
    /// By user.
    pub user: bool,
    /// By key.
    pub key: bool,
    /// By model.
    pub model: bool,
    /// By priority.
    pub priority: bool,
}

impl Grouping {
    /// One row for everything.
    pub const NONE: Self = Self {
        tenant: false,
        user: false,
        key: false,
        model: false,
        priority: false,
    };

    /// Whether rows tell their tenant.
    pub fn has_tenant(self) -> bool {
        self.tenant || self.user || self.key
    }
}

/// One day of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayTotals {
    /// In the billing time zone.
    pub day: NaiveDate,
    /// Requests that ran.
    pub requests: u64,
    /// Refused requests.
    pub refused_requests: u64,
    /// Input and output tokens, adjustments included.
    pub tokens: i64,
    /// Cost and adjustments.
    pub charged: Nanos,
}

/// Whether a report's sums can still change other than by adjustment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MonthState {
    /// It is not over.
    Open,
    /// It is over, but holds are open or entries on their way.
    Closing,
    /// Everything is in.
    Final,
}

impl MonthState {
    /// The word in pages and files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closing => "closing",
            Self::Final => "final",
        }
    }
}

/// How complete a report is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completeness {
    /// The state of its span.
    pub state: MonthState,
    /// Every request admitted or refused before this instant is counted.
    pub complete_until: DateTime<Utc>,
    /// Gateways that have entries from before the span's end and have not shipped them.
    pub waiting_for: Vec<String>,
}

impl Completeness {
    /// From what each gateway says that it has shipped; a gateway that stopped in good order says nothing any more.
    pub fn new(
        span: Span,
        now: DateTime<Utc>,
        shipped_until: impl IntoIterator<Item = (String, DateTime<Utc>)>,
    ) -> Self {
        let mut complete_until = now;
        let mut waiting_for = Vec::new();
        for (instance, until) in shipped_until {
            complete_until = complete_until.min(until);
            if until < span.end.min(now) {
                waiting_for.push(instance);
            }
        }
        let state = if now < span.end {
            MonthState::Open
        } else if complete_until < span.end {
            MonthState::Closing
        } else {
            MonthState::Final
        };
        if state == MonthState::Open {
            // A gateway that works is always some seconds behind the present.
            waiting_for.clear();
        }
        Self {
            state,
            complete_until: complete_until.min(span.end),
            waiting_for,
        }
    }
}

#[cfg(test)]
mod tests;

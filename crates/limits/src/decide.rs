//! Whether one limit has room for one request.

use domain::limits::{Dimension, Gate, Gates, Limit};
use domain::priority::Priority;
use domain::refusals::RefusalCode;

use crate::Now;
use crate::counter::{Counter, Kind, ms_until};

/// When to try again where a request in flight has to end first, in milliseconds.
const CONCURRENCY_RETRY_MS: u64 = 1_000;
/// The same for a budget's holds.
const BUDGET_HELD_RETRY_MS: u64 = 2_000;

/// One limit's no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: RefusalCode,
    pub(crate) retry_after_ms: Option<u64>,
    pub(crate) gate: Option<Gate>,
}

impl Refusal {
    fn new(code: RefusalCode, retry_after_ms: Option<u64>) -> Self {
        Self {
            code,
            retry_after_ms,
            gate: None,
        }
    }

    /// The same refusal, for as long as the other one stands too.
    fn until_both(self, other: Self) -> Self {
        Self {
            retry_after_ms: self.retry_after_ms.max(other.retry_after_ms),
            ..self
        }
    }

    /// How little waiting helps: 3 never, 2 a base is missing, 1 not in the queue, 0 time heals it.
    pub(crate) fn hardness(&self) -> u8 {
        match self.code {
            RefusalCode::RequestTooLarge | RefusalCode::BudgetExhausted => 3,
            RefusalCode::BudgetUnknown => 2,
            RefusalCode::PriorityGated if self.gate == Some(Gate::Upper { waits: false }) => 1,
            _ => 0,
        }
    }
}

/// Whether `counter`, brought to the present, has room for `need` under `limit`.
pub(crate) fn check(
    limit: &Limit,
    counter: Option<&Counter>,
    need: u64,
    gate_priority: Priority,
    now: Now,
) -> Result<(), Refusal> {
    if limit.dimension == Dimension::RequestSeconds {
        return Ok(());
    }
    // A budget is spent before it is too small: it says until when.
    if !limit.dimension.is_budget() && (limit.value == 0 || need > limit.value) {
        return Err(Refusal::new(RefusalCode::RequestTooLarge, None));
    }
    let Some(counter) = counter else {
        return Ok(());
    };
    let room = match (check_room(limit, counter, need, now), check_told(counter, need, now)) {
        (Err(refused), Err(told)) => Err(refused.until_both(told)),
        (room, told) => room.and(told),
    };
    let gate = limit
        .gates
        .map_or(Ok(()), |gates| check_gates(gates, limit, counter, gate_priority, now));
    match (gate, room) {
        (Err(gated), Err(refused)) if refused.hardness() <= gated.hardness() => Err(gated.until_both(refused)),
        (Err(gated), Ok(())) => Err(gated),
        _ => room,
    }
}

fn check_room(limit: &Limit, counter: &Counter, need: u64, now: Now) -> Result<(), Refusal> {
    let now_ms = now.monotonic_ms;
    match &counter.kind {
        Kind::Requests(window) => {
            let target = u128::from(limit.value) - 1;
            if window.total() <= target {
                return Ok(());
            }
            let wait_ms = window.wait_ms(target, now_ms);
            Err(Refusal::new(RefusalCode::RateLimitExceeded, Some(wait_ms)))
        }
        Kind::Tokens { bucket, window } => {
            if need == 0 {
                return Ok(());
            }
            let target = u128::from(limit.value) + u128::from(limit.burst_tokens()) - 1;
            if bucket.has(need) && window.total() <= target {
                return Ok(());
            }
            let wait_ms = bucket
                .wait_ms(need)
                .map(|wait_ms| wait_ms.max(window.wait_ms(target, now_ms)));
            Err(Refusal::new(RefusalCode::RateLimitExceeded, wait_ms))
        }
        Kind::Concurrency(members) => {
            if members.total() < u128::from(limit.value) {
                return Ok(());
            }
            Err(Refusal::new(
                RefusalCode::ConcurrencyLimitExceeded,
                Some(CONCURRENCY_RETRY_MS),
            ))
        }
        Kind::Budget(budget) => {
            let Some(span) = budget.find_span(now.wall) else {
                return Err(Refusal::new(RefusalCode::BudgetUnknown, None));
            };
            let exhausted = || Refusal::new(RefusalCode::BudgetExhausted, Some(ms_until(span.span.end, now.wall)));
            if limit.value == 0 {
                return Err(exhausted());
            }
            if need == 0 {
                return Ok(());
            }
            if !budget.is_open(now.wall) {
                return Err(Refusal::new(RefusalCode::BudgetUnknown, None));
            }
            let left = i128::from(limit.value) - span.spent() - i128::from(need);
            if left < 0 {
                return Err(exhausted());
            }
            if u128::try_from(left).unwrap_or(0) < span.held_back() {
                return Err(Refusal::new(RefusalCode::BudgetHeld, Some(BUDGET_HELD_RETRY_MS)));
            }
            Ok(())
        }
    }
}

/// Whether the provider of an account has left `need`.
fn check_told(counter: &Counter, need: u64, now: Now) -> Result<(), Refusal> {
    let need = i128::from(need);
    if need == 0 || counter.told_room(now).is_none_or(|room| room >= need) {
        return Ok(());
    }
    let wait_ms = counter.told_wait_ms(need, now);
    Err(Refusal::new(RefusalCode::RateLimitExceeded, Some(wait_ms)))
}

/// What rehearsing `limit` at `percent` of its value would have said: on the same counters, with token rates judged by
/// the last window alone, since the bucket is filled for the whole value, and without what a provider says of the whole.
pub(crate) fn check_share(
    limit: &Limit,
    percent: u8,
    counter: Option<&Counter>,
    need: u64,
    gate_priority: Priority,
    now: Now,
) -> Result<(), Refusal> {
    let share = share_of(limit, percent);
    let untold = counter.and_then(|counter| counter.find_untold(now));
    let counter = untold.as_ref().or(counter);
    let Some(Kind::Tokens { window, .. }) = counter.map(|counter| &counter.kind) else {
        return check(&share, counter, need, gate_priority, now);
    };
    if need == 0 && share.value > 0 {
        return Ok(());
    }
    if need > share.value {
        return Err(Refusal::new(RefusalCode::RequestTooLarge, None));
    }
    if let (Some(gates), Some(counter)) = (share.gates, counter) {
        check_gates(gates, &share, counter, gate_priority, now)?;
    }
    // A verdict for the record: nobody waits for it.
    let room = u128::from(share.value) + u128::from(share.burst_tokens());
    if window.total() + u128::from(need) <= room {
        return Ok(());
    }
    Err(Refusal::new(RefusalCode::RateLimitExceeded, None))
}

/// The limit at `percent` of its value and burst, rounded up: what admits something still does.
fn share_of(limit: &Limit, percent: u8) -> Limit {
    let share = |value: u64| {
        let share = (u128::from(value) * u128::from(percent)).div_ceil(100);
        u64::try_from(share).unwrap_or(u64::MAX)
    };
    Limit {
        value: share(limit.value),
        burst: limit.burst.map(share),
        ..limit.clone()
    }
}

fn check_gates(
    gates: Gates,
    limit: &Limit,
    counter: &Counter,
    gate_priority: Priority,
    now: Now,
) -> Result<(), Refusal> {
    if gate_priority >= Priority::High {
        return Ok(());
    }
    let usage = counter.usage_under(limit.value, now);
    let (gate, percent) = if usage.has_reached(gates.upper_percent, limit.value) {
        let waits = gates.upper_waits;
        (Gate::Upper { waits }, gates.upper_percent)
    } else if gate_priority == Priority::Low && usage.has_reached(gates.lower_percent, limit.value) {
        (Gate::Lower, gates.lower_percent)
    } else {
        return Ok(());
    };
    // The highest use that is still under the gate.
    let threshold = (u128::from(limit.value) * u128::from(percent)).div_ceil(100);
    let target = threshold.saturating_sub(1);
    let retry_after_ms = match &counter.kind {
        Kind::Requests(window) | Kind::Tokens { window, .. } => {
            let least = i128::from(limit.value) - i128::try_from(target).unwrap_or(i128::MAX);
            let told_ms = counter.told_wait_ms(least, now);
            window.wait_ms(target, now.monotonic_ms).max(told_ms)
        }
        Kind::Concurrency(_) => CONCURRENCY_RETRY_MS,
        Kind::Budget(budget) => match budget.find_span(now.wall) {
            Some(span) if usage.used >= i128::try_from(threshold).unwrap_or(i128::MAX) => {
                ms_until(span.span.end, now.wall)
            }
            _ => BUDGET_HELD_RETRY_MS,
        },
    };
    Err(Refusal {
        code: RefusalCode::PriorityGated,
        retry_after_ms: Some(retry_after_ms),
        gate: Some(gate),
    })
}

#[cfg(test)]
mod tests;

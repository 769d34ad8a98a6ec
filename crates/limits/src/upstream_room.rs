//! What a provider says is left of its account, and what that means for a limit of the account.

use domain::limits::{Dimension, Limit};

use crate::ScopeLimits;

/// How long a word without a reset stands, in milliseconds: long enough for the next answers to say more.
pub(crate) const UNTIMED_MS: u64 = 1_000;
/// How long a word stands at most, in milliseconds. Longer outages are the breaker's business.
pub(crate) const STANDS_MS_MAX: u64 = 60_000;
/// Longer windows than this are the operator's own idea, of which the provider knows nothing.
const WINDOW_SECONDS_MAX: u32 = 60;
/// By how much a provider rounds its resets, in milliseconds.
const ROUNDING_MS: u64 = 1_000;
/// The fastest growth that is reckoned with, in units per window: no product of it leaves the integers of a script.
const GROWTH_MAX: u64 = 100_000_000_000;
/// Lua counts in doubles: beyond this they are no integers any more.
const EXACT_MAX: u64 = (1 << 53) - 1;

/// What a provider's answer says is left of the account. What it says nothing of stays absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpstreamRoom {
    /// How long ago the request was sent that was answered so, in milliseconds. A later answer to an earlier request does
    /// not raise what was said before; where it is not known, zero.
    pub sent_ms_ago: u64,
    /// Requests.
    pub requests: Option<RoomLeft>,
    /// Input tokens.
    pub input_tokens: Option<RoomLeft>,
    /// Output tokens.
    pub output_tokens: Option<RoomLeft>,
    /// Input and output tokens together.
    pub total_tokens: Option<RoomLeft>,
}

/// What is left of one of the account's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomLeft {
    /// Requests or tokens.
    pub remaining: u64,
    /// Milliseconds from now until the provider's limit is as good as new. Absent counts as a second; more than a minute
    /// as a minute.
    pub reset_ms: Option<u64>,
}

/// What one limit of the account is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Telling {
    pub(crate) remaining: u64,
    /// How long it stands, in milliseconds.
    pub(crate) stands_ms: u64,
    /// What comes back meanwhile, in units per window of the limit.
    pub(crate) per_window: u64,
}

impl UpstreamRoom {
    /// What it means for the limits on this scope that apply to the model: one telling for each of their counters.
    pub(crate) fn tellings<'a>(&self, of: &'a ScopeLimits, model: &str) -> Vec<(&'a Limit, Telling)> {
        let mut tellings: Vec<(&Limit, Telling)> = Vec::new();
        for limit in of.limits.iter().filter(|limit| may_be_told(limit)) {
            if limit.model.as_deref().is_some_and(|only| only != model) {
                continue;
            }
            let Some(left) = self.left_of(limit.dimension) else {
                continue;
            };
            let telling = Telling::of(left, limit);
            match tellings.iter_mut().find(|(other, _)| other.slot() == limit.slot()) {
                Some((_, told)) => told.per_window = told.per_window.min(telling.per_window),
                None => tellings.push((limit, telling)),
            }
        }
        tellings
    }

    /// The same for one of several gateways that go by themselves. What admits something still does.
    pub(crate) fn scaled(&self, percent: u8) -> Self {
        let share = |left: RoomLeft| {
            let remaining = u128::from(left.remaining) * u128::from(percent) / 100;
            RoomLeft {
                remaining: u64::try_from(remaining).unwrap_or(u64::MAX).max(left.remaining.min(1)),
                ..left
            }
        };
        Self {
            sent_ms_ago: self.sent_ms_ago,
            requests: self.requests.map(share),
            input_tokens: self.input_tokens.map(share),
            output_tokens: self.output_tokens.map(share),
            total_tokens: self.total_tokens.map(share),
        }
    }

    /// The most that may be left in this dimension: there are no more input tokens than tokens, and no more tokens than
    /// input and output.
    fn left_of(&self, dimension: Dimension) -> Option<RoomLeft> {
        let less = |one: Option<RoomLeft>, other: Option<RoomLeft>| {
            one.into_iter().chain(other).min_by_key(|left| left.remaining)
        };
        match dimension {
            Dimension::Requests => self.requests,
            Dimension::InputTokens => less(self.input_tokens, self.total_tokens),
            Dimension::OutputTokens => less(self.output_tokens, self.total_tokens),
            Dimension::TotalTokens => less(self.total_tokens, self.both()),
            _ => None,
        }
    }

    fn both(&self) -> Option<RoomLeft> {
        let (input, output) = (self.input_tokens?, self.output_tokens?);
        Some(RoomLeft {
            remaining: input.remaining.saturating_add(output.remaining),
            // Once one of them is new, nothing is known of the sum.
            reset_ms: match (input.reset_ms, output.reset_ms) {
                (Some(input), Some(output)) => Some(input.min(output)),
                (one, other) => one.or(other).map(|reset_ms| reset_ms.min(UNTIMED_MS)),
            },
        })
    }
}

/// Whether a provider's word is about this limit, where it is one of an account.
pub(crate) fn may_be_told(limit: &Limit) -> bool {
    limit.dimension.is_rate() && limit.window_seconds <= WINDOW_SECONDS_MAX
}

impl Telling {
    fn of(left: RoomLeft, limit: &Limit) -> Self {
        let is_bucket = left
            .reset_ms
            .is_some_and(|reset_ms| may_be_bucket(left.remaining, reset_ms, limit));
        Self {
            remaining: left.remaining.min(EXACT_MAX),
            stands_ms: left.reset_ms.unwrap_or(UNTIMED_MS).min(STANDS_MS_MAX),
            per_window: if is_bucket { limit.value.min(GROWTH_MAX) } else { 0 },
        }
    }
}

/// Whether what is left may stand in a bucket that refills all the time and is full at the reset. The account admits at
/// least what our limit does; a bucket of that size has this much when it will be full so soon. One with less is none:
/// nothing comes back there before the reset.
fn may_be_bucket(remaining: u64, reset_ms: u64, limit: &Limit) -> bool {
    let window_ms = u64::from(limit.window_seconds.max(1)) * 1_000;
    if reset_ms > window_ms + ROUNDING_MS {
        return false;
    }
    let filled_ms = window_ms.saturating_sub(reset_ms.saturating_add(ROUNDING_MS));
    u128::from(remaining) * u128::from(window_ms) >= u128::from(limit.value) * u128::from(filled_ms)
}

#[cfg(test)]
mod tests;

//! Who was told to wait, and until when: finds the refused requests of keys that do not wait.
//!
//! A key may be shared by callers who do not know what the others were told. So each wait that is over excuses one
//! request, and only a request that nobody's wait excuses came early.

use std::collections::HashMap;

use chrono::{DateTime, Duration, Utc};
use domain::ledger::Rejection;

use crate::rejections::StreakKey;

/// Kinds of refusals whose waits are kept at once. Beyond it those of further kinds are not told to be early.
const KINDS_MAX: usize = 10_000;
/// Waits kept of one kind: so many callers with one key are told apart.
const WAITS_MAX: usize = 64;
/// How much of a wait counts at most, in seconds: nobody is troubled by a key that asks once an hour.
const WAIT_SECONDS_MAX: i64 = 3_600;
/// A request that comes so soon after the first refusal was on its way before its caller could know, in milliseconds.
const ON_ITS_WAY_MS: i64 = 1_000;
/// How long a wait that is over still excuses a request, in milliseconds.
const EXCUSE_MS: i64 = 60_000;

/// The waits that keys were told, by what they were refused for.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    kinds: HashMap<StreakKey, Kind>,
}

/// Waits told for equal refusals.
#[derive(Debug)]
struct Kind {
    first_told_at: DateTime<Utc>,
    ends: Vec<DateTime<Utc>>,
}

impl Waits {
    /// Notes what a caller is told now. Answers whether the request came although its key had been told to wait.
    pub(crate) fn note(&mut self, rejection: &Rejection) -> bool {
        let Some(seconds) = rejection.retry_after_seconds else {
            return false;
        };
        let told_at = rejection.refused_at;
        let arrived_at = told_at - Duration::milliseconds(rejection.queue_ms);
        let end = told_at + Duration::seconds(seconds.clamp(0, WAIT_SECONDS_MAX));
        let key = StreakKey::of(rejection);
        if self.kinds.len() >= KINDS_MAX && !self.kinds.contains_key(&key) {
            return false;
        }
        let kind = self.kinds.entry(key).or_insert_with(|| Kind {
            first_told_at: told_at,
            ends: Vec::new(),
        });
        kind.note(arrived_at, told_at, end)
    }

    /// Drops what excuses nobody any more in this minute.
    pub(crate) fn forget(&mut self, minute: i64) {
        let minute_start_ms = minute.saturating_mul(60_000);
        self.kinds.retain(|_, kind| {
            kind.ends
                .iter()
                .any(|end| end.timestamp_millis() + EXCUSE_MS > minute_start_ms)
        });
    }
}

impl Kind {
    fn note(&mut self, arrived_at: DateTime<Utc>, told_at: DateTime<Utc>, end: DateTime<Utc>) -> bool {
        self.ends
            .retain(|end| arrived_at - *end < Duration::milliseconds(EXCUSE_MS));
        if self.ends.is_empty() {
            self.first_told_at = told_at;
        }
        let over = self.ends.iter_mut().filter(|end| **end <= arrived_at).min();
        if let Some(over) = over {
            *over = end;
            return false;
        }
        if arrived_at < self.first_told_at + Duration::milliseconds(ON_ITS_WAY_MS) {
            if self.ends.len() < WAITS_MAX {
                self.ends.push(end);
            }
            return false;
        }
        // Most likely it is whoever was told last; that wait begins anew.
        if let Some(last) = self.ends.iter_mut().max() {
            *last = end;
        }
        true
    }
}

#[cfg(test)]
mod tests;

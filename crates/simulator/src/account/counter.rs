//! What was used of one limit in the last minute, and when there is room again.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// What the account's limits are per.
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// How a provider counts the minute of its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counting {
    /// In minutes that begin with the first request in them, all room returning at once.
    #[default]
    FixedWindows,
    /// Over any 60 seconds, to the millisecond: the strictest. Whoever never passes this one passes none of the others.
    SlidingWindow,
    /// In a bucket that holds a minute's worth and refills all the time, as OpenAI does.
    TokenBucket,
}

/// The use of one limit.
#[derive(Clone, Debug)]
pub(super) struct Counter {
    limit: u64,
    used: Used,
}

#[derive(Clone, Debug)]
enum Used {
    Fixed {
        amount: u64,
        ends_at: Instant,
    },
    Sliding {
        amount: u64,
        /// What was taken and when it leaves the window, the oldest first.
        taken: VecDeque<(Instant, u64)>,
    },
    /// When the bucket is full again, if nothing more is taken.
    Bucket {
        full_at: Instant,
    },
}

impl Counter {
    pub(super) fn new(counting: Counting, limit: u64, now: Instant) -> Self {
        let used = match counting {
            Counting::FixedWindows => Used::Fixed {
                amount: 0,
                ends_at: now,
            },
            Counting::SlidingWindow => Used::Sliding {
                amount: 0,
                taken: VecDeque::new(),
            },
            Counting::TokenBucket => Used::Bucket { full_at: now },
        };
        Self { limit, used }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// How long until there is room for so much, if nothing more is taken; a minute for what there never is.
    pub(super) fn wait(&mut self, now: Instant, amount: u64) -> Duration {
        self.forget(now);
        if amount > self.limit {
            return MINUTE;
        }
        let room = self.limit - amount;
        match &self.used {
            Used::Fixed { amount: used, ends_at } => match *used > room {
                true => *ends_at - now,
                false => Duration::ZERO,
            },
            Used::Sliding { amount: used, taken } => {
                let mut used = *used;
                let mut wait = Duration::ZERO;
                for (leaves_at, amount) in taken {
                    if used <= room {
                        break;
                    }
                    used -= amount;
                    wait = *leaves_at - now;
                }
                wait
            }
            Used::Bucket { full_at } => {
                (full_at.saturating_duration_since(now) + self.refill(amount)).saturating_sub(self.refill(self.limit))
            }
        }
    }

    /// Takes so much, whether or not there is room.
    pub(super) fn take(&mut self, now: Instant, amount: u64) {
        self.forget(now);
        let refill = self.refill(amount);
        match &mut self.used {
            Used::Fixed { amount: used, .. } => *used = used.saturating_add(amount),
            Used::Sliding { amount: used, taken } => {
                *used = used.saturating_add(amount);
                taken.push_back((now + MINUTE, amount));
            }
            Used::Bucket { full_at } => *full_at = (*full_at).max(now) + refill,
        }
    }

    /// What is left.
    pub(super) fn remaining(&mut self, now: Instant) -> u64 {
        self.forget(now);
        let used = match &self.used {
            Used::Fixed { amount, .. } | Used::Sliding { amount, .. } => *amount,
            Used::Bucket { full_at } => {
                let missing = full_at.saturating_duration_since(now).as_nanos() * u128::from(self.limit);
                u64::try_from(missing.div_ceil(MINUTE.as_nanos())).unwrap_or(u64::MAX)
            }
        };
        self.limit.saturating_sub(used)
    }

    /// How long until nothing is used any more, if nothing more is taken.
    pub(super) fn reset(&mut self, now: Instant) -> Duration {
        self.forget(now);
        let ends_at = match &self.used {
            Used::Fixed { ends_at, .. } => Some(*ends_at),
            Used::Sliding { taken, .. } => taken.back().map(|(leaves_at, _)| *leaves_at),
            Used::Bucket { full_at } => Some(*full_at),
        };
        ends_at.map_or(Duration::ZERO, |ends_at| ends_at.saturating_duration_since(now))
    }

    fn forget(&mut self, now: Instant) {
        match &mut self.used {
            Used::Fixed { amount, ends_at } => {
                if now >= *ends_at {
                    *amount = 0;
                    *ends_at = now + MINUTE;
                }
            }
            Used::Sliding { amount, taken } => {
                while let Some((_, left)) = taken.pop_front_if(|(leaves_at, _)| *leaves_at <= now) {
                    *amount -= left;
                }
            }
            Used::Bucket { .. } => {}
        }
    }

    /// How long a bucket takes to refill so much.
    fn refill(&self, amount: u64) -> Duration {
        let nanos = MINUTE.as_nanos() * u128::from(amount) / u128::from(self.limit.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests;

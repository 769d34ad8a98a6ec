//! Time as the gateway is told it: a wall clock for periods and rows, a monotonic one for rates and leases.

use std::time::Instant;

use chrono::{DateTime, Utc};
use limits::Now;

/// Where a process gets the time from. Tests pass one that they move.
pub trait Clock: Send + Sync + 'static {
    /// The time, both ways.
    fn now(&self) -> Now;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// Monotonic time counts from here.
    pub fn start() -> Self {
        Self {
            started: Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        Now {
            monotonic_ms: elapsed_ms(self.started),
            wall: Utc::now(),
        }
    }
}

/// Milliseconds between two readings, never negative.
pub fn between_ms(earlier: Now, later: Now) -> i64 {
    i64::try_from(later.monotonic_ms.saturating_sub(earlier.monotonic_ms)).unwrap_or(i64::MAX)
}

/// The instant of `wall` on the minute, as whole seconds: what folding and logs count by.
pub fn minute_of(wall: DateTime<Utc>) -> i64 {
    wall.timestamp().div_euclid(60)
}

fn elapsed_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

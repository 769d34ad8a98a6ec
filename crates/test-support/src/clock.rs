//! A wall clock that a test moves. The monotonic one runs by itself.

use std::sync::atomic::{AtomicI64, Ordering};

use chrono::{DateTime, Duration, Utc};
use gateway::clock::{Clock, SystemClock};
use limits::Now;

/// The machine's clocks, with the wall clock shifted.
#[derive(Debug)]
pub struct TestClock {
    system: SystemClock,
    shift_ms: AtomicI64,
}

impl Default for TestClock {
    fn default() -> Self {
        Self {
            system: SystemClock::start(),
            shift_ms: AtomicI64::new(0),
        }
    }
}

impl TestClock {
    /// From now on it is `at`, and time goes on from there.
    pub fn set(&self, at: DateTime<Utc>) {
        self.shift_ms
            .store((at - Utc::now()).num_milliseconds(), Ordering::SeqCst);
    }

    /// What it shows.
    pub fn wall(&self) -> DateTime<Utc> {
        self.now().wall
    }
}

impl Clock for TestClock {
    fn now(&self) -> Now {
        let now = self.system.now();
        Now {
            wall: now.wall + Duration::milliseconds(self.shift_ms.load(Ordering::SeqCst)),
            ..now
        }
    }
}

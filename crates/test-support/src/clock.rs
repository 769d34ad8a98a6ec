//! Clocks that a test moves. The monotonic one runs by itself, and never back.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use chrono::{DateTime, Duration, Timelike as _, Utc};
use chrono_tz::Tz;
use gateway::clock::{Clock, SystemClock};
use limits::Now;

/// The machine's clocks, shifted.
#[derive(Debug)]
pub struct TestClock {
    system: SystemClock,
    shift_ms: AtomicI64,
    monotonic_shift_ms: AtomicU64,
}

impl Default for TestClock {
    fn default() -> Self {
        Self {
            system: SystemClock::start(),
            shift_ms: AtomicI64::new(0),
            monotonic_shift_ms: AtomicU64::new(0),
        }
    }
}

impl TestClock {
    /// From now on it is `at`, or less than two milliseconds later, and time goes on from there.
    pub fn set(&self, at: DateTime<Utc>) {
        self.shift_ms
            .store((at - Utc::now()).num_milliseconds() + 1, Ordering::SeqCst);
    }

    /// From now on it is so many milliseconds later, by both clocks.
    pub fn skip(&self, ms: u32) {
        self.shift_ms.fetch_add(i64::from(ms), Ordering::SeqCst);
        self.monotonic_shift_ms.fetch_add(u64::from(ms), Ordering::SeqCst);
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
            monotonic_ms: now.monotonic_ms + self.monotonic_shift_ms.load(Ordering::SeqCst),
        }
    }
}

/// A time zone in which it is about noon, so that no day and no month ends while a test runs.
///
/// # Panics
/// Never: every whole hour has a zone.
pub fn zone_at_noon() -> Tz {
    let hours = 12 - i64::from(Utc::now().hour());
    // The names of these zones say what is added to them to get UTC.
    let name = match hours {
        0 => "Etc/GMT".to_owned(),
        east @ 1.. => format!("Etc/GMT-{east}"),
        west => format!("Etc/GMT+{}", -west),
    };
    name.parse().expect("a zone for every whole hour")
}

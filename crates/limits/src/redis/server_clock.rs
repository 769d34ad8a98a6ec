//! What time it is on the server, as far as its answers tell.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long a reading is preferred to a newer one that took longer: clocks drift.
const READING_KEPT: Duration = Duration::from_secs(10);

/// The best reading of the last seconds.
#[derive(Debug)]
pub(crate) struct ServerClock {
    started: Instant,
    best: Mutex<Option<Sample>>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    /// The server's time less ours, never too much: its answer was on the way for a while.
    ahead_ms: i64,
    took: Duration,
    at: Instant,
}

impl ServerClock {
    pub(crate) fn start() -> Self {
        Self {
            started: Instant::now(),
            best: Mutex::new(None),
        }
    }

    /// The server said `server_ms` in the answer to a call that was sent at `sent`.
    pub(crate) fn learn(&self, server_ms: i64, sent: Instant, answered: Instant) {
        let sample = Sample {
            ahead_ms: server_ms - self.ours_ms(answered),
            took: answered - sent,
            at: answered,
        };
        let mut best = self.best.lock();
        let is_kept = best.is_some_and(|best| {
            let is_fresh = answered.saturating_duration_since(best.at) < READING_KEPT;
            // A clock that was set is believed at once.
            let is_alike =
                best.ahead_ms.abs_diff(sample.ahead_ms) <= u64::try_from(sample.took.as_millis()).unwrap_or(0) + 1;
            is_fresh && is_alike && best.took <= sample.took
        });
        if !is_kept {
            *best = Some(sample);
        }
    }

    /// The server's time at `at` of ours, or a little less; nothing before its first answer.
    pub(crate) fn at(&self, at: Instant) -> Option<i64> {
        self.best.lock().map(|best| best.ahead_ms + self.ours_ms(at))
    }

    fn ours_ms(&self, at: Instant) -> i64 {
        let elapsed = at.saturating_duration_since(self.started);
        i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
    }
}

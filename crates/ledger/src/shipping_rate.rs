//! How fast the journal is being shipped, for telling how long the rest takes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The time over which it is measured.
const WINDOW: Duration = Duration::from_secs(10);
/// Batches that are remembered at most; with more in the window, it is shorter.
const BATCHES_MAX: usize = 1_000;

/// What was shipped lately.
#[derive(Debug, Default)]
pub(crate) struct ShippingRate {
    batches: VecDeque<(Instant, u64)>,
}

impl ShippingRate {
    /// So many records were shipped.
    pub(crate) fn note(&mut self, records: u64, now: Instant) {
        if records == 0 {
            return;
        }
        self.batches.push_back((now, records));
        let is_old = |at: Instant| now.saturating_duration_since(at) > WINDOW;
        while self.batches.len() > BATCHES_MAX || self.batches.front().is_some_and(|(at, _)| is_old(*at)) {
            self.batches.pop_front();
        }
    }

    /// Records a second over the last ten seconds, or since the first of them if that is less, but at least one second.
    pub(crate) fn per_second(&self, now: Instant) -> u64 {
        let is_recent = |at: Instant| now.saturating_duration_since(at) <= WINDOW;
        let mut recent = self.batches.iter().filter(|(at, _)| is_recent(*at)).peekable();
        let Some(&&(first, _)) = recent.peek() else {
            return 0;
        };
        let records: u64 = recent.map(|(_, records)| records).sum();
        let seconds = now.saturating_duration_since(first).as_secs_f64().max(1.0);
        (records as f64 / seconds).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_of_the_last_seconds_and_falls_to_nothing() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut rate = ShippingRate::default();
        assert_eq!(rate.per_second(at(0)), 0);
        rate.note(100, at(0));
        assert_eq!(rate.per_second(at(1)), 100, "a burst counts as a second's");
        for second in 1..=20 {
            rate.note(200, at(second * 1_000));
        }
        let per_second = rate.per_second(at(20_000));
        assert!((200..=220).contains(&per_second), "{per_second}");
        assert_eq!(rate.per_second(at(31_000)), 0);
    }
}

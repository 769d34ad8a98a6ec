//! A provider's word on how much room a counter of its account has, for as long as it stands.

use crate::upstream_room::Telling;

/// Beside what is counted here, which it does not change: nothing of it has to be taken back when it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// What was told, without what was taken since. Below zero where requests took more than they needed room for.
    left: i64,
    told_ms: u64,
    /// When it is over.
    until_ms: u64,
    /// What comes back meanwhile.
    per_window: u64,
    window_ms: u64,
}

impl Told {
    pub(crate) fn new(telling: Telling, window_seconds: u32, now_ms: u64) -> Self {
        let until_ms = now_ms.saturating_add(telling.stands_ms);
        let left = i64::try_from(telling.remaining).unwrap_or(i64::MAX);
        Self::counted(window_seconds, left, (now_ms, until_ms), telling.per_window)
    }

    /// What another place has counted; since when it stands, and until when.
    pub(crate) fn counted(window_seconds: u32, left: i64, stands: (u64, u64), per_window: u64) -> Self {
        Self {
            left,
            told_ms: stands.0,
            until_ms: stands.1,
            per_window,
            window_ms: u64::from(window_seconds.max(1)) * 1_000,
        }
    }

    /// What is left by its account; `None` once it is over.
    pub(crate) fn room(&self, now_ms: u64) -> Option<i128> {
        if now_ms >= self.until_ms {
            return None;
        }
        let elapsed_ms = u128::from(now_ms.saturating_sub(self.told_ms));
        let grown = u128::from(self.per_window) * elapsed_ms / u128::from(self.window_ms);
        Some(i128::from(self.left) + i128::try_from(grown).unwrap_or(i128::MAX))
    }

    /// Whether a word of now stands in its place: it says less, or answers a request that was sent after this was told.
    pub(crate) fn yields_to(&self, remaining: u64, sent_ms_ago: u64, now_ms: u64) -> bool {
        let is_less = |room| i128::from(remaining) < room;
        self.room(now_ms).is_none_or(is_less) || self.told_ms <= now_ms.saturating_sub(sent_ms_ago)
    }

    /// Milliseconds until there is room for `least`, or until it is over.
    pub(crate) fn wait_ms(&self, least: i128, now_ms: u64) -> u64 {
        if self.room(now_ms).is_none_or(|room| room >= least) {
            return 0;
        }
        let over_in_ms = self.over_in_ms(now_ms);
        if self.per_window == 0 {
            return over_in_ms;
        }
        // Since it was told.
        let missing = (least - i128::from(self.left)).unsigned_abs() * u128::from(self.window_ms);
        let grown_in_ms = u64::try_from(missing.div_ceil(u128::from(self.per_window))).unwrap_or(u64::MAX);
        over_in_ms.min(self.told_ms.saturating_add(grown_in_ms).saturating_sub(now_ms))
    }

    /// Milliseconds until it is over.
    pub(crate) fn over_in_ms(&self, now_ms: u64) -> u64 {
        self.until_ms.saturating_sub(now_ms)
    }

    pub(crate) fn take(&mut self, amount: u64) {
        self.left = self.left.saturating_sub(i64::try_from(amount).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests;

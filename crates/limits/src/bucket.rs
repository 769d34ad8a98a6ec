//! A lazily refilled token bucket that may go below zero, so that a request larger than the burst is possible and paid
//! back.

/// Levels are in tokens times the window's milliseconds: refill is exact, without fractions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    window_ms: i128,
    level: i128,
    capacity: i128,
    value: u64,
    refilled_ms: u64,
}

impl Bucket {
    /// A full bucket of `burst` tokens that refills `value` tokens per window.
    pub(crate) fn full(window_seconds: u32, value: u64, burst: u64, now_ms: u64) -> Self {
        let window_ms = i128::from(window_seconds.max(1)) * 1_000;
        let capacity = i128::from(burst) * window_ms;
        Self {
            window_ms,
            level: capacity,
            capacity,
            value,
            refilled_ms: now_ms,
        }
    }

    /// An empty one.
    pub(crate) fn empty(window_seconds: u32, value: u64, burst: u64, now_ms: u64) -> Self {
        Self {
            level: 0,
            ..Self::full(window_seconds, value, burst, now_ms)
        }
    }

    /// What another place has counted: whole tokens, and the rest in tokens times the window's milliseconds; refilled
    /// last by this value up to this burst.
    pub(crate) fn counted(window_seconds: u32, level: (i64, i64), limit: (u64, u64), refilled_ms: u64) -> Self {
        let full = Self::full(window_seconds, limit.0, limit.1, refilled_ms);
        Self {
            level: i128::from(level.0) * full.window_ms + i128::from(level.1),
            ..full
        }
    }

    /// Refills up to now, at what the limit says now. A step back in time refills nothing.
    pub(crate) fn refill(&mut self, value: u64, burst: u64, now_ms: u64) {
        self.value = value;
        self.capacity = i128::from(burst) * self.window_ms;
        self.refill_as_before(now_ms);
    }

    /// Refills up to now, at what the limit said last.
    pub(crate) fn refill_as_before(&mut self, now_ms: u64) {
        let elapsed_ms = now_ms.saturating_sub(self.refilled_ms);
        self.refilled_ms = self.refilled_ms.max(now_ms);
        let refilled = i128::from(elapsed_ms).saturating_mul(i128::from(self.value));
        self.level = self.level.saturating_add(refilled).min(self.capacity);
    }

    /// Whether it holds `need`, or is full where `need` is more than it can hold.
    pub(crate) fn has(&self, need: u64) -> bool {
        need == 0 || self.level >= self.threshold(need)
    }

    /// Milliseconds until [`Bucket::has`], if nothing more is taken. Never with a value of zero.
    pub(crate) fn wait_ms(&self, need: u64) -> Option<u64> {
        if self.has(need) {
            return Some(0);
        }
        self.ms_to_refill(self.threshold(need) - self.level)
    }

    /// Milliseconds until it is full, if nothing more is taken. Never with a value of zero.
    pub(crate) fn full_in_ms(&self) -> Option<u64> {
        self.ms_to_refill(self.capacity - self.level)
    }

    /// Whether it has become full by itself since it was last looked at.
    pub(crate) fn is_full_by(&self, now_ms: u64) -> bool {
        self.full_in_ms()
            .is_none_or(|full_in_ms| full_in_ms <= now_ms.saturating_sub(self.refilled_ms))
    }

    /// Whether more was taken than it held.
    pub(crate) fn is_in_debt(&self) -> bool {
        self.level < 0
    }

    pub(crate) fn take(&mut self, tokens: u64) {
        self.level = self.level.saturating_sub(i128::from(tokens) * self.window_ms);
    }

    /// Forgives whole tokens owed beyond one window: a limit that never refuses would otherwise sink without end.
    pub(crate) fn forgive_beyond_window(&mut self) {
        let least = -(i128::from(self.value) * self.window_ms);
        if self.level < least {
            self.level = least + self.level.rem_euclid(self.window_ms);
        }
    }

    /// Puts `tokens` back, up to its size.
    pub(crate) fn give_back(&mut self, tokens: u64) {
        let level = self.level.saturating_add(i128::from(tokens) * self.window_ms);
        self.level = level.min(self.capacity).max(self.level);
    }

    fn threshold(&self, need: u64) -> i128 {
        (i128::from(need) * self.window_ms).min(self.capacity)
    }

    fn ms_to_refill(&self, missing: i128) -> Option<u64> {
        if missing <= 0 {
            return Some(0);
        }
        let value = i128::from(self.value);
        (value > 0).then(|| u64::try_from((missing + value - 1) / value).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests;

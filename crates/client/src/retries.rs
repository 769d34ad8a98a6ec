//! How often and how long to wait. Pure: the random share is an argument.

use std::time::Duration;

/// The share by which a back-off is made shorter or longer.
const JITTER: f64 = 0.3;
/// Of a told wait, what the jitter is a share of, at most: whole seconds bring everybody back at the same moment, and
/// longer waits carry the gateway's own jitter.
const TOLD_JITTERED_MAX: Duration = Duration::from_secs(1);

/// How refusals that time heals are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// How often a request is tried again. `u32::MAX` leaves the bound to the total time-out. By default 4.
    pub retries_max: u32,
    /// The first back-off; each further one is twice as long. By default 500 ms.
    pub first_ms: u64,
    /// The longest back-off, before its jitter. By default 30 s.
    pub longest_ms: u64,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            retries_max: 4,
            first_ms: 500,
            longest_ms: 30_000,
        }
    }
}

impl Retries {
    /// The wait before retry number `retry`, counted from 0: as long as was told and up to 0.3 s more, else the back-off
    /// with up to 30 % more or less of it. `random` in 0..=1 decides how much. To be told not to wait is to be told
    /// nothing, so that nobody is asked without pause.
    pub fn wait(&self, retry: u32, told: Option<Duration>, random: f64) -> Duration {
        let random = random.clamp(0.0, 1.0);
        if let Some(told) = told.filter(|told| !told.is_zero()) {
            return told.saturating_add(told.min(TOLD_JITTERED_MAX).mul_f64(JITTER * random));
        }
        let doubled = self
            .first_ms
            .saturating_mul(1_u64.checked_shl(retry).unwrap_or(u64::MAX));
        let back_off = Duration::from_millis(doubled.min(self.longest_ms));
        back_off.mul_f64(1.0 - JITTER + 2.0 * JITTER * random)
    }
}

/// In 0..=1; the middle where the system has no randomness, which costs nothing but the jitter.
pub(crate) fn random_share() -> f64 {
    getrandom::u32().map_or(0.5, |random| f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests;

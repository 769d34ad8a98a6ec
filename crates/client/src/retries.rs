//! How often and how long to wait. Pure: the random share is an argument.

use std::time::Duration;

/// The share by which a back-off is made shorter or longer.
const JITTER: f64 = 0.3;

/// How refusals that time heals are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// How often a request is tried again.
    pub retries_max: u32,
    /// The first back-off; each further one is twice as long.
    pub first_ms: u64,
    /// The longest back-off.
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
    /// The wait before retry number `retry`, counted from 0: as long as was told, else the back-off with up to 30 % more
    /// or less of it. `random` in 0..=1 decides how much. What was told is not shortened, and carries the gateway's jitter.
    pub fn wait(&self, retry: u32, told: Option<Duration>, random: f64) -> Duration {
        if let Some(told) = told {
            return told;
        }
        let doubled = self
            .first_ms
            .saturating_mul(1_u64.checked_shl(retry).unwrap_or(u64::MAX));
        let back_off = Duration::from_millis(doubled.min(self.longest_ms));
        back_off.mul_f64(1.0 - JITTER + 2.0 * JITTER * random.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests;

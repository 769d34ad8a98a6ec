//! How long to wait before the same provider is tried again. Another one is tried at once.

/// The longest first wait, in milliseconds.
pub const BACKOFF_FIRST_MS: u64 = 200;
/// The longest wait of all, in milliseconds.
pub const BACKOFF_MAX_MS: u64 = 2_000;

/// The wait before the retry number `retry`, the first being 0: doubles each time up to [`BACKOFF_MAX_MS`], and is between
/// half of that and all of it, as `random` in 0..=1 says, so that callers who failed together do not return together.
pub fn backoff_ms(retry: u32, random: f64) -> u64 {
    let longest = BACKOFF_FIRST_MS
        .saturating_mul(1_u64.checked_shl(retry.min(63)).unwrap_or(u64::MAX))
        .min(BACKOFF_MAX_MS);
    let half = longest / 2;
    half + (half as f64 * random.clamp(0.0, 1.0)) as u64
}

#[cfg(test)]
mod tests;

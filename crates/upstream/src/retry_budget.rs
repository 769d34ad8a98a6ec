//! How many requests may be tried again: a fixed share of all, so that a provider in trouble does not get more to do.

use parking_lot::Mutex;

/// Retries per hundred requests.
pub const RETRY_PERCENT: u64 = 20;
/// Retries there are before the first request.
pub const RESERVED_RETRIES: u64 = 10;
/// Retries that quiet times can save up.
pub const RETRIES_SAVED_MAX: u64 = 100;

/// What is saved up. Every request adds its share, every retry takes one.
#[derive(Debug)]
pub struct RetryBudget {
    /// In hundredths of a retry.
    saved: Mutex<u64>,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self {
            saved: Mutex::new(RESERVED_RETRIES * 100),
        }
    }
}

impl RetryBudget {
    /// A request is sent for the first time.
    pub fn deposit(&self) {
        let mut saved = self.saved.lock();
        *saved = (*saved + RETRY_PERCENT).min(RETRIES_SAVED_MAX * 100);
    }

    /// Takes one retry, if there is one. It is not given back.
    pub fn take(&self) -> bool {
        let mut saved = self.saved.lock();
        match saved.checked_sub(100) {
            Some(rest) => {
                *saved = rest;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests;

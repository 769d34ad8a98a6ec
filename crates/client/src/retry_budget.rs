//! How much retries may add to a client's requests: when much is refused, trying everything again makes it worse.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The most retries that many answered requests can save up, beside the reserve.
const SAVED_RETRIES_MAX: u64 = 100;
/// A retry in the unit of the balance: one millisecond's part of a reserve of one a minute.
const RETRY: u64 = 60_000;

/// How much all retries of a client and its clones together may add to its requests. A call that is refused when nothing
/// is left fails at once, with what it was refused for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryBudget {
    /// As much as each call's own bounds allow: for whoever wants every request answered in the end, such as a batch.
    Unlimited,
    /// A share of the requests and a reserve.
    Limited {
        /// Retries for every hundred requests.
        percent: u32,
        /// Retries that come back within a minute whether or not there are requests, so that a client with little
        /// traffic can retry too.
        reserve_per_minute: u32,
    },
}

impl Default for RetryBudget {
    /// 20 % of the requests, and 10 a minute.
    fn default() -> Self {
        Self::Limited {
            percent: 20,
            reserve_per_minute: 10,
        }
    }
}

/// What is left of a budget, shared by the clones of a client.
#[derive(Debug)]
pub(crate) struct RetryAccount {
    started: Instant,
    balance: Mutex<Balance>,
}

impl RetryAccount {
    pub(crate) fn new(budget: RetryBudget, now: Instant) -> Self {
        Self {
            started: now,
            balance: Mutex::new(Balance::new(budget)),
        }
    }

    /// Books a request's first try.
    pub(crate) fn book_request(&self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.started);
        self.balance
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .book_request(elapsed);
    }

    /// Takes one retry, if there is one.
    pub(crate) fn take_retry(&self, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.started);
        self.balance
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take_retry(elapsed)
    }
}

/// The account without its lock and clock: `elapsed` is the time since it began.
#[derive(Debug)]
struct Balance {
    budget: RetryBudget,
    /// What is left, in parts of a [`RETRY`].
    parts: u64,
    refilled: Duration,
}

impl Balance {
    fn new(budget: RetryBudget) -> Self {
        let parts = match budget {
            RetryBudget::Unlimited => 0,
            RetryBudget::Limited { reserve_per_minute, .. } => u64::from(reserve_per_minute) * RETRY,
        };
        Self {
            budget,
            parts,
            refilled: Duration::ZERO,
        }
    }

    fn book_request(&mut self, elapsed: Duration) {
        self.refill(elapsed);
        if let RetryBudget::Limited {
            percent,
            reserve_per_minute,
        } = self.budget
        {
            let parts_max = (u64::from(reserve_per_minute) + SAVED_RETRIES_MAX) * RETRY;
            self.parts = (self.parts + u64::from(percent) * (RETRY / 100)).min(parts_max);
        }
    }

    fn take_retry(&mut self, elapsed: Duration) -> bool {
        self.refill(elapsed);
        if self.budget == RetryBudget::Unlimited {
            return true;
        }
        match self.parts.checked_sub(RETRY) {
            None => false,
            Some(parts) => {
                self.parts = parts;
                true
            }
        }
    }

    /// Brings the reserve back, never above itself: what is saved beyond comes from requests alone.
    fn refill(&mut self, elapsed: Duration) {
        let RetryBudget::Limited { reserve_per_minute, .. } = self.budget else {
            return;
        };
        let ms = elapsed.as_millis().saturating_sub(self.refilled.as_millis());
        let ms = u64::try_from(ms).unwrap_or(u64::MAX);
        self.refilled = self.refilled.max(elapsed);
        let reserve = u64::from(reserve_per_minute);
        let refilled = self.parts.saturating_add(ms.saturating_mul(reserve));
        self.parts = self.parts.max(refilled.min(reserve * RETRY));
    }
}

#[cfg(test)]
mod tests;

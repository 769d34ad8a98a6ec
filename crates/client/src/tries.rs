//! The tries of one call: counts them, and decides before each further one whether to wait for it, and how long.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::errors::{CallError, Failure};
use crate::retries::{Retries, random_share};
use crate::retry_budget::RetryAccount;

/// The tries of one call.
#[derive(Debug)]
pub(crate) struct Tries {
    retries: Retries,
    account: Arc<RetryAccount>,
    deadline: Instant,
    /// How many went before the present one.
    count: u32,
}

impl Tries {
    /// Begins with the first, which is booked as a request.
    pub(crate) fn begin(retries: Retries, account: Arc<RetryAccount>, deadline: Instant) -> Self {
        account.book_request(Instant::now());
        Self {
            retries,
            account,
            deadline,
            count: 0,
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Waits until another try makes sense.
    ///
    /// # Errors
    /// When none does: the failure is final, there were tries enough, there is no time for the wait, or the client's
    /// retry budget is used up.
    pub(crate) async fn wait_after(&mut self, failure: Failure) -> Result<(), CallError> {
        let now = Instant::now();
        let wait = self.next_wait(failure, now, random_share())?;
        tokio::time::sleep_until(now + wait).await;
        self.count += 1;
        Ok(())
    }

    fn next_wait(&self, failure: Failure, now: Instant, random: f64) -> Result<Duration, CallError> {
        let error = match failure {
            Failure::Final(error) => return Err(error),
            Failure::Passing(error) if self.count >= self.retries.retries_max => return Err(error),
            Failure::Passing(error) => error,
        };
        let told = error.refusal().and_then(|refusal| refusal.retry_after);
        let wait = self.retries.wait(self.count, told, random);
        // Waiting beyond the time-out helps nobody: the caller learns at once what is wrong and until when.
        if now.checked_add(wait).is_none_or(|until| until >= self.deadline) || !self.account.take_retry(now) {
            return Err(error);
        }
        Ok(wait)
    }
}

#[cfg(test)]
mod tests;

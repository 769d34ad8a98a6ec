//! The account's limits: requests and tokens a minute, counted in one of the ways in which providers count.

mod counter;
mod headers;

use std::time::Duration;

use tokio::time::Instant;

use counter::Counter;

pub use counter::Counting;
pub(crate) use counter::MINUTE;

/// Both limits of the account.
#[derive(Debug)]
pub(crate) struct Account {
    requests: Limit,
    tokens: Limit,
}

#[derive(Debug)]
struct Limit {
    name: &'static str,
    /// None where the account has no such limit.
    counter: Option<Counter>,
}

/// The account's limit is reached.
#[derive(Debug)]
pub(crate) struct LimitReached {
    pub(crate) name: &'static str,
    pub(crate) retry_after_seconds: u64,
}

impl Account {
    pub(crate) fn new(counting: Counting, requests_per_minute: Option<u64>, tokens_per_minute: Option<u64>) -> Self {
        let now = Instant::now();
        let limit = |name, value: Option<u64>| Limit {
            name,
            counter: value.map(|value| Counter::new(counting, value, now)),
        };
        Self {
            requests: limit("requests", requests_per_minute),
            tokens: limit("tokens", tokens_per_minute),
        }
    }

    /// Takes one request and its tokens, or nothing.
    pub(crate) fn take(&mut self, tokens: u64) -> Result<(), LimitReached> {
        let now = Instant::now();
        self.requests.check(now, 1)?;
        self.tokens.check(now, tokens)?;
        self.requests.take(now, 1);
        self.tokens.take(now, tokens);
        Ok(())
    }
}

impl Limit {
    fn check(&mut self, now: Instant, amount: u64) -> Result<(), LimitReached> {
        let wait = self
            .counter
            .as_mut()
            .map_or(Duration::ZERO, |counter| counter.wait(now, amount));
        if wait.is_zero() {
            return Ok(());
        }
        Err(LimitReached {
            name: self.name,
            retry_after_seconds: wait.as_micros().div_ceil(1_000_000) as u64,
        })
    }

    fn take(&mut self, now: Instant, amount: u64) {
        if let Some(counter) = &mut self.counter {
            counter.take(now, amount);
        }
    }
}

#[cfg(test)]
mod tests;

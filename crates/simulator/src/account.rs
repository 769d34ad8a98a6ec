//! The account's limits: requests and tokens a minute, counted in windows that begin with the first request in them.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

const WINDOW: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Account {
    requests: Window,
    tokens: Window,
}

#[derive(Debug)]
struct Window {
    name: &'static str,
    limit: Option<u64>,
    used: u64,
    ends_at: Instant,
}

/// The account's limit is reached.
#[derive(Debug)]
pub(crate) struct LimitReached {
    pub(crate) name: &'static str,
    pub(crate) retry_after_seconds: u64,
}

impl Account {
    pub(crate) fn new(requests_per_minute: Option<u64>, tokens_per_minute: Option<u64>) -> Self {
        Self {
            requests: Window::new("requests", requests_per_minute),
            tokens: Window::new("tokens", tokens_per_minute),
        }
    }

    /// Takes one request and its tokens, or nothing.
    pub(crate) fn take(&mut self, tokens: u64) -> Result<(), LimitReached> {
        let now = Instant::now();
        self.requests.check(now, 1)?;
        self.tokens.check(now, tokens)?;
        self.requests.used += 1;
        self.tokens.used += tokens;
        Ok(())
    }

    /// OpenAI's headers about both limits.
    pub(crate) fn headers(&self) -> HeaderMap {
        let now = Instant::now();
        let mut headers = HeaderMap::new();
        for window in [&self.requests, &self.tokens] {
            let Some(limit) = window.limit else { continue };
            let reset = window.ends_at.saturating_duration_since(now);
            let values = [
                ("limit", limit.to_string()),
                ("remaining", limit.saturating_sub(window.used).to_string()),
                ("reset", format!("{}ms", reset.as_millis())),
            ];
            for (what, value) in values {
                let name = HeaderName::try_from(format!("x-ratelimit-{what}-{}", window.name));
                if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
                    headers.insert(name, value);
                }
            }
        }
        headers
    }
}

impl Window {
    fn new(name: &'static str, limit: Option<u64>) -> Self {
        Self {
            name,
            limit,
            used: 0,
            ends_at: Instant::now(),
        }
    }

    fn check(&mut self, now: Instant, amount: u64) -> Result<(), LimitReached> {
        if now >= self.ends_at {
            self.used = 0;
            self.ends_at = now + WINDOW;
        }
        match self.limit {
            Some(limit) if self.used.saturating_add(amount) > limit => Err(LimitReached {
                name: self.name,
                retry_after_seconds: (self.ends_at - now).as_millis().div_ceil(1_000).max(1) as u64,
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;

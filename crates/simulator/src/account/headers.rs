//! What an answer says about the account's limits.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

use super::Account;

impl Account {
    /// OpenAI's headers about both limits: `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`.
    pub(crate) fn openai_headers(&mut self) -> HeaderMap {
        self.headers(|what, limit| format!("x-ratelimit-{what}-{limit}"), go_duration)
    }

    /// Anthropic's: `anthropic-ratelimit-{requests,tokens}-{limit,remaining,reset}`, the reset as an instant.
    pub(crate) fn anthropic_headers(&mut self, wall: DateTime<Utc>) -> HeaderMap {
        self.headers(
            |what, limit| format!("anthropic-ratelimit-{limit}-{what}"),
            |reset| (wall + reset).to_rfc3339_opts(SecondsFormat::Secs, true),
        )
    }

    /// The same, and the limit of tokens also as that of `input-tokens` and of `output-tokens`, which share it.
    pub(crate) fn anthropic_headers_by_kind(&mut self, wall: DateTime<Utc>) -> HeaderMap {
        let mut headers = self.anthropic_headers(wall);
        for what in ["limit", "remaining", "reset"] {
            let Some(value) = headers.get(format!("anthropic-ratelimit-tokens-{what}")).cloned() else {
                continue;
            };
            for kind in ["input", "output"] {
                if let Ok(name) = HeaderName::try_from(format!("anthropic-ratelimit-{kind}-tokens-{what}")) {
                    headers.insert(name, value.clone());
                }
            }
        }
        headers
    }

    fn headers(&mut self, name_of: impl Fn(&str, &str) -> String, written: impl Fn(Duration) -> String) -> HeaderMap {
        let now = Instant::now();
        let mut headers = HeaderMap::new();
        for limit in [&mut self.requests, &mut self.tokens] {
            let Some(counter) = &mut limit.counter else { continue };
            let values = [
                ("limit", counter.limit().to_string()),
                ("remaining", counter.remaining(now).to_string()),
                ("reset", written(counter.reset(now))),
            ];
            for (what, value) in values {
                let name = HeaderName::try_from(name_of(what, limit.name));
                if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
                    headers.insert(name, value);
                }
            }
        }
        headers
    }
}

/// As OpenAI writes it: `120ms`, `17.3s`, `1m0s`.
fn go_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis < 1_000 {
        return format!("{millis}ms");
    }
    let (minutes, millis) = (millis / 60_000, millis % 60_000);
    let seconds = match millis % 1_000 {
        0 => format!("{}s", millis / 1_000),
        rest => {
            let decimals = format!("{rest:03}");
            format!("{}.{}s", millis / 1_000, decimals.trim_end_matches('0'))
        }
    };
    match minutes {
        0 => seconds,
        minutes => format!("{minutes}m{seconds}"),
    }
}

#[cfg(test)]
mod tests;

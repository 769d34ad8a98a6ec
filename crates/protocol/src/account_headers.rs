//! What providers say in headers about the account: how much of their own limits is left, and until when to stay away.

use std::time::Duration;

use chrono::{DateTime, Utc};
use http::HeaderMap;

use crate::headers::retry_after;

/// The longest time until a reset that is believed.
pub const RESET_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest that the reset of a limit which is used up keeps us away. Providers name the moment when everything is
/// back, and there is room for a request long before.
pub const COOLING_BY_RESET_MAX: Duration = Duration::from_secs(60);
/// The longest text that is read as a duration, in bytes.
const DURATION_BYTES_MAX: usize = 32;

/// What is left of the account's limits; nothing, where the provider does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountRoom {
    /// In requests.
    pub requests: Option<Left>,
    /// In tokens of input and output together.
    pub total_tokens: Option<Left>,
    /// In tokens of input.
    pub input_tokens: Option<Left>,
    /// In tokens of output.
    pub output_tokens: Option<Left>,
}

/// What is left of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// The limit, if the provider says it.
    pub limit: Option<u64>,
    /// So much is left.
    pub remaining: u64,
    /// The time until all of it is back, at most [`RESET_MAX`], if the provider says it.
    pub reset: Option<Duration>,
}

/// How a provider names a limit's three headers.
#[derive(Clone, Copy)]
enum Naming {
    /// `x-ratelimit-remaining-requests`, as OpenAI does.
    Openai,
    /// `anthropic-ratelimit-requests-remaining`.
    Anthropic,
}

impl AccountRoom {
    /// Reads what the headers say at `now`. What cannot be read is left out.
    ///
    /// Anthropic's `tokens` are those of its tightest limit, rounded to thousands; where it names input and output apart, they
    /// say it better, and `tokens` is left out.
    pub fn read(headers: &HeaderMap, now: DateTime<Utc>) -> Self {
        let openai = |what| left(headers, Naming::Openai, what, now);
        let anthropic = |what| left(headers, Naming::Anthropic, what, now);
        let (input_tokens, output_tokens) = (anthropic("input-tokens"), anthropic("output-tokens"));
        let is_said_apart = input_tokens.is_some() || output_tokens.is_some();
        Self {
            requests: openai("requests").or_else(|| anthropic("requests")),
            total_tokens: openai("tokens")
                .or_else(|| anthropic("tokens"))
                .filter(|_| !is_said_apart),
            input_tokens,
            output_tokens,
        }
    }

    /// Whether the headers say nothing.
    pub fn is_silent(&self) -> bool {
        *self == Self::default()
    }

    fn all(&self) -> impl Iterator<Item = Left> {
        [self.requests, self.total_tokens, self.input_tokens, self.output_tokens]
            .into_iter()
            .flatten()
    }
}

/// How long a provider that answered 429 wants to be left alone: what it asks for, else until what is used up is back, at
/// most [`COOLING_BY_RESET_MAX`]. `None` where it does not say.
pub fn cooling(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    retry_after(headers, now).or_else(|| {
        AccountRoom::read(headers, now)
            .all()
            .filter(|left| left.remaining == 0)
            .filter_map(|left| left.reset)
            .max()
            .map(|reset| reset.min(COOLING_BY_RESET_MAX))
    })
}

fn left(headers: &HeaderMap, naming: Naming, what: &str, now: DateTime<Utc>) -> Option<Left> {
    let text = |part: &str| {
        let name = match naming {
            Naming::Openai => format!("x-ratelimit-{part}-{what}"),
            Naming::Anthropic => format!("anthropic-ratelimit-{what}-{part}"),
        };
        headers.get(name)?.to_str().ok().map(str::trim)
    };
    Some(Left {
        remaining: text("remaining").and_then(amount)?,
        limit: text("limit").and_then(amount),
        reset: text("reset").and_then(|text| time_until(text, now)),
    })
}

/// A whole number. One that is below zero says that nothing is left; a fraction is rounded down.
fn amount(text: &str) -> Option<u64> {
    if let Ok(number) = text.parse::<u64>() {
        return Some(number);
    }
    let number = text.parse::<f64>().ok().filter(|number| !number.is_nan())?;
    // Saturates.
    Some(number as u64)
}

/// A duration as OpenAI writes it (`20ms`, `1s`, `6m0s`, `1h2m3.5s`), bare seconds, or an instant (RFC 3339).
fn time_until(text: &str, now: DateTime<Utc>) -> Option<Duration> {
    let time = if let Ok(seconds) = text.parse::<f64>() {
        if seconds.is_nan() {
            return None;
        }
        Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(RESET_MAX)
    } else if let Some(duration) = duration(text) {
        duration
    } else {
        let at = DateTime::parse_from_rfc3339(text).ok()?;
        (at.to_utc() - now).to_std().unwrap_or_default()
    };
    Some(time.min(RESET_MAX))
}

/// Numbers with units, one after the other.
fn duration(text: &str) -> Option<Duration> {
    if text.is_empty() || text.len() > DURATION_BYTES_MAX {
        return None;
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let seconds_per_unit = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        let seconds = number.parse::<f64>().ok()? * seconds_per_unit;
        let part = Duration::try_from_secs_f64(seconds).unwrap_or(RESET_MAX).min(RESET_MAX);
        total = total.saturating_add(part);
        rest = after;
    }
    Some(total)
}

#[cfg(test)]
mod tests;

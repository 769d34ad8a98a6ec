//! Why a call failed, one variant for each thing a caller can do about it.

use std::error::Error;
use std::time::Duration;

/// What the gateway said when it refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (status {status})")]
pub struct Refusal {
    /// The HTTP status; 200 for a failure within a stream.
    pub status: u16,
    /// The word for programs: `rate_limit_exceeded`, `budget_exhausted`, ...
    pub code: Option<String>,
    /// For people.
    pub message: String,
    /// The scope that refused.
    pub scope: Option<String>,
    /// When the same request may succeed, from now.
    pub retry_after: Option<Duration>,
    /// The provider's id of the request, for support.
    pub request_id: Option<String>,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// A budget is spent until its period ends: waiting a little does not help.
    #[error("the budget is spent")]
    BudgetExhausted(#[source] Refusal),
    /// A limit has no room, also after all retries.
    #[error("a rate limit has no room")]
    RateLimited(#[source] Refusal),
    /// The gateway or the provider cannot serve now, also after all retries.
    #[error("the service cannot answer now")]
    Unavailable(#[source] Refusal),
    /// The request itself is refused: wrong key, unknown model, too large, malformed.
    #[error("the request is refused")]
    Rejected(#[source] Refusal),
    /// The total time-out of the settings has passed.
    #[error("there was no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The connection could not be made, or was lost. Once the request was sent, it may have been charged.
    #[error("the connection failed")]
    Connection(#[source] Box<dyn Error + Send + Sync>),
    /// A stream ended before the answer did.
    #[error("the stream ended before the answer did")]
    Interrupted,
    /// An answer that is not understood, or longer than is read.
    #[error("the answer cannot be read")]
    Unreadable(#[source] Box<dyn Error + Send + Sync>),
}

impl CallError {
    /// What the gateway said, if it said anything.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::BudgetExhausted(refusal)
            | Self::RateLimited(refusal)
            | Self::Unavailable(refusal)
            | Self::Rejected(refusal) => Some(refusal),
            Self::TimedOut(_) | Self::Connection(_) | Self::Interrupted | Self::Unreadable(_) => None,
        }
    }

    pub(crate) fn refused(refusal: Refusal) -> Self {
        let is_spent = matches!(refusal.code.as_deref(), Some("budget_exhausted" | "insufficient_quota"));
        match refusal.status {
            429 if is_spent => Self::BudgetExhausted(refusal),
            429 => Self::RateLimited(refusal),
            200 | 500.. => Self::Unavailable(refusal),
            _ => Self::Rejected(refusal),
        }
    }

    /// Whether the same request may succeed in a while, and cannot have been answered already.
    pub(crate) fn is_worth_retrying(&self) -> bool {
        matches!(self, Self::RateLimited(_) | Self::Unavailable(_))
    }
}

/// Settings that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Not `http://` or `https://` with a host.
    #[error("the base URL is something like http://127.0.0.1:8080/v1")]
    BaseUrl,
    /// Not a text that fits into a header.
    #[error("the key has characters that no key has")]
    Key,
}

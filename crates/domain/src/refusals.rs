//! Why a request is refused, and what follows from it. One table for bodies, ledger, metrics and pages.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::Text;

/// The longest jitter added to a retry hint, in seconds.
pub const RETRY_JITTER_SECONDS_MAX: u64 = 30;

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// A rate has no room now.
    RateLimitExceeded,
    /// Too many requests in flight.
    ConcurrencyLimitExceeded,
    /// A gate holds this priority back.
    PriorityGated,
    /// A budget has room once outstanding holds end.
    BudgetHeld,
    /// A budget is spent until its period ends.
    BudgetExhausted,
    /// More than a minute of a limit, or above a per-request cap: it can never be admitted.
    RequestTooLarge,
    /// No place in the queue.
    QueueFull,
    /// Waited as long as allowed.
    QueueTimeout,
    /// No upstream can take it now.
    UpstreamUnavailable,
    /// A budget's spend is not known yet.
    BudgetUnknown,
    /// The journal cannot take another entry.
    LedgerFull,
    /// The gateway carries as much as it can at once.
    Overloaded,
    /// No key, or one that nobody issued.
    InvalidKey,
    /// The database did not answer, so a key cannot be told from an unknown one.
    KeyUnverifiable,
    /// Past its expiry.
    KeyExpired,
    /// Revoked.
    KeyRevoked,
    /// Its tenant is suspended.
    TenantSuspended,
    /// The key may not use this model.
    ModelNotAllowed,
    /// No such model.
    ModelNotFound,
    /// The model has no valid price and the policy is to refuse.
    ModelUnpriced,
    /// The body or a header cannot be understood.
    InvalidRequest,
    /// The body is longer than the gateway reads.
    BodyTooLarge,
    /// Nothing is served under this path.
    RouteNotFound,
    /// A provider's call that is not metered here, and therefore closed.
    UnmeteredRoute,
    /// A request with the same idempotency key is running.
    IdempotencyInProgress,
    /// The idempotency key was used for another body.
    IdempotencyKeyReused,
    /// It ran under this idempotency key before, and its answer is not kept.
    IdempotencyAnswerLost,
    /// It ran under this idempotency key before, and its answer was given again.
    Replayed,
}

impl RefusalCode {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 28] = [
        Self::RateLimitExceeded,
        Self::ConcurrencyLimitExceeded,
        Self::PriorityGated,
        Self::BudgetHeld,
        Self::BudgetExhausted,
        Self::RequestTooLarge,
        Self::QueueFull,
        Self::QueueTimeout,
        Self::UpstreamUnavailable,
        Self::BudgetUnknown,
        Self::LedgerFull,
        Self::Overloaded,
        Self::InvalidKey,
        Self::KeyUnverifiable,
        Self::KeyExpired,
        Self::KeyRevoked,
        Self::TenantSuspended,
        Self::ModelNotAllowed,
        Self::ModelNotFound,
        Self::ModelUnpriced,
        Self::InvalidRequest,
        Self::BodyTooLarge,
        Self::RouteNotFound,
        Self::UnmeteredRoute,
        Self::IdempotencyInProgress,
        Self::IdempotencyKeyReused,
        Self::IdempotencyAnswerLost,
        Self::Replayed,
    ];

    /// The word in bodies, SQL, metrics and pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RateLimitExceeded => "rate_limit_exceeded",
            Self::ConcurrencyLimitExceeded => "concurrency_limit_exceeded",
            Self::PriorityGated => "priority_gated",
            Self::BudgetHeld => "budget_held",
            Self::BudgetExhausted => "budget_exhausted",
            Self::RequestTooLarge => "request_too_large",
            Self::QueueFull => "queue_full",
            Self::QueueTimeout => "queue_timeout",
            Self::UpstreamUnavailable => "upstream_unavailable",
            Self::BudgetUnknown => "budget_unknown",
            Self::LedgerFull => "ledger_full",
            Self::Overloaded => "overloaded",
            Self::InvalidKey => "invalid_key",
            Self::KeyUnverifiable => "key_unverifiable",
            Self::KeyExpired => "key_expired",
            Self::KeyRevoked => "key_revoked",
            Self::TenantSuspended => "tenant_suspended",
            Self::ModelNotAllowed => "model_not_allowed",
            Self::ModelNotFound => "model_not_found",
            Self::ModelUnpriced => "model_unpriced",
            Self::InvalidRequest => "invalid_request",
            Self::BodyTooLarge => "body_too_large",
            Self::RouteNotFound => "route_not_found",
            Self::UnmeteredRoute => "unmetered_route",
            Self::IdempotencyInProgress => "idempotency_in_progress",
            Self::IdempotencyKeyReused => "idempotency_key_reused",
            Self::IdempotencyAnswerLost => "idempotency_answer_lost",
            Self::Replayed => "replayed",
        }
    }

    /// The HTTP status.
    pub fn status(self) -> u16 {
        match self {
            Self::RateLimitExceeded
            | Self::ConcurrencyLimitExceeded
            | Self::PriorityGated
            | Self::BudgetHeld
            | Self::BudgetExhausted => 429,
            Self::RequestTooLarge | Self::BodyTooLarge => 413,
            Self::QueueFull
            | Self::QueueTimeout
            | Self::UpstreamUnavailable
            | Self::BudgetUnknown
            | Self::LedgerFull
            | Self::Overloaded
            | Self::KeyUnverifiable => 503,
            Self::InvalidKey => 401,
            Self::KeyExpired | Self::KeyRevoked | Self::TenantSuspended | Self::ModelNotAllowed => 403,
            Self::ModelNotFound | Self::ModelUnpriced | Self::RouteNotFound | Self::UnmeteredRoute => 404,
            Self::InvalidRequest => 400,
            Self::IdempotencyInProgress | Self::IdempotencyAnswerLost => 409,
            Self::IdempotencyKeyReused => 422,
            // Or whatever the answer was that is given again.
            Self::Replayed => 200,
        }
    }

    /// Whether the same request may succeed later, so that a `Retry-After` belongs on the answer.
    pub fn is_retryable(self) -> bool {
        matches!(self.status(), 429 | 503) || self == Self::IdempotencyInProgress
    }

    /// Whether the caller may be given a job instead, should it agree: whatever is in the way now goes by itself.
    pub fn may_degrade(self) -> bool {
        match self {
            Self::RateLimitExceeded
            | Self::ConcurrencyLimitExceeded
            | Self::PriorityGated
            | Self::BudgetHeld
            | Self::QueueFull
            | Self::QueueTimeout
            | Self::UpstreamUnavailable
            | Self::BudgetUnknown
            | Self::LedgerFull => true,
            // It had no room for the body, or does not know whose it is.
            Self::Overloaded | Self::KeyUnverifiable => false,
            Self::BudgetExhausted
            | Self::RequestTooLarge
            | Self::InvalidKey
            | Self::KeyExpired
            | Self::KeyRevoked
            | Self::TenantSuspended
            | Self::ModelNotAllowed
            | Self::ModelNotFound
            | Self::ModelUnpriced
            | Self::InvalidRequest
            | Self::BodyTooLarge
            | Self::RouteNotFound
            | Self::UnmeteredRoute
            | Self::IdempotencyInProgress
            | Self::IdempotencyKeyReused
            | Self::IdempotencyAnswerLost
            | Self::Replayed => false,
        }
    }
}

impl fmt::Display for RefusalCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is no refusal code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct UnknownRefusalCode;

impl UnknownRefusalCode {
    /// For people, in their language.
    pub fn text(self) -> Text {
        crate::text!("this is not a refusal code")
    }
}

impl FromStr for RefusalCode {
    type Err = UnknownRefusalCode;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|code| code.as_str() == text)
            .ok_or(UnknownRefusalCode)
    }
}

/// A `Retry-After` value: `wait_ms` rounded up to whole seconds, at least 1, plus up to 30 % of jitter, itself at most
/// [`RETRY_JITTER_SECONDS_MAX`]. `random` in 0..=1 decides how much.
pub fn retry_after_seconds(wait_ms: u64, random: f64) -> u64 {
    let seconds = wait_ms.div_ceil(1_000).max(1);
    let jitter_max = (seconds as f64 * 0.3).min(RETRY_JITTER_SECONDS_MAX as f64);
    seconds.saturating_add((jitter_max * random.clamp(0.0, 1.0)) as u64)
}

#[cfg(test)]
mod tests;

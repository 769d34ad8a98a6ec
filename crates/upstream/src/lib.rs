//! The only door to providers: one HTTP client with named time-outs, errors that say whether bytes went out, breakers that
//! leave a failing provider alone, and the bounds on trying again.

mod backoff;
mod body;
pub mod breaker;
mod client;
mod connector;
mod error;
mod outgoing;
mod retry_budget;

pub use backoff::{BACKOFF_FIRST_MS, BACKOFF_MAX_MS, backoff_ms};
pub use body::ResponseBody;
pub use client::{Client, Request};
pub use error::{BodyError, SendError};
pub use retry_budget::{RESERVED_RETRIES, RETRIES_SAVED_MAX, RETRY_PERCENT, RetryBudget};

/// How long each step may take, in milliseconds. Every one is finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Name look-up, TCP and TLS.
    pub connect_ms: u64,
    /// From sending to the response's head. Models think before they speak.
    pub first_byte_ms: u64,
    /// Between two pieces of the body.
    pub chunk_ms: u64,
    /// The whole request.
    pub total_ms: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect_ms: 5_000,
            first_byte_ms: 120_000,
            chunk_ms: 60_000,
            total_ms: 600_000,
        }
    }
}

//! The only door to providers: one HTTP client with named time-outs, and errors that say whether bytes went out.

mod body;
mod client;
mod connector;
mod error;
mod outgoing;

pub use body::ResponseBody;
pub use client::{Client, Request};
pub use error::{BodyError, SendError};

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

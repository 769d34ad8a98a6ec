//! Wire dialects of providers: request inspection, SSE framing, usage extraction, error bodies, headers.
//!
//! Pure: bytes in, values out; nothing here reads a clock, a socket or a file.
//!
//! For every call that is served ([`endpoint`]) three questions are answered: what does a request ask for ([`request`]),
//! how is it rewritten for the upstream ([`request::Rewrite`]), what did the answer use ([`usage`]). Cases of each lie under
//! `golden/`.

pub mod account_headers;
pub mod endpoint;
pub mod errors;
pub mod headers;
#[cfg(any(test, feature = "invariants"))]
pub mod invariants;
pub mod jobs;
pub mod models;
pub mod own_key;
pub mod request;
pub mod sse;
pub mod usage;

#[cfg(test)]
mod golden_tests;

//! A small SDK for callers of the gateway.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tollgate_client::{ChatRequest, Client};
//!
//! let client = Client::new("http://127.0.0.1:8080/v1", "sk-tg-...")?;
//! let answer = client.chat(&ChatRequest::new("gpt-sim").user("Good morning")).await?;
//! println!("{} ({:?})", answer.text, answer.usage);
//!
//! let mut stream = client.chat_stream(&ChatRequest::new("gpt-sim").user("Good morning")).await?;
//! while let Some(chunk) = stream.next().await? {
//!     print!("{}", chunk.text);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Refusals that time heals are waited for: as long as `Retry-After` says, else with a back-off that doubles, jittered so
//! that callers do not return all at once; a bounded number of times, and never beyond the total time-out. A spent budget
//! is not waited for, and a connection lost after the request was sent is not tried again: it may have been charged.

mod client;
mod errors;
mod request;
mod retries;
mod stream;

pub use client::{ANSWER_BYTES_MAX, ChatAnswer, Client, Settings};
pub use errors::{CallError, Refusal, SettingsError};
pub use request::ChatRequest;
pub use retries::Retries;
pub use stream::{ChatChunk, ChatStream};

#[cfg(test)]
mod tests;

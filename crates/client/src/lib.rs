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
//! Refusals that time heals are waited for: as long as `Retry-After` or `retry-after-ms` says, else with a back-off that
//! doubles, with 30 % of jitter either way so that callers do not return all at once; a bounded number of times, within
//! the client's retry budget, and never beyond the total time-out. If the wait would pass that, the call fails at once
//! and says until when. A spent budget is not waited for, and a connection lost after the request was sent is not tried
//! again: it may have been charged. What to do about each failure is written at [`CallError`].
//!
//! A batch that wants every answer in the end, and has time, says so:
//!
//! ```
//! use tollgate_client::{Client, Retries, RetryBudget, Settings, Timeouts};
//!
//! # fn example() -> Result<(), tollgate_client::SettingsError> {
//! let settings = Settings {
//!     timeouts: Timeouts { total_ms: 6 * 60 * 60 * 1_000, ..Timeouts::default() },
//!     retries: Retries { retries_max: u32::MAX, ..Retries::default() },
//!     retry_budget: RetryBudget::Unlimited,
//!     ..Settings::default()
//! };
//! let client = Client::with_settings("https://tollgate.example.com/v1", "sk-tg-...", settings)?;
//! # Ok(())
//! # }
//! # assert!(example().is_ok());
//! ```
//!
//! Or it asks for jobs, which wait at the gateway:
//!
//! ```no_run
//! # async fn example(client: tollgate_client::Client) -> Result<(), tollgate_client::CallError> {
//! use std::time::Duration;
//!
//! use tollgate_client::{ChatRequest, Reply};
//!
//! let request = ChatRequest::new("gpt-sim").user("Summarise the whole archive").tag("project", "search");
//! let answer = match client.chat_or_job(&request, Some(Duration::from_secs(5))).await? {
//!     Reply::Answered(answer) => answer,
//!     Reply::Deferred(job) => {
//!         let job = client.wait_for_job(&job.id, Duration::from_secs(3_600)).await?;
//!         job.into_answer()?
//!     }
//! };
//! # Ok(())
//! # }
//! ```

mod chat;
mod client;
mod errors;
mod exchange;
mod jobs;
mod labels;
mod request;
mod retries;
mod retry_budget;
mod settings;
mod stream;
mod tries;

pub use domain::jobs::JobStatus;
pub use domain::priority::Priority;
pub use domain::usage::TokenUsage;

pub use chat::{ANSWER_BYTES_MAX, ChatAnswer, Reply};
pub use client::Client;
pub use errors::{CallError, Refusal, SettingsError, Step};
pub use jobs::{Job, JobList, JobsPage};
pub use labels::Labels;
pub use request::ChatRequest;
pub use retries::Retries;
pub use retry_budget::RetryBudget;
pub use settings::{Settings, TIMEOUT_MS_MAX, Timeouts};
pub use stream::{ChatChunk, ChatStream, StreamEvent};

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

//! Why a call failed, one variant for each thing a caller can do about it.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use domain::jobs::JobStatus;
use domain::refusals::RefusalCode;
use http::{HeaderMap, StatusCode};
use protocol::errors::UpstreamError;
use protocol::headers;
use serde_json::Value;

/// What the gateway said when it refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status. A refusal within a stream or a job has the one that its code stands for, or 200.
    pub status: u16,
    /// The word for programs: `rate_limit_exceeded`, `budget_exhausted`, ...
    pub code: Option<String>,
    /// For people.
    pub message: String,
    /// The scope that refused.
    pub scope: Option<String>,
    /// When the same request may succeed, from the moment it was refused.
    pub retry_after: Option<Duration>,
    /// The same as a time of day.
    pub retry_at: Option<DateTime<Utc>>,
    /// The gateway's id of the request, which finds it in the ledger; the provider's, where no gateway gave one.
    pub request_id: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (status {}", self.message, self.status)?;
        if let Some(at) = self.retry_at {
            write!(f, ", not before {}", at.to_rfc3339_opts(SecondsFormat::Secs, true))?;
        }
        f.write_str(")")
    }
}

impl Error for Refusal {}

impl Refusal {
    /// What an answer with `status` refuses with.
    pub(crate) fn read(status: StatusCode, headers: &HeaderMap, body: &[u8], now: DateTime<Utc>) -> Self {
        let error = UpstreamError::read(body);
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let status = match &error.code {
            // In a stream that has begun, the code stands for the status too.
            Some(code) if status == StatusCode::OK => code.parse().map_or(200, RefusalCode::status),
            _ => status.as_u16(),
        };
        let in_header = headers::retry_after(headers, now);
        let in_body = body["error"]["retry_after"].as_u64().map(Duration::from_secs);
        // The end of a month is further away than a header is believed.
        let retry_after = in_header
            .filter(|wait| *wait < headers::RETRY_AFTER_MAX)
            .or(in_body)
            .or(in_header);
        let reason = || StatusCode::from_u16(status).ok()?.canonical_reason().map(str::to_owned);
        Self {
            status,
            code: error.code,
            message: error
                .message
                .or_else(reason)
                .unwrap_or_else(|| "no reason given".to_owned()),
            scope: body["error"]["scope"].as_str().map(str::to_owned),
            retry_after,
            retry_at: retry_after.and_then(|wait| now.checked_add_signed(TimeDelta::from_std(wait).ok()?)),
            request_id: request_id(headers),
        }
    }
}

/// The gateway's id of a request, else the provider's.
pub(crate) fn request_id(headers: &HeaderMap) -> Option<String> {
    let ours = headers.get("x-tollgate-request-id").and_then(|id| id.to_str().ok());
    ours.map(str::to_owned)
        .or_else(|| headers::upstream_request_id(headers))
}

/// The code of a refusal whose idempotency key another request has that is still running.
const IN_PROGRESS: &str = "idempotency_in_progress";

/// A step that took longer than its time-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Connecting: nothing was sent.
    Connect,
    /// Waiting for the head of the answer.
    FirstByte,
    /// Waiting for the next piece of the answer.
    Chunk,
    /// The whole call.
    Total,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "there was no connection",
            Self::FirstByte => "no answer began",
            Self::Chunk => "nothing more of the answer came",
            Self::Total => "the answer was not complete",
        })
    }
}

/// Why a call failed. What heals by itself was waited for before, as far as retries, their budget and the total time-out
/// allow.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// A budget is spent until its period ends: [`Refusal::retry_at`] says when. Do not wait for it in a program; ask
    /// whoever manages the budget for a higher one. Never tried again.
    #[error("the budget is spent")]
    BudgetExhausted(#[source] Box<Refusal>),
    /// A limit has no room. Come back at [`Refusal::retry_at`], send less at once, or ask for a job
    /// ([`Client::chat_or_job`](crate::Client::chat_or_job)), which waits in your place.
    #[error("a rate limit has no room")]
    RateLimited(#[source] Box<Refusal>),
    /// The gateway's queue is full, its wait was too long, or no provider answers now. Come back at
    /// [`Refusal::retry_at`]; nothing is wrong with the request. Other statuses than 503 were not tried again: the request
    /// may have been worked on, and charged.
    #[error("the service cannot answer now")]
    Unavailable(#[source] Box<Refusal>),
    /// The request itself is refused: wrong key, unknown model, too large, malformed. Change it; never tried again.
    #[error("the request is refused")]
    Rejected(#[source] Box<Refusal>),
    /// The request cannot be sent as it is: its labels do not fit into headers. Change it.
    #[error("the request cannot be sent")]
    Unsendable(#[source] Box<dyn Error + Send + Sync>),
    /// The answer is not there yet, but the gateway works on it: `job_id` has it later. Ask for it with
    /// [`Client::wait_for_job`](crate::Client::wait_for_job); sending the request again would do it twice.
    #[error("job {job_id} has no answer yet")]
    Unfinished {
        /// The job.
        job_id: String,
        /// Why it is not waited for any longer; absent where there was just no more time.
        source: Option<Box<CallError>>,
    },
    /// A job ended and has no answer: it was called off, waited too long, or its answer was deleted since. Send the request
    /// again if the answer is still wanted.
    #[error("job {job_id} is {status} and has no answer")]
    JobEnded {
        /// The job.
        job_id: String,
        /// How it ended.
        status: JobStatus,
    },
    /// A step took longer than the settings allow. Once the request was sent (all but [`Step::Connect`]), it may have been
    /// charged, so it was not tried again.
    #[error("{step} within {after_ms} ms")]
    TimedOut {
        /// Which.
        step: Step,
        /// Its time-out in milliseconds.
        after_ms: u64,
    },
    /// The connection could not be made, or was lost. Once the request was sent, it may have been charged, so it was not
    /// tried again.
    #[error("the connection failed")]
    Connection(#[source] Box<dyn Error + Send + Sync>),
    /// A stream ended before the answer did. What came is charged; ask again if it is of no use.
    #[error("the stream ended before the answer did")]
    Interrupted,
    /// An answer that is not understood, or longer than is read. Is the base URL that of a gateway?
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
            Self::Unfinished { source, .. } => source.as_ref()?.refusal(),
            Self::Unsendable(_)
            | Self::JobEnded { .. }
            | Self::TimedOut { .. }
            | Self::Connection(_)
            | Self::Interrupted
            | Self::Unreadable(_) => None,
        }
    }

    pub(crate) fn refused(refusal: Refusal) -> Self {
        let refusal = Box::new(refusal);
        let is_spent = matches!(refusal.code.as_deref(), Some("budget_exhausted" | "insufficient_quota"));
        match refusal.status {
            429 if is_spent => Self::BudgetExhausted(refusal),
            429 => Self::RateLimited(refusal),
            // The same request runs, or its answer could not be read: another try brings it.
            409 if refusal.code.as_deref() == Some(IN_PROGRESS) => Self::Unavailable(refusal),
            200 | 500.. => Self::Unavailable(refusal),
            _ => Self::Rejected(refusal),
        }
    }

    pub(crate) fn unreadable(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unreadable(error.into())
    }

    /// Whether the same request may succeed in a while, and was not worked on until now. Of other failures than 503 nobody
    /// knows: a provider may have answered in vain, and be paid for it, and the gateway has tried others itself.
    pub(crate) fn is_worth_retrying(&self) -> bool {
        match self {
            Self::RateLimited(_) => true,
            Self::Unavailable(refusal) => match refusal.code.as_deref() {
                Some("gateway_error") => false,
                Some(IN_PROGRESS) => true,
                _ => refusal.status == 503,
            },
            Self::TimedOut { step, .. } => *step == Step::Connect,
            _ => false,
        }
    }
}

/// Whether another try may help.
#[derive(Debug)]
pub(crate) enum Failure {
    Passing(CallError),
    Final(CallError),
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        if error.is_worth_retrying() {
            Self::Passing(error)
        } else {
            Self::Final(error)
        }
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

#[cfg(test)]
mod tests;

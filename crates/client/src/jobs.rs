//! Jobs: requests that the gateway answers later, and how to come by their answers.

use std::time::Duration;

use chrono::{DateTime, Utc};
use domain::jobs::JobStatus;
use http::{HeaderMap, Method, StatusCode};
use protocol::headers;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::chat::{ANSWER_BYTES_MAX, ChatAnswer};
use crate::client::Client;
use crate::errors::{CallError, Refusal};
use crate::exchange::Outgoing;
use crate::retries::{Retries, random_share};
use crate::settings::deadline;

/// How often an unfinished job is asked for, where the gateway does not say: after a second at first, then less and less
/// often.
const POLLS: Retries = Retries {
    retries_max: u32::MAX,
    first_ms: 1_000,
    longest_ms: 15_000,
};

/// A request that the gateway answers later.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Job {
    /// Its id.
    pub id: String,
    /// Where it stands.
    pub status: JobStatus,
    /// The model asked for.
    #[serde(default)]
    pub model: Option<String>,
    /// How often the gateway has begun to work on it.
    #[serde(default)]
    pub attempts: u32,
    /// When it was accepted.
    #[serde(default, with = "chrono::serde::ts_seconds_option")]
    pub created_at: Option<DateTime<Utc>>,
    /// When work on it began.
    #[serde(default, with = "chrono::serde::ts_seconds_option")]
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    #[serde(default, with = "chrono::serde::ts_seconds_option")]
    pub finished_at: Option<DateTime<Utc>>,
    /// When it, and its answer, will be gone.
    #[serde(default, with = "chrono::serde::ts_seconds_option")]
    pub expires_at: Option<DateTime<Utc>>,
    #[serde(default)]
    error: Option<Value>,
    #[serde(default)]
    response: Option<JobResponse>,
}

/// What the request would have been answered with at once.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct JobResponse {
    status_code: u16,
    #[serde(default)]
    body: Value,
}

impl Job {
    /// Its answer, or why there is none.
    ///
    /// # Errors
    /// What the request would have been refused with; [`CallError::Unfinished`] while it has not ended;
    /// [`CallError::JobEnded`] when it ended without an answer.
    pub fn into_answer(self) -> Result<ChatAnswer, CallError> {
        let ended = CallError::JobEnded {
            job_id: self.id.clone(),
            status: self.status,
        };
        match (self.status, self.response, self.error) {
            (JobStatus::Waiting | JobStatus::Running, ..) => Err(CallError::Unfinished {
                job_id: self.id,
                source: None,
            }),
            (JobStatus::Completed, Some(response), _) if response.status_code == 200 => {
                Ok(ChatAnswer::of(response.body, Some(self.id)))
            }
            (JobStatus::Completed | JobStatus::Failed, Some(response), _) => {
                Err(refused(response.status_code, &response.body, self.id))
            }
            // Of a job that was called off or expired, the error is only what was in its way when it was last tried.
            (JobStatus::Failed, None, Some(error)) => Err(refused(200, &json!({ "error": error }), self.id)),
            _ => Err(ended),
        }
    }
}

fn refused(status: u16, body: &Value, job_id: String) -> CallError {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let body = body.to_string();
    let refusal = Refusal::read(status, &HeaderMap::new(), body.as_bytes(), Utc::now());
    CallError::refused(Refusal {
        request_id: Some(job_id),
        ..refusal
    })
}

/// Which of a key's jobs to list, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobsPage {
    /// How many, if not as many as the gateway thinks good.
    pub limit: Option<u32>,
    /// Those after the job of this id, which was the last of the page before.
    pub after: Option<String>,
}

/// A page of jobs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct JobList {
    /// The jobs.
    #[serde(rename = "data")]
    pub jobs: Vec<Job>,
    /// Whether there are more.
    #[serde(default)]
    pub has_more: bool,
}

impl JobList {
    /// The page after this one of `page`, if there is one.
    pub fn page_after(&self, page: &JobsPage) -> Option<JobsPage> {
        let last = self.jobs.last().filter(|_| self.has_more)?;
        Some(JobsPage {
            after: Some(last.id.clone()),
            ..page.clone()
        })
    }
}

/// A job as it was seen, with how long the gateway asks to leave it alone.
#[derive(Debug)]
pub(crate) struct SeenJob {
    pub(crate) job: Job,
    told: Option<Duration>,
}

impl SeenJob {
    /// What an answer about a job says.
    pub(crate) fn read(headers: &HeaderMap, body: &[u8]) -> Result<Self, CallError> {
        Ok(Self {
            job: serde_json::from_slice(body).map_err(CallError::unreadable)?,
            told: headers::retry_after(headers, Utc::now()),
        })
    }
}

impl Client {
    /// A job.
    ///
    /// # Errors
    /// When the gateway does not say; for an unknown job, [`CallError::Rejected`].
    pub async fn job(&self, id: &str) -> Result<Job, CallError> {
        let seen = self.see_job(id, self.total_deadline()).await?;
        Ok(seen.job)
    }

    /// A page of the key's jobs.
    ///
    /// # Errors
    /// When the gateway does not say.
    pub async fn jobs(&self, page: &JobsPage) -> Result<JobList, CallError> {
        let mut url = self.url(&["jobs"]);
        for (name, value) in [
            ("limit", page.limit.map(|limit| limit.to_string())),
            ("after", page.after.clone()),
        ] {
            if let Some(value) = value {
                url.query_pairs_mut().append_pair(name, &value);
            }
        }
        let (_, body) = self
            .fetch(self.repeatable(Method::GET, &url)?, self.total_deadline())
            .await?;
        serde_json::from_slice(&body).map_err(CallError::unreadable)
    }

    /// Ends a job, if it has not ended. What the provider generated until then is charged.
    ///
    /// # Errors
    /// When the gateway does not do it.
    pub async fn cancel_job(&self, id: &str) -> Result<Job, CallError> {
        let url = self.url(&["jobs", id, "cancel"]);
        let (headers, body) = self
            .fetch(self.repeatable(Method::POST, &url)?, self.total_deadline())
            .await?;
        Ok(SeenJob::read(&headers, &body)?.job)
    }

    /// Asks for a job, politely, until it has ended; `within` bounds the wait. [`Job::into_answer`] has its answer.
    ///
    /// # Errors
    /// [`CallError::Unfinished`] when it has not ended by then, or will not have when the gateway asks to be asked next.
    pub async fn wait_for_job(&self, id: &str, within: Duration) -> Result<Job, CallError> {
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let deadline = deadline(Instant::now(), within_ms);
        let seen = self.see_job(id, deadline).await?;
        self.wait_for_end(seen, deadline).await
    }

    /// As [`Self::wait_for_job`], with the first look taken already.
    pub(crate) async fn wait_for_end(&self, mut seen: SeenJob, deadline: Instant) -> Result<Job, CallError> {
        let mut poll = 0;
        while !seen.job.status.is_over() {
            let job_id = seen.job.id;
            let now = Instant::now();
            let wait = POLLS.wait(poll, seen.told, random_share());
            if now.checked_add(wait).is_none_or(|until| until >= deadline) {
                return Err(CallError::Unfinished { job_id, source: None });
            }
            tokio::time::sleep_until(now + wait).await;
            poll += 1;
            seen = match self.see_job(&job_id, deadline).await {
                Ok(seen) => seen,
                Err(error) => {
                    return Err(CallError::Unfinished {
                        job_id,
                        source: Some(Box::new(error)),
                    });
                }
            };
        }
        Ok(seen.job)
    }

    async fn see_job(&self, id: &str, deadline: Instant) -> Result<SeenJob, CallError> {
        let url = self.url(&["jobs", id]);
        let (headers, body) = self.fetch(self.repeatable(Method::GET, &url)?, deadline).await?;
        SeenJob::read(&headers, &body)
    }

    /// Sends and reads the whole answer.
    async fn fetch(&self, outgoing: Outgoing, deadline: Instant) -> Result<(HeaderMap, bytes::Bytes), CallError> {
        let mut tries = self.tries(deadline);
        let (head, body) = self.send(&outgoing, &mut tries).await?.into_parts();
        let body = self.exchange().read(body, ANSWER_BYTES_MAX, deadline).await?;
        Ok((head.headers, body))
    }
}

#[cfg(test)]
mod tests;

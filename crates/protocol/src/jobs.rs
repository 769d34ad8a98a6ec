//! Jobs as their callers see them, in OpenAI's manner: times in whole seconds since 1970, lists with `has_more`.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use domain::ids::JobId;
use domain::jobs::{JobError, JobStatus};
use domain::refusals::RefusalCode;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::errors::{ErrorBody, UpstreamError};

/// One job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownJob {
    /// Which one.
    pub id: JobId,
    /// Where it stands.
    pub status: JobStatus,
    /// When it was accepted.
    pub created_at: DateTime<Utc>,
    /// When it was first sent to a provider.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub finished_at: Option<DateTime<Utc>>,
    /// While it waits: until when it may. Once it has ended: until when its answer is kept.
    pub expires_at: DateTime<Utc>,
    /// The model asked for.
    pub model: String,
    /// How often it was sent to a provider.
    pub attempts: i32,
    /// What was in its way at the last try.
    pub error: Option<JobError>,
    /// The provider's answer, once there is one and as long as it is kept. Lists leave it out.
    pub response: Option<ShownResponse>,
}

/// A provider's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownResponse {
    /// Its HTTP status.
    pub status_code: u16,
    /// Its body.
    pub body: Bytes,
}

/// The body that tells of one job. An answer that is JSON stands in it as it came, any other as a text.
pub fn job_body(job: &ShownJob) -> Bytes {
    crate::errors::json_bytes(&Job::of(job))
}

/// The body that lists jobs, in the order given.
pub fn jobs_body(jobs: &[ShownJob], has_more: bool) -> Bytes {
    crate::errors::json_bytes(&List {
        object: "list",
        data: jobs.iter().map(Job::of).collect(),
        first_id: jobs.first().map(|job| job.id),
        last_id: jobs.last().map(|job| job.id),
        has_more,
    })
}

#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    data: Vec<Job<'a>>,
    first_id: Option<JobId>,
    last_id: Option<JobId>,
    has_more: bool,
}

#[derive(Serialize)]
struct Job<'a> {
    id: JobId,
    object: &'static str,
    status: JobStatus,
    created_at: i64,
    started_at: Option<i64>,
    finished_at: Option<i64>,
    expires_at: i64,
    model: &'a str,
    attempts: i32,
    error: Option<ErrorBody>,
    response: Option<Response<'a>>,
}

#[derive(Serialize)]
struct Response<'a> {
    status_code: u16,
    body: Answer<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Answer<'a> {
    Json(&'a RawValue),
    Text(std::borrow::Cow<'a, str>),
}

impl<'a> Job<'a> {
    fn of(job: &'a ShownJob) -> Self {
        Self {
            id: job.id,
            object: "job",
            status: job.status,
            created_at: job.created_at.timestamp(),
            started_at: job.started_at.map(|at| at.timestamp()),
            finished_at: job.finished_at.map(|at| at.timestamp()),
            expires_at: job.expires_at.timestamp(),
            model: &job.model,
            attempts: job.attempts,
            error: job.error.as_ref().map(error_body),
            response: job.response.as_ref().map(|response| Response {
                status_code: response.status_code,
                body: match serde_json::from_slice(&response.body) {
                    Ok(json) => Answer::Json(json),
                    Err(_) => Answer::Text(String::from_utf8_lossy(&response.body)),
                },
            }),
        }
    }
}

/// In the shape of every other error.
fn error_body(error: &JobError) -> ErrorBody {
    match error.code.parse::<RefusalCode>() {
        Ok(code) => ErrorBody::refusal(code, error.message.clone()),
        Err(_) => ErrorBody::upstream(UpstreamError {
            message: Some(error.message.clone()),
            code: Some(error.code.clone()),
            ..UpstreamError::default()
        }),
    }
}

#[cfg(test)]
mod tests;

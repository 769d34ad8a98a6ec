//! `/v1/jobs`: what became of a job, the jobs of a tenant, and calling one off. Nobody hears of another tenant's.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use chrono::{DateTime, Utc};
use domain::error_chain::chain;
use domain::ids::{JobId, TenantId};
use domain::jobs::JobStatus;
use http::header::{CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER};
use http::{HeaderMap, StatusCode, Uri};
use protocol::headers::PREFERENCE_APPLIED;
use protocol::jobs::{ShownJob, ShownResponse, job_body, jobs_body};
use store::StoreError;
use store::jobs::{JOBS_PAGE_MAX, JobFilter, JobRow, NamedJob};
use store::sealing::Purpose;

use super::open;
use crate::room::Taken;
use crate::routes::caller;
use crate::{Gateway, error, metrics};

/// How often an answer is in memory until its caller has read it: sealed, or as a body, and open.
const COPIES_PER_ANSWER: usize = 2;
/// Jobs on a page, unless the caller says otherwise.
const PAGE_DEFAULT: i64 = 20;
/// The longest pause between two questions about a job that callers are told, in seconds.
const ASK_AGAIN_SECONDS_MAX: i64 = 15;

/// `202`: the request has become this job.
pub(super) fn accepted(job: &ShownJob, was_preferred: bool) -> Response {
    let mut response = json(StatusCode::ACCEPTED, job_body(job));
    let headers = response.headers_mut();
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/jobs/{}", job.id)) {
        headers.insert(LOCATION, location);
    }
    headers.insert(RETRY_AFTER, HeaderValue::from(1));
    if was_preferred {
        headers.insert(PREFERENCE_APPLIED, HeaderValue::from_static("respond-async"));
    }
    response
}

/// `GET /v1/jobs/{id}`.
pub(crate) async fn find(State(gateway): State<Arc<Gateway>>, uri: Uri, headers: HeaderMap) -> Response {
    answer(show(&gateway, id_in(&uri), &headers).await)
}

/// `GET /v1/jobs`: the newest first; `limit`, `after` (the last id of the page before) and `status` may be stated.
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    answer(page(&gateway, &query.unwrap_or_default(), &headers).await)
}

/// `POST /v1/jobs/{id}/cancel`. A job that is over stays as it is.
pub(crate) async fn cancel(State(gateway): State<Arc<Gateway>>, uri: Uri, headers: HeaderMap) -> Response {
    answer(call_off(&gateway, id_in(&uri), &headers).await)
}

/// What stands after `/v1/jobs/`.
fn id_in(uri: &Uri) -> &str {
    uri.path().split('/').nth(3).unwrap_or_default()
}

/// The answer, whichever of the two it is.
fn answer(answer: Result<Response, Box<Response>>) -> Response {
    answer.unwrap_or_else(|refused| *refused)
}

async fn show(gateway: &Gateway, id: &str, headers: &HeaderMap) -> Result<Response, Box<Response>> {
    let tenant = caller(gateway, headers)?.key.tenant_id;
    let turn = gateway.jobs.turn(tenant).await.ok_or_else(busy)?;
    let job = own(gateway, id, tenant).await?.job;
    // Not before the job is over: what it was answered at an earlier attempt is not its answer.
    let stored = if job.status.is_over() {
        gateway
            .store
            .find_job_response(job.id, gateway.clock.now().wall)
            .await
            .map_err(|error| away(&error))?
    } else {
        None
    };
    drop(turn);
    // Sealed and open, and then for as long as the caller takes to read it.
    let mut room = gateway.room.take_none();
    let bytes = stored.as_ref().map_or(0, |stored| stored.body.len());
    room.grow(bytes * COPIES_PER_ANSWER).map_err(|_| busy())?;
    let response = match stored {
        None => None,
        Some(stored) => open(&gateway.secret_key, Purpose::JobResponse, job.id, stored.body)
            .await
            .map(|body| ShownResponse {
                status_code: stored.status_code,
                body: body.into(),
            }),
    };
    Ok(told(&shown(job, response), room, gateway.clock.now().wall))
}

async fn page(gateway: &Gateway, query: &str, headers: &HeaderMap) -> Result<Response, Box<Response>> {
    let tenant = caller(gateway, headers)?.key.tenant_id;
    let wanted = Wanted::read(query)?;
    let _turn = gateway.jobs.turn(tenant).await.ok_or_else(busy)?;
    let filter = JobFilter {
        tenant_id: Some(tenant),
        status: wanted.status,
        before: wanted.after,
        ..JobFilter::default()
    };
    // One more tells whether there is another page.
    let found = gateway.store.jobs(&filter, wanted.limit + 1).await;
    let mut found = found.map_err(|error| away(&error))?;
    let places = usize::try_from(wanted.limit).unwrap_or_default();
    let has_more = found.len() > places;
    found.truncate(places);
    let jobs: Vec<ShownJob> = found.into_iter().map(|named| shown(named.job, None)).collect();
    Ok(json(StatusCode::OK, jobs_body(&jobs, has_more)))
}

async fn call_off(gateway: &Gateway, id: &str, headers: &HeaderMap) -> Result<Response, Box<Response>> {
    let tenant = caller(gateway, headers)?.key.tenant_id;
    let _turn = gateway.jobs.turn(tenant).await.ok_or_else(busy)?;
    let before = own(gateway, id, tenant).await?.job;
    let now = gateway.clock.now().wall;
    let cancelled = gateway.store.cancel_job(before.id, now).await;
    let after = cancelled.map_err(|error| away(&error))?.ok_or_else(no_such_job)?.job;
    if after.status == JobStatus::Cancelled && !before.status.is_over() {
        metrics::job_became(JobStatus::Cancelled);
        // At once where it runs here; elsewhere with its gateway's next heartbeat.
        gateway.jobs.stop(after.id);
        gateway.jobs.bell.notify_one();
    }
    Ok(told(&shown(after, None), gateway.room.take_none(), now))
}

/// The job of this tenant. That of another is none, in the same words.
async fn own(gateway: &Gateway, id: &str, tenant: TenantId) -> Result<NamedJob, Box<Response>> {
    let id: JobId = id.parse().map_err(|_| no_such_job())?;
    let found = gateway.store.find_job(id).await.map_err(|error| away(&error))?;
    found
        .filter(|named| named.job.subject.tenant_id == tenant)
        .ok_or_else(no_such_job)
}

/// What a list is asked for.
struct Wanted {
    limit: i64,
    after: Option<JobId>,
    status: Option<JobStatus>,
}

impl Wanted {
    fn read(query: &str) -> Result<Self, Box<Response>> {
        let mut wanted = Self {
            limit: PAGE_DEFAULT,
            after: None,
            status: None,
        };
        let wrong = |param, message: String| Box::new(error::invalid(param, message));
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "limit" => {
                    wanted.limit = value
                        .parse()
                        .ok()
                        .filter(|limit| (1..=JOBS_PAGE_MAX).contains(limit))
                        .ok_or_else(|| wrong("limit", format!("`limit` is a number from 1 to {JOBS_PAGE_MAX}.")))?;
                }
                "after" => {
                    let after = value
                        .parse()
                        .map_err(|_| wrong("after", "`after` is a job's id.".to_owned()))?;
                    wanted.after = Some(after);
                }
                "status" => {
                    let status = value
                        .parse()
                        .map_err(|error: domain::jobs::UnknownJobStatus| wrong("status", format!("{error}.")))?;
                    wanted.status = Some(status);
                }
                _ => {}
            }
        }
        Ok(wanted)
    }
}

fn shown(job: JobRow, response: Option<ShownResponse>) -> ShownJob {
    ShownJob {
        id: job.id,
        status: job.status,
        created_at: job.created_at,
        started_at: job.started_at,
        finished_at: job.finished_at,
        expires_at: job.expires_at,
        model: job.subject.model,
        attempts: job.attempts,
        // What was in the way of a job that was answered in the end is of no interest.
        error: job.error.filter(|_| job.status != JobStatus::Completed),
        response,
    }
}

/// The job, and when to ask again while it is not over.
fn told(job: &ShownJob, room: Taken, now: DateTime<Utc>) -> Response {
    let mut response = json(StatusCode::OK, room.guard(job_body(job)));
    if !job.status.is_over() {
        // The longer it has waited, the less often it is asked for.
        let age_seconds = (now - job.created_at).num_seconds();
        let pause = (age_seconds / 4).clamp(1, ASK_AGAIN_SECONDS_MAX);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(pause));
    }
    response
}

fn no_such_job() -> Box<Response> {
    Box::new(error::no_such_job())
}

fn busy() -> Box<Response> {
    Box::new(error::jobs_unavailable())
}

fn away(error: &StoreError) -> Box<Response> {
    tracing::warn!(
        error = chain(error),
        "a caller's question about jobs cannot be answered"
    );
    busy()
}

fn json(status: StatusCode, body: bytes::Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

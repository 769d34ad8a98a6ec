//! One run of one job: the steps of every request, from the sealed body to the sealed answer.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use domain::error_chain::chain;
use domain::ids::JobId;
use domain::jobs::{JOB_ATTEMPTS_MAX, JOB_RESPONSE_BYTES_MAX, JobError, JobStatus, job_retry_ms};
use domain::priority::Priority;
use domain::refusals::RefusalCode;
use http::StatusCode;
use protocol::endpoint::Endpoint;
use protocol::errors::UpstreamError;
use store::jobs::JobRow;
use store::jobs::claims::{Claim, ClaimedJob, RunEnd};
use store::sealing::Purpose;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{booking, error_of, open, seal};
use crate::asked::Asked;
use crate::flight::Flight;
use crate::kept::Kept;
use crate::outgoing::Outgoing;
use crate::refusal::Refusal;
use crate::waiting::Admitted;
use crate::{Gateway, metrics, pipeline, relay};

/// How long a job whose key this gateway does not know may be too new for it, in milliseconds.
const KEY_NEWS_MS: i64 = 60_000;
/// When such a job is looked at again, in milliseconds.
const KEY_NEWS_PAUSE_MS: u64 = 2_000;
/// How long a run's end is written again and again while Postgres is away, in milliseconds. It has been paid for.
const WRITE_PATIENCE_MS: u64 = 10 * 60_000;
/// The pause between, in milliseconds.
const WRITE_PAUSE_MS: u64 = 1_000;

/// What a run has come to.
enum Attempted {
    /// To an end that is to be written.
    Ended(RunEnd),
    /// The claim does not stand any more.
    Lost,
}

/// Takes a job off the list of those that run here, however its run ends, and lets the worker look for another.
struct Place {
    gateway: Arc<Gateway>,
    claim: Claim,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.gateway.jobs.remove(self.claim);
        self.gateway.jobs.bell.notify_one();
    }
}

/// Runs a claimed job, unless or until it is unwanted, and writes what became of it. A run that panics leaves its claim to
/// lapse, and another gateway tries again.
pub(super) async fn run(gateway: Arc<Gateway>, job: ClaimedJob, unwanted: CancellationToken) {
    let ClaimedJob { claim, job } = job;
    let _place = Place {
        gateway: Arc::clone(&gateway),
        claim,
    };
    let mut has_row = false;
    let attempted = tokio::select! {
        biased;
        // What it has under way is dropped, as when a caller leaves.
        () = unwanted.cancelled() => Attempted::Lost,
        attempted = attempt(&gateway, claim, &job, &mut has_row) => attempted,
    };
    let is_taken = match attempted {
        Attempted::Ended(end) => write(&gateway, claim, &end).await,
        Attempted::Lost => false,
    };
    if !is_taken {
        leave(&gateway, claim, has_row).await;
    }
}

/// `has_row` is kept at whether the ledger has, or will have, a row of this run.
async fn attempt(gateway: &Arc<Gateway>, claim: Claim, job: &JobRow, has_row: &mut bool) -> Attempted {
    if gateway.jobs.stopping.is_cancelled() {
        return Attempted::Ended(put_back(gateway, 0, None, *has_row));
    }
    if job.attempts >= JOB_ATTEMPTS_MAX {
        return Attempted::Ended(failed(false, gateways_gone(), None));
    }
    let read = {
        let _turn = gateway.jobs.errand().await;
        gateway.store.job_request(claim).await
    };
    let sealed = match read {
        Ok(Some(sealed)) => sealed,
        Ok(None) => return Attempted::Lost,
        Err(error) => {
            tracing::warn!(error = chain(&error), job_id = %claim.id, "a job cannot be read; it is tried again");
            return Attempted::Ended(put_back(gateway, KEY_NEWS_PAUSE_MS, None, *has_row));
        }
    };
    let opened = open(&gateway.secret_key, Purpose::JobRequest, claim.id, sealed).await;
    let Some(kept) = opened.and_then(Kept::from_bytes) else {
        let is_booked = booking::book_failure(gateway, job);
        *has_row = is_booked;
        return Attempted::Ended(given_up(gateway, is_booked, unreadable()));
    };
    let now = gateway.clock.now();
    let Some(caller) = gateway.caller_of(job.subject.key_id) else {
        let age_ms = (now.wall - job.created_at).num_milliseconds();
        if age_ms < KEY_NEWS_MS || !gateway.keeper.can_tell_unknown_keys() {
            return Attempted::Ended(put_back(gateway, KEY_NEWS_PAUSE_MS, None, *has_row));
        }
        let error = key_gone();
        let is_booked = booking::book_refusal(gateway, job, &error);
        *has_row = is_booked;
        return Attempted::Ended(given_up(gateway, is_booked, error));
    };
    let Some(endpoint) = Endpoint::find(&job.subject.endpoint) else {
        // Written down by a newer gateway.
        return Attempted::Ended(put_back(gateway, KEY_NEWS_PAUSE_MS, None, *has_row));
    };
    let called = (endpoint.dialect(), endpoint.path());
    let mut flight = Flight::new(Arc::clone(gateway), caller, called, &kept.headers, now);
    *has_row = true;
    flight.identity.job_id = Some(job.id);
    let outgoing = match prepare(&mut flight, endpoint, kept).await {
        Ok(outgoing) => outgoing,
        Err(refusal) if may_wait(&refusal, job, now.wall) => {
            // Nobody was refused: the job waits on, and the ledger hears of its next run.
            flight.hand_over();
            *has_row = false;
            let wait_ms = denied_ms(gateway, job, &refusal);
            return Attempted::Ended(put_back(gateway, wait_ms, Some(error_of(&refusal)), false));
        }
        Err(refusal) => {
            flight.refuse(&refusal).await;
            return Attempted::Ended(failed(false, error_of(&refusal), None));
        }
    };
    if gateway.jobs.stopping.is_cancelled() {
        // Dropped, the flight gives everything back and books that nothing was used.
        return Attempted::Ended(put_back(gateway, 0, None, true));
    }
    let answer = relay::answer(flight, outgoing).await;
    Attempted::Ended(judge(gateway, job, answer).await)
}

/// Everything before the first byte goes upstream. A job does not wait in the queue: it has a place to wait that costs
/// nobody anything; and it does not overtake those who wait there.
async fn prepare(flight: &mut Flight, endpoint: Endpoint, kept: Kept) -> Result<Outgoing, Refusal> {
    let gateway = Arc::clone(&flight.gateway);
    flight.identity.priority = Priority::Low;
    let known_by = (flight.identity.key_id, Priority::Low);
    let mut asked = Asked::read_again(flight, known_by, kept.headers, endpoint, &kept.body)?;
    drop(kept.body);
    let now = gateway.clock.now();
    flight.is_ready(now);
    let judged = asked.judge(flight, now).await?;
    let ahead = gateway
        .queue
        .ahead(flight.identity.priority, |of| judged.case.counts_in(of), now);
    if let Some(blocked) = ahead {
        let retry_ms = blocked.due_ms.saturating_sub(now.monotonic_ms);
        return Err(Refusal::behind(&blocked, retry_ms, gateway.random_unit()));
    }
    let hold = pipeline::admit(flight, &judged, now).await?;
    pipeline::board(flight, asked, Admitted { judged, hold, at: now }).map_err(|(_, refusal)| *refusal)
}

/// Whether what is in the way goes by itself before the job has waited as long as it may.
fn may_wait(refusal: &Refusal, job: &JobRow, now: DateTime<Utc>) -> bool {
    let left_seconds = (job.expires_at - now).num_seconds();
    let is_in_time = refusal
        .retry_after_seconds
        .is_none_or(|seconds| i64::try_from(seconds).is_ok_and(|seconds| seconds <= left_seconds));
    refusal.code.is_retryable() && is_in_time
}

fn denied_ms(gateway: &Gateway, job: &JobRow, refusal: &Refusal) -> u64 {
    let told_ms = refusal.retry_after_seconds.map(|seconds| seconds.saturating_mul(1_000));
    job_retry_ms(job.denials.unsigned_abs(), told_ms, gateway.random_unit())
}

/// What an answer means for the job.
async fn judge(gateway: &Gateway, job: &JobRow, answer: Response) -> RunEnd {
    let (parts, body) = answer.into_parts();
    let status = parts.status;
    let Ok(body) = axum::body::to_bytes(body, JOB_RESPONSE_BYTES_MAX).await else {
        return failed(true, too_long(), None);
    };
    if status.is_success() {
        return RunEnd::Over {
            status: JobStatus::Completed,
            was_sent: true,
            error: None,
            response: Some(sealed_response(gateway, job.id, status, body).await),
        };
    }
    if gateway.ending.is_cancelled() {
        // The process stops, and so did the answer. That is nobody's failure.
        return put_back(gateway, 0, None, true);
    }
    let told = UpstreamError::read(&body);
    let message = told
        .message
        .unwrap_or_else(|| format!("The model's provider answered {status}."));
    let error = JobError::new(told.code.as_deref().unwrap_or("upstream_error"), &message);
    let attempts = job.attempts + 1;
    let is_worth_another = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
    if !is_worth_another || attempts >= JOB_ATTEMPTS_MAX {
        let response = sealed_response(gateway, job.id, status, body).await;
        return failed(true, error, Some(response));
    }
    let now = gateway.clock.now().wall;
    let told_ms = protocol::headers::retry_after(&parts.headers, now)
        .map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    let wait_ms = job_retry_ms(job.attempts.unsigned_abs(), told_ms, gateway.random_unit());
    RunEnd::Retry {
        not_before: later(now, wait_ms),
        error,
    }
}

async fn sealed_response(gateway: &Gateway, id: JobId, status: StatusCode, body: Bytes) -> (u16, Vec<u8>) {
    let sealed = seal(gateway, Purpose::JobResponse, id, body.into()).await;
    (status.as_u16(), sealed)
}

/// Writes how a run ended; false where it does not count any more. While Postgres is away it is tried again, up to a bound
/// and to the end of a stop's grace.
async fn write(gateway: &Gateway, claim: Claim, end: &RunEnd) -> bool {
    let began = Instant::now();
    loop {
        let written = {
            let _turn = gateway.jobs.errand().await;
            gateway.store.end_run(claim, end, gateway.clock.now().wall).await
        };
        let error = match written {
            Ok(is_taken) => {
                if let (true, RunEnd::Over { status, .. }) = (is_taken, end) {
                    metrics::job_became(*status);
                }
                return is_taken;
            }
            Err(error) => error,
        };
        let is_hopeless = !error.is_transient() || began.elapsed() >= Duration::from_millis(WRITE_PATIENCE_MS);
        if is_hopeless || gateway.ending.is_cancelled() {
            tracing::error!(
                error = chain(&error),
                job_id = %claim.id,
                "the end of a job's run cannot be written; the job will be run again"
            );
            return true;
        }
        tokio::select! {
            () = gateway.ending.cancelled() => {}
            () = sleep(Duration::from_millis(WRITE_PAUSE_MS)) => {}
        }
    }
}

/// Nobody wants the run any more. Should this not be written, the claim lapses by itself.
async fn leave(gateway: &Gateway, claim: Claim, has_row: bool) {
    if let Err(error) = gateway.store.leave_cancelled(claim, has_row).await {
        tracing::warn!(error = chain(&error), job_id = %claim.id, "a claim on a job that is over is left to lapse");
    }
}

fn put_back(gateway: &Gateway, wait_ms: u64, error: Option<JobError>, has_row: bool) -> RunEnd {
    RunEnd::PutBack {
        not_before: later(gateway.clock.now().wall, wait_ms),
        error,
        has_row,
    }
}

fn failed(was_sent: bool, error: JobError, response: Option<(u16, Vec<u8>)>) -> RunEnd {
    RunEnd::Over {
        status: JobStatus::Failed,
        was_sent,
        error: Some(error),
        response,
    }
}

/// Without any request. Not before the journal has a row that says so.
fn given_up(gateway: &Gateway, is_booked: bool, error: JobError) -> RunEnd {
    if is_booked {
        failed(false, error, None)
    } else {
        put_back(gateway, KEY_NEWS_PAUSE_MS, None, false)
    }
}

fn later(now: DateTime<Utc>, wait_ms: u64) -> DateTime<Utc> {
    now + chrono::Duration::milliseconds(i64::try_from(wait_ms).unwrap_or(i64::MAX))
}

fn gateways_gone() -> JobError {
    gateway_error("The gateways that ran this job went away each time. Send the request again.")
}

fn unreadable() -> JobError {
    gateway_error("What this job asks for cannot be read any more. Send the request again.")
}

fn too_long() -> JobError {
    gateway_error(&format!(
        "The answer is larger than the {} MiB that are kept of a job. Ask for less output.",
        JOB_RESPONSE_BYTES_MAX >> 20
    ))
}

fn gateway_error(message: &str) -> JobError {
    JobError::new("gateway_error", message)
}

fn key_gone() -> JobError {
    JobError::new(
        RefusalCode::InvalidKey.as_str(),
        "The key of this job, or its tenant, is gone.",
    )
}

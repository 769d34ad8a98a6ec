//! Asynchronous jobs: a request that finds no room is written down instead of being refused, if its caller agrees, and run
//! when there is room.
//!
//! A job holds nothing while it waits. It lives in Postgres, so that any gateway may run it: [`worker`] claims what is due,
//! [`run`] sends it through the same steps as every other request, at the lowest priority and past the queue, and [`api`]
//! tells callers what became of it. Whatever a gateway writes counts only as long as its claim stands.

pub(crate) mod api;
mod booking;
mod run;
pub(crate) mod worker;

use std::collections::HashMap;
use std::sync::Arc;

use axum::response::Response;
use chrono::Duration;
use domain::error_chain::chain;
use domain::ids::{JobId, TenantId};
use domain::jobs::{JOB_REQUEST_BYTES_MAX, JOB_WAIT_HOURS, JobError, JobStatus, job_retry_ms};
use parking_lot::Mutex;
use protocol::headers;
use protocol::jobs::ShownJob;
use store::jobs::claims::Claim;
use store::jobs::{JobSubject, NewJob};
use store::sealing::{Purpose, SecretKey};
use tokio::sync::{Notify, Semaphore, SemaphorePermit, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::asked::Asked;
use crate::flight::Flight;
use crate::kept::Kept;
use crate::refusal::Refusal;
use crate::{Gateway, metrics};

/// Jobs that run at one gateway at once.
pub const JOBS_RUNNING_MAX: usize = 16;
/// Callers that ask Postgres about jobs at once, at one gateway: the connections are those of its background tasks.
const CALLERS_MAX: usize = 2;
/// Callers of one tenant among those that ask or wait for their turn. One more is told to come back.
const TENANT_CALLERS_MAX: usize = 8;
/// Jobs that are written down at once, at one gateway.
const WRITERS_MAX: usize = 2;
/// How long a job is called off again and again of which nobody knows whether it was written down, in seconds.
const UNSURE_SECONDS: u64 = 60;
/// How long a caller waits for its turn among them, in milliseconds.
const CALLER_TURN_MS: u64 = 2_000;
/// Runs that read or write their jobs at once, at one gateway.
const ERRANDS_MAX: usize = 2;

/// The jobs that run here.
pub(crate) struct Jobs {
    running: Mutex<HashMap<JobId, Running>>,
    /// Rung when there may be something to do.
    bell: Notify,
    /// Nothing is claimed or sent any more once the process stops.
    stopping: CancellationToken,
    callers: Semaphore,
    /// How many callers of each tenant ask, or wait for their turn.
    asking: Mutex<HashMap<TenantId, usize>>,
    writers: Semaphore,
    errands: Semaphore,
}

/// A caller's turn to ask Postgres.
struct Turn<'a> {
    jobs: &'a Jobs,
    tenant: TenantId,
    _permit: Option<SemaphorePermit<'a>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut asking = self.jobs.asking.lock();
        if let Some(count) = asking.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                asking.remove(&self.tenant);
            }
        }
    }
}

/// A job that runs here.
struct Running {
    claim: Claim,
    /// Ends the run: the job was called off, or the claim is lost.
    unwanted: CancellationToken,
}

impl Default for Jobs {
    fn default() -> Self {
        Self {
            running: Mutex::default(),
            bell: Notify::new(),
            stopping: CancellationToken::new(),
            callers: Semaphore::new(CALLERS_MAX),
            asking: Mutex::default(),
            writers: Semaphore::new(WRITERS_MAX),
            errands: Semaphore::new(ERRANDS_MAX),
        }
    }
}

impl Jobs {
    /// How many run here.
    pub(crate) fn count_running(&self) -> usize {
        self.running.lock().len()
    }

    /// The claims of those that run here.
    fn claims(&self) -> Vec<Claim> {
        self.running.lock().values().map(|running| running.claim).collect()
    }

    /// Ends the run of a job, if it is here.
    fn stop(&self, id: JobId) {
        if let Some(running) = self.running.lock().get(&id) {
            running.unwanted.cancel();
        }
    }

    /// Takes the run under this claim off the list.
    fn remove(&self, claim: Claim) {
        let mut running = self.running.lock();
        if running.get(&claim.id).is_some_and(|running| running.claim == claim) {
            running.remove(&claim.id);
        }
    }

    /// Ends the run under a claim that does not stand any more. The same job may run here again by now, under another.
    fn stop_lost(&self, claim: Claim) {
        if let Some(running) = self.running.lock().get(&claim.id)
            && running.claim == claim
        {
            running.unwanted.cancel();
        }
    }

    /// A turn to ask Postgres for a caller; `None` where too many others do, or too many of the same tenant.
    async fn turn(&self, tenant: TenantId) -> Option<Turn<'_>> {
        {
            let mut asking = self.asking.lock();
            let count = asking.entry(tenant).or_default();
            if *count >= TENANT_CALLERS_MAX {
                return None;
            }
            *count += 1;
        }
        let mut turn = Turn {
            jobs: self,
            tenant,
            _permit: None,
        };
        turn._permit = Some(in_turn(&self.callers).await?);
        Some(turn)
    }

    /// A turn to ask Postgres for a run. Whoever has it keeps it no longer than one query may take.
    async fn errand(&self) -> Option<SemaphorePermit<'_>> {
        self.errands.acquire().await.ok()
    }
}

async fn in_turn(places: &Semaphore) -> Option<SemaphorePermit<'_>> {
    let turn = timeout(std::time::Duration::from_millis(CALLER_TURN_MS), places.acquire());
    turn.await.ok()?.ok()
}

impl Gateway {
    /// Claims no more jobs, and gives back those that were not sent yet. Those under way go on.
    pub fn stop_jobs(&self) {
        self.jobs.stopping.cancel();
    }
}

/// Answers a request that was refused with a job instead, if its caller agrees and Postgres takes it.
///
/// # Errors
/// With the flight, when the refusal stands.
pub(crate) async fn degrade(flight: Flight, asked: &Asked, refusal: &Refusal) -> Result<Response, Box<Flight>> {
    let preferences = headers::preferences(&asked.headers);
    let is_agreed = preferences.responds_async || flight.caller.key.degrades;
    let body = asked.request.body();
    let may_degrade =
        is_agreed && refusal.code.may_degrade() && !asked.request.is_streamed() && body.len() <= JOB_REQUEST_BYTES_MAX;
    if !may_degrade {
        return Err(Box::new(flight));
    }
    let kept = Kept::request(flight.dialect(), &asked.headers, body.clone());
    let dialect = flight.dialect();
    let (answer, answered) = oneshot::channel();
    let gateway = Arc::clone(&flight.gateway);
    // On a task of its own: a job that was taken while its caller left would run for nobody.
    let was_preferred = preferences.responds_async;
    gateway
        .tasks
        .spawn(accept(flight, kept, refusal.clone(), was_preferred, answer));
    match answered.await {
        Ok(Ok(job)) => Ok(api::accepted(&job, was_preferred)),
        Ok(Err(flight)) => Err(flight),
        // It panicked; the flight has booked that.
        Err(_) => Ok(crate::error::panicked(dialect)),
    }
}

async fn accept(
    mut flight: Flight,
    kept: Kept,
    refusal: Refusal,
    was_preferred: bool,
    answer: oneshot::Sender<Result<ShownJob, Box<Flight>>>,
) {
    let gateway = Arc::clone(&flight.gateway);
    if let Some(recording) = flight.recording() {
        // From now on there may be a job, whatever becomes of us.
        recording.mark_sent();
    }
    let job = match write_down(&flight, kept, &refusal).await {
        Ok(job) => job,
        Err(not_written) => {
            let now = gateway.clock.now();
            match flight.take_recording() {
                // There may be a job all the same, for as long as it takes to call it off.
                Some(recording) if not_written == NotWritten::Unsure => recording.finish(&gateway).await,
                Some(recording) => recording.release(now).await,
                None => {}
            }
            // A caller that left meanwhile drops it.
            let _ = answer.send(Err(Box::new(flight)));
            return;
        }
    };
    let recording = flight.take_recording();
    flight.hand_over();
    metrics::job_became(JobStatus::Waiting);
    gateway.jobs.bell.notify_one();
    let id = job.id;
    // Whoever asks again under the same idempotency key is told of this job, so it is not for nobody.
    let may_be_asked_again = recording.is_some();
    if let Some(mut recording) = recording {
        recording.take_whole(api::accepted(&job, was_preferred)).await;
        recording.finish(&gateway).await;
    }
    if answer.send(Ok(job)).is_err() && !may_be_asked_again {
        let now = gateway.clock.now().wall;
        if let Err(error) = gateway.store.cancel_job(id, now).await {
            tracing::warn!(error = chain(&error), job_id = %id, "a job whose caller left runs all the same");
        }
    }
}

/// Why there is no job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotWritten {
    /// There is no place for it.
    NoPlace,
    /// Postgres has not said that it took it.
    Unsure,
}

/// Writes the job down.
async fn write_down(flight: &Flight, kept: Kept, refusal: &Refusal) -> Result<ShownJob, NotWritten> {
    let gateway = &flight.gateway;
    let now = gateway.clock.now().wall;
    let id = JobId::new(now, gateway.random());
    let request = seal(gateway, Purpose::JobRequest, id, kept.into_bytes()).await;
    let told_ms = refusal.retry_after_seconds.map(|seconds| seconds.saturating_mul(1_000));
    let wait_ms = job_retry_ms(0, told_ms, gateway.random_unit());
    let job = NewJob {
        id,
        subject: JobSubject {
            tenant_id: flight.identity.tenant_id,
            key_id: flight.identity.key_id,
            user_id: flight.identity.user_id.clone(),
            model: flight.identity.model.as_deref().unwrap_or_default().to_owned(),
            dialect: flight.identity.dialect,
            endpoint: flight.identity.endpoint.clone(),
            tags: flight.identity.tags.clone(),
            user_agent: flight.identity.user_agent.clone(),
        },
        created_at: now,
        expires_at: now + Duration::hours(JOB_WAIT_HOURS),
        not_before: now + Duration::milliseconds(i64::try_from(wait_ms).unwrap_or(i64::MAX)),
        error: error_of(refusal),
        request,
    };
    let Some(_turn) = in_turn(&gateway.jobs.writers).await else {
        tracing::warn!("too many jobs are being written down at once; a request is refused instead");
        return Err(NotWritten::NoPlace);
    };
    match gateway.store.add_job(&job).await {
        Ok(true) => Ok(ShownJob {
            id,
            status: JobStatus::Waiting,
            created_at: job.created_at,
            started_at: None,
            finished_at: None,
            expires_at: job.expires_at,
            model: job.subject.model,
            attempts: 0,
            error: Some(job.error),
            response: None,
        }),
        // The tenant has as many as may wait.
        Ok(false) => Err(NotWritten::NoPlace),
        Err(error) => {
            tracing::warn!(
                error = chain(&error),
                "a job cannot be written down; its request is refused instead"
            );
            gateway.tasks.spawn(call_off_unsure(Arc::clone(gateway), id));
            Err(NotWritten::Unsure)
        }
    }
}

/// A job that may have been written down all the same, in the very moment that its caller was refused, runs for nobody.
async fn call_off_unsure(gateway: Arc<Gateway>, id: JobId) {
    for _ in 0..UNSURE_SECONDS {
        let now = gateway.clock.now().wall;
        match gateway.store.cancel_job(id, now).await {
            Ok(Some(_)) => return,
            Ok(None) | Err(_) if gateway.jobs.stopping.is_cancelled() => return,
            // It may still be under way.
            Ok(None) | Err(_) => tokio::time::sleep(std::time::Duration::from_secs(1)).await,
        }
    }
}

fn error_of(refusal: &Refusal) -> JobError {
    JobError::new(refusal.code.as_str(), &refusal.message)
}

/// Seals what a job carries. Bodies are large: not on a thread that others wait for.
async fn seal(gateway: &Gateway, purpose: Purpose, id: JobId, plain: Vec<u8>) -> Vec<u8> {
    let (key, random) = (Arc::clone(&gateway.secret_key), Arc::clone(&gateway.random));
    blocking(move || key.seal(purpose, &id.to_string(), &plain, &*random)).await
}

/// Opens it again; `None` where it was sealed under another key, or for another job.
async fn open(key: &Arc<SecretKey>, purpose: Purpose, id: JobId, sealed: Vec<u8>) -> Option<Vec<u8>> {
    let key = Arc::clone(key);
    let opened = blocking(move || key.open(purpose, &id.to_string(), &sealed)).await;
    match opened {
        Ok(plain) => Some(plain),
        Err(error) => {
            tracing::error!(%error, job_id = %id, "what a job carries cannot be opened");
            None
        }
    }
}

pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

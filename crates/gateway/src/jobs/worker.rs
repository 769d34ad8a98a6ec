//! Finds work: claims jobs that are due, beats for those that run here, ends those that waited too long, and books those
//! that ended without any run.

use std::sync::Arc;
use std::time::Duration;

use domain::error_chain::chain;
use domain::jobs::{JOB_WAIT_HOURS, JobError, JobStatus};
use domain::refusals::RefusalCode;
use store::StoreError;
use store::jobs::claims::{CLAIM_LAPSE_MS, HEARTBEAT_INTERVAL_MS, JOBS_BATCH_MAX};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::{JOBS_RUNNING_MAX, Running, booking, run};
use crate::{Gateway, metrics};

/// How often a gateway looks for jobs that are due, in milliseconds. It looks at once when it accepted one, and when one
/// ended here.
const LOOK_INTERVAL_MS: u64 = 1_000;

/// Runs jobs until the process stops.
///
/// After Postgres was away every claim has lapsed, those of runs that are well among them. So for as long as a claim lasts
/// nothing is taken over then: by that time whoever is there has beaten for its own.
pub(crate) async fn keep_jobs(gateway: Arc<Gateway>) {
    let mut is_away = false;
    let mut takes_over_from = Instant::now();
    while !gateway.jobs.stopping.is_cancelled() {
        match look(&gateway, Instant::now() >= takes_over_from).await {
            Ok(true) => continue,
            Ok(false) => is_away = false,
            Err(error) if error.is_transient() && is_away => takes_over_from = Instant::now() + claim_lasts(),
            Err(error) => {
                is_away = true;
                takes_over_from = Instant::now() + claim_lasts();
                tracing::warn!(error = chain(&error), "jobs cannot be looked for; it is tried again");
            }
        }
        tokio::select! {
            () = gateway.jobs.stopping.cancelled() => return,
            _ = timeout(Duration::from_millis(LOOK_INTERVAL_MS), gateway.jobs.bell.notified()) => {}
        }
    }
}

/// Keeps the claims of jobs that run here, and ends runs that nobody wants any more.
pub(crate) async fn keep_claims(gateway: Arc<Gateway>) {
    let mut ticks = interval(Duration::from_millis(HEARTBEAT_INTERVAL_MS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let claims = gateway.jobs.claims();
        if claims.is_empty() {
            continue;
        }
        // Without Postgres nobody else takes them over, and what they bring is fenced when it is written.
        let Ok(beats) = gateway.store.beat_jobs(&claims).await else {
            continue;
        };
        for claim in claims {
            let is_wanted = beats.iter().any(|beat| beat.id == claim.id && beat.is_wanted);
            if !is_wanted {
                gateway.jobs.stop_lost(claim);
            }
        }
    }
}

fn claim_lasts() -> Duration {
    Duration::from_millis(CLAIM_LAPSE_MS.unsigned_abs())
}

/// Does what there is to do; answers whether there may be more.
async fn look(gateway: &Arc<Gateway>, takes_over: bool) -> Result<bool, StoreError> {
    let now = gateway.clock.now().wall;
    let expired = gateway.store.expire_jobs(now, &waited_too_long()).await?;
    metrics::jobs_became(JobStatus::Expired, expired);
    let booked = book_ended(gateway).await?;

    let places = JOBS_RUNNING_MAX.saturating_sub(gateway.jobs.count_running());
    let claimed = if places > 0 {
        let places = i64::try_from(places).unwrap_or(i64::MAX);
        gateway
            .store
            .claim_jobs(&gateway.instance, places, takes_over, now)
            .await?
    } else {
        Vec::new()
    };
    let batch_max = usize::try_from(JOBS_BATCH_MAX).unwrap_or(usize::MAX);
    let has_more = expired >= batch_max as u64 || booked >= batch_max || (places > 0 && claimed.len() == places);
    for job in claimed {
        let unwanted = CancellationToken::new();
        let running = Running {
            claim: job.claim,
            unwanted: unwanted.clone(),
        };
        let before = gateway.jobs.running.lock().insert(job.claim.id, running);
        if let Some(before) = before {
            // Its claim has lapsed without a beat, and this is the next run of the same job.
            before.unwanted.cancel();
        }
        gateway.tasks.spawn(run::run(Arc::clone(gateway), job, unwanted));
    }
    // Whoever claimed all its places looks again when one of them is free.
    Ok(has_more && gateway.jobs.count_running() < JOBS_RUNNING_MAX)
}

/// Books a batch of jobs that ended without any run; answers how many.
async fn book_ended(gateway: &Gateway) -> Result<usize, StoreError> {
    let ended = gateway.store.unbooked_jobs().await?;
    let booked: Vec<_> = ended
        .iter()
        .filter(|job| booking::book(gateway, job))
        .map(|job| job.id)
        .collect();
    if !booked.is_empty() {
        gateway.store.mark_jobs_booked(&booked).await?;
    }
    Ok(booked.len())
}

fn waited_too_long() -> JobError {
    let message =
        format!("There was no room for {JOB_WAIT_HOURS} hours. Send the request again when there is less traffic.");
    JobError::new(RefusalCode::QueueTimeout.as_str(), &message)
}

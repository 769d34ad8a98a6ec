//! What runs beside the requests: the policy, the budgets, the sweep, the status. Each task reads the state afresh, can
//! run twice, and ends when told to.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use domain::error_chain::chain;
use domain::instances::STATUS_INTERVAL_MS;
use futures_util::FutureExt as _;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::alerts::{deliver_alerts, keep_alerts};
use crate::budget_events::keep_budget_events;
use crate::budgets::{REREAD_INTERVAL_MS, Which};
use crate::clock::minute_of;
use crate::jobs::worker::{keep_claims, keep_jobs};
use crate::key_uses::keep_key_uses;
use crate::policy::{KeeperError, VERSION_INTERVAL_MS};
use crate::{Gateway, metrics};

/// How often counters are swept and folded refusals written, in milliseconds.
const SWEEP_INTERVAL_MS: u64 = 1_000;
/// After how many reports of the status records in quarantine are counted again.
const QUARANTINE_ROUNDS: u64 = 5;
/// How long a newer policy waits for the reading of its new budgets, in milliseconds.
const BUDGETS_WAIT_MS: u64 = 1_000;
/// How long a start waits for the shared counters, in milliseconds.
const COUNTERS_WAIT_MS: u64 = 2_000;
/// The pause before a task that panicked is started again, in milliseconds.
const RESTART_PAUSE_MS: u64 = 1_000;
/// The pause after a failed reading of budgets, in milliseconds.
const BUDGETS_RETRY_MS: u64 = 1_000;
/// Budgets are read again so many milliseconds after the ledger was adjusted.
const ADJUSTED_PAUSE_MS: u64 = 500;
/// New budgets are read again after so many milliseconds: by then the journal has shipped what came before them.
const BEGUN_PAUSE_MS: u64 = 2_000;

impl Gateway {
    /// Reads the policy once and puts it in force with its budgets. Without Postgres, takes the kept copy.
    pub async fn start_policy(&self) {
        if let Err(error) = self.refresh_policy().await {
            tracing::warn!(
                error = chain(&error),
                "the policy cannot be read; looking for the kept copy"
            );
            match self.keeper.read_kept().await {
                Ok(Some(policy)) => self.keeper.publish_kept(policy),
                Ok(None) => {
                    tracing::warn!("there is no kept copy of the policy; nothing is served until Postgres answers")
                }
                Err(error) => tracing::error!(error = chain(&error), "the kept copy of the policy is of no use"),
            }
        }
    }

    /// Connects to the shared counters, if there are any, before the policy is read: budgets are kept there. Whether or not
    /// they answer, requests are served.
    pub async fn start_counters(&self) {
        let within = Duration::from_millis(COUNTERS_WAIT_MS);
        if !self.limits.start(self.budgets.life_signs(), within).await {
            tracing::warn!("the shared counters do not answer; this gateway admits a part of every limit by its own");
        } else if let Some(complaint) = self.limits.complaint().await {
            tracing::warn!("{complaint}");
        }
    }

    /// Starts every task on `tasks`.
    pub fn spawn_background(self: &Arc<Self>, tasks: &TaskTracker, stop: &CancellationToken) {
        let gateway = Arc::clone(self);
        tasks.spawn_blocking(move || gateway.estimates.warm());
        self.spawn(tasks, stop, "policy", keep_policy);
        self.spawn(tasks, stop, "budgets", keep_budgets);
        self.spawn(tasks, stop, "key uses", keep_key_uses);
        self.spawn(tasks, stop, "wanted budgets", read_wanted_budgets);
        self.spawn(tasks, stop, "counters", keep_counters);
        self.spawn(tasks, stop, "queue", keep_queue);
        self.spawn(tasks, stop, "jobs", keep_jobs);
        self.spawn(tasks, stop, "claims on jobs", keep_claims);
        self.spawn(tasks, stop, "sweep", sweep);
        self.spawn(tasks, stop, "status", report);
        self.spawn(tasks, stop, "alerts", keep_alerts);
        self.spawn(tasks, stop, "budget events", keep_budget_events);
        self.spawn(tasks, stop, "webhook", deliver_alerts);
    }

    fn spawn<F>(
        self: &Arc<Self>,
        tasks: &TaskTracker,
        stop: &CancellationToken,
        name: &'static str,
        task: fn(Arc<Self>) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let gateway = Arc::clone(self);
        let supervised = supervise(name, move || task(Arc::clone(&gateway)));
        tasks.spawn(stop.clone().run_until_cancelled_owned(supervised));
    }

    /// Puts a newer policy in force, if there is one. Answers whether there was.
    ///
    /// Its budgets are read first, so that nobody is refused for a budget that is merely new; but not for long: a key
    /// that was just issued or revoked waits as well. Budgets that were not read in time stay closed until they are, and
    /// everything else holds.
    pub async fn refresh_policy(&self) -> Result<bool, KeeperError> {
        // One at a time: whoever reads budgets for longer must not put an older policy in force again.
        let _one = self.refreshing.lock().await;
        let Some(newer) = self.keeper.fetch_newer().await? else {
            return Ok(false);
        };
        let loading = self.budgets.load(&newer.snapshot, Which::Missing);
        match timeout(Duration::from_millis(BUDGETS_WAIT_MS), loading).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(error = chain(&error), "new budgets cannot be read; they stay closed"),
            Err(_) => tracing::warn!("new budgets are not read in time; they stay closed until they are"),
        }
        if let Some(before) = self.keeper.current() {
            self.forget_changed_upstreams(&before, &newer.snapshot);
            if before.adjusted_version != newer.snapshot.adjusted_version {
                self.budgets.note_adjusted();
            }
        }
        self.keeper.publish(newer);
        self.queue.stir_all(self.clock.now());
        Ok(true)
    }
}

/// Runs `task` for ever: one that panics is started again after a pause. Nothing else may stand still for one bad value.
/// Ends when the task does.
pub async fn supervise<F: Future<Output = ()>>(name: &'static str, task: impl FnMut() -> F) {
    restart(name, Duration::from_millis(RESTART_PAUSE_MS), task).await;
}

async fn restart<F: Future<Output = ()>>(name: &'static str, pause: Duration, mut task: impl FnMut() -> F) {
    loop {
        // The task reads the state afresh, so nothing that was half done is looked at again.
        let Err(panic) = AssertUnwindSafe(task()).catch_unwind().await else {
            return;
        };
        metrics::task_panicked(name);
        let text = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or_default();
        tracing::error!(
            task = name,
            panic = text,
            "a background task panicked; it is started again"
        );
        tokio::time::sleep(pause).await;
    }
}

async fn keep_policy(gateway: Arc<Gateway>) {
    let mut failing_since: Option<Instant> = None;
    let mut ticks = ticks(VERSION_INTERVAL_MS);
    loop {
        ticks.tick().await;
        match gateway.refresh_policy().await {
            Ok(_) => {
                if let Some(since) = failing_since.take() {
                    tracing::info!(seconds = since.elapsed().as_secs(), "the policy is read again");
                }
                if let Err(error) = gateway.keeper.keep().await {
                    tracing::warn!(error = chain(&error), "the policy could not be kept on disk");
                }
            }
            Err(error) if failing_since.is_none() => {
                failing_since = Some(Instant::now());
                tracing::warn!(
                    error = chain(&error),
                    "the policy cannot be read; going on with what is known"
                );
            }
            Err(_) => {}
        }
    }
}

async fn keep_budgets(gateway: Arc<Gateway>) {
    let mut which = Which::Missing;
    let mut has_looked_at_ended = false;
    loop {
        let loaded = match gateway.keeper.current() {
            Some(policy) => {
                let loaded = gateway.budgets.load(&policy, which).await;
                if loaded.is_ok() && gateway.budgets.are_open() && !has_looked_at_ended {
                    has_looked_at_ended = gateway.budgets.look_at_ended(&policy).await.is_ok();
                }
                loaded
            }
            None => Ok(()),
        };
        let pause_ms = match loaded {
            Ok(()) => REREAD_INTERVAL_MS,
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "budgets cannot be read; going on with what is known"
                );
                BUDGETS_RETRY_MS
            }
        };
        which = Which::All;
        // Until everything an earlier run left in the journal is in Postgres, bases are not set: look again soon.
        let pause_ms = if gateway.budgets.are_open() {
            pause_ms
        } else {
            BUDGETS_RETRY_MS
        };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(pause_ms)) => {}
            // Whatever a shared store has lost, the ledger knows.
            () = gateway.limits.forgot() => has_looked_at_ended = false,
            // A credit opens a spent budget, a debit closes one: soon, and not within the minute; several at once count together.
            () = gateway.budgets.adjusted() => tokio::time::sleep(Duration::from_millis(ADJUSTED_PAUSE_MS)).await,
            () = gateway.budgets.begun() => tokio::time::sleep(Duration::from_millis(BEGUN_PAUSE_MS)).await,
        }
    }
}

async fn read_wanted_budgets(gateway: Arc<Gateway>) {
    loop {
        let Some(policy) = gateway.keeper.current() else {
            tokio::time::sleep(Duration::from_millis(VERSION_INTERVAL_MS)).await;
            continue;
        };
        if let Err(error) = gateway.budgets.read_wanted(&policy).await {
            tracing::warn!(error = chain(&error), "a budget cannot be read; it stays closed");
            tokio::time::sleep(Duration::from_millis(BUDGETS_RETRY_MS)).await;
        }
    }
}

/// Without a shared store there is nothing to keep.
async fn keep_counters(gateway: Arc<Gateway>) {
    gateway.limits.keep(gateway.budgets.life_signs()).await;
}

async fn keep_queue(gateway: Arc<Gateway>) {
    gateway.queue.keep(&*gateway.clock).await;
}

async fn sweep(gateway: Arc<Gateway>) {
    let mut ticks = ticks(SWEEP_INTERVAL_MS);
    loop {
        ticks.tick().await;
        let now = gateway.clock.now();
        gateway.limits.sweep(now);
        gateway.rejections.flush(&gateway.journal, Some(minute_of(now.wall)));
    }
}

async fn report(gateway: Arc<Gateway>) {
    let mut ticks = ticks(STATUS_INTERVAL_MS);
    for round in 0_u64.. {
        ticks.tick().await;
        if round.is_multiple_of(QUARANTINE_ROUNDS) {
            gateway.count_quarantined().await;
            gateway.look_at_redis().await;
        }
        gateway.count_closed_budgets().await;
        let status = gateway.status();
        gateway.report_metrics(&status);
        gateway.watch_status(&status);
        let seen_at = gateway.clock.now().wall;
        // Postgres away is noticed and logged by whoever reads the policy.
        if let Ok(theirs) = gateway.store.report_instance(&gateway.instance, seen_at, &status).await {
            gateway.compare_clocks(seen_at, theirs, gateway.clock.now().wall);
        }
    }
}

fn ticks(interval_ms: u64) -> tokio::time::Interval {
    let mut ticks = interval(Duration::from_millis(interval_ms));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

#[cfg(test)]
mod tests;

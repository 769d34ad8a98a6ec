//! What a gateway says about itself: for the instances table, readiness and metrics.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use chrono::{DateTime, Utc};
use domain::alerts::AlertKind;
use domain::instances::{Degraded, InstanceStatus};

use limits::Mode;

use crate::{Gateway, metrics};

/// A policy older than this is called stale, in milliseconds.
const POLICY_STALE_MS: u64 = 5_000;
/// A journal whose oldest record waits longer is called lagging, in milliseconds.
const JOURNAL_LAGGING_MS: u64 = 30_000;

/// What was last found out about Postgres and Redis, beside the requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    /// By how much this clock is ahead of Postgres's, in milliseconds.
    pub(crate) clock_ahead_ms: Option<i64>,
    /// What Redis does when its memory is full.
    pub(crate) redis_eviction: Option<String>,
}

impl Gateway {
    fn surroundings(&self) -> Surroundings {
        self.surroundings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks Redis what it does when its memory is full. While it does not answer, what it said last stands.
    pub(crate) async fn look_at_redis(&self) {
        if let Some(eviction) = self.limits.eviction().await {
            let mut surroundings = self.surroundings.lock().unwrap_or_else(PoisonError::into_inner);
            surroundings.redis_eviction = Some(eviction);
        }
    }

    /// Compares the clocks: Postgres said `theirs` at some moment between `before` and `after`.
    pub(crate) fn compare_clocks(&self, before: DateTime<Utc>, theirs: DateTime<Utc>, after: DateTime<Utc>) {
        let ours = before + (after - before) / 2;
        let ahead_ms = (ours - theirs).num_milliseconds();
        let mut surroundings = self.surroundings.lock().unwrap_or_else(PoisonError::into_inner);
        surroundings.clock_ahead_ms = Some(ahead_ms);
    }

    /// The live status.
    pub fn status(&self) -> InstanceStatus {
        let journal = self.journal.status(self.clock.now().wall);
        let policy_age_ms = self.keeper.age_ms();
        let journal_lag_ms = journal
            .oldest_unshipped_age
            .map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        let mut degraded = Vec::new();
        let mut say = |kind, text: String| degraded.push(Degraded { kind, text });
        match policy_age_ms {
            None => say(
                AlertKind::Policy,
                "policy: never read from Postgres; serving from the kept copy, if there is one".to_owned(),
            ),
            Some(age_ms) if age_ms > POLICY_STALE_MS => say(
                AlertKind::Policy,
                format!(
                    "policy: Postgres has not answered for {} s; keys issued since then are not known",
                    age_ms / 1_000
                ),
            ),
            Some(_) => {}
        }
        if journal_lag_ms > JOURNAL_LAGGING_MS {
            let text = format!("journal: {} records wait for Postgres", journal.depth);
            say(AlertKind::JournalLag, text);
        }
        // Whoever may ask for readiness need not see what lies beneath; the log has it.
        if journal.last_error.is_some() {
            let text = "journal: the disk or Postgres does not take it; the log says why";
            say(AlertKind::JournalError, text.to_owned());
        }
        let quarantined = self.quarantined.load(Ordering::Relaxed);
        if quarantined > 0 {
            let text = format!(
                "journal: {quarantined} of its records are in quarantine or lost, and are missing in totals; Status, Quarantine \
                 has them"
            );
            say(AlertKind::JournalError, text);
        }
        if journal.is_full {
            let text = "journal: full; new requests are refused until Postgres has caught up";
            say(AlertKind::JournalFull, text.to_owned());
        }
        match self.limits.mode(self.clock.now()) {
            Mode::Normal => {}
            Mode::Degraded { share_percent } => say(
                AlertKind::Counters,
                format!(
                    "counters: Redis does not answer; this gateway admits {share_percent} % of every rate by its own, and \
                     of budgets what was set aside for it"
                ),
            ),
            Mode::Returning { share_percent } => say(
                AlertKind::Counters,
                format!(
                    "counters: Redis answers again; this gateway admits {share_percent} % of every rate, rising to all of it"
                ),
            ),
        }
        let closed_budgets = self.closed_budgets.load(Ordering::Relaxed);
        if closed_budgets > 0 {
            say(
                AlertKind::Budgets,
                format!(
                    "budgets: {closed_budgets} are closed until what they have spent is read; requests that count in them \
                     are refused"
                ),
            );
        }
        let surroundings = self.surroundings();
        InstanceStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: Some(self.started_at),
            counters: self.counter_store().as_str().to_owned(),
            degraded,
            policy_version: self.keeper.current().map_or(0, |policy| policy.version),
            policy_age_ms: policy_age_ms.unwrap_or(u64::MAX >> 1),
            in_flight: self.in_flight(),
            journal_depth: journal.depth,
            journal_lag_ms,
            journal_bytes: journal.bytes,
            journal_bytes_max: journal.bytes_max,
            journal_shipped_per_second: journal.shipped_per_second,
            journal_quarantined: quarantined,
            open_holds: self.open_holds(),
            complete_until: Some(journal.complete_until),
            queue: self.queue.status(self.clock.now()),
            jobs_running: self.jobs.count_running() as u64,
            setup: Some(self.setup.clone()),
            clock_ahead_ms: surroundings.clock_ahead_ms,
            redis_eviction: surroundings.redis_eviction,
            breakers: self.breaker_statuses(self.clock.now()),
        }
    }

    /// Makes alerts of what the status says is not as it should be.
    pub(crate) fn watch_status(&self, status: &InstanceStatus) {
        let policy = self.keeper.current();
        self.alerts.observe(&status.degraded, &status.breakers, |id| {
            Some(policy.as_ref()?.find_upstream(id)?.upstream.name.clone())
        });
    }

    /// Sets the gauges from a status.
    pub fn report_metrics(&self, status: &InstanceStatus) {
        metrics::report(status, &self.counters());
    }

    fn counters(&self) -> metrics::Counters {
        let (share_percent, is_degraded) = match self.limits.mode(self.clock.now()) {
            Mode::Normal => (100, false),
            Mode::Degraded { share_percent } => (share_percent, true),
            Mode::Returning { share_percent } => (share_percent, false),
        };
        metrics::Counters {
            share_percent: f64::from(share_percent),
            is_degraded,
            scopes: self.limits.scope_count(),
            gateways: self.limits.gateways(),
            unheard: self.limits.unheard(),
        }
    }

    /// Counts anew for the status.
    pub(crate) async fn count_closed_budgets(&self) {
        let closed = match self.keeper.current() {
            Some(policy) => self.budgets.count_closed(&policy).await,
            None => 0,
        };
        self.closed_budgets.store(closed, Ordering::Relaxed);
    }

    /// Counts anew for the status. While Postgres is away, what was counted last stands.
    pub(crate) async fn count_quarantined(&self) {
        if let Ok(count) = self.store.count_quarantined_of(&self.instance).await {
            self.quarantined.store(count, Ordering::Relaxed);
        }
    }

    /// Whether requests can be served: a policy is in force.
    pub fn is_ready(&self) -> bool {
        self.keeper.current().is_some()
    }
}

//! What Prometheus is told. Every label has few values: codes, kinds, and the names of configured models.

use std::time::Duration;

use domain::alerts::AlertKind;
use domain::instances::BreakerState;
use domain::jobs::JobStatus;
use domain::ledger::{Rejection, Settlement};
use domain::limits::Dimension;
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use crate::authenticate::Unauthenticated;

/// Upper bounds in seconds of the latency that the gateway adds.
pub const ADDED_SECONDS_BOUNDS: [f64; 10] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0];
/// Upper bounds in seconds of whole requests and first bytes.
pub const REQUEST_SECONDS_BOUNDS: [f64; 12] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 300.0];

/// Histogram of the latency that the gateway adds before a request goes out.
pub const ADDED_SECONDS: &str = "tollgate_added_latency_seconds";
/// Histogram of requests from arrival to end.
pub const REQUEST_SECONDS: &str = "tollgate_request_duration_seconds";
/// Histogram of requests from arrival to the first byte of the answer.
pub const FIRST_BYTE_SECONDS: &str = "tollgate_first_byte_seconds";

/// Histogram of waits for room.
pub const QUEUE_SECONDS: &str = "tollgate_queue_seconds";

/// Gives every metric its help text.
pub fn describe() {
    describe_counter!(
        "tollgate_requests_total",
        "Requests that ran, by outcome, model and priority."
    );
    describe_counter!(
        "tollgate_refusals_total",
        "Requests refused, by code, kind of scope and dimension."
    );
    describe_counter!(
        "tollgate_unauthenticated_total",
        "Requests without a usable key, by code."
    );
    describe_counter!("tollgate_tokens_total", "Tokens used, by class and model.");
    describe_counter!(
        "tollgate_cost_nanos_total",
        "Cost in nano-units of the billing currency, by model."
    );
    describe_counter!(
        "tollgate_unpriced_requests_total",
        "Requests charged by the fallback price for want of one."
    );
    describe_counter!(
        "tollgate_estimated_requests_total",
        "Requests whose usage the provider did not report."
    );
    describe_counter!(
        "tollgate_overrun_nanos_total",
        "Cost above the ceiling that was held, in nano-units."
    );
    describe_counter!(
        "tollgate_ledger_lost_total",
        "Entries the journal did not take. Must stay zero."
    );
    describe_counter!(
        "tollgate_task_panics_total",
        "Background tasks that panicked and were started again. Must stay zero."
    );
    describe_counter!(
        "tollgate_queue_waits_total",
        "Requests that found no room, by what had none and by what became of them."
    );
    describe_gauge!("tollgate_queue_depth", "Requests that wait for room.");
    describe_gauge!("tollgate_queue_places", "How many may.");
    describe_gauge!(
        "tollgate_queue_waiting_tokens",
        "Tokens that those that wait are expected to use."
    );
    describe_histogram!(
        QUEUE_SECONDS,
        "Time that requests waited for room, by what became of them."
    );
    describe_gauge!(
        "tollgate_alerts_open",
        "Alerts of this gateway that are not over, by kind."
    );
    describe_counter!(
        "tollgate_alert_deliveries_total",
        "Attempts to tell the webhook of an alert, by result: delivered, failed, given_up."
    );
    describe_counter!(
        "tollgate_budget_thresholds_total",
        "Thresholds of budgets that this gateway was the first to tell of, by percent."
    );
    describe_counter!(
        "tollgate_breaker_transitions_total",
        "Changes of breakers, by upstream and what they became."
    );
    describe_counter!(
        "tollgate_upstream_retries_total",
        "Requests tried once more at the upstream that failed, by upstream."
    );
    describe_counter!(
        "tollgate_upstream_failovers_total",
        "Requests tried once more at another upstream, by that upstream."
    );
    describe_gauge!(
        "tollgate_breakers",
        "Breakers that do not let everybody through, by what they do."
    );
    describe_counter!(
        "tollgate_jobs_total",
        "Jobs by what they became: waiting is one that was accepted. Those called off in the console are not counted."
    );
    describe_gauge!("tollgate_jobs_running", "Jobs that run.");
    describe_gauge!("tollgate_holds", "Requests admitted and not ended.");
    describe_gauge!("tollgate_scopes", "Scopes that have counters in memory.");
    describe_gauge!(
        "tollgate_counters_degraded",
        "1 while the shared counters do not answer and this gateway admits by its own."
    );
    describe_gauge!(
        "tollgate_counters_share_percent",
        "What this gateway admits of every rate: 100 unless the shared counters do not answer, or did not lately."
    );
    describe_gauge!(
        "tollgate_counters_gateways",
        "Gateways that share the counters, as far as this one knows."
    );
    describe_gauge!(
        "tollgate_counters_unheard",
        "Ends of requests that the shared counters have not heard of yet."
    );
    describe_gauge!("tollgate_policy_version", "Version of the policy in force.");
    describe_gauge!(
        "tollgate_policy_age_seconds",
        "Time since the policy was last known to be current."
    );
    describe_gauge!(
        "tollgate_journal_depth",
        "Journal records that are not in Postgres yet."
    );
    describe_gauge!("tollgate_journal_lag_seconds", "Age of the oldest of them.");
    describe_gauge!("tollgate_journal_bytes", "Size of the journal on disk.");
    describe_gauge!(
        "tollgate_journal_bytes_max",
        "The size at which new requests are refused."
    );
    describe_gauge!(
        "tollgate_journal_shipped_per_second",
        "Records shipped a second over the last ten seconds."
    );
    describe_gauge!(
        "tollgate_journal_quarantined",
        "Records in quarantine, and gaps, that nobody has dealt with."
    );
    describe_histogram!(
        ADDED_SECONDS,
        "Time from arrival until the request goes out to the provider."
    );
    describe_histogram!(REQUEST_SECONDS, "Time from arrival to the end.");
    describe_histogram!(FIRST_BYTE_SECONDS, "Time from arrival to the first byte of the answer.");
}

/// A request without a usable key.
pub(crate) fn unauthenticated(reason: Unauthenticated) {
    counter!("tollgate_unauthenticated_total", "code" => reason.code().as_str()).increment(1);
}

/// Time from arrival until a request goes out.
pub(crate) fn added(latency: Duration) {
    histogram!(ADDED_SECONDS).record(latency.as_secs_f64());
}

/// A request that was refused. Folded ones count each.
pub(crate) fn refused(rejection: &Rejection) {
    counter!(
        "tollgate_refusals_total",
        "code" => rejection.code.as_str(),
        "scope" => rejection.scope.as_ref().map_or("", |scope| scope.kind()),
        "dimension" => rejection.dimension.map_or("", |dimension| dimension.as_str()),
    )
    .increment(1);
}

/// What became of a request that found no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueResult {
    /// There was room in time.
    Admitted,
    /// There was none.
    TimedOut,
    /// It was refused for another reason meanwhile.
    Refused,
    /// Its caller left.
    Left,
    /// There was no place.
    Full,
}

impl QueueResult {
    fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::TimedOut => "timed_out",
            Self::Refused => "refused",
            Self::Left => "left",
            Self::Full => "full",
        }
    }
}

/// A wait for room that is over; `scope` is a kind of scope.
pub(crate) fn queued(scope: &'static str, dimension: Dimension, result: QueueResult, waited: Duration) {
    let result = result.as_str();
    counter!(
        "tollgate_queue_waits_total",
        "scope" => scope,
        "dimension" => dimension.as_str(),
        "result" => result,
    )
    .increment(1);
    histogram!(QUEUE_SECONDS, "result" => result).record(waited.as_secs_f64());
}

/// A job has become this.
pub(crate) fn job_became(status: JobStatus) {
    jobs_became(status, 1);
}

/// So many jobs have become this.
pub(crate) fn jobs_became(status: JobStatus, count: u64) {
    counter!("tollgate_jobs_total", "status" => status.as_str()).increment(count);
}

/// An entry that the journal did not take.
pub(crate) fn ledger_lost() {
    counter!("tollgate_ledger_lost_total").increment(1);
}

/// Alerts of one kind that are open.
pub(crate) fn open_alerts(kind: AlertKind, count: usize) {
    gauge!("tollgate_alerts_open", "kind" => kind.as_str()).set(count as f64);
}

/// An attempt to tell the webhook of something.
pub(crate) fn alert_delivery(result: &'static str) {
    counter!("tollgate_alert_deliveries_total", "result" => result).increment(1);
}

/// A threshold of a budget was told of.
pub(crate) fn budget_threshold(percent: u8) {
    counter!("tollgate_budget_thresholds_total", "percent" => percent.to_string()).increment(1);
}

/// A background task that panicked.
pub(crate) fn task_panicked(name: &'static str) {
    counter!("tollgate_task_panics_total", "task" => name).increment(1);
}

/// A request that ran. `model` is a configured one.
pub(crate) fn settled(settlement: &Settlement) {
    let model = settlement.identity.model.as_deref().unwrap_or_default().to_owned();
    counter!(
        "tollgate_requests_total",
        "outcome" => settlement.outcome.as_str(),
        "model" => model.clone(),
        "priority" => settlement.identity.priority.as_str(),
    )
    .increment(1);
    let usage = &settlement.usage;
    for (class, tokens) in [
        ("input_fresh", usage.input_fresh_tokens),
        ("cache_read", usage.cache_read_tokens),
        ("cache_write_5m", usage.cache_write_5m_tokens),
        ("cache_write_1h", usage.cache_write_1h_tokens),
        ("output", usage.output_tokens),
    ] {
        if tokens > 0 {
            counter!("tollgate_tokens_total", "class" => class, "model" => model.clone()).increment(tokens);
        }
    }
    counter!("tollgate_cost_nanos_total", "model" => model)
        .increment(u64::try_from(settlement.cost_nanos.0).unwrap_or(0));
    if settlement.is_unpriced {
        counter!("tollgate_unpriced_requests_total").increment(1);
    }
    if settlement.usage_source == domain::usage::UsageSource::Estimated {
        counter!("tollgate_estimated_requests_total").increment(1);
    }
    if settlement.overrun_nanos.0 > 0 {
        counter!("tollgate_overrun_nanos_total").increment(settlement.overrun_nanos.0.unsigned_abs());
    }
    histogram!(REQUEST_SECONDS).record(seconds(settlement.total_ms));
    if let Some(first_byte_ms) = settlement.first_byte_ms {
        histogram!(FIRST_BYTE_SECONDS).record(seconds(first_byte_ms));
    }
}

/// A breaker has become this. `upstream` is a configured one.
pub(crate) fn breaker_turned(upstream: &str, state: BreakerState) {
    counter!(
        "tollgate_breaker_transitions_total",
        "upstream" => upstream.to_owned(),
        "state" => state.as_str(),
    )
    .increment(1);
}

/// A request is tried once more, at this configured upstream.
pub(crate) fn tried_again(upstream: &str, again: Again) {
    let name = match again {
        Again::Same => "tollgate_upstream_retries_total",
        Again::Other => "tollgate_upstream_failovers_total",
    };
    counter!(name, "upstream" => upstream.to_owned()).increment(1);
}

/// Where a request is tried once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// Where it failed.
    Same,
    /// At another upstream.
    Other,
}

/// How the counters are.
pub(crate) struct Counters {
    /// Of every rate, what is admitted by them.
    pub(crate) share_percent: f64,
    pub(crate) is_degraded: bool,
    pub(crate) scopes: usize,
    pub(crate) gateways: u64,
    pub(crate) unheard: usize,
}

/// Sets the gauges from a status.
pub(crate) fn report(status: &domain::instances::InstanceStatus, counters: &Counters) {
    gauge!("tollgate_jobs_running").set(status.jobs_running as f64);
    gauge!("tollgate_queue_depth").set(status.queue.depth as f64);
    gauge!("tollgate_queue_places").set(status.queue.places as f64);
    gauge!("tollgate_queue_waiting_tokens").set(status.queue.waiting_tokens as f64);
    for state in [BreakerState::Cooling, BreakerState::Open, BreakerState::HalfOpen] {
        let count = status.breakers.iter().filter(|breaker| breaker.state == state).count();
        gauge!("tollgate_breakers", "state" => state.as_str()).set(count as f64);
    }
    gauge!("tollgate_holds").set(status.open_holds as f64);
    gauge!("tollgate_scopes").set(counters.scopes as f64);
    gauge!("tollgate_counters_share_percent").set(counters.share_percent);
    gauge!("tollgate_counters_degraded").set(if counters.is_degraded { 1.0 } else { 0.0 });
    gauge!("tollgate_counters_gateways").set(counters.gateways as f64);
    gauge!("tollgate_counters_unheard").set(counters.unheard as f64);
    gauge!("tollgate_policy_version").set(status.policy_version as f64);
    gauge!("tollgate_policy_age_seconds").set(status.policy_age_ms as f64 / 1_000.0);
    gauge!("tollgate_journal_depth").set(status.journal_depth as f64);
    gauge!("tollgate_journal_lag_seconds").set(status.journal_lag_ms as f64 / 1_000.0);
    gauge!("tollgate_journal_bytes").set(status.journal_bytes as f64);
    gauge!("tollgate_journal_bytes_max").set(status.journal_bytes_max as f64);
    gauge!("tollgate_journal_shipped_per_second").set(status.journal_shipped_per_second as f64);
    gauge!("tollgate_journal_quarantined").set(status.journal_quarantined as f64);
}

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1_000.0
}

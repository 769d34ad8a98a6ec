//! Jobs that ended without any run: the ledger has a row of them, too.
//!
//! A row is told by the job's own id and the moment of its end, so that it may be written twice and is there once: by a
//! gateway that was killed before it could note that it had, or by two at once.

use domain::ids::RequestId;
use domain::jobs::{JobError, JobStatus};
use domain::ledger::{Identity, JournalRecord, Outcome, Rejection, Settlement};
use domain::money::Nanos;
use domain::priority::Priority;
use domain::refusals::RefusalCode;
use domain::usage::{TokenUsage, UsageSource};
use ledger::AppendError;
use store::jobs::JobRow;

use crate::{Gateway, flight, metrics, rejections};

/// Journals the row of a job that is over; answers whether the journal has it.
pub(super) fn book(gateway: &Gateway, job: &JobRow) -> bool {
    let record = match job.status {
        JobStatus::Expired => JournalRecord::Rejection(Box::new(expired(gateway, job))),
        _ => JournalRecord::Settlement(Box::new(ran_never(gateway, job, Outcome::ClientClosed))),
    };
    append(gateway, job, &record)
}

/// Journals the row of a job that is refused although nobody is left to refuse it to: its key is gone.
pub(super) fn book_refusal(gateway: &Gateway, job: &JobRow, error: &JobError) -> bool {
    let code = error.code.parse().unwrap_or(RefusalCode::InvalidKey);
    let rejection = refused(gateway, job, code, &error.message);
    append(gateway, job, &JournalRecord::Rejection(Box::new(rejection)))
}

/// Journals the row of a job that cannot be run by a fault of ours.
pub(super) fn book_failure(gateway: &Gateway, job: &JobRow) -> bool {
    let settlement = ran_never(gateway, job, Outcome::GatewayError);
    append(gateway, job, &JournalRecord::Settlement(Box::new(settlement)))
}

fn append(gateway: &Gateway, job: &JobRow, record: &JournalRecord) -> bool {
    match gateway.journal.append(record) {
        Ok(_) | Err(AppendError::Deferred { .. }) => {}
        Err(error) => {
            tracing::warn!(%error, job_id = %job.id, "a job that is over waits for its place in the journal");
            return false;
        }
    }
    match record {
        JournalRecord::Settlement(settlement) => {
            metrics::settled(settlement);
            flight::log_settlement(settlement, &settlement.identity.key_id.to_string());
        }
        JournalRecord::Rejection(rejection) => {
            metrics::refused(rejection);
            rejections::log_rejection(rejection);
        }
        JournalRecord::Hold(_) => {}
    }
    true
}

fn identity(gateway: &Gateway, job: &JobRow) -> Identity {
    let subject = &job.subject;
    Identity {
        id: RequestId(job.id.0),
        tenant_id: subject.tenant_id,
        user_id: subject.user_id.clone(),
        key_id: subject.key_id,
        model: Some(subject.model.as_str().into()),
        dialect: subject.dialect,
        endpoint: subject.endpoint.clone(),
        priority: Priority::Low,
        is_streamed: false,
        tags: subject.tags.clone(),
        instance: gateway.instance.clone(),
        user_agent: subject.user_agent.clone(),
        job_id: Some(job.id),
    }
}

/// It waited as long as it may.
fn expired(gateway: &Gateway, job: &JobRow) -> Rejection {
    let message = job.error.as_ref().map_or("", |error| &error.message);
    refused(gateway, job, RefusalCode::QueueTimeout, message)
}

fn refused(gateway: &Gateway, job: &JobRow, code: RefusalCode, message: &str) -> Rejection {
    let refused_at = job.finished_at.unwrap_or(job.created_at);
    Rejection {
        identity: identity(gateway, job),
        refused_at,
        code,
        status: code.status(),
        scope: None,
        dimension: None,
        limit_id: None,
        limit_key: None,
        chain: Vec::new(),
        message: message.to_owned(),
        retry_after_seconds: None,
        caller_retries: None,
        refusal_count: 1,
        early_count: 0,
        expected_input_tokens: 0,
        expected_output_tokens: 0,
        expected_cost_nanos: Nanos::ZERO,
        queue_ms: (refused_at - job.created_at).num_milliseconds().max(0),
    }
}

/// It was never admitted, and used nothing. Its duration is that of its runs, of which there was none: hours of waiting
/// would make the figures of requests useless.
fn ran_never(gateway: &Gateway, job: &JobRow, outcome: Outcome) -> Settlement {
    let ended_at = job.finished_at.unwrap_or(job.created_at);
    Settlement {
        identity: identity(gateway, job),
        admitted_at: ended_at,
        settled_at: ended_at,
        upstream_id: None,
        upstream_model: None,
        upstream_request_id: None,
        outcome,
        status: None,
        attempts: Vec::new(),
        usage: TokenUsage::default(),
        usage_source: UsageSource::None,
        expected_input_tokens: 0,
        expected_output_tokens: 0,
        expected_cost_nanos: Nanos::ZERO,
        ceiling_input_tokens: 0,
        ceiling_output_tokens: 0,
        ceiling_cost_nanos: Nanos::ZERO,
        cost_nanos: Nanos::ZERO,
        overrun_nanos: Nanos::ZERO,
        price_id: None,
        is_unpriced: false,
        queue_ms: 0,
        first_byte_ms: None,
        total_ms: 0,
        rehearsed: Vec::new(),
    }
}

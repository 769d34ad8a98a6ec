//! Words of the code in the reader's language: roles, priorities, endings, reasons. What programs read keeps the code's word.

use domain::jobs::JobStatus;
use domain::ledger::Outcome;
use domain::limits::{Class, Dimension};
use domain::people::Role;
use domain::periods::Period;
use domain::priority::Priority;
use domain::refusals::RefusalCode;
use domain::usage::UsageSource;

use crate::format;

/// What a person may do.
pub fn role(role: Role) -> &'static str {
    match role {
        Role::Operator => t!("operator"),
        Role::Auditor => t!("auditor"),
        Role::Manager => t!("manager"),
        Role::Member => t!("member"),
    }
}

/// How urgent a request is.
pub fn priority(priority: Priority) -> &'static str {
    match priority {
        Priority::Low => t!("low", in "priority"),
        Priority::Default => t!("default", in "priority"),
        Priority::High => t!("high", in "priority"),
        Priority::Critical => t!("critical", in "priority"),
    }
}

/// One of the nodes that a limit is for each of.
pub fn class(class: Class) -> &'static str {
    match class {
        Class::Tenant => t!("tenant"),
        Class::User => t!("user"),
        Class::EndUser => t!("end user"),
        Class::Key => t!("key"),
    }
}

/// What a limit counts.
pub fn dimension(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Requests => t!("requests"),
        Dimension::InputTokens => t!("input tokens"),
        Dimension::OutputTokens => t!("output tokens"),
        Dimension::TotalTokens => t!("total tokens"),
        Dimension::Concurrency => t!("concurrency"),
        Dimension::BudgetTokens => t!("budget tokens"),
        Dimension::BudgetCost => t!("budget cost"),
        Dimension::RequestInputTokens => t!("request input tokens"),
        Dimension::RequestOutputTokens => t!("request output tokens"),
        Dimension::RequestSeconds => t!("request seconds"),
    }
}

/// A span of the calendar.
pub fn period(period: Period) -> &'static str {
    match period {
        Period::Hour => t!("hour"),
        Period::Day => t!("day"),
        Period::Week => t!("week"),
        Period::Month => t!("month"),
    }
}

/// How a request ended.
pub fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Completed => t!("completed"),
        Outcome::UpstreamError => t!("upstream error"),
        Outcome::TimedOut => t!("timed out"),
        Outcome::ClientClosed => t!("client closed"),
        Outcome::GatewayError => t!("gateway error"),
        Outcome::Abandoned => t!("abandoned"),
    }
}

/// How far a job is.
pub fn job_status(job_status: JobStatus) -> &'static str {
    match job_status {
        JobStatus::Waiting => t!("waiting"),
        JobStatus::Running => t!("running"),
        JobStatus::Completed => t!("completed"),
        JobStatus::Failed => t!("failed"),
        JobStatus::Cancelled => t!("cancelled"),
        JobStatus::Expired => t!("expired"),
    }
}

/// Where figures of use come from.
pub fn usage_source(usage_source: UsageSource) -> &'static str {
    match usage_source {
        UsageSource::Reported => t!("reported", in "source of figures"),
        UsageSource::Estimated => t!("estimated", in "source of figures"),
        UsageSource::None => t!("none", in "source of figures"),
    }
}

/// Why a request was refused.
pub fn refusal(refusal: RefusalCode) -> &'static str {
    match refusal {
        RefusalCode::RateLimitExceeded => t!("rate limit exceeded"),
        RefusalCode::ConcurrencyLimitExceeded => t!("concurrency limit exceeded"),
        RefusalCode::PriorityGated => t!("priority gated"),
        RefusalCode::BudgetHeld => t!("budget held"),
        RefusalCode::BudgetExhausted => t!("budget exhausted"),
        RefusalCode::RequestTooLarge => t!("request too large"),
        RefusalCode::QueueFull => t!("queue full"),
        RefusalCode::QueueTimeout => t!("queue timeout"),
        RefusalCode::UpstreamUnavailable => t!("upstream unavailable"),
        RefusalCode::BudgetUnknown => t!("budget unknown"),
        RefusalCode::LedgerFull => t!("ledger full"),
        RefusalCode::Overloaded => t!("overloaded"),
        RefusalCode::InvalidKey => t!("invalid key"),
        RefusalCode::KeyUnverifiable => t!("key unverifiable"),
        RefusalCode::KeyExpired => t!("key expired"),
        RefusalCode::KeyRevoked => t!("key revoked"),
        RefusalCode::TenantSuspended => t!("tenant suspended"),
        RefusalCode::ModelNotAllowed => t!("model not allowed"),
        RefusalCode::ModelNotFound => t!("model not found"),
        RefusalCode::ModelUnpriced => t!("model unpriced"),
        RefusalCode::InvalidRequest => t!("invalid request"),
        RefusalCode::BodyTooLarge => t!("body too large"),
        RefusalCode::RouteNotFound => t!("route not found"),
        RefusalCode::UnmeteredRoute => t!("unmetered route"),
        RefusalCode::IdempotencyInProgress => t!("idempotency in progress"),
        RefusalCode::IdempotencyKeyReused => t!("idempotency key reused"),
        RefusalCode::IdempotencyAnswerLost => t!("idempotency answer lost"),
        RefusalCode::Replayed => t!("replayed"),
    }
}

/// Why a request was refused, by the word in the ledger; one of a later release stays as it is written there.
pub fn refusal_of(code: &str) -> String {
    match code.parse() {
        Ok(code) => refusal(code).to_owned(),
        Err(_) => format::words(code),
    }
}

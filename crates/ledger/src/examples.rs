//! Records for tests.

use chrono::{DateTime, Duration, Utc};
use domain::estimate::{Amounts, Estimate};
use domain::ids::{KeyId, RequestId, TenantId};
use domain::ledger::{HoldRecord, Identity, JournalRecord, Outcome, Rejection, Settlement};
use domain::money::Nanos;
use domain::policy::Dialect;
use domain::priority::Priority;
use domain::refusals::RefusalCode;
use domain::usage::UsageSource;
use uuid::Uuid;

/// The instant of example number 0; each further one is a second later.
pub(crate) fn at(number: u64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + Duration::days(20_000) + Duration::seconds(number as i64)
}

fn identity(number: u64) -> Identity {
    Identity {
        id: RequestId(Uuid::from_u128(u128::from(number) + 1)),
        tenant_id: TenantId(Uuid::from_u128(1)),
        user_id: Some(format!("user {}", number % 3)),
        key_id: KeyId(Uuid::from_u128(2)),
        model: Some("m".into()),
        dialect: Dialect::Openai,
        endpoint: "chat/completions".to_owned(),
        priority: Priority::Default,
        is_streamed: false,
        tags: [("project".to_owned(), "zażółć {\"\u{0}\n".to_owned())].into(),
        instance: "one".to_owned(),
        user_agent: None,
        job_id: None,
    }
}

pub(crate) fn hold(number: u64) -> JournalRecord {
    let amounts = |factor: u64| Amounts {
        input_tokens: 100 * factor,
        output_tokens: 50 * factor,
        cost: Nanos(1_000 * factor as i64),
    };
    JournalRecord::Hold(Box::new(HoldRecord {
        identity: identity(number),
        admitted_at: at(number),
        upstream_id: None,
        estimate: Estimate {
            expected: amounts(1),
            ceiling: amounts(2),
        },
        price_id: None,
        is_unpriced: false,
        queue_ms: 3,
    }))
}

/// The ending of hold `number`, ten seconds later.
pub(crate) fn settlement(number: u64) -> JournalRecord {
    let JournalRecord::Hold(hold) = hold(number) else {
        unreachable!("made as a hold");
    };
    JournalRecord::Settlement(Box::new(Settlement {
        outcome: Outcome::Completed,
        status: Some(200),
        usage_source: UsageSource::Reported,
        ..Settlement::abandoned(*hold, at(number + 10))
    }))
}

pub(crate) fn rejection(number: u64) -> JournalRecord {
    JournalRecord::Rejection(Box::new(Rejection {
        identity: identity(number),
        refused_at: at(number),
        code: RefusalCode::RateLimitExceeded,
        status: 429,
        scope: Some("tenant:00000000-0000-0000-0000-000000000001".parse().expect("a scope")),
        dimension: None,
        limit_id: None,
        limit_key: None,
        chain: Vec::new(),
        message: "too many requests, retry in 3 s".to_owned(),
        retry_after_seconds: Some(3),
        caller_retries: None,
        refusal_count: 1,
        early_count: 0,
        expected_input_tokens: 100,
        expected_output_tokens: 50,
        expected_cost_nanos: Nanos(1_000),
        queue_ms: 0,
    }))
}

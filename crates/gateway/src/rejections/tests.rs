//! Folding: every refusal is counted, in a row of its own or in one that says how many it stands for.

use chrono::{DateTime, Duration, Utc};
use domain::ids::{KeyId, RequestId, TenantId};
use domain::ledger::{Identity, Rejection};
use domain::money::Nanos;
use domain::policy::Dialect;
use domain::priority::Priority;
use domain::refusals::RefusalCode;
use proptest::prelude::*;
use uuid::Uuid;

use super::{ROWS_PER_MINUTE, Rejections};

fn rejection(key: u128, code: RefusalCode, refused_at: DateTime<Utc>) -> Rejection {
    Rejection {
        identity: Identity {
            id: RequestId(Uuid::nil()),
            tenant_id: TenantId(Uuid::nil()),
            user_id: None,
            key_id: KeyId(Uuid::from_u128(key)),
            model: None,
            dialect: Dialect::Openai,
            endpoint: "chat/completions".into(),
            priority: Priority::Default,
            is_streamed: false,
            tags: Default::default(),
            instance: "i".into(),
            user_agent: None,
        },
        refused_at,
        code,
        status: code.status(),
        scope: None,
        dimension: None,
        limit_id: None,
        limit_key: None,
        chain: Vec::new(),
        message: String::new(),
        retry_after_seconds: None,
        caller_retries: None,
        refusal_count: 1,
        expected_input_tokens: 0,
        expected_output_tokens: 0,
        expected_cost_nanos: Nanos::ZERO,
        queue_ms: 0,
    }
}

/// Rows that are still folded.
fn folded(rejections: &Rejections) -> i64 {
    rejections
        .streaks
        .lock()
        .values()
        .filter_map(|streak| streak.folded.as_ref())
        .map(|row| row.refusal_count)
        .sum()
}

#[test]
fn from_the_twenty_first_in_a_minute_on_they_share_a_row() {
    let rejections = Rejections::default();
    let at: DateTime<Utc> = "2026-11-30T10:00:00Z".parse().expect("an instant");
    let rows: usize = (0..50)
        .map(|_| rejections.count(rejection(1, RefusalCode::RateLimitExceeded, at)).len())
        .sum();
    assert_eq!(rows, ROWS_PER_MINUTE as usize);
    assert_eq!(folded(&rejections), 30);
    let due = rejections.count(rejection(1, RefusalCode::RateLimitExceeded, at + Duration::minutes(1)));
    assert_eq!(due.iter().map(|row| row.refusal_count).collect::<Vec<_>>(), [30, 1]);
}

proptest! {
    #[test]
    fn nothing_is_lost_whatever_is_refused_when(
        events in prop::collection::vec((0_u128..3, 0_usize..3, 0_i64..200), 0..400),
    ) {
        let rejections = Rejections::default();
        let start: DateTime<Utc> = "2026-11-30T10:00:00Z".parse().expect("an instant");
        let mut booked = 0;
        for (key, code, second) in &events {
            let at = start + Duration::seconds(*second);
            let rows = rejections.count(rejection(*key, RefusalCode::ALL[*code], at));
            booked += rows.iter().map(|row| row.refusal_count).sum::<i64>();
        }
        prop_assert_eq!(booked + folded(&rejections), events.len() as i64);
    }
}

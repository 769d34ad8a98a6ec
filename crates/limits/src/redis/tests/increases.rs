//! An increase ends by itself, at its instant, with the first request after it: in memory, in Redis, and without it.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{Duration, Utc};
use chrono_tz::Tz;
use domain::limits::{Dimension, Increase, Limit};
use domain::refusals::RefusalCode;
use proptest::prelude::*;
use test_redis::RedisServer;

use super::fixture::{Asking, Gateway, Servers, Signs, noon, patient, until};
use crate::fixture::{INSTANCE, amounts, limit, on, ready, tenant};
use crate::redis::TimeOf;
use crate::{BudgetKey, Limits, Now, Settings};

/// What a request holds, and spends.
const EACH: i64 = 1_000_000;
const PLACES: u64 = EACH.unsigned_abs();

fn increased(dimension: Dimension, value: u64, to: u64, until: chrono::DateTime<Utc>) -> Limit {
    Limit {
        increase: Some(Increase { value: to, until }),
        ..limit(dimension, value)
    }
}

fn later(now: Now, ms: i64) -> Now {
    Now {
        monotonic_ms: now.monotonic_ms + ms.unsigned_abs(),
        wall: now.wall + Duration::milliseconds(ms),
    }
}

async fn check(limits: Limits) {
    let what = limits.store_name();
    let before = noon();
    let end = later(before, 1);
    let asking = Asking::of(vec![on(
        tenant(1),
        vec![
            increased(Dimension::BudgetCost, PLACES, 3 * PLACES, end.wall),
            increased(Dimension::Requests, 2, 4, end.wall),
        ],
    )]);
    let key = BudgetKey::of(&asking.scopes[0], &asking.scopes[0].limits[0], before.wall, Tz::UTC);
    limits
        .begin_budgets(std::slice::from_ref(&key), || 0, INSTANCE, 1, Tz::UTC, before)
        .await;
    let marks = BTreeMap::from([(INSTANCE.to_owned(), 0)]);
    assert!(limits.set_budget(&key, 0, &marks, INSTANCE, Tz::UTC, before).await);

    let mut holds = Vec::new();
    for number in 0..3 {
        let hold = limits.admit(&asking.admission(), before).await;
        holds.push(hold.unwrap_or_else(|denial| panic!("{what} {number}: {denial:?}")));
    }
    let denied = limits
        .admit(&asking.admission(), before)
        .await
        .expect_err("three places");
    assert_eq!(denied.code, RefusalCode::BudgetHeld, "{what}");
    let chain = &denied.chain[0];
    assert_eq!(
        (chain.limit_value, chain.utilisation_percent),
        (3 * PLACES, 100.0),
        "{what}"
    );
    for (hold, seq) in holds.into_iter().zip(1..) {
        hold.settle(amounts(100, 100, EACH), Some(seq), before).await;
    }

    let denied = limits.admit(&asking.admission(), end).await.expect_err("it is over");
    assert_eq!(denied.code, RefusalCode::BudgetExhausted, "{what}");
    assert_eq!(
        (denied.chain[0].limit_value, denied.chain[1].limit_value),
        (PLACES, 2),
        "{what}"
    );
    let readings = limits.peek(&asking.scopes, None, None, Tz::UTC, end).await;
    assert_eq!(
        (
            readings[0].limit_value,
            readings[0].used,
            readings[0].utilisation_percent
        ),
        (PLACES, 3 * EACH, 300.0),
        "{what}: what was spent stays"
    );
    let (_, explained) = limits.explain(&asking.admission(), end).await;
    assert!(
        explained.answers.iter().all(|answer| answer.refusal.is_some()),
        "{what}: {explained:?}"
    );
}

#[tokio::test]
async fn an_increase_ends_with_the_first_request_after_it_in_memory_and_in_redis() {
    check(Limits::memory(Settings::default())).await;
    let servers = Servers::one().await;
    let signs = Signs::at(noon());
    check(servers.limits(INSTANCE, Settings::default(), &Arc::clone(&signs)).await).await;
}

#[tokio::test]
async fn what_is_set_aside_under_an_increase_is_not_spent_after_it() {
    let mut server = RedisServer::start().await;
    let end = later(noon(), 60_000);
    let budget = increased(Dimension::BudgetCost, 100 * PLACES, 1_000 * PLACES, end.wall);
    let asking = Asking::of(vec![on(tenant(1), vec![budget])]);
    let gateway = Gateway::start_by(&patient(server.url()), "one", TimeOf::Caller).await;
    assert!(gateway.read_budgets(&asking, 150 * EACH, &[]).await);
    let first = gateway.admitted(&asking).await;
    let key = &asking.budgets(gateway.now())[0];
    until("a part is set aside", async || {
        gateway.store().allowance(key, gateway.now()) > Some(0)
    })
    .await;
    server.kill();
    gateway.until_degraded().await;
    let second = gateway.admitted(&asking).await;

    gateway.signs.pass_to(end);
    let denied = gateway
        .admit(&asking)
        .await
        .expect_err("more is spent than the budget is now");
    assert_eq!(denied.code, RefusalCode::BudgetExhausted);
    drop((first, second));
}

proptest! {
    #[test]
    fn a_limit_is_what_its_increase_says_strictly_before_its_end(
        value in 0_u64..1_000,
        more in 1_u64..1_000,
        offset_ms in -5_000_i64..5_000,
        dimension in prop::sample::select(&Dimension::ALL[..7]),
    ) {
        let end = noon().wall;
        let limits = Limits::memory(Settings::default());
        let node = on(tenant(1), vec![increased(dimension, value, value + more, end)]);
        let now = Now {
            wall: end + Duration::milliseconds(offset_ms),
            ..noon()
        };
        let readings = ready(limits.peek(&[node], None, None, Tz::UTC, now));
        let in_force = if offset_ms < 0 { value + more } else { value };
        prop_assert_eq!(readings[0].limit_value, in_force);
        prop_assert_eq!(readings[0].remaining, in_force);
    }
}

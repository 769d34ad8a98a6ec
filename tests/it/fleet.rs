//! Several gateways on one Redis and one Postgres: what one of them admits counts for all, and so does what is changed.

use std::time::Duration;

use control::limits::{LimitDraft, NodeLimits};
use domain::budget_events::Thresholds;
use domain::limits::{DEFAULT_WINDOW_SECONDS, Dimension, Mode, Scope, Target};
use domain::periods::Period;
use limits::RedisSettings;
use serde_json::{Value, json};
use test_redis::RedisServer;
use test_support::fleet::{Fleet, count_of, flood, until_within};
use test_support::tollgate::{CHAT_PATH, Options, chat_body};
use tokio::time::Instant;

/// Between two requests of light traffic.
const PAUSE: Duration = Duration::from_millis(20);
/// How soon a change is in force everywhere.
const SPREAD: Duration = Duration::from_secs(3);

/// Counters in this Redis. The time-out is no part of these tests: a busy machine must not make gateways do without Redis.
pub(crate) fn shared(url: String) -> Options {
    Options {
        redis: Some(RedisSettings {
            connect_timeout_ms: 5_000,
            command_timeout_ms: 5_000,
            ..RedisSettings::new(url)
        }),
        ..Options::default()
    }
}

/// A request that asks for `tokens` and gets as many.
pub(crate) fn asks_for(tokens: u64) -> Value {
    let mut body = chat_body(&format!("Hello. [[sim: tokens={tokens}]]"));
    body["max_tokens"] = json!(tokens);
    body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_gateways_admit_together_what_a_window_allows_and_no_more() {
    let redis = RedisServer::start().await;
    let fleet = Fleet::start(3, shared(redis.url())).await;
    let limits = NodeLimits {
        requests_per_minute: Some(600),
        ..NodeLimits::default()
    };
    let (tenant, key) = fleet.tenant_with_key(limits).await;
    let answers = flood(&fleet.browsers(), &key, 900, &asks_for(5)).await;
    assert_eq!((count_of(&answers, 200), count_of(&answers, 429)), (600, 300));
    for refused in answers.iter().filter(|answer| answer.status == 429) {
        let wait: u64 = refused.header("retry-after").parse().expect("whole seconds");
        assert!((1..=90).contains(&wait), "{wait}");
        assert_eq!(refused.code(), "rate_limit_exceeded");
    }
    let booked = fleet.booked(tenant).await;
    assert_eq!((booked.ran, booked.refused), (600, 300));
    for place in 0..3 {
        let reading = fleet.reading(place, &Scope::Tenant(tenant), Dimension::Requests).await;
        assert_eq!((reading.used, reading.remaining), (600, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_gateways_pour_from_one_bucket_of_tokens() {
    let redis = RedisServer::start().await;
    let fleet = Fleet::start(3, shared(redis.url())).await;
    let limits = NodeLimits {
        total_tokens_per_minute: Some(100_000),
        ..NodeLimits::default()
    };
    let (burst, a_second) = (100_000 * 5 / 60, 100_000.0 / 60.0);
    let (tenant, key) = fleet.tenant_with_key(limits).await;
    let begun = Instant::now();
    let answers = flood(&fleet.browsers(), &key, 300, &asks_for(500)).await;
    let seconds = begun.elapsed().as_secs_f64();
    let booked = fleet.booked(tenant).await;
    let one_request = booked.tokens / booked.ran;
    let most = burst + (seconds * a_second) as i64 + one_request;
    assert!(booked.tokens <= most, "{} of {most} tokens", booked.tokens);
    assert!(booked.tokens >= burst - one_request, "{} tokens", booked.tokens);
    assert_eq!(booked.ran as usize, count_of(&answers, 200));
    assert_eq!(booked.refused as usize, count_of(&answers, 429));
}

#[tokio::test]
async fn a_new_budget_is_in_force_everywhere_and_counts_what_was_spent_before() {
    let redis = RedisServer::start().await;
    let fleet = Fleet::start(3, shared(redis.url())).await;
    let (tenant, key) = fleet.tenant_with_key(NodeLimits::default()).await;
    let browsers = fleet.browsers();
    let body = asks_for(100);
    // A part of it is on its way to Postgres when the budget is made, and a part is still running.
    assert_eq!(count_of(&flood(&browsers, &key, 27, &body).await, 200), 27);
    fleet.first.simulator.hold();
    let running = tokio::spawn({
        let (browsers, key, body) = (browsers.clone(), key.clone(), body.clone());
        async move { flood(&browsers, &key, 9, &body).await }
    });
    fleet.first.simulator.wait_parked(9).await;

    let budget = LimitDraft {
        dimension: Dimension::BudgetTokens,
        value: 10_000,
        window_seconds: DEFAULT_WINDOW_SECONDS,
        burst: None,
        period: Period::Month,
        model: None,
        priority: None,
        mode: Mode::Enforce,
        gates: None,
        thresholds: Thresholds::default(),
    };
    let scope = Scope::Tenant(tenant);
    fleet
        .first
        .control()
        .set_limit(
            &fleet.first.actor(),
            &Target::Node(scope.clone()),
            0,
            &budget,
            chrono::Utc::now(),
        )
        .await
        .expect("a budget");
    for place in 0..3 {
        until_within(SPREAD, "the budget counts here", async || {
            let readings = fleet.readings(place, &scope).await;
            readings.iter().any(|reading| reading.is_known)
        })
        .await;
        let reading = fleet.reading(place, &scope, Dimension::BudgetTokens).await;
        assert!(reading.used >= 27 * 100, "{reading:?}");
        assert!(reading.held >= 9 * 100, "{reading:?}");
    }
    fleet.first.simulator.release_all();
    assert_eq!(count_of(&running.await.expect("it ends"), 200), 9);
    let before = fleet.booked(tenant).await;
    let reading = fleet.reading(1, &scope, Dimension::BudgetTokens).await;
    assert_eq!((reading.used, reading.held), (before.tokens, 0));

    // It is spent to the last request and not beyond.
    flood(&browsers, &key, 200, &body).await;
    let booked = fleet.booked(tenant).await;
    assert!(booked.tokens <= 10_000, "{booked:?}");
    assert!(booked.tokens >= 9_000, "{booked:?}");
}

#[tokio::test]
async fn a_key_that_is_revoked_is_refused_everywhere() {
    let redis = RedisServer::start().await;
    let fleet = Fleet::start(3, shared(redis.url())).await;
    let tenant = fleet.first.tenant("Tenant", NodeLimits::default()).await;
    let issued = fleet.first.issue(tenant).await;
    let key = issued.text.reveal().to_owned();
    let browsers = fleet.browsers();
    for (status, code) in [(200, ""), (403, "key_revoked")] {
        for browser in &browsers {
            until_within(SPREAD, "the change is in force", async || {
                let answer = browser.post_json(CHAT_PATH, &key, &asks_for(5)).await;
                answer.status == status && (status == 200 || answer.code() == code)
            })
            .await;
        }
        if status == 200 {
            fleet
                .first
                .control()
                .revoke_key(&fleet.first.actor(), issued.row.id, chrono::Utc::now())
                .await
                .expect("revoked");
        }
    }
}

#[tokio::test]
async fn a_gateway_that_is_started_again_disturbs_no_other_and_forgets_nothing() {
    let redis = RedisServer::start().await;
    let mut fleet = Fleet::start(3, shared(redis.url())).await;
    let limits = NodeLimits {
        requests_per_minute: Some(40),
        monthly_tokens: Some(1_000_000),
        ..NodeLimits::default()
    };
    let (tenant, key) = fleet.tenant_with_key(limits).await;
    let body = asks_for(10);
    assert_eq!(count_of(&flood(&fleet.browsers(), &key, 18, &body).await, 200), 18);

    let last = fleet.others.pop().expect("three gateways");
    let restarted = tokio::spawn(last.restart());
    let browsers = fleet.browsers();
    let mut sent = 18;
    while !restarted.is_finished() {
        let answers = flood(&browsers, &key, 1, &body).await;
        sent += 1;
        let wanted = if sent <= 40 { 200 } else { 429 };
        assert_eq!(answers[0].status, wanted, "request {sent}: {}", answers[0].text());
        tokio::time::sleep(PAUSE).await;
    }
    let last = restarted.await.expect("it starts again");
    fleet.others.push(last);
    fleet.in_step().await;
    let left = 40_usize.saturating_sub(sent);
    let answers = flood(&fleet.browsers()[2..], &key, left + 5, &body).await;
    assert_eq!(count_of(&answers, 200), left, "it counts with the others");
    let booked = fleet.booked(tenant).await;
    assert_eq!(booked.ran, 40);
    fleet.agrees(tenant, &booked).await;
}

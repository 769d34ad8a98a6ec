//! What is admitted, and that nothing more is.

use control::limits::NodeLimits;
use domain::money::Nanos;
use futures_util::future::join_all;
use sqlx::Row as _;
use test_support::tollgate::Tollgate;

/// The ceiling that one request with this text holds, in nano-units: read off a row.
async fn ceiling_of(tollgate: &Tollgate, text: &str) -> i64 {
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    assert_eq!(tollgate.chat(&key, text).await.status, 200);
    tollgate.shipped().await;
    sqlx::query("select ceiling_cost_nanos from settlements")
        .fetch_one(&mut tollgate.sql().await)
        .await
        .expect("one row")
        .get(0)
}

#[tokio::test]
async fn fifty_calls_at_once_against_a_budget_for_ten_admit_exactly_ten() {
    let tollgate = Tollgate::start().await;
    let text = "Say something. [[sim: tokens=20]]";
    let ceiling = ceiling_of(&tollgate, text).await;
    let budget = NodeLimits {
        monthly_cost: Some(Nanos(ceiling * 10)),
        ..NodeLimits::default()
    };
    let tenant = tollgate.tenant("Small budget", budget).await;
    let key = tollgate.issue(tenant).await.text.reveal().to_owned();
    tollgate.in_force().await;

    tollgate.simulator.hold();
    let before = tollgate.simulator.stats().requests_received;
    let calls = join_all((0..50).map(|_| tollgate.chat(&key, text)));
    let release = async {
        tollgate.simulator.wait_parked(10).await;
        // The other forty are answered while ten are parked; only then may these go on.
        while tollgate.running.gateway.in_flight() > 10 {
            tokio::task::yield_now().await;
        }
        tollgate.simulator.release_all();
    };
    let (answers, ()) = tokio::join!(calls, release);
    let admitted = answers.iter().filter(|answer| answer.status == 200).count();
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert_eq!((admitted, refused.len()), (10, 40));
    for answer in refused {
        assert_eq!(answer.code(), "budget_held");
        assert!(
            answer
                .header("retry-after")
                .parse::<u64>()
                .is_ok_and(|seconds| seconds >= 1)
        );
    }
    assert_eq!(tollgate.simulator.stats().requests_received - before, 10);

    tollgate.shipped().await;
    assert_eq!(tollgate.running.gateway.open_holds(), 0);
    let row = sqlx::query(
        "select (select count(*) from settlements where tenant_id = $1) as ran,
                (select sum(refusal_count)::bigint from rejections where tenant_id = $1) as refused,
                (select sum(cost_nanos)::bigint from settlements where tenant_id = $1) as cost",
    )
    .bind(tenant.0)
    .fetch_one(&mut tollgate.sql().await)
    .await
    .expect("counts");
    assert_eq!((row.get::<i64, _>("ran"), row.get::<i64, _>("refused")), (10, 40));
    assert!(row.get::<i64, _>("cost") <= ceiling * 10);
    // What was held beyond the use is free again.
    assert_eq!(tollgate.chat(&key, text).await.status, 200);
}

#[tokio::test]
async fn a_window_of_ten_requests_admits_ten() {
    let tollgate = Tollgate::start().await;
    let limits = NodeLimits {
        requests_per_minute: Some(10),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.tenant_with_key(limits).await;
    let answers = join_all((0..30).map(|_| tollgate.chat(&key, "Hello."))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 10);
    let refused = answers.iter().find(|answer| answer.status == 429).expect("a refusal");
    assert_eq!(refused.code(), "rate_limit_exceeded");
    assert!(
        refused.header("x-ratelimit-reason").ends_with(" requests"),
        "{:?}",
        refused.headers
    );
    assert_eq!(refused.header("x-ratelimit-limit-requests"), "10");
    assert_eq!(refused.header("x-ratelimit-remaining-requests"), "0");
    assert!(
        refused.json()["error"]["retry_after"]
            .as_u64()
            .is_some_and(|seconds| seconds >= 1)
    );
}

#[tokio::test]
async fn a_spent_budget_refuses_until_its_period_ends_and_opens_at_the_first_request_after() {
    let tollgate = Tollgate::start().await;
    let limits = NodeLimits {
        monthly_tokens: Some(0),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.tenant_with_key(limits).await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.code(), "budget_exhausted");

    let limits = NodeLimits {
        monthly_tokens: Some(700),
        ..NodeLimits::default()
    };
    let tenant = tollgate.tenant("Monthly", limits).await;
    let key = tollgate.issue(tenant).await.text.reveal().to_owned();
    tollgate.in_force().await;
    assert_eq!(tollgate.chat(&key, "Hello. [[sim: tokens=400]]").await.status, 200);
    let refused = tollgate.chat(&key, "Hello. [[sim: tokens=400]]").await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (429, "budget_exhausted")
    );

    let zone = tollgate.running.gateway.policy().expect("a policy").settings.time_zone;
    let next = domain::periods::Period::Month.span(tollgate.clock.wall(), zone).end;
    tollgate.clock.set(next);
    assert_eq!(tollgate.chat(&key, "Hello. [[sim: tokens=400]]").await.status, 200);
}

#[tokio::test]
async fn a_restart_remembers_what_a_budget_has_spent() {
    let tollgate = Tollgate::start().await;
    let limits = NodeLimits {
        monthly_tokens: Some(700),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.tenant_with_key(limits).await;
    assert_eq!(tollgate.chat(&key, "Hello. [[sim: tokens=400]]").await.status, 200);
    let tollgate = tollgate.restart().await;
    assert_eq!(
        tollgate.chat(&key, "Hello. [[sim: tokens=400]]").await.code(),
        "budget_exhausted"
    );
}

#[tokio::test]
async fn a_request_above_its_cap_is_too_large_and_not_asked_to_retry() {
    let tollgate = Tollgate::start().await;
    let limits = NodeLimits {
        request_input_tokens: Some(20),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.tenant_with_key(limits).await;
    let refused = tollgate.chat(&key, &"words and words ".repeat(100)).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (413, "request_too_large")
    );
    assert_eq!(refused.header("retry-after"), "");
}

#[tokio::test]
async fn headers_on_successes_tell_what_is_left() {
    let tollgate = Tollgate::start().await;
    let limits = NodeLimits {
        requests_per_minute: Some(10),
        total_tokens_per_minute: Some(100_000),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.tenant_with_key(limits).await;
    let answer = tollgate.chat(&key, "Hello.").await;
    assert_eq!(answer.header("x-ratelimit-limit-requests"), "10");
    assert_eq!(answer.header("x-ratelimit-remaining-requests"), "9");
    assert_eq!(answer.header("x-ratelimit-limit-tokens"), "100000");
    assert!(!answer.header("x-tollgate-request-id").is_empty());
}

//! What is admitted, and that nothing more is.

use control::limits::NodeLimits;
use control::tenants::TenantDraft;
use domain::money::Nanos;
use futures_util::future::join_all;
use serde_json::json;
use sqlx::Row as _;
use test_support::tollgate::{Tollgate, chat_body};

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
async fn a_cap_on_the_output_of_a_request_holds_what_is_asked_for() {
    let tollgate = Tollgate::start().await;
    let limits = NodeLimits {
        request_output_tokens: Some(100),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.tenant_with_key(limits).await;
    for (asked, status) in [(None, 413), (Some(101), 413), (Some(100), 200)] {
        let mut body = chat_body("Hello. [[sim: tokens=300]]");
        body["max_tokens"] = json!(asked);
        let answer = tollgate.browser().post_json("/v1/chat/completions", &key, &body).await;
        assert_eq!(answer.status.as_u16(), status, "{asked:?}: {}", answer.text());
        if status == 413 {
            assert_eq!(answer.code(), "request_too_large");
        } else {
            assert_eq!(answer.json()["usage"]["completion_tokens"], 100);
        }
    }
}

#[tokio::test]
async fn a_strict_tenants_cap_reaches_the_provider_whatever_the_caller_states() {
    let tollgate = Tollgate::start().await;
    let draft = TenantDraft {
        name: "Strict".into(),
        plan_id: None,
        priority_ceiling: None,
        has_strict_budgets: true,
        limits: NodeLimits::default(),
    };
    let tenant = tollgate
        .control()
        .create_tenant(&tollgate.actor(), &draft, chrono::Utc::now())
        .await
        .expect("a tenant");
    let key = tollgate.issue(tenant).await.text.reveal().to_owned();
    tollgate.in_force().await;
    // The model's own cap is 4,096, its default 500.
    for (field, stated, generated) in [
        ("max_tokens", Some(100_000), 4_096),
        ("max_completion_tokens", Some(100_000), 4_096),
        ("max_tokens", Some(40), 40),
        ("max_tokens", None, 500),
    ] {
        let mut body = chat_body("Hello. [[sim: tokens=6000]]");
        body[field] = json!(stated);
        let answer = tollgate.browser().post_json("/v1/chat/completions", &key, &body).await;
        assert_eq!(
            answer.json()["usage"]["completion_tokens"],
            generated,
            "{field} {stated:?}"
        );
    }
    tollgate.shipped().await;
    let overruns: i64 = sqlx::query("select count(*) from settlements where output_tokens > ceiling_output_tokens")
        .fetch_one(&mut tollgate.sql().await)
        .await
        .expect("a count")
        .get(0);
    assert_eq!(overruns, 0);
}

#[tokio::test]
async fn an_end_user_named_like_a_person_is_counted_for_itself() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let person = uuid::Uuid::now_v7().to_string();
    for (named, counted_as) in [
        (person.clone(), format!("end-user:{person}")),
        ("somebody".into(), "somebody".into()),
    ] {
        let mut body = chat_body("Hello.");
        body["user"] = json!(named);
        let answer = tollgate.browser().post_json("/v1/chat/completions", &key, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        tollgate.shipped().await;
        let user: String = sqlx::query(
            "select user_id from settlements where tenant_id = $1 order by settled_at desc, id desc limit 1",
        )
        .bind(tenant.0)
        .fetch_one(&mut tollgate.sql().await)
        .await
        .expect("a row")
        .get(0);
        assert_eq!(user, counted_as);
    }
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

//! What callers are told when there is no room: codes, statuses, headers and words, each refusal of the table in turn.

use control::limits::{LimitDraft, NodeLimits};
use domain::limits::{Dimension, Gates, Scope, Target};
use domain::money::Nanos;
use domain::priority::Priority;
use test_support::http::Answer;
use test_support::tollgate::{MODEL, Tollgate, limit};

/// What a refusal has to say.
struct Told<'a> {
    code: &'a str,
    status: u16,
    /// How its scope begins, and its dimension; none where no limit refused.
    place: Option<(&'a str, &'a str)>,
    /// How its message begins.
    message: &'a str,
    /// Whether the same request may succeed later.
    is_retryable: bool,
}

fn check(answer: &Answer, told: &Told<'_>) {
    let error = &answer.json()["error"];
    let got = (answer.status.as_u16(), answer.code());
    assert_eq!(got, (told.status, told.code.to_owned()), "{error}");
    let message = error["message"].as_str().expect("a message");
    assert!(message.starts_with(told.message), "{message}");
    let retry_after = answer.header("retry-after").parse::<u64>().ok();
    assert_eq!(retry_after.is_some(), told.is_retryable, "{error}");
    assert_eq!(error["retry_after"].as_u64(), retry_after, "body and header agree");
    if let Some(seconds) = retry_after {
        assert!(seconds >= 1);
        let says_when = message.contains(&format!("Retry in {seconds} s")) || told.status == 503;
        assert!(says_when, "{message}");
    }
    let reason = answer.header("x-ratelimit-reason");
    match told.place {
        None => assert_eq!((reason, &error["scope"]), ("", &serde_json::Value::Null)),
        Some((scope, dimension)) => {
            let named = error["scope"].as_str().expect("a scope");
            assert!(named.starts_with(scope), "{named}");
            assert_eq!(reason, format!("{named} {dimension}"));
        }
    }
    assert_eq!(answer.header("x-ratelimit-queue-depth"), "0");
}

#[tokio::test]
async fn a_limit_of_ones_own_says_so_and_a_shared_one_says_that_the_service_is_busy() {
    let tollgate = Tollgate::start().await;
    let own = NodeLimits {
        requests_per_minute: Some(1),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.named_tenant_with_key("Own rate", own).await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
    let told = Told {
        code: "rate_limit_exceeded",
        status: 429,
        place: Some(("tenant:", "requests")),
        message: "Too many requests: your tenant allows 1 requests per window. Retry in ",
        is_retryable: true,
    };
    check(&tollgate.chat(&key, "Hello.").await, &told);

    let own = NodeLimits {
        concurrency: Some(1),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.named_tenant_with_key("Own places", own).await;
    let parked = tollgate.park(&key).await;
    let told = Told {
        code: "concurrency_limit_exceeded",
        status: 429,
        place: Some(("tenant:", "concurrency")),
        message: "Too many requests at once: your tenant allows 1 in flight. Retry in 1 s.",
        is_retryable: true,
    };
    check(&tollgate.chat(&key, "Hello.").await, &told);

    tollgate
        .set_limit(
            Target::Node(Scope::Model(MODEL.into())),
            0,
            &limit(Dimension::Concurrency, 1),
        )
        .await;
    let (_, key) = tollgate.named_tenant_with_key("Busy", NodeLimits::default()).await;
    let told = Told {
        code: "concurrency_limit_exceeded",
        status: 429,
        place: Some(("model:", "concurrency")),
        message: "The service is busy. Retry in 1 s.",
        is_retryable: true,
    };
    // Whoever was in flight when the limit came does not count in it: the next one takes the place.
    let second = tollgate.chat_beside(&key);
    tollgate.simulator.wait_parked(2).await;
    check(&tollgate.chat(&key, "Hello.").await, &told);
    tollgate.simulator.release_all();
    for answer in [parked, second] {
        assert_eq!(answer.await.expect("an answer").status, 200);
    }
}

#[tokio::test]
async fn the_account_at_a_provider_is_named_without_its_id() {
    let tollgate = Tollgate::start().await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let policy = tollgate.running.gateway.policy().expect("a policy");
    let route = policy.find_model(MODEL).expect("the model").model.routes[0].upstream_id;
    tollgate
        .set_limit(Target::Node(Scope::Upstream(route)), 0, &limit(Dimension::Requests, 1))
        .await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
    let refused = tollgate.chat(&key, "Hello.").await;
    let told = Told {
        code: "rate_limit_exceeded",
        status: 429,
        place: Some(("upstream", "requests")),
        message: "The service is busy. Retry in ",
        is_retryable: true,
    };
    check(&refused, &told);
    assert_eq!(refused.json()["error"]["scope"], "upstream");
}

#[tokio::test]
async fn gates_hold_back_who_is_below_them() {
    let tollgate = Tollgate::start().await;
    let gated = LimitDraft {
        gates: Some(Gates {
            lower_percent: 10,
            upper_percent: 30,
            upper_waits: false,
        }),
        ..limit(Dimension::Requests, 10)
    };
    tollgate.set_limit(Target::Node(Scope::Global), 0, &gated).await;
    let tenant = tollgate.tenant("Tenant", NodeLimits::default()).await;
    let low = tollgate.key_at(tenant, Priority::Low).await;
    let ordinary = tollgate.key_at(tenant, Priority::Default).await;
    let high = tollgate.key_at(tenant, Priority::High).await;
    let told = Told {
        code: "priority_gated",
        status: 429,
        place: Some(("global", "requests")),
        message: "The service is busy. Retry in ",
        is_retryable: true,
    };
    assert_eq!(tollgate.chat(&low, "Hello.").await.status, 200);
    check(&tollgate.chat(&low, "Hello.").await, &told);
    for _ in 0..2 {
        assert_eq!(tollgate.chat(&ordinary, "Hello.").await.status, 200);
    }
    check(&tollgate.chat(&ordinary, "Hello.").await, &told);
    assert_eq!(tollgate.chat(&high, "Hello.").await.status, 200);
}

#[tokio::test]
async fn a_budget_says_whether_it_is_spent_or_held_and_a_request_whether_it_is_too_large() {
    let tollgate = Tollgate::start().await;
    let spent = NodeLimits {
        monthly_cost: Some(Nanos(0)),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.named_tenant_with_key("Spent", spent).await;
    let refused = tollgate.chat(&key, "Hello.").await;
    let told = Told {
        code: "budget_exhausted",
        status: 429,
        place: Some(("tenant:", "budget_cost")),
        message: "The budget of your tenant is spent for this period. Retry in ",
        is_retryable: true,
    };
    check(&refused, &told);
    assert_eq!(refused.json()["error"]["type"], "insufficient_quota");

    // Enough for one request at its ceiling.
    let held = NodeLimits {
        monthly_tokens: Some(900),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.named_tenant_with_key("Held", held).await;
    let parked = tollgate.park(&key).await;
    let told = Told {
        code: "budget_held",
        status: 429,
        place: Some(("tenant:", "budget_tokens")),
        message: "The rest of the budget of your tenant is held by requests that are still running. Retry in ",
        is_retryable: true,
    };
    check(&tollgate.chat(&key, "Hello.").await, &told);
    tollgate.simulator.release_all();
    assert_eq!(parked.await.expect("an answer").status, 200);

    let small = NodeLimits {
        request_input_tokens: Some(1),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.named_tenant_with_key("Small", small).await;
    let told = Told {
        code: "request_too_large",
        status: 413,
        place: Some(("tenant:", "request_input_tokens")),
        message: "This request is too large: your tenant allows 1 input tokens per request.",
        is_retryable: false,
    };
    check(&tollgate.chat(&key, "Hello.").await, &told);
}

#[tokio::test]
async fn successes_say_how_much_is_left_and_how_busy_the_gateway_is() {
    let tollgate = Tollgate::start().await;
    let limits = NodeLimits {
        requests_per_minute: Some(10),
        total_tokens_per_minute: Some(1_000_000),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.tenant_with_key(limits).await;
    let answer = tollgate.chat(&key, "Hello.").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("x-ratelimit-limit-requests"), "10");
    assert_eq!(answer.header("x-ratelimit-remaining-requests"), "9");
    assert!(!answer.header("x-ratelimit-reset-requests").is_empty());
    assert_eq!(answer.header("x-ratelimit-limit-tokens"), "1000000");
    assert!(!answer.header("x-ratelimit-remaining-tokens").is_empty());
    assert_eq!(answer.header("x-ratelimit-queue-depth"), "0");
    for absent in [
        "retry-after",
        "x-backpressure",
        "x-ratelimit-reason",
        "x-ratelimit-mode",
    ] {
        assert_eq!(answer.header(absent), "", "{absent}");
    }
    let stream = tollgate.chat_stream(&key, "Hello.").await;
    assert_eq!(stream.headers["x-ratelimit-remaining-requests"], "8");
    assert_eq!(stream.headers["x-ratelimit-queue-depth"], "0");
    stream.rest().await;
}

//! However a request ends: one row, the right charge, and every hold back to zero.

use std::sync::Arc;

use control::limits::NodeLimits;
use domain::ids::TenantId;
use gateway::Step;
use serde_json::json;
use sqlx::Row as _;
use test_support::tollgate::{MODEL, Options, Tollgate, chat_body};

/// The one row a tenant's request has left.
#[derive(Debug, sqlx::FromRow)]
struct Ended {
    outcome: String,
    usage_source: String,
    output_tokens: i64,
    cost_nanos: i64,
    status: Option<i16>,
}

/// Waits until the request has ended; its row must be the only one, and nothing may be held.
async fn only_row(tollgate: &Tollgate, tenant: TenantId) -> Ended {
    tollgate.shipped().await;
    assert_eq!(tollgate.running.gateway.open_holds(), 0, "a hold is left");
    let mut sql = tollgate.sql().await;
    let mut rows: Vec<Ended> = sqlx::query_as(
        "select outcome, usage_source, output_tokens, cost_nanos, status from settlements where tenant_id = $1",
    )
    .bind(tenant.0)
    .fetch_all(&mut sql)
    .await
    .expect("rows");
    let refused: i64 = sqlx::query("select count(*) from rejections where tenant_id = $1")
        .bind(tenant.0)
        .fetch_one(&mut sql)
        .await
        .expect("a count")
        .get(0);
    assert_eq!((rows.len(), refused), (1, 0), "{rows:?}");
    rows.remove(0)
}

/// One slot in flight: whatever is not given back shows at the next request.
fn one_slot() -> NodeLimits {
    NodeLimits {
        concurrency: Some(1),
        monthly_tokens: Some(1_000_000),
        ..NodeLimits::default()
    }
}

#[tokio::test]
async fn a_completed_call_is_charged_what_the_provider_reported() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(one_slot()).await;
    let answer = tollgate.chat(&key, "Hello. [[sim: tokens=25]]").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let usage = &answer.json()["usage"];
    let (input, output) = (usage["prompt_tokens"].as_i64(), usage["completion_tokens"].as_i64());
    let row = only_row(&tollgate, tenant).await;
    assert_eq!(
        (row.outcome.as_str(), row.usage_source.as_str()),
        ("completed", "reported")
    );
    assert_eq!(Some(row.output_tokens), output);
    // 1 and 2 units per million tokens.
    assert_eq!(
        Some(row.cost_nanos),
        input.zip(output).map(|(input, output)| input * 1_000 + output * 2_000)
    );
    let stats = tollgate.simulator.stats();
    assert_eq!(Some(stats.completion_tokens_sent as i64), output);
}

#[tokio::test]
async fn a_stream_is_charged_by_its_usage_which_callers_who_did_not_ask_do_not_see() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(one_slot()).await;
    let text = tollgate
        .chat_stream(&key, "Hello. [[sim: tokens=25]]")
        .await
        .rest()
        .await;
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    assert!(!text.contains("usage"), "{text}");
    let row = only_row(&tollgate, tenant).await;
    assert_eq!(
        (row.outcome.as_str(), row.usage_source.as_str(), row.output_tokens),
        ("completed", "reported", 25)
    );
}

#[tokio::test]
async fn a_caller_who_asks_for_usage_gets_it() {
    let tollgate = Tollgate::start().await;
    let (_, key) = tollgate.tenant_with_key(one_slot()).await;
    let mut body = chat_body("Hello. [[sim: tokens=25]]");
    body["stream"] = json!(true);
    body["stream_options"] = json!({ "include_usage": true });
    let text = tollgate
        .browser()
        .stream_json("/v1/chat/completions", &key, &body)
        .await
        .rest()
        .await;
    assert!(text.contains("\"completion_tokens\":25"), "{text}");
}

#[tokio::test]
async fn what_passes_through_is_what_the_provider_sent() {
    let tollgate = Tollgate::start().await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let mut body = chat_body("你好 🌍 [[sim: tokens=60]]");
    body["stream"] = json!(true);
    body["stream_options"] = json!({ "include_usage": true });
    let through = tollgate
        .browser()
        .stream_json("/v1/chat/completions", &key, &body)
        .await
        .rest()
        .await;
    let provider = test_support::http::Browser::new(tollgate.simulator.base_url().trim_end_matches("/v1"));
    let straight = provider
        .stream_json("/v1/chat/completions", test_support::tollgate::CREDENTIAL, &body)
        .await
        .rest()
        .await;
    // Ids and times differ from answer to answer.
    let words = |text: &str| -> Vec<String> {
        text.lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line.strip_prefix("data: ")?).ok())
            .map(|chunk| format!("{}{}", chunk["choices"], chunk["usage"]))
            .collect()
    };
    assert!(!words(&through).is_empty());
    assert_eq!(words(&through), words(&straight));
}

#[tokio::test]
async fn a_stream_without_usage_is_estimated_and_says_so() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(one_slot()).await;
    tollgate
        .chat_stream(&key, "Hello. [[sim: tokens=25 no-usage]]")
        .await
        .rest()
        .await;
    let row = only_row(&tollgate, tenant).await;
    assert_eq!(
        (row.outcome.as_str(), row.usage_source.as_str()),
        ("completed", "estimated")
    );
    assert!(row.output_tokens >= 25 && row.cost_nanos > 0, "{row:?}");
}

#[tokio::test]
async fn a_caller_that_leaves_mid_stream_is_charged_what_was_generated() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(one_slot()).await;
    let mut stream = tollgate
        .chat_stream(&key, "Hello. [[sim: tokens=50 hold-after-chunks=5]]")
        .await;
    assert!(stream.next().await.is_some());
    tollgate.simulator.wait_parked(1).await;
    drop(stream);
    tollgate.simulator.release_all();
    let row = only_row(&tollgate, tenant).await;
    assert_eq!(row.outcome, "client_closed");
    assert_eq!(
        (row.usage_source.as_str(), row.output_tokens),
        ("reported", 50),
        "the stream is drained to its usage"
    );
    assert_eq!(tollgate.chat(&key, "Next.").await.status, 200);
}

#[tokio::test]
async fn a_caller_that_leaves_before_the_first_byte_leaves_one_row() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(one_slot()).await;
    tollgate.simulator.hold();
    {
        let call = tollgate.chat(&key, "Hello. [[sim: tokens=30]]");
        tokio::select! {
            _ = call => panic!("the provider holds it"),
            () = tollgate.simulator.wait_parked(1) => {}
        }
    }
    tollgate.simulator.release_all();
    let row = only_row(&tollgate, tenant).await;
    assert_eq!(
        (row.outcome.as_str(), row.output_tokens, row.status),
        ("client_closed", 30, None)
    );
    assert_eq!(tollgate.chat(&key, "Next.").await.status, 200);
}

#[tokio::test]
async fn a_provider_error_is_passed_on_and_costs_nothing() {
    for (orders, status, code) in [
        ("status=500", 500, "upstream_error"),
        ("status=429 retry-after=7", 429, "rate_limit_exceeded"),
        ("status=400", 400, ""),
    ] {
        let tollgate = Tollgate::start().await;
        let (tenant, key) = tollgate.tenant_with_key(one_slot()).await;
        let answer = tollgate.chat(&key, &format!("Hello. [[sim: {orders}]]")).await;
        assert_eq!(answer.status.as_u16(), status, "{}", answer.text());
        if status == 429 {
            assert_eq!(answer.header("retry-after"), "7");
        }
        assert!(code.is_empty() || !answer.code().is_empty(), "{}", answer.text());
        let row = only_row(&tollgate, tenant).await;
        assert_eq!(
            (row.outcome.as_str(), row.cost_nanos, row.usage_source.as_str()),
            ("upstream_error", 0, "none")
        );
        assert_eq!(tollgate.chat(&key, "Next.").await.status, 200);
    }
}

#[tokio::test]
async fn a_connection_reset_by_the_provider_is_a_502() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(one_slot()).await;
    assert_eq!(tollgate.chat(&key, "Hello. [[sim: reset]]").await.status, 502);
    assert_eq!(only_row(&tollgate, tenant).await.outcome, "upstream_error");
}

#[tokio::test]
async fn a_stream_cut_by_the_provider_ends_with_an_error_event() {
    for orders in ["reset-after-chunks=3", "close-after-chunks=3", "error-after-chunks=3"] {
        let tollgate = Tollgate::start().await;
        let (tenant, key) = tollgate.tenant_with_key(one_slot()).await;
        let text = tollgate
            .chat_stream(&key, &format!("Hello. [[sim: tokens=20 {orders}]]"))
            .await
            .rest()
            .await;
        assert!(text.contains("\"error\""), "{orders}: {text}");
        let row = only_row(&tollgate, tenant).await;
        assert_eq!(row.outcome, "upstream_error", "{orders}");
        assert_eq!(tollgate.chat(&key, "Next.").await.status, 200);
    }
}

#[tokio::test]
async fn a_silent_provider_is_timed_out() {
    let timeouts = upstream::Timeouts {
        first_byte_ms: 200,
        chunk_ms: 200,
        ..upstream::Timeouts::default()
    };
    let tollgate = Tollgate::start_with(Options {
        upstream_timeouts: timeouts,
        ..Options::default()
    })
    .await;
    let (tenant, key) = tollgate.tenant_with_key(one_slot()).await;
    assert_eq!(tollgate.chat(&key, "Hello. [[sim: silence]]").await.status, 504);
    let row = only_row(&tollgate, tenant).await;
    assert_eq!(
        (row.outcome.as_str(), row.usage_source.as_str()),
        ("timed_out", "estimated")
    );

    let tenant = tollgate.tenant("Another", one_slot()).await;
    let key = tollgate.issue(tenant).await.text.reveal().to_owned();
    tollgate.in_force().await;
    let text = tollgate
        .chat_stream(&key, "Hello. [[sim: tokens=20 silence-after-chunks=3]]")
        .await
        .rest()
        .await;
    assert!(text.contains("\"error\""), "{text}");
    assert_eq!(only_row(&tollgate, tenant).await.outcome, "timed_out");
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_a_503_with_a_retry_hint() {
    let tollgate = Tollgate::start_with(Options {
        is_empty: true,
        ..Options::default()
    })
    .await;
    // Nothing listens on the discard port of loopback.
    let upstream = tollgate.upstream("nobody", "http://127.0.0.1:9/v1").await;
    tollgate
        .model(MODEL, upstream, Some(domain::prices::Rates::flat(1, 1)))
        .await;
    let (tenant, key) = tollgate.tenant_with_key(one_slot()).await;
    let answer = tollgate.chat(&key, "Hello.").await;
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (503, "upstream_unavailable")
    );
    assert_eq!(answer.header("retry-after"), "1");
    let row = only_row(&tollgate, tenant).await;
    assert_eq!((row.outcome.as_str(), row.cost_nanos), ("upstream_error", 0));
}

#[tokio::test]
async fn a_handler_that_panics_leaves_one_row_and_no_hold() {
    let options = Options {
        after_admission: Some(Arc::new(|_, step| assert_ne!(step, Step::Admitted, "on purpose"))),
        ..Options::default()
    };
    let tollgate = Tollgate::start_with(options).await;
    let (tenant, key) = tollgate.tenant_with_key(one_slot()).await;
    let answer = tollgate.chat(&key, "Hello.").await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (500, "gateway_error"));
    let row = only_row(&tollgate, tenant).await;
    assert_eq!((row.outcome.as_str(), row.cost_nanos), ("gateway_error", 0));
}

#[tokio::test]
async fn the_providers_credential_goes_up_and_the_callers_key_does_not() {
    // The simulator refuses every other credential, so an answer shows what was sent.
    let tollgate = Tollgate::start().await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
}

//! However a request ends: one row, the right charge, and every hold back to zero.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use control::limits::NodeLimits;
use domain::ids::TenantId;
use gateway::Step;
use serde_json::json;
use sqlx::Row as _;
use test_support::tollgate::{CREDENTIAL, MODEL, Options, Tollgate, chat_body};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// What [`MODEL`] is expected to answer when the caller states no cap and nothing is learned yet, in tokens.
const OUTPUT_DEFAULT: i64 = 500;

/// The one row a tenant's request has left.
#[derive(Debug, sqlx::FromRow)]
struct Ended {
    outcome: String,
    usage_source: String,
    output_tokens: i64,
    cost_nanos: i64,
    status: Option<i16>,
    attempts: serde_json::Value,
}

/// Waits until the request has ended; its row must be the only one, and nothing may be held.
async fn only_row(tollgate: &Tollgate, tenant: TenantId) -> Ended {
    tollgate.shipped().await;
    assert_eq!(tollgate.running.gateway.open_holds(), 0, "a hold is left");
    let mut sql = tollgate.sql().await;
    let mut rows: Vec<Ended> = sqlx::query_as(
        "select outcome, usage_source, output_tokens, cost_nanos, status, attempts from settlements where tenant_id = $1",
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
        ("status=429 retry-after=30", 429, "rate_limit_exceeded"),
        ("status=400", 400, ""),
    ] {
        let tollgate = Tollgate::start().await;
        let (tenant, key) = tollgate.tenant_with_key(one_slot()).await;
        let answer = tollgate.chat(&key, &format!("Hello. [[sim: {orders}]]")).await;
        assert_eq!(answer.status.as_u16(), status, "{}", answer.text());
        if status == 429 {
            assert_eq!(answer.header("retry-after"), "30");
        }
        assert!(code.is_empty() || !answer.code().is_empty(), "{}", answer.text());
        let row = only_row(&tollgate, tenant).await;
        assert_eq!(
            (row.outcome.as_str(), row.cost_nanos, row.usage_source.as_str()),
            ("upstream_error", 0, "none")
        );
        // A provider that asks for it is left alone meanwhile.
        tollgate.clock.skip(30_000);
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
async fn a_task_that_panics_once_the_request_goes_out_is_charged_as_expected() {
    let options = Options {
        after_admission: Some(Arc::new(|_, step| assert_ne!(step, Step::Sending, "on purpose"))),
        ..Options::default()
    };
    let tollgate = Tollgate::start_with(options).await;
    let (tenant, key) = tollgate.tenant_with_key(one_slot()).await;
    let answer = tollgate.chat(&key, "Hello.").await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (500, "gateway_error"));
    let row = only_row(&tollgate, tenant).await;
    assert_eq!(
        (row.outcome.as_str(), row.usage_source.as_str(), row.output_tokens),
        ("gateway_error", "estimated", OUTPUT_DEFAULT)
    );
}

#[tokio::test]
async fn a_task_that_panics_mid_stream_leaves_one_row_and_an_answer_that_breaks_off() {
    let events = AtomicU64::new(0);
    let panics_at_the_fifth = move |_, step| {
        if step == Step::Streaming {
            assert_ne!(events.fetch_add(1, Ordering::Relaxed), 5, "on purpose");
        }
    };
    let options = Options {
        after_admission: Some(Arc::new(panics_at_the_fifth)),
        ..Options::default()
    };
    let tollgate = Tollgate::start_with(options).await;
    let (tenant, key) = tollgate.tenant_with_key(one_slot()).await;
    let (text, ended_well) = tollgate
        .chat_stream(&key, "Hello. [[sim: tokens=30 chunk-ms=20]]")
        .await
        .to_end()
        .await;
    assert!(!ended_well, "it would pass for a whole answer: {text}");
    let row = only_row(&tollgate, tenant).await;
    assert_eq!(
        (row.outcome.as_str(), row.usage_source.as_str()),
        ("gateway_error", "estimated")
    );
    assert!(row.cost_nanos > 0, "{row:?}");
}

#[tokio::test]
async fn a_stop_whose_grace_is_over_ends_answers_with_a_word_and_a_charge() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(one_slot()).await;
    let mut stream = tollgate
        .chat_stream(&key, "Hello. [[sim: tokens=50 hold-after-chunks=5]]")
        .await;
    assert!(stream.next().await.is_some());
    tollgate.simulator.wait_parked(1).await;
    tollgate.running.gateway.end_answers();
    let (text, ended_well) = stream.to_end().await;
    assert!(ended_well && text.contains("\"gateway_error\""), "{text}");
    let row = only_row(&tollgate, tenant).await;
    assert_eq!(
        (row.outcome.as_str(), row.usage_source.as_str()),
        ("gateway_error", "estimated")
    );
    assert!(row.output_tokens >= 5 && row.cost_nanos > 0, "{row:?}");
}

#[tokio::test]
async fn a_stop_whose_grace_is_over_tells_callers_that_have_no_answer_yet() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(one_slot()).await;
    tollgate.simulator.hold();
    let stop = async {
        tollgate.simulator.wait_parked(1).await;
        tollgate.running.gateway.end_answers();
    };
    let (answer, ()) = tokio::join!(tollgate.chat(&key, "Hello."), stop);
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (503, "gateway_error"));
    let row = only_row(&tollgate, tenant).await;
    assert_eq!(
        (row.outcome.as_str(), row.usage_source.as_str(), row.output_tokens),
        ("gateway_error", "estimated", OUTPUT_DEFAULT)
    );
}

/// A caller that asks for a stream and does not read it; its own buffer is small.
async fn ask_without_reading(tollgate: &Tollgate, key: &str, text: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4_096).expect("a small buffer");
    let mut connection = socket.connect(tollgate.running.address).await.expect("a connection");
    let mut body = chat_body(text);
    body["stream"] = json!(true);
    let body = body.to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {key}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    connection
        .write_all(format!("{head}{body}").as_bytes())
        .await
        .expect("it is sent");
    connection
}

#[tokio::test]
async fn a_caller_that_reads_slowly_keeps_its_place_in_flight() {
    let lease = Duration::from_secs(6);
    let tollgate = Tollgate::start_with(Options {
        limits: limits::Settings {
            lease_ms: 6_000,
            ..limits::Settings::default()
        },
        ..Options::default()
    })
    .await;
    let (tenant, key) = tollgate.tenant_with_key(one_slot()).await;
    // More than all buffers on the way hold.
    let slow = ask_without_reading(&tollgate, &key, "Hello. [[sim: tokens=60000]]").await;
    tollgate
        .simulator
        .wait_until(|stats| stats.completion_tokens_sent > 100)
        .await;
    let until = Instant::now() + lease * 4 / 3;
    while Instant::now() < until {
        let other = tollgate.chat(&key, "Next.").await;
        assert_eq!(
            (other.status.as_u16(), other.code().as_str()),
            (429, "concurrency_limit_exceeded"),
            "its place was given away"
        );
        tokio::time::sleep(lease / 10).await;
    }
    drop(slow);
    let deadline = Instant::now() + Duration::from_secs(20);
    while tollgate.chat(&key, "Next.").await.status != 200 {
        assert!(Instant::now() < deadline, "its place is never free");
        tokio::time::sleep(lease / 10).await;
    }
    tollgate.shipped().await;
    let ended: i64 =
        sqlx::query_scalar("select count(*) from settlements where tenant_id = $1 and outcome = 'client_closed'")
            .bind(tenant.0)
            .fetch_one(&mut tollgate.sql().await)
            .await
            .expect("a count");
    assert_eq!(ended, 1);
}

#[tokio::test]
async fn a_request_takes_no_longer_than_its_limit_whoever_is_slow() {
    let tollgate = Tollgate::start().await;
    let limits = NodeLimits {
        request_seconds: Some(1),
        ..one_slot()
    };
    let (tenant, key) = tollgate.tenant_with_key(limits).await;
    let (text, ended_well) = tollgate
        .chat_stream(&key, "Hello. [[sim: tokens=4000 chunk-ms=5]]")
        .await
        .to_end()
        .await;
    assert!(ended_well && text.contains("\"error\""), "{text}");
    let row = only_row(&tollgate, tenant).await;
    assert_eq!(
        (row.outcome.as_str(), row.usage_source.as_str()),
        ("timed_out", "estimated")
    );
    assert!((20..4_000).contains(&row.output_tokens), "{row:?}");

    // Time enough to fill every buffer on the way, so that it is the caller who keeps everybody waiting.
    let limits = NodeLimits {
        request_seconds: Some(4),
        ..one_slot()
    };
    let tenant = tollgate.tenant("Slow reader", limits).await;
    let key = tollgate.issue(tenant).await.text.reveal().to_owned();
    tollgate.in_force().await;
    let slow = ask_without_reading(&tollgate, &key, "Hello. [[sim: tokens=60000]]").await;
    tollgate
        .simulator
        .wait_until(|stats| stats.requests_received == 2)
        .await;
    let row = only_row(&tollgate, tenant).await;
    assert_eq!(row.outcome, "timed_out");
    drop(slow);
}

#[tokio::test]
async fn the_time_for_a_request_is_over_even_while_there_is_more_to_read() {
    let provider = simulator::Simulator::start(simulator::SimulatorConfig::default())
        .await
        .expect("the simulator starts");
    let mut body = chat_body("Hello. [[sim: tokens=50]]");
    body["stream"] = json!(true);
    let request = upstream::Request {
        method: http::Method::POST,
        base_url: &provider.base_url(),
        endpoint: "chat/completions",
        dialect: domain::policy::Dialect::Openai,
        credential: None,
        headers: http::HeaderMap::new(),
        body: body.to_string().into(),
    };
    let client = upstream::Client::new(upstream::Timeouts::default());
    let mut answer = client.send(request, Some(500)).await.expect("an answer").into_body();
    assert!(answer.next_chunk().await.is_ok_and(|chunk| chunk.is_some()));
    provider.wait_until(|stats| stats.requests_finished == 1).await;
    tokio::time::sleep_until(answer.deadline()).await;
    let next = answer.next_chunk().await;
    assert!(matches!(next, Err(upstream::BodyError::TookTooLong(500))), "{next:?}");
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_charged_as_expected() {
    for (orders, is_streamed, status, outcome) in [
        ("malformed", false, 200, "completed"),
        ("malformed no-usage", true, 200, "completed"),
        ("content-encoding=gzip", false, 502, "upstream_error"),
        ("content-encoding=gzip", true, 502, "upstream_error"),
    ] {
        let tollgate = Tollgate::start().await;
        let (tenant, key) = tollgate.tenant_with_key(one_slot()).await;
        let text = format!("Hello. [[sim: tokens=20 {orders}]]");
        let answered = if is_streamed {
            let stream = tollgate.chat_stream(&key, &text).await;
            let status = stream.status;
            stream.rest().await;
            status
        } else {
            tollgate.chat(&key, &text).await.status
        };
        assert_eq!(answered.as_u16(), status, "{orders}");
        let row = only_row(&tollgate, tenant).await;
        assert_eq!(
            (row.outcome.as_str(), row.usage_source.as_str(), row.output_tokens),
            (outcome, "estimated", OUTPUT_DEFAULT),
            "{orders}, streamed: {is_streamed}"
        );
    }
}

#[tokio::test]
async fn a_stream_is_passed_on_as_it_comes_whatever_it_is_called() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(one_slot()).await;
    let text = "Hello. [[sim: tokens=25 content-type=text/plain hold-after-chunks=5]]";
    let asking = tokio::time::timeout(Duration::from_secs(20), tollgate.chat_stream(&key, text));
    let mut stream = asking.await.expect("an answer before the provider goes on");
    assert!(stream.next().await.is_some());
    tollgate.simulator.wait_parked(1).await;
    tollgate.simulator.release_all();
    assert!(stream.rest().await.ends_with("data: [DONE]\n\n"));
    let row = only_row(&tollgate, tenant).await;
    assert_eq!(
        (row.outcome.as_str(), row.usage_source.as_str(), row.output_tokens),
        ("completed", "reported", 25)
    );
}

#[tokio::test]
async fn figures_that_cannot_be_right_are_not_charged() {
    for (orders, is_streamed) in [
        ("says-prompt=0 says-completion=0", false),
        ("says-prompt=0 says-completion=0", true),
        ("usage-each-chunk says-prompt=0 says-completion=0", true),
        ("says-completion=9000000000000000", false),
        ("says-prompt=9000000000000000 says-completion=9000000000000000", true),
        // A figure that came early is not the last one.
        ("usage-each-chunk says-completion=1 close-after-chunks=24", true),
    ] {
        let tollgate = Tollgate::start().await;
        let (tenant, key) = tollgate.tenant_with_key(one_slot()).await;
        let text = format!("Hello. [[sim: tokens=25 {orders}]]");
        if is_streamed {
            tollgate.chat_stream(&key, &text).await.rest().await;
        } else {
            assert_eq!(tollgate.chat(&key, &text).await.status, 200);
        }
        let row = only_row(&tollgate, tenant).await;
        assert_eq!(row.usage_source, "estimated", "{orders}");
        assert!((24..400).contains(&row.output_tokens), "{orders}: {row:?}");
        assert!(row.cost_nanos > row.output_tokens * 2_000, "input costs too: {row:?}");
    }
}

#[tokio::test]
async fn a_provider_that_refuses_to_be_asked_for_usage_is_asked_without_and_remembered() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(one_slot()).await;
    let text = "Hello. [[sim: tokens=25 reject-stream-options]]";
    let answer = tollgate.chat_stream(&key, text).await.rest().await;
    assert!(answer.ends_with("data: [DONE]\n\n"), "{answer}");
    let row = only_row(&tollgate, tenant).await;
    assert_eq!(
        (row.outcome.as_str(), row.usage_source.as_str()),
        ("completed", "estimated")
    );
    assert!((25..400).contains(&row.output_tokens), "{row:?}");
    assert_eq!(
        (&row.attempts[0]["status"], &row.attempts[0]["error"]),
        (&json!(400), &json!("stream_options"))
    );
    assert_eq!(
        (&row.attempts[1]["status"], &row.attempts[1]["error"]),
        (&json!(200), &json!(null))
    );

    let before = tollgate.simulator.stats().requests_received;
    let again = tollgate.chat_stream(&key, text).await.rest().await;
    assert!(again.ends_with("data: [DONE]\n\n"), "{again}");
    assert_eq!(
        tollgate.simulator.stats().requests_received - before,
        1,
        "it is remembered"
    );
}

#[tokio::test]
async fn a_provider_that_hangs_before_there_is_a_connection_costs_nothing() {
    // It takes connections and never says a word of TLS.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let hanging = tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            kept.push(connection);
        }
    });
    for (connect_ms, request_seconds) in [(300, None), (60_000, Some(1))] {
        let tollgate = Tollgate::start_with(Options {
            is_empty: true,
            upstream_timeouts: upstream::Timeouts {
                connect_ms,
                ..upstream::Timeouts::default()
            },
            ..Options::default()
        })
        .await;
        let upstream = tollgate.upstream("hanging", &format!("https://{address}/v1")).await;
        tollgate
            .model(MODEL, upstream, Some(domain::prices::Rates::flat(1, 1)))
            .await;
        let limits = NodeLimits {
            request_seconds,
            ..one_slot()
        };
        let (tenant, key) = tollgate.tenant_with_key(limits).await;
        let answer = tokio::time::timeout(Duration::from_secs(20), tollgate.chat(&key, "Hello."))
            .await
            .expect("the way to a connection is bounded");
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (503, "upstream_unavailable")
        );
        let row = only_row(&tollgate, tenant).await;
        assert_eq!(
            (row.outcome.as_str(), row.usage_source.as_str(), row.cost_nanos),
            ("upstream_error", "none", 0)
        );
        assert_eq!(row.attempts[0]["error"], "connect");
    }
    hanging.abort();
}

#[tokio::test]
async fn what_is_secret_of_ours_is_not_in_a_providers_error() {
    let tollgate = Tollgate::start().await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let whole = tollgate
        .chat(&key, "Hello. [[sim: status=400 quote-credential]]")
        .await
        .text();
    let streamed = tollgate
        .chat_stream(&key, "Hello. [[sim: tokens=9 error-after-chunks=2 quote-credential]]")
        .await
        .rest()
        .await;
    for shown in [whole, streamed] {
        assert!(shown.contains("was ordered to fail"), "{shown}");
        for secret in [CREDENTIAL, &CREDENTIAL[4..16], "org-SimulatedAccount1"] {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
    }
}

#[tokio::test]
async fn an_upstream_that_cannot_be_used_as_configured_is_left_out() {
    let tollgate = Tollgate::start().await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
    let before = tollgate.simulator.stats().requests_received;
    sqlx::query("update upstreams set credential_sealed = '\\x00'")
        .execute(&mut tollgate.sql().await)
        .await
        .expect("it is changed");
    tollgate.in_force().await;
    let answer = tollgate.chat(&key, "Hello.").await;
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (503, "upstream_unavailable")
    );
    assert_eq!(tollgate.simulator.stats().requests_received, before);
}

#[tokio::test]
async fn the_providers_credential_goes_up_and_the_callers_key_does_not() {
    // The simulator refuses every other credential, so an answer shows what was sent.
    let tollgate = Tollgate::start().await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
}

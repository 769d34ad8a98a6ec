//! Every call of a provider's API that is served: limited, metered and booked alike, answered in its own dialect.

use bytes::Bytes;
use control::limits::NodeLimits;
use domain::ids::TenantId;
use domain::money::Nanos;
use domain::policy::Dialect;
use domain::prices::Rates;
use http::Method;
use serde_json::{Value, json};
use test_support::http::Answer;
use test_support::tollgate::{ANTHROPIC_MODEL, CREDENTIAL, MODEL, Options, Tollgate};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

/// A call, by its path below `/v1`.
const CALLS: [&str; 6] = [
    "chat/completions",
    "completions",
    "responses",
    "embeddings",
    "messages",
    "messages/count_tokens",
];
/// Those that answer with a stream if they are asked to.
const STREAMED: [&str; 4] = ["chat/completions", "completions", "responses", "messages"];

fn dialect_of(call: &str) -> &'static str {
    if call.starts_with("messages") {
        "anthropic"
    } else {
        "openai"
    }
}

/// What the call is asked with this text.
fn body(call: &str, text: &str) -> Value {
    let messages = json!([{ "role": "user", "content": text }]);
    match call {
        "chat/completions" => json!({ "model": MODEL, "messages": messages }),
        "completions" => json!({ "model": MODEL, "prompt": text, "max_tokens": 100 }),
        "responses" => json!({ "model": MODEL, "input": text }),
        "embeddings" => json!({ "model": MODEL, "input": [text, "二つ目"] }),
        "messages" => json!({ "model": ANTHROPIC_MODEL, "max_tokens": 100, "messages": messages }),
        _ => json!({ "model": ANTHROPIC_MODEL, "messages": messages }),
    }
}

fn streamed(call: &str, text: &str) -> Value {
    let mut body = body(call, text);
    body["stream"] = json!(true);
    body
}

async fn ask(tollgate: &Tollgate, key: &str, call: &str, body: &Value) -> Answer {
    tollgate.browser().post_json(&format!("/v1/{call}"), key, body).await
}

/// The same, straight from the provider.
async fn ask_provider(tollgate: &Tollgate, call: &str, body: &Value) -> Answer {
    let address = format!("{}/{call}", tollgate.simulator.base_url());
    let bearer = format!("Bearer {CREDENTIAL}");
    let headers = match dialect_of(call) {
        "anthropic" => vec![("x-api-key", CREDENTIAL), ("anthropic-version", "2023-06-01")],
        _ => vec![("authorization", bearer.as_str())],
    };
    let body = Bytes::from(body.to_string());
    tollgate.browser().send(Method::POST, &address, &headers, body).await
}

/// With models of both dialects, and a tenant that has one slot in flight: whatever is not given back shows at the next
/// request.
async fn start_with(options: Options, limits: NodeLimits) -> (Tollgate, TenantId, String) {
    let tollgate = Tollgate::start_with(options).await;
    tollgate.anthropic_model().await;
    let (tenant, key) = tollgate.tenant_with_key(limits).await;
    (tollgate, tenant, key)
}

async fn start() -> (Tollgate, TenantId, String) {
    start_with(Options::default(), one_slot()).await
}

fn one_slot() -> NodeLimits {
    NodeLimits {
        concurrency: Some(1),
        monthly_tokens: Some(1_000_000),
        ..NodeLimits::default()
    }
}

#[derive(Debug, sqlx::FromRow)]
struct Row {
    endpoint: String,
    dialect: String,
    is_streamed: bool,
    outcome: String,
    usage_source: String,
    input_tokens: i64,
    output_tokens: i64,
    cost_nanos: i64,
    expected_output_tokens: i64,
    ceiling_output_tokens: i64,
}

/// The rows of a tenant in the order of admission, once everything has ended. Nothing may be held.
async fn rows(tollgate: &Tollgate, tenant: TenantId) -> Vec<Row> {
    tollgate.shipped().await;
    assert_eq!(tollgate.running.gateway.open_holds(), 0, "a hold is left");
    sqlx::query_as(
        "select endpoint, dialect, is_streamed, outcome, usage_source,
                input_fresh_tokens + cache_read_tokens + cache_write_5m_tokens + cache_write_1h_tokens as input_tokens,
                output_tokens, cost_nanos, expected_output_tokens, ceiling_output_tokens
         from settlements
         where tenant_id = $1
         order by admitted_at, id",
    )
    .bind(tenant.0)
    .fetch_all(&mut tollgate.sql().await)
    .await
    .expect("rows")
}

/// Input and output as the provider says them.
fn said(call: &str, answer: &Value) -> (i64, i64) {
    let usage = &answer["usage"];
    let figure = |names: [&str; 2]| names.iter().find_map(|name| usage[*name].as_i64()).unwrap_or(0);
    match call {
        "messages/count_tokens" => (0, 0),
        _ => (
            figure(["input_tokens", "prompt_tokens"]),
            figure(["output_tokens", "completion_tokens"]),
        ),
    }
}

#[tokio::test]
async fn every_call_is_answered_as_the_provider_would_and_booked_at_what_it_reported() {
    let (tollgate, tenant, key) = start().await;
    for call in CALLS {
        let body = body(call, "Hello, 世界. [[sim: tokens=25]]");
        let ours = ask(&tollgate, &key, call, &body).await;
        assert_eq!(ours.status, 200, "{call}: {}", ours.text());
        let theirs = ask_provider(&tollgate, call, &body).await;
        assert_eq!(ours.body, theirs.body, "{call}");
    }
    let rows = rows(&tollgate, tenant).await;
    assert_eq!(rows.len(), CALLS.len());
    for (call, row) in CALLS.into_iter().zip(rows) {
        let answer = ask_provider(&tollgate, call, &body(call, "Hello, 世界. [[sim: tokens=25]]")).await;
        let (input, output) = said(call, &answer.json());
        assert_eq!((row.endpoint.as_str(), row.dialect.as_str()), (call, dialect_of(call)));
        assert_eq!(
            (row.outcome.as_str(), row.usage_source.as_str()),
            ("completed", "reported"),
            "{call}"
        );
        assert_eq!((row.input_tokens, row.output_tokens), (input, output), "{call}");
        assert_eq!(row.cost_nanos, input * 1_000 + output * 2_000, "{call}");
        assert!(!row.is_streamed);
        if !STREAMED.contains(&call) {
            assert_eq!(
                (row.expected_output_tokens, row.ceiling_output_tokens),
                (0, 0),
                "{call}"
            );
        }
    }
}

#[tokio::test]
async fn every_stream_passes_as_it_is_and_is_booked_at_its_usage() {
    let (tollgate, tenant, key) = start().await;
    for call in STREAMED {
        let body = streamed(call, "Hello, 世界. [[sim: tokens=25]]");
        let ours = ask(&tollgate, &key, call, &body).await;
        assert_eq!(ours.status, 200, "{call}");
        assert!(ours.header("content-type").starts_with("text/event-stream"), "{call}");
        let theirs = ask_provider(&tollgate, call, &body).await;
        assert_eq!(ours.text(), theirs.text(), "{call}");
    }
    for row in rows(&tollgate, tenant).await {
        assert_eq!(
            (
                row.outcome.as_str(),
                row.usage_source.as_str(),
                row.output_tokens,
                row.is_streamed
            ),
            ("completed", "reported", 25, true),
            "{}",
            row.endpoint
        );
        assert!(row.input_tokens > 0);
    }
}

#[tokio::test]
async fn no_call_gets_past_a_limit_that_another_has_used_up() {
    let once = NodeLimits {
        requests_per_minute: Some(1),
        ..NodeLimits::default()
    };
    let (tollgate, _, key) = start_with(Options::default(), once).await;
    assert_eq!(
        ask(&tollgate, &key, CALLS[0], &body(CALLS[0], "Hello.")).await.status,
        200
    );
    let before = tollgate.simulator.stats().requests_received;
    for call in CALLS {
        let answer = ask(&tollgate, &key, call, &body(call, "Hello.")).await;
        assert_eq!(answer.status, 429, "{call}: {}", answer.text());
        assert!(!answer.header("retry-after").is_empty());
        let error = &answer.json()["error"];
        assert_eq!(
            (&error["type"], &error["code"]),
            (&json!("rate_limit_error"), &json!("rate_limit_exceeded"))
        );
        // Anthropic's shape names itself.
        let expected = (dialect_of(call) == "anthropic").then_some("error");
        assert_eq!(answer.json()["type"].as_str(), expected, "{call}");
    }
    assert_eq!(tollgate.simulator.stats().requests_received, before);
}

#[tokio::test]
async fn a_spent_budget_closes_every_call_but_those_that_cost_nothing() {
    let little = NodeLimits {
        monthly_cost: Some(Nanos(1_000_000)),
        ..NodeLimits::default()
    };
    let (tollgate, _, key) = start_with(Options::default(), little).await;
    // Far more than could be known before: what a provider says is booked in full.
    let more = body("messages", "Hello. [[sim: says-completion=100000]]");
    assert_eq!(ask(&tollgate, &key, "messages", &more).await.status, 200);
    let upstream = tollgate.upstream("free", &tollgate.simulator.base_url()).await;
    tollgate.model("free-model", upstream, Some(Rates::flat(0, 0))).await;
    tollgate.in_force().await;
    for call in CALLS {
        let answer = ask(&tollgate, &key, call, &body(call, "Hello.")).await;
        let expected = if call == "messages/count_tokens" { 200 } else { 429 };
        assert_eq!(answer.status, expected, "{call}: {}", answer.text());
    }
    let mut free = body(CALLS[0], "Hello.");
    free["model"] = json!("free-model");
    assert_eq!(
        ask(&tollgate, &key, CALLS[0], &free).await.status,
        200,
        "an explicit zero is a price"
    );
}

#[tokio::test]
async fn whatever_ends_a_call_of_any_kind_its_slot_is_free_again() {
    let (tollgate, tenant, key) = start().await;
    let mut calls = 0;
    for call in CALLS {
        for orders in ["status=400", "malformed", "no-usage"] {
            ask(&tollgate, &key, call, &body(call, &format!("Hello. [[sim: {orders}]]"))).await;
            calls += 1;
        }
        if STREAMED.contains(&call) {
            for orders in ["error-after-chunks=2", "close-after-chunks=2"] {
                let body = streamed(call, &format!("Hello. [[sim: tokens=9 {orders}]]"));
                ask(&tollgate, &key, call, &body).await;
                calls += 1;
            }
        }
        let answer = ask(&tollgate, &key, call, &body(call, "And now in peace.")).await;
        assert_eq!(answer.status, 200, "{call}: {}", answer.text());
        calls += 1;
    }
    assert_eq!(rows(&tollgate, tenant).await.len(), calls, "one row each");
}

#[tokio::test]
async fn an_error_within_a_stream_comes_in_its_dialect() {
    for call in STREAMED {
        // One after the other, their failures would shut the breaker.
        let (tollgate, tenant, key) = start().await;
        let body = streamed(call, "Hello. [[sim: tokens=20 error-after-chunks=3]]");
        let text = ask(&tollgate, &key, call, &body).await.text();
        let last = text.trim_end().rsplit("\n\n").next().unwrap_or_default().to_owned();
        let is_named = last.starts_with("event: error\n");
        assert_eq!(is_named, matches!(call, "messages" | "responses"), "{call}: {last}");
        assert!(last.contains("error"), "{call}: {last}");
        // One that the provider did not send: ours.
        let body = streamed(call, "Hello. [[sim: tokens=20 close-after-chunks=3]]");
        let text = ask(&tollgate, &key, call, &body).await.text();
        let last = text.trim_end().rsplit("\n\n").next().unwrap_or_default().to_owned();
        assert!(
            last.contains("The connection to the model's provider broke"),
            "{call}: {last}"
        );
        assert_eq!(last.starts_with("event: error\n"), is_named, "{call}: {last}");
        for row in rows(&tollgate, tenant).await {
            assert_eq!(
                (row.outcome.as_str(), row.usage_source.as_str()),
                ("upstream_error", "estimated")
            );
        }
    }
}

#[tokio::test]
async fn a_caller_that_leaves_any_stream_is_charged_what_was_generated() {
    let (tollgate, tenant, key) = start().await;
    for call in STREAMED {
        let body = streamed(call, "Hello. [[sim: tokens=50 hold-after-chunks=8]]");
        let mut stream = tollgate
            .browser()
            .stream_json(&format!("/v1/{call}"), &key, &body)
            .await;
        assert!(stream.next().await.is_some());
        tollgate.simulator.wait_parked(1).await;
        drop(stream);
        tollgate.simulator.release_all();
        let rows = rows(&tollgate, tenant).await;
        let row = rows.last().expect("a row");
        assert_eq!(
            (
                row.endpoint.as_str(),
                row.outcome.as_str(),
                row.usage_source.as_str(),
                row.output_tokens
            ),
            (call, "client_closed", "reported", 50),
            "the stream is drained to its usage"
        );
    }
}

#[tokio::test]
async fn usage_that_nobody_reports_is_estimated_with_reasoning_and_tool_calls() {
    let (tollgate, tenant, key) = start().await;
    for call in ["chat/completions", "responses", "messages"] {
        for more in ["", "tool-call"] {
            let orders = format!("tokens=60 reasoning=40 show-reasoning no-usage {more}");
            let mut body = streamed(call, &format!("Hello. [[sim: {orders}]]"));
            body["tools"] = match call {
                "chat/completions" => json!([{ "type": "function", "function": { "name": "t", "parameters": {} } }]),
                "responses" => json!([{ "type": "function", "name": "t", "parameters": {} }]),
                _ => json!([{ "name": "t", "input_schema": { "type": "object" } }]),
            };
            let answer = ask(&tollgate, &key, call, &body).await;
            assert_eq!(answer.status, 200, "{call}: {}", answer.text());
        }
    }
    let rows = rows(&tollgate, tenant).await;
    assert_eq!(rows.len(), 6);
    for row in rows {
        assert_eq!(
            (row.outcome.as_str(), row.usage_source.as_str()),
            ("completed", "estimated"),
            "{}",
            row.endpoint
        );
        assert!(row.output_tokens >= 60, "all of the sixty words: {row:?}");
        assert!(row.input_tokens > 0 && row.cost_nanos > 0);
    }
}

#[tokio::test]
async fn a_model_is_asked_for_in_the_dialect_that_serves_it() {
    let (tollgate, _, key) = start().await;
    for call in CALLS {
        let mut body = body(call, "Hello.");
        body["model"] = json!(if dialect_of(call) == "openai" {
            ANTHROPIC_MODEL
        } else {
            MODEL
        });
        let answer = ask(&tollgate, &key, call, &body).await;
        assert_eq!(answer.status, 400, "{call}");
        let other = if dialect_of(call) == "openai" {
            "/v1/messages"
        } else {
            "/v1/chat/completions"
        };
        let message = answer.json()["error"]["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(message.contains(other), "{call}: {message}");
    }
}

#[tokio::test]
async fn callers_of_anthropics_dialect_are_refused_in_it() {
    let (tollgate, _, key) = start().await;
    let refused = async |key: &str, body: &Value| {
        let body = Bytes::from(body.to_string());
        let headers = [("x-api-key", key), ("anthropic-version", "2023-06-01")];
        let answer = tollgate
            .browser()
            .send(Method::POST, "/v1/messages", &headers, body)
            .await;
        let (status, json) = (answer.status.as_u16(), answer.json());
        assert_eq!(json["type"], "error", "{}", answer.text());
        // Ours, or that of the provider who failed; an unknown key has none.
        let id = answer.header("request-id");
        assert!(
            status == 401 || id == answer.header("x-tollgate-request-id") || id.starts_with("req_"),
            "{id}"
        );
        (status, json["error"]["type"].as_str().unwrap_or_default().to_owned())
    };
    let hello = body("messages", "Hello.");
    assert_eq!(
        refused("sk-tg-wrong", &hello).await,
        (401, "authentication_error".into())
    );
    let mut unknown = hello.clone();
    unknown["model"] = json!("nobody");
    assert_eq!(refused(&key, &unknown).await, (404, "not_found_error".into()));
    let mut searching = hello.clone();
    searching["tools"] = json!([{ "type": "web_search_20250305", "name": "web_search" }]);
    assert_eq!(refused(&key, &searching).await, (400, "invalid_request_error".into()));
    let failing = body("messages", "Hello. [[sim: status=529]]");
    assert_eq!(refused(&key, &failing).await, (529, "overloaded_error".into()));
}

#[tokio::test]
async fn anthropics_credential_goes_in_its_own_header_and_the_callers_key_nowhere() {
    let tollgate = Tollgate::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let base_url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    let heard = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.expect("a connection");
        let mut request = Vec::new();
        while !request.ends_with(b"}") {
            connection.read_buf(&mut request).await.expect("a request");
        }
        String::from_utf8_lossy(&request).into_owned()
    });
    let upstream = tollgate.upstream_of(Dialect::Anthropic, "heard", &base_url).await;
    tollgate.model("heard-model", upstream, Some(Rates::flat(0, 0))).await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let mut hello = body("messages", "Hello.");
    hello["model"] = json!("heard-model");
    let bytes = Bytes::from(hello.to_string());
    let headers = [("x-api-key", key.as_str()), ("anthropic-beta", "some-beta")];
    tollgate
        .browser()
        .send(Method::POST, "/v1/messages", &headers, bytes)
        .await;
    let request = heard.await.expect("a request");
    assert!(request.contains(&format!("x-api-key: {CREDENTIAL}\r\n")), "{request}");
    assert!(request.contains("anthropic-version: 2023-06-01\r\n"), "{request}");
    assert!(request.contains("anthropic-beta: some-beta\r\n"), "{request}");
    assert!(
        !request.contains("authorization") && !request.contains(&key),
        "{request}"
    );
}

#[tokio::test]
async fn models_are_listed_and_found_in_both_shapes() {
    let (tollgate, _, key) = start().await;
    let bearer = format!("Bearer {key}");
    let get = async |path: &str, more: &[(&str, &str)]| {
        let mut headers = vec![("authorization", bearer.as_str())];
        headers.extend(more);
        tollgate.browser().send(Method::GET, path, &headers, Bytes::new()).await
    };
    let anthropic = [("anthropic-version", "2023-06-01")];
    let list = get("/v1/models", &[]).await.json();
    assert_eq!(
        (&list["object"], &list["data"][0]["object"]),
        (&json!("list"), &json!("model"))
    );
    let list = get("/v1/models", &anthropic).await.json();
    assert_eq!(
        (&list["has_more"], &list["data"][0]["type"]),
        (&json!(false), &json!("model"))
    );
    assert_eq!(get(&format!("/v1/models/{MODEL}"), &[]).await.json()["id"], MODEL);
    assert_eq!(
        get(&format!("/v1/models/{MODEL}"), &anthropic).await.json()["display_name"],
        MODEL
    );
    let unknown = get("/v1/models/org/nobody", &[]).await;
    assert_eq!(
        (unknown.status.as_u16(), unknown.code().as_str()),
        (404, "model_not_found")
    );
}

#[tokio::test]
async fn a_silent_stream_says_now_and_then_that_it_lives() {
    let options = Options {
        upstream_timeouts: upstream::Timeouts {
            chunk_ms: 1_000,
            ..upstream::Timeouts::default()
        },
        ..Options::default()
    };
    let (tollgate, _, key) = start_with(options, one_slot()).await;
    for call in STREAMED {
        let body = streamed(call, "Hello. [[sim: tokens=20 silence-after-chunks=3]]");
        let text = ask(&tollgate, &key, call, &body).await.text();
        assert!(text.contains("\n\n: keep-alive\n\n"), "{call}: {text}");
    }
}

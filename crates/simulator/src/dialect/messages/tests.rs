//! Messages as a caller reads them.

use anyhow::Result;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::dialect::testing::{Answered, caching, joined, plain, post, send, stream};
use crate::{Simulator, SimulatorConfig};

const PATH: &str = "/messages";

fn request(text: &str) -> Value {
    json!({ "model": "claude-sim", "max_tokens": 1_000, "messages": [{ "role": "user", "content": text }] })
}

async fn usage(simulator: &Simulator, body: &Value) -> Result<Value> {
    Ok(post(simulator, PATH, body).await?.json()?["usage"].clone())
}

/// Input that is fresh, written for five minutes and for an hour, and read.
fn classes(usage: &Value) -> [Option<u64>; 4] {
    [
        &usage["input_tokens"],
        &usage["cache_creation"]["ephemeral_5m_input_tokens"],
        &usage["cache_creation"]["ephemeral_1h_input_tokens"],
        &usage["cache_read_input_tokens"],
    ]
    .map(Value::as_u64)
}

/// The message that a stream adds up to.
fn assembled(answered: &Answered) -> Value {
    let events = answered.data();
    let mut message = events[0]["message"].clone();
    let mut content: Vec<Value> = Vec::new();
    for event in &events {
        let index = event["index"].as_u64().unwrap_or_default() as usize;
        match event["type"].as_str() {
            Some("content_block_start") => {
                assert_eq!(index, content.len());
                content.push(event["content_block"].clone());
            }
            Some("content_block_delta") => {
                let delta = &event["delta"];
                let (field, text) = match delta["type"].as_str() {
                    Some("text_delta") => ("text", &delta["text"]),
                    Some("thinking_delta") => ("thinking", &delta["thinking"]),
                    Some("signature_delta") => ("signature", &delta["signature"]),
                    Some("input_json_delta") => ("json", &delta["partial_json"]),
                    other => panic!("{other:?} is no delta"),
                };
                let so_far = content[index][field].as_str().unwrap_or_default();
                content[index][field] = format!("{so_far}{}", text.as_str().unwrap_or_default()).into();
            }
            Some("message_delta") => {
                message["stop_reason"] = event["delta"]["stop_reason"].clone();
                for (field, value) in event["usage"].as_object().into_iter().flatten() {
                    message["usage"][field] = value.clone();
                }
            }
            _ => {}
        }
    }
    for block in &mut content {
        if let Some(text) = block.as_object_mut().and_then(|block| block.remove("json")) {
            block["input"] = serde_json::from_str(text.as_str().unwrap_or_default()).unwrap_or_default();
        }
    }
    message["content"] = content.into();
    message
}

#[tokio::test]
async fn a_message_says_what_was_used() -> Result<()> {
    let simulator = plain().await?;
    let answered = post(&simulator, PATH, &request("[[sim: tokens=5]]")).await?;
    let message = answered.json()?;
    assert_eq!(
        (&message["type"], &message["role"]),
        (&"message".into(), &"assistant".into())
    );
    assert_eq!(message["stop_reason"], "end_turn");
    let text = message["content"][0]["text"].as_str().unwrap_or_default();
    assert_eq!(text.split(' ').count(), 5);
    assert_eq!(
        message["usage"],
        json!({
            "input_tokens": 3 + 4 + 4,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "cache_creation": { "ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0 },
            "output_tokens": 5,
            "service_tier": "standard",
        })
    );
    assert!(answered.headers["request-id"].to_str()?.starts_with("req_"));
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_stream_adds_up_to_the_whole_message() -> Result<()> {
    let simulator = plain().await?;
    for orders in [
        "tokens=30",
        "tokens=30 reasoning=12",
        "tokens=6 reasoning=6",
        "tokens=40 tool-call",
        "tokens=40 reasoning=10 tool-call",
        "tokens=2000",
        "tokens=1",
    ] {
        for thinking in [json!(null), json!({ "type": "adaptive", "display": "omitted" })] {
            let mut body = request(&format!("[[sim: {orders}]]"));
            body["thinking"] = thinking;
            let before = simulator.stats();
            let whole = post(&simulator, PATH, &body).await?.json()?;
            let between = simulator.stats();
            let streamed = stream(&simulator, PATH, &body).await?;
            let after = simulator.stats();
            assert_eq!(assembled(&streamed), whole, "{orders}");
            let output = whole["usage"]["output_tokens"].as_u64();
            for (earlier, later) in [(before, between), (between, after)] {
                let sent = later.completion_tokens_sent - earlier.completion_tokens_sent;
                assert_eq!(Some(sent), output, "{orders}");
            }
            assert_eq!(
                after.reasoning_tokens_sent - between.reasoning_tokens_sent,
                between.reasoning_tokens_sent - before.reasoning_tokens_sent,
                "{orders}"
            );
        }
    }
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn events_come_in_the_order_of_the_reference() -> Result<()> {
    let simulator = plain().await?;
    let streamed = stream(&simulator, PATH, &request("[[sim: tokens=4 reasoning=2]]")).await?;
    assert_eq!(
        streamed.names(),
        [
            "message_start",
            "content_block_start",
            "ping",
            "content_block_delta",
            "content_block_stop",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
    );
    let events = streamed.events();
    assert!(events.iter().all(|(name, data)| data["type"] == name.as_str()));
    assert_eq!(events[0].1["message"]["usage"]["output_tokens"], 1);
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn thinking_is_shown_unless_the_caller_omits_it() -> Result<()> {
    let simulator = plain().await?;
    let mut body = request("[[sim: tokens=4 reasoning=2]]");
    let shown = post(&simulator, PATH, &body).await?.json()?["content"][0].clone();
    assert_eq!(shown["type"], "thinking");
    assert!(
        shown["signature"]
            .as_str()
            .is_some_and(|signature| !signature.is_empty())
    );
    assert_eq!(shown["thinking"].as_str().map(|text| text.split(' ').count()), Some(2));
    body["thinking"] = json!({ "type": "enabled", "budget_tokens": 1_024, "display": "omitted" });
    let answered = post(&simulator, PATH, &body).await?.json()?;
    assert_eq!(answered["content"][0]["thinking"], "");
    assert_eq!(answered["usage"]["output_tokens_details"]["thinking_tokens"], 2);
    // Who asks for it gets it without an order.
    let mut body = request("hello");
    body["thinking"] = json!({ "type": "enabled", "budget_tokens": 1_024 });
    assert_eq!(
        post(&simulator, PATH, &body).await?.json()?["content"][0]["type"],
        "thinking"
    );
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn the_cap_ends_a_message() -> Result<()> {
    let simulator = plain().await?;
    let mut body = request("[[sim: tokens=50]]");
    body["max_tokens"] = 7.into();
    let message = post(&simulator, PATH, &body).await?.json()?;
    assert_eq!(
        (&message["stop_reason"], &message["usage"]["output_tokens"]),
        (&"max_tokens".into(), &7.into())
    );
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn everything_that_is_given_counts_and_can_be_counted_before() -> Result<()> {
    let simulator = plain().await?;
    let text = |bytes: usize| "x".repeat(bytes);
    for (field, value, tokens) in [
        ("system", json!(text(10)), 4 + 2),
        (
            "system",
            json!([{ "type": "text", "text": text(10) }, { "type": "text", "text": text(10) }]),
            4 + 4,
        ),
        (
            "messages",
            json!([{ "role": "user", "content": [
                { "type": "text", "text": text(5) },
                { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": text(500) } },
                { "type": "document", "source": { "type": "base64", "media_type": "application/pdf", "data": text(500) } },
                { "type": "document", "source": { "type": "text", "media_type": "text/plain", "data": text(50) } },
            ]}]),
            1 + 85 + 250 + 10 - 1,
        ),
        (
            "messages",
            json!([
                { "role": "user", "content": text(5) },
                { "role": "assistant", "content": [
                    { "type": "thinking", "thinking": text(20), "signature": "s" },
                    { "type": "tool_use", "id": "toolu_1", "name": text(5), "input": {} },
                ]},
                { "role": "user", "content": [
                    { "type": "tool_result", "tool_use_id": "toolu_1", "content": [{ "type": "text", "text": text(13) }] },
                ]},
            ]),
            4 + 4 + 8,
        ),
        (
            "tools",
            json!([{ "name": "f", "cache_control": { "type": "ephemeral" } }]),
            3,
        ),
    ] {
        let mut body = request("12345");
        body[field] = value;
        let message = usage(&simulator, &body).await?;
        assert_eq!(message["input_tokens"], 3 + 4 + 1 + tokens, "{body}");
        body.as_object_mut().map(|body| body.remove("max_tokens"));
        let counted = post(&simulator, "/messages/count_tokens", &body).await?.json()?;
        assert_eq!(counted, json!({ "input_tokens": message["input_tokens"] }));
    }
    // Counting uses nothing.
    let stats = simulator.stats();
    assert_eq!(stats.requests_finished, 10);
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn counting_takes_nothing_from_the_account() -> Result<()> {
    let config = SimulatorConfig {
        requests_per_minute: Some(1),
        arrivals_kept: 10,
        ..SimulatorConfig::default()
    };
    let simulator = Simulator::start(config).await?;
    for _ in 0..3 {
        assert_eq!(
            post(&simulator, "/messages/count_tokens", &request("hello"))
                .await?
                .status,
            200
        );
    }
    assert_eq!(simulator.stats().prompt_tokens_sent, 0);
    assert_eq!(simulator.traffic().arrivals().len(), 0);
    assert_eq!(post(&simulator, PATH, &request("hello")).await?.status, 200);
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn what_is_marked_is_written_once_and_read_then() -> Result<()> {
    let simulator = caching().await?;
    let block = |text: &str, ttl: Option<&str>| {
        let mut block = json!({ "type": "text", "text": text.repeat(100) });
        if let Some(ttl) = ttl {
            block["cache_control"] = json!({ "type": "ephemeral", "ttl": ttl });
        }
        block
    };
    let mut body = request("and now?");
    body["system"] = json!([
        block("hours", Some("1h")),
        block("minut", Some("5m")),
        block("fresh", None)
    ]);
    assert_eq!(
        classes(&usage(&simulator, &body).await?),
        [Some(106), Some(100), Some(107), Some(0)]
    );
    assert_eq!(
        classes(&usage(&simulator, &body).await?),
        [Some(106), Some(0), Some(0), Some(207)]
    );
    let stats = simulator.stats();
    assert_eq!((stats.cached_tokens_sent, stats.cache_written_tokens_sent), (207, 207));

    // A conversation that goes on reads what its last turn wrote, and writes the rest.
    body["messages"] = json!([
        { "role": "user", "content": "and now?" },
        { "role": "assistant", "content": "nothing" },
        { "role": "user", "content": [block("again", None)] },
    ]);
    body["cache_control"] = json!({ "type": "ephemeral" });
    assert_eq!(
        classes(&usage(&simulator, &body).await?),
        [Some(0), Some(215), Some(0), Some(207)]
    );
    // A tool comes before all that.
    body["tools"] = json!([{ "name": "f" }]);
    assert_eq!(usage(&simulator, &body).await?["cache_read_input_tokens"], 0);
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_mark_finds_what_ended_up_to_twenty_blocks_before() -> Result<()> {
    let simulator = caching().await?;
    let conversation = |blocks: usize| {
        let blocks: Vec<Value> = (0..blocks)
            .map(|_| json!({ "type": "text", "text": "five5" }))
            .collect();
        let mut body = request("");
        body["messages"][0]["content"] = blocks.into();
        body["cache_control"] = json!({ "type": "ephemeral" });
        body
    };
    assert_eq!(
        classes(&usage(&simulator, &conversation(1)).await?),
        [Some(0), Some(8), Some(0), Some(0)]
    );
    assert_eq!(
        classes(&usage(&simulator, &conversation(20)).await?),
        [Some(0), Some(19), Some(0), Some(8)]
    );
    assert_eq!(
        classes(&usage(&simulator, &conversation(40)).await?),
        [Some(0), Some(47), Some(0), Some(0)]
    );
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn nothing_is_cached_unless_it_is_marked_and_the_cache_is_used() -> Result<()> {
    let (without, with) = (plain().await?, caching().await?);
    let mut marked = request("hello");
    marked["cache_control"] = json!({ "type": "ephemeral" });
    for (simulator, body) in [(&without, &marked), (&with, &request("hello"))] {
        for _ in 0..2 {
            assert_eq!(
                classes(&usage(simulator, body).await?),
                [Some(8), Some(0), Some(0), Some(0)]
            );
        }
    }
    let mut ordered = request("[[sim: caches-prompts]]");
    ordered["cache_control"] = json!({ "type": "ephemeral" });
    assert_eq!(
        classes(&usage(&without, &ordered).await?),
        [Some(0), Some(12), Some(0), Some(0)]
    );
    let ordered = request(&format!(
        "[[sim: cached=64 cache-write-5m=32 cache-write-1h=16]]{}",
        "x".repeat(1_000)
    ));
    assert_eq!(
        classes(&usage(&without, &ordered).await?),
        [Some(106), Some(32), Some(16), Some(64)]
    );
    without.stop().await;
    with.stop().await;
    Ok(())
}

#[tokio::test]
async fn errors_have_the_types_of_their_status() -> Result<()> {
    let simulator = plain().await?;
    for (status, kind) in [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "api_error"),
        (529, "overloaded_error"),
    ] {
        let answered = post(
            &simulator,
            PATH,
            &request(&format!("[[sim: status={status} retry-after=4]]")),
        )
        .await?;
        assert_eq!(
            (answered.status.as_u16(), &answered.headers["retry-after"]),
            (status, &"4".parse()?)
        );
        let body = answered.json()?;
        assert_eq!((&body["type"], &body["error"]["type"]), (&"error".into(), &kind.into()));
        assert_eq!(body["request_id"], answered.headers["request-id"].to_str()?);
    }
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn what_is_missing_or_wrong_is_refused() -> Result<()> {
    let simulator = plain().await?;
    for (field, value) in [
        ("model", Value::Null),
        ("max_tokens", Value::Null),
        ("max_tokens", 0.into()),
        ("messages", Value::Null),
        ("messages", json!([])),
        ("messages", json!([{ "role": "system", "content": "x" }])),
        ("messages", json!([{ "role": "user" }])),
        ("messages", json!([{ "role": "user", "content": [{}] }])),
        ("system", json!(7)),
        ("stream", json!("yes")),
        ("cache_control", json!({ "type": "ephemeral", "ttl": "2h" })),
    ] {
        let mut body = request("hello");
        body[field] = value;
        let answered = post(&simulator, PATH, &body).await?;
        assert_eq!(answered.status, 400, "{body}");
        assert_eq!(answered.json()?["error"]["type"], "invalid_request_error");
    }
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_key_and_a_version_are_wanted() -> Result<()> {
    let config = SimulatorConfig {
        credential: Some("sk-ant".into()),
        ..SimulatorConfig::default()
    };
    let simulator = Simulator::start(config).await?;
    let version = ("anthropic-version", "2023-06-01");
    for (headers, status) in [
        (vec![version, ("x-api-key", "sk-ant")], 200),
        (vec![version, ("authorization", "Bearer sk-ant")], 200),
        (
            vec![version, ("x-api-key", "sk-other"), ("authorization", "Bearer sk-ant")],
            401,
        ),
        (vec![version], 401),
        (vec![("x-api-key", "sk-ant")], 400),
    ] {
        let mut asking = Request::post(format!("{}{PATH}", simulator.base_url()));
        for (name, value) in &headers {
            asking = asking.header(*name, *value);
        }
        let answered = send(asking.body(Full::from(request("hello").to_string()))?).await?;
        assert_eq!(answered.status, status, "{headers:?}");
    }
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_stream_can_fail_within_and_keep_usage_to_itself() -> Result<()> {
    let simulator = plain().await?;
    let failed = stream(&simulator, PATH, &request("[[sim: tokens=9 error-after-chunks=2]]")).await?;
    let (name, data) = failed.events().pop().unwrap_or_default();
    assert_eq!(
        (name.as_str(), &data["type"], &data["error"]["type"]),
        ("error", &"error".into(), &"api_error".into())
    );
    assert_eq!(joined(&failed.data(), "/delta/text").split(' ').count(), 2);

    let closed = stream(&simulator, PATH, &request("[[sim: tokens=9 close-after-chunks=2]]")).await?;
    assert_eq!(closed.names().last().map(String::as_str), Some("content_block_delta"));

    let silent = stream(&simulator, PATH, &request("[[sim: no-usage]]")).await?;
    assert!(silent.names().contains(&"message_stop".to_owned()) && !silent.text.contains("usage"));
    assert!(
        !post(&simulator, PATH, &request("[[sim: no-usage]]"))
            .await?
            .text
            .contains("usage")
    );

    let said = post(&simulator, PATH, &request("[[sim: says-prompt=7 says-completion=0]]"))
        .await?
        .json()?;
    assert_eq!(
        (&said["usage"]["input_tokens"], &said["usage"]["output_tokens"]),
        (&7.into(), &0.into())
    );

    let malformed = stream(&simulator, PATH, &request("[[sim: malformed]]")).await?;
    assert!(malformed.data().iter().any(Value::is_string));
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn answers_tell_of_the_account() -> Result<()> {
    let config = SimulatorConfig {
        requests_per_minute: Some(1),
        tokens_per_minute: Some(1_000),
        ..SimulatorConfig::default()
    };
    let simulator = Simulator::start(config).await?;
    let first = post(&simulator, PATH, &request("[[sim: tokens=5]]")).await?;
    for (name, value) in [
        ("requests-limit", "1"),
        ("requests-remaining", "0"),
        ("tokens-remaining", "984"),
        ("input-tokens-limit", "1000"),
        ("input-tokens-remaining", "984"),
        ("output-tokens-remaining", "984"),
    ] {
        assert_eq!(first.headers[format!("anthropic-ratelimit-{name}")], value, "{name}");
    }
    let reset = first.headers["anthropic-ratelimit-output-tokens-reset"].to_str()?;
    assert!(chrono::DateTime::parse_from_rfc3339(reset).is_ok(), "{reset}");
    let second = post(&simulator, PATH, &request("[[sim: tokens=5]]")).await?;
    assert_eq!(second.status, 429);
    assert_eq!(second.json()?["error"]["type"], "rate_limit_error");
    assert!(second.headers.contains_key("retry-after"));
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn models_are_listed_as_either_provider_does() -> Result<()> {
    let config = SimulatorConfig {
        models: vec!["small".into(), "large".into()],
        ..SimulatorConfig::default()
    };
    let simulator = Simulator::start(config).await?;
    let asking = |name: &str| Request::get(format!("{}/models", simulator.base_url())).header(name, "2023-06-01");
    let theirs = send(asking("anthropic-version").body(Full::default())?).await?.json()?;
    assert_eq!(theirs["data"][1]["type"], "model");
    assert_eq!(
        (&theirs["first_id"], &theirs["last_id"], &theirs["has_more"]),
        (&"small".into(), &"large".into(), &false.into())
    );
    let other = send(asking("x-other").body(Full::default())?).await?.json()?;
    assert_eq!(
        (&other["object"], &other["data"][1]["id"]),
        (&"list".into(), &"large".into())
    );
    simulator.stop().await;
    Ok(())
}

//! Responses as a caller reads them.

use anyhow::Result;
use serde_json::{Value, json};

use crate::dialect::testing::{caching, joined, plain, post, stream};

const PATH: &str = "/responses";

fn request(text: &str) -> Value {
    json!({ "model": "gpt-sim", "input": text })
}

#[tokio::test]
async fn a_response_says_what_was_used() -> Result<()> {
    let simulator = plain().await?;
    let response = post(&simulator, PATH, &request("[[sim: tokens=5 reasoning=2]]"))
        .await?
        .json()?;
    assert_eq!(
        (&response["object"], &response["status"]),
        (&"response".into(), &"completed".into())
    );
    assert_eq!(response["output"][0]["type"], "reasoning");
    assert_eq!(response["output"][1]["type"], "message");
    let text = response["output"][1]["content"][0]["text"].as_str().unwrap_or_default();
    assert_eq!(text.split(' ').count(), 3);
    assert_eq!(
        response["usage"],
        json!({
            "input_tokens": 3 + 4 + 6,
            "input_tokens_details": {
                "cached_tokens": 0,
                "cache_write_tokens": 0,
                "cache_write_tokens_details": { "ttl_30m_tokens": 0, "ttl_12h_tokens": 0 },
            },
            "output_tokens": 5,
            "output_tokens_details": { "reasoning_tokens": 2 },
            "total_tokens": 18,
        })
    );
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_stream_ends_with_the_whole_response() -> Result<()> {
    let simulator = plain().await?;
    for (orders, end) in [
        ("tokens=30", "response.completed"),
        ("tokens=30 reasoning=12", "response.completed"),
        ("tokens=9 reasoning=4 show-reasoning", "response.completed"),
        ("tokens=6 reasoning=6", "response.completed"),
        ("tokens=40 tool-call", "response.completed"),
        ("tokens=60", "response.incomplete"),
        ("tokens=60 tool-call", "response.incomplete"),
        ("tokens=60 reasoning=60", "response.incomplete"),
    ] {
        let mut body = request(&format!("[[sim: {orders}]]"));
        body["max_output_tokens"] = 50.into();
        let before = simulator.stats();
        let whole = post(&simulator, PATH, &body).await?.json()?;
        let between = simulator.stats();
        let streamed = stream(&simulator, PATH, &body).await?;
        let after = simulator.stats();
        let events = streamed.events();
        for (at, (name, data)) in events.iter().enumerate() {
            assert_eq!(
                (&data["type"], &data["sequence_number"]),
                (&name.as_str().into(), &at.into())
            );
        }
        let (name, last) = &events[events.len() - 1];
        assert_eq!((name.as_str(), &last["response"]), (end, &whole), "{orders}");

        // Each item is announced, and done as it is in the end.
        let data = streamed.data();
        let places: Vec<&Value> = data
            .iter()
            .filter(|event| event["type"] == "response.output_item.done")
            .map(|event| &event["output_index"])
            .collect();
        assert_eq!(json!(places), json!((0..places.len()).collect::<Vec<_>>()), "{orders}");
        let done: Vec<&Value> = data
            .iter()
            .filter(|event| event["type"] == "response.output_item.done")
            .map(|event| &event["item"])
            .collect();
        assert_eq!(json!(done), whole["output"], "{orders}");
        let deltas = |kind: &str| joined(data.iter().filter(|event| event["type"] == kind), "/delta");
        let last_item = &done[done.len() - 1];
        let shown = [&last_item["content"][0]["text"], &last_item["arguments"]];
        let shown = shown.into_iter().find_map(Value::as_str).unwrap_or_default();
        let sent = deltas("response.output_text.delta") + &deltas("response.function_call_arguments.delta");
        assert_eq!(sent, shown, "{orders}");
        let summary = &whole["output"][0]["summary"][0]["text"];
        let sent = deltas("response.reasoning_summary_text.delta");
        assert_eq!(sent, summary.as_str().unwrap_or_default(), "{orders}");

        for (earlier, later) in [(before, between), (between, after)] {
            let sent = (
                later.prompt_tokens_sent - earlier.prompt_tokens_sent,
                later.completion_tokens_sent - earlier.completion_tokens_sent,
                later.reasoning_tokens_sent - earlier.reasoning_tokens_sent,
            );
            let usage = &whole["usage"];
            let said = (
                usage["input_tokens"].as_u64().unwrap_or_default(),
                usage["output_tokens"].as_u64().unwrap_or_default(),
                usage["output_tokens_details"]["reasoning_tokens"]
                    .as_u64()
                    .unwrap_or_default(),
            );
            assert_eq!(sent, said, "{orders}");
        }
    }
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn events_come_in_the_order_of_the_reference() -> Result<()> {
    let simulator = plain().await?;
    let mut body = request("[[sim: tokens=4 reasoning=2]]");
    body["reasoning"] = json!({ "summary": "auto" });
    let streamed = stream(&simulator, PATH, &body).await?;
    assert_eq!(
        streamed.names(),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.reasoning_summary_part.added",
            "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.done",
            "response.reasoning_summary_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    let called = stream(&simulator, PATH, &request("[[sim: tokens=4 tool-call]]")).await?;
    assert_eq!(
        called.names()[2..6],
        [
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
        ]
    );
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn an_incomplete_response_says_why() -> Result<()> {
    let simulator = plain().await?;
    let mut body = request("[[sim: tokens=50]]");
    body["max_output_tokens"] = 16.into();
    let response = post(&simulator, PATH, &body).await?.json()?;
    assert_eq!(response["status"], "incomplete");
    assert_eq!(response["incomplete_details"], json!({ "reason": "max_output_tokens" }));
    assert_eq!(response["output"][0]["status"], "incomplete");
    assert_eq!(response["usage"]["output_tokens"], 16);
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn everything_that_is_given_counts() -> Result<()> {
    let simulator = plain().await?;
    let text = |bytes: usize| "x".repeat(bytes);
    for (field, value, tokens) in [
        ("instructions", json!(text(10)), 4 + 2),
        ("tools", json!([{ "type": "function", "name": "fg" }]), 7),
        ("text", json!({ "format": { "type": "text" } }), 3),
        (
            "input",
            json!([
                { "role": "user", "content": [
                    { "type": "input_text", "text": text(5) },
                    { "type": "input_image", "image_url": text(500) },
                    { "type": "input_file", "file_data": text(500) },
                ]},
                { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": text(10) }] },
                { "type": "function_call", "call_id": "c", "name": "fghij", "arguments": "{ \"\": }" },
                { "type": "function_call_output", "call_id": "c", "output": text(13) },
                { "type": "reasoning", "id": "rs", "summary": [{ "type": "summary_text", "text": text(5) }] },
            ]),
            85 + 250 + 4 * 4 + 8 - 1 + 1,
        ),
    ] {
        let mut body = request("12345");
        body[field] = value;
        let usage = post(&simulator, PATH, &body).await?.json()?["usage"].clone();
        assert_eq!(usage["input_tokens"], 3 + 4 + 1 + tokens, "{body}");
    }
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_repeated_input_is_read_from_the_cache() -> Result<()> {
    let simulator = caching().await?;
    let body = request(&"a long system prompt ".repeat(40));
    for cached in [0, 160] {
        let usage = post(&simulator, PATH, &body).await?.json()?["usage"].clone();
        assert_eq!(usage["input_tokens_details"]["cached_tokens"], cached);
        assert_eq!(usage["input_tokens"], 175);
    }
    let body = request("[[sim: cached=2 cache-write-5m=3 cache-write-1h=4]]");
    let usage = post(&simulator, PATH, &body).await?.json()?["usage"].clone();
    assert_eq!(usage["input_tokens_details"]["cached_tokens"], 2);
    assert_eq!(usage["input_tokens_details"]["cache_write_tokens"], 7);
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_stream_can_fail_within_and_keep_usage_to_itself() -> Result<()> {
    let simulator = plain().await?;
    let failed = stream(&simulator, PATH, &request("[[sim: tokens=9 error-after-chunks=2]]")).await?;
    let events = failed.events();
    let (name, data) = &events[events.len() - 1];
    assert_eq!((name.as_str(), &data["type"]), ("error", &"error".into()));
    assert_eq!(data["error"]["code"], "ordered_failure");
    assert_eq!(data["sequence_number"], events.len() - 1);

    let orders = "[[sim: tokens=9 error-after-chunks=2 response-failed]]";
    let failed = stream(&simulator, PATH, &request(orders)).await?;
    let (name, data) = failed.events().pop().unwrap_or_default();
    assert_eq!(
        (name.as_str(), &data["response"]["status"]),
        ("response.failed", &"failed".into())
    );
    assert_eq!(data["response"]["error"]["code"], "server_error");

    let silent = stream(&simulator, PATH, &request("[[sim: no-usage]]")).await?;
    assert!(silent.text.contains("response.completed") && !silent.text.contains("usage"));
    assert!(!silent.text.contains("[DONE]"));
    assert!(
        !post(&simulator, PATH, &request("[[sim: no-usage]]"))
            .await?
            .text
            .contains("usage")
    );

    let malformed = stream(&simulator, PATH, &request("[[sim: malformed]]")).await?;
    assert!(malformed.data().iter().any(Value::is_string));
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn what_is_missing_or_wrong_is_refused() -> Result<()> {
    let simulator = plain().await?;
    for (field, value) in [
        ("model", Value::Null),
        ("input", Value::Null),
        ("input", json!(7)),
        ("input", json!(["text"])),
        ("instructions", json!(7)),
        ("max_output_tokens", json!(15)),
        ("previous_response_id", json!("resp_1")),
        ("tools", json!("speak")),
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

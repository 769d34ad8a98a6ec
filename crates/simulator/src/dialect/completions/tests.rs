//! Completions as a caller reads them.

use anyhow::Result;
use serde_json::{Value, json};

use crate::dialect::testing::{joined, plain, post, stream};

const PATH: &str = "/completions";

fn request(prompt: Value) -> Value {
    json!({ "model": "gpt-sim", "prompt": prompt, "max_tokens": 100 })
}

fn words(choice: &Value) -> usize {
    choice["text"].as_str().map_or(0, |text| text.split(' ').count())
}

#[tokio::test]
async fn a_prompt_has_all_four_shapes() -> Result<()> {
    let simulator = plain().await?;
    for (prompt, choices, prompt_tokens) in [
        (json!("[[sim: tokens=5]]"), 1, 3 + 4 + 4),
        (json!(["[[sim: tokens=5]]", "12345"]), 2, 3 + 8 + 5),
        (json!([1, 2, 3]), 1, 3 + 4 + 3),
        (json!([[1, 2, 3], [4]]), 2, 3 + 8 + 4),
        (Value::Null, 1, 3 + 4 + 3),
    ] {
        let body = post(&simulator, PATH, &request(prompt.clone())).await?.json()?;
        assert_eq!(body["object"], "text_completion");
        assert_eq!(body["choices"].as_array().map(Vec::len), Some(choices), "{prompt}");
        assert_eq!(body["usage"]["prompt_tokens"], prompt_tokens, "{prompt}");
    }
    for prompt in [json!(7), json!([]), json!([[]]), json!(["text", 7]), json!([1.5])] {
        assert_eq!(
            post(&simulator, PATH, &request(prompt.clone())).await?.status,
            400,
            "{prompt}"
        );
    }
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn each_prompt_has_its_choices_and_all_that_is_generated_is_billed() -> Result<()> {
    let simulator = plain().await?;
    let mut body = request(json!(["one [[sim: tokens=5]]", "two"]));
    body["n"] = 2.into();
    body["best_of"] = 3.into();
    let answered = post(&simulator, PATH, &body).await?.json()?;
    let choices = answered["choices"].as_array().cloned().unwrap_or_default();
    let indices: Vec<&Value> = choices.iter().map(|choice| &choice["index"]).collect();
    assert_eq!(json!(indices), json!([0, 1, 2, 3]));
    assert!(
        choices
            .iter()
            .all(|choice| words(choice) == 5 && choice["finish_reason"] == "stop")
    );
    assert_eq!(answered["usage"]["completion_tokens"], 2 * 3 * 5);
    assert_eq!(simulator.stats().completion_tokens_sent, 30);
    assert_eq!(stream(&simulator, PATH, &body).await?.status, 400);
    body["best_of"] = 1.into();
    assert_eq!(post(&simulator, PATH, &body).await?.status, 400);
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn sixteen_tokens_are_generated_unless_told_otherwise() -> Result<()> {
    let simulator = plain().await?;
    for (max_tokens, tokens) in [(Value::Null, 16), (json!(7), 7), (json!(0), 0)] {
        let mut body = request(json!("[[sim: tokens=50]]"));
        body["max_tokens"] = max_tokens;
        let answered = post(&simulator, PATH, &body).await?.json()?;
        assert_eq!(answered["usage"]["completion_tokens"], tokens);
        assert_eq!(answered["choices"][0]["finish_reason"], "length");
    }
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_prompt_is_echoed_and_not_billed() -> Result<()> {
    let simulator = plain().await?;
    for prompt in [json!("[[sim: tokens=5]] "), json!([1, 2, 3])] {
        let mut body = request(prompt.clone());
        let plain = post(&simulator, PATH, &body).await?.json()?;
        body["echo"] = true.into();
        let echoed = post(&simulator, PATH, &body).await?.json()?;
        let text = |body: &Value| body["choices"][0]["text"].as_str().unwrap_or_default().to_owned();
        let echo = text(&echoed);
        assert!(
            echo.len() > text(&plain).len() && echo.ends_with(&text(&plain)),
            "{echo}"
        );
        assert!(prompt.as_str().is_none_or(|prompt| echo.starts_with(prompt)));
        assert_eq!(echoed["usage"], plain["usage"]);
        assert_eq!(
            joined(&stream(&simulator, PATH, &body).await?.data(), "/choices/0/text"),
            echo
        );
    }
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_stream_says_the_same_as_a_whole_completion() -> Result<()> {
    let simulator = plain().await?;
    for orders in [
        "tokens=30",
        "tokens=30 reasoning=12",
        "tokens=4 tool-call",
        "tokens=200",
    ] {
        let mut body = request(json!([format!("[[sim: {orders}]]"), "two"]));
        let whole = post(&simulator, PATH, &body).await?.json()?;
        let between = simulator.stats();
        body["stream_options"] = json!({ "include_usage": true });
        let streamed = stream(&simulator, PATH, &body).await?;
        let after = simulator.stats();
        let mut events = streamed.data();
        assert_eq!(events.pop(), Some("[DONE]".into()));
        let usage = events.pop().unwrap_or_default();
        assert_eq!((&usage["choices"], &usage["usage"]), (&json!([]), &whole["usage"]));
        assert!(
            events
                .iter()
                .all(|event| event["usage"].is_null() && event["object"] == "text_completion")
        );
        for (index, choice) in whole["choices"].as_array().into_iter().flatten().enumerate() {
            let of_choice: Vec<&Value> = events
                .iter()
                .filter(|event| event["choices"][0]["index"] == index)
                .collect();
            assert_eq!(
                joined(of_choice.iter().copied(), "/choices/0/text"),
                choice["text"],
                "{orders}"
            );
            assert_eq!(
                of_choice.last().map(|event| &event["choices"][0]["finish_reason"]),
                Some(&choice["finish_reason"])
            );
        }
        let sent = after.completion_tokens_sent - between.completion_tokens_sent;
        assert_eq!(whole["usage"]["completion_tokens"], sent, "{orders}");
    }
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_stream_can_fail_within_and_keep_usage_to_itself() -> Result<()> {
    let simulator = plain().await?;
    let failed = stream(
        &simulator,
        PATH,
        &request(json!("[[sim: tokens=9 error-after-chunks=2]]")),
    )
    .await?;
    let events = failed.data();
    assert_eq!(events[events.len() - 1]["error"]["type"], "server_error");
    assert_eq!(events.len(), 3);
    let mut body = request(json!("[[sim: no-usage]]"));
    body["stream_options"] = json!({ "include_usage": true });
    assert!(!stream(&simulator, PATH, &body).await?.text.contains("usage"));
    let each = stream(&simulator, PATH, &request(json!("[[sim: tokens=4 usage-each-chunk]]"))).await?;
    assert_eq!(each.data()[3]["usage"]["completion_tokens"], 4);
    simulator.stop().await;
    Ok(())
}

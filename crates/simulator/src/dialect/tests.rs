//! What holds in every dialect: orders, failures, the account, the counters.

use anyhow::Result;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

use super::testing::{plain, post, post_with, send, stream};
use crate::{Simulator, SimulatorConfig};

/// The path of each dialect, and a request to it.
fn dialects(text: &str) -> Vec<(&'static str, Value)> {
    let messages = json!([{ "role": "user", "content": text }]);
    vec![
        ("/chat/completions", json!({ "model": "sim", "messages": messages })),
        ("/completions", json!({ "model": "sim", "prompt": text })),
        ("/responses", json!({ "model": "sim", "input": text })),
        ("/embeddings", json!({ "model": "sim", "input": text })),
        (
            "/messages",
            json!({ "model": "sim", "messages": messages, "max_tokens": 1_000 }),
        ),
        (
            "/messages/count_tokens",
            json!({ "model": "sim", "messages": messages }),
        ),
    ]
}

/// Those that can answer in a stream.
fn streaming(text: &str) -> Vec<(&'static str, Value)> {
    let mut dialects = dialects(text);
    dialects.retain(|(path, _)| !matches!(*path, "/embeddings" | "/messages/count_tokens"));
    dialects
}

#[tokio::test]
async fn orders_come_by_text_header_suffix_and_script() -> Result<()> {
    let simulator = plain().await?;
    for (path, body) in dialects("hello") {
        assert_eq!(post(&simulator, path, &body).await?.status, 200, "{path}");
        let by_header = post_with(&simulator, path, &body, Some(("x-simulator", "status=503"))).await?;
        assert_eq!(by_header.status, 503, "{path}");
        let mut by_suffix = body.clone();
        by_suffix["model"] = "sim@status=418".into();
        assert_eq!(post(&simulator, path, &by_suffix).await?.status, 418, "{path}");
        simulator.script(["status=504"])?;
        assert_eq!(post(&simulator, path, &body).await?.status, 504, "{path}");
    }
    for (path, body) in dialects("[[sim: status=429 retry-after=7]]") {
        let by_text = post(&simulator, path, &body).await?;
        assert_eq!(by_text.status, 429, "{path}");
        assert_eq!(by_text.headers["retry-after"], "7", "{path}");
    }
    for (path, body) in dialects("[[sim: statos=429]]") {
        assert_eq!(post(&simulator, path, &body).await?.status, 400, "{path}");
    }
    let stats = simulator.stats();
    assert_eq!((stats.requests_finished, stats.requests_failed), (36, 30));
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn keys_models_and_json_are_checked() -> Result<()> {
    let config = SimulatorConfig {
        models: vec!["other".into()],
        ..SimulatorConfig::default()
    };
    let simulator = Simulator::start(config).await?;
    for (path, body) in dialects("hello") {
        assert_eq!(post(&simulator, path, &body).await?.status, 404, "{path}");
        assert_eq!(post(&simulator, path, &json!([body])).await?.status, 400, "{path}");
    }
    simulator.stop().await;
    let config = SimulatorConfig {
        credential: Some("sk-other".into()),
        ..SimulatorConfig::default()
    };
    let simulator = Simulator::start(config).await?;
    for (path, body) in dialects("hello") {
        let refused = post(&simulator, path, &body).await?;
        assert_eq!(refused.status, 401, "{path}");
        let is_theirs = path.starts_with("/messages");
        assert_eq!(refused.json()?["type"] == "error", is_theirs, "{path}");
    }
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_body_beyond_all_bounds_is_refused_in_the_dialect() -> Result<()> {
    let simulator = plain().await?;
    let body = Bytes::from(vec![b' '; crate::BODY_BYTES_MAX + 1]);
    for (path, kind) in [
        ("/messages", "request_too_large"),
        ("/responses", "invalid_request_error"),
    ] {
        let asking = Request::post(format!("{}{path}", simulator.base_url())).header("anthropic-version", "2023-06-01");
        let refused = send(asking.body(Full::from(body.clone()))?).await?;
        assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(refused.json()?["error"]["type"], kind);
    }
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn connections_break_before_and_within_an_answer() -> Result<()> {
    let simulator = plain().await?;
    for (path, body) in dialects("[[sim: reset]]") {
        assert!(post(&simulator, path, &body).await.is_err(), "{path}");
    }
    for (path, body) in streaming("[[sim: tokens=9 reset-after-chunks=3]]") {
        assert!(stream(&simulator, path, &body).await.is_err(), "{path}");
    }
    let stats = simulator.wait_until(|stats| stats.requests_in_flight == 0).await;
    assert_eq!((stats.requests_aborted, stats.completion_tokens_sent), (10, 4 * 3));
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn requests_are_held_before_and_within_an_answer() -> Result<()> {
    let simulator = plain().await?;
    for (path, body) in dialects("[[sim: hold]]") {
        let release = async {
            simulator.wait_parked(1).await;
            simulator.release_all();
        };
        let (answered, ()) = tokio::join!(post(&simulator, path, &body), release);
        assert_eq!(answered?.status, 200, "{path}");
    }
    for (path, body) in streaming("[[sim: tokens=9 hold-after-chunks=3]]") {
        let before = simulator.stats();
        let release = async {
            let parked = simulator.wait_until(|stats| stats.requests_parked == 1).await;
            simulator.release_all();
            parked.completion_tokens_sent - before.completion_tokens_sent
        };
        let (answered, sent) = tokio::join!(stream(&simulator, path, &body), release);
        assert_eq!((answered?.status.as_u16(), sent), (200, 3), "{path}");
    }
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn the_account_is_one_for_all_dialects() -> Result<()> {
    for (path, mut body) in dialects("hello") {
        if path.ends_with("count_tokens") {
            continue;
        }
        body["metadata"] = json!({ "user_id": "ada" });
        let config = SimulatorConfig {
            requests_per_minute: Some(1),
            arrivals_kept: 2,
            ..SimulatorConfig::default()
        };
        let simulator = Simulator::start(config).await?;
        assert_eq!(post(&simulator, path, &body).await?.status, 200, "{path}");
        for (other, body) in dialects("hello") {
            let is_free = other.ends_with("count_tokens");
            let expected = if is_free { 200 } else { 429 };
            assert_eq!(
                post(&simulator, other, &body).await?.status,
                expected,
                "{other} after {path}"
            );
        }
        assert_eq!(simulator.stats().requests_limited, 5);
        simulator.stop().await;

        let simulator = plain_with_traffic().await?;
        post(&simulator, path, &body).await?;
        let traffic = simulator.traffic();
        let arrival = traffic.arrivals().next().cloned();
        let sent = simulator.stats();
        let tokens = sent.prompt_tokens_sent + sent.completion_tokens_sent;
        assert_eq!(arrival.as_ref().map(|arrival| arrival.tokens), Some(tokens), "{path}");
        assert_eq!(
            arrival.and_then(|arrival| arrival.user).as_deref(),
            Some("ada"),
            "{path}"
        );
        simulator.stop().await;
    }
    Ok(())
}

async fn plain_with_traffic() -> Result<Simulator> {
    let config = SimulatorConfig {
        arrivals_kept: 2,
        ..SimulatorConfig::default()
    };
    Ok(Simulator::start(config).await?)
}

#[tokio::test]
async fn malformed_answers_are_no_json() -> Result<()> {
    let simulator = plain().await?;
    for (path, body) in dialects("[[sim: malformed content-type=text/html]]") {
        let answered = post(&simulator, path, &body).await?;
        assert!(answered.status == 200 && answered.json().is_err(), "{path}");
        assert_eq!(answered.headers["content-type"], "text/html", "{path}");
    }
    for (path, body) in streaming("[[sim: malformed]]") {
        let events = stream(&simulator, path, &body).await?.data();
        let broken = events
            .iter()
            .filter(|data| data.as_str().is_some_and(|text| text.contains("oops")));
        assert!(broken.count() > 0, "{path}");
    }
    simulator.stop().await;
    Ok(())
}

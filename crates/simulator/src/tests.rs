//! The provider as a caller over HTTP sees it.

use anyhow::Result;
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use protocol::endpoint::Endpoint;
use protocol::sse::SseFramer;
use protocol::usage::{AnswerUsage, StreamUsage};
use serde_json::{Value, json};

use super::{Behaviour, Counting, Simulator, SimulatorConfig};

type Caller = Client<HttpConnector, Full<Bytes>>;

fn caller() -> Caller {
    Client::builder(TokioExecutor::new()).build_http()
}

async fn send(caller: &Caller, simulator: &Simulator, body: &Value) -> Result<http::Response<Incoming>> {
    let request = Request::post(format!("{}/chat/completions", simulator.base_url()))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::AUTHORIZATION, "Bearer sk-upstream")
        .body(Full::from(body.to_string()))?;
    Ok(caller.request(request).await?)
}

fn request(content: &str) -> Value {
    json!({ "model": "gpt-sim", "messages": [{ "role": "user", "content": content }] })
}

fn streamed(content: &str) -> Value {
    let mut body = request(content);
    body["stream"] = true.into();
    body["stream_options"] = json!({ "include_usage": true });
    body
}

/// All events of a stream as far as they came, and how it ended.
async fn read_stream(response: http::Response<Incoming>) -> (StreamUsage, Vec<Bytes>, Option<hyper::Error>) {
    let (mut seen, mut raw, mut framer) = (StreamUsage::of(Endpoint::ChatCompletions), Vec::new(), SseFramer::new());
    let mut body = response.into_body();
    let error = loop {
        match body.frame().await {
            None => break None,
            Some(Err(error)) => break Some(error),
            Some(Ok(frame)) => {
                framer.push(frame.into_data().unwrap_or_default());
                while let Ok(Some(event)) = framer.next_event() {
                    seen.observe(event.data.as_deref().unwrap_or_default());
                    raw.push(event.raw);
                }
            }
        }
    };
    (seen, raw, error)
}

#[tokio::test]
async fn the_same_request_is_answered_the_same_way() -> Result<()> {
    let simulator = Simulator::start(SimulatorConfig::default()).await?;
    let first = send(&caller(), &simulator, &request("hello"))
        .await?
        .into_body()
        .collect()
        .await?
        .to_bytes();
    let second = send(&caller(), &simulator, &request("hello"))
        .await?
        .into_body()
        .collect()
        .await?
        .to_bytes();
    let other = send(&caller(), &simulator, &request("hello?"))
        .await?
        .into_body()
        .collect()
        .await?
        .to_bytes();
    assert_eq!(first, second);
    assert_ne!(first, other);
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_stream_says_the_same_as_a_whole_answer_of_that_length() -> Result<()> {
    let simulator = Simulator::start(SimulatorConfig::default()).await?;
    for orders in [
        "tokens=30",
        "tokens=30 reasoning=12",
        "tokens=9 reasoning=4 show-reasoning",
        "tokens=40 tool-call",
        "tokens=1 tool-call",
    ] {
        let text = format!("[[sim: {orders}]]");
        let before = simulator.stats();
        let (seen, _, error) = read_stream(send(&caller(), &simulator, &streamed(&text)).await?).await;
        assert!(error.is_none() && seen.is_done && seen.has_finish_reason);
        let streamed = seen.reported.to_usage();
        let body = send(&caller(), &simulator, &request(&text))
            .await?
            .into_body()
            .collect()
            .await?
            .to_bytes();
        let whole = AnswerUsage::read(Endpoint::ChatCompletions, &body).reported.to_usage();
        assert_eq!(streamed, whole, "{orders}");
        let usage = whole.unwrap_or_default();
        let after = simulator.stats();
        assert_eq!(
            (
                after.prompt_tokens_sent - before.prompt_tokens_sent,
                after.completion_tokens_sent - before.completion_tokens_sent,
                after.reasoning_tokens_sent - before.reasoning_tokens_sent,
            ),
            (
                2 * usage.input_tokens(),
                2 * usage.output_tokens,
                2 * usage.reasoning_tokens
            ),
            "{orders}"
        );
    }
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn usage_comes_in_a_stream_only_when_asked() -> Result<()> {
    let simulator = Simulator::start(SimulatorConfig::default()).await?;
    let mut body = streamed("hello");
    body["stream_options"] = Value::Null;
    let (seen, raw, _) = read_stream(send(&caller(), &simulator, &body).await?).await;
    assert!(seen.is_done && seen.reported.is_empty());
    assert!(
        !raw.iter()
            .any(|event| event.windows(7).any(|window| window == b"\"usage\""))
    );
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn the_output_cap_is_obeyed() -> Result<()> {
    let simulator = Simulator::start(SimulatorConfig::default()).await?;
    let mut body = request("[[sim: tokens=500]]");
    body["max_tokens"] = 7.into();
    let answer = send(&caller(), &simulator, &body)
        .await?
        .into_body()
        .collect()
        .await?
        .to_bytes();
    assert_eq!(
        AnswerUsage::read(Endpoint::ChatCompletions, &answer)
            .reported
            .output_tokens,
        Some(7)
    );
    let answer: Value = serde_json::from_slice(&answer)?;
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn failures_come_in_the_order_of_the_script() -> Result<()> {
    let simulator = Simulator::start(SimulatorConfig::default()).await?;
    simulator.script(["status=429 retry-after=7", "status=500", ""])?;
    let caller = caller();
    let first = send(&caller, &simulator, &request("hello")).await?;
    assert_eq!(
        (first.status(), &first.headers()["retry-after"]),
        (StatusCode::TOO_MANY_REQUESTS, &"7".parse()?)
    );
    assert_eq!(send(&caller, &simulator, &request("hello")).await?.status(), 500);
    assert_eq!(send(&caller, &simulator, &request("hello")).await?.status(), 200);
    assert!(simulator.script(["statos=500"]).is_err());
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn only_the_expected_credential_and_known_models_are_served() -> Result<()> {
    let config = SimulatorConfig {
        credential: Some("sk-other".into()),
        ..SimulatorConfig::default()
    };
    let simulator = Simulator::start(config).await?;
    assert_eq!(send(&caller(), &simulator, &request("hello")).await?.status(), 401);
    simulator.stop().await;

    let config = SimulatorConfig {
        models: vec!["small".into()],
        ..SimulatorConfig::default()
    };
    let simulator = Simulator::start(config).await?;
    assert_eq!(send(&caller(), &simulator, &request("hello")).await?.status(), 404);
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn resets_are_errors_before_and_within_an_answer() -> Result<()> {
    let simulator = Simulator::start(SimulatorConfig::default()).await?;
    assert!(send(&caller(), &simulator, &request("[[sim: reset]]")).await.is_err());
    let response = send(
        &caller(),
        &simulator,
        &streamed("[[sim: tokens=20 reset-after-chunks=3]]"),
    )
    .await?;
    let (seen, _, error) = read_stream(response).await;
    assert!(error.is_some() && !seen.is_finished());
    assert_eq!(seen.output.pieces, 3);
    let stats = simulator.wait_until(|stats| stats.requests_in_flight == 0).await;
    assert_eq!((stats.requests_aborted, stats.completion_tokens_sent), (2, 3));
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn errors_and_early_ends_within_a_stream() -> Result<()> {
    let simulator = Simulator::start(SimulatorConfig::default()).await?;
    let response = send(&caller(), &simulator, &streamed("[[sim: error-after-chunks=2]]")).await?;
    let (seen, _, _) = read_stream(response).await;
    assert!(seen.error.is_some() && !seen.is_finished() && seen.output.pieces == 2);
    let response = send(&caller(), &simulator, &streamed("[[sim: close-after-chunks=2]]")).await?;
    let (seen, _, error) = read_stream(response).await;
    assert!(error.is_none() && seen.error.is_none() && !seen.is_finished() && seen.reported.is_empty());
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn held_requests_wait_until_they_are_released() -> Result<()> {
    let simulator = Simulator::start(SimulatorConfig::default()).await?;
    let caller = caller();
    let (body, within) = (request("[[sim: hold]]"), streamed("[[sim: hold-after-chunks=2]]"));
    let calls = async {
        tokio::try_join!(
            send(&caller, &simulator, &body),
            send(&caller, &simulator, &body),
            async { Ok(read_stream(send(&caller, &simulator, &within).await?).await) }
        )
    };
    let release = async {
        simulator.wait_parked(3).await;
        assert_eq!(simulator.stats().requests_in_flight, 3);
        simulator.release_all();
    };
    let (calls, ()) = tokio::join!(calls, release);
    let (first, second, (seen, _, _)) = calls?;
    assert!(first.status().is_success() && second.status().is_success() && seen.is_done);
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_closed_gate_parks_everything() -> Result<()> {
    let simulator = Simulator::start(SimulatorConfig::default()).await?;
    simulator.hold();
    let (caller, body) = (caller(), request("hello"));
    let release = async {
        simulator.wait_parked(1).await;
        simulator.release_all();
    };
    let (response, ()) = tokio::join!(send(&caller, &simulator, &body), release);
    assert!(response?.status().is_success());
    assert!(send(&caller, &simulator, &body).await?.status().is_success());
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_caller_that_leaves_counts_as_aborted() -> Result<()> {
    let simulator = Simulator::start(SimulatorConfig::default()).await?;
    let response = send(&caller(), &simulator, &streamed("[[sim: hold-after-chunks=2]]")).await?;
    simulator.wait_parked(1).await;
    drop(response);
    let stats = simulator.wait_until(|stats| stats.requests_in_flight == 0).await;
    assert_eq!(
        (stats.requests_aborted, stats.requests_finished, stats.requests_parked),
        (1, 0, 0)
    );

    // Also one that leaves before the first byte.
    let caller = caller();
    let body = request("[[sim: silence]]");
    tokio::select! {
        _ = send(&caller, &simulator, &body) => panic!("silence does not answer"),
        _ = simulator.wait_until(|stats| stats.requests_received == 2) => {}
    }
    drop(caller);
    let stats = simulator.wait_until(|stats| stats.requests_in_flight == 0).await;
    assert_eq!(stats.requests_aborted, 2);
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_repeated_prompt_is_read_from_the_cache() -> Result<()> {
    let config = SimulatorConfig {
        caches_prompts: true,
        ..SimulatorConfig::default()
    };
    let simulator = Simulator::start(config).await?;
    let body = request(&"a long system prompt ".repeat(40));
    let mut cached = Vec::new();
    for _ in 0..2 {
        let answer = send(&caller(), &simulator, &body)
            .await?
            .into_body()
            .collect()
            .await?
            .to_bytes();
        cached.push(
            AnswerUsage::read(Endpoint::ChatCompletions, &answer)
                .reported
                .cached_tokens,
        );
    }
    assert_eq!(cached, [Some(0), Some(160)]);
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn the_account_refuses_beyond_its_minute() -> Result<()> {
    let config = SimulatorConfig {
        requests_per_minute: Some(1),
        ..SimulatorConfig::default()
    };
    let simulator = Simulator::start(config).await?;
    let first = send(&caller(), &simulator, &request("hello")).await?;
    assert_eq!(first.headers()["x-ratelimit-remaining-requests"], "0");
    let second = send(&caller(), &simulator, &request("hello")).await?;
    assert_eq!(second.status(), 429);
    assert!(second.headers().contains_key("retry-after"));
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn the_account_counts_what_is_answered_when_it_arrives() -> Result<()> {
    let config = SimulatorConfig {
        requests_per_minute: Some(2),
        tokens_per_minute: Some(1_000),
        counting: Counting::SlidingWindow,
        arrivals_kept: 10,
        ..SimulatorConfig::default()
    };
    let simulator = Simulator::start(config).await?;
    let caller = caller();
    let mut body = request("[[sim: tokens=5]]");
    body["user"] = "ada".into();
    let first = send(&caller, &simulator, &body).await?;
    assert_eq!(first.status(), 200);
    assert_eq!(first.headers()["x-ratelimit-remaining-tokens"], "984");
    // What is ordered to fail takes nothing.
    assert_eq!(
        send(&caller, &simulator, &request("[[sim: status=500]]"))
            .await?
            .status(),
        500
    );
    let held = request("[[sim: hold]]");
    let refused = async {
        simulator.wait_parked(1).await;
        // The one that still waits has taken the last place, and a refusal does not keep anyone waiting.
        let another = request("[[sim: anthropic-headers first-byte-ms=600000]]");
        let response = send(&caller, &simulator, &another).await?;
        simulator.release_all();
        anyhow::Ok(response)
    };
    let (held, refused) = tokio::try_join!(send(&caller, &simulator, &held), refused)?;
    assert_eq!((held.status().as_u16(), refused.status().as_u16()), (200, 429));
    assert_eq!(refused.headers()["retry-after"], "60");
    assert_eq!(refused.headers()["anthropic-ratelimit-requests-remaining"], "0");
    assert!(!refused.headers().contains_key("x-ratelimit-remaining-requests"));
    assert_eq!(simulator.stats().requests_limited, 1);
    let traffic = simulator.traffic();
    let seen: Vec<_> = traffic
        .arrivals()
        .map(|arrival| (arrival.user.as_deref(), arrival.is_admitted))
        .collect();
    assert_eq!(seen, [(Some("ada"), true), (None, true), (None, false)]);
    assert_eq!(
        traffic.arrivals().next().map(|arrival| arrival.tokens),
        Some(3 + 4 + 4 + 5)
    );
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_share_of_the_requests_fails_and_the_same_ones_each_time() -> Result<()> {
    let mut seen = Vec::new();
    for seed in [1, 1, 2] {
        let mut behaviour = Behaviour::default();
        behaviour.apply("fail-share=0.3 status=503")?;
        let config = SimulatorConfig {
            behaviour,
            seed,
            ..SimulatorConfig::default()
        };
        let simulator = Simulator::start(config).await?;
        let caller = caller();
        let mut failed = Vec::new();
        for _ in 0..200 {
            failed.push(send(&caller, &simulator, &request("hello")).await?.status() == 503);
        }
        simulator.stop().await;
        let count = failed.iter().filter(|failed| **failed).count();
        assert!((40..=80).contains(&count), "{count}");
        seen.push(failed);
    }
    assert!(seen[0] == seen[1] && seen[0] != seen[2]);
    Ok(())
}

#[tokio::test]
async fn stats_can_be_read_over_http() -> Result<()> {
    let simulator = Simulator::start(SimulatorConfig::default()).await?;
    send(&caller(), &simulator, &request("hello"))
        .await?
        .into_body()
        .collect()
        .await?;
    let address = format!("http://{}/simulator/stats", simulator.address());
    let body = caller()
        .get(address.parse()?)
        .await?
        .into_body()
        .collect()
        .await?
        .to_bytes();
    let stats: Value = serde_json::from_slice(&body)?;
    assert_eq!(stats["requests_finished"], 1);
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn options_that_it_shall_not_know_are_refused() -> Result<()> {
    let simulator = Simulator::start(SimulatorConfig::default()).await?;
    let response = send(&caller(), &simulator, &streamed("[[sim: reject-stream-options]]")).await?;
    assert_eq!(response.status(), 400);
    let body = response.into_body().collect().await?.to_bytes();
    assert!(protocol::errors::UpstreamError::read(&body).is_about_stream_options());
    simulator.stop().await;
    Ok(())
}

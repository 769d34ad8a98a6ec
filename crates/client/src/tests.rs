//! The client against a simulated provider that fails as ordered.

use std::time::Duration;

use anyhow::{Context, Result};
use simulator::{Behaviour, Simulator, SimulatorConfig};

use super::{CallError, ChatRequest, Client, Retries, Settings, SettingsError};

async fn simulator() -> Result<Simulator> {
    let config = SimulatorConfig {
        credential: Some("sk-tg-test".into()),
        ..SimulatorConfig::default()
    };
    Ok(Simulator::start(config).await?)
}

/// Retries at once, so that no test waits.
fn client(simulator: &Simulator) -> Result<Client> {
    let settings = Settings {
        timeout: Duration::from_secs(20),
        retries: Retries {
            retries_max: 2,
            first_ms: 0,
            longest_ms: 0,
        },
    };
    Ok(Client::with_settings(&simulator.base_url(), "sk-tg-test", settings)?)
}

fn ask(text: &str) -> ChatRequest {
    ChatRequest::new("gpt-sim").system("Be brief.").user(text)
}

#[tokio::test]
async fn a_whole_answer_and_a_stream_say_the_same() -> Result<()> {
    let simulator = simulator().await?;
    let client = client(&simulator)?;
    let request = ask("[[sim: tokens=30 reasoning=10 show-reasoning]]").output_tokens_max(25);
    let answer = client.chat(&request).await?;
    assert_eq!(answer.finish_reason.as_deref(), Some("length"));
    let usage = answer.usage.context("usage is reported")?;
    assert_eq!((usage.output_tokens, usage.reasoning_tokens), (25, 10));
    assert!(answer.request_id.is_some());

    let mut stream = client.chat_stream(&request).await?;
    let (mut text, mut reasoning) = (String::new(), String::new());
    while let Some(chunk) = stream.next().await? {
        text += &chunk.text;
        reasoning += &chunk.reasoning;
    }
    assert_eq!(text.split(' ').count(), 15);
    assert_eq!(reasoning.split(' ').count(), 10);
    assert_eq!(stream.usage(), Some(usage));
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn passing_refusals_are_waited_for() -> Result<()> {
    let simulator = simulator().await?;
    simulator.script(["status=429", "status=503 retry-after=0"])?;
    assert!(client(&simulator)?.chat(&ask("hello")).await.is_ok());
    assert_eq!(simulator.stats().requests_received, 3);
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn retries_are_bounded() -> Result<()> {
    let simulator = simulator().await?;
    let error = client(&simulator)?.chat(&ask("[[sim: status=429]]")).await;
    assert!(matches!(error, Err(CallError::RateLimited(_))), "{error:?}");
    assert_eq!(simulator.stats().requests_received, 3);
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_wait_longer_than_the_time_out_is_told_at_once() -> Result<()> {
    let simulator = simulator().await?;
    let error = client(&simulator)?
        .chat(&ask("[[sim: status=429 retry-after=70]]"))
        .await;
    let refusal = error.as_ref().err().and_then(CallError::refusal);
    assert_eq!(
        refusal.and_then(|refusal| refusal.retry_after),
        Some(Duration::from_secs(70))
    );
    assert_eq!(simulator.stats().requests_received, 1);
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_wrong_key_is_not_tried_again() -> Result<()> {
    let simulator = simulator().await?;
    let client = Client::new(&simulator.base_url(), "sk-tg-other")?;
    let error = client.chat(&ask("hello")).await;
    let Err(CallError::Rejected(refusal)) = error else {
        panic!("{error:?}");
    };
    assert_eq!(
        (refusal.status, refusal.code.as_deref()),
        (401, Some("invalid_api_key"))
    );
    assert_eq!(simulator.stats().requests_received, 1);
    assert!(!format!("{client:?}").contains("sk-tg-other"));
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_lost_connection_is_not_tried_again_because_it_may_have_been_charged() -> Result<()> {
    let simulator = simulator().await?;
    let error = client(&simulator)?.chat(&ask("[[sim: reset]]")).await;
    assert!(matches!(error, Err(CallError::Connection(_))), "{error:?}");
    assert_eq!(simulator.stats().requests_received, 1);
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn nobody_listening_is_a_failed_connection() -> Result<()> {
    let simulator = simulator().await?;
    let client = client(&simulator)?;
    simulator.stop().await;
    let error = client.chat(&ask("hello")).await;
    assert!(matches!(error, Err(CallError::Connection(_))), "{error:?}");
    Ok(())
}

#[tokio::test]
async fn a_retry_says_how_many_went_before_it() -> Result<()> {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    let base_url = format!("http://{}/v1", listener.local_addr()?);
    let counts = std::sync::Arc::clone(&seen);
    // A server that has nothing but refusals, and closes after each.
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let counts = std::sync::Arc::clone(&counts);
            let refuse = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let count = protocol::headers::caller_retries(request.headers());
                counts.lock().map(|mut counts| counts.push(count)).ok();
                let body = http_body_util::Full::<bytes::Bytes>::from("busy");
                async move { http::Response::builder().status(503).body(body) }
            });
            let io = hyper_util::rt::TokioIo::new(stream);
            let _ = hyper::server::conn::http1::Builder::new()
                .keep_alive(false)
                .serve_connection(io, refuse)
                .await;
        }
    });
    let settings = Settings {
        timeout: Duration::from_secs(20),
        retries: Retries {
            retries_max: 2,
            first_ms: 0,
            longest_ms: 0,
        },
    };
    let error = Client::with_settings(&base_url, "any", settings)?
        .chat(&ask("hello"))
        .await;
    server.abort();
    let Err(CallError::Unavailable(refusal)) = error else {
        panic!("{error:?}");
    };
    assert_eq!((refusal.status, refusal.message.as_str()), (503, "Service Unavailable"));
    let counts = seen.lock().map(|counts| counts.clone()).unwrap_or_default();
    assert_eq!(counts, [Some(0), Some(1), Some(2)]);
    Ok(())
}

#[tokio::test]
async fn silence_ends_with_the_time_out() -> Result<()> {
    let behaviour = Behaviour {
        is_silent: true,
        ..Behaviour::default()
    };
    let simulator = Simulator::start(SimulatorConfig {
        behaviour,
        ..SimulatorConfig::default()
    })
    .await?;
    let settings = Settings {
        timeout: Duration::from_millis(50),
        ..Settings::default()
    };
    let client = Client::with_settings(&simulator.base_url(), "any", settings)?;
    let error = client.chat(&ask("hello")).await;
    assert!(matches!(error, Err(CallError::TimedOut(_))), "{error:?}");
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn streams_that_do_not_end_well_say_so() -> Result<()> {
    let simulator = simulator().await?;
    let client = client(&simulator)?;
    for (orders, expected) in [
        ("reset-after-chunks=2", "Connection"),
        ("close-after-chunks=2", "Interrupted"),
        ("error-after-chunks=2", "Unavailable"),
        ("malformed", "Unreadable"),
    ] {
        let mut stream = client.chat_stream(&ask(&format!("[[sim: {orders}]]"))).await?;
        let error = loop {
            match stream.next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{orders} ended well"),
                Err(error) => break error,
            }
        };
        assert!(format!("{error:?}").starts_with(expected), "{orders}: {error:?}");
        assert!(matches!(stream.next().await, Ok(None)), "nothing comes after an error");
    }
    simulator.stop().await;
    Ok(())
}

#[test]
fn a_spent_budget_is_told_from_a_rate_limit() {
    let refusal = |code: &str| crate::Refusal {
        status: 429,
        code: Some(code.into()),
        message: "no".into(),
        scope: Some("tenant:x".into()),
        retry_after: None,
        request_id: None,
    };
    let spent = CallError::refused(refusal("budget_exhausted"));
    assert!(matches!(spent, CallError::BudgetExhausted(_)) && !spent.is_worth_retrying());
    for passing in [
        "budget_held",
        "rate_limit_exceeded",
        "concurrency_limit_exceeded",
        "priority_gated",
    ] {
        let limited = CallError::refused(refusal(passing));
        assert!(matches!(limited, CallError::RateLimited(_)) && limited.is_worth_retrying());
    }
}

#[test]
fn settings_that_cannot_work_are_refused() {
    for url in ["", "gateway", "ftp://gateway.example/v1", "unix:/tmp/socket"] {
        assert_eq!(Client::new(url, "k").err(), Some(SettingsError::BaseUrl), "{url}");
    }
    assert_eq!(
        Client::new("http://gateway.example/v1", "k\n").err(),
        Some(SettingsError::Key)
    );
    assert!(Client::new("https://gateway.example/v1/", "k").is_ok());
}

//! The client against a simulated provider that fails as ordered.

use std::time::Duration;

use anyhow::{Context, Result};
use protocol::headers;
use serde_json::{Value, json};
use simulator::{Behaviour, Simulator, SimulatorConfig};

use crate::fake::{Answer, Fake, quick};
use crate::{CallError, ChatRequest, Client, Labels, Priority, RetryBudget, SettingsError, Step};

async fn simulator() -> Result<Simulator> {
    let config = SimulatorConfig {
        credential: Some("sk-tg-test".into()),
        ..SimulatorConfig::default()
    };
    Ok(Simulator::start(config).await?)
}

/// Retries at once, so that no test waits.
fn client(simulator: &Simulator) -> Result<Client> {
    Ok(Client::with_settings(&simulator.base_url(), "sk-tg-test", quick())?)
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
    let refusals = [429, 503, 500].map(|status| Answer::json(status, &json!({})));
    let fake = Fake::start(refusals).await?;
    let error = fake.client().chat(&ask("hello")).await;
    let Err(CallError::Unavailable(refusal)) = error else {
        panic!("{error:?}");
    };
    assert_eq!(
        (refusal.status, refusal.message.as_str()),
        (500, "Internal Server Error")
    );
    let counts: Vec<Option<i32>> = fake
        .asked()
        .iter()
        .map(|asked| headers::caller_retries(&asked.headers))
        .collect();
    assert_eq!(counts, [Some(0), Some(1), Some(2)]);
    Ok(())
}

#[tokio::test]
async fn a_spent_budget_is_not_asked_of_again() -> Result<()> {
    let refusal = Answer::refusal(429, "budget_exhausted").header("retry-after", "1");
    let fake = Fake::start([refusal]).await?;
    let error = fake.client().chat(&ask("hello")).await;
    assert!(matches!(error, Err(CallError::BudgetExhausted(_))), "{error:?}");
    assert_eq!(fake.asked().len(), 1);
    Ok(())
}

#[tokio::test]
async fn clones_share_their_retry_budget() -> Result<()> {
    let fake = Fake::start((0..9).map(|_| Answer::refusal(503, "queue_full"))).await?;
    let mut settings = quick();
    settings.retry_budget = RetryBudget::Limited {
        percent: 0,
        reserve_per_minute: 1,
    };
    let client = fake.client_with(settings);
    for asked in [2, 3, 4] {
        let error = client.clone().chat(&ask("hello")).await;
        assert!(matches!(error, Err(CallError::Unavailable(_))), "{error:?}");
        assert_eq!(fake.asked().len(), asked);
    }
    Ok(())
}

#[tokio::test]
async fn a_request_says_whom_it_is_for_and_how_urgent_it_is() -> Result<()> {
    let fake = Fake::start([Answer::json(200, &json!({}))]).await?;
    let mut settings = quick();
    settings.labels = Labels {
        priority: Some(Priority::Low),
        tags: [("team".to_owned(), "web".to_owned())].into(),
        ..Labels::default()
    };
    let client = fake.client_with(settings);
    let request = ask("hello").on_behalf_of("ann").tag("project", "search");
    client.chat(&request).await?;
    let asked = &fake.asked()[0];
    assert_eq!(asked.path, "/v1/chat/completions");
    assert_eq!(asked.header("authorization"), "Bearer sk-tg-test");
    assert_eq!(headers::user(&asked.headers), Ok(Some("ann")));
    assert_eq!(headers::priority(&asked.headers), Ok(Some(Priority::Low)));
    assert_eq!(asked.header("x-tollgate-tags"), "project=search,team=web");
    let body: Value = serde_json::from_slice(&asked.body)?;
    assert_eq!(
        body.as_object().map(|body| body.keys().collect::<Vec<_>>()),
        Some(vec![&"messages".to_owned(), &"model".to_owned()])
    );

    let error = client.chat(&ask("hello").tag("a,b", "c")).await;
    assert!(matches!(error, Err(CallError::Unsendable(_))), "{error:?}");
    assert_eq!(fake.asked().len(), 1);
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
    let mut settings = quick();
    settings.timeouts.total_ms = 50;
    let client = Client::with_settings(&simulator.base_url(), "any", settings)?;
    let error = client.chat(&ask("hello")).await;
    assert!(
        matches!(error, Err(CallError::TimedOut { step: Step::Total, .. })),
        "{error:?}"
    );
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

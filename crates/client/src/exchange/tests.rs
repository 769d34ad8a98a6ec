//! Each step of a try has its own time-out, and says which it was.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tokio::net::TcpListener;

use crate::errors::{CallError, Step};
use crate::fake::{Answer, Fake, quick};
use crate::settings::Settings;
use crate::{ChatRequest, Client};

fn hello() -> ChatRequest {
    ChatRequest::new("any").user("hello")
}

fn step(error: &CallError) -> Option<Step> {
    match error {
        CallError::TimedOut { step, .. } => Some(*step),
        _ => None,
    }
}

#[tokio::test]
async fn a_connection_that_does_not_stand_in_time_is_tried_again() -> Result<()> {
    // Takes connections and says nothing, so that TLS never begins.
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let base_url = format!("https://{}/v1", listener.local_addr()?);
    let mut settings = quick();
    settings.timeouts.connect_ms = 50;
    let client = Client::with_settings(&base_url, "any", settings)?;
    let request = hello();
    let mut calling = std::pin::pin!(client.chat(&request));
    let mut connections = Vec::new();
    let error = loop {
        tokio::select! {
            ended = &mut calling => break ended.expect_err("nobody answers"),
            connected = listener.accept() => connections.push(connected?.0),
        }
    };
    assert_eq!(step(&error), Some(Step::Connect), "{error:?}");
    assert_eq!(connections.len(), 3);
    Ok(())
}

#[tokio::test]
async fn an_answer_that_does_not_begin_is_not_asked_for_twice() -> Result<()> {
    let fake = Fake::start([Answer::silence()]).await?;
    let mut settings = quick();
    settings.timeouts.first_byte_ms = 50;
    let error = fake.client_with(settings).chat(&hello()).await.expect_err("silence");
    assert_eq!(step(&error), Some(Step::FirstByte), "{error:?}");
    assert_eq!(fake.asked().len(), 1);
    Ok(())
}

#[tokio::test]
async fn an_answer_that_stops_midway_ends_with_the_time_out_between_pieces() -> Result<()> {
    let half = || Answer::stream(["{\"choices\":"]).then_silence();
    let fake = Fake::start([half(), half()]).await?;
    let mut settings = quick();
    settings.timeouts.chunk_ms = 50;
    let error = fake.client_with(settings).chat(&hello()).await.expect_err("silence");
    assert_eq!(step(&error), Some(Step::Chunk), "{error:?}");

    let mut settings = quick();
    settings.timeouts.total_ms = 100;
    let error = fake.client_with(settings).chat(&hello()).await.expect_err("silence");
    assert_eq!(step(&error), Some(Step::Total), "{error:?}");
    assert_eq!(error.to_string(), "the answer was not complete within 100 ms");
    Ok(())
}

#[tokio::test]
async fn a_time_out_without_end_counts_as_a_week() -> Result<()> {
    let fake = Fake::start([Answer::json(200, &json!({}))]).await?;
    let mut settings = Settings::default();
    settings.timeouts.connect_ms = u64::MAX;
    settings.timeouts.first_byte_ms = u64::MAX;
    settings.timeouts.chunk_ms = u64::MAX;
    settings.timeouts.total_ms = u64::MAX;
    assert!(fake.client_with(settings).chat(&hello()).await.is_ok());
    let week = crate::settings::deadline(tokio::time::Instant::now(), u64::MAX);
    assert!(week <= tokio::time::Instant::now() + Duration::from_secs(7 * 24 * 3_600));
    Ok(())
}

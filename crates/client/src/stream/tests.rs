//! Streams that wait in the gateway's queue: how deep it is, and refusals that come after the head.

use std::time::Duration;

use anyhow::Result;

use super::queue_depths;
use crate::errors::{CallError, Step};
use crate::fake::{Answer, Fake, quick};
use crate::{ChatRequest, ChatStream, StreamEvent};

const WORD: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn hello() -> ChatRequest {
    ChatRequest::new("any").user("hello")
}

fn refusal(code: &str, retry_after: u64) -> String {
    format!("data: {{\"error\":{{\"message\":\"no\",\"code\":\"{code}\",\"retry_after\":{retry_after}}}}}\n\n")
}

/// What a stream brings, in words.
async fn told(stream: &mut ChatStream) -> Result<Vec<String>, CallError> {
    let mut told = Vec::new();
    while let Some(event) = stream.next_event().await? {
        told.push(match event {
            StreamEvent::Queued { depth } => format!("queued {depth}"),
            StreamEvent::Chunk(chunk) => chunk.text,
        });
    }
    Ok(told)
}

#[tokio::test]
async fn the_depth_of_the_queue_is_told_to_who_asks_for_it() -> Result<()> {
    let queued = || Answer::stream([": queued 3\n\n: que", "ued 1\n\n: keep-alive\n\n", WORD, DONE]);
    let fake = Fake::start([queued(), queued()]).await?;
    let mut settings = quick();
    settings.asks_for_queue_comments = true;
    let mut stream = fake.client_with(settings).chat_stream(&hello()).await?;
    assert_eq!(told(&mut stream).await?, ["queued 3", "queued 1", "Hi"]);

    let mut stream = fake.client().chat_stream(&hello()).await?;
    assert_eq!(stream.next().await?.map(|chunk| chunk.text).as_deref(), Some("Hi"));
    let asked = fake.asked();
    assert_eq!(asked[0].header("x-tollgate-queue-comments"), "on");
    assert_eq!(asked[1].header("x-tollgate-queue-comments"), "");
    Ok(())
}

#[tokio::test]
async fn a_refusal_in_the_queue_is_tried_again_before_the_answer_begins() -> Result<()> {
    let fake = Fake::start([
        Answer::stream([": queued 3\n\n", &refusal("queue_timeout", 0), DONE]),
        Answer::refusal(503, "queue_full"),
        Answer::stream([": queued 2\n\n", WORD, DONE]),
    ])
    .await?;
    let mut stream = fake.client().chat_stream(&hello()).await?;
    assert_eq!(told(&mut stream).await?, ["queued 3", "queued 2", "Hi"]);
    let retries: Vec<String> = fake
        .asked()
        .iter()
        .map(|asked| asked.header("x-stainless-retry-count").to_owned())
        .collect();
    assert_eq!(retries, ["0", "1", "2"]);
    Ok(())
}

#[tokio::test]
async fn a_stream_may_be_left_alone_while_it_is_tried_again() -> Result<()> {
    let fake = Fake::start([
        Answer::stream([&refusal("rate_limit_exceeded", 0)]),
        Answer::stream([WORD, DONE]),
    ])
    .await?;
    let mut settings = quick();
    settings.retries.first_ms = 20;
    settings.retries.longest_ms = 20;
    let mut stream = fake.client_with(settings).chat_stream(&hello()).await?;
    let chunk = loop {
        // Dropped again and again, also within the wait.
        if let Ok(next) = tokio::time::timeout(Duration::from_millis(1), stream.next()).await {
            break next?;
        }
    };
    assert_eq!(chunk.map(|chunk| chunk.text).as_deref(), Some("Hi"));
    assert_eq!(fake.asked().len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_refusal_in_the_queue_is_the_error_it_would_have_been_with_a_status() -> Result<()> {
    for (code, retry_after, expected, asked) in [
        ("budget_exhausted", 1, "BudgetExhausted", 1),
        ("rate_limit_exceeded", 70, "RateLimited", 1),
        ("queue_timeout", 0, "Unavailable", 3),
        ("model_not_found", 0, "Rejected", 1),
    ] {
        let refused = || Answer::stream([": queued 1\n\n", &refusal(code, retry_after)]);
        let fake = Fake::start([refused(), refused(), refused()]).await?;
        let mut stream = fake.client().chat_stream(&hello()).await?;
        let error = stream.next().await.expect_err("a refusal");
        assert!(format!("{error:?}").starts_with(expected), "{code}: {error:?}");
        let told = error.refusal().and_then(|refusal| refusal.retry_after);
        assert_eq!(told, Some(Duration::from_secs(retry_after)), "{code}");
        assert_eq!(fake.asked().len(), asked, "{code}");
        assert!(stream.next().await?.is_none());
    }
    Ok(())
}

#[tokio::test]
async fn a_refusal_within_an_answer_ends_it() -> Result<()> {
    let fake = Fake::start([Answer::stream([WORD, &refusal("rate_limit_exceeded", 0)])]).await?;
    let mut stream = fake.client().chat_stream(&hello()).await?;
    assert!(stream.next().await?.is_some());
    let error = stream.next().await;
    assert!(matches!(error, Err(CallError::RateLimited(_))), "{error:?}");
    assert_eq!(fake.asked().len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_stream_that_falls_silent_ends_with_the_time_out_between_pieces() -> Result<()> {
    let fake = Fake::start([Answer::stream([WORD]).then_silence()]).await?;
    let mut settings = quick();
    settings.timeouts.chunk_ms = 200;
    let mut stream = fake.client_with(settings).chat_stream(&hello()).await?;
    assert!(stream.next().await?.is_some());
    let error = stream.next().await;
    assert!(
        matches!(error, Err(CallError::TimedOut { step: Step::Chunk, .. })),
        "{error:?}"
    );
    Ok(())
}

#[test]
fn only_comments_about_the_queue_tell_its_depth() {
    let depths = |block: &str| queue_depths(block.as_bytes()).collect::<Vec<u64>>();
    assert_eq!(depths(": queued 4\r\n: queued 2\n\n"), [4, 2]);
    assert!(depths(": queued\n: queued -1\n: queuedd 1\ndata: : queued 7\n\n").is_empty());
}

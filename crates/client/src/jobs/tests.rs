//! Jobs are consented to, waited for politely, listed, cancelled, and give the answer that was asked for.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::errors::CallError;
use crate::fake::{Answer, Fake};
use crate::{ChatRequest, Job, JobStatus, JobsPage, Reply};

fn hello() -> ChatRequest {
    ChatRequest::new("any").user("hello")
}

fn job(status: &str, more: Value) -> Value {
    let mut job = json!({
        "id": "job_1", "object": "job", "status": status, "created_at": 1_790_000_000, "started_at": null,
        "finished_at": null, "expires_at": 1_790_086_400, "model": "any", "attempts": 0, "error": null,
        "response": null,
    });
    let more = more.as_object().cloned().unwrap_or_default();
    job.as_object_mut().expect("an object").extend(more);
    job
}

fn accepted() -> Answer {
    Answer::json(202, &job("waiting", json!({})))
        .header("retry-after-ms", "1")
        .header("preference-applied", "respond-async")
}

fn waiting() -> Answer {
    let error = json!({ "message": "no room", "code": "rate_limit_exceeded" });
    Answer::json(200, &job("waiting", json!({ "attempts": 1, "error": error }))).header("retry-after-ms", "1")
}

fn completed() -> Answer {
    let body = json!({
        "choices": [{ "message": { "content": "Good morning" }, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 3, "completion_tokens": 2 },
    });
    Answer::json(
        200,
        &job("completed", json!({ "response": { "status_code": 200, "body": body } })),
    )
}

fn read(job: Value) -> Job {
    serde_json::from_value(job).expect("a job")
}

#[tokio::test]
async fn a_caller_who_consents_gets_a_job_and_later_its_answer() -> Result<()> {
    let fake = Fake::start([accepted(), waiting(), waiting(), completed()]).await?;
    let client = fake.client();
    let reply = client.chat_or_job(&hello(), Some(Duration::from_millis(5_900))).await?;
    let Reply::Deferred(job) = reply else {
        panic!("{reply:?}");
    };
    assert_eq!((job.id.as_str(), job.status), ("job_1", JobStatus::Waiting));
    assert_eq!(job.created_at.map(|at| at.timestamp()), Some(1_790_000_000));
    assert_eq!(job.started_at, None);

    let ended = client.wait_for_job(&job.id, Duration::from_secs(20)).await?;
    let answer = ended.into_answer()?;
    assert_eq!(answer.text, "Good morning");
    assert_eq!(answer.usage.map(|usage| usage.output_tokens), Some(2));
    let asked = fake.asked();
    assert_eq!(asked[0].header("prefer"), "respond-async, wait=5");
    let polled: Vec<String> = asked[1..]
        .iter()
        .map(|asked| format!("{} {}", asked.method, asked.path))
        .collect();
    assert_eq!(polled, vec!["GET /v1/jobs/job_1"; 3]);
    Ok(())
}

#[tokio::test]
async fn who_consents_to_a_job_may_be_answered_at_once() -> Result<()> {
    let fake = Fake::start([Answer::json(200, &json!({ "choices": [] }))]).await?;
    let reply = fake.client().chat_or_job(&hello(), None).await?;
    assert!(matches!(reply, Reply::Answered(_)), "{reply:?}");
    assert_eq!(fake.asked()[0].header("prefer"), "respond-async");
    Ok(())
}

#[tokio::test]
async fn a_job_nobody_asked_for_is_waited_for() -> Result<()> {
    let fake = Fake::start([accepted(), waiting(), completed()]).await?;
    let answer = fake.client().chat(&hello()).await?;
    assert_eq!(
        (answer.text.as_str(), answer.request_id.as_deref()),
        ("Good morning", Some("job_1"))
    );
    assert_eq!(fake.asked()[0].header("prefer"), "");
    Ok(())
}

#[tokio::test]
async fn a_job_that_takes_longer_than_the_call_is_named_by_the_error() -> Result<()> {
    let fake = Fake::start([accepted(), waiting().header("retry-after-ms", "60000")]).await?;
    let error = fake.client().chat(&hello()).await;
    let Err(CallError::Unfinished { job_id, source: None }) = error else {
        panic!("{error:?}");
    };
    assert_eq!(job_id, "job_1");
    assert_eq!(fake.asked().len(), 2, "nobody waits in vain");
    Ok(())
}

#[tokio::test]
async fn a_job_that_cannot_be_seen_is_named_by_the_error() -> Result<()> {
    let away = || Answer::json(503, &json!({}));
    let fake = Fake::start([accepted(), away(), away(), away()]).await?;
    let error = fake.client().chat(&hello()).await;
    let Err(CallError::Unfinished {
        job_id,
        source: Some(source),
    }) = error
    else {
        panic!("{error:?}");
    };
    assert_eq!(job_id, "job_1");
    assert!(matches!(*source, CallError::Unavailable(_)), "{source:?}");
    assert_eq!(fake.asked().len(), 4, "looking is tried again as everything else");
    Ok(())
}

#[tokio::test]
async fn a_stream_whose_request_became_a_job_brings_the_answer_in_one_piece() -> Result<()> {
    let fake = Fake::start([accepted(), waiting(), completed()]).await?;
    let mut stream = fake.client().chat_stream(&hello()).await?;
    let chunk = stream.next().await?.map(|chunk| chunk.text);
    assert_eq!(chunk.as_deref(), Some("Good morning"));
    assert!(stream.next().await?.is_none());
    assert_eq!(stream.usage().map(|usage| usage.output_tokens), Some(2));
    assert_eq!(stream.request_id(), Some("job_1"));
    Ok(())
}

#[tokio::test]
async fn jobs_are_listed_page_by_page_and_cancelled() -> Result<()> {
    let list = |has_more: bool| {
        let jobs = [job("waiting", json!({})), job("expired", json!({}))];
        Answer::json(200, &json!({ "object": "list", "data": jobs, "has_more": has_more }))
    };
    let cancelled = Answer::json(200, &job("cancelled", json!({ "finished_at": 1_790_000_005 })));
    let fake = Fake::start([list(true), list(false), cancelled, waiting()]).await?;
    let client = fake.client();
    let page = JobsPage {
        limit: Some(2),
        after: None,
    };
    let first = client.jobs(&page).await?;
    assert_eq!(first.jobs.len(), 2);
    let page = first.page_after(&page).expect("there are more");
    let second = client.jobs(&page).await?;
    assert_eq!(second.page_after(&page), None);
    let cancelled = client.cancel_job("a/b?c").await?;
    assert_eq!(cancelled.finished_at.map(|at| at.timestamp()), Some(1_790_000_005));
    assert_eq!(client.job("job_1").await?.attempts, 1);
    let paths: Vec<String> = fake
        .asked()
        .iter()
        .map(|asked| format!("{} {}", asked.method, asked.path))
        .collect();
    assert_eq!(
        paths,
        [
            "GET /v1/jobs?limit=2",
            "GET /v1/jobs?limit=2&after=job_1",
            "POST /v1/jobs/a%2Fb%3Fc/cancel",
            "GET /v1/jobs/job_1",
        ]
    );
    Ok(())
}

#[test]
fn a_failed_job_fails_as_the_request_would_have() {
    let error = json!({ "message": "spent", "code": "budget_exhausted" });
    let spent = read(job("failed", json!({ "error": error }))).into_answer();
    assert!(matches!(spent, Err(CallError::BudgetExhausted(_))), "{spent:?}");

    let response = json!({ "status_code": 400, "body": { "error": { "message": "no", "code": "bad" } } });
    let rejected = read(job("failed", json!({ "response": response }))).into_answer();
    let Err(CallError::Rejected(refusal)) = rejected else {
        panic!("{rejected:?}");
    };
    assert_eq!((refusal.status, refusal.code.as_deref()), (400, Some("bad")));
    assert_eq!(refusal.request_id.as_deref(), Some("job_1"));
}

#[test]
fn a_job_without_an_answer_says_how_it_ended() {
    let in_the_way = json!({ "error": { "message": "no room", "code": "rate_limit_exceeded" } });
    for (status, more) in [
        ("failed", json!({})),
        ("cancelled", in_the_way.clone()),
        ("expired", in_the_way),
        ("completed", json!({})),
    ] {
        let ended = read(job(status, more)).into_answer();
        let Err(CallError::JobEnded { job_id, status: ended }) = ended else {
            panic!("{ended:?}");
        };
        assert_eq!((job_id.as_str(), ended.as_str()), ("job_1", status));
    }
    let unfinished = read(job("running", json!({}))).into_answer();
    assert!(
        matches!(unfinished, Err(CallError::Unfinished { .. })),
        "{unfinished:?}"
    );
}

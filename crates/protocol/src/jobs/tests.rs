//! Jobs are written as callers expect them, and a provider's answer stays as it came.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use domain::ids::JobId;
use domain::jobs::{JobError, JobStatus};
use serde_json::{Value, json};

use super::{ShownJob, ShownResponse, job_body, jobs_body};

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(seconds, 999_000_000).expect("a time")
}

fn job() -> ShownJob {
    ShownJob {
        id: JobId::new(at(1), [7; 10]),
        status: JobStatus::Waiting,
        created_at: at(1),
        started_at: None,
        finished_at: None,
        expires_at: at(86_401),
        model: "gpt-test".to_owned(),
        attempts: 0,
        error: None,
        response: None,
    }
}

fn read(body: &Bytes) -> Value {
    serde_json::from_slice(body).expect("JSON")
}

#[test]
fn a_job_that_waits() {
    let mut waiting = job();
    waiting.error = Some(JobError {
        code: "rate_limit_exceeded".to_owned(),
        message: "Too many requests.".to_owned(),
    });
    assert_eq!(
        read(&job_body(&waiting)),
        json!({
            "id": waiting.id.to_string(),
            "object": "job",
            "status": "waiting",
            "created_at": 1,
            "started_at": null,
            "finished_at": null,
            "expires_at": 86_401,
            "model": "gpt-test",
            "attempts": 0,
            "error": {
                "message": "Too many requests.",
                "type": "rate_limit_error",
                "param": null,
                "code": "rate_limit_exceeded",
            },
            "response": null,
        })
    );
}

#[test]
fn an_answer_stands_in_it_as_it_came() {
    let answer = r#"{"n": 1.10, "deep": {"b": 2, "a": [1,2 ]}, "n": 3}"#;
    let mut completed = job();
    completed.status = JobStatus::Completed;
    completed.response = Some(ShownResponse {
        status_code: 200,
        body: Bytes::from(answer),
    });
    let body = job_body(&completed);
    let text = std::str::from_utf8(&body).expect("text");
    assert!(text.ends_with(&format!(r#""response":{{"status_code":200,"body":{answer}}}}}"#)));
}

#[test]
fn an_answer_that_is_no_json_is_a_text() {
    let mut failed = job();
    failed.response = Some(ShownResponse {
        status_code: 502,
        body: Bytes::from_static(b"<h1>\xff</h1>"),
    });
    let shown = read(&job_body(&failed));
    assert_eq!(
        shown["response"],
        json!({"status_code": 502, "body": "<h1>\u{fffd}</h1>"})
    );
}

#[test]
fn a_list_says_where_it_ends() {
    let (first, last) = (
        job(),
        ShownJob {
            id: JobId::new(at(0), [1; 10]),
            ..job()
        },
    );
    let list = read(&jobs_body(&[first.clone(), last.clone()], true));
    assert_eq!(list["object"], "list");
    assert_eq!(list["data"].as_array().map(Vec::len), Some(2));
    assert_eq!(list["first_id"], first.id.to_string());
    assert_eq!(list["last_id"], last.id.to_string());
    assert_eq!(list["has_more"], true);
    let empty = read(&jobs_body(&[], false));
    assert_eq!(empty["data"], json!([]));
    assert_eq!(empty["last_id"], Value::Null);
}

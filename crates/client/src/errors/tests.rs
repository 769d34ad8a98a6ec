//! Refusals are told apart by what a caller can do about them, with a status, in a stream, and in a job.

use std::time::Duration;

use chrono::{TimeDelta, Utc};
use domain::refusals::RefusalCode;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;

use super::{CallError, Refusal};

fn read(status: u16, headers: &[(&'static str, &str)], body: &serde_json::Value) -> Refusal {
    let headers: HeaderMap = headers
        .iter()
        .map(|(name, value)| {
            (
                name.parse().expect("a name"),
                HeaderValue::from_str(value).expect("a value"),
            )
        })
        .collect();
    let status = StatusCode::from_u16(status).expect("a status");
    Refusal::read(status, &headers, body.to_string().as_bytes(), Utc::now())
}

#[test]
fn every_code_of_the_gateway_is_the_same_error_with_a_status_and_in_a_stream() {
    for code in RefusalCode::ALL {
        let body = json!({ "error": { "message": "no", "code": code.as_str() } });
        let with_status = CallError::refused(read(code.status(), &[], &body));
        let in_stream = CallError::refused(read(200, &[], &body));
        assert_eq!(with_status.refusal(), in_stream.refusal());
        assert_eq!(
            std::mem::discriminant(&with_status),
            std::mem::discriminant(&in_stream),
            "{code}"
        );
        let is_waited_for = code.is_retryable() && code != RefusalCode::BudgetExhausted;
        assert_eq!(with_status.is_worth_retrying(), is_waited_for, "{code}");
        assert_eq!(
            matches!(with_status, CallError::BudgetExhausted(_)),
            code == RefusalCode::BudgetExhausted
        );
    }
}

#[test]
fn what_may_have_been_worked_on_is_not_asked_again() {
    for (status, code, is_tried_again) in [
        (504, "upstream_timeout", false),
        (502, "upstream_error", false),
        (500, "server_error", false),
        (503, "gateway_error", false),
        (503, "upstream_error", true),
        // An error inside a stream, after the provider has begun.
        (200, "server_error", false),
    ] {
        let body = json!({ "error": { "message": "no", "code": code } });
        let error = CallError::refused(read(status, &[], &body));
        assert!(matches!(error, CallError::Unavailable(_)), "{error:?}");
        assert_eq!(error.is_worth_retrying(), is_tried_again, "{status} {code}");
    }
}

#[test]
fn milliseconds_go_before_seconds() {
    let wait = |headers: &[_]| read(429, headers, &json!({})).retry_after;
    assert_eq!(wait(&[("retry-after", "3")]), Some(Duration::from_secs(3)));
    assert_eq!(
        wait(&[("retry-after", "3"), ("retry-after-ms", "20")]),
        Some(Duration::from_millis(20))
    );
    assert_eq!(wait(&[]), None);
}

#[test]
fn the_end_of_a_budgets_period_may_be_weeks_away() {
    let seconds = 20 * 24 * 3_600;
    let body = json!({ "error": { "message": "spent", "code": "budget_exhausted", "retry_after": seconds } });
    let refusal = read(429, &[("retry-after", &seconds.to_string())], &body);
    assert_eq!(refusal.retry_after, Some(Duration::from_secs(seconds)));
    let at = refusal.retry_at.expect("a time");
    assert!((at - Utc::now() - TimeDelta::days(20)).num_seconds().abs() < 60, "{at}");
    // In a stream and a job there is the body alone.
    assert_eq!(read(200, &[], &body).retry_after, Some(Duration::from_secs(seconds)));
}

#[test]
fn the_gateways_id_of_a_request_goes_before_the_providers() {
    let both = [("x-request-id", "theirs"), ("x-tollgate-request-id", "ours")];
    assert_eq!(read(429, &both, &json!({})).request_id.as_deref(), Some("ours"));
    assert_eq!(read(429, &both[..1], &json!({})).request_id.as_deref(), Some("theirs"));
}

//! Bodies have OpenAI's shape, and what upstreams say is read with care.

use domain::policy::Dialect;
use domain::refusals::RefusalCode;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    ErrorBody, SECRET_PIECE_CHARS_MIN, UPSTREAM_ERROR_BYTES_MAX, UPSTREAM_MESSAGE_CHARS_MAX, UpstreamError, redacted,
};
use crate::endpoint::Endpoint;

fn read(body: &Value) -> UpstreamError {
    UpstreamError::read(body.to_string().as_bytes())
}

#[test]
fn a_refusal_has_openais_shape_and_ours_beside() {
    let body = ErrorBody::refusal(RefusalCode::RateLimitExceeded, "Too many requests, retry in 3 s.")
        .with_retry_after(Some(3))
        .with_scope(Some("key:7"));
    let json: Value = serde_json::from_slice(&body.to_json(Dialect::Openai)).expect("JSON");
    assert_eq!(
        json,
        json!({ "error": {
            "message": "Too many requests, retry in 3 s.", "type": "rate_limit_error", "param": null,
            "code": "rate_limit_exceeded", "retry_after": 3, "scope": "key:7",
        }})
    );
    let event = body.to_sse_event(Endpoint::ChatCompletions);
    assert!(event.starts_with(b"data: {") && event.ends_with(b"}\n\n"));
    assert_eq!(event.iter().filter(|byte| **byte == b'\n').count(), 2);
}

#[test]
fn a_refusal_has_anthropics_shape_and_its_words_where_anthropic_is_spoken() {
    let kind = |code: RefusalCode| {
        let body = ErrorBody::refusal(code, "No.").to_json(Dialect::Anthropic);
        let json: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(
            (&json["type"], &json["error"]["message"]),
            (&json!("error"), &json!("No."))
        );
        assert_eq!(json["error"]["code"], code.as_str());
        json["error"]["type"].as_str().map(str::to_owned)
    };
    for (code, expected) in [
        (RefusalCode::InvalidRequest, "invalid_request_error"),
        (RefusalCode::InvalidKey, "authentication_error"),
        (RefusalCode::KeyRevoked, "permission_error"),
        (RefusalCode::ModelNotFound, "not_found_error"),
        (RefusalCode::RequestTooLarge, "request_too_large"),
        (RefusalCode::RateLimitExceeded, "rate_limit_error"),
        (RefusalCode::BudgetExhausted, "rate_limit_error"),
        (RefusalCode::QueueFull, "overloaded_error"),
    ] {
        assert_eq!(kind(code).as_deref(), Some(expected), "{code}");
    }
    let overloaded =
        UpstreamError::read(br#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#);
    let body = ErrorBody::upstream(overloaded).to_json(Dialect::Anthropic);
    let json: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(
        (&json["error"]["type"], &json["error"]["message"]),
        (&json!("overloaded_error"), &json!("Overloaded"))
    );
}

#[test]
fn the_last_event_of_a_stream_has_the_name_its_readers_look_for() {
    let body = ErrorBody::refusal(RefusalCode::QueueTimeout, "Too late.");
    let text = |endpoint| String::from_utf8(body.to_sse_event(endpoint).to_vec()).expect("UTF-8");
    let messages = text(Endpoint::Messages);
    assert!(
        messages.starts_with("event: error\ndata: {\"type\":\"error\",\"error\":{"),
        "{messages}"
    );
    let responses = text(Endpoint::Responses);
    assert!(
        responses.starts_with("event: error\ndata: {\"type\":\"error\",\"code\":\"queue_timeout\""),
        "{responses}"
    );
    assert!(text(Endpoint::Completions).starts_with("data: {\"error\":{"));
}

#[test]
fn what_does_not_apply_is_left_out() {
    let body = ErrorBody::refusal(RefusalCode::InvalidRequest, "The field `n` is wrong.").with_param(Some("n"));
    let json: Value = serde_json::from_slice(&body.to_json(Dialect::Openai)).expect("JSON");
    assert_eq!(
        json,
        json!({ "error": {
            "message": "The field `n` is wrong.", "type": "invalid_request_error", "param": "n", "code": "invalid_request",
        }})
    );
}

#[test]
fn every_code_has_a_class_that_fits_its_status() {
    for code in RefusalCode::ALL {
        let kind = ErrorBody::refusal(code, "").kind;
        let fits = match code.status() {
            401 => kind == "authentication_error",
            403 => kind == "permission_error",
            429 => kind == "rate_limit_error" || code == RefusalCode::BudgetExhausted,
            503 => kind == "service_unavailable",
            _ => kind == "invalid_request_error",
        };
        assert!(fits, "{code}: {kind}");
    }
}

#[test]
fn the_shapes_of_many_providers_are_understood() {
    for body in [
        json!({ "error": { "message": "no room", "type": "requests", "code": "rate_limit_exceeded", "param": null } }),
        json!({ "error": "no room" }),
        json!([{ "error": { "message": "no room", "code": 429 } }]),
        json!({ "message": "no room" }),
        json!({ "detail": "no room" }),
    ] {
        assert_eq!(read(&body).message.as_deref(), Some("no room"), "{body}");
    }
    assert_eq!(read(&json!({ "error": { "code": 429 } })).code.as_deref(), Some("429"));
    for nothing in [
        json!(7),
        json!({}),
        json!([]),
        json!({ "error": null }),
        json!({ "error": { "message": "" } }),
    ] {
        assert_eq!(read(&nothing), UpstreamError::default(), "{nothing}");
    }
    assert_eq!(UpstreamError::read(b"<html>502</html>"), UpstreamError::default());
}

#[test]
fn what_an_upstream_says_is_bounded() {
    let error = read(&json!({ "error": { "message": "数".repeat(5_000), "code": "c".repeat(5_000) } }));
    assert_eq!(
        error.message.map(|text| text.chars().count()),
        Some(UPSTREAM_MESSAGE_CHARS_MAX)
    );
    assert_eq!(error.code.map(|text| text.len()), Some(100));
    let long = json!({ "error": "x".repeat(UPSTREAM_ERROR_BYTES_MAX) });
    assert_eq!(read(&long), UpstreamError::default());
}

#[test]
fn what_is_secret_of_ours_is_taken_out_of_what_an_upstream_says() {
    let secret = Some("key-9f8e7d6c5b4a3210");
    for (said, shown) in [
        ("no room", "no room"),
        ("wrong: key-9f8e7d6c5b4a3210.", "wrong: [redacted]."),
        ("key-9f8e...3210 is wrong", "[redacted]...3210 is wrong"),
        ("ends in 5b4a3210", "ends in [redacted]"),
        ("key-9f8 and a3210", "key-9f8 and a3210"),
        ("für org-AbC123dEf456 gilt", "für [redacted] gilt"),
        ("in proj_AbC123dEf456", "in [redacted]"),
        (
            "Incorrect API key: sk-proj-****abcd1234",
            "Incorrect API key: sk-proj-****abcd1234",
        ),
        ("Incorrect API key: sk-proj-abcd1234", "Incorrect API key: [redacted]"),
        ("the org-chart", "the org-chart"),
    ] {
        assert_eq!(redacted(said, secret), shown);
    }
    assert_eq!(redacted("a b c", Some("b")), "a b c", "a placeholder is no secret");
    let error =
        read(&json!({ "error": { "message": "key-9f8e7d6c5b4a3210", "code": "key-9f8e7d6c5b4a3210", "param": "n" } }))
            .without_secrets(secret);
    assert_eq!(
        (error.message.as_deref(), error.code.as_deref(), error.param.as_deref()),
        (Some("[redacted]"), Some("[redacted]"), Some("n"))
    );
}

#[test]
fn an_upstream_that_does_not_know_the_usage_option_is_recognised() {
    for known in [
        "Unrecognized request argument supplied: stream_options",
        "extra fields: include_usage",
    ] {
        assert!(read(&json!({ "error": { "message": known } })).is_about_stream_options());
    }
    assert!(read(&json!({ "error": { "message": "no", "param": "stream_options" } })).is_about_stream_options());
    assert!(!read(&json!({ "error": { "message": "no stream" } })).is_about_stream_options());
}

#[test]
fn an_upstreams_failure_is_told_in_its_own_words_or_in_ours() {
    let told = ErrorBody::upstream(read(
        &json!({ "error": { "message": "no room", "type": "requests", "code": "x" } }),
    ));
    assert_eq!(
        (told.message.as_str(), &*told.kind, told.code.as_deref()),
        ("no room", "requests", Some("x"))
    );
    let silent = ErrorBody::upstream(UpstreamError::default());
    assert_eq!(silent.code.as_deref(), Some("upstream_error"));
    assert!(!silent.message.is_empty());
}

proptest! {
    #[test]
    fn no_piece_of_a_credential_is_shown(
        secret in "[a-c]{8,12}",
        around in prop::array::uniform2("[a-c ]{0,9}"),
        (start, end) in (0_usize..12, 0_usize..12),
    ) {
        let (start, end) = (start.min(secret.len()), end.min(secret.len()));
        let quoted = secret.get(start.min(end)..start.max(end)).unwrap_or_default();
        let said = format!("{}{quoted}{}", around[0], around[1]);
        let shown = redacted(&said, Some(&secret)).into_owned();
        for start in 0..=secret.len() - SECRET_PIECE_CHARS_MIN {
            prop_assert!(!shown.contains(&secret[start..start + SECRET_PIECE_CHARS_MIN]), "{}", shown);
        }
    }

    #[test]
    fn any_text_can_be_redacted(said in any::<String>(), secret in any::<String>()) {
        let _ = redacted(&said, Some(&secret));
    }

    #[test]
    fn any_bytes_can_be_read(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = UpstreamError::read(&body);
    }
}

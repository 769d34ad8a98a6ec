//! Every answer of the data plane that is not a provider's: refusals and failures in the caller's dialect.

use axum::body::Body;
use axum::response::Response;
use chrono::{DateTime, SecondsFormat, Utc};
use domain::ids::RequestId;
use domain::limits::Scope;
use domain::policy::Dialect;
use domain::readings::Reading;
use domain::refusals::RefusalCode;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use limits::Tightest;
use protocol::errors::ErrorBody;
use protocol::headers::REQUEST_ID;

use crate::authenticate::Unauthenticated;
use crate::refusal::Refusal;

/// The gateway's id of a request: what to search the ledger for.
pub(crate) const X_TOLLGATE_REQUEST_ID: HeaderName = HeaderName::from_static("x-tollgate-request-id");
/// When the secret that was shown, or its key, stops working.
const X_TOLLGATE_KEY_EXPIRES: HeaderName = HeaderName::from_static("x-tollgate-key-expires");
const X_RATELIMIT_REASON: HeaderName = HeaderName::from_static("x-ratelimit-reason");
/// Official SDKs obey it. Without it, some of them sleep through `Retry-After` until a budget's next period.
pub(crate) const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// A refusal.
pub(crate) fn refused(dialect: Dialect, id: RequestId, refusal: &Refusal) -> Response {
    let place = refusal.place();
    let body = ErrorBody::refusal(refusal.code, refusal.message.clone())
        .with_param(refusal.param)
        .with_retry_after(refusal.retry_after_seconds)
        .with_scope(place.map(|(scope, _)| shown_scope(scope)));
    let mut response = json(dialect, refusal.code.status(), &body);
    let headers = response.headers_mut();
    set_ids(dialect, headers, id);
    set_number(headers, RETRY_AFTER, refusal.retry_after_seconds);
    let is_in_vain = matches!(
        refusal.code,
        RefusalCode::BudgetExhausted | RefusalCode::IdempotencyAnswerLost | RefusalCode::IdempotencyKeyReused
    );
    if is_in_vain {
        set_no_retry(headers);
    }
    if let Some((scope, dimension)) = place
        && let Ok(reason) = HeaderValue::from_str(&format!("{} {dimension}", shown_scope(scope)))
    {
        headers.insert(X_RATELIMIT_REASON, reason);
    }
    if let Some(denial) = refusal.denial.as_deref() {
        set_tightest(headers, &denial.tightest);
    }
    response
}

/// No key, or none that can be used.
pub(crate) fn unauthenticated(dialect: Dialect, reason: Unauthenticated) -> Response {
    let refusal = Refusal::plain(reason.code(), reason.to_string());
    let body = ErrorBody::refusal(refusal.code, refusal.message.clone()).with_retry_after(refusal.retry_after_seconds);
    let mut response = json(dialect, refusal.code.status(), &body);
    set_number(response.headers_mut(), RETRY_AFTER, refusal.retry_after_seconds);
    response
}

/// A failure of the provider, or of the way to it.
pub(crate) fn upstream(
    dialect: Dialect,
    id: RequestId,
    status: u16,
    body: &ErrorBody,
    retry_after_seconds: Option<u64>,
) -> Response {
    let mut response = json(dialect, status, body);
    set_ids(dialect, response.headers_mut(), id);
    set_number(response.headers_mut(), RETRY_AFTER, retry_after_seconds);
    response
}

/// A question about jobs that cannot be understood.
pub(crate) fn invalid(param: &'static str, message: String) -> Response {
    let body = ErrorBody::refusal(RefusalCode::InvalidRequest, message).with_param(Some(param));
    json(Dialect::Openai, RefusalCode::InvalidRequest.status(), &body)
}

/// No job of this id, as far as the caller may know.
pub(crate) fn no_such_job() -> Response {
    let body = ErrorBody {
        message: "There is no job of this id. Jobs are kept for a week after their end.".to_owned(),
        kind: "invalid_request_error".into(),
        param: Some("id".to_owned()),
        code: Some("job_not_found".into()),
        retry_after: None,
        scope: None,
    };
    json(Dialect::Openai, 404, &body)
}

/// Postgres does not tell of jobs, or too many ask for them.
pub(crate) fn jobs_unavailable() -> Response {
    let retry_after = Some(1);
    let body = ErrorBody {
        message: "Jobs cannot be looked up at the moment. Retry shortly.".to_owned(),
        kind: "service_unavailable".into(),
        param: None,
        code: Some("jobs_unavailable".into()),
        retry_after,
        scope: None,
    };
    let mut response = json(Dialect::Openai, 503, &body);
    set_number(response.headers_mut(), RETRY_AFTER, retry_after);
    response
}

/// A failure of the gateway. What lies beneath is in the log, under the same id.
pub(crate) fn gateway(dialect: Dialect, id: RequestId) -> Response {
    let mut response = json(dialect, 500, &gateway_body(&format!("quote request {id}")));
    set_ids(dialect, response.headers_mut(), id);
    response
}

/// A failure of the gateway before its id was at hand.
pub(crate) fn panicked(dialect: Dialect) -> Response {
    json(dialect, 500, &gateway_body("say when it happened"))
}

fn gateway_body(what_to_quote: &str) -> ErrorBody {
    ErrorBody {
        message: format!("The gateway failed. Retry, and {what_to_quote} if it fails again."),
        kind: "api_error".into(),
        param: None,
        code: Some("gateway_error".into()),
        retry_after: None,
        scope: None,
    }
}

/// Says when the caller has to go over to another secret or key, if that is soon: RFC 3339, in UTC.
pub(crate) fn set_key_expires(headers: &mut HeaderMap, ends_at: Option<DateTime<Utc>>) {
    let ends_at = ends_at.map(|at| at.to_rfc3339_opts(SecondsFormat::Secs, true));
    if let Some(ends_at) = ends_at.and_then(|text| HeaderValue::from_str(&text).ok()) {
        headers.insert(X_TOLLGATE_KEY_EXPIRES, ends_at);
    }
}

/// Headers that say how much is left of the tightest limits.
pub(crate) fn set_tightest(headers: &mut HeaderMap, tightest: &Tightest) {
    const REQUESTS: [HeaderName; 3] = [
        HeaderName::from_static("x-ratelimit-limit-requests"),
        HeaderName::from_static("x-ratelimit-remaining-requests"),
        HeaderName::from_static("x-ratelimit-reset-requests"),
    ];
    const TOKENS: [HeaderName; 3] = [
        HeaderName::from_static("x-ratelimit-limit-tokens"),
        HeaderName::from_static("x-ratelimit-remaining-tokens"),
        HeaderName::from_static("x-ratelimit-reset-tokens"),
    ];
    let mut set = |[limit, remaining, reset]: [HeaderName; 3], reading: &Option<Reading>| {
        if let Some(reading) = reading {
            headers.insert(limit, HeaderValue::from(reading.limit_value));
            headers.insert(remaining, HeaderValue::from(reading.remaining));
            if let Some(value) = reading
                .reset_ms
                .and_then(|ms| HeaderValue::from_str(&duration(ms)).ok())
            {
                headers.insert(reset, value);
            }
        }
    };
    set(REQUESTS, &tightest.requests);
    set(TOKENS, &tightest.tokens);
}

/// Tells official SDKs that trying again is of no use.
pub(crate) fn set_no_retry(headers: &mut HeaderMap) {
    headers.insert(X_SHOULD_RETRY, HeaderValue::from_static("false"));
}

/// Sets the gateway's id of the request.
pub(crate) fn set_id(headers: &mut HeaderMap, id: RequestId) {
    if let Ok(value) = HeaderValue::from_str(&id.to_string()) {
        headers.insert(X_TOLLGATE_REQUEST_ID, value);
    }
}

/// The same of an error, under the name that callers of this dialect look for as well: there is no other id.
fn set_ids(dialect: Dialect, headers: &mut HeaderMap, id: RequestId) {
    set_id(headers, id);
    if dialect == Dialect::Anthropic
        && let Ok(value) = HeaderValue::from_str(&id.to_string())
    {
        headers.insert(REQUEST_ID, value);
    }
}

/// Scopes of others are named by kind only.
fn shown_scope(scope: &Scope) -> String {
    match scope {
        Scope::Upstream(_) => "upstream".to_owned(),
        _ => scope.to_string(),
    }
}

/// As OpenAI writes it: `120ms`, `7s`, `6m0s`.
fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{}s", ms.div_ceil(1_000)),
        _ => {
            let seconds = ms.div_ceil(1_000);
            format!("{}m{}s", seconds / 60, seconds % 60)
        }
    }
}

fn set_number(headers: &mut HeaderMap, name: HeaderName, value: Option<u64>) {
    if let Some(value) = value {
        headers.insert(name, HeaderValue::from(value));
    }
}

fn json(dialect: Dialect, status: u16, body: &ErrorBody) -> Response {
    let mut response = Response::new(Body::from(body.to_json(dialect)));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests;

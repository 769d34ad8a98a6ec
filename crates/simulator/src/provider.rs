//! Whose manners a dialect has: how it wants the key, words its errors and tells of the account.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use chrono::Utc;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::{Value, json};

use crate::account::Account;
use crate::behaviour::Behaviour;
use crate::failure::Failure;

/// The provider that is imitated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Provider {
    OpenAi,
    Anthropic,
}

const ANTHROPIC_VERSION: &str = "anthropic-version";

impl Provider {
    /// By the header that only one of them wants; where the path says nothing.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        match headers.contains_key(ANTHROPIC_VERSION) {
            true => Self::Anthropic,
            false => Self::OpenAi,
        }
    }

    /// Whether who asks may.
    pub(crate) fn admit(self, headers: &HeaderMap, credential: Option<&str>) -> Result<(), Failure> {
        let api_key = text(headers, "x-api-key");
        let (given, message, code) = match self {
            Self::OpenAi => (
                bearer(headers).or(api_key),
                "Incorrect API key provided.",
                "invalid_api_key",
            ),
            // Newer clients of theirs send the key as a bearer's.
            Self::Anthropic => (api_key.or(bearer(headers)), "invalid x-api-key", "authentication_error"),
        };
        if credential.is_some() && given != credential {
            return Err(Failure::refused(StatusCode::UNAUTHORIZED, message, code));
        }
        if self == Self::Anthropic && !headers.contains_key(ANTHROPIC_VERSION) {
            return Err(Failure::unreadable("anthropic-version: header is required"));
        }
        Ok(())
    }

    /// The body of an error. Only Anthropic's names the request.
    pub(crate) fn error(self, failure: &Failure, request_id: Option<&str>) -> Value {
        match self {
            Self::OpenAi => json!({ "error": {
                "message": failure.message, "type": failure.kind, "param": null, "code": failure.code,
            }}),
            Self::Anthropic => {
                let kind = anthropic_kind(failure.status);
                let mut body = json!({ "type": "error", "error": { "type": kind, "message": failure.message } });
                if let Some(id) = request_id {
                    body["request_id"] = id.into();
                }
                body
            }
        }
    }

    /// The whole answer that an error is.
    pub(crate) fn failed(self, failure: &Failure, request_id: &str) -> Response {
        let body = self.error(failure, Some(request_id)).to_string();
        let content_type = [(header::CONTENT_TYPE, "application/json")];
        let mut response = (failure.status, content_type, body).into_response();
        response.headers_mut().extend((*failure.headers).clone());
        if self == Self::Anthropic
            && let Ok(value) = HeaderValue::from_str(request_id)
        {
            response.headers_mut().insert(self.request_id_header(), value);
        }
        response
    }

    /// Where an answer names its request.
    pub(crate) fn request_id_header(self) -> HeaderName {
        HeaderName::from_static(match self {
            Self::OpenAi => "x-request-id",
            Self::Anthropic => "request-id",
        })
    }

    /// What an answer says about the account's limits.
    pub(crate) fn account_headers(self, account: &mut Account, behaviour: &Behaviour) -> HeaderMap {
        match self {
            Self::Anthropic => account.anthropic_headers_by_kind(Utc::now()),
            Self::OpenAi if behaviour.has_anthropic_headers => account.anthropic_headers(Utc::now()),
            Self::OpenAi => account.openai_headers(),
        }
    }
}

fn anthropic_kind(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        _ => "api_error",
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, key) = text(headers, header::AUTHORIZATION.as_str())?.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !key.trim().is_empty()).then(|| key.trim())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

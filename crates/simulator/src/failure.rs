//! Why a request has no answer, before a provider puts it into its own words.

use axum::http::StatusCode;
use http::HeaderMap;

/// An error as all providers could say it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// OpenAI's `type`; Anthropic's follows from the status.
    pub(crate) kind: &'static str,
    /// OpenAI's `code`.
    pub(crate) code: &'static str,
    /// What it says besides: when to come again, what is left of the account.
    pub(crate) headers: Box<HeaderMap>,
}

impl Failure {
    /// The caller's fault.
    pub(crate) fn refused(status: StatusCode, message: impl Into<String>, code: &'static str) -> Self {
        Self {
            status,
            message: message.into(),
            kind: "invalid_request_error",
            code,
            headers: Box::default(),
        }
    }

    /// A body that cannot be read.
    pub(crate) fn unreadable(message: impl Into<String>) -> Self {
        Self::refused(StatusCode::BAD_REQUEST, message, "invalid_request")
    }

    /// One that was ordered.
    pub(crate) fn ordered(status: u16, message: String) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let (kind, code) = match status.as_u16() {
            429 => ("requests", "rate_limit_exceeded"),
            400..=499 => ("invalid_request_error", "ordered_failure"),
            _ => ("server_error", "ordered_failure"),
        };
        Self {
            status,
            message,
            kind,
            code,
            headers: Box::default(),
        }
    }
}

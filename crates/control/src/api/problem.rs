//! What goes wrong at the API, as problem details (RFC 9457). Inner text never reaches a caller.

use axum::response::{IntoResponse, Response};
use domain::error_chain::chain;
use http::{HeaderValue, StatusCode, header};
use serde_json::json;

use crate::{ControlError, FieldError};

/// The media type of problem details.
const MEDIA_TYPE: &str = "application/problem+json";
/// How long callers are asked to wait where repeating may help, in seconds.
const RETRY_SECONDS: &str = "5";
/// How a caller without a good token is told to show one.
const CHALLENGE: &str = "Bearer realm=\"tollgate management\"";

/// Why a call was not answered.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
    errors: Vec<FieldError>,
    /// With 409: what is there already.
    existing: Option<String>,
    /// With 409: the version now.
    version: Option<i64>,
}

impl Problem {
    fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            errors: Vec::new(),
            existing: None,
            version: None,
        }
    }

    /// No token, or one that does not work.
    pub(super) fn unauthorized(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, detail)
    }

    /// The token may not do this.
    pub(super) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, detail)
    }

    /// The fields that it names.
    #[cfg(test)]
    pub(super) fn errors(&self) -> &[FieldError] {
        &self.errors
    }

    /// Nothing there, or not for this token.
    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// Something is there, and not to be called like this.
    pub(super) fn method_not_allowed() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "this path has no such method; /api/openapi.json lists what there is",
        )
    }

    /// The body is longer than it may be.
    pub(super) fn too_large(bytes_max: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("a body has at most {bytes_max} bytes"),
        )
    }

    /// The body did not arrive in time.
    pub(super) fn request_timeout(seconds: u64) -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body did not arrive within {seconds} seconds, and nothing was changed; send it again"),
        )
    }

    /// The call cannot be understood as a whole.
    pub(super) fn unreadable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    /// It is there already, under this id or name.
    pub(super) fn exists(what: &str, existing: String) -> Self {
        Self {
            existing: Some(existing),
            ..Self::new(
                StatusCode::CONFLICT,
                format!("there is such a {what} already: `existing` says which; change that one"),
            )
        }
    }

    /// Repeating may help.
    pub(super) fn busy(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    /// A fault of ours; its chain is in the log.
    pub(super) fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "something went wrong; the log says what",
        )
    }
}

/// What a call that makes something is told: where its name is taken, what has it. A repetition meets what it made.
pub(super) async fn or_taken<T, I: ToString>(
    made: Result<T, ControlError>,
    what: &str,
    holder: impl AsyncFnOnce() -> Result<Option<I>, ControlError>,
) -> Result<T, Problem> {
    let error = match made {
        Ok(made) => return Ok(made),
        Err(error) => error,
    };
    let is_of_name = matches!(error.fields(), [only] if matches!(only.field.as_ref(), "name" | "email"));
    match is_of_name {
        true => match holder().await? {
            Some(id) => Err(Problem::exists(what, id.to_string())),
            None => Err(error.into()),
        },
        false => Err(error.into()),
    }
}

impl From<ControlError> for Problem {
    fn from(error: ControlError) -> Self {
        let said = error.to_string();
        match error {
            ControlError::Invalid(errors) => Self {
                errors,
                ..Self::unreadable("some fields or parameters need another value")
            },
            ControlError::Forbidden => Self::forbidden("this management token may not do this"),
            ControlError::NotFound { .. } | ControlError::LinkEnded => Self::not_found(said),
            ControlError::Conflict { current, .. } => Self {
                version: Some(current),
                ..Self::new(StatusCode::CONFLICT, said)
            },
            ControlError::Exists { what, id } => Self::exists(what, id),
            ControlError::TooSlow(_) => Self::unreadable(said),
            ControlError::Unavailable(_) | ControlError::Busy | ControlError::Live(_) => {
                tracing::warn!(error = chain(&error), "a call of the API was not answered");
                Self::busy(said)
            }
            ControlError::Internal(_) => {
                tracing::error!(error = chain(&error), "a call of the API failed");
                Self::internal()
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason(),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        if !self.errors.is_empty() {
            let error = |error: &FieldError| json!({ "field": error.field, "message": error.message.to_string() });
            body["errors"] = self.errors.iter().map(error).collect();
        }
        if let Some(existing) = self.existing {
            body["existing"] = json!(existing);
        }
        if let Some(version) = self.version {
            body["version"] = json!(version);
        }
        let media_type = [(header::CONTENT_TYPE, MEDIA_TYPE)];
        let mut response = (self.status, media_type, body.to_string()).into_response();
        let more = match self.status {
            StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, CHALLENGE)),
            StatusCode::SERVICE_UNAVAILABLE => Some((header::RETRY_AFTER, RETRY_SECONDS)),
            _ => None,
        };
        if let Some((name, value)) = more {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

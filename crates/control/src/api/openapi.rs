//! The description of the API, for programs and their makers. Open to everybody: it holds nothing of the installation.

use axum::response::{IntoResponse, Response};
use http::header;

/// Written by hand beside the handlers, so that it needs no library and can say why.
pub(super) const DOCUMENT: &str = include_str!("openapi.json");

/// The description.
pub(super) async fn show() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}

//! What every answer and every write of the console is protected by: security headers, and the check that a write comes
//! from a page of ours.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Uri};

use crate::error::{self, PageError};

/// The policy of answers that state none: nothing is loaded or run.
const POLICY_WITHOUT_SCRIPTS: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; \
                                      base-uri 'none'; frame-ancestors 'none'";
/// Where people reach the console by https, browsers are to come by nothing else for a year: no first request in clear shows
/// its cookie or the token of a link.
pub const TLS_ONLY: HeaderValue = HeaderValue::from_static("max-age=31536000");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The content security policy of a rendered page, whose one inline script carries `nonce`. WASM needs
/// `wasm-unsafe-eval`; nothing else is allowed to be made from text.
pub fn content_security_policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; script-src 'self' 'nonce-{nonce}' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
}

/// Puts the headers on every answer that browsers obey. Pages are never stored: they show other people's figures.
pub async fn secure_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let defaults = [
        (header::CONTENT_SECURITY_POLICY, POLICY_WITHOUT_SCRIPTS),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // Links from invitations carry a token; and with `no-referrer` browsers would send forms without an origin.
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (
            HeaderName::from_static("permissions-policy"),
            "camera=(), microphone=(), geolocation=()",
        ),
    ];
    for (name, value) in defaults {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Refuses a write that another site made the browser send.
pub async fn same_origin_writes(request: Request, next: Next) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if is_read || is_same_origin(request.headers(), request.uri()) {
        return next.run(request).await;
    }
    tracing::warn!(
        path = request.uri().path(),
        origin = ?request.headers().get(header::ORIGIN),
        "refused a write from another origin"
    );
    error::document(&PageError::ForeignOrigin).into_response()
}

/// Whether the browser says that the request comes from a page of this very host. Every browser in use sends `Origin`
/// with a form; a request that has neither header is refused rather than trusted.
fn is_same_origin(headers: &HeaderMap, uri: &Uri) -> bool {
    if let Some(site) = headers.get(SEC_FETCH_SITE) {
        return site == "same-origin";
    }
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .or_else(|| uri.authority().map(|authority| authority.as_str()));
    let origin = headers
        .get(header::ORIGIN)
        .and_then(|origin| origin.to_str().ok())
        .and_then(|origin| origin.split_once("://"));
    match (host, origin) {
        (Some(host), Some((_, origin_host))) => host.eq_ignore_ascii_case(origin_host),
        _ => false,
    }
}

#[cfg(test)]
mod tests;

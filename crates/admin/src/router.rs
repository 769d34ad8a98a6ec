//! The console as one axum router: pages, forms, the browser's files, the CSV.

use std::time::Duration;

use axum::body::HttpBody;
use axum::extract::Request;
use axum::middleware;
use axum::response::Response;
use axum::routing::get;
use axum::{Router, http};
use leptos::prelude::*;
use leptos::server_fn::axum::server_fn_paths;
use leptos_axum::{LeptosRoutes, generate_route_list};
use tokio::time::timeout;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::Predicate;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::services::{ServeDir, ServeFile};
use tower_http::set_header::SetResponseHeaderLayer;
use tower_sessions::SessionStore;

use crate::app::App;
use crate::error::{self, PageError};
use crate::pages::{adjustments, reports};
use crate::state::AdminState;
use crate::visit::WithoutSecret;
use crate::{live, protection, session, shell, visit};

/// The longest form, in bytes.
const FORM_BYTES_MAX: usize = 32 * 1024;
/// How long a page may take. Its download of a report has a bound of its own.
const PAGE_WAIT: Duration = Duration::from_secs(30);

/// The address of every page that the router mounts, with names for what differs: `/keys/:id`.
pub fn pages() -> Vec<String> {
    let mut pages: Vec<String> = generate_route_list(App)
        .iter()
        .map(|route| route.path().to_owned())
        .collect();
    pages.extend([reports::CSV_PATH.to_owned(), adjustments::CSV_PATH.to_owned()]);
    pages
}

/// The address of every form that the router mounts.
pub fn forms() -> Vec<String> {
    server_fn_paths().map(|(path, _)| path.to_owned()).collect()
}

/// Everything of the console. `sessions` keeps the sessions. The caller serves it with connection information
/// (`into_make_service_with_connect_info::<SocketAddr>()`), so that sign-ins can be throttled by address.
pub fn router<S: SessionStore + Clone>(state: AdminState, sessions: S) -> Router {
    let options = state.options.clone();
    let routes = generate_route_list(App);
    let context = {
        let state = state.clone();
        move || provide_context(state.clone())
    };
    let document = {
        let options = options.clone();
        move || shell::shell(options.clone())
    };
    let not_found = leptos_axum::render_app_async_with_context(context.clone(), document.clone());
    let pages = Router::new()
        .leptos_routes_with_context(&options, routes, context, document)
        .with_state(options)
        .route(reports::CSV_PATH, get(reports::csv))
        .route(adjustments::CSV_PATH, get(adjustments::csv))
        .fallback(not_found)
        // From the innermost to the outermost.
        .layer(middleware::from_fn_with_state(state.clone(), visit::layer))
        .layer(session::layer(sessions, state.has_secure_cookies))
        .layer(middleware::from_fn(protection::same_origin_writes))
        .layer(RequestBodyLimitLayer::new(FORM_BYTES_MAX))
        .layer(middleware::from_fn(too_large))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn(within_bounds))
        .layer(middleware::from_fn(visit::speak));
    let live = live::router(pages.clone(), state.live_streams_max, state.stopping.clone());
    pages
        .merge(live)
        .layer(middleware::from_fn(protection::secure_headers))
        .layer(CompressionLayer::new().compress_when(PagesWithoutSecret))
        .merge(files(&state))
        .layer(SetResponseHeaderLayer::overriding(
            http::header::STRICT_TRANSPORT_SECURITY,
            state.has_secure_cookies.then_some(protection::TLS_ONLY),
        ))
}

/// Pages that show no secret. From how long a compressed page is, whoever chooses a part of it (a link with a search in it)
/// could guess what else is on it (BREACH); so pages with secrets, those of strangers, and everything that is no page stay as
/// they are. The nonce of the content security policy is another one each time.
#[derive(Clone, Copy)]
struct PagesWithoutSecret;

impl Predicate for PagesWithoutSecret {
    fn should_compress<B: HttpBody>(&self, response: &http::Response<B>) -> bool {
        let kind = response.headers().get(http::header::CONTENT_TYPE);
        let is_page = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
        is_page && response.extensions().get::<WithoutSecret>().is_some()
    }
}

/// The browser's files, unchanged. Browsers ask each time whether they are still the same: their names stay when their
/// content changes.
fn files(state: &AdminState) -> Router {
    let site = &state.site_dir;
    let cached =
        SetResponseHeaderLayer::overriding(http::header::CACHE_CONTROL, http::HeaderValue::from_static("no-cache"));
    Router::new()
        .nest_service("/pkg", ServeDir::new(site.join("pkg")))
        .route_service("/favicon.svg", ServeFile::new(site.join("favicon.svg")))
        .route_service("/robots.txt", ServeFile::new(site.join("robots.txt")))
        .layer(CompressionLayer::new())
        .layer(cached)
        .layer(middleware::from_fn(protection::secure_headers))
}

/// A bound on the head of an answer; a body that is streamed has its own.
async fn within_bounds(request: Request, next: middleware::Next) -> Response {
    match timeout(PAGE_WAIT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => error::document(&PageError::Late),
    }
}

fn panicked(_panic: Box<dyn std::any::Any + Send>) -> Response {
    tracing::error!("a page or form of the console panicked");
    error::document(&PageError::Internal)
}

/// Gives the limit's bare refusal a page.
async fn too_large(request: Request, next: middleware::Next) -> Response {
    let response = next.run(request).await;
    if response.status() == http::StatusCode::PAYLOAD_TOO_LARGE {
        error::document(&PageError::TooLarge)
    } else {
        response
    }
}

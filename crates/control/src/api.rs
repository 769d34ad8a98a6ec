//! The JSON API under `/api/v1`: what programs may do of what people do in the console, by the same operations.
//!
//! Every route is a row in the file of its noun ([`routes`]), with the permission that it asks of a management token, the
//! parameters that its query may have, the schema that its body must fit and that of its answer. The description is made of
//! the same rows ([`openapi`]). A route to come is a row, a handler beside it, and schemas in `openapi/<noun>.json`. No cookie
//! is looked at, so no page of another site can use a session here.

mod adjustments;
mod audit;
mod body;
mod call;
mod entries;
mod explain;
mod jobs;
mod keys;
mod limits;
mod made;
mod models;
mod openapi;
mod pages;
mod people;
mod plans;
mod prices;
mod problem;
mod query;
mod rejections;
mod reports;
mod route;
mod settlements;
mod shape;
mod tenants;
mod upstreams;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use chrono::{DateTime, Utc};
use http::header::{self, HeaderValue};
use http::{HeaderName, Method};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tower_http::catch_panic::CatchPanicLayer;

use crate::Control;
use call::Rules;
use problem::Problem;
use route::Route;

/// Calls that are answered at once; half of the connections that API and console share. Those beyond wait.
const CALLS_MAX: usize = 8;
/// Tokens that are looked at at once: strangers take no turn of those who are let in.
const TOKENS_LOOKED_AT_MAX: usize = 4;
/// How long a call waits for its turn.
const TURN_WAIT: Duration = Duration::from_secs(3);
/// How long the head of an answer may take. The body of a report has a bound of its own.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// What every route can reach. Cheap to clone.
#[derive(Clone)]
struct Api {
    control: Arc<Control>,
    now: fn() -> DateTime<Utc>,
    /// Turns of callers who have shown a token that works.
    turns: Arc<Semaphore>,
    /// Turns of those whose token is being looked at.
    doors: Arc<Semaphore>,
}

/// All routes, noun by noun.
fn routes() -> Vec<Route> {
    [
        openapi::routes(),
        tenants::routes(),
        plans::routes(),
        people::routes(),
        keys::routes(),
        limits::routes(),
        models::routes(),
        prices::routes(),
        upstreams::routes(),
        settlements::routes(),
        rejections::routes(),
        adjustments::routes(),
        jobs::routes(),
        reports::routes(),
        explain::routes(),
        audit::routes(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Every call that the router answers: its method and its path, with names for what differs, and whether anybody may.
pub fn calls() -> Vec<(Method, &'static str, bool)> {
    let rows = routes().into_iter();
    rows.map(|route| (route.method, route.path, route.permission.is_none()))
        .collect()
}

/// The API as one router, with everything below `/api`. The caller serves it with connection information, so that the
/// audit log knows from where a token was used.
pub fn router(control: Arc<Control>, now: fn() -> DateTime<Utc>) -> Router {
    let api = Api {
        control,
        now,
        turns: Arc::new(Semaphore::new(CALLS_MAX)),
        doors: Arc::new(Semaphore::new(TOKENS_LOOKED_AT_MAX)),
    };
    let mut router = Router::new();
    for route in routes() {
        let rules = Rules {
            permission: route.permission,
            parameters: route.parameters,
            asked: route.asked,
        };
        let admit = middleware::from_fn_with_state((api.clone(), rules), call::admit);
        router = router.route(route.path, route.handler.route_layer(admit));
    }
    router
        .route("/api", any(not_found))
        .route("/api/", any(not_found))
        .route("/api/{*rest}", any(not_found))
        .method_not_allowed_fallback(method_not_allowed)
        // From the innermost to the outermost.
        .layer(middleware::from_fn(within_bounds))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn(protect))
        .with_state(api)
}

async fn not_found() -> Problem {
    Problem::not_found("there is nothing under this path; /api/openapi.json lists what there is")
}

async fn method_not_allowed() -> Problem {
    Problem::method_not_allowed()
}

fn panicked(_panic: Box<dyn Any + Send>) -> Response {
    tracing::error!("a call of the API panicked");
    Problem::internal().into_response()
}

/// A turn among those who are answered at once.
async fn turn(turns: &Semaphore) -> Result<SemaphorePermit<'_>, Problem> {
    match timeout(TURN_WAIT, turns.acquire()).await {
        Ok(Ok(turn)) => Ok(turn),
        _ => Err(Problem::busy(
            "too many calls at this moment; try again in a few seconds",
        )),
    }
}

/// A bound on the answer's head.
async fn within_bounds(request: Request, next: Next) -> Response {
    match timeout(ANSWER_WAIT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::busy("this takes too long: the database does not answer").into_response(),
    }
}

/// Answers are other people's figures: never stored, never taken for something else. To browsers, which follow a link to the
/// description, they say the same as the console's.
async fn protect(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let fixed: [(HeaderName, &str); 5] = [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "same-origin"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        ),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests;

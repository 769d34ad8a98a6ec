//! What the data plane serves.

use std::any::Any;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{any, get, post};
use bytes::Bytes;
use domain::policy::Dialect;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Request};
use limits::Mode;
use protocol::endpoint::Endpoint;
use protocol::headers::dialect;
use protocol::models::{ListedModel, model_body, models_body};
use tower_http::catch_panic::CatchPanicLayer;

use crate::authenticate::Caller;
use crate::policy::ModelPolicy;
use crate::refusal::Refusal;
use crate::{Gateway, case, error, jobs, metrics, own_key, pipeline};

const X_RATELIMIT_MODE: HeaderName = HeaderName::from_static("x-ratelimit-mode");
const X_RATELIMIT_QUEUE_DEPTH: HeaderName = HeaderName::from_static("x-ratelimit-queue-depth");
const X_BACKPRESSURE: HeaderName = HeaderName::from_static("x-backpressure");

/// The routes of the proxy, all below `/v1`. Everything else there is closed.
pub fn router(gateway: Arc<Gateway>) -> Router {
    let served = |dialect: Dialect| {
        let endpoints = Endpoint::ALL
            .into_iter()
            .filter(|endpoint| endpoint.dialect() == dialect);
        let routes = endpoints.fold(Router::new(), |routes, endpoint| {
            let infer = move |State(gateway): State<Arc<Gateway>>, request: Request<Body>| {
                pipeline::infer(endpoint, gateway, request)
            };
            routes.route(
                &format!("/v1/{endpoint}"),
                post(infer).fallback(pipeline::unknown_route),
            )
        });
        // The flight of a request that panics has booked it while the panic passed through; the caller is told here.
        routes.layer(CatchPanicLayer::custom(move |_: Box<dyn Any + Send>| {
            error::panicked(dialect)
        }))
    };
    Router::new()
        .route("/v1/models", get(models).fallback(pipeline::unknown_route))
        .route("/v1/models/{*name}", get(model).fallback(pipeline::unknown_route))
        .route("/v1/key", get(own_key::show).fallback(pipeline::unknown_route))
        .route("/v1/jobs", get(jobs::api::list).fallback(pipeline::unknown_route))
        .route("/v1/jobs/{id}", get(jobs::api::find).fallback(pipeline::unknown_route))
        .route(
            "/v1/jobs/{id}/cancel",
            post(jobs::api::cancel).fallback(pipeline::unknown_route),
        )
        .route("/v1/{*path}", any(pipeline::unknown_route))
        .layer(CatchPanicLayer::custom(|_: Box<dyn Any + Send>| {
            error::panicked(Dialect::Openai)
        }))
        .merge(served(Dialect::Openai))
        .merge(served(Dialect::Anthropic))
        .layer(middleware::from_fn_with_state(Arc::clone(&gateway), tell_state))
        .with_state(gateway)
}

/// Tells callers how busy this gateway is: how many wait for room, whether hardly any more may, and whether requests are
/// admitted by its own counters, at a part of every limit.
async fn tell_state(State(gateway): State<Arc<Gateway>>, request: Request<Body>, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(X_RATELIMIT_QUEUE_DEPTH, HeaderValue::from(gateway.queue.depth()));
    if gateway.queue.is_nearly_full() {
        headers.insert(X_BACKPRESSURE, HeaderValue::from_static("high"));
    }
    if let Mode::Degraded { .. } = gateway.limits.mode(gateway.clock.now()) {
        headers.insert(X_RATELIMIT_MODE, HeaderValue::from_static("degraded"));
    }
    response
}

/// Who asks something that uses nothing and leaves no row.
///
/// # Errors
/// With the answer, when it is nobody who may.
pub(crate) fn caller(gateway: &Gateway, headers: &HeaderMap) -> Result<Caller, Box<Response>> {
    let now = gateway.clock.now();
    let dialect = dialect(headers);
    let caller = gateway.authenticate(headers, now.wall).map_err(|reason| {
        metrics::unauthenticated(reason);
        error::unauthenticated(dialect, reason)
    })?;
    match caller.refusal_at(now.wall) {
        Some((code, message)) => Err(Box::new(error::refused(
            dialect,
            domain::ids::RequestId::new(now.wall, gateway.random()),
            &Refusal::plain(code, message),
        ))),
        None => Ok(caller),
    }
}

/// `GET /v1/models`: what the key may use.
async fn models(State(gateway): State<Arc<Gateway>>, headers: HeaderMap, _: Request<Body>) -> Response {
    let caller = match caller(&gateway, &headers) {
        Ok(caller) => caller,
        Err(response) => return *response,
    };
    let models = caller.policy.models_of(&caller.key, &caller.tenant);
    json(models_body(dialect(&headers), models.iter().map(|entry| listed(entry))))
}

/// `GET /v1/models/{name}`: one of them. Names may have slashes.
async fn model(State(gateway): State<Arc<Gateway>>, Path(name): Path<String>, headers: HeaderMap) -> Response {
    let caller = match caller(&gateway, &headers) {
        Ok(caller) => caller,
        Err(response) => return *response,
    };
    let dialect = dialect(&headers);
    match case::model(&caller, &name) {
        Ok(model) => json(model_body(dialect, listed(&model))),
        Err(refusal) => {
            let id = domain::ids::RequestId::new(gateway.clock.now().wall, gateway.random());
            error::refused(dialect, id, &refusal)
        }
    }
}

fn listed(model: &ModelPolicy) -> ListedModel<'_> {
    ListedModel {
        name: &model.model.name,
        created_seconds: 0,
    }
}

pub(crate) fn json(body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

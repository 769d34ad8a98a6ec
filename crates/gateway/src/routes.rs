//! What the data plane serves.

use std::any::Any;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{any, get, post};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Request};
use protocol::models::{ListedModel, models_body};
use tower_http::catch_panic::CatchPanicLayer;

use crate::refusal::Refusal;
use crate::{Gateway, error, metrics, pipeline};

/// The routes of the proxy, all below `/v1`. Everything else there is closed.
pub fn router(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route(
            "/v1/chat/completions",
            post(pipeline::chat_completions).fallback(pipeline::unknown_route),
        )
        .route("/v1/models", get(models).fallback(pipeline::unknown_route))
        .route("/v1/{*path}", any(pipeline::unknown_route))
        // The flight of a request that panics has booked it while the panic passed through; the caller is told here.
        .layer(CatchPanicLayer::custom(|_: Box<dyn Any + Send>| error::panicked()))
        .with_state(gateway)
}

/// `GET /v1/models`: what the key may use.
async fn models(State(gateway): State<Arc<Gateway>>, headers: HeaderMap, _: Request<Body>) -> Response {
    let now = gateway.clock.now();
    let caller = match gateway.authenticate(&headers, now.wall) {
        Ok(caller) => caller,
        Err(reason) => {
            metrics::unauthenticated(reason);
            return error::unauthenticated(reason);
        }
    };
    if let Some((code, message)) = caller.refusal_at(now.wall) {
        return error::refused(
            domain::ids::RequestId::new(now.wall, gateway.random()),
            &Refusal::plain(code, message),
        );
    }
    let models = caller.policy.models_of(&caller.key);
    let listed = models.iter().map(|entry| ListedModel {
        name: &entry.model.name,
        created_seconds: 0,
    });
    let mut response = Response::new(Body::from(models_body(listed)));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

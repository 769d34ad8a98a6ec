//! Health and metrics: is the process alive, can it serve, and what does it count.

use std::sync::{Arc, OnceLock};

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use gateway::Gateway;
use gateway::metrics::{
    ADDED_SECONDS, ADDED_SECONDS_BOUNDS, FIRST_BYTE_SECONDS, QUEUE_SECONDS, REQUEST_SECONDS, REQUEST_SECONDS_BOUNDS,
    describe,
};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use serde::Serialize;

/// What `/readyz` says.
#[derive(Debug, Serialize)]
struct Readiness {
    /// Whether requests can be served.
    ready: bool,
    /// What is degraded, in words.
    degraded: Vec<String>,
    /// The policy version in force.
    policy_version: i64,
    /// Where counters live.
    counters: String,
}

/// `/healthz` and `/readyz`: what load balancers ask.
pub fn probes(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(gateway)
}

/// `/metrics`: names of models and how much they are used, so where the console has an address of its own it is there only.
pub fn metrics(gateway: Arc<Gateway>) -> Router {
    Router::new().route("/metrics", get(render)).with_state(gateway)
}

/// The process's one recorder; started by whoever asks first.
pub fn recorder() -> Option<&'static PrometheusHandle> {
    static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    RECORDER
        .get_or_init(|| {
            let full = |name: &str| Matcher::Full(name.to_owned());
            let handle = PrometheusBuilder::new()
                .set_buckets_for_metric(full(ADDED_SECONDS), &ADDED_SECONDS_BOUNDS)
                .and_then(|builder| builder.set_buckets_for_metric(full(REQUEST_SECONDS), &REQUEST_SECONDS_BOUNDS))
                .and_then(|builder| builder.set_buckets_for_metric(full(QUEUE_SECONDS), &REQUEST_SECONDS_BOUNDS))
                .and_then(|builder| builder.set_buckets_for_metric(full(FIRST_BYTE_SECONDS), &REQUEST_SECONDS_BOUNDS))
                .and_then(PrometheusBuilder::install_recorder);
            match handle {
                Ok(handle) => {
                    describe();
                    Some(handle)
                }
                Err(error) => {
                    tracing::error!(%error, "metrics cannot be recorded");
                    None
                }
            }
        })
        .as_ref()
}

async fn ready(State(gateway): State<Arc<Gateway>>) -> Response {
    let status = gateway.status();
    let readiness = Readiness {
        ready: gateway.is_ready(),
        degraded: status.degraded.into_iter().map(|degraded| degraded.text).collect(),
        policy_version: status.policy_version,
        counters: status.counters,
    };
    let code = if readiness.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (code, Json(readiness)).into_response()
}

async fn render(State(gateway): State<Arc<Gateway>>) -> Response {
    match recorder() {
        Some(recorder) => {
            gateway.report_metrics(&gateway.status());
            recorder.run_upkeep();
            (
                [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
                recorder.render(),
            )
                .into_response()
        }
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

//! `GET /v1/models`, as the provider whose headers came would list them.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use serde::Serialize;

use crate::Shared;
use crate::provider::Provider;

#[derive(Serialize)]
struct OpenAiList<'a> {
    object: &'static str,
    data: Vec<OpenAiModel<'a>>,
}

#[derive(Serialize)]
struct OpenAiModel<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
}

#[derive(Serialize)]
struct AnthropicList<'a> {
    data: Vec<AnthropicModel<'a>>,
    has_more: bool,
    first_id: Option<&'a str>,
    last_id: Option<&'a str>,
}

#[derive(Serialize)]
struct AnthropicModel<'a> {
    r#type: &'static str,
    id: &'a str,
    display_name: &'a str,
    created_at: &'static str,
    lifecycle: &'static str,
}

pub(crate) async fn list(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let names = || shared.config.models.iter().map(String::as_str);
    match Provider::of(&headers) {
        Provider::OpenAi => Json(OpenAiList {
            object: "list",
            data: names()
                .map(|id| OpenAiModel {
                    id,
                    object: "model",
                    created: 0,
                    owned_by: "tollgate",
                })
                .collect(),
        })
        .into_response(),
        Provider::Anthropic => Json(AnthropicList {
            data: names()
                .map(|id| AnthropicModel {
                    r#type: "model",
                    id,
                    display_name: id,
                    created_at: "1970-01-01T00:00:00Z",
                    lifecycle: "active",
                })
                .collect(),
            has_more: false,
            first_id: names().next(),
            last_id: names().next_back(),
        })
        .into_response(),
    }
}

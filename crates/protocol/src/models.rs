//! The bodies of `GET /v1/models` and of `GET /v1/models/{name}`.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use domain::policy::Dialect;
use serde::Serialize;

use crate::errors::json_bytes;

/// One model of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedModel<'a> {
    /// The name to ask for.
    pub name: &'a str,
    /// When it was made, in seconds since 1970; zero when nobody knows.
    pub created_seconds: i64,
}

/// The list, in the order given, all on one page.
pub fn models_body<'a>(dialect: Dialect, models: impl IntoIterator<Item = ListedModel<'a>>) -> Bytes {
    #[derive(Serialize)]
    struct Openai<'a> {
        object: &'static str,
        data: Vec<OpenaiModel<'a>>,
    }
    #[derive(Serialize)]
    struct Anthropic<'a> {
        data: Vec<AnthropicModel<'a>>,
        has_more: bool,
        first_id: Option<&'a str>,
        last_id: Option<&'a str>,
    }
    let models = models.into_iter();
    match dialect {
        Dialect::Openai => json_bytes(&Openai {
            object: "list",
            data: models.map(OpenaiModel::of).collect(),
        }),
        Dialect::Anthropic => {
            let data: Vec<AnthropicModel<'a>> = models.map(AnthropicModel::of).collect();
            json_bytes(&Anthropic {
                first_id: data.first().map(|model| model.id),
                last_id: data.last().map(|model| model.id),
                has_more: false,
                data,
            })
        }
    }
}

/// One model.
pub fn model_body(dialect: Dialect, model: ListedModel<'_>) -> Bytes {
    match dialect {
        Dialect::Openai => json_bytes(&OpenaiModel::of(model)),
        Dialect::Anthropic => json_bytes(&AnthropicModel::of(model)),
    }
}

#[derive(Serialize)]
struct OpenaiModel<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    owned_by: &'static str,
}

impl<'a> OpenaiModel<'a> {
    fn of(model: ListedModel<'a>) -> Self {
        Self {
            id: model.name,
            object: "model",
            created: model.created_seconds,
            owned_by: "tollgate",
        }
    }
}

#[derive(Serialize)]
struct AnthropicModel<'a> {
    r#type: &'static str,
    id: &'a str,
    display_name: &'a str,
    created_at: DateTime<Utc>,
    lifecycle: &'static str,
}

impl<'a> AnthropicModel<'a> {
    fn of(model: ListedModel<'a>) -> Self {
        Self {
            r#type: "model",
            id: model.name,
            display_name: model.name,
            created_at: DateTime::from_timestamp(model.created_seconds, 0).unwrap_or_default(),
            // What is listed can be asked for.
            lifecycle: "active",
        }
    }
}

#[cfg(test)]
mod tests;

//! The body of `GET /v1/models`.

use bytes::Bytes;
use serde::Serialize;

/// One model of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedModel<'a> {
    /// The name to ask for.
    pub name: &'a str,
    /// When it was made, in seconds since 1970; zero when nobody knows.
    pub created_seconds: i64,
}

/// The list, in the order given.
pub fn models_body<'a>(models: impl IntoIterator<Item = ListedModel<'a>>) -> Bytes {
    #[derive(Serialize)]
    struct List<'a> {
        object: &'static str,
        data: Vec<Entry<'a>>,
    }
    #[derive(Serialize)]
    struct Entry<'a> {
        id: &'a str,
        object: &'static str,
        created: i64,
        owned_by: &'static str,
    }
    let data = models
        .into_iter()
        .map(|model| Entry {
            id: model.name,
            object: "model",
            created: model.created_seconds,
            owned_by: "tollgate",
        })
        .collect();
    crate::errors::json_bytes(&List { object: "list", data })
}

#[cfg(test)]
mod tests;

//! Requests that were refused: lists, and one with every limit that was checked.

use axum::extract::State;
use axum::{Extension, Json};
use domain::ledger::Rejection;
use domain::management_tokens::Permission::LedgerRead;
use serde_json::{Map, Value, json};
use store::entries::{EntryFilter, Named};

use super::Api;
use super::call::Call;
use super::entries::{Listed, named, page};
use super::problem::Problem;
use super::route::{Answered, Route};

/// What there is of rejections.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/rejections", LedgerRead, Answered::One("Rejections"), list)
            .with(&PARAMETERS)
            .says(
            "Requests that were refused",
            "The newest first. From the twenty-first equal refusal in a minute they share an entry: `refusal_count` says how many it \
             stands for.",
        ),
        Route::get("/api/v1/rejections/{id}", LedgerRead, Answered::One("RejectionInFull"), show)
            .says("One request that was refused", "With every limit that was checked."),
    ]
}

/// What a list can be narrowed to.
const PARAMETERS: [&str; 11] = [
    "from", "until", "tenant", "key", "user", "model", "request", "code", "tag", "limit", "cursor",
];

/// The newest first.
async fn list(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let Listed { filter, after, limit } = Listed::read(&api, &call).await?;
    let entries = api.control.rejections(&call.actor, &filter, after, limit).await?;
    page(&api, entries, |entry| Value::Object(rejection(entry))).await
}

/// One.
async fn show(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id = call.id("rejection")?;
    let filter = EntryFilter {
        request: Some(id),
        ..EntryFilter::default()
    };
    let found = api.control.rejections(&call.actor, &filter, None, 1).await?;
    let Some(entry) = found.entries.into_iter().next() else {
        return Err(Problem::not_found(
            "there is no such rejection; a request that ran is among the settlements",
        ));
    };
    let mut value = rejection(&entry);
    value.insert(
        "currency".to_owned(),
        json!(api.control.settings().await?.settings.currency),
    );
    Ok(Json(Value::Object(value)))
}

fn rejection(entry: &Named<Rejection>) -> Map<String, Value> {
    named(entry, &[("expected_cost", entry.entry.expected_cost_nanos)])
}

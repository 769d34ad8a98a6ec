//! Models with their routes: read, added, changed. Their prices are a noun of their own.

use axum::extract::State;
use axum::{Extension, Json};
use domain::management_tokens::Permission::{ModelsRead, ModelsWrite};
use domain::policy::{Encoding, Route as ModelRoute};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::models::ModelRow;

use super::Api;
use super::body::present;
use super::call::Call;
use super::pages;
use super::problem::{Problem, or_taken};
use super::route::{Answered, Asked, Route};
use crate::ControlError;
use crate::fields::Fields;
use crate::models::ModelDraft;

/// What there is of models.
pub(super) fn routes() -> Vec<Route> {
    const PATH: &str = "/api/v1/models";
    const ONE: &str = "/api/v1/models/{name}";
    vec![
        Route::get(PATH, ModelsRead, Answered::Page("Model"), list)
            .with(&["limit", "cursor"])
            .says(
                "Models",
                "By name. A token of one tenant sees those that are not disabled, without their routes.",
            ),
        Route::get(ONE, ModelsRead, Answered::One("Model"), show)
            .says("One model", "A slash in its name is written `%2F`."),
        Route::post(
            PATH,
            ModelsWrite,
            Asked::Shape("NewModel"),
            Answered::Created("Model"),
            create,
        )
        .says(
            "Add a model",
            "It is refused to callers until it has a price, unless the policy for unpriced models says otherwise. Names are \
             unique: a call that is repeated is answered with 409 and the model that exists.",
        ),
        Route::patch(
            ONE,
            ModelsWrite,
            Asked::Shape("ModelChange"),
            Answered::One("Model"),
            change,
        )
        .says(
            "Change a model",
            "Fields that are absent stay as they are; `routes` replaces all of its routes.",
        ),
    ]
}

#[derive(Deserialize)]
struct NewModel {
    name: String,
    group: Option<String>,
    context_tokens: u64,
    output_cap_tokens: u64,
    output_default_tokens: u64,
    #[serde(default)]
    encoding: Encoding,
    #[serde(default)]
    is_disabled: bool,
    routes: Vec<ModelRoute>,
}

#[derive(Deserialize)]
struct ModelChange {
    version: i64,
    #[serde(default, deserialize_with = "present")]
    group: Option<Option<String>>,
    context_tokens: Option<u64>,
    output_cap_tokens: Option<u64>,
    output_default_tokens: Option<u64>,
    encoding: Option<Encoding>,
    is_disabled: Option<bool>,
    routes: Option<Vec<ModelRoute>>,
}

async fn list(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let mut fields = Fields::default();
    let asked = pages::Asked::<String>::read(&call, &mut fields);
    fields.check()?;
    let rows = api.control.models(&call.actor, call.now).await?;
    Ok(asked.page_of_all(rows, |row| row.model.name.clone(), model))
}

async fn show(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let name = call.name("model")?;
    Ok(Json(model(&api.control.model(&call.actor, name, call.now).await?)))
}

async fn create(
    State(api): State<Api>,
    Extension(call): Extension<Call>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let new: NewModel = call.body()?;
    let draft = ModelDraft {
        name: new.name,
        group: new.group,
        context_tokens: new.context_tokens,
        output_cap_tokens: new.output_cap_tokens,
        output_default_tokens: new.output_default_tokens,
        encoding: new.encoding,
        is_disabled: new.is_disabled,
        routes: new.routes,
    };
    let name = draft.name.trim();
    let made = api.control.create_model(&call.actor, &draft, call.now).await;
    let named = async || match api.control.model_within_reach(&call.actor, name, call.now).await {
        Ok(_) => Ok(Some(name)),
        Err(ControlError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    };
    or_taken(made, "model", named).await?;
    let made = api.control.model_within_reach(&call.actor, name, call.now).await?;
    Ok((StatusCode::CREATED, Json(model(&made))))
}

async fn change(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let name = call.name("model")?;
    let change: ModelChange = call.body()?;
    let old = api.control.model_within_reach(&call.actor, name, call.now).await?.model;
    let draft = ModelDraft {
        name: old.name,
        group: change.group.unwrap_or(old.group.map(|group| group.to_string())),
        context_tokens: change.context_tokens.unwrap_or(old.context_tokens),
        output_cap_tokens: change.output_cap_tokens.unwrap_or(old.output_cap_tokens),
        output_default_tokens: change.output_default_tokens.unwrap_or(old.output_default_tokens),
        encoding: change.encoding.unwrap_or(old.encoding),
        is_disabled: change.is_disabled.unwrap_or(old.disabled_at.is_some()),
        routes: change.routes.unwrap_or(old.routes),
    };
    api.control
        .edit_model(&call.actor, change.version, &draft, call.now)
        .await?;
    let changed = api.control.model_within_reach(&call.actor, name, call.now).await?;
    Ok(Json(model(&changed)))
}

fn model(row: &ModelRow) -> Value {
    json!({
        "name": row.model.name,
        "group": row.model.group,
        "context_tokens": row.model.context_tokens,
        "output_cap_tokens": row.model.output_cap_tokens,
        "output_default_tokens": row.model.output_default_tokens,
        "encoding": row.model.encoding,
        "disabled_at": row.model.disabled_at,
        "routes": row.model.routes,
        "dialects": row.dialects,
        "price_id": row.price.as_ref().map(|price| price.id),
        "created_at": row.created_at,
        "version": row.version,
    })
}

//! Upstreams: read, added, changed. A credential goes in and never comes out.

use axum::extract::State;
use axum::{Extension, Json};
use domain::ids::UpstreamId;
use domain::management_tokens::Permission::{UpstreamsRead, UpstreamsWrite};
use domain::policy::Dialect;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::upstreams::UpstreamRow;

use super::Api;
use super::body::present;
use super::call::Call;
use super::pages;
use super::problem::{Problem, or_taken};
use super::route::{Answered, Asked, Route};
use crate::fields::Fields;
use crate::upstreams::{CredentialChange, UpstreamDraft};

/// What there is of upstreams.
pub(super) fn routes() -> Vec<Route> {
    const PATH: &str = "/api/v1/upstreams";
    const ONE: &str = "/api/v1/upstreams/{id}";
    vec![
        Route::get(PATH, UpstreamsRead, Answered::Page("Upstream"), list)
            .with(&["limit", "cursor"])
            .says("Upstreams", "In the order in which they were added, without their credentials."),
        Route::get(ONE, UpstreamsRead, Answered::One("Upstream"), show)
            .says("One upstream", "Without its credential."),
        Route::post(
            PATH,
            UpstreamsWrite,
            Asked::Shape("NewUpstream"),
            Answered::Created("Upstream"),
            create,
        )
        .says(
            "Add an upstream",
            "Names are unique: a call that is repeated is answered with 409 and the upstream that exists.",
        ),
        Route::patch(
            ONE,
            UpstreamsWrite,
            Asked::Shape("UpstreamChange"),
            Answered::One("Upstream"),
            change,
        )
        .says(
            "Change an upstream",
            "Fields that are absent stay as they are; `credential` null takes it away. Another host, port or scheme wants the \
             credential again.",
        ),
    ]
}

#[derive(Deserialize)]
struct NewUpstream {
    name: String,
    dialect: Dialect,
    base_url: String,
    credential: Option<String>,
    #[serde(default)]
    is_disabled: bool,
}

#[derive(Deserialize)]
struct UpstreamChange {
    version: i64,
    name: Option<String>,
    dialect: Option<Dialect>,
    base_url: Option<String>,
    #[serde(default, deserialize_with = "present")]
    credential: Option<Option<String>>,
    is_disabled: Option<bool>,
}

async fn list(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let mut fields = Fields::default();
    let asked = pages::Asked::<UpstreamId>::read(&call, &mut fields);
    fields.check()?;
    let rows = api.control.upstreams(&call.actor).await?;
    Ok(asked.page_of_all(rows, |row| row.id, upstream))
}

async fn show(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id = call.id("upstream")?;
    Ok(Json(upstream(&api.control.upstream(&call.actor, id).await?)))
}

async fn create(
    State(api): State<Api>,
    Extension(call): Extension<Call>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let new: NewUpstream = call.body()?;
    let draft = UpstreamDraft {
        name: new.name,
        dialect: new.dialect,
        base_url: new.base_url,
        credential: new
            .credential
            .map_or(CredentialChange::Clear, CredentialChange::Replace),
        is_disabled: new.is_disabled,
    };
    let made = api.control.create_upstream(&call.actor, &draft, call.now).await;
    let named = async || api.control.upstream_named(&call.actor, &draft.name).await;
    let id = or_taken(made, "upstream", named).await?;
    let made = api.control.upstream_within_reach(&call.actor, id).await?;
    Ok((StatusCode::CREATED, Json(upstream(&made))))
}

async fn change(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id = call.id("upstream")?;
    let change: UpstreamChange = call.body()?;
    let old = api.control.upstream_within_reach(&call.actor, id).await?;
    let draft = UpstreamDraft {
        name: change.name.unwrap_or(old.name),
        dialect: change.dialect.unwrap_or(old.dialect),
        base_url: change.base_url.unwrap_or(old.base_url),
        credential: match change.credential {
            None => CredentialChange::Keep,
            Some(None) => CredentialChange::Clear,
            Some(Some(text)) => CredentialChange::Replace(text),
        },
        is_disabled: change.is_disabled.unwrap_or(old.disabled_at.is_some()),
    };
    api.control
        .edit_upstream(&call.actor, id, change.version, &draft, call.now)
        .await?;
    let changed = api.control.upstream_within_reach(&call.actor, id).await?;
    Ok(Json(upstream(&changed)))
}

fn upstream(row: &UpstreamRow) -> Value {
    json!({
        "id": row.id,
        "name": row.name,
        "dialect": row.dialect,
        "base_url": row.base_url,
        "has_credential": row.has_credential,
        "disabled_at": row.disabled_at,
        "created_at": row.created_at,
        "version": row.version,
    })
}

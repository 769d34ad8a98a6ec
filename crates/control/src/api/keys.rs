//! Keys: read, issued, changed, revoked. A key's text is in the answer that issues it, and in no other.

use axum::extract::State;
use axum::{Extension, Json};
use chrono::{DateTime, Utc};
use domain::ids::{KeyId, PersonId, TenantId};
use domain::key_rotation::Overlap;
use domain::limits::Dimension;
use domain::management_tokens::Permission::{KeysRead, KeysWrite};
use domain::own_limits::OwnLimits;
use domain::priority::Priority;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::keys::{KeyFilter, KeyMark, KeyOrder, KeyPlace, KeyRow};

use super::Api;
use super::body::present;
use super::call::Call;
use super::entries::{cursor, cursor_text};
use super::limits::{Figures, cost, count, figure_of};
use super::pages::PAGE_MAX;
use super::problem::Problem;
use super::route::{Answered, Asked, Route};
use super::tenants::VersionRead;
use crate::ControlError;
use crate::fields::Fields;
use crate::keys::{Expiry, IssuedKey, KeyDraft, KeyOwner, RotationDraft};
use crate::limits::{NodeLimits, field_of};

/// What there is of keys.
pub(super) fn routes() -> Vec<Route> {
    const PATH: &str = "/api/v1/keys";
    const ONE: &str = "/api/v1/keys/{id}";
    vec![
        Route::get(PATH, KeysRead, Answered::Page("Key"), list)
            .with(&["tenant", "owner", "containing", "includes_revoked", "limit", "cursor"])
            .says("Keys", "The latest issued first, without their secrets."),
        Route::get(ONE, KeysRead, Answered::One("Key"), show).says("One key", "Without its secret."),
        Route::post(
            PATH,
            KeysWrite,
            Asked::Shape("NewKey"),
            Answered::Created("IssuedKey"),
            issue,
        )
        .known_by_key()
        .says(
            "Issue a key",
            "The answer holds its text, once: only a hash is kept. A call that is repeated with the same id or idempotency \
             key issues no second one: it is answered with 409 and the id of the key that exists. Where its text was lost with \
             the answer, rotate that one.",
        ),
        Route::patch(
            ONE,
            KeysWrite,
            Asked::Shape("KeyChange"),
            Answered::One("Key"),
            change,
        )
        .says("Change a key", "Fields that are absent stay as they are."),
        Route::post(
            "/api/v1/keys/{id}/rotate",
            KeysWrite,
            Asked::Shape("KeyRotation"),
            Answered::Created("IssuedKey"),
            rotate,
        )
        .says(
            "Give a key another secret",
            "The answer holds its text, once. The secret before works on for `overlap_seconds`. A call that is repeated is \
             answered with 409: read the key, and rotate again where the text was lost. While an overlap runs that replaces the \
             new secret, and the old one keeps its end. A key that has expired comes back with an `expires_at`; only its new \
             secret works then.",
        ),
        Route::post(
            "/api/v1/keys/{id}/end_overlap",
            KeysWrite,
            Asked::Shape("VersionRead"),
            Answered::One("Key"),
            end_overlap,
        )
        .says(
            "End the overlap of a rotation now",
            "Only the new secret works from then on. Where none runs, nothing changes.",
        ),
        Route::post(
            "/api/v1/keys/{id}/own_limits",
            KeysWrite,
            Asked::Shape("NewOwnLimits"),
            Answered::One("Key"),
            set_own_limits,
        )
        .says(
            "Hold a key below what it may use anyway",
            "All of its own limits at once: a dimension that is absent has none. They never raise what operators have set, and \
             only its owner lifts them: of a service account's key, whoever runs its tenant. A person's are theirs alone to set, \
             in the console.",
        ),
        Route::delete(ONE, KeysWrite, revoke).says(
            "Revoke a key",
            "For good: its requests are refused within a second. Doing so again changes nothing.",
        ),
    ]
}

#[derive(Deserialize)]
struct NewKey {
    #[serde(default)]
    id: String,
    tenant_id: TenantId,
    owner_id: Option<PersonId>,
    name: String,
    #[serde(default)]
    priority: Priority,
    allowed_models: Option<Vec<String>>,
    #[serde(default)]
    may_name_users: bool,
    #[serde(default)]
    degrades: bool,
    expires_at: Option<DateTime<Utc>>,
}

#[derive(Deserialize)]
struct KeyRotation {
    version: i64,
    overlap_seconds: u64,
    #[serde(default, deserialize_with = "present")]
    expires_at: Option<Option<DateTime<Utc>>>,
}

#[derive(Deserialize)]
struct KeyChange {
    version: i64,
    name: Option<String>,
    priority: Option<Priority>,
    #[serde(default, deserialize_with = "present")]
    allowed_models: Option<Option<Vec<String>>>,
    may_name_users: Option<bool>,
    degrades: Option<bool>,
    #[serde(default, deserialize_with = "present")]
    expires_at: Option<Option<DateTime<Utc>>>,
}

#[derive(Deserialize)]
struct NewOwnLimits {
    version: i64,
    own_limits: Vec<NewOwnLimit>,
}

#[derive(Deserialize)]
struct NewOwnLimit {
    dimension: Dimension,
    #[serde(flatten)]
    value: Figures,
}

async fn list(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let query = &call.query;
    let mut fields = Fields::default();
    let limit = query.limit(&mut fields, PAGE_MAX);
    let filter = KeyFilter {
        tenant_id: query.id(&mut fields, "tenant"),
        owner_id: query.id(&mut fields, "owner"),
        includes_revoked: query.flag(&mut fields, "includes_revoked"),
        containing: query.text(&mut fields, "containing"),
        order: KeyOrder::Newest,
        after: cursor(&call, &mut fields).map(|(at, id)| KeyPlace {
            mark: KeyMark::Issued(at),
            id: id.into(),
        }),
        count: i64::from(limit) + 1,
    };
    fields.check()?;
    let mut rows = api.control.keys(&call.actor, filter).await?;
    let has_more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next = rows.last().filter(|_| has_more);
    Ok(Json(json!({
        "entries": rows.iter().map(key).collect::<Value>(),
        "next_cursor": next.map(|row| cursor_text(row.created_at, row.id.into())),
    })))
}

async fn show(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id = call.id("key")?;
    Ok(Json(key(&api.control.key(&call.actor, id).await?)))
}

async fn issue(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<(StatusCode, Json<Value>), Problem> {
    let new: NewKey = call.body()?;
    let mut fields = Fields::default();
    let id = call.made_id("key", &new.id, &mut fields);
    fields.check()?;
    let draft = KeyDraft {
        name: new.name,
        priority: new.priority,
        allowed_models: new.allowed_models,
        may_name_users: new.may_name_users,
        degrades: new.degrades,
        expiry: expiry(new.expires_at),
    };
    let owner = new.owner_id.map_or(KeyOwner::Service, KeyOwner::Person);
    let id = KeyId(id.unwrap_or_default());
    let made = api
        .control
        .issue_key_as(&call.actor, id, new.tenant_id, owner, &draft, call.now)
        .await
        .map_err(by_body)?;
    Ok((StatusCode::CREATED, Json(issued(&made))))
}

/// Calls what is wrong by the names that the body has for it.
fn by_body(error: ControlError) -> ControlError {
    let ControlError::Invalid(mut errors) = error else {
        return error;
    };
    for error in &mut errors {
        match error.field.as_ref() {
            "owner" => error.field = "owner_id".into(),
            "expiry" => error.field = "expires_at".into(),
            _ => {}
        }
    }
    ControlError::Invalid(errors)
}

async fn change(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id = call.id("key")?;
    let change: KeyChange = call.body()?;
    let row = api.control.key_within_reach(&call.actor, id).await?;
    let draft = KeyDraft {
        name: change.name.unwrap_or(row.name),
        priority: change.priority.unwrap_or(row.priority),
        allowed_models: change.allowed_models.unwrap_or(row.allowed_models),
        may_name_users: change.may_name_users.unwrap_or(row.may_name_users),
        degrades: change.degrades.unwrap_or(row.degrades),
        expiry: expiry(change.expires_at.unwrap_or(row.expires_at)),
    };
    let changed = api
        .control
        .edit_key(&call.actor, id, change.version, &draft, call.now)
        .await
        .map_err(by_body)?;
    Ok(Json(key(&changed)))
}

async fn rotate(
    State(api): State<Api>,
    Extension(call): Extension<Call>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let id = call.id("key")?;
    let rotation: KeyRotation = call.body()?;
    let overlap = Overlap::of_seconds(rotation.overlap_seconds)
        .map_err(|too_long| ControlError::field("overlap_seconds", too_long.text()))?;
    let draft = RotationDraft {
        overlap,
        expiry: rotation.expires_at.map(expiry),
    };
    let rotated = api
        .control
        .rotate_key(&call.actor, id, rotation.version, draft, call.now)
        .await
        .map_err(by_body)?;
    Ok((StatusCode::CREATED, Json(issued(&rotated))))
}

async fn end_overlap(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id = call.id("key")?;
    let VersionRead { version } = call.body()?;
    let ended = api.control.end_overlap(&call.actor, id, version, call.now).await?;
    Ok(Json(key(&ended)))
}

async fn set_own_limits(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id = call.id("key")?;
    let new: NewOwnLimits = call.body()?;
    let (control, actor) = (&api.control, &call.actor);
    let row = control.key_within_reach(actor, id).await?;
    if !control.sets_own_limits(actor, &row) {
        return Err(Problem::forbidden(
            "the own limits of a person's key are set by that person alone, in the console",
        ));
    }
    let mut fields = Fields::default();
    let mut own = OwnLimits::default();
    for (place, limit) in new.own_limits.iter().enumerate() {
        let mut wrong = Fields::default();
        let value = limit.value.read(limit.dimension, None, &mut wrong);
        if own.0.insert(limit.dimension, value).is_some() {
            wrong.refuse_call("dimension", "each of them once");
        }
        fields.add(wrong.under(&place_of(place)));
    }
    fields.check()?;
    let wanted = NodeLimits::from(&own);
    let set = control.set_own_limits(actor, id, new.version, &wanted, call.now).await;
    Ok(Json(key(&set.map_err(|error| by_place(error, &new.own_limits))?)))
}

fn place_of(place: usize) -> String {
    format!("own_limits.{place}")
}

/// Calls what is wrong by its place in the body.
fn by_place(error: ControlError, limits: &[NewOwnLimit]) -> ControlError {
    let ControlError::Invalid(mut errors) = error else {
        return error;
    };
    for error in &mut errors {
        let place = limits.iter().position(|limit| field_of(limit.dimension) == error.field);
        if let Some(place) = place {
            let name = figure_of(limits[place].dimension);
            error.field = format!("{}.{name}", place_of(place)).into();
        }
    }
    ControlError::Invalid(errors)
}

async fn revoke(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<StatusCode, Problem> {
    let id = call.id("key")?;
    api.control.revoke_key(&call.actor, id, call.now).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn expiry(at: Option<DateTime<Utc>>) -> Expiry {
    at.map_or(Expiry::Never, Expiry::At)
}

/// A key with its text, for the one answer that shows it.
fn issued(issued: &IssuedKey) -> Value {
    let mut value = key(&issued.row);
    value["text"] = json!(issued.text.reveal());
    value
}

fn key(row: &KeyRow) -> Value {
    json!({
        "id": row.id,
        "public_id": row.public_id,
        "tenant_id": row.tenant_id,
        "tenant_name": row.tenant_name,
        "owner_id": row.owner_id,
        "owner_name": row.owner_name,
        "owner_email": row.owner_email,
        "name": row.name,
        "priority": row.priority,
        "allowed_models": row.allowed_models,
        "may_name_users": row.may_name_users,
        "degrades": row.degrades,
        "expires_at": row.expires_at,
        "revoked_at": row.revoked_at,
        "rotated_at": row.rotated_at,
        "old_secret_until": row.old_secret_until,
        "old_secret_used_at": row.old_secret_used_at,
        "last_used_at": row.last_used_at,
        "bounds": {
            "priority": row.bounds.priority,
            "models": row.bounds.models,
            "expires_at": row.bounds.expires_at,
        },
        "own_limits": row.own_limits.0.iter().map(|(dimension, value)| own_limit(*dimension, *value)).collect::<Value>(),
        "created_at": row.created_at,
        "created_by": row.created_by,
        "version": row.version,
    })
}

/// As a limit shows its value.
fn own_limit(dimension: Dimension, value: u64) -> Value {
    json!({ "dimension": dimension, "value": count(dimension, value), "cost": cost(dimension, value) })
}

//! Tenants: read, made, changed, suspended. Their budgets are limits.

use axum::extract::State;
use axum::{Extension, Json};
use domain::ids::{PlanId, TenantId};
use domain::key_rules::KeyRules;
use domain::management_tokens::Permission::{TenantsRead, TenantsWrite};
use domain::priority::Priority;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::tenants::TenantRow;

use super::Api;
use super::body::present;
use super::call::Call;
use super::pages;
use super::problem::{Problem, or_taken};
use super::route::{Answered, Asked, Route};
use crate::fields::Fields;
use crate::limits::NodeLimits;
use crate::tenants::TenantDraft;

/// What there is of tenants.
pub(super) fn routes() -> Vec<Route> {
    const PATH: &str = "/api/v1/tenants";
    const ONE: &str = "/api/v1/tenants/{id}";
    vec![
        Route::get(PATH, TenantsRead, Answered::Page("Tenant"), list)
            .with(&["limit", "cursor"])
            .says("Tenants", "In the order in which they were made."),
        Route::get(ONE, TenantsRead, Answered::One("Tenant"), show).says("One tenant", ""),
        Route::post(
            PATH,
            TenantsWrite,
            Asked::Shape("NewTenant"),
            Answered::Created("Tenant"),
            create,
        )
        .says(
            "Make a tenant",
            "Names are unique: a call that is repeated is answered with 409 and the tenant that exists.",
        ),
        Route::patch(
            ONE,
            TenantsWrite,
            Asked::Shape("TenantChange"),
            Answered::One("Tenant"),
            change,
        )
        .says(
            "Change a tenant",
            "Fields that are absent stay as they are. Its limits and budgets are among the limits.",
        ),
        Route::post(
            "/api/v1/tenants/{id}/key_rules",
            TenantsWrite,
            Asked::Shape("NewKeyRules"),
            Answered::One("Tenant"),
            set_key_rules,
        )
        .says(
            "Rule what the keys of its people may be",
            "All rules at once: what is absent is not ruled. Service accounts' keys are under none of them.",
        ),
        Route::post(
            "/api/v1/tenants/{id}/suspend",
            TenantsWrite,
            Asked::Shape("VersionRead"),
            Answered::One("Tenant"),
            suspend,
        )
        .says("Suspend a tenant", "All of its requests are refused from now on."),
        Route::post(
            "/api/v1/tenants/{id}/resume",
            TenantsWrite,
            Asked::Shape("VersionRead"),
            Answered::One("Tenant"),
            resume,
        )
        .says("Let a suspended tenant go on", ""),
    ]
}

/// `version` alone.
#[derive(Deserialize)]
pub(super) struct VersionRead {
    pub(super) version: i64,
}

#[derive(Deserialize)]
struct NewTenant {
    name: String,
    plan_id: Option<PlanId>,
    priority_ceiling: Option<Priority>,
    #[serde(default)]
    has_strict_budgets: bool,
}

#[derive(Deserialize)]
struct TenantChange {
    version: i64,
    name: Option<String>,
    #[serde(default, deserialize_with = "present")]
    plan_id: Option<Option<PlanId>>,
    #[serde(default, deserialize_with = "present")]
    priority_ceiling: Option<Option<Priority>>,
    has_strict_budgets: Option<bool>,
}

#[derive(Deserialize)]
struct NewKeyRules {
    version: i64,
    #[serde(flatten)]
    rules: KeyRules,
}

async fn list(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let mut fields = Fields::default();
    let asked = pages::Asked::<TenantId>::read(&call, &mut fields);
    fields.check()?;
    let rows = api
        .control
        .tenants_after(&call.actor, asked.after, asked.rows_max())
        .await?;
    Ok(asked.page(rows, |row| row.tenant.id.to_string(), tenant))
}

async fn show(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id = call.id("tenant")?;
    let found = api.control.tenant(&call.actor, id, call.now).await?;
    Ok(Json(tenant(&found.row)))
}

async fn create(
    State(api): State<Api>,
    Extension(call): Extension<Call>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let new: NewTenant = call.body()?;
    let draft = TenantDraft {
        name: new.name,
        plan_id: new.plan_id,
        priority_ceiling: new.priority_ceiling,
        has_strict_budgets: new.has_strict_budgets,
        limits: NodeLimits::default(),
    };
    let made = api.control.create_tenant(&call.actor, &draft, call.now).await;
    let id = or_taken(made, "tenant", async || {
        api.control.tenant_named(&call.actor, &draft.name).await
    })
    .await?;
    let made = api.control.tenant_row(&call.actor, id).await?;
    Ok((StatusCode::CREATED, Json(tenant(&made))))
}

async fn change(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id = call.id("tenant")?;
    let change: TenantChange = call.body()?;
    let row = api.control.tenant_row(&call.actor, id).await?;
    let draft = TenantDraft {
        name: change.name.unwrap_or(row.tenant.name),
        plan_id: change.plan_id.unwrap_or(row.tenant.plan_id),
        priority_ceiling: change.priority_ceiling.unwrap_or(row.tenant.priority_ceiling),
        has_strict_budgets: change.has_strict_budgets.unwrap_or(row.tenant.has_strict_budgets),
        limits: NodeLimits::default(),
    };
    api.control
        .edit_tenant_alone(&call.actor, id, change.version, &draft, call.now)
        .await?;
    changed(&api, &call, id).await
}

async fn set_key_rules(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id = call.id("tenant")?;
    let NewKeyRules { version, rules } = call.body()?;
    api.control
        .set_key_rules(&call.actor, id, version, &rules, call.now)
        .await?;
    changed(&api, &call, id).await
}

async fn suspend(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id = call.id("tenant")?;
    let VersionRead { version } = call.body()?;
    api.control.suspend_tenant(&call.actor, id, version, call.now).await?;
    changed(&api, &call, id).await
}

async fn resume(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id = call.id("tenant")?;
    let VersionRead { version } = call.body()?;
    api.control.resume_tenant(&call.actor, id, version, call.now).await?;
    changed(&api, &call, id).await
}

async fn changed(api: &Api, call: &Call, id: TenantId) -> Result<Json<Value>, Problem> {
    Ok(Json(tenant(&api.control.tenant_row(&call.actor, id).await?)))
}

fn tenant(row: &TenantRow) -> Value {
    json!({
        "id": row.tenant.id,
        "name": row.tenant.name,
        "plan_id": row.tenant.plan_id,
        "plan_name": row.plan_name,
        "priority_ceiling": row.tenant.priority_ceiling,
        "priority_ceiling_in_force": row.priority_ceiling_in_force,
        "has_strict_budgets": row.tenant.has_strict_budgets,
        "key_rules": row.tenant.key_rules,
        "suspended_at": row.tenant.suspended_at,
        "created_at": row.created_at,
        "version": row.version,
    })
}

//! Plans: read, made, changed, removed. Their limits are among the limits.

use axum::extract::State;
use axum::{Extension, Json};
use domain::ids::PlanId;
use domain::management_tokens::Permission::{PlansRead, PlansWrite};
use domain::priority::Priority;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::plans::PlanRow;

use super::Api;
use super::call::Call;
use super::pages;
use super::problem::{Problem, or_taken};
use super::route::{Answered, Asked, Route};
use crate::fields::Fields;
use crate::plans::PlanDraft;

/// What there is of plans.
pub(super) fn routes() -> Vec<Route> {
    const PATH: &str = "/api/v1/plans";
    const ONE: &str = "/api/v1/plans/{id}";
    vec![
        Route::get(PATH, PlansRead, Answered::Page("Plan"), list)
            .with(&["limit", "cursor"])
            .says("Plans", "In the order in which they were made."),
        Route::get(ONE, PlansRead, Answered::One("Plan"), show).says("One plan", ""),
        Route::post(
            PATH,
            PlansWrite,
            Asked::Shape("NewPlan"),
            Answered::Created("Plan"),
            create,
        )
        .says(
            "Make a plan",
            "Without limits as yet; set them for each class with `scope` `plan:<id>`. Names are unique: a call that is \
             repeated is answered with 409 and the plan that exists.",
        ),
        Route::patch(
            ONE,
            PlansWrite,
            Asked::Shape("PlanChange"),
            Answered::One("Plan"),
            change,
        )
        .says("Change a plan", "Fields that are absent stay as they are."),
        Route::delete(ONE, PlansWrite, remove)
            .with(&["version"])
            .says("Remove a plan", "One that no tenant is on, and its limits with it."),
    ]
}

#[derive(Deserialize)]
struct NewPlan {
    name: String,
    priority_ceiling: Priority,
}

#[derive(Deserialize)]
struct PlanChange {
    version: i64,
    name: Option<String>,
    priority_ceiling: Option<Priority>,
}

async fn list(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let mut fields = Fields::default();
    let asked = pages::Asked::<PlanId>::read(&call, &mut fields);
    fields.check()?;
    let rows = api.control.plans(&call.actor).await?;
    Ok(asked.page_of_all(rows, |row| row.plan.id, plan))
}

async fn show(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id = call.id("plan")?;
    Ok(Json(plan(&api.control.plan(&call.actor, id).await?.row)))
}

async fn create(
    State(api): State<Api>,
    Extension(call): Extension<Call>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let new: NewPlan = call.body()?;
    let draft = PlanDraft {
        name: new.name,
        priority_ceiling: new.priority_ceiling,
    };
    let made = api.control.create_plan(&call.actor, &draft, call.now).await;
    let id = or_taken(made, "plan", async || {
        api.control.plan_named(&call.actor, &draft.name).await
    })
    .await?;
    let made = api.control.plan_row(&call.actor, id).await?;
    Ok((StatusCode::CREATED, Json(plan(&made))))
}

async fn change(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id = call.id("plan")?;
    let change: PlanChange = call.body()?;
    let row = api.control.plan_row(&call.actor, id).await?;
    let draft = PlanDraft {
        name: change.name.unwrap_or(row.plan.name),
        priority_ceiling: change.priority_ceiling.unwrap_or(row.plan.priority_ceiling),
    };
    api.control
        .edit_plan(&call.actor, id, change.version, &draft, call.now)
        .await?;
    Ok(Json(plan(&api.control.plan_row(&call.actor, id).await?)))
}

async fn remove(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<StatusCode, Problem> {
    let id = call.id("plan")?;
    let version = call.query.version()?;
    api.control.remove_plan(&call.actor, id, version, call.now).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn plan(row: &PlanRow) -> Value {
    json!({
        "id": row.plan.id,
        "name": row.plan.name,
        "priority_ceiling": row.plan.priority_ceiling,
        "tenant_count": row.tenants,
        "limit_count": row.limits,
        "created_at": row.created_at,
        "version": row.version,
    })
}

//! Asynchronous jobs: read and called off. Nobody sees here what they ask for, or what they are answered.

use axum::extract::State;
use axum::{Extension, Json};
use domain::ids::JobId;
use domain::management_tokens::Permission::{JobsRead, JobsWrite};
use serde_json::{Value, json};
use store::jobs::{JobFilter, NamedJob};

use super::Api;
use super::call::Call;
use super::pages;
use super::problem::Problem;
use super::route::{Answered, Asked, Route};
use crate::fields::Fields;

/// What there is of jobs.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/jobs", JobsRead, Answered::Page("Job"), list)
            .with(&["tenant", "key", "status", "limit", "cursor"])
            .says(
                "Jobs",
                "The latest accepted first, without what they ask for and are answered.",
            ),
        Route::get("/api/v1/jobs/{id}", JobsRead, Answered::One("Job"), show).says("One job", ""),
        Route::post(
            "/api/v1/jobs/{id}/cancel",
            JobsWrite,
            Asked::Nothing,
            Answered::One("Job"),
            cancel,
        )
        .says("Call a job off", "Doing so when it is over changes nothing."),
    ]
}

async fn list(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let query = &call.query;
    let mut fields = Fields::default();
    let asked = pages::Asked::<JobId>::read(&call, &mut fields);
    let filter = JobFilter {
        tenant_id: query.id(&mut fields, "tenant"),
        owner_id: None,
        key_id: query.id(&mut fields, "key"),
        status: query.word(&mut fields, "status"),
        before: asked.after,
    };
    fields.check()?;
    let page = api.control.jobs(&call.actor, filter, asked.shown_max()).await?;
    let next = page.next.map(|id| id.to_string());
    Ok(pages::page(&page.jobs, next.as_deref(), job))
}

async fn show(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id = call.id("job")?;
    Ok(Json(job(&api.control.job(&call.actor, id).await?)))
}

async fn cancel(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id = call.id("job")?;
    api.control.cancel_job(&call.actor, id, call.now).await?;
    Ok(Json(job(&api.control.job_within_reach(&call.actor, id).await?)))
}

fn job(named: &NamedJob) -> Value {
    let (job, subject) = (&named.job, &named.job.subject);
    json!({
        "id": job.id,
        "status": job.status,
        "tenant_id": subject.tenant_id,
        "tenant_name": named.tenant_name,
        "key_id": subject.key_id,
        "key_name": named.key_name,
        "key_public_id": named.key_public_id,
        "owner_id": named.owner_id,
        "user_id": subject.user_id,
        "model": subject.model,
        "dialect": subject.dialect,
        "endpoint": subject.endpoint,
        "tags": subject.tags,
        "user_agent": subject.user_agent,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "expires_at": job.expires_at,
        "not_before": job.not_before,
        "attempts": job.attempts,
        "denials": job.denials,
        "error": job.error,
        "instance": named.instance,
    })
}

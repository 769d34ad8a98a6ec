//! The audit log: who changed what. Only read.

use axum::extract::State;
use axum::{Extension, Json};
use domain::management_tokens::Permission::AuditRead;
use serde_json::{Value, json};
use store::audit::{AuditEntry, AuditFilter};

use super::Api;
use super::call::Call;
use super::entries::{cursor, cursor_text};
use super::pages::PAGE_MAX;
use super::problem::Problem;
use super::route::{Answered, Route};
use crate::fields::Fields;

/// What there is of the audit log.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/audit", AuditRead, Answered::Page("AuditEntry"), list)
            .with(&[
                "tenant", "actor", "action", "subject", "from", "until", "limit", "cursor",
            ])
            .says("The audit log", "The latest change first. It holds no secret."),
        Route::get("/api/v1/audit/{id}", AuditRead, Answered::One("AuditEntry"), show).says("One change", ""),
    ]
}

async fn list(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let mut fields = Fields::default();
    let query = &call.query;
    let zone = api.control.settings().await?.settings.time_zone;
    let limit = query.limit(&mut fields, PAGE_MAX);
    let filter = AuditFilter {
        tenant_id: query.id(&mut fields, "tenant"),
        actor: query.text(&mut fields, "actor"),
        action: query.text(&mut fields, "action"),
        subjects: query.text(&mut fields, "subject").map(|subject| vec![subject]),
        from: query.instant(&mut fields, "from", zone),
        until: query.instant(&mut fields, "until", zone),
        before: cursor(&call, &mut fields),
        count: i64::from(limit) + 1,
        ..AuditFilter::default()
    };
    fields.check()?;
    let mut rows = api.control.audit_entries(&call.actor, filter).await?;
    let has_more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next = rows.last().filter(|_| has_more);
    Ok(Json(json!({
        "entries": rows.iter().map(entry).collect::<Value>(),
        "next_cursor": next.map(|row| cursor_text(row.at, row.id)),
    })))
}

async fn show(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id = call.id("entry of the audit log")?;
    Ok(Json(entry(&api.control.audit_entry(&call.actor, id).await?.entry)))
}

fn entry(row: &AuditEntry) -> Value {
    json!({
        "id": row.id,
        "at": row.at,
        "actor_id": row.actor_id,
        "actor": row.actor,
        "action": row.action,
        "subject": row.subject,
        "tenant_id": row.tenant_id,
        "before": row.before,
        "after": row.after,
        "peer": row.peer,
    })
}

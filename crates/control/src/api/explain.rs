//! What would become of a request now. Nothing is sent and nothing taken.

use axum::extract::State;
use axum::{Extension, Json};
use domain::ids::KeyId;
use domain::management_tokens::Permission::ExplainRead;
use domain::priority::Priority;
use domain::questions::Question;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Api;
use super::call::Call;
use super::problem::Problem;
use super::route::{Answered, Asked, Route};
use crate::explain::{AskedLimit, Explained, SharedLimits};
use crate::usage_json::money;

/// What there is of explanations.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post(
            "/api/v1/explain",
            ExplainRead,
            Asked::Shape("Question"),
            Answered::One("Explanation"),
            explain,
        )
        .says(
            "What would become of a request now",
            "Nothing is sent and nothing taken. A token of one tenant sees the tenant's own limits, and of the others whether \
             the service is busy.",
        ),
    ]
}

#[derive(Deserialize)]
struct Asking {
    key_id: KeyId,
    model: String,
    input_tokens: u64,
    output_cap_tokens: Option<u64>,
    priority: Option<Priority>,
    user: Option<String>,
}

async fn explain(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let asking: Asking = call.body()?;
    let question = Question {
        key_id: asking.key_id,
        model: asking.model,
        input_tokens: asking.input_tokens,
        output_cap_tokens: asking.output_cap_tokens,
        priority: asking.priority,
        user: asking.user,
    };
    let explained = api.control.explain(&call.actor, &question).await?;
    let currency = api.control.settings().await?.settings.currency;
    Ok(Json(explanation(&explained, &currency)))
}

fn explanation(explained: &Explained, currency: &str) -> Value {
    let amounts = |amounts: &domain::estimate::Amounts| {
        json!({
            "input_tokens": amounts.input_tokens,
            "output_tokens": amounts.output_tokens,
            "cost": money(amounts.cost),
        })
    };
    json!({
        "is_admitted": explained.refusal.is_none(),
        "currency": currency,
        "key_id": explained.key.id,
        "tenant_id": explained.key.tenant_id,
        "store": explained.store,
        "asked_at": explained.asked_at,
        "priority": explained.priority,
        "user": explained.user,
        "estimate": explained.estimate.as_ref().map(|estimate| json!({
            "expected": amounts(&estimate.expected),
            "ceiling": amounts(&estimate.ceiling),
        })),
        "refusal": explained.refusal,
        "upstream": explained.upstream,
        "is_upstream_drawn": explained.is_upstream_drawn,
        "limits": explained.asked.iter().map(limit).collect::<Value>(),
        "shared_limits": explained.shared.map(|shared| match shared {
            SharedLimits::HaveRoom => "have_room",
            SharedLimits::AreBusy => "are_busy",
        }),
    })
}

fn limit(asked: &AskedLimit) -> Value {
    let reading = &asked.answer.reading;
    json!({
        "name": asked.name,
        "is_told": asked.is_told,
        "need": asked.answer.need,
        "refusal": asked.answer.refusal.map(|refusal| json!({
            "code": refusal.code,
            "retry_after_ms": refusal.retry_after_ms,
        })),
        "scope": reading.scope,
        "limit_id": reading.limit_id,
        "dimension": reading.dimension,
        "window_seconds": reading.window_seconds,
        "period": reading.period,
        "model": reading.model,
        "priority": reading.priority,
        "mode": reading.mode,
        "limit_value": reading.limit_value,
        "used": reading.used,
        "held": reading.held,
        "remaining": reading.remaining,
        "utilisation_percent": reading.utilisation_percent,
        "reset_ms": reading.reset_ms,
        "is_known": reading.is_known,
    })
}

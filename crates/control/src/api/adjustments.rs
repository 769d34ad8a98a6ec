//! Signed corrections: lists, and booking one, of a tenant's account or of one request.

use axum::extract::State;
use axum::{Extension, Json};
use domain::ids::{AdjustmentId, RequestId};
use domain::ledger::Adjustment;
use domain::management_tokens::Permission::{AdjustmentsWrite, LedgerRead};
use http::StatusCode;
use serde_json::{Value, json};
use store::adjustments::AdjustmentCursor;
use store::entries::{Named, PAGE_ENTRIES_MAX};

use super::Api;
use super::body::JsonBody;
use super::call::Call;
use super::entries::{cursor, cursor_text, named};
use super::problem::Problem;
use super::route::{Answered, Asked, Route};
use crate::adjustments::{AdjustmentText, Booking, CorrectionText};
use crate::fields::Fields;
use crate::usage_json::money;

/// What there is of adjustments.
pub(super) fn routes() -> Vec<Route> {
    const PATH: &str = "/api/v1/adjustments";
    vec![
        Route::get(PATH, LedgerRead, Answered::One("Adjustments"), list)
            .with(&PARAMETERS)
            .says("Adjustments", "The latest made first. A month means those that count in it."),
        Route::post(
            PATH,
            AdjustmentsWrite,
            Asked::Fields("AdjustmentToBook"),
            Answered::Created("BookedAdjustment"),
            book,
        )
        .known_by_key()
        .says(
            "Book an adjustment",
            "Of a tenant's account, or of one request. Only for tokens of the whole installation. A call that is repeated \
             with the same id or idempotency key books nothing more, and is answered with what was booked.",
        ),
    ]
}

/// What a list can be narrowed to.
const PARAMETERS: [&str; 4] = ["tenant", "month", "limit", "cursor"];
/// Fields of an adjustment of an account.
const ACCOUNT_FIELDS: [&str; 12] = [
    "id",
    "tenant",
    "user",
    "key",
    "model",
    "month",
    "at",
    "input_tokens",
    "output_tokens",
    "cost",
    "reason",
    "reference",
];
/// Fields of a correction of a request.
const CORRECTION_FIELDS: [&str; 15] = [
    "id",
    "request",
    "version",
    "input_fresh",
    "cache_read",
    "cache_write_5m",
    "cache_write_1h",
    "output",
    "price",
    "cost",
    "input_by",
    "output_by",
    "cost_by",
    "reason",
    "reference",
];

/// The latest made first. A month means those that count in it.
async fn list(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let query = &call.query;
    let mut fields = Fields::default();
    let tenant = query.id(&mut fields, "tenant");
    let month = query.word(&mut fields, "month");
    let after = cursor(&call, &mut fields).map(|(created_at, id)| AdjustmentCursor {
        created_at,
        id: id.into(),
    });
    let limit = query.limit(&mut fields, PAGE_ENTRIES_MAX);
    fields.check()?;
    let page = api
        .control
        .adjustments(&call.actor, tenant, month, after, limit)
        .await?;
    let entry = |entry: &Named<Adjustment>| Value::Object(named(entry, &[("cost", entry.entry.cost_nanos)]));
    let next = page.next.map(|next| cursor_text(next.created_at, next.id.into()));
    Ok(Json(json!({
        "currency": api.control.settings().await?.settings.currency,
        "entries": page.adjustments.iter().map(entry).collect::<Value>(),
        "next_cursor": next,
    })))
}

/// Books one. What was booked under the same id or idempotency key before is told again, and not booked once more.
async fn book(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<(StatusCode, Json<Value>), Problem> {
    let mut body = call.fields();
    let given = body.text("id");
    let id = call.made_id("adjustment", &given, &mut body.fields).map(AdjustmentId);
    let booking = Booking {
        // Without one nothing is booked: the fields are refused below.
        id: id.unwrap_or(AdjustmentId(uuid::Uuid::nil())),
        reason: body.text("reason"),
        reference: body.text("reference"),
    };
    let booked = if body.has("request") {
        correct(&api, &call, body, &booking).await?
    } else {
        adjust(&api, &call, body, &booking).await?
    };
    let mut value = json!(booked);
    value["cost"] = json!(money(booked.cost_nanos));
    value["currency"] = json!(api.control.settings().await?.settings.currency);
    Ok((StatusCode::CREATED, Json(value)))
}

async fn adjust(api: &Api, call: &Call, mut body: JsonBody, booking: &Booking) -> Result<Adjustment, Problem> {
    let text = AdjustmentText {
        tenant: body.text("tenant"),
        user: body.text("user"),
        key: body.text("key"),
        model: body.text("model"),
        month: body.text("month"),
        at: body.text("at"),
        input_tokens: body.count("input_tokens"),
        output_tokens: body.count("output_tokens"),
        cost: body.amount("cost"),
    };
    body.refuse_rest(&ACCOUNT_FIELDS);
    body.fields.check()?;
    let zone = api.control.settings().await?.settings.time_zone;
    let draft = text.draft(zone)?;
    let booked = api
        .control
        .book_adjustment(&call.actor, &draft, booking, call.now)
        .await?;
    Ok(booked)
}

async fn correct(api: &Api, call: &Call, mut body: JsonBody, booking: &Booking) -> Result<Adjustment, Problem> {
    let request = body.text("request").parse::<RequestId>().ok();
    if request.is_none() {
        body.fields.refuse_call("request", "write the request's whole id");
    }
    let version = body.count("version").parse::<i64>().ok();
    if version.is_none() {
        let message = "write the version that the settlement has: how many adjustments were made of it";
        body.fields.refuse_call("version", message);
    }
    let text = CorrectionText {
        input_fresh: body.count("input_fresh"),
        cache_read: body.count("cache_read"),
        cache_write_5m: body.count("cache_write_5m"),
        cache_write_1h: body.count("cache_write_1h"),
        output: body.count("output"),
        price: body.text("price"),
        cost: body.amount("cost"),
        input_by: body.count("input_by"),
        output_by: body.count("output_by"),
        cost_by: body.amount("cost_by"),
    };
    body.refuse_rest(&CORRECTION_FIELDS);
    body.fields.check()?;
    let draft = text.draft()?;
    let (Some(request), Some(version)) = (request, version) else {
        return Err(Problem::unreadable("write the request's id and its version"));
    };
    let booked = api
        .control
        .correct_request(&call.actor, request, version, &draft, booking, call.now)
        .await?;
    Ok(booked)
}

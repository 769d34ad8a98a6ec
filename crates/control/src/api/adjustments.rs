//! Signed corrections: lists, and booking one, of a tenant's account or of one request.

use axum::body::Body;
use axum::extract::State;
use axum::{Extension, Json};
use domain::ids::{AdjustmentId, ManagementTokenId, RequestId};
use domain::ledger::Adjustment;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use store::adjustments::AdjustmentCursor;
use store::entries::{Named, PAGE_ENTRIES_MAX};

use super::Api;
use super::body::JsonBody;
use super::call::Call;
use super::entries::{cursor, cursor_text, named};
use super::problem::Problem;
use crate::Actor;
use crate::adjustments::{AdjustmentText, Booking, CorrectionText};
use crate::fields::Fields;
use crate::usage_json::money;

/// What a list can be narrowed to.
pub(super) const PARAMETERS: [&str; 4] = ["tenant", "month", "limit", "cursor"];
/// The longest idempotency key, in characters.
const IDEMPOTENCY_KEY_CHARS_MAX: usize = 255;
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
pub(super) async fn list(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
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
pub(super) async fn book(
    State(api): State<Api>,
    Extension(call): Extension<Call>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let mut body = JsonBody::read(body).await?;
    let id = booking_id(&call.actor, &headers, &mut body);
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
        body.fields.refuse("request", "write the request's whole id");
    }
    let version = body.count("version").parse::<i64>().ok();
    if version.is_none() {
        let message = "write the version that the settlement has: how many adjustments were made of it";
        body.fields.refuse("version", message);
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

/// The id of what is booked: the caller's own, or one made from its idempotency key, so that a call that is repeated
/// because its answer was lost books nothing more.
fn booking_id(actor: &Actor, headers: &HeaderMap, body: &mut JsonBody) -> Option<AdjustmentId> {
    let given = body.text("id");
    if !given.is_empty() {
        let id = given.parse().ok();
        if id.is_none() {
            body.fields
                .refuse("id", "write a UUID that you have made for this adjustment");
        }
        return id;
    }
    let key = headers
        .get("idempotency-key")
        .and_then(|key| key.to_str().ok())
        .map(str::trim)
        .filter(|key| !key.is_empty());
    match (key, actor) {
        (Some(key), Actor::Token(token)) if key.len() <= IDEMPOTENCY_KEY_CHARS_MAX => Some(id_of_key(token.id, key)),
        _ => {
            let message = format!(
                "send the header Idempotency-Key (at most {IDEMPOTENCY_KEY_CHARS_MAX} characters), or a UUID of your own \
                 here, so that a call that is repeated is booked once"
            );
            body.fields.refuse("id", message);
            None
        }
    }
}

/// The same key of another token means something else.
fn id_of_key(token: ManagementTokenId, key: &str) -> AdjustmentId {
    let digest = Sha256::digest(format!("adjustment {token} {key}"));
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    AdjustmentId(uuid::Builder::from_custom_bytes(bytes).into_uuid())
}

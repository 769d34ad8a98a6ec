//! Prices of models: read, added, removed. Each holds from its start until the next one's.

use axum::extract::State;
use axum::{Extension, Json};
use chrono::{DateTime, Utc};
use domain::ids::PriceId;
use domain::management_tokens::Permission::{PricesRead, PricesWrite};
use domain::money::Nanos;
use domain::prices::{PriceTier, Rates};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::models::StoredPrice;

use super::Api;
use super::call::Call;
use super::pages;
use super::problem::Problem;
use super::route::{Answered, Asked, Route};
use crate::fields::Fields;
use crate::prices::{PriceDraft, RatesText};
use crate::usage_json::money;

/// What there is of prices.
pub(super) fn routes() -> Vec<Route> {
    const PATH: &str = "/api/v1/prices";
    const ONE: &str = "/api/v1/prices/{id}";
    vec![
        Route::get(PATH, PricesRead, Answered::Page("Price"), list)
            .with(&["model", "limit", "cursor"])
            .says(
                "Prices",
                "Past, present and to come, in the order of their ids; amounts are per million tokens.",
            ),
        Route::get(ONE, PricesRead, Answered::One("Price"), show).says("One price", ""),
        Route::post(
            PATH,
            PricesWrite,
            Asked::Shape("NewPrice"),
            Answered::Created("Price"),
            add,
        )
        .known_by_key()
        .says(
            "Add a price",
            "The one before it ends where it begins. A call that is repeated with the same id or idempotency key adds no second \
             one: it is answered with 409 and the id of the price that exists.",
        ),
        Route::delete(ONE, PricesWrite, remove).says(
            "Remove a price",
            "Its time goes to the price before it; without one the model has no price then. What was charged stays charged.",
        ),
    ]
}

#[derive(Deserialize)]
struct NewPrice {
    #[serde(default)]
    id: String,
    model: String,
    valid_from: Option<DateTime<Utc>>,
    rates: RatesText,
    #[serde(default)]
    tiers: Vec<NewTier>,
}

#[derive(Deserialize)]
struct NewTier {
    above_input_tokens: u64,
    rates: RatesText,
}

async fn list(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let mut fields = Fields::default();
    let model = call.query.text(&mut fields, "model");
    let asked = pages::Asked::<PriceId>::read(&call, &mut fields);
    fields.check()?;
    let rows = api
        .control
        .prices_after(&call.actor, model.as_deref(), asked.after, asked.rows_max())
        .await?;
    Ok(asked.page(rows, |row| row.price.id.to_string(), price))
}

async fn show(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id = call.id("price")?;
    Ok(Json(price(&api.control.price(&call.actor, id).await?)))
}

async fn add(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<(StatusCode, Json<Value>), Problem> {
    let new: NewPrice = call.body()?;
    let mut fields = Fields::default();
    let id = call.made_id("price", &new.id, &mut fields);
    let rates = new.rates.parse(&mut fields);
    let tier = |tier: &NewTier| PriceTier {
        above_input_tokens: tier.above_input_tokens,
        rates: tier.rates.parse(&mut fields),
    };
    let tiers = new.tiers.iter().map(tier).collect();
    fields.check()?;
    let draft = PriceDraft {
        valid_from: new.valid_from,
        rates,
        tiers,
    };
    let id = PriceId(id.unwrap_or_default());
    api.control
        .add_price_as(&call.actor, id, new.model.trim(), &draft, call.now)
        .await?;
    let added = api.control.written_price(&call.actor, id).await?;
    Ok((StatusCode::CREATED, Json(price(&added))))
}

async fn remove(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<StatusCode, Problem> {
    let id = call.id("price")?;
    api.control.remove_price(&call.actor, id, call.now).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn price(row: &StoredPrice) -> Value {
    let tier = |tier: &PriceTier| {
        json!({
            "above_input_tokens": tier.above_input_tokens,
            "rates": rates(&tier.rates),
        })
    };
    json!({
        "id": row.price.id,
        "model": row.price.model,
        "valid_from": row.price.valid_from,
        "valid_until": row.price.valid_until,
        "rates": rates(&row.price.rates),
        "tiers": row.price.tiers.iter().map(tier).collect::<Value>(),
        "created_at": row.created_at,
        "created_by": row.created_by,
    })
}

fn rates(rates: &Rates) -> Value {
    json!({
        "input": money(Nanos(rates.input_nanos_per_mtok)),
        "cache_read": money(Nanos(rates.cache_read_nanos_per_mtok)),
        "cache_write_5m": money(Nanos(rates.cache_write_5m_nanos_per_mtok)),
        "cache_write_1h": money(Nanos(rates.cache_write_1h_nanos_per_mtok)),
        "output": money(Nanos(rates.output_nanos_per_mtok)),
    })
}

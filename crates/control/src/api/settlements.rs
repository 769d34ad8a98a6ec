//! Requests that ran: lists, and one with its tries, its adjustments and how its cost was made.

use axum::extract::State;
use axum::{Extension, Json};
use domain::adjustments::Figures;
use domain::ledger::{Adjustment, Settlement};
use domain::management_tokens::Permission::LedgerRead;
use domain::money::{Nanos, decimal};
use domain::prices::{Price, PriceLine};
use serde_json::{Map, Value, json};
use store::entries::{EntryFilter, Named};

use super::Api;
use super::call::Call;
use super::entries::{Listed, named, page};
use super::problem::Problem;
use super::route::{Answered, Route};
use crate::adjustments::adjusted;
use crate::usage_json::money;

/// What there is of settlements.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/settlements", LedgerRead, Answered::One("Settlements"), list)
            .with(&PARAMETERS)
            .says(
            "Requests that ran",
            "The newest first. Entries that arrive meanwhile are on no later page, but for requests that took long: read with `until` \
             at a report's `complete_until` to meet every one.",
        ),
        Route::get("/api/v1/settlements/{id}", LedgerRead, Answered::One("SettlementInFull"), show)
            .says("One request that ran", "With its tries, its adjustments and how its cost was made."),
    ]
}

/// What a list can be narrowed to.
const PARAMETERS: [&str; 11] = [
    "from", "until", "tenant", "key", "user", "model", "request", "outcome", "tag", "limit", "cursor",
];
/// Decimals of tokens times rate: nano-units per million tokens.
const EXACT_PLACES: u32 = 15;

/// The newest first.
async fn list(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let Listed { filter, after, limit } = Listed::read(&api, &call).await?;
    let entries = api.control.settlements(&call.actor, &filter, after, limit).await?;
    page(&api, entries, |entry| Value::Object(settlement(entry))).await
}

/// One, with everything about it.
async fn show(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id = call.id("settlement")?;
    let filter = EntryFilter {
        request: Some(id),
        ..EntryFilter::default()
    };
    let found = api.control.settlements(&call.actor, &filter, None, 1).await?;
    let Some(entry) = found.entries.into_iter().next() else {
        return Err(Problem::not_found(
            "there is no such settlement; a request that was refused is among the rejections",
        ));
    };
    let adjustments = api.control.adjustments_of(&call.actor, id).await?;
    let price = api.control.charged_price(&call.actor, &entry.entry).await?;
    let mut value = settlement(&entry);
    value.insert(
        "currency".to_owned(),
        json!(api.control.settings().await?.settings.currency),
    );
    value.insert(
        "arithmetic".to_owned(),
        json!(price.map(|price| arithmetic(&entry.entry, &price))),
    );
    // A correction names this version, so that nothing is corrected that looks otherwise by then.
    value.insert("version".to_owned(), json!(adjustments.len()));
    value.insert(
        "adjusted".to_owned(),
        figures(Figures::of_settlement(&entry.entry) + adjusted(&adjustments)),
    );
    value.insert("adjustments".to_owned(), adjustments.iter().map(adjustment).collect());
    Ok(Json(Value::Object(value)))
}

fn settlement(entry: &Named<Settlement>) -> Map<String, Value> {
    let Settlement {
        cost_nanos,
        overrun_nanos,
        expected_cost_nanos,
        ceiling_cost_nanos,
        ..
    } = entry.entry;
    named(
        entry,
        &[
            ("cost", cost_nanos),
            ("overrun", overrun_nanos),
            ("expected_cost", expected_cost_nanos),
            ("ceiling_cost", ceiling_cost_nanos),
        ],
    )
}

fn adjustment(adjustment: &Adjustment) -> Value {
    let mut value = json!(adjustment);
    value["cost"] = json!(money(adjustment.cost_nanos));
    value
}

fn figures(figures: Figures) -> Value {
    json!({
        "input_tokens": figures.input_tokens,
        "output_tokens": figures.output_tokens,
        "cost": money(figures.cost_nanos),
    })
}

/// How the cost was made: tokens times rate, class by class, the sum rounded up once.
fn arithmetic(settlement: &Settlement, price: &Price) -> Value {
    let usage = &settlement.usage;
    let rates = price.rates_for(usage.input_tokens());
    let line = |line: &PriceLine| {
        json!({
            "class": line.class,
            "tokens": line.tokens,
            "rate_per_million": money(Nanos(line.rate_nanos_per_mtok)),
            "amount": decimal(line.nano_millionths(), EXACT_PLACES),
        })
    };
    let lines = rates.lines(usage);
    let sum = lines
        .iter()
        .fold(0_i128, |sum, line| sum.saturating_add(line.nano_millionths()));
    json!({
        "price_id": price.id,
        "model": price.model,
        "valid_from": price.valid_from,
        "lines": lines.iter().filter(|line| line.tokens > 0).map(line).collect::<Value>(),
        "sum": decimal(sum, EXACT_PLACES),
        "rounded_up": money(rates.cost(usage)),
        // Tries that were lost are charged as they were expected, so that the sum alone may say something else.
        "is_cost_as_priced": settlement.costs_as_priced(price),
    })
}

#[cfg(test)]
mod tests;

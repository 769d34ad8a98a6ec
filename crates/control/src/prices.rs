//! Prices of models: each holds from its start until the next one's.

use chrono::{DateTime, Duration, Utc};
use domain::ids::PriceId;
use domain::ledger::Settlement;
use domain::money::Nanos;
use domain::prices::{Price, PriceTier, Rates};
use domain::text;
use serde_json::{Value, json};
use store::models::{PRICES_MAX, StoredPrice};
use store::{Transaction, models};

use crate::actor::Reach;
use crate::audit::Change;
use crate::fields::Fields;
use crate::{Actor, Control, ControlError, commit};
use domain::management_tokens::Permission;

/// Long-context tiers of one price at most.
pub const TIERS_MAX: usize = 8;
/// The highest rate: a million units of the currency per million tokens.
pub const RATE_NANOS_MAX: i64 = 1_000_000 * domain::money::NANOS_PER_UNIT;
/// A form is filled in to the minute, so a start this long ago still means now, in minutes.
const START_LENIENCE_MINUTES: i64 = 2;

/// The form's texts of [`Rates`]: amounts of the currency per million tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct RatesText {
    /// Fresh input.
    pub input: String,
    /// Input read from a cache; blank: as input.
    pub cache_read: String,
    /// Input written to a cache for five minutes; blank: as input.
    pub cache_write_5m: String,
    /// Input written to a cache for one hour; blank: as input.
    pub cache_write_1h: String,
    /// Output.
    pub output: String,
}

impl RatesText {
    /// These rates as a form shows them, every class written out.
    pub fn of(rates: &Rates) -> Self {
        let text = |rate: i64| Nanos(rate).to_string();
        Self {
            input: text(rates.input_nanos_per_mtok),
            cache_read: text(rates.cache_read_nanos_per_mtok),
            cache_write_5m: text(rates.cache_write_5m_nanos_per_mtok),
            cache_write_1h: text(rates.cache_write_1h_nanos_per_mtok),
            output: text(rates.output_nanos_per_mtok),
        }
    }

    /// Reads the texts; what is wrong is noted under the fields' names.
    pub fn parse(&self, fields: &mut Fields) -> Rates {
        let mut required = |field: &'static str, text: &str| {
            if text.trim().is_empty() {
                fields.refuse(
                    field,
                    text!("write the price per million tokens; 0 if it costs nothing"),
                );
                return 0;
            }
            fields.amount(field, text).map_or(0, |amount| amount.0)
        };
        let input = required("input", &self.input);
        let output = required("output", &self.output);
        let mut optional =
            |field: &'static str, text: &str| fields.amount(field, text).map_or(input, |amount| amount.0);
        Rates {
            input_nanos_per_mtok: input,
            cache_read_nanos_per_mtok: optional("cache_read", &self.cache_read),
            cache_write_5m_nanos_per_mtok: optional("cache_write_5m", &self.cache_write_5m),
            cache_write_1h_nanos_per_mtok: optional("cache_write_1h", &self.cache_write_1h),
            output_nanos_per_mtok: output,
        }
    }
}

/// A price to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceDraft {
    /// Field `valid_from`: when it begins; now when absent. Not in the past, where requests have been charged already.
    pub valid_from: Option<DateTime<Utc>>,
    /// Fields `input`, `cache_read`, `cache_write_5m`, `cache_write_1h`, `output`.
    pub rates: Rates,
    /// Field `tiers`.
    pub tiers: Vec<PriceTier>,
}

impl Control {
    /// A model's prices, latest first: past, present and to come.
    pub async fn prices(&self, actor: &Actor, model: &str) -> Result<Vec<StoredPrice>, ControlError> {
        actor.require_permission(Permission::PricesRead)?;
        actor.require_everything()?;
        Ok(self.store.prices_of(model).await?)
    }

    /// Prices of every model, or of one, in the order in which they were added, those after this one: past, present and to
    /// come. At most `count` and [`store::models::PRICES_PAGE_MAX`].
    pub async fn prices_after(
        &self,
        actor: &Actor,
        model: Option<&str>,
        after: Option<PriceId>,
        count: i64,
    ) -> Result<Vec<StoredPrice>, ControlError> {
        actor.require_permission(Permission::PricesRead)?;
        actor.require_everything()?;
        Ok(self.store.prices_after(model, after, count).await?)
    }

    /// One price that was not removed.
    pub async fn price(&self, actor: &Actor, id: PriceId) -> Result<StoredPrice, ControlError> {
        actor.require_permission(Permission::PricesRead)?;
        actor.require_everything()?;
        self.store.find_stored_price(id).await?.ok_or(NO_PRICE)
    }

    /// A price that was just added, for whoever may add one.
    pub(crate) async fn written_price(&self, actor: &Actor, id: PriceId) -> Result<StoredPrice, ControlError> {
        actor.require_permission(Permission::PricesWrite)?;
        actor.require_everything()?;
        self.store.find_stored_price(id).await?.ok_or(NO_PRICE)
    }

    /// The price that a request was charged at, if it was a price, for those who may see prices of the past.
    pub async fn charged_price(&self, actor: &Actor, settlement: &Settlement) -> Result<Option<Price>, ControlError> {
        match settlement.price_id {
            Some(id) if actor.reach()? == Reach::Everything => Ok(self.store.find_price(id).await?),
            _ => Ok(None),
        }
    }

    /// Adds a price. The one before it ends where it begins; it ends where the next begins.
    pub async fn add_price(
        &self,
        actor: &Actor,
        model: &str,
        draft: &PriceDraft,
        now: DateTime<Utc>,
    ) -> Result<PriceId, ControlError> {
        actor.require_permission(Permission::PricesWrite)?;
        actor.require_operator()?;
        let mut transaction = self.store.begin().await?;
        let id = self.insert_price(&mut transaction, actor, model, draft, now).await?;
        commit(transaction).await?;
        Ok(id)
    }

    /// Adds a price under an id that its caller has made, so that a call that is repeated adds no second one: it is told
    /// that the price exists.
    pub async fn add_price_as(
        &self,
        actor: &Actor,
        id: PriceId,
        model: &str,
        draft: &PriceDraft,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        actor.require_permission(Permission::PricesWrite)?;
        actor.require_operator()?;
        let mut transaction = self.store.begin().await?;
        self.insert_price_as(&mut transaction, actor, id, model, draft, now)
            .await?;
        commit(transaction).await
    }

    /// Adds a price in the transaction of an operation that may.
    pub(crate) async fn insert_price(
        &self,
        transaction: &mut Transaction,
        actor: &Actor,
        model: &str,
        draft: &PriceDraft,
        now: DateTime<Utc>,
    ) -> Result<PriceId, ControlError> {
        let id = self.new_id(PriceId::new, now);
        self.insert_price_as(transaction, actor, id, model, draft, now).await?;
        Ok(id)
    }

    async fn insert_price_as(
        &self,
        transaction: &mut Transaction,
        actor: &Actor,
        id: PriceId,
        model: &str,
        draft: &PriceDraft,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        let is_system = actor.is_of_the_house();
        check(draft, is_system, now)?;
        // A start that was meant as now begins now, so that no request gets another price than it was charged.
        let valid_from = match draft.valid_from {
            Some(from) if from < now && !is_system => now,
            Some(from) => from,
            None => now,
        };
        models::lock(transaction, model, now).await?.ok_or(NO_MODEL)?;
        if models::price_exists(transaction, id).await? {
            return Err(ControlError::Exists {
                what: "price",
                id: id.to_string(),
            });
        }
        let prices = models::prices(transaction, model).await?;
        if prices.len() as i64 >= PRICES_MAX {
            return Err(ControlError::field(
                "valid_from",
                text!(
                    "a model has at most {count} prices; remove one that is yet to come",
                    count = PRICES_MAX
                ),
            ));
        }
        if prices.iter().any(|stored| stored.price.valid_from == valid_from) {
            return Err(ControlError::field(
                "valid_from",
                text!("another price begins at this very time"),
            ));
        }
        let price = Price {
            id,
            model: model.to_owned(),
            valid_from,
            valid_until: prices
                .iter()
                .map(|stored| stored.price.valid_from)
                .filter(|from| *from > valid_from)
                .min(),
            rates: draft.rates,
            tiers: draft.tiers.clone(),
        };
        let previous = prices
            .iter()
            .map(|stored| &stored.price)
            .find(|earlier| earlier.valid_from < valid_from);
        if let Some(previous) = previous
            && previous.valid_until.is_none_or(|until| until > valid_from)
        {
            models::end_price(transaction, previous.id, Some(valid_from)).await?;
        }
        models::insert_price(transaction, &price, now, actor.label()).await?;
        let change = changed("price.add", &price, previous.map(shown), Some(shown(&price)));
        self.note(transaction, actor, now, change).await
    }

    /// Removes a price. Its time goes to the price before it; without one the model has no price then. What was charged
    /// stays charged.
    pub async fn remove_price(&self, actor: &Actor, id: PriceId, now: DateTime<Utc>) -> Result<(), ControlError> {
        actor.require_permission(Permission::PricesWrite)?;
        actor.require_operator()?;
        let mut transaction = self.store.begin().await?;
        let model = models::model_of_price(&mut transaction, id).await?.ok_or(NO_PRICE)?;
        models::lock(&mut transaction, &model, now).await?.ok_or(NO_MODEL)?;
        // Read again under the lock.
        let prices = models::prices(&mut transaction, &model).await?;
        let removed = prices
            .iter()
            .map(|stored| &stored.price)
            .find(|price| price.id == id)
            .ok_or(NO_PRICE)?;
        let previous = prices
            .iter()
            .map(|stored| &stored.price)
            .find(|price| price.valid_until == Some(removed.valid_from));
        if let Some(previous) = previous {
            models::end_price(&mut transaction, previous.id, removed.valid_until).await?;
        }
        models::remove_price(&mut transaction, id, now).await?;
        self.note(
            &mut transaction,
            actor,
            now,
            changed("price.remove", removed, Some(shown(removed)), None),
        )
        .await?;
        commit(transaction).await
    }
}

const NO_MODEL: ControlError = ControlError::NotFound { what: "model" };
const NO_PRICE: ControlError = ControlError::NotFound { what: "price" };

/// Notes what is wrong with a price, whatever else its model has.
pub(crate) fn check(draft: &PriceDraft, is_system: bool, now: DateTime<Utc>) -> Result<(), ControlError> {
    let mut fields = Fields::default();
    if let Some(from) = draft.valid_from {
        fields.require(
            is_system || from >= now - Duration::minutes(START_LENIENCE_MINUTES),
            "valid_from",
            text!("a price cannot begin in the past, where requests have been charged already"),
        );
    }
    check_rates(&mut fields, &draft.rates, None);
    if draft.tiers.len() > TIERS_MAX {
        fields.refuse("tiers", text!("at most {count} tiers", count = TIERS_MAX));
    }
    let mut thresholds: Vec<u64> = draft.tiers.iter().map(|tier| tier.above_input_tokens).collect();
    thresholds.sort_unstable();
    fields.require(
        thresholds.windows(2).all(|pair| pair[0] < pair[1]) && thresholds.first() != Some(&0),
        "tiers",
        text!("each tier begins above another number of input tokens, at least 1"),
    );
    for tier in &draft.tiers {
        check_rates(&mut fields, &tier.rates, Some("tiers"));
    }
    fields.check()
}

/// Notes which rates are out of range, under their own names or all under one.
pub(crate) fn check_rates(fields: &mut Fields, rates: &Rates, field: Option<&'static str>) {
    let named = [
        ("input", rates.input_nanos_per_mtok),
        ("cache_read", rates.cache_read_nanos_per_mtok),
        ("cache_write_5m", rates.cache_write_5m_nanos_per_mtok),
        ("cache_write_1h", rates.cache_write_1h_nanos_per_mtok),
        ("output", rates.output_nanos_per_mtok),
    ];
    for (name, rate) in named {
        fields.require(
            (0..=RATE_NANOS_MAX).contains(&rate),
            field.unwrap_or(name),
            text!("between 0 and 1,000,000 per million tokens"),
        );
    }
}

fn shown(price: &Price) -> Value {
    json!({
        "id": price.id,
        "valid_from": price.valid_from,
        "valid_until": price.valid_until,
        "rates": price.rates,
        "tiers": price.tiers,
    })
}

fn changed(action: &'static str, price: &Price, before: Option<Value>, after: Option<Value>) -> Change {
    Change {
        action,
        subject: format!("model:{}", price.model),
        tenant_id: None,
        before,
        after,
    }
}

#[cfg(test)]
mod tests;

//! The catalogue: well-known models with their providers' list prices, to start from. Operators load what they want of
//! it, and change it afterwards as they like; nothing here changes a model or a price by itself.
//!
//! `catalogue/models.json` is the data, as of the day it names. Prices are in US dollars per million tokens, written as
//! decimals. To renew it: read the providers' price lists, change entries and the day together. A class that a provider
//! does not price of its own has the input's price. OpenAI's cache writes for half an hour stand where others have five
//! minutes, and those for half a day, at twice the price, where others have an hour.

use std::collections::HashSet;
use std::str::FromStr;

use chrono::{DateTime, NaiveDate, Utc};
use domain::ids::UpstreamId;
use domain::money::{NANOS_PER_UNIT, Nanos, ParseAmountError};
use domain::policy::{Dialect, Encoding, Route};
use domain::prices::{Price, PriceTier, Rates};
use domain::text;
use domain::text::Text;
use serde::{Deserialize, Deserializer};
use store::models::ModelRow;
use store::{Transaction, models, upstreams};

use crate::models::ModelDraft;
use crate::prices::PriceDraft;
use crate::{Actor, Control, ControlError, commit};
use domain::management_tokens::Permission;

/// The currency of the providers' price lists.
pub const CATALOGUE_CURRENCY: &str = "USD";
/// The highest exchange rate: units of the billing currency for one dollar.
pub const EXCHANGE_RATE_MAX: i64 = 1_000_000;

/// The data.
const MODELS_JSON: &str = include_str!("catalogue/models.json");

/// Well-known models with list prices.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// The day of the price lists.
    pub as_of: NaiveDate,
    /// The models, the newest of each provider first.
    pub models: Vec<CatalogueModel>,
}

/// A model of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogueModel {
    /// Its name, at the provider and here.
    pub name: String,
    /// What its provider speaks.
    pub dialect: Dialect,
    /// Input and output together, in tokens.
    pub context_tokens: u64,
    /// The most output it can give, in tokens.
    pub output_cap_tokens: u64,
    /// The output held for a request that states no cap, in tokens.
    pub output_default_tokens: u64,
    /// How its tokens are counted.
    pub encoding: Encoding,
    /// The day on which the provider will shut it down, where one was announced.
    pub retires_on: Option<NaiveDate>,
    /// List prices in nano-dollars per million tokens.
    #[serde(deserialize_with = "rates")]
    pub rates: Rates,
    /// Other list prices for long input.
    #[serde(default, deserialize_with = "tiers")]
    pub tiers: Vec<PriceTier>,
}

impl Catalogue {
    /// What this program was built with.
    pub fn bundled() -> Result<Self, ControlError> {
        serde_json::from_str(MODELS_JSON).map_err(|error| ControlError::Internal(Box::new(error)))
    }
}

/// Units of the billing currency for one US dollar, exactly; above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeRate(Nanos);

impl ExchangeRate {
    /// Of an installation that bills in dollars.
    pub const ONE: Self = Self(Nanos(NANOS_PER_UNIT));

    /// A list price per million tokens in the billing currency, rounded up to the nano-unit: never below what the
    /// provider charges. What costs nothing costs nothing in every currency.
    pub fn convert(self, nanos_per_mtok: i64) -> i64 {
        let product = i128::from(nanos_per_mtok).saturating_mul(i128::from(self.0.0));
        let unit = i128::from(NANOS_PER_UNIT);
        i64::try_from(product.saturating_add(unit - 1) / unit).unwrap_or(i64::MAX)
    }

    fn convert_rates(self, rates: Rates) -> Rates {
        Rates {
            input_nanos_per_mtok: self.convert(rates.input_nanos_per_mtok),
            cache_read_nanos_per_mtok: self.convert(rates.cache_read_nanos_per_mtok),
            cache_write_5m_nanos_per_mtok: self.convert(rates.cache_write_5m_nanos_per_mtok),
            cache_write_1h_nanos_per_mtok: self.convert(rates.cache_write_1h_nanos_per_mtok),
            output_nanos_per_mtok: self.convert(rates.output_nanos_per_mtok),
        }
    }
}

/// Why a text is no exchange rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub enum ParseExchangeRateError {
    /// No decimal number.
    NotANumber,
    /// More than nine digits after the point.
    TooPrecise,
    /// Zero, below it, or beyond [`EXCHANGE_RATE_MAX`].
    OutOfRange,
}

impl ParseExchangeRateError {
    /// What is wrong, for whoever wrote it.
    pub fn text(&self) -> Text {
        match self {
            Self::NotANumber => text!("write how many units of your currency one dollar is, such as 0.92"),
            Self::TooPrecise => text!("an exchange rate has at most nine digits after the point"),
            Self::OutOfRange => text!("an exchange rate is above 0 and at most 1,000,000"),
        }
    }
}

impl From<&ParseExchangeRateError> for Text {
    fn from(error: &ParseExchangeRateError) -> Self {
        error.text()
    }
}

impl FromStr for ExchangeRate {
    type Err = ParseExchangeRateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rate: Nanos = text.parse().map_err(|error| match error {
            ParseAmountError::NotANumber => ParseExchangeRateError::NotANumber,
            ParseAmountError::TooPrecise => ParseExchangeRateError::TooPrecise,
            ParseAmountError::TooLarge => ParseExchangeRateError::OutOfRange,
        })?;
        if rate <= Nanos::ZERO || rate > Nanos::from_units(EXCHANGE_RATE_MAX) {
            return Err(ParseExchangeRateError::OutOfRange);
        }
        Ok(Self(rate))
    }
}

/// The catalogue beside what there is.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogueView {
    /// The day of the price lists.
    pub as_of: NaiveDate,
    /// The billing currency.
    pub currency: String,
    /// How dollars become it; `None` where that has yet to be said.
    pub exchange: Option<ExchangeRate>,
    /// The models in the catalogue's order.
    pub entries: Vec<CatalogueEntry>,
}

/// A model of the catalogue beside the one that there is.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogueEntry {
    /// As the catalogue has it, in dollars.
    pub model: CatalogueModel,
    /// What loading it would charge, in the billing currency; `None` without an exchange rate.
    pub price: Option<PriceDraft>,
    /// What there is.
    pub presence: Presence,
}

/// What there is of a model of the catalogue.
#[derive(Clone, Debug, PartialEq)]
pub enum Presence {
    /// Nothing of this name.
    Absent,
    /// The model, without a price now.
    Unpriced,
    /// The model with this very price.
    SamePrice,
    /// The model with another price.
    OtherPrice(Box<Price>),
    /// The model with a price that cannot be compared without an exchange rate.
    Priced(Box<Price>),
}

/// What to load. Fields `models`, `exchange`, `openai_upstream`, `anthropic_upstream`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatalogueLoad {
    /// Names of models of the catalogue.
    pub models: Vec<String>,
    /// How dollars become the billing currency; need not be said where that is the dollar.
    pub exchange: Option<ExchangeRate>,
    /// Who serves new models of OpenAI; without one they have no route yet.
    pub openai_upstream: Option<UpstreamId>,
    /// Who serves new models of Anthropic.
    pub anthropic_upstream: Option<UpstreamId>,
}

/// What was loaded: names in the catalogue's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatalogueLoaded {
    /// Models that are new, each with its price.
    pub created: Vec<String>,
    /// Models that were there and have the catalogue's price from now on.
    pub priced: Vec<String>,
    /// Models that had it already.
    pub unchanged: Vec<String>,
}

impl Control {
    /// The catalogue beside the models that there are.
    pub async fn catalogue(
        &self,
        actor: &Actor,
        exchange: Option<ExchangeRate>,
        now: DateTime<Utc>,
    ) -> Result<CatalogueView, ControlError> {
        actor.require_permission(Permission::ModelsRead)?;
        actor.require_everything()?;
        let currency = self.settings().await?.settings.currency;
        let exchange = exchange_for(&currency, exchange);
        let rows = self.store.models(now).await?;
        let catalogue = Catalogue::bundled()?;
        let entries = catalogue
            .models
            .into_iter()
            .map(|model| {
                let price = exchange.map(|exchange| price_of(&model, exchange));
                let row = rows.iter().find(|row| row.model.name == model.name);
                CatalogueEntry {
                    presence: presence(row, price.as_ref()),
                    model,
                    price,
                }
            })
            .collect();
        Ok(CatalogueView {
            as_of: catalogue.as_of,
            currency,
            exchange,
            entries,
        })
    }

    /// Adds the models that are missing, each with its route, and gives all of them the catalogue's price from now on.
    /// Everything or nothing. A model that is there keeps its routes and its sizes.
    pub async fn load_catalogue(
        &self,
        actor: &Actor,
        load: &CatalogueLoad,
        now: DateTime<Utc>,
    ) -> Result<CatalogueLoaded, ControlError> {
        actor.require_permission(Permission::ModelsWrite)?;
        actor.require_permission(Permission::PricesWrite)?;
        actor.require_operator()?;
        let currency = self.settings().await?.settings.currency;
        let exchange = exchange_for(&currency, load.exchange).ok_or_else(|| {
            ControlError::field(
                "exchange",
                text!("write how many {currency} one dollar is", currency = &currency),
            )
        })?;
        let chosen = chosen(&load.models)?;
        let mut transaction = self.store.begin().await?;
        check_upstreams(&mut transaction, load).await?;
        let rows = lock_all(&mut transaction, &chosen, now).await?;
        let mut loaded = CatalogueLoaded::default();
        for model in &chosen {
            let price = price_of(model, exchange);
            let row = rows.iter().find(|row| row.model.name == model.name);
            let names = match presence(row, Some(&price)) {
                Presence::SamePrice => {
                    loaded.unchanged.push(model.name.clone());
                    continue;
                }
                Presence::Absent => {
                    let draft = draft_of(model, load);
                    self.insert_model(&mut transaction, actor, &draft, now).await?;
                    &mut loaded.created
                }
                Presence::Unpriced | Presence::OtherPrice(_) | Presence::Priced(_) => &mut loaded.priced,
            };
            names.push(model.name.clone());
            self.insert_price(&mut transaction, actor, &model.name, &price, now)
                .await?;
        }
        commit(transaction).await?;
        Ok(loaded)
    }
}

/// What was said, where it has to be said.
fn exchange_for(currency: &str, said: Option<ExchangeRate>) -> Option<ExchangeRate> {
    if currency == CATALOGUE_CURRENCY {
        Some(ExchangeRate::ONE)
    } else {
        said
    }
}

/// The models with these names, in the catalogue's order.
fn chosen(names: &[String]) -> Result<Vec<CatalogueModel>, ControlError> {
    let mut wanted: HashSet<&str> = names.iter().map(String::as_str).collect();
    if wanted.is_empty() {
        return Err(ControlError::field("models", text!("choose at least one model")));
    }
    let mut chosen = Catalogue::bundled()?.models;
    chosen.retain(|model| wanted.remove(model.name.as_str()));
    match wanted.into_iter().next() {
        None => Ok(chosen),
        Some(unknown) => Err(ControlError::field(
            "models",
            text!("the catalogue has no model called {name}", name = unknown),
        )),
    }
}

fn presence(row: Option<&ModelRow>, price: Option<&PriceDraft>) -> Presence {
    let Some(row) = row else { return Presence::Absent };
    match (&row.price, price) {
        (None, _) => Presence::Unpriced,
        (Some(stored), None) => Presence::Priced(Box::new(stored.clone())),
        (Some(stored), Some(price)) if is_same(stored, price) => Presence::SamePrice,
        (Some(stored), Some(_)) => Presence::OtherPrice(Box::new(stored.clone())),
    }
}

/// Whether both charge the same for every request; the order of tiers says nothing.
fn is_same(stored: &Price, price: &PriceDraft) -> bool {
    stored.rates == price.rates
        && stored.tiers.len() == price.tiers.len()
        && stored.tiers.iter().all(|tier| price.tiers.contains(tier))
}

fn price_of(model: &CatalogueModel, exchange: ExchangeRate) -> PriceDraft {
    PriceDraft {
        valid_from: None,
        rates: exchange.convert_rates(model.rates),
        tiers: model
            .tiers
            .iter()
            .map(|tier| PriceTier {
                above_input_tokens: tier.above_input_tokens,
                rates: exchange.convert_rates(tier.rates),
            })
            .collect(),
    }
}

fn draft_of(model: &CatalogueModel, load: &CatalogueLoad) -> ModelDraft {
    let upstream = match model.dialect {
        Dialect::Openai => load.openai_upstream,
        Dialect::Anthropic => load.anthropic_upstream,
    };
    let route = upstream.map(|upstream_id| Route {
        upstream_id,
        upstream_model: model.name.clone(),
        position: 0,
        weight: 1,
    });
    ModelDraft {
        name: model.name.clone(),
        group: None,
        context_tokens: model.context_tokens,
        output_cap_tokens: model.output_cap_tokens,
        output_default_tokens: model.output_default_tokens,
        encoding: model.encoding,
        is_disabled: false,
        routes: route.into_iter().collect(),
    }
}

/// An upstream that speaks something else would refuse every request of the model.
async fn check_upstreams(transaction: &mut Transaction, load: &CatalogueLoad) -> Result<(), ControlError> {
    for (field, chosen, dialect) in [
        ("openai_upstream", load.openai_upstream, Dialect::Openai),
        ("anthropic_upstream", load.anthropic_upstream, Dialect::Anthropic),
    ] {
        let Some(id) = chosen else { continue };
        let upstream = upstreams::lock(transaction, id).await?;
        if upstream.is_none_or(|upstream| upstream.dialect != dialect) {
            return Err(ControlError::field(
                field,
                text!("choose an upstream that speaks {dialect}", dialect = dialect.as_str()),
            ));
        }
    }
    Ok(())
}

/// Those of the models that are there, kept from other writers. All of them before the first write, and by name: a writer
/// that has one model and waits for the version of the policy must never be waited for by somebody who has that.
async fn lock_all(
    transaction: &mut Transaction,
    chosen: &[CatalogueModel],
    now: DateTime<Utc>,
) -> Result<Vec<ModelRow>, ControlError> {
    let mut names: Vec<&str> = chosen.iter().map(|model| model.name.as_str()).collect();
    names.sort_unstable();
    let mut rows = Vec::new();
    for name in names {
        rows.extend(models::lock(transaction, name, now).await?);
    }
    Ok(rows)
}

/// Rates as decimals of a dollar; all five have to be written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRates {
    input: String,
    cache_read: String,
    cache_write_5m: String,
    cache_write_1h: String,
    output: String,
}

impl WrittenRates {
    fn read<E: serde::de::Error>(&self) -> Result<Rates, E> {
        let nanos = |text: &str| {
            text.parse::<Nanos>()
                .map(|amount| amount.0)
                .map_err(|error| E::custom(format!("`{text}`: {error}")))
        };
        Ok(Rates {
            input_nanos_per_mtok: nanos(&self.input)?,
            cache_read_nanos_per_mtok: nanos(&self.cache_read)?,
            cache_write_5m_nanos_per_mtok: nanos(&self.cache_write_5m)?,
            cache_write_1h_nanos_per_mtok: nanos(&self.cache_write_1h)?,
            output_nanos_per_mtok: nanos(&self.output)?,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTier {
    above_input_tokens: u64,
    rates: WrittenRates,
}

fn rates<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Rates, D::Error> {
    WrittenRates::deserialize(deserializer)?.read()
}

fn tiers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PriceTier>, D::Error> {
    Vec::<WrittenTier>::deserialize(deserializer)?
        .into_iter()
        .map(|tier| {
            Ok(PriceTier {
                above_input_tokens: tier.above_input_tokens,
                rates: tier.rates.read()?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;

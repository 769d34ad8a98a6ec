//! Models with their routes, and prices.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use domain::ids::PriceId;
use domain::policy::{Dialect, Model, Route};
use domain::prices::Price;
use sqlx::PgExecutor;
use uuid::Uuid;

use crate::policy::{PriceColumns, count, parse};
use crate::{Store, StoreError, Transaction};

/// Models at most.
pub const MODELS_MAX: i64 = 2_000;
/// Prices of one model that are listed, the latest first.
pub const PRICES_MAX: i64 = 200;
/// Prices on one page of every model's, at most.
pub const PRICES_PAGE_MAX: i64 = 201;

/// A model as the console sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelRow {
    /// What gateways see.
    pub model: Model,
    /// The price in force now.
    pub price: Option<Price>,
    /// What the enabled upstreams of its routes speak: the dialects that it can be asked for in, each once.
    pub dialects: Vec<Dialect>,
    /// When it was added.
    pub created_at: DateTime<Utc>,
    /// Raised by every change.
    pub version: i64,
}

impl ModelRow {
    /// Whether an example can be made of it: it is enabled, has a price, and generates something.
    pub fn can_chat(&self) -> bool {
        self.model.disabled_at.is_none() && self.price.is_some() && self.model.output_cap_tokens > 1
    }
}

/// One price with its history.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredPrice {
    /// The price.
    pub price: Price,
    /// When it was added.
    pub created_at: DateTime<Utc>,
    /// By whom.
    pub created_by: String,
}

impl Store {
    /// A price, even one that was removed: what was charged by it names it.
    pub async fn find_price(&self, id: PriceId) -> Result<Option<Price>, StoreError> {
        let row = sqlx::query_as!(
            PriceColumns,
            "select id, model, valid_from, valid_until, input_nanos_per_mtok, cache_read_nanos_per_mtok,
                    cache_write_5m_nanos_per_mtok, cache_write_1h_nanos_per_mtok, output_nanos_per_mtok, tiers, removed_at
             from prices
             where id = $1",
            id.0,
        )
        .fetch_optional(self.pool())
        .await?;
        row.map(|row| Ok(row.into_row()?.price)).transpose()
    }

    /// Models by name, each with its routes and the price in force at `now`; at most [`MODELS_MAX`].
    pub async fn models(&self, now: DateTime<Utc>) -> Result<Vec<ModelRow>, StoreError> {
        let mut snapshot = self.begin_snapshot().await?;
        let rows = sqlx::query_as!(
            ModelColumns,
            "select name, model_group, context_tokens, output_cap_tokens, output_default_tokens, encoding, disabled_at,
                    created_at, version,
                    array(
                        select distinct dialect
                        from model_routes
                        join upstreams on upstreams.id = upstream_id
                        where model = models.name and upstreams.disabled_at is null
                        order by dialect desc
                    ) as \"dialects!\"
             from models
             order by name
             limit $1",
            MODELS_MAX,
        )
        .fetch_all(&mut *snapshot)
        .await?;
        let mut routes: HashMap<String, Vec<Route>> = HashMap::new();
        let route_rows = sqlx::query!(
            "select model, upstream_id, upstream_model, position, weight
             from model_routes
             order by model, position, upstream_id, upstream_model"
        )
        .fetch_all(&mut *snapshot)
        .await?;
        for row in route_rows {
            routes.entry(row.model).or_default().push(Route {
                upstream_id: row.upstream_id.into(),
                upstream_model: row.upstream_model,
                position: row.position,
                weight: row.weight,
            });
        }
        let price_rows = sqlx::query_as!(
            PriceColumns,
            "select distinct on (model)
                    id, model, valid_from, valid_until, input_nanos_per_mtok, cache_read_nanos_per_mtok,
                    cache_write_5m_nanos_per_mtok, cache_write_1h_nanos_per_mtok, output_nanos_per_mtok, tiers,
                    removed_at
             from prices
             where removed_at is null and valid_from <= $1 and (valid_until is null or valid_until > $1)
             order by model, valid_from desc",
            now,
        )
        .fetch_all(&mut *snapshot)
        .await?;
        let mut prices = HashMap::new();
        for row in price_rows {
            prices.insert(row.model.clone(), row.into_row()?.price);
        }
        rows.into_iter()
            .map(|row| {
                let routes = routes.remove(&row.name).unwrap_or_default();
                let price = prices.remove(&row.name);
                row.into_row(routes, price)
            })
            .collect()
    }

    /// One model with its routes and the price in force at `now`.
    pub async fn find_model(&self, name: &str, now: DateTime<Utc>) -> Result<Option<ModelRow>, StoreError> {
        let mut snapshot = self.begin_snapshot().await?;
        find(&mut snapshot, name, now).await
    }

    /// Prices that were not removed, of every model or one, in the order in which they were added, those after this one; at
    /// most `count` and [`PRICES_PAGE_MAX`].
    pub async fn prices_after(
        &self,
        model: Option<&str>,
        after: Option<PriceId>,
        count: i64,
    ) -> Result<Vec<StoredPrice>, StoreError> {
        let rows = sqlx::query_as!(
            StoredPriceColumns,
            "select id, model, valid_from, valid_until, input_nanos_per_mtok, cache_read_nanos_per_mtok,
                    cache_write_5m_nanos_per_mtok, cache_write_1h_nanos_per_mtok, output_nanos_per_mtok, tiers,
                    removed_at, created_at, created_by
             from prices
             where removed_at is null and ($1::text is null or model = $1) and ($2::uuid is null or id > $2)
             order by id
             limit $3",
            model,
            after.map(|id| id.0),
            count.clamp(0, PRICES_PAGE_MAX),
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter().map(StoredPriceColumns::into_stored).collect()
    }

    /// A price that was not removed, with its history.
    pub async fn find_stored_price(&self, id: PriceId) -> Result<Option<StoredPrice>, StoreError> {
        let row = sqlx::query_as!(
            StoredPriceColumns,
            "select id, model, valid_from, valid_until, input_nanos_per_mtok, cache_read_nanos_per_mtok,
                    cache_write_5m_nanos_per_mtok, cache_write_1h_nanos_per_mtok, output_nanos_per_mtok, tiers,
                    removed_at, created_at, created_by
             from prices
             where id = $1 and removed_at is null",
            id.0,
        )
        .fetch_optional(self.pool())
        .await?;
        row.map(StoredPriceColumns::into_stored).transpose()
    }

    /// A model's prices that were not removed, latest validity first; at most [`PRICES_MAX`].
    pub async fn prices_of(&self, model: &str) -> Result<Vec<StoredPrice>, StoreError> {
        prices_of(self.pool(), model).await
    }
}

/// One model, kept from other writers until the transaction ends.
pub async fn lock(
    transaction: &mut Transaction,
    name: &str,
    now: DateTime<Utc>,
) -> Result<Option<ModelRow>, StoreError> {
    sqlx::query!("select 1 as one from models where name = $1 for no key update", name)
        .fetch_optional(&mut **transaction)
        .await?;
    find(transaction, name, now).await
}

/// How many there are.
pub async fn count_models(transaction: &mut Transaction) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar!("select count(*) as \"count!\" from models")
        .fetch_one(&mut **transaction)
        .await?)
}

/// Which of these names no model has.
pub async fn missing(transaction: &mut Transaction, names: &[String]) -> Result<Vec<String>, StoreError> {
    Ok(sqlx::query_scalar!(
        "select asked.name as \"name!\"
         from unnest($1::text[]) as asked (name)
         where not exists (select from models where models.name = asked.name)",
        names,
    )
    .fetch_all(&mut **transaction)
    .await?)
}

/// Whether a model belongs to the group.
pub async fn group_exists(transaction: &mut Transaction, group: &str) -> Result<bool, StoreError> {
    Ok(sqlx::query_scalar!(
        "select exists (select from models where model_group = $1) as \"exists!\"",
        group
    )
    .fetch_one(&mut **transaction)
    .await?)
}

/// Adds a model with its routes. Constraint `models_pkey`: the name is taken.
pub async fn insert(transaction: &mut Transaction, model: &Model, created_at: DateTime<Utc>) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into models (name, model_group, context_tokens, output_cap_tokens, output_default_tokens, encoding,
                             disabled_at, created_at, policy_version)
         values ($1, $2, $3, $4, $5, $6, $7, $8, 0)",
        model.name,
        model.group.as_deref(),
        stored(model.context_tokens),
        stored(model.output_cap_tokens),
        stored(model.output_default_tokens),
        model.encoding.as_str(),
        model.disabled_at,
        created_at,
    )
    .execute(&mut **transaction)
    .await?;
    insert_routes(transaction, model).await
}

/// Changes a model that is locked, and replaces its routes.
pub async fn update(transaction: &mut Transaction, model: &Model) -> Result<(), StoreError> {
    sqlx::query!(
        "update models
         set model_group = $2, context_tokens = $3, output_cap_tokens = $4, output_default_tokens = $5, encoding = $6,
             disabled_at = $7, version = version + 1
         where name = $1",
        model.name,
        model.group.as_deref(),
        stored(model.context_tokens),
        stored(model.output_cap_tokens),
        stored(model.output_default_tokens),
        model.encoding.as_str(),
        model.disabled_at,
    )
    .execute(&mut **transaction)
    .await?;
    sqlx::query!("delete from model_routes where model = $1", model.name)
        .execute(&mut **transaction)
        .await?;
    insert_routes(transaction, model).await
}

async fn insert_routes(transaction: &mut Transaction, model: &Model) -> Result<(), StoreError> {
    for route in &model.routes {
        sqlx::query!(
            "insert into model_routes (model, upstream_id, upstream_model, position, weight)
             values ($1, $2, $3, $4, $5)",
            model.name,
            route.upstream_id.0,
            route.upstream_model,
            route.position,
            route.weight,
        )
        .execute(&mut **transaction)
        .await?;
    }
    Ok(())
}

/// A model's prices that were not removed, latest validity first; at most [`PRICES_MAX`]. Lock the model first.
pub async fn prices(transaction: &mut Transaction, model: &str) -> Result<Vec<StoredPrice>, StoreError> {
    prices_of(&mut **transaction, model).await
}

/// The model that a price belongs to, unless it was removed.
pub async fn model_of_price(transaction: &mut Transaction, id: PriceId) -> Result<Option<String>, StoreError> {
    Ok(
        sqlx::query_scalar!("select model from prices where id = $1 and removed_at is null", id.0)
            .fetch_optional(&mut **transaction)
            .await?,
    )
}

/// Whether there is a price with this id, even one that was removed.
pub async fn price_exists(transaction: &mut Transaction, id: PriceId) -> Result<bool, StoreError> {
    Ok(
        sqlx::query_scalar!("select exists (select from prices where id = $1) as \"exists!\"", id.0)
            .fetch_one(&mut **transaction)
            .await?,
    )
}

/// Adds a price.
pub async fn insert_price(
    transaction: &mut Transaction,
    price: &Price,
    created_at: DateTime<Utc>,
    created_by: &str,
) -> Result<(), StoreError> {
    let tiers = serde_json::to_value(&price.tiers).map_err(|_| StoreError::Value { column: "prices.tiers" })?;
    sqlx::query!(
        "insert into prices (id, model, valid_from, valid_until, input_nanos_per_mtok, cache_read_nanos_per_mtok,
                             cache_write_5m_nanos_per_mtok, cache_write_1h_nanos_per_mtok, output_nanos_per_mtok, tiers,
                             created_at, created_by, policy_version)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 0)",
        price.id.0,
        price.model,
        price.valid_from,
        price.valid_until,
        price.rates.input_nanos_per_mtok,
        price.rates.cache_read_nanos_per_mtok,
        price.rates.cache_write_5m_nanos_per_mtok,
        price.rates.cache_write_1h_nanos_per_mtok,
        price.rates.output_nanos_per_mtok,
        tiers,
        created_at,
        created_by,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Moves the end of a price's validity.
pub async fn end_price(
    transaction: &mut Transaction,
    id: PriceId,
    valid_until: Option<DateTime<Utc>>,
) -> Result<(), StoreError> {
    sqlx::query!("update prices set valid_until = $2 where id = $1", id.0, valid_until)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// Takes a price out of force.
pub async fn remove_price(
    transaction: &mut Transaction,
    id: PriceId,
    removed_at: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query!("update prices set removed_at = $2 where id = $1", id.0, removed_at)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

async fn prices_of(executor: impl PgExecutor<'_>, model: &str) -> Result<Vec<StoredPrice>, StoreError> {
    let rows = sqlx::query_as!(
        StoredPriceColumns,
        "select id, model, valid_from, valid_until, input_nanos_per_mtok, cache_read_nanos_per_mtok,
                cache_write_5m_nanos_per_mtok, cache_write_1h_nanos_per_mtok, output_nanos_per_mtok, tiers, removed_at,
                created_at, created_by
         from prices
         where model = $1 and removed_at is null
         order by valid_from desc, created_at desc
         limit $2",
        model,
        PRICES_MAX,
    )
    .fetch_all(executor)
    .await?;
    rows.into_iter().map(StoredPriceColumns::into_stored).collect()
}

struct StoredPriceColumns {
    id: Uuid,
    model: String,
    valid_from: DateTime<Utc>,
    valid_until: Option<DateTime<Utc>>,
    input_nanos_per_mtok: i64,
    cache_read_nanos_per_mtok: i64,
    cache_write_5m_nanos_per_mtok: i64,
    cache_write_1h_nanos_per_mtok: i64,
    output_nanos_per_mtok: i64,
    tiers: serde_json::Value,
    removed_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
    created_by: String,
}

impl StoredPriceColumns {
    fn into_stored(self) -> Result<StoredPrice, StoreError> {
        let columns = PriceColumns {
            id: self.id,
            model: self.model,
            valid_from: self.valid_from,
            valid_until: self.valid_until,
            input_nanos_per_mtok: self.input_nanos_per_mtok,
            cache_read_nanos_per_mtok: self.cache_read_nanos_per_mtok,
            cache_write_5m_nanos_per_mtok: self.cache_write_5m_nanos_per_mtok,
            cache_write_1h_nanos_per_mtok: self.cache_write_1h_nanos_per_mtok,
            output_nanos_per_mtok: self.output_nanos_per_mtok,
            tiers: self.tiers,
            removed_at: self.removed_at,
        };
        Ok(StoredPrice {
            price: columns.into_row()?.price,
            created_at: self.created_at,
            created_by: self.created_by,
        })
    }
}

async fn find(transaction: &mut Transaction, name: &str, now: DateTime<Utc>) -> Result<Option<ModelRow>, StoreError> {
    let row = sqlx::query_as!(
        ModelColumns,
        "select name, model_group, context_tokens, output_cap_tokens, output_default_tokens, encoding, disabled_at,
                created_at, version,
                array(
                    select distinct dialect
                    from model_routes
                    join upstreams on upstreams.id = upstream_id
                    where model = models.name and upstreams.disabled_at is null
                    order by dialect desc
                ) as \"dialects!\"
         from models
         where name = $1",
        name,
    )
    .fetch_optional(&mut **transaction)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let routes = sqlx::query!(
        "select upstream_id, upstream_model, position, weight
         from model_routes
         where model = $1
         order by position, upstream_id, upstream_model",
        name,
    )
    .fetch_all(&mut **transaction)
    .await?;
    let routes = routes
        .into_iter()
        .map(|row| Route {
            upstream_id: row.upstream_id.into(),
            upstream_model: row.upstream_model,
            position: row.position,
            weight: row.weight,
        })
        .collect();
    let price = prices_of(&mut **transaction, name)
        .await?
        .into_iter()
        .map(|stored| stored.price)
        .find(|price| price.is_valid_at(now));
    row.into_row(routes, price).map(Some)
}

struct ModelColumns {
    name: String,
    model_group: Option<String>,
    context_tokens: i64,
    output_cap_tokens: i64,
    output_default_tokens: i64,
    encoding: String,
    disabled_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
    version: i64,
    dialects: Vec<String>,
}

impl ModelColumns {
    fn into_row(self, routes: Vec<Route>, price: Option<Price>) -> Result<ModelRow, StoreError> {
        Ok(ModelRow {
            model: Model {
                name: self.name,
                group: self.model_group.map(Into::into),
                context_tokens: count(self.context_tokens),
                output_cap_tokens: count(self.output_cap_tokens),
                output_default_tokens: count(self.output_default_tokens),
                encoding: parse(&self.encoding, "models.encoding")?,
                disabled_at: self.disabled_at,
                routes,
            },
            price,
            dialects: self
                .dialects
                .iter()
                .map(|dialect| parse(dialect, "upstreams.dialect"))
                .collect::<Result<_, _>>()?,
            created_at: self.created_at,
            version: self.version,
        })
    }
}

/// A count as Postgres keeps it.
fn stored(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

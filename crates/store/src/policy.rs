//! What gateways fetch: the policy rows newer than a version, in one snapshot of the database.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use domain::budget_events::Thresholds;
use domain::key_text::SecretHash;
use domain::limits::{Gates, Increase, Limit, Mode, Scope, Target};
use domain::own_limits::OwnLimits;
use domain::policy::{Key, KeySecret, LimitRow, Model, Plan, PolicyChanges, PriceRow, Route, Tenant, Upstream};
use domain::prices::{Price, PriceTier, Rates};
use sqlx::types::Json;
use uuid::Uuid;

use crate::tenants::key_rules;
use crate::{Store, StoreError, Transaction, in_time, settings};

/// How long Postgres may take to tell the version, in milliseconds.
const VERSION_WAIT_MS: u64 = 2_000;
/// How long it may take to tell every row, in milliseconds.
const CHANGES_WAIT_MS: u64 = 30_000;

impl Store {
    /// The current policy version: one row, read every half second.
    pub async fn policy_version(&self) -> Result<i64, StoreError> {
        in_time(VERSION_WAIT_MS, async {
            Ok(sqlx::query_scalar!("select version from policy_version")
                .fetch_one(self.pool())
                .await?)
        })
        .await
    }

    /// Rows newer than `since`; the whole policy for `since` 0. `None` before the database has settings.
    pub async fn policy_changes(&self, since: i64) -> Result<Option<PolicyChanges>, StoreError> {
        in_time(CHANGES_WAIT_MS, self.read_policy_changes(since)).await
    }

    async fn read_policy_changes(&self, since: i64) -> Result<Option<PolicyChanges>, StoreError> {
        let mut snapshot = self.begin_snapshot().await?;
        let version = sqlx::query_scalar!("select version from policy_version")
            .fetch_one(&mut *snapshot)
            .await?;
        let Some(row) = sqlx::query!("select time_zone, currency, unpriced, rehearsal_percent from settings")
            .fetch_optional(&mut *snapshot)
            .await?
        else {
            return Ok(None);
        };
        let adjusted_version = sqlx::query_scalar!("select policy_version from adjustment_mark")
            .fetch_one(&mut *snapshot)
            .await?;
        let changes = PolicyChanges {
            version,
            adjusted_version,
            settings: settings::settings(row.time_zone, row.currency, row.unpriced, row.rehearsal_percent)?,
            tenants: tenants(&mut snapshot, since).await?,
            plans: plans(&mut snapshot, since).await?,
            keys: keys(&mut snapshot, since).await?,
            models: models(&mut snapshot, since).await?,
            prices: prices(&mut snapshot, since).await?,
            upstreams: upstreams(&mut snapshot, since).await?,
            limits: limits(&mut snapshot, since).await?,
        };
        snapshot.commit().await?;
        Ok(Some(changes))
    }
}

async fn tenants(snapshot: &mut Transaction, since: i64) -> Result<Vec<Tenant>, StoreError> {
    let rows = sqlx::query!(
        "select id, name, plan_id, priority_ceiling, suspended_at, has_strict_budgets, keys_per_person, key_months_max,
                member_priority_ceiling, member_models, removed_at
         from tenants
         where policy_version > $1",
        since,
    )
    .fetch_all(&mut **snapshot)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Tenant {
                id: row.id.into(),
                name: row.name,
                plan_id: row.plan_id.map(Into::into),
                priority_ceiling: parse_some(row.priority_ceiling, "tenants.priority_ceiling")?,
                suspended_at: row.suspended_at,
                has_strict_budgets: row.has_strict_budgets,
                key_rules: key_rules(
                    row.keys_per_person,
                    row.key_months_max,
                    row.member_priority_ceiling,
                    row.member_models,
                )?,
                removed_at: row.removed_at,
            })
        })
        .collect()
}

async fn plans(snapshot: &mut Transaction, since: i64) -> Result<Vec<Plan>, StoreError> {
    let rows = sqlx::query!(
        "select id, name, priority_ceiling, removed_at from plans where policy_version > $1",
        since,
    )
    .fetch_all(&mut **snapshot)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Plan {
                id: row.id.into(),
                name: row.name,
                priority_ceiling: parse(&row.priority_ceiling, "plans.priority_ceiling")?,
                removed_at: row.removed_at,
            })
        })
        .collect()
}

async fn keys(snapshot: &mut Transaction, since: i64) -> Result<Vec<Key>, StoreError> {
    let rows = sqlx::query!(
        "select key_id, secret_hash, valid_until
         from key_secrets
         join keys on keys.id = key_secrets.key_id
         where keys.policy_version > $1
         order by key_id, key_secrets.created_at desc",
        since,
    )
    .fetch_all(&mut **snapshot)
    .await?;
    let mut secrets: HashMap<Uuid, Vec<KeySecret>> = HashMap::new();
    for row in rows {
        secrets.entry(row.key_id).or_default().push(KeySecret {
            hash: secret_hash(row.secret_hash)?,
            valid_until: row.valid_until,
        });
    }
    let rows = sqlx::query!(
        "select id, public_id, tenant_id, owner_id, name, priority, allowed_models, may_name_users, degrades,
                own_limits as \"own_limits: Json<OwnLimits>\", expires_at, revoked_at
         from keys
         where policy_version > $1",
        since,
    )
    .fetch_all(&mut **snapshot)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Key {
                secrets: secrets.remove(&row.id).unwrap_or_default(),
                id: row.id.into(),
                public_id: row.public_id,
                tenant_id: row.tenant_id.into(),
                owner_id: row.owner_id.map(Into::into),
                name: row.name,
                priority: parse(&row.priority, "keys.priority")?,
                allowed_models: row.allowed_models,
                may_name_users: row.may_name_users,
                degrades: row.degrades,
                own_limits: row.own_limits.0,
                expires_at: row.expires_at,
                revoked_at: row.revoked_at,
            })
        })
        .collect()
}

async fn models(snapshot: &mut Transaction, since: i64) -> Result<Vec<Model>, StoreError> {
    let rows = sqlx::query!(
        "select model, upstream_id, upstream_model, position, weight
         from model_routes
         join models on models.name = model_routes.model
         where models.policy_version > $1
         order by model, position, upstream_id, upstream_model",
        since,
    )
    .fetch_all(&mut **snapshot)
    .await?;
    let mut routes: HashMap<String, Vec<Route>> = HashMap::new();
    for row in rows {
        routes.entry(row.model).or_default().push(Route {
            upstream_id: row.upstream_id.into(),
            upstream_model: row.upstream_model,
            position: row.position,
            weight: row.weight,
        });
    }
    let rows = sqlx::query!(
        "select name, model_group, context_tokens, output_cap_tokens, output_default_tokens, encoding, disabled_at
         from models
         where policy_version > $1",
        since,
    )
    .fetch_all(&mut **snapshot)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Model {
                routes: routes.remove(&row.name).unwrap_or_default(),
                name: row.name,
                group: row.model_group.map(Into::into),
                context_tokens: count(row.context_tokens),
                output_cap_tokens: count(row.output_cap_tokens),
                output_default_tokens: count(row.output_default_tokens),
                encoding: parse(&row.encoding, "models.encoding")?,
                disabled_at: row.disabled_at,
            })
        })
        .collect()
}

async fn prices(snapshot: &mut Transaction, since: i64) -> Result<Vec<PriceRow>, StoreError> {
    let rows = sqlx::query_as!(
        PriceColumns,
        "select id, model, valid_from, valid_until, input_nanos_per_mtok, cache_read_nanos_per_mtok,
                cache_write_5m_nanos_per_mtok, cache_write_1h_nanos_per_mtok, output_nanos_per_mtok, tiers, removed_at
         from prices
         where policy_version > $1",
        since,
    )
    .fetch_all(&mut **snapshot)
    .await?;
    rows.into_iter().map(PriceColumns::into_row).collect()
}

async fn upstreams(snapshot: &mut Transaction, since: i64) -> Result<Vec<Upstream>, StoreError> {
    let rows = sqlx::query!(
        "select id, name, dialect, base_url, credential_sealed, disabled_at from upstreams where policy_version > $1",
        since,
    )
    .fetch_all(&mut **snapshot)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Upstream {
                id: row.id.into(),
                name: row.name,
                dialect: parse(&row.dialect, "upstreams.dialect")?,
                base_url: row.base_url,
                credential_sealed: row.credential_sealed,
                disabled_at: row.disabled_at,
            })
        })
        .collect()
}

async fn limits(snapshot: &mut Transaction, since: i64) -> Result<Vec<LimitRow>, StoreError> {
    let rows = sqlx::query_as!(
        LimitColumns,
        "select id, scope_kind, scope_id, class, dimension, value, window_seconds, burst, period, model, priority, mode,
                gate_lower_percent, gate_upper_percent, gate_upper_waits, increase_value, increase_until, threshold_percents, removed_at
         from limits
         where policy_version > $1",
        since,
    )
    .fetch_all(&mut **snapshot)
    .await?;
    rows.into_iter().map(LimitColumns::into_row).collect()
}

/// A row of `prices`.
pub(crate) struct PriceColumns {
    pub(crate) id: Uuid,
    pub(crate) model: String,
    pub(crate) valid_from: DateTime<Utc>,
    pub(crate) valid_until: Option<DateTime<Utc>>,
    pub(crate) input_nanos_per_mtok: i64,
    pub(crate) cache_read_nanos_per_mtok: i64,
    pub(crate) cache_write_5m_nanos_per_mtok: i64,
    pub(crate) cache_write_1h_nanos_per_mtok: i64,
    pub(crate) output_nanos_per_mtok: i64,
    pub(crate) tiers: serde_json::Value,
    pub(crate) removed_at: Option<DateTime<Utc>>,
}

impl PriceColumns {
    pub(crate) fn into_row(self) -> Result<PriceRow, StoreError> {
        let tiers: Vec<PriceTier> =
            serde_json::from_value(self.tiers).map_err(|_| StoreError::Value { column: "prices.tiers" })?;
        Ok(PriceRow {
            price: Price {
                id: self.id.into(),
                model: self.model,
                valid_from: self.valid_from,
                valid_until: self.valid_until,
                rates: Rates {
                    input_nanos_per_mtok: self.input_nanos_per_mtok,
                    cache_read_nanos_per_mtok: self.cache_read_nanos_per_mtok,
                    cache_write_5m_nanos_per_mtok: self.cache_write_5m_nanos_per_mtok,
                    cache_write_1h_nanos_per_mtok: self.cache_write_1h_nanos_per_mtok,
                    output_nanos_per_mtok: self.output_nanos_per_mtok,
                },
                tiers,
            },
            removed_at: self.removed_at,
        })
    }
}

/// A row of `limits`.
pub(crate) struct LimitColumns {
    pub(crate) id: Uuid,
    pub(crate) scope_kind: String,
    pub(crate) scope_id: String,
    pub(crate) class: Option<String>,
    pub(crate) dimension: String,
    pub(crate) value: i64,
    pub(crate) window_seconds: i32,
    pub(crate) burst: Option<i64>,
    pub(crate) period: String,
    pub(crate) model: Option<String>,
    pub(crate) priority: Option<String>,
    pub(crate) mode: String,
    pub(crate) gate_lower_percent: Option<i16>,
    pub(crate) gate_upper_percent: Option<i16>,
    pub(crate) gate_upper_waits: bool,
    pub(crate) increase_value: Option<i64>,
    pub(crate) increase_until: Option<DateTime<Utc>>,
    pub(crate) threshold_percents: Vec<i16>,
    pub(crate) removed_at: Option<DateTime<Utc>>,
}

impl LimitColumns {
    pub(crate) fn into_row(self) -> Result<LimitRow, StoreError> {
        let bad_scope = || StoreError::Value {
            column: "limits.scope_id",
        };
        let target = match (self.scope_kind.as_str(), self.class.as_deref()) {
            ("plan", Some(class)) => Target::OfPlan(
                self.scope_id.parse().map_err(|_| bad_scope())?,
                parse(class, "limits.class")?,
            ),
            ("tenant", Some(class)) => Target::OfTenant(
                self.scope_id.parse().map_err(|_| bad_scope())?,
                parse(class, "limits.class")?,
            ),
            ("global", None) => Target::Node(Scope::Global),
            (kind, None) => Target::Node(format!("{kind}:{}", self.scope_id).parse().map_err(|_| bad_scope())?),
            (_, Some(_)) => return Err(StoreError::Value { column: "limits.class" }),
        };
        let percent = |value: i16| u8::try_from(value).unwrap_or(100);
        Ok(LimitRow {
            limit: Limit {
                id: self.id.into(),
                target,
                dimension: parse(&self.dimension, "limits.dimension")?,
                value: count(self.value),
                increase: self
                    .increase_value
                    .zip(self.increase_until)
                    .map(|(value, until)| Increase {
                        value: count(value),
                        until,
                    }),
                window_seconds: u32::try_from(self.window_seconds).unwrap_or(1).max(1),
                burst: self.burst.map(count),
                period: parse(&self.period, "limits.period")?,
                model: self.model.map(Into::into),
                priority: parse_some(self.priority, "limits.priority")?,
                mode: match self.mode.as_str() {
                    "enforce" => Mode::Enforce,
                    "rehearse" => Mode::Rehearse,
                    _ => return Err(StoreError::Value { column: "limits.mode" }),
                },
                gates: self
                    .gate_lower_percent
                    .zip(self.gate_upper_percent)
                    .map(|(lower, upper)| Gates {
                        lower_percent: percent(lower),
                        upper_percent: percent(upper),
                        upper_waits: self.gate_upper_waits,
                    }),
                thresholds: thresholds(&self.threshold_percents)?,
            },
            removed_at: self.removed_at,
        })
    }
}

fn thresholds(percents: &[i16]) -> Result<Thresholds, StoreError> {
    let percents: Result<Vec<u8>, _> = percents.iter().map(|percent| u8::try_from(*percent)).collect();
    percents
        .ok()
        .and_then(|percents| Thresholds::new(&percents).ok())
        .ok_or(StoreError::Value {
            column: "limits.threshold_percents",
        })
}

/// A stored hash of a key's secret.
pub(crate) fn secret_hash(bytes: Vec<u8>) -> Result<SecretHash, StoreError> {
    bytes.try_into().map(SecretHash).map_err(|_| StoreError::Value {
        column: "key_secrets.secret_hash",
    })
}

/// Parses a stored word.
pub(crate) fn parse<T: std::str::FromStr>(text: &str, column: &'static str) -> Result<T, StoreError> {
    text.parse().map_err(|_| StoreError::Value { column })
}

/// Parses a stored word that may be absent.
pub(crate) fn parse_some<T: std::str::FromStr>(
    text: Option<String>,
    column: &'static str,
) -> Result<Option<T>, StoreError> {
    text.map(|text| parse(&text, column)).transpose()
}

/// A stored count; the schema keeps it at least zero.
pub(crate) fn count(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

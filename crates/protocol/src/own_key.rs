//! The body of `GET /v1/key`: what a caller's own key may do, until when, and what is left of its limits.

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use domain::ids::KeyId;
use domain::key_text::masked;
use domain::limits::{Dimension, Mode};
use domain::money::Nanos;
use domain::periods::Period;
use domain::policy::Key;
use domain::priority::Priority;
use domain::readings::{CounterStore, Reading};
use serde::Serialize;

use crate::errors::json_bytes;

/// A key, as it may see itself.
#[derive(Clone, Debug)]
pub struct OwnKey<'a> {
    /// The key.
    pub key: &'a Key,
    /// What its requests run at, under every ceiling.
    pub priority: Priority,
    /// Models it may use; all when absent.
    pub models: Option<Vec<&'a str>>,
    /// Until when the secret works that was shown; as long as the key, when absent.
    pub secret_valid_until: Option<DateTime<Utc>>,
    /// The currency of budgets of money.
    pub currency: &'a str,
    /// Who counted.
    pub store: CounterStore,
    /// When it was read.
    pub at: DateTime<Utc>,
    /// The limits on the key, its user and its tenant.
    pub readings: &'a [Reading],
}

/// The body. Money is decimal text, as many readers of JSON round numbers.
pub fn own_key_body(own: &OwnKey<'_>) -> Bytes {
    json_bytes(&Body {
        object: "key",
        id: own.key.id,
        key: masked(&own.key.public_id),
        name: &own.key.name,
        priority: own.priority,
        models: own.models.as_deref(),
        expires_at: own.key.expires_at,
        secret_valid_until: own.secret_valid_until,
        currency: own.currency,
        counters: own.store,
        read_at: own.at,
        limits: own.readings.iter().map(|reading| Limit::of(reading, own.at)).collect(),
    })
}

#[derive(Serialize)]
struct Body<'a> {
    object: &'static str,
    id: KeyId,
    key: String,
    name: &'a str,
    priority: Priority,
    models: Option<&'a [&'a str]>,
    expires_at: Option<DateTime<Utc>>,
    secret_valid_until: Option<DateTime<Utc>>,
    currency: &'a str,
    counters: CounterStore,
    read_at: DateTime<Utc>,
    limits: Vec<Limit<'a>>,
}

#[derive(Serialize)]
struct Limit<'a> {
    scope: String,
    dimension: Dimension,
    model: Option<&'a str>,
    priority: Option<Priority>,
    window_seconds: Option<u32>,
    period: Option<Period>,
    /// Whether it refuses, or only rehearses.
    mode: Mode,
    limit: Amount,
    used: Amount,
    held: Amount,
    remaining: Amount,
    /// Whether `used` is all there is: a budget that is being read after a start is not known yet.
    is_known: bool,
    resets_at: Option<DateTime<Utc>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Amount {
    Count(i64),
    Money(String),
}

impl<'a> Limit<'a> {
    fn of(reading: &'a Reading, at: DateTime<Utc>) -> Self {
        let amount = |amount: i64| match reading.dimension {
            Dimension::BudgetCost => Amount::Money(Nanos(amount).to_string()),
            _ => Amount::Count(amount),
        };
        let unsigned = |value: u64| amount(i64::try_from(value).unwrap_or(i64::MAX));
        let reset = reading
            .reset_ms
            .and_then(|ms| TimeDelta::try_milliseconds(i64::try_from(ms).ok()?));
        Self {
            scope: reading.scope.to_string(),
            dimension: reading.dimension,
            model: reading.model.as_deref(),
            priority: reading.priority,
            window_seconds: reading.window_seconds,
            period: reading.period,
            mode: reading.mode,
            limit: unsigned(reading.limit_value),
            used: amount(reading.used),
            held: unsigned(reading.held),
            remaining: unsigned(reading.remaining),
            is_known: reading.is_known,
            resets_at: reset.and_then(|reset| at.checked_add_signed(reset)),
        }
    }
}

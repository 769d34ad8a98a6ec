//! The installation's settings: one row, made at first start.

use domain::policy::Settings;
use domain::prices::Unpriced;

use crate::{Store, StoreError, Transaction};

/// What the row holds beside the policy's settings.
#[derive(Clone, Debug)]
pub struct StoredSettings {
    /// What gateways and console use.
    pub settings: Settings,
    /// A known text sealed under the secret key of whoever started first.
    pub secret_key_check: Vec<u8>,
    /// Raised by every change.
    pub version: i64,
}

impl Store {
    /// The settings, if this database was ever started with.
    pub async fn find_settings(&self) -> Result<Option<StoredSettings>, StoreError> {
        let row = sqlx::query!(
            "select time_zone, currency, secret_key_check, unpriced, rehearsal_percent, version from settings"
        )
        .fetch_optional(self.pool())
        .await?;
        row.map(|row| {
            Ok(StoredSettings {
                settings: settings(row.time_zone, row.currency, row.unpriced, row.rehearsal_percent)?,
                secret_key_check: row.secret_key_check,
                version: row.version,
            })
        })
        .transpose()
    }
}

/// Writes the settings of a database that has none, and keeps those of one that has; whether they are these.
pub async fn insert(
    transaction: &mut Transaction,
    settings: &Settings,
    secret_key_check: &[u8],
) -> Result<bool, StoreError> {
    let unpriced = serde_json::to_value(settings.unpriced).map_err(|_| StoreError::Value { column: "unpriced" })?;
    let done = sqlx::query!(
        "insert into settings (time_zone, currency, secret_key_check, unpriced, rehearsal_percent)
         values ($1, $2, $3, $4, $5)
         on conflict do nothing",
        settings.time_zone.name(),
        settings.currency,
        secret_key_check,
        unpriced,
        settings.rehearsal_percent.map(i16::from),
    )
    .execute(&mut **transaction)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The settings; the row is kept from other writers until the transaction ends.
pub async fn lock(transaction: &mut Transaction) -> Result<Option<StoredSettings>, StoreError> {
    let row = sqlx::query!(
        "select time_zone, currency, secret_key_check, unpriced, rehearsal_percent, version from settings for update"
    )
    .fetch_optional(&mut **transaction)
    .await?;
    row.map(|row| {
        Ok(StoredSettings {
            settings: settings(row.time_zone, row.currency, row.unpriced, row.rehearsal_percent)?,
            secret_key_check: row.secret_key_check,
            version: row.version,
        })
    })
    .transpose()
}

/// Replaces the policy for models without a price.
pub async fn update_unpriced(transaction: &mut Transaction, unpriced: Unpriced) -> Result<(), StoreError> {
    let unpriced = serde_json::to_value(unpriced).map_err(|_| StoreError::Value { column: "unpriced" })?;
    sqlx::query!("update settings set unpriced = $1, version = version + 1", unpriced)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// Replaces the share of their value at which all limits are rehearsed, in percent; `None` rehearses none.
pub async fn update_rehearsal(transaction: &mut Transaction, percent: Option<u8>) -> Result<(), StoreError> {
    sqlx::query!(
        "update settings set rehearsal_percent = $1, version = version + 1",
        percent.map(i16::from),
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

pub(crate) fn settings(
    time_zone: String,
    currency: String,
    unpriced: serde_json::Value,
    rehearsal_percent: Option<i16>,
) -> Result<Settings, StoreError> {
    Ok(Settings {
        time_zone: time_zone.parse().map_err(|_| StoreError::Value {
            column: "settings.time_zone",
        })?,
        currency,
        unpriced: serde_json::from_value::<Unpriced>(unpriced).map_err(|_| StoreError::Value {
            column: "settings.unpriced",
        })?,
        rehearsal_percent: rehearsal_percent.and_then(|percent| u8::try_from(percent).ok()),
    })
}

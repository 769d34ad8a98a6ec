//! Settings of the installation. Zone and currency stay as they were at first start: every past report depends on them.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use domain::policy::Settings;
use domain::prices::Unpriced;
use domain::text;
use serde_json::{Value, json};
use store::instances::Instance;
use store::{Transaction, settings};

use crate::audit::Change;
use crate::fields::Fields;
use crate::prices::check_rates;
use crate::{Actor, Control, ControlError, commit};

/// Settings and the version to state when changing them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsView {
    /// The settings.
    pub settings: Settings,
    /// Raised by every change.
    pub version: i64,
}

impl Control {
    /// The settings: zone and currency concern everyone who reads a page.
    pub async fn settings(&self) -> Result<SettingsView, ControlError> {
        let stored = self
            .store
            .find_settings()
            .await?
            .ok_or(ControlError::NotFound { what: "settings" })?;
        Ok(SettingsView {
            settings: stored.settings,
            version: stored.version,
        })
    }

    /// Writes the settings of a database that has none, with a check of this installation's secret key; keeps those of one
    /// that has. For the program itself, at its first start.
    pub async fn create_settings(
        &self,
        actor: &Actor,
        settings: &Settings,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        if !actor.is_of_the_house() {
            return Err(ControlError::Forbidden);
        }
        let mut transaction = self.store.begin().await?;
        let check = self.secret_key.make_check(&*self.random);
        if !settings::insert(&mut transaction, settings, &check).await? {
            return Ok(());
        }
        let change = Change {
            action: "settings.create",
            subject: "settings".to_owned(),
            tenant_id: None,
            before: None,
            after: Some(json!({
                "time_zone": settings.time_zone.name(),
                "currency": settings.currency,
                "unpriced": settings.unpriced,
                "rehearsal_percent": settings.rehearsal_percent,
            })),
        };
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await
    }

    /// The same as a page of its own, for those who see everything.
    pub async fn settings_for(&self, actor: &Actor) -> Result<SettingsView, ControlError> {
        actor.require_everything()?;
        self.settings().await
    }

    /// Decides what happens to requests for models without a price. Fields as of a price's rates.
    pub async fn set_unpriced(
        &self,
        actor: &Actor,
        version: i64,
        unpriced: Unpriced,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        actor.require_operator()?;
        let mut fields = Fields::default();
        if let Unpriced::Charge(rates) = &unpriced {
            check_rates(&mut fields, rates, None);
        }
        fields.check()?;
        let mut transaction = self.store.begin().await?;
        let before = lock(&mut transaction, version).await?;
        settings::update_unpriced(&mut transaction, unpriced).await?;
        let change = changed("settings.unpriced", json!(before.unpriced), json!(unpriced));
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await
    }

    /// Rehearses every limit at this share of its value, 1 to 100 percent, or none. Refuses nothing. Field `percent`.
    pub async fn set_rehearsal(
        &self,
        actor: &Actor,
        version: i64,
        percent: Option<u8>,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        actor.require_operator()?;
        let mut fields = Fields::default();
        fields.require(
            percent.is_none_or(|percent| (1..=100).contains(&percent)),
            "percent",
            text!("between 1 and 100 percent"),
        );
        fields.check()?;
        let mut transaction = self.store.begin().await?;
        let before = lock(&mut transaction, version).await?;
        settings::update_rehearsal(&mut transaction, percent).await?;
        let change = changed("settings.rehearsal", json!(before.rehearsal_percent), json!(percent));
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await
    }

    /// Gateways and what they say about themselves, the most recently seen first.
    pub async fn instances(&self, actor: &Actor) -> Result<Vec<Instance>, ControlError> {
        actor.require_everything()?;
        Ok(self.store.instances().await?)
    }

    /// The billing time zone.
    pub(crate) async fn zone(&self) -> Result<Tz, ControlError> {
        Ok(self.settings().await?.settings.time_zone)
    }
}

pub(crate) async fn lock(transaction: &mut Transaction, read: i64) -> Result<Settings, ControlError> {
    let stored = settings::lock(transaction)
        .await?
        .ok_or(ControlError::NotFound { what: "settings" })?;
    if stored.version == read {
        return Ok(stored.settings);
    }
    Err(ControlError::Conflict {
        what: "page of settings",
        read,
        current: stored.version,
    })
}

pub(crate) fn changed(action: &'static str, before: Value, after: Value) -> Change {
    Change {
        action,
        subject: "settings".to_owned(),
        tenant_id: None,
        before: Some(before),
        after: Some(after),
    }
}

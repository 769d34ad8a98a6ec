//! Settings of the installation. Zone and currency stay as they were at first start: every past report depends on them.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use domain::policy::Settings;
use domain::prices::Unpriced;
use serde_json::json;
use store::instances::Instance;
use store::settings;

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
        let before = settings::lock(&mut transaction)
            .await?
            .ok_or(ControlError::NotFound { what: "settings" })?;
        if before.version != version {
            return Err(ControlError::Conflict {
                what: "page of settings",
                read: version,
                current: before.version,
            });
        }
        settings::update_unpriced(&mut transaction, unpriced).await?;
        let change = Change {
            action: "settings.unpriced",
            subject: "settings".to_owned(),
            tenant_id: None,
            before: Some(json!(before.settings.unpriced)),
            after: Some(json!(unpriced)),
        };
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

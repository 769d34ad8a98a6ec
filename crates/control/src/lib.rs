//! The control plane: every operation a person can do, with authorisation and audit.
//!
//! An operation takes who acts ([`Actor`]), what for, and the time. A write is one transaction: allowed? valid? still
//! the version that was read? Then it is written together with its entry in the audit log. Nothing outside this crate
//! writes what operators configure. Surfaces do not know the store: its types that operations take and
//! give are re-exported in [`rows`].

pub mod account;
pub mod actor;
pub mod adjustments;
mod adjustments_csv;
pub mod alerts;
pub mod api;
pub mod audit;
pub mod budget_events;
pub mod catalogue;
pub mod checklist;
pub mod early_retries;
pub mod error;
pub mod estimates;
pub mod explain;
pub mod fields;
pub mod jobs;
pub mod keys;
pub mod ledger;
pub mod ledger_csv;
pub mod limits;
pub mod live;
pub mod lookback;
pub mod management_tokens;
pub mod models;
pub mod oversubscription;
mod passwords;
pub mod people;
pub mod pieces;
pub mod plans;
pub mod prices;
pub mod priorities;
pub mod quarantine;
pub mod queues;
pub mod quota_tree;
pub mod rehearsals;
pub mod repairs;
pub mod reports;
pub mod retention;
pub mod rows;
pub mod sessions;
pub mod settings;
pub mod sign_in;
pub mod tags;
mod tags_csv;
pub mod tenants;
pub mod tokens;
pub mod upstreams;
pub mod usage_csv;
mod usage_json;

use std::sync::Arc;

use chrono::{DateTime, Duration, Utc};
use domain::alerts::ALERTS_KEPT_DAYS;
use domain::budget_events::BUDGET_EVENTS_KEPT_DAYS;
use domain::key_warnings::KEY_WARNINGS_KEPT_DAYS;
use store::random::{self, Random};
use store::sealing::SecretKey;
use store::{Store, StoreError, Transaction};

pub use actor::Actor;
pub use error::{ControlError, FieldError};
pub use store::random::SystemRandom;

use live::{LiveCounters, NoGateway};
use passwords::Passwords;

/// The door to everything that operators configure. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Control {
    store: Store,
    secret_key: SecretKey,
    random: Arc<dyn Random>,
    passwords: Passwords,
    live: Arc<dyn LiveCounters>,
}

impl Control {
    /// Operations on `store`; credentials are sealed under `secret_key`.
    pub fn new(store: Store, secret_key: SecretKey, random: Arc<dyn Random>) -> Self {
        Self {
            store,
            secret_key,
            random,
            passwords: Passwords::default(),
            live: Arc::new(NoGateway),
        }
    }

    /// The same with live figures from here. Without them the quota tree and explanations say that there are none.
    pub fn with_live(self, live: Arc<dyn LiveCounters>) -> Self {
        Self { live, ..self }
    }

    /// Whether Postgres answers now.
    pub async fn ping(&self) -> Result<(), ControlError> {
        Ok(self.store.ping().await?)
    }

    /// Deletes a batch of what has ended: sessions, one-time links, failed sign-ins that no longer count, alerts
    /// and thresholds of long ago, jobs and their answers, secrets of rotated keys. Returns how many rows there were; call again while it is not zero.
    pub async fn delete_expired(&self, now: DateTime<Utc>) -> Result<u64, ControlError> {
        let sessions = self.store.delete_expired_sessions(now).await?;
        let links = self.store.delete_expired_links(now).await?;
        let failures = self.store.delete_sign_in_failures(now - sign_in::window()).await?;
        let jobs = self.store.delete_expired_jobs(now).await?;
        let alerts = self
            .store
            .delete_old_alerts(now - Duration::days(ALERTS_KEPT_DAYS))
            .await?;
        let budget_events = self
            .store
            .delete_old_budget_events(now - Duration::days(BUDGET_EVENTS_KEPT_DAYS))
            .await?;
        let secrets = self.store.delete_ended_secrets(now).await?;
        let key_warnings = self
            .store
            .delete_old_key_warnings(now - Duration::days(KEY_WARNINGS_KEPT_DAYS))
            .await?;
        Ok(sessions + links + failures + alerts + budget_events + jobs + secrets + key_warnings)
    }

    /// A new id, of whichever kind is asked for.
    fn new_id<T>(&self, make: impl FnOnce(DateTime<Utc>, [u8; 10]) -> T, now: DateTime<Utc>) -> T {
        make(now, random::bytes(&*self.random))
    }
}

/// Commits; what was written is in force from then on.
async fn commit(transaction: Transaction) -> Result<(), ControlError> {
    transaction.commit().await.map_err(StoreError::from)?;
    Ok(())
}

//! Keeps the snapshot current: reads one row every half second, fetches what is newer, publishes it as a whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use store::{Store, StoreError};
use tokio::sync::Mutex;

use super::{OpenCredential, PolicyRows, PolicySnapshot};
use crate::clock::Clock;
use crate::kept_policy::{KeptPolicy, KeptPolicyError};

/// How often the version is read, in milliseconds: a change is in force everywhere within a second.
pub const VERSION_INTERVAL_MS: u64 = 500;
/// An unknown key is only called unknown when Postgres answered within so many milliseconds.
const UNKNOWN_KEY_MS: u64 = 5_000;
const NEVER: u64 = u64::MAX;

/// Why the policy could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// Postgres did not answer.
    #[error("the policy could not be read")]
    Store(#[from] StoreError),
    /// The database was never started with.
    #[error("the database has no settings yet")]
    NoSettings,
}

/// Owns the current snapshot. Reading it takes no lock.
pub struct PolicyKeeper {
    store: Store,
    clock: Arc<dyn Clock>,
    open_credential: OpenCredential,
    kept: KeptPolicy,
    rows: Mutex<PolicyRows>,
    current: ArcSwapOption<PolicySnapshot>,
    confirmed_at_ms: AtomicU64,
}

impl PolicyKeeper {
    /// A keeper without a snapshot yet.
    pub fn new(store: Store, clock: Arc<dyn Clock>, open_credential: OpenCredential, kept: KeptPolicy) -> Self {
        Self {
            store,
            clock,
            open_credential,
            kept,
            rows: Mutex::default(),
            current: ArcSwapOption::empty(),
            confirmed_at_ms: AtomicU64::new(NEVER),
        }
    }

    /// The policy in force; absent until the first was read.
    pub fn current(&self) -> Option<Arc<PolicySnapshot>> {
        self.current.load_full()
    }

    /// Milliseconds since the snapshot was last known to be current; absent when it never was.
    pub fn age_ms(&self) -> Option<u64> {
        match self.confirmed_at_ms.load(Ordering::Relaxed) {
            NEVER => None,
            at => Some(self.clock.now().monotonic_ms.saturating_sub(at)),
        }
    }

    /// Whether a key that the snapshot does not know can be called unknown.
    pub fn can_tell_unknown_keys(&self) -> bool {
        self.age_ms().is_some_and(|age_ms| age_ms <= UNKNOWN_KEY_MS)
    }

    /// Reads what is newer than the rows at hand. `None` when nothing is. The caller publishes the snapshot when it has
    /// prepared what the snapshot needs.
    pub async fn fetch_newer(&self) -> Result<Option<Arc<PolicySnapshot>>, KeeperError> {
        let mut rows = self.rows.lock().await;
        let asked_at_ms = self.clock.now().monotonic_ms;
        let has_settings = rows.version() > 0;
        if has_settings && self.store.policy_version().await? == rows.version() && self.current.load().is_some() {
            self.confirmed_at_ms.store(asked_at_ms, Ordering::Relaxed);
            return Ok(None);
        }
        let changes = self
            .store
            .policy_changes(rows.version())
            .await?
            .ok_or(KeeperError::NoSettings)?;
        rows.apply(changes);
        self.confirmed_at_ms.store(asked_at_ms, Ordering::Relaxed);
        Ok(rows.snapshot(&self.open_credential).map(Arc::new))
    }

    /// Puts a snapshot in force.
    pub fn publish(&self, snapshot: Arc<PolicySnapshot>) {
        self.current.store(Some(snapshot));
    }

    /// Writes the rows to the data directory, sealed, for a start without Postgres.
    pub async fn keep(&self) -> Result<(), KeptPolicyError> {
        let whole = self.rows.lock().await.whole();
        match whole {
            Some(whole) => self.kept.write(whole).await,
            None => Ok(()),
        }
    }

    /// The snapshot of the rows kept in the data directory, if there are any: the start without Postgres. They are not
    /// built upon: once Postgres is back, everything is fetched, as rows may be gone from a restored database.
    pub async fn read_kept(&self) -> Result<Option<Arc<PolicySnapshot>>, KeptPolicyError> {
        let Some(whole) = self.kept.read().await? else {
            return Ok(None);
        };
        let mut rows = PolicyRows::default();
        rows.apply(whole);
        Ok(rows.snapshot(&self.open_credential).map(Arc::new))
    }
}

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
    fetched: Mutex<Fetched>,
    current: ArcSwapOption<PolicySnapshot>,
    confirmed_at_ms: AtomicU64,
}

/// What came from Postgres.
#[derive(Default)]
struct Fetched {
    rows: PolicyRows,
    /// The snapshot of the rows.
    snapshot: Option<Arc<PolicySnapshot>>,
    /// The version on disk, as far as this process wrote it.
    kept_version: Option<i64>,
}

/// A policy that was read and is not in force yet.
#[must_use = "a policy is in force once it is published"]
pub struct Newer {
    /// The snapshot.
    pub snapshot: Arc<PolicySnapshot>,
    asked_at_ms: u64,
}

impl PolicyKeeper {
    /// A keeper without a snapshot yet.
    pub fn new(store: Store, clock: Arc<dyn Clock>, open_credential: OpenCredential, kept: KeptPolicy) -> Self {
        Self {
            store,
            clock,
            open_credential,
            kept,
            fetched: Mutex::default(),
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

    /// Reads what is newer than the policy in force. `None` when nothing is. The caller publishes the snapshot when it has
    /// prepared what the snapshot needs; until then the policy in force is not said to be current.
    pub async fn fetch_newer(&self) -> Result<Option<Newer>, KeeperError> {
        let mut fetched = self.fetched.lock().await;
        let asked_at_ms = self.clock.now().monotonic_ms;
        if let Some(snapshot) = &fetched.snapshot {
            let version = self.store.policy_version().await?;
            if version == fetched.rows.version() {
                if self.is_in_force(snapshot) {
                    self.confirmed_at_ms.store(asked_at_ms, Ordering::Relaxed);
                    return Ok(None);
                }
                // Whoever fetched it did not come to publish it.
                let snapshot = Arc::clone(snapshot);
                return Ok(Some(Newer { snapshot, asked_at_ms }));
            }
            if version < fetched.rows.version() {
                tracing::warn!(
                    version,
                    known = fetched.rows.version(),
                    "the database was restored to an earlier state; the whole policy is read again"
                );
                fetched.rows = PolicyRows::default();
            }
        }
        let since = fetched.rows.version();
        let changes = self.store.policy_changes(since).await?.ok_or(KeeperError::NoSettings)?;
        fetched.rows.apply(changes);
        fetched.snapshot = fetched.rows.snapshot(&self.open_credential).map(Arc::new);
        let newer = fetched.snapshot.clone();
        Ok(newer.map(|snapshot| Newer { snapshot, asked_at_ms }))
    }

    /// Puts a snapshot that was fetched in force.
    pub fn publish(&self, newer: Newer) {
        self.current.store(Some(newer.snapshot));
        self.confirmed_at_ms.store(newer.asked_at_ms, Ordering::Relaxed);
    }

    /// Puts the kept snapshot in force, unless there is one already. Nobody says that it is current.
    pub fn publish_kept(&self, snapshot: Arc<PolicySnapshot>) {
        self.current
            .compare_and_swap(&None::<Arc<PolicySnapshot>>, Some(snapshot));
    }

    /// Writes the rows to the data directory, sealed, for a start without Postgres, unless they are there.
    pub async fn keep(&self) -> Result<(), KeptPolicyError> {
        let mut fetched = self.fetched.lock().await;
        let version = fetched.rows.version();
        if fetched.kept_version == Some(version) {
            return Ok(());
        }
        let Some(whole) = fetched.rows.whole() else {
            return Ok(());
        };
        self.kept.write(whole).await?;
        fetched.kept_version = Some(version);
        Ok(())
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

    fn is_in_force(&self, snapshot: &Arc<PolicySnapshot>) -> bool {
        let current = self.current.load();
        current.as_ref().is_some_and(|current| Arc::ptr_eq(current, snapshot))
    }
}

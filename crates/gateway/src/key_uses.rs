//! When secrets are shown: kept in memory, and written down each minute, so that no request waits for it. Nothing here is
//! part of the policy.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use domain::error_chain::chain;
use domain::ids::KeyId;
use domain::key_text::SecretHash;
use parking_lot::Mutex;
use store::StoreError;
use store::key_uses::{KEY_USES_AT_ONCE, KeyUse};
use tokio::time::sleep;

use crate::Gateway;

/// How often it is written down, in milliseconds.
const WRITE_INTERVAL_MS: u64 = 60_000;
/// Secrets that wait to be written down, at most. What is beyond is noted when it is shown again.
const WAITING_MAX: usize = 100_000;

/// Which secrets were shown since it was last written down.
#[derive(Debug, Default)]
pub(crate) struct KeyUses {
    waiting: Mutex<HashMap<SecretHash, KeyUse>>,
}

impl KeyUses {
    /// This secret was shown. Never waits.
    pub(crate) fn note(&self, secret: SecretHash, key_id: KeyId, at: DateTime<Utc>) {
        let mut waiting = self.waiting.lock();
        if let Some(known) = waiting.get_mut(&secret) {
            known.at = known.at.max(at);
        } else if waiting.len() < WAITING_MAX {
            waiting.insert(secret, KeyUse { secret, key_id, at });
        }
    }

    fn take(&self) -> Vec<KeyUse> {
        let taken = std::mem::take(&mut *self.waiting.lock());
        taken.into_values().collect()
    }
}

/// Writes down what was noted.
pub(crate) async fn keep_key_uses(gateway: Arc<Gateway>) {
    let mut is_failing = false;
    loop {
        sleep(Duration::from_millis(WRITE_INTERVAL_MS)).await;
        match gateway.write_key_uses().await {
            Ok(()) => is_failing = false,
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(
                        error = chain(&error),
                        "when keys were last used cannot be written; it is tried again"
                    );
                }
            }
        }
    }
}

impl Gateway {
    /// Writes down which secrets were shown since the last time. What Postgres does not take is kept for the next.
    ///
    /// # Errors
    /// When Postgres does not take it.
    pub async fn write_key_uses(&self) -> Result<(), StoreError> {
        let uses = self.key_uses.take();
        let mut written = Ok(());
        for batch in uses.chunks(KEY_USES_AT_ONCE) {
            if written.is_ok() {
                written = self.store.note_key_uses(batch).await;
            }
            if written.is_err() {
                for used in batch {
                    self.key_uses.note(used.secret, used.key_id, used.at);
                }
            }
        }
        written
    }
}

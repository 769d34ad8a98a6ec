//! What idempotency keys may take from others: how often one is sent, and how many requests are followed to their end for
//! callers who have left and may come back.

use std::collections::HashMap;
use std::sync::Arc;

use domain::ids::TenantId;
use limits::{IdempotencyKey, Now};
use parking_lot::Mutex;

/// How often one idempotency key may be sent within a minute: its answer is read whole each time from where it is kept.
pub(super) const SENDINGS_PER_MINUTE_MAX: u32 = 30;
/// Idempotency keys that are counted at once.
const COUNTED_KEYS_MAX: usize = 10_000;
/// Requests that are followed to their end at once although their callers have left.
const ORPHANS_MAX: usize = 256;
/// The same of one tenant.
const TENANT_ORPHANS_MAX: usize = 32;
const MINUTE_MS: u64 = 60_000;

/// How often idempotency keys were sent within this minute.
#[derive(Debug, Default)]
pub(crate) struct Sendings(Mutex<CountedMinute>);

#[derive(Debug, Default)]
struct CountedMinute {
    minute: u64,
    by_key: HashMap<IdempotencyKey, u32>,
}

impl Sendings {
    /// Counts one more.
    ///
    /// # Errors
    /// With the time until the next minute, in milliseconds, when there were as many as may be.
    pub(super) fn count(&self, key: IdempotencyKey, now: Now) -> Result<(), u64> {
        let mut counted = self.0.lock();
        let minute = now.monotonic_ms / MINUTE_MS;
        if counted.minute != minute {
            counted.minute = minute;
            counted.by_key.clear();
        }
        if counted.by_key.len() >= COUNTED_KEYS_MAX && !counted.by_key.contains_key(&key) {
            return Ok(());
        }
        let count = counted.by_key.entry(key).or_default();
        if *count >= SENDINGS_PER_MINUTE_MAX {
            return Err(MINUTE_MS - now.monotonic_ms % MINUTE_MS);
        }
        *count += 1;
        Ok(())
    }
}

/// Requests that are followed to their end although their callers have left.
#[derive(Debug, Default)]
pub(crate) struct Orphans(Arc<Mutex<HashMap<TenantId, usize>>>);

/// A place among them; given back when dropped.
#[derive(Debug)]
pub(crate) struct Orphan {
    orphans: Orphans,
    tenant: TenantId,
}

impl Orphans {
    /// A place for one more of this tenant.
    pub(crate) fn take(&self, tenant: TenantId) -> Option<Orphan> {
        let mut by_tenant = self.0.lock();
        let total: usize = by_tenant.values().sum();
        let of_tenant = by_tenant.get(&tenant).copied().unwrap_or(0);
        if total >= ORPHANS_MAX || of_tenant >= TENANT_ORPHANS_MAX {
            return None;
        }
        by_tenant.insert(tenant, of_tenant + 1);
        Some(Orphan {
            orphans: Self(Arc::clone(&self.0)),
            tenant,
        })
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        let mut by_tenant = self.orphans.0.lock();
        if let Some(count) = by_tenant.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                by_tenant.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests;

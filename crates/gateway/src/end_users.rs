//! How many end users of a tenant are counted at once: applications may name as many as they like, and each that is
//! limited has counters of its own.
//!
//! One name too many is refused. Counting it under nobody would let it past its limits and its budget, and forgetting
//! another would give that one a fresh start.

use std::collections::HashMap;
use std::sync::Arc;

use domain::ids::TenantId;
use domain::limits::Scope;
use parking_lot::Mutex;

/// End users of one tenant that are counted at once.
pub(crate) const END_USERS_MAX: usize = 50_000;
/// A name is kept for so long after it was last used, in milliseconds, and then for as long as anything is counted for it.
const KEPT_MS: u64 = 60_000;
/// How often a full tenant's names are looked through, in milliseconds.
const LOOK_INTERVAL_MS: u64 = 10_000;

/// The tenant names more end users than are counted at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

/// Every tenant's limited end users.
#[derive(Debug, Default)]
pub(crate) struct EndUsers(Mutex<HashMap<TenantId, Named>>);

#[derive(Debug, Default)]
struct Named {
    last_used_ms: HashMap<Arc<str>, u64>,
    looked_through_ms: Option<u64>,
}

impl EndUsers {
    /// Whether [`EndUsers::note`] would take this name; nothing is noted.
    pub(crate) fn would_take(
        &self,
        tenant: TenantId,
        name: &Arc<str>,
        now_ms: u64,
        has_counters: impl Fn(&Scope) -> bool,
    ) -> bool {
        let tenants = self.0.lock();
        let Some(named) = tenants.get(&tenant) else {
            return true;
        };
        if named.last_used_ms.contains_key(name) || named.last_used_ms.len() < END_USERS_MAX {
            return true;
        }
        named.is_look_due(now_ms)
            && named
                .last_used_ms
                .iter()
                .any(|(name, last_used_ms)| !is_kept(tenant, name, *last_used_ms, now_ms, &has_counters))
    }

    /// Notes that a limited end user is about to be counted. `has_counters` says whether anything is counted for a scope.
    pub(crate) fn note(
        &self,
        tenant: TenantId,
        name: &Arc<str>,
        now_ms: u64,
        has_counters: impl Fn(&Scope) -> bool,
    ) -> Result<(), TooMany> {
        let mut tenants = self.0.lock();
        let named = tenants.entry(tenant).or_default();
        if let Some(last_used_ms) = named.last_used_ms.get_mut(name) {
            *last_used_ms = now_ms.max(*last_used_ms);
            return Ok(());
        }
        if named.last_used_ms.len() >= END_USERS_MAX {
            if !named.is_look_due(now_ms) {
                return Err(TooMany);
            }
            named.looked_through_ms = Some(now_ms);
            named
                .last_used_ms
                .retain(|name, last_used_ms| is_kept(tenant, name, *last_used_ms, now_ms, &has_counters));
            if named.last_used_ms.len() >= END_USERS_MAX {
                return Err(TooMany);
            }
        }
        named.last_used_ms.insert(Arc::clone(name), now_ms);
        Ok(())
    }
}

impl Named {
    fn is_look_due(&self, now_ms: u64) -> bool {
        self.looked_through_ms
            .is_none_or(|looked_ms| now_ms.saturating_sub(looked_ms) >= LOOK_INTERVAL_MS)
    }
}

fn is_kept(
    tenant: TenantId,
    name: &Arc<str>,
    last_used_ms: u64,
    now_ms: u64,
    has_counters: &impl Fn(&Scope) -> bool,
) -> bool {
    now_ms.saturating_sub(last_used_ms) < KEPT_MS || has_counters(&Scope::User(tenant, Arc::clone(name)))
}

#[cfg(test)]
mod tests;

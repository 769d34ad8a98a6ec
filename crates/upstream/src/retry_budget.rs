//! How many requests may be tried again: a fixed share of all, so that a provider in trouble does not get more to do, and
//! the same share of each tenant's, so that one whose requests fail does not use up everybody's.

use std::collections::HashMap;

use domain::ids::TenantId;
use parking_lot::Mutex;

/// Retries per hundred requests.
pub const RETRY_PERCENT: u64 = 20;
/// Retries there are before the first request.
pub const RESERVED_RETRIES: u64 = 10;
/// Retries that quiet times can save up.
pub const RETRIES_SAVED_MAX: u64 = 100;
/// Tenants whose share is kept. Beyond it, that of another begins anew.
const TENANTS_MAX: usize = 10_000;

/// What is saved up, for all and for each tenant. Every request adds its share, every retry takes one.
#[derive(Debug, Default)]
pub struct RetryBudget(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    all: Saved,
    tenants: HashMap<TenantId, Saved>,
}

/// In hundredths of a retry.
#[derive(Debug)]
struct Saved(u64);

impl Default for Saved {
    fn default() -> Self {
        Self(RESERVED_RETRIES * 100)
    }
}

impl Saved {
    fn deposit(&mut self) {
        self.0 = (self.0 + RETRY_PERCENT).min(RETRIES_SAVED_MAX * 100);
    }

    fn has_one(&self) -> bool {
        self.0 >= 100
    }

    fn take(&mut self) {
        self.0 = self.0.saturating_sub(100);
    }
}

impl Inner {
    fn of(&mut self, tenant: TenantId) -> &mut Saved {
        if self.tenants.len() >= TENANTS_MAX && !self.tenants.contains_key(&tenant) {
            let other = self.tenants.keys().next().copied();
            other.map(|other| self.tenants.remove(&other));
        }
        self.tenants.entry(tenant).or_default()
    }
}

impl RetryBudget {
    /// A request of this tenant is sent for the first time.
    pub fn deposit(&self, tenant: TenantId) {
        let mut inner = self.0.lock();
        inner.all.deposit();
        inner.of(tenant).deposit();
    }

    /// Takes one retry for a request of this tenant, if there is one. It is not given back.
    pub fn take(&self, tenant: TenantId) -> bool {
        let mut inner = self.0.lock();
        let has_one = inner.all.has_one() && inner.of(tenant).has_one();
        if has_one {
            inner.all.take();
            inner.of(tenant).take();
        }
        has_one
    }
}

#[cfg(test)]
mod tests;

//! What requests in flight hold: one member each, with a lease, so that a hold that nobody ends does not stay for ever.

use std::collections::HashMap;

use domain::ids::RequestId;
use foldhash::fast::RandomState;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Member {
    amount: u64,
    expires_ms: u64,
}

/// Members and their sum. `drop_expired` before reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Members {
    /// Ids are of this gateway's making: nobody chooses them to collide.
    by_id: HashMap<RequestId, Member, RandomState>,
    total: u128,
    /// No member expires before this; lets `drop_expired` look at the members only when there may be something to drop.
    earliest_ms: u64,
}

impl Members {
    /// What another place has counted: a sum without its members.
    pub(crate) fn counted(total: u64) -> Self {
        Self {
            total: u128::from(total),
            ..Self::default()
        }
    }

    /// Drops those whose lease ended `grace_ms` ago or earlier.
    pub(crate) fn drop_expired(&mut self, grace_ms: u64, now_ms: u64) {
        if self.by_id.is_empty() || now_ms < self.earliest_ms.saturating_add(grace_ms) {
            return;
        }
        let mut earliest_ms = u64::MAX;
        let total = &mut self.total;
        self.by_id.retain(|_, member| {
            let is_kept = now_ms < member.expires_ms.saturating_add(grace_ms);
            if is_kept {
                earliest_ms = earliest_ms.min(member.expires_ms);
            } else {
                *total -= u128::from(member.amount);
            }
            is_kept
        });
        self.earliest_ms = earliest_ms;
    }

    /// Adds or renews: a request is a member once, with the amount given last.
    pub(crate) fn put(&mut self, id: RequestId, amount: u64, expires_ms: u64) {
        self.earliest_ms = if self.by_id.is_empty() {
            expires_ms
        } else {
            self.earliest_ms.min(expires_ms)
        };
        if let Some(before) = self.by_id.insert(id, Member { amount, expires_ms }) {
            self.total -= u128::from(before.amount);
        }
        self.total += u128::from(amount);
    }

    /// Removes it; nothing happens where it has been dropped before.
    pub(crate) fn remove(&mut self, id: RequestId) {
        if let Some(member) = self.by_id.remove(&id) {
            self.total -= u128::from(member.amount);
        }
    }

    pub(crate) fn total(&self) -> u128 {
        self.total
    }

    pub(crate) fn is_free(&self) -> bool {
        self.total == 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

#[cfg(test)]
mod tests;

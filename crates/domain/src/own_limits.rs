//! What the owner of a key lets it use at most. It only ever lowers what operators allow.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::budget_events::Thresholds;
use crate::ids::{KeyId, LimitId};
use crate::limits::{DEFAULT_WINDOW_SECONDS, Dimension, Increase, Limit, Mode, Scope, Target};
use crate::periods::Period;

/// By dimension, for all models and priorities: rates per minute, budgets per calendar month.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OwnLimits(pub BTreeMap<Dimension, u64>);

impl OwnLimits {
    /// Whether there are none.
    pub fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The limits that hold on `key` whose operators' limits are `in_force`: in each slot the lower of the two. An operator's
    /// limit keeps its id, its gates and its counter; one that only rehearses gives way, as an owner's is meant to hold.
    pub fn lower(&self, key: KeyId, in_force: &[Limit]) -> Vec<Limit> {
        let mut limits = in_force.to_vec();
        for (dimension, most) in &self.0 {
            let own = own_limit(key, *dimension, *most);
            match limits.iter_mut().find(|limit| limit.slot() == own.slot()) {
                None => limits.push(own),
                Some(limit) if limit.mode == Mode::Rehearse => {
                    *limit = Limit {
                        id: limit.id,
                        thresholds: limit.thresholds,
                        ..own
                    };
                }
                Some(limit) => {
                    if *most < limit.value {
                        limit.value = *most;
                        limit.burst = limit.burst.map(|burst| burst.min(*most));
                    }
                    let increase = limit.increase.map(|increase| Increase {
                        value: increase.value.min(*most),
                        ..increase
                    });
                    limit.increase = increase.filter(|increase| increase.value > limit.value);
                }
            }
        }
        limits
    }
}

fn own_limit(key: KeyId, dimension: Dimension, value: u64) -> Limit {
    Limit {
        id: own_limit_id(key, dimension),
        target: Target::Node(Scope::Key(key)),
        dimension,
        value,
        increase: None,
        window_seconds: DEFAULT_WINDOW_SECONDS,
        burst: None,
        period: Period::Month,
        model: None,
        priority: None,
        mode: Mode::Enforce,
        gates: None,
        // Operators are told of what they have set themselves.
        thresholds: Thresholds::NONE,
    }
}

/// The same for the same key and dimension wherever it is asked, so that ledger and events know the limit again.
fn own_limit_id(key: KeyId, dimension: Dimension) -> LimitId {
    let mut bytes = *key.0.as_bytes();
    let place = Dimension::ALL.iter().position(|other| *other == dimension).unwrap_or(0);
    // The last bytes of a key's id are random: nothing else is called so.
    bytes[15] ^= 0x80 | u8::try_from(place).unwrap_or(0);
    LimitId(Uuid::from_bytes(bytes))
}

#[cfg(test)]
mod tests;

//! An owner's limit never widens anything, whatever operators have set.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;

use super::{OwnLimits, own_limit};
use crate::ids::KeyId;
use crate::limits::{Dimension, Increase, Limit, Mode};

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000 + seconds, 0).expect("in range")
}

fn key() -> KeyId {
    uuid::Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0001).into()
}

/// An operators' limit in each of some dimensions.
fn operators() -> impl Strategy<Value = Vec<Limit>> {
    let one = (
        0_u64..100,
        prop::option::of(1_u64..200),
        any::<bool>(),
        prop::option::of(1_u64..50),
    );
    let one = one.prop_map(|(value, increase, is_rehearsed, burst)| Limit {
        increase: increase.map(|value| Increase { value, until: at(60) }),
        mode: if is_rehearsed { Mode::Rehearse } else { Mode::Enforce },
        burst,
        ..own_limit(key(), Dimension::Requests, value)
    });
    prop::collection::btree_map(0_usize..10, one, 0..6).prop_map(|limits| {
        let of_operators = uuid::Uuid::from_u128(7).into();
        let in_dimension = |(place, limit): (usize, Limit)| Limit {
            value: limit.value,
            increase: limit.increase,
            mode: limit.mode,
            burst: limit.burst,
            ..own_limit(of_operators, Dimension::ALL[place], 0)
        };
        limits.into_iter().map(in_dimension).collect()
    })
}

proptest! {
    #[test]
    fn each_slot_holds_the_lower_of_the_two(
        operators in operators(),
        own in prop::collection::btree_map(0_usize..10, 0_u64..150, 0..6),
        later in any::<bool>(),
    ) {
        let now = if later { at(60) } else { at(60) - TimeDelta::seconds(1) };
        let own: BTreeMap<Dimension, u64> = own.into_iter().map(|(place, most)| (Dimension::ALL[place], most)).collect();
        let lowered = OwnLimits(own.clone()).lower(key(), &operators);
        for dimension in Dimension::ALL {
            let of = |limits: &[Limit]| limits.iter().find(|limit| limit.dimension == dimension).cloned();
            let enforced = of(&operators).filter(|limit| limit.mode == Mode::Enforce);
            let wanted = enforced.map(|limit| limit.value_at(now)).into_iter().chain(own.get(&dimension).copied()).min();
            let holds = of(&lowered).filter(|limit| limit.mode == Mode::Enforce);
            prop_assert_eq!(holds.map(|limit| limit.value_at(now)), wanted);
            prop_assert!(lowered.iter().filter(|limit| limit.dimension == dimension).count() <= 1);
        }
        for limit in &operators {
            prop_assert!(lowered.iter().any(|other| other.id == limit.id), "an operator's limit keeps its id");
        }
    }
}

#[test]
fn ids_are_told_apart_and_stay_the_same() {
    let ids: std::collections::HashSet<_> = Dimension::ALL
        .into_iter()
        .map(|dimension| own_limit(key(), dimension, 1).id)
        .collect();
    assert_eq!(ids.len(), Dimension::ALL.len());
    assert!(ids.iter().all(|id| id.0 != key().0));
    assert!(ids.contains(&own_limit(key(), Dimension::Requests, 9).id));
}

use std::collections::BTreeMap;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;

const LEASE_MS: u64 = 1_000;

#[derive(Clone, Debug)]
enum Step {
    Put(u128, u64),
    Remove(u128),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0_u128..8, 1_u64..100).prop_map(|(id, amount)| Step::Put(id, amount)),
        2 => (0_u128..8).prop_map(Step::Remove),
        2 => (0_u64..700).prop_map(Step::Pass),
    ]
}

proptest! {
    #[test]
    fn counts_what_a_plain_list_counts(steps in prop::collection::vec(step(), 0..80), grace_ms in 0_u64..500) {
        let mut members = Members::default();
        let mut plain: BTreeMap<u128, (u64, u64)> = BTreeMap::new();
        let mut now_ms = 5;
        for step in steps {
            match step {
                Step::Put(id, amount) => {
                    members.put(RequestId(Uuid::from_u128(id)), amount, now_ms + LEASE_MS);
                    plain.insert(id, (amount, now_ms + LEASE_MS));
                }
                Step::Remove(id) => {
                    members.remove(RequestId(Uuid::from_u128(id)));
                    plain.remove(&id);
                }
                Step::Pass(ms) => now_ms += ms,
            }
            members.drop_expired(grace_ms, now_ms);
            plain.retain(|_, (_, expires_ms)| now_ms < *expires_ms + grace_ms);
            let sum: u128 = plain.values().map(|(amount, _)| u128::from(*amount)).sum();
            prop_assert_eq!(members.total(), sum);
            prop_assert_eq!(members.is_empty(), plain.is_empty());
        }
    }
}

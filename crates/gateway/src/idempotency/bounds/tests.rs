//! How often a key may be sent, and how many requests are followed for nobody.

use chrono::DateTime;
use domain::ids::{KeyId, TenantId};
use limits::{IdempotencyKey, Now};
use uuid::Uuid;

use super::{COUNTED_KEYS_MAX, MINUTE_MS, ORPHANS_MAX, Orphans, SENDINGS_PER_MINUTE_MAX, Sendings, TENANT_ORPHANS_MAX};

fn at(monotonic_ms: u64) -> Now {
    Now {
        wall: DateTime::UNIX_EPOCH,
        monotonic_ms,
    }
}

fn tenant(number: usize) -> TenantId {
    TenantId(Uuid::from_u128(number as u128 + 1))
}

fn named(name: usize) -> IdempotencyKey {
    let mut hash = [0; 32];
    hash[..8].copy_from_slice(&name.to_be_bytes());
    IdempotencyKey {
        tenant: tenant(0),
        key: KeyId(Uuid::from_u128(7)),
        hash,
    }
}

#[test]
fn a_key_is_sent_so_often_within_a_minute_and_others_do_not_count() {
    let sendings = Sendings::default();
    for _ in 0..SENDINGS_PER_MINUTE_MAX {
        assert_eq!(sendings.count(named(1), at(10_000)), Ok(()));
    }
    assert_eq!(sendings.count(named(1), at(10_000)), Err(MINUTE_MS - 10_000));
    assert_eq!(sendings.count(named(2), at(10_000)), Ok(()));
    assert_eq!(sendings.count(named(1), at(MINUTE_MS)), Ok(()), "a new minute");
}

#[test]
fn keys_beyond_those_that_are_counted_are_not_refused() {
    let sendings = Sendings::default();
    for name in 0..COUNTED_KEYS_MAX {
        assert_eq!(sendings.count(named(name), at(0)), Ok(()));
    }
    for _ in 0..=SENDINGS_PER_MINUTE_MAX {
        assert_eq!(sendings.count(named(COUNTED_KEYS_MAX), at(0)), Ok(()));
    }
    assert_eq!(sendings.0.lock().by_key.len(), COUNTED_KEYS_MAX);
}

#[test]
fn places_for_orphans_are_bounded_by_tenant_and_altogether_and_come_back() {
    let orphans = Orphans::default();
    let of_one: Vec<_> = (0..TENANT_ORPHANS_MAX).map(|_| orphans.take(tenant(0))).collect();
    assert!(of_one.iter().all(Option::is_some));
    assert!(orphans.take(tenant(0)).is_none());
    let others = (ORPHANS_MAX - TENANT_ORPHANS_MAX) / TENANT_ORPHANS_MAX;
    let of_others: Vec<_> = (0..others * TENANT_ORPHANS_MAX)
        .map(|place| orphans.take(tenant(1 + place / TENANT_ORPHANS_MAX)))
        .collect();
    assert!(of_others.iter().all(Option::is_some));
    assert!(orphans.take(tenant(99)).is_none(), "all are taken");
    drop(of_one);
    assert!(orphans.take(tenant(99)).is_some());
    drop(of_others);
    assert!(orphans.0.lock().is_empty());
}

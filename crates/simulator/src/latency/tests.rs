//! The spread of the wait is as ordered.

use super::latency_ms;
use crate::behaviour::Behaviour;

#[test]
fn the_median_and_the_tail_are_as_ordered() {
    let behaviour = Behaviour {
        latency_ms: 1_100,
        latency_p99_ms: Some(3_000),
        ..Behaviour::default()
    };
    let mut waits: Vec<u64> = (0..10_000_u64)
        .map(|seed| latency_ms(&behaviour, seed.wrapping_mul(0x0123_4567_89ab_cdef)))
        .collect();
    waits.sort_unstable();
    let (median, p99) = (waits[5_000], waits[9_900]);
    assert!((1_080..=1_120).contains(&median), "{median}");
    assert!((2_850..=3_150).contains(&p99), "{p99}");
}

#[test]
fn without_a_tail_all_wait_alike() {
    let behaviour = Behaviour {
        latency_ms: 700,
        ..Behaviour::default()
    };
    assert_eq!((latency_ms(&behaviour, 1), latency_ms(&behaviour, 2)), (700, 700));
    assert_eq!(latency_ms(&Behaviour::default(), 1), 0);
}

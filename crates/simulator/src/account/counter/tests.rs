//! Each way of counting admits what it says, and tells truly when there is room.

use std::time::Duration;

use tokio::time::Instant;

use super::{Counter, Counting, MINUTE};

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// Takes one if there is room, and says whether there was.
fn has_taken(counter: &mut Counter, at: Instant) -> bool {
    let has_room = counter.wait(at, 1).is_zero();
    if has_room {
        counter.take(at, 1);
    }
    has_room
}

/// How many of a crowd that asks every 100 ms are let in, by the second.
fn admitted(counting: Counting, limit: u64, duration: u32) -> Vec<u64> {
    let start = Instant::now();
    let mut counter = Counter::new(counting, limit, start);
    (0..duration)
        .map(|second| {
            let tries = (0..10).map(|tenth| start + seconds(f64::from(second) + f64::from(tenth) / 10.0));
            tries.filter(|at| has_taken(&mut counter, *at)).count() as u64
        })
        .collect()
}

#[test]
fn fixed_windows_give_all_room_back_at_once() {
    let by_second = admitted(Counting::FixedWindows, 30, 122);
    assert_eq!(
        (by_second[..3].iter().sum::<u64>(), by_second[3..60].iter().sum()),
        (30, 0)
    );
    assert_eq!((by_second[60], by_second[61], by_second[62]), (10, 10, 10));
    assert_eq!(by_second[63..120].iter().sum::<u64>(), 0);
}

#[test]
fn two_fixed_windows_admit_twice_the_limit_in_a_minute_and_a_sliding_one_never() {
    let start = Instant::now();
    let crowded = |counting| {
        let mut counter = Counter::new(counting, 10, start);
        counter.take(start, 1);
        let before = (0..20)
            .filter(|_| has_taken(&mut counter, start + seconds(59.9)))
            .count();
        let after = (0..20)
            .filter(|_| has_taken(&mut counter, start + seconds(60.1)))
            .count();
        before + after
    };
    assert_eq!(crowded(Counting::FixedWindows), 9 + 10);
    // One place is free again: that of the first.
    assert_eq!(crowded(Counting::SlidingWindow), 9 + 1);
}

#[test]
fn no_sixty_seconds_of_a_sliding_window_have_more_than_the_limit() {
    let by_second = admitted(Counting::SlidingWindow, 37, 240);
    for minute in by_second.windows(60) {
        assert!(minute.iter().sum::<u64>() <= 37);
    }
    // And the limit is used: 37 in each of four minutes.
    assert_eq!(by_second.iter().sum::<u64>(), 4 * 37);
}

#[test]
fn a_bucket_begins_full_and_refills_all_the_time() {
    let by_second = admitted(Counting::TokenBucket, 60, 120);
    // Full: ten a second until it is empty, and then one a second.
    assert_eq!(by_second[..6].iter().sum::<u64>(), 60);
    assert_eq!(by_second[10..110].iter().sum::<u64>(), 100);
}

#[test]
fn the_wait_that_is_told_is_just_long_enough() {
    let start = Instant::now();
    for counting in [Counting::FixedWindows, Counting::SlidingWindow, Counting::TokenBucket] {
        let mut counter = Counter::new(counting, 100, start);
        for (after, amount) in [(0.0, 40), (10.0, 35), (21.5, 25)] {
            counter.take(start + seconds(after), amount);
        }
        for need in [1, 30, 60, 100] {
            let now = start + seconds(21.5);
            let wait = counter.wait(now, need);
            assert!(
                !wait.is_zero() || counting == Counting::TokenBucket,
                "{counting:?} {need}"
            );
            let mut counter = counter.clone();
            if !wait.is_zero() {
                let early = now + wait - Duration::from_millis(2);
                assert!(!counter.wait(early, need).is_zero(), "{counting:?} {need}");
            }
            assert!(counter.wait(now + wait, need).is_zero(), "{counting:?} {need}");
        }
        assert_eq!(counter.wait(start + seconds(21.5), 101), MINUTE);
    }
}

#[test]
fn what_remains_and_when_all_is_back() {
    let start = Instant::now();
    let told = |counting| {
        let mut counter = Counter::new(counting, 60, start);
        counter.take(start, 20);
        counter.take(start + seconds(10.0), 10);
        let now = start + seconds(20.0);
        (counter.remaining(now), counter.reset(now).as_secs())
    };
    assert_eq!(told(Counting::FixedWindows), (30, 40));
    assert_eq!(told(Counting::SlidingWindow), (30, 50));
    // 20 taken, 10 refilled, 10 taken, 10 refilled: 10 are missing, a second each.
    assert_eq!(told(Counting::TokenBucket), (50, 10));
}

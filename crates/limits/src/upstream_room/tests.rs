use chrono_tz::Tz;
use domain::limits::{Gate, Mode};
use domain::priority::Priority;
use domain::refusals::RefusalCode;

use super::*;
use crate::fixture::{World, amounts, gated, limit, memory, on, ready, rehearsed, upstream};
use crate::{Admission, Hold, UpstreamCandidate};

/// An account with these limits; a request expects 100 input and 100 output tokens.
fn account(limits: Vec<Limit>) -> World {
    let mut world = World::new(vec![]);
    world.upstreams = vec![UpstreamCandidate {
        scope: on(upstream(1), limits),
        index: 0,
    }];
    world
}

fn left(remaining: u64, reset_ms: u64) -> Option<RoomLeft> {
    Some(RoomLeft {
        remaining,
        reset_ms: Some(reset_ms),
    })
}

fn requests(remaining: u64, reset_ms: u64) -> UpstreamRoom {
    UpstreamRoom {
        requests: left(remaining, reset_ms),
        ..UpstreamRoom::default()
    }
}

fn tell(world: &World, told: &UpstreamRoom) {
    ready(
        world
            .limits
            .correct_upstream(&world.upstreams[0].scope, "m", told, world.now),
    );
}

fn remaining(world: &World) -> Vec<u64> {
    world.peek().iter().map(|reading| reading.remaining).collect()
}

#[test]
fn nothing_shows_more_room_than_the_provider_has_left() {
    let of_model = |model: &str, limit: Limit| Limit {
        model: Some(model.into()),
        ..limit
    };
    let within = |window_seconds, limit: Limit| Limit {
        window_seconds,
        ..limit
    };
    let world = account(vec![
        limit(Dimension::Requests, 100),
        rehearsed(Dimension::InputTokens, 9_000),
        limit(Dimension::OutputTokens, 9_000),
        limit(Dimension::TotalTokens, 9_000),
        of_model("m", limit(Dimension::Requests, 90)),
        within(10, limit(Dimension::Requests, 80)),
        // Of which nothing was told.
        of_model("other", limit(Dimension::Requests, 70)),
        within(61, limit(Dimension::Requests, 60)),
        limit(Dimension::Concurrency, 50),
    ]);
    let told = UpstreamRoom {
        sent_ms_ago: 0,
        requests: left(7, 30_000),
        input_tokens: left(2_000, 30_000),
        output_tokens: left(8_000, 30_000),
        total_tokens: left(3_000, 30_000),
    };
    tell(&world, &told);
    assert_eq!(remaining(&world), [7, 2_000, 3_000, 3_000, 7, 7, 70, 60, 50]);
    assert!(
        world
            .peek()
            .iter()
            .all(|reading| (reading.used, reading.held) == (0, 0))
    );
    let apart = UpstreamRoom {
        input_tokens: left(500, 30_000),
        output_tokens: left(600, 20_000),
        ..UpstreamRoom::default()
    };
    tell(&world, &apart);
    assert_eq!(remaining(&world)[1..4], [500, 600, 1_100]);
    assert_eq!(world.peek()[0].reset_ms, Some(30_000));
    assert_eq!(world.peek()[3].reset_ms, Some(20_000));
}

#[test]
fn less_room_of_our_own_stays() {
    let mut world = account(vec![
        limit(Dimension::Requests, 10),
        limit(Dimension::TotalTokens, 10_000),
    ]);
    let _holds = world.admit_all(4);
    let before = world.peek();
    let told = UpstreamRoom {
        total_tokens: left(9_999, 500),
        ..requests(8, 500)
    };
    tell(&world, &told);
    assert_eq!(world.peek(), before);
}

#[test]
fn it_is_gone_at_the_reset_and_says_until_when() {
    for (dimension, told) in [
        (Dimension::Requests, requests(0, 2_000)),
        (
            Dimension::InputTokens,
            UpstreamRoom {
                total_tokens: left(99, 2_000),
                ..UpstreamRoom::default()
            },
        ),
    ] {
        let mut world = account(vec![limit(dimension, 1_000)]);
        tell(&world, &told);
        let denial = world.refused();
        assert_eq!(
            (denial.code, denial.retry_after_ms),
            (RefusalCode::RateLimitExceeded, Some(2_000))
        );
        assert_eq!(denial.scope, upstream(1));
        world.pass(1_999);
        assert_eq!(world.refused().retry_after_ms, Some(1));
        world.pass(1);
        assert_eq!(remaining(&world), [1_000]);
        let _hold = world.admit().expect("it is over");
    }
}

#[test]
fn without_a_reset_it_stands_a_second_and_never_more_than_a_minute() {
    // Counters of such a window are idle after 20 seconds.
    let mut world = account(vec![Limit {
        window_seconds: 10,
        ..limit(Dimension::Requests, 1_000)
    }]);
    let untimed = UpstreamRoom {
        requests: Some(RoomLeft {
            remaining: 0,
            reset_ms: None,
        }),
        ..UpstreamRoom::default()
    };
    tell(&world, &untimed);
    assert_eq!(world.refused().retry_after_ms, Some(UNTIMED_MS));
    world.pass(UNTIMED_MS);
    drop(world.admit().expect("it is over"));
    tell(&world, &requests(0, 3_600_000));
    assert_eq!(world.refused().retry_after_ms, Some(STANDS_MS_MAX));
    for _ in 0..STANDS_MS_MAX / 1_000 {
        world.refused();
        // Not forgotten while it stands.
        (0..crate::Limits::SWEEPS_PER_ROUND).for_each(|_| world.limits.sweep(world.now));
        world.pass(1_000);
    }
    drop(world.admit().expect("it is over"));
}

#[test]
fn what_is_taken_after_it_counts_against_it() {
    let mut world = account(vec![
        limit(Dimension::Requests, 100),
        limit(Dimension::TotalTokens, 100_000),
    ]);
    let told = UpstreamRoom {
        total_tokens: left(1_000, 9_000),
        ..requests(3, 9_000)
    };
    let before = world.admit_all(2);
    tell(&world, &told);
    let holds = world.admit_all(3);
    assert_eq!(world.refused().dimension, Dimension::Requests);
    assert_eq!(remaining(&world), [0, 400]);
    // What was given back may have been counted by the provider.
    for hold in holds {
        ready(hold.refund(world.now));
    }
    drop(before);
    assert_eq!(remaining(&world), [0, 400]);
    assert_eq!(world.refused().retry_after_ms, Some(9_000));
}

#[test]
fn counters_end_as_if_nothing_had_been_told() {
    let limits = || {
        vec![
            limit(Dimension::Requests, 10),
            Limit {
                burst: Some(3_000),
                ..limit(Dimension::TotalTokens, 3_000)
            },
        ]
    };
    let mut worlds = [account(limits()), account(limits())];
    let told = UpstreamRoom {
        total_tokens: left(500, 9_000),
        ..requests(2, 9_000)
    };
    for (number, world) in worlds.iter_mut().enumerate() {
        let mut holds = world.admit_all(4);
        if number == 1 {
            tell(world, &told);
        }
        holds.extend(world.admit_all(2));
        let end = |world: &mut World, hold: Hold, number: usize| match number {
            0 => world.settle(hold, amounts(10, 20, 0), 1),
            1 => world.settle(hold, amounts(300, 200, 0), 2),
            2 => ready(hold.refund(world.now)),
            3 => drop(hold),
            _ => {
                let mut hold = hold;
                hold.mark_sent();
                ready(hold.refund(world.now));
            }
        };
        for (number, hold) in holds.into_iter().enumerate() {
            end(world, hold, number);
            world.pass(500);
        }
        world.pass(9_000);
    }
    assert_eq!(worlds[0].peek(), worlds[1].peek());
    assert_eq!(memory(&worlds[1]).open_holds(), 0);
    for mut world in worlds {
        let holds: Vec<Hold> = std::iter::from_fn(|| world.admit().ok()).collect();
        assert_eq!(holds.len(), 6);
    }
}

#[test]
fn gates_and_explanations_go_by_what_is_left() {
    for mode in [Mode::Enforce, Mode::Rehearse] {
        for dimension in [Dimension::Requests, Dimension::TotalTokens] {
            let gated = Limit {
                mode,
                ..gated(dimension, 10_000)
            };
            let mut world = account(vec![gated]);
            let told = UpstreamRoom {
                total_tokens: left(3_000, 7_000),
                ..requests(3_000, 7_000)
            };
            tell(&world, &told);
            let mut gate = |priority| {
                world.priority = priority;
                let explained = ready(world.limits.explain(&world.admission(), world.now)).1;
                let refusal = explained.answers[0].refusal;
                match world.admit() {
                    Ok(hold) => assert_eq!(hold.rehearsed().len(), usize::from(refusal.is_some())),
                    Err(denial) => {
                        assert_eq!(mode, Mode::Enforce);
                        assert_eq!(
                            (denial.gate, denial.retry_after_ms),
                            refusal.map(|told| (told.gate, told.retry_after_ms)).unwrap()
                        );
                        assert!((denial.utilisation_percent - 70.0).abs() < 0.01);
                        assert!((denial.chain[0].utilisation_percent - 70.0).abs() < 0.01);
                    }
                }
                refusal.map(|refusal| (refusal.gate, refusal.retry_after_ms))
            };
            assert_eq!(gate(Priority::Low), Some((Some(Gate::Lower), Some(7_000))));
            assert_eq!(gate(Priority::Default), None);
            assert!((world.peek()[0].utilisation_percent - 70.0).abs() < 5.0);
        }
    }
}

#[test]
fn a_bucket_refills_before_it_is_full_and_a_window_does_not() {
    // As a bucket of 500 a minute says it when it is empty.
    let mut world = account(vec![limit(Dimension::Requests, 450)]);
    tell(&world, &requests(0, 60_000));
    assert_eq!(world.refused().retry_after_ms, Some(134));
    world.pass(134);
    let _one = world.admit().expect("one has come back");
    world.refused();
    world.pass(6_000);
    let count = std::iter::from_fn(|| world.admit().ok()).map(std::mem::forget).count();
    assert_eq!(count, 45);
    // The same of one that has half of it.
    let mut world = account(vec![limit(Dimension::TotalTokens, 9_000)]);
    let told = |remaining, reset_ms| UpstreamRoom {
        total_tokens: left(remaining, reset_ms),
        ..UpstreamRoom::default()
    };
    tell(&world, &told(5_000, 30_000));
    world.pass(2_000);
    assert_eq!(remaining(&world), [5_300]);
    // Nothing left in a window that has begun a while ago.
    tell(&world, &told(0, 30_000));
    world.pass(29_999);
    assert_eq!(remaining(&world), [0]);
    world.pass(1);
    assert_eq!(remaining(&world), [9_000]);
}

#[test]
fn a_retry_at_the_same_upstream_is_a_request_more() {
    let mut world = account(vec![limit(Dimension::Requests, 10)]);
    tell(&world, &requests(2, 9_000));
    let mut hold = world.admit().expect("room");
    hold.mark_sent();
    let upstreams = world.upstreams.clone();
    let again = Admission {
        id: hold.id(),
        upstreams: &upstreams,
        ..world.admission()
    };
    ready(world.limits.switch_upstream(&mut hold, &again, world.now)).expect("one is left");
    assert_eq!(remaining(&world), [0]);
    hold.mark_sent();
    let denial = ready(world.limits.switch_upstream(&mut hold, &again, world.now)).expect_err("none is left");
    assert_eq!(denial.retry_after_ms, Some(9_000));
}

#[test]
fn looking_at_accounts_that_were_never_told_of_makes_nothing() {
    let world = account(vec![limit(Dimension::Concurrency, 10)]);
    tell(&world, &requests(0, 9_000));
    assert!(!world.limits.has_counters(&upstream(1), world.now));
    let nodes = [world.upstreams[0].scope.clone()];
    assert_eq!(
        ready(world.limits.peek(&nodes, None, None, Tz::UTC, world.now))[0].remaining,
        10
    );
}

#[test]
fn a_part_of_what_is_left_is_at_least_one() {
    let told = UpstreamRoom {
        total_tokens: left(999, 5),
        ..requests(1, 7)
    };
    let scaled = told.scaled(45);
    assert_eq!((scaled.requests, scaled.total_tokens), (left(1, 7), left(449, 5)));
    assert_eq!(requests(0, 7).scaled(45).requests, left(0, 7));
}

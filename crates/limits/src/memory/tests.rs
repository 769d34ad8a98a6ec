use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;

use domain::limits::{Dimension, Limit};
use domain::refusals::RefusalCode;
use proptest::prelude::*;

use super::*;
use crate::fixture::{World, amounts, at, has_budget, key, limit, memory, on, ready, tenant, upstream};
use crate::{Limits, UpstreamCandidate};

mod history;

fn candidate(index: usize, limits: Vec<Limit>) -> UpstreamCandidate {
    UpstreamCandidate {
        scope: on(upstream(index as u128), limits),
        index,
    }
}

/// One limit of every kind that counts, with room for many.
fn every_kind() -> Vec<Limit> {
    vec![
        limit(Dimension::Requests, 100),
        limit(Dimension::InputTokens, 100_000),
        limit(Dimension::OutputTokens, 100_000),
        limit(Dimension::TotalTokens, 200_000),
        limit(Dimension::Concurrency, 100),
        limit(Dimension::BudgetTokens, 1_000_000),
        limit(Dimension::BudgetCost, 1_000_000),
    ]
}

fn world_of_every_kind() -> World {
    let mut world = World::new(vec![
        on(Scope::Global, every_kind()),
        on(Scope::Model("m".into()), every_kind()),
        on(tenant(1), every_kind()),
        on(key(1), every_kind()),
    ]);
    world.upstreams = vec![candidate(1, every_kind())];
    world.set_budgets(0, 0);
    world
}

fn used_and_held(world: &World) -> Vec<(i64, u64)> {
    world
        .peek()
        .iter()
        .map(|reading| (reading.used, reading.held))
        .collect()
}

#[test]
fn of_fifty_at_once_an_allowance_for_ten_admits_ten() {
    for (dimension, allowance) in [
        (Dimension::Requests, 10),
        (Dimension::Concurrency, 10),
        (Dimension::BudgetCost, 100),
        (Dimension::BudgetTokens, 2_000),
    ] {
        for scope in [Scope::Global, tenant(1), key(1)] {
            let scopes = vec![on(scope, vec![limit(dimension, allowance)])];
            let world = World::with_budgets(scopes);
            let barrier = Barrier::new(50);
            let admitted: Vec<_> = std::thread::scope(|threads| {
                let callers: Vec<_> = (0..50)
                    .map(|number| {
                        let (world, barrier) = (&world, &barrier);
                        threads.spawn(move || {
                            let admission = Admission {
                                id: domain::ids::RequestId(uuid::Uuid::from_u128(number)),
                                ..world.admission()
                            };
                            barrier.wait();
                            ready(world.limits.admit(&admission, world.now)).ok()
                        })
                    })
                    .collect();
                callers
                    .into_iter()
                    .filter_map(|caller| caller.join().expect("no panic"))
                    .collect()
            });
            assert_eq!(admitted.len(), 10, "{dimension}");
            assert_eq!(world.limits.open_holds(), 10);
            drop(admitted);
            assert_eq!(used_and_held(&world), [(0, 0)]);
        }
    }
}

#[test]
fn many_threads_over_the_whole_tree_neither_stall_nor_lose_anything() {
    let mut world = world_of_every_kind();
    world.scopes[0] = on(Scope::Global, vec![limit(Dimension::Concurrency, 7)]);
    let peak = std::sync::atomic::AtomicU64::new(0);
    let in_flight = AtomicU64::new(0);
    std::thread::scope(|threads| {
        for thread in 0..8_u128 {
            let (world, peak, in_flight) = (&world, &peak, &in_flight);
            threads.spawn(move || {
                for number in 0..500 {
                    let admission = Admission {
                        id: domain::ids::RequestId(uuid::Uuid::from_u128(thread << 64 | number)),
                        ..world.admission()
                    };
                    let Ok(hold) = ready(world.limits.admit(&admission, world.now)) else {
                        continue;
                    };
                    peak.fetch_max(in_flight.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    in_flight.fetch_sub(1, Ordering::SeqCst);
                    match number % 3 {
                        0 => drop(hold),
                        1 => ready(hold.refund(world.now)),
                        _ => ready(hold.settle(amounts(0, 0, 0), Some(1), world.now)),
                    }
                    world.limits.sweep(world.now);
                }
            });
        }
    });
    assert!(peak.into_inner() <= 7);
    assert_eq!(world.limits.open_holds(), 0);
    assert!(world.peek().iter().all(|reading| reading.held == 0));
}

#[test]
fn a_refusal_anywhere_leaves_every_counter_as_it_was() {
    for refusing in 0..5 {
        let mut world = world_of_every_kind();
        let none_left = vec![limit(Dimension::Concurrency, 1)];
        let with_none_left: Vec<Limit> = every_kind()
            .into_iter()
            .filter(|limit| limit.dimension != Dimension::Concurrency)
            .chain(none_left)
            .collect();
        match refusing {
            4 => world.upstreams = vec![candidate(1, with_none_left)],
            level => world.scopes[level].limits = with_none_left.into(),
        }
        let _first = world.admit().expect("room for one");
        let before = world.peek();
        let denial = world.refused();
        assert_eq!(world.peek(), before);
        assert_eq!(denial.code, RefusalCode::ConcurrencyLimitExceeded);
        let expected = world
            .scopes
            .get(refusing)
            .map_or(upstream(1), |node| node.scope.clone());
        assert_eq!(denial.scope, expected);
        assert_eq!(denial.is_own_limit, matches!(refusing, 2 | 3));
    }
}

#[test]
fn the_chain_lists_every_limit_checked_in_the_order_of_the_tree() {
    let mut world = world_of_every_kind();
    world.upstreams = vec![candidate(1, vec![limit(Dimension::Concurrency, 1)])];
    let _hold = world.admit().expect("room for one");
    let denial = world.refused();
    let scopes: Vec<String> = denial.chain.iter().map(|check| check.scope.to_string()).collect();
    let mut expected: Vec<String> = world
        .scopes
        .iter()
        .flat_map(|node| std::iter::repeat_n(node.scope.to_string(), 7))
        .collect();
    expected.push(upstream(1).to_string());
    assert_eq!(scopes, expected);
    let refusing: Vec<bool> = denial.chain.iter().map(|check| check.has_room).collect();
    assert_eq!(refusing.iter().filter(|has_room| !**has_room).count(), 1);
    assert!(!refusing[28]);
    assert!((denial.chain[28].utilisation_percent - 100.0).abs() < 1e-9);
    assert!((denial.chain[0].utilisation_percent - 1.0).abs() < 1e-9);
}

#[test]
fn the_refusal_that_time_does_not_heal_is_told_first_else_the_longest_wait() {
    let tree = |key_limits: Vec<Limit>| {
        vec![
            on(Scope::Global, vec![limit(Dimension::Concurrency, 1)]),
            on(tenant(1), vec![limit(Dimension::Requests, 1)]),
            on(key(1), key_limits),
        ]
    };
    let mut world = World::new(tree(vec![]));
    let _hold = world.admit().expect("room for one");
    assert_eq!(world.refused().scope, tenant(1), "longer than the hint of a slot");
    world.scopes = tree(vec![limit(Dimension::BudgetCost, 5)]);
    let unknown = world.refused();
    assert_eq!(unknown.code, RefusalCode::BudgetUnknown);
    assert_eq!(unknown.unknown_budgets, world.budget_keys());
    world.set_budgets(5, 0);
    assert_eq!(world.refused().code, RefusalCode::BudgetExhausted);
    world.scopes[1] = on(tenant(1), vec![limit(Dimension::RequestInputTokens, 1)]);
    assert_eq!(world.refused().code, RefusalCode::RequestTooLarge);
}

#[test]
fn a_rate_opens_when_it_said() {
    let mut world = World::new(vec![on(
        key(1),
        vec![
            limit(Dimension::Requests, 3),
            Limit {
                burst: Some(250),
                ..limit(Dimension::InputTokens, 1_000)
            },
        ],
    )]);
    let mut refusals = 0;
    let mut holds = Vec::new();
    for _ in 0..40 {
        match world.admit() {
            Ok(hold) => holds.push(hold),
            Err(denial) => {
                refusals += 1;
                world.pass(denial.retry_after_ms.expect("rates know when") - 1);
                world.refused();
                world.pass(1);
                holds.push(world.admit().expect("opened"));
            }
        }
        world.pass(700);
    }
    assert!(refusals > 10);
}

#[test]
fn tokens_that_slow_requests_give_back_late_do_not_add_up_to_a_second_minute() {
    let tokens = Limit {
        burst: Some(50),
        ..limit(Dimension::InputTokens, 600)
    };
    let mut world = World::new(vec![]);
    world.upstreams = vec![candidate(1, vec![tokens])];
    // Twelve requests hold 500 tokens each, one every 50 s, while the bucket refills behind them.
    world.estimate.expected.input_tokens = 500;
    let slow: Vec<Hold> = (0..12)
        .map(|_| {
            let hold = world.admit().expect("one window's worth");
            world.pass(51_000);
            hold
        })
        .collect();
    // In the next minute they all turn out to have used nothing.
    world.pass(30_000);
    world.estimate.expected.input_tokens = 10;
    let mut admitted = Vec::new();
    for hold in slow {
        world.settle(hold, amounts(0, 0, 0), 1);
        admitted.extend(std::iter::from_fn(|| world.admit().ok()));
    }
    for _ in 0..59 {
        world.pass(1_000);
        admitted.extend(std::iter::from_fn(|| world.admit().ok()));
    }
    assert!(
        admitted.len() * 10 <= 600 + 50 + 10,
        "{} tokens in a minute",
        admitted.len() * 10
    );
    let wait_ms = world.refused().retry_after_ms.expect("rates know when");
    world.pass(wait_ms - 1);
    world.refused();
    world.pass(1);
    let _opened = world.admit().expect("the window let go");
}

#[test]
fn an_upstream_with_room_is_taken_in_the_order_given() {
    let mut world = World::new(vec![]);
    world.upstreams = vec![
        candidate(4, vec![limit(Dimension::Concurrency, 1)]),
        candidate(2, vec![limit(Dimension::Concurrency, 1)]),
    ];
    let first = world.admit().expect("room");
    let second = world.admit().expect("room");
    assert_eq!((first.upstream(), second.upstream()), (Some(4), Some(2)));
    let denial = world.refused();
    assert_eq!(denial.chain.len(), 2);
    assert!(!denial.is_own_limit);
    drop(first);
    assert_eq!(world.admit().expect("room").upstream(), Some(4));
}

#[test]
fn of_full_upstreams_the_one_that_opens_first_is_told() {
    let mut world = World::new(vec![]);
    world.upstreams = vec![
        candidate(1, vec![limit(Dimension::InputTokens, 99)]),
        candidate(2, vec![limit(Dimension::Requests, 1)]),
        candidate(3, vec![limit(Dimension::Concurrency, 1)]),
    ];
    let holds = world.admit_all(2);
    assert_eq!(world.refused().scope, upstream(3));
    world.pass(50_000);
    ready(holds[1].renew(world.now));
    world.pass(11_500);
    assert_eq!(
        world.refused().scope,
        upstream(2),
        "its window opens before the hint of a slot"
    );
}

#[test]
fn failover_moves_the_upstreams_part_alone() {
    let mut world = world_of_every_kind();
    world.upstreams = vec![candidate(1, every_kind()), candidate(2, every_kind())];
    world.set_budgets(0, 0);
    let mut hold = world.admit().expect("room");
    let tree_before = used_and_held(&world)[..28].to_vec();
    hold.mark_sent();
    let mut others = world.admission();
    let second = [world.upstreams[1].clone()];
    others.upstreams = &second;
    others.id = hold.id();
    ready(world.limits.switch_upstream(&mut hold, &others, world.now)).expect("room");
    assert_eq!(hold.upstream(), Some(2));
    let after = used_and_held(&world);
    assert_eq!(after[..28], tree_before);
    // Bytes went to the first: its request count stays, the rest is given back.
    assert_eq!(after[28..35], [(1, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0)]);
    assert_eq!(after[35..], tree_before[..7]);
    // Nothing was sent to the second yet.
    drop(hold);
    let after = used_and_held(&world);
    assert_eq!(after[0], (1, 0));
    assert_eq!(after[35], (0, 0));
}

#[test]
fn failover_without_room_changes_nothing() {
    let mut world = World::new(vec![]);
    world.upstreams = vec![
        candidate(1, vec![limit(Dimension::Requests, 5), limit(Dimension::Concurrency, 1)]),
        candidate(2, vec![limit(Dimension::Requests, 1)]),
    ];
    let mut first = world.admit().expect("room");
    let _second = world.admit().expect("room");
    let before = world.peek();
    let second_only = [world.upstreams[1].clone()];
    let admission = Admission {
        id: first.id(),
        upstreams: &second_only,
        ..world.admission()
    };
    let denial = ready(world.limits.switch_upstream(&mut first, &admission, world.now)).expect_err("full");
    assert_eq!(denial.scope, upstream(2));
    assert_eq!(world.peek(), before);
    assert_eq!(first.upstream(), Some(1));
}

#[test]
fn a_retry_at_the_same_upstream_is_not_in_its_own_way() {
    let mut world = World::new(vec![]);
    world.upstreams = vec![candidate(
        1,
        vec![limit(Dimension::Concurrency, 1), limit(Dimension::Requests, 2)],
    )];
    let mut hold = world.admit().expect("room");
    hold.mark_sent();
    let upstreams = world.upstreams.clone();
    let again = Admission {
        id: hold.id(),
        upstreams: &upstreams,
        ..world.admission()
    };
    ready(world.limits.switch_upstream(&mut hold, &again, world.now)).expect("its own slot is free for it");
    assert_eq!(used_and_held(&world), [(0, 1), (2, 0)]);
    let before = world.peek();
    hold.mark_sent();
    ready(world.limits.switch_upstream(&mut hold, &again, world.now)).expect_err("two requests were sent");
    assert_eq!(world.peek(), before);
    drop(hold);
    assert_eq!(used_and_held(&world), [(0, 0), (2, 0)]);
}

#[test]
fn what_was_used_replaces_the_estimate_everywhere() {
    let mut world = world_of_every_kind();
    let mut hold = world.admit().expect("room");
    hold.mark_sent();
    world.settle(hold, amounts(30, 5, 3), 1);
    for part in used_and_held(&world).chunks(7) {
        assert_eq!(part, [(1, 0), (30, 0), (5, 0), (35, 0), (0, 0), (35, 0), (3, 0)]);
    }
    assert_eq!(world.limits.open_holds(), 0);
}

#[test]
fn an_overrun_is_booked_in_full_and_seen_by_the_next() {
    let mut world = World::with_budgets(vec![on(Scope::Global, vec![limit(Dimension::BudgetCost, 25)])]);
    let hold = world.admit().expect("room");
    world.settle(hold, amounts(100, 100, 40), 1);
    assert_eq!(world.first(), (40, 0));
    assert_eq!(world.refused().code, RefusalCode::BudgetExhausted);
}

#[test]
fn a_dropped_hold_gives_everything_back_and_keeps_the_count_of_what_was_sent() {
    let mut world = world_of_every_kind();
    let untouched = used_and_held(&world);
    let hold = world.admit().expect("room");
    drop(hold);
    assert_eq!(used_and_held(&world), untouched);

    let mut hold = world.admit().expect("room");
    hold.mark_sent();
    ready(hold.refund(world.now));
    for part in used_and_held(&world).chunks(7) {
        assert_eq!(part, [(1, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0)]);
    }
}

#[test]
fn a_panic_gives_everything_back() {
    let mut world = world_of_every_kind();
    let untouched = used_and_held(&world);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _hold = world.admit().expect("room");
        panic!("the handler failed");
    }));
    assert!(caught.is_err());
    assert_eq!(used_and_held(&world), untouched);
    assert_eq!(world.limits.open_holds(), 0);
}

#[test]
fn a_settlement_that_nobody_polled_is_a_refund() {
    let mut world = world_of_every_kind();
    let untouched = used_and_held(&world);
    let hold = world.admit().expect("room");
    drop(hold.settle(amounts(1, 1, 1), Some(1), world.now));
    assert_eq!(used_and_held(&world), untouched);
    assert_eq!(world.limits.open_holds(), 0);
}

#[test]
fn a_cap_of_four_in_flight_is_free_again_however_requests_end() {
    let mut world = World::new(vec![on(key(1), vec![limit(Dimension::Concurrency, 4)])]);
    for round in 0..50 {
        let holds = world.admit_all(4);
        assert_eq!(world.refused().code, RefusalCode::ConcurrencyLimitExceeded);
        for (number, mut hold) in holds.into_iter().enumerate() {
            match (round + number) % 4 {
                0 => ready(hold.refund(world.now)),
                1 => drop(hold),
                2 => {
                    hold.mark_sent();
                    drop(hold);
                }
                _ => ready(hold.settle(amounts(1, 1, 1), None, world.now)),
            }
        }
    }
    assert_eq!(world.first(), (0, 0));
    let _normal = world.admit().expect("a normal call");
}

#[test]
fn a_lost_hold_frees_its_slot_after_its_lease_and_its_budget_an_hour_later() {
    let limits = vec![limit(Dimension::Concurrency, 1), limit(Dimension::BudgetCost, 15)];
    let mut world = World::with_budgets(vec![on(key(1), limits)]);
    std::mem::forget(world.admit().expect("room"));
    assert_eq!(world.refused().code, RefusalCode::BudgetHeld);
    world.pass(60_000);
    assert_eq!(used_and_held(&world), [(0, 0), (0, 10)], "it may have cost money");
    world.pass(3_600_000 - 1);
    assert_eq!(used_and_held(&world), [(0, 0), (0, 10)]);
    world.pass(1);
    assert_eq!(used_and_held(&world), [(0, 0), (0, 0)]);
}

#[test]
fn a_renewed_hold_keeps_its_slot_and_a_late_one_is_still_settled() {
    let limits = vec![limit(Dimension::Concurrency, 1), limit(Dimension::BudgetCost, 15)];
    let mut world = World::with_budgets(vec![on(key(1), limits)]);
    let hold = world.admit().expect("room");
    for _ in 0..10 {
        world.pass(40_000);
        ready(hold.renew(world.now));
    }
    world.pass(59_999);
    assert_eq!(used_and_held(&world), [(0, 1), (0, 10)]);
    world.pass(2 * 3_600_000);
    world.limits.sweep(world.now);
    assert_eq!(used_and_held(&world), [(0, 0), (0, 0)]);
    world.settle(hold, amounts(1, 1, 9), 1);
    assert_eq!(used_and_held(&world), [(0, 0), (9, 0)]);
}

#[test]
fn a_late_settlement_stays_in_the_period_it_was_admitted_in() {
    let mut world = World::with_budgets(vec![on(tenant(1), vec![limit(Dimension::BudgetCost, 25)])]);
    world.now.wall = at("2026-11-30T23:59:59Z");
    let hold = world.admit().expect("room");
    let november = world.budget_keys().remove(0);
    world.pass(2_000);
    let december = world.budget_keys().remove(0);
    assert!(has_budget(&world, &december), "it began under our eyes");
    let other = world.admit().expect("a new month, without a rebuild");
    assert_eq!(world.first(), (0, 10));
    world.settle(hold, amounts(100, 100, 10), 1);
    assert_eq!(world.first(), (0, 10));
    world.settle(other, amounts(100, 100, 4), 2);
    assert_eq!(world.first(), (4, 0));
    assert!(has_budget(&world, &november));
}

#[test]
fn a_budget_without_a_base_is_closed_and_listed() {
    let mut world = World::new(vec![on(tenant(1), vec![limit(Dimension::BudgetCost, 25)])]);
    let denial = world.refused();
    assert_eq!(denial.code, RefusalCode::BudgetUnknown);
    let keys = world.budget_keys();
    assert_eq!(denial.unknown_budgets, keys);
    assert!(!has_budget(&world, &keys[0]));
    assert!(!world.peek()[0].is_known);
    let listed = memory(&world).budgets(world.now);
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0].key, listed[0].base), (&keys[0], None));
    world.set_budgets(10, 3);
    let hold = world.admit().expect("15 are left");
    let listed = memory(&world).budgets(world.now);
    assert_eq!(listed[0].base, Some(BudgetBase { spent: 10, mark: 3 }));
    world.settle(hold, amounts(1, 1, 10), 3);
    assert_eq!(world.first(), (10, 0), "the base contained it");
}

#[test]
fn a_budget_whose_limit_was_away_is_closed_until_it_is_read_again() {
    let budget = vec![on(tenant(1), vec![limit(Dimension::BudgetCost, 25)])];
    let mut world = World::with_budgets(budget.clone());
    let budget_key = world.budget_keys().remove(0);
    assert!(has_budget(&world, &budget_key));
    world.scopes = vec![on(tenant(1), vec![])];
    let uncounted = world.admit().expect("no limit");
    world.settle(uncounted, amounts(1, 1, 25), 1);
    world.pass(10_001);
    world.scopes = budget;
    assert!(!has_budget(&world, &budget_key));
    let denial = world.refused();
    assert_eq!(denial.code, RefusalCode::BudgetUnknown);
    assert_eq!(denial.unknown_budgets, std::slice::from_ref(&budget_key));
    world.set_budgets(25, 1);
    assert!(has_budget(&world, &budget_key));
    assert_eq!(world.refused().code, RefusalCode::BudgetExhausted);
}

#[test]
fn a_budget_that_comes_into_force_under_traffic_is_open_and_read_once_more() {
    let without = vec![on(tenant(1), vec![limit(Dimension::Requests, 100)])];
    let with = vec![on(
        tenant(1),
        vec![limit(Dimension::Requests, 100), limit(Dimension::BudgetCost, 25)],
    )];
    let mut world = World::with_budgets(with.clone());
    world.scopes = without;
    let _before = world.admit().expect("the policy before");
    world.scopes = with;
    world.pass(500);
    let first = world.admit().expect("its base was set beforehand");
    assert_eq!(first.unknown_budgets(), world.budget_keys());
    world.set_budgets(0, 0);
    let hold = world.admit().expect("5 are left after this one");
    assert!(hold.unknown_budgets().is_empty());
}

/// The tenant's budget in cost.
fn costing(value: u64) -> Vec<ScopeLimits> {
    vec![on(tenant(1), vec![limit(Dimension::BudgetCost, value)])]
}

fn begin(world: &World, last_settled: u64) -> Vec<Option<u64>> {
    let begin = |key| memory(world).begin_budget(key, || last_settled, world.now);
    world.budget_keys().iter().map(begin).collect()
}

#[test]
fn a_budget_that_begins_opens_once_its_base_contains_what_was_settled_before() {
    let mut world = World::new(costing(25));
    assert_eq!(begin(&world, 7), [Some(7)]);
    assert_eq!(begin(&world, 9), [Some(7)], "it counts since then");
    world.set_budgets(10, 6);
    assert_eq!(world.refused().code, RefusalCode::BudgetUnknown);
    world.set_budgets(20, 7);
    assert_eq!(world.refused().code, RefusalCode::BudgetExhausted);
    assert_eq!(begin(&world, 9), [None], "it is known");
}

#[test]
fn a_budget_sees_the_end_of_requests_that_were_admitted_before_it() {
    for has_counters in [false, true] {
        let mut before = vec![on(tenant(1), vec![])];
        if has_counters {
            before = vec![on(tenant(1), vec![limit(Dimension::Requests, 100)])];
        }
        let mut world = World::new(before);
        world.upstreams = vec![candidate(1, vec![])];
        let settled = world.admit().expect("no budget");
        let renewed = world.admit().expect("no budget");
        let refunded = world.admit().expect("no budget");
        let dropped = world.admit().expect("no budget");

        let of_another = Limit {
            model: Some("another".into()),
            ..limit(Dimension::BudgetCost, 40)
        };
        world.scopes = vec![on(tenant(1), vec![limit(Dimension::BudgetCost, 40), of_another])];
        world.upstreams = vec![candidate(1, vec![limit(Dimension::BudgetTokens, 1_000)])];
        begin(&world, 0);
        world.set_budgets(0, 0);
        world.settle(settled, amounts(100, 100, 9), 1);
        assert_eq!(used_and_held(&world), [(9, 0), (0, 0), (200, 0)]);
        for hold in [&renewed, &refunded, &dropped] {
            ready(hold.renew(world.now));
        }
        assert_eq!(used_and_held(&world), [(9, 30), (0, 0), (200, 600)]);
        assert_eq!(world.refused().code, RefusalCode::BudgetHeld, "they are in the way");
        ready(refunded.refund(world.now));
        drop(dropped);
        world.settle(renewed, amounts(50, 50, 6), 2);
        assert_eq!(used_and_held(&world), [(15, 0), (0, 0), (300, 0)]);
        world.set_budgets(15, 2);
        assert_eq!(world.first(), (15, 0), "and not twice");
    }
}

proptest! {
    /// Whenever a budget that began among running requests is known, it has counted every settlement once.
    #[test]
    fn a_budget_that_begins_anywhere_agrees_with_the_ledger(
        steps in prop::collection::vec((0_u8..7, 0_usize..8), 1..80),
        has_counters in any::<bool>(),
    ) {
        let mut world = World::new(vec![on(tenant(1), vec![])]);
        if has_counters {
            world.scopes = vec![on(tenant(1), vec![limit(Dimension::Requests, 100_000)])];
        }
        let mut holds = std::collections::VecDeque::new();
        // The journal's entries, of which Postgres has the first so many; numbers start at 1.
        let (mut ledger, mut shipped): (Vec<i64>, usize) = (Vec::new(), 0);
        // What was read of Postgres, and is perhaps set much later.
        let mut read: Option<BudgetBase> = None;
        let mut has_begun = false;
        for (step, size) in steps {
            match step {
                0 | 1 => holds.extend(world.admit().ok()),
                2 | 3 => {
                    if let Some(hold) = holds.pop_front() {
                        let cost = size as i64 + 1;
                        ledger.push(cost);
                        world.settle(hold, amounts(1, 1, cost), ledger.len() as u64);
                    }
                }
                4 => {
                    world.scopes = costing(1_000_000);
                    begin(&world, ledger.len() as u64);
                    has_begun = true;
                }
                5 => {
                    shipped = ledger.len().min(shipped + size);
                    read = Some(BudgetBase { spent: ledger[..shipped].iter().sum(), mark: shipped as u64 });
                }
                _ => if let (true, Some(base)) = (has_begun, read) {
                    world.set_budgets(base.spent, base.mark);
                }
            }
            let reading = has_begun.then(|| world.peek().remove(0));
            if let Some(reading) = reading.filter(|reading| reading.is_known) {
                prop_assert_eq!(reading.used, ledger.iter().sum::<i64>());
            }
        }
    }
}

#[test]
fn a_rehearsed_budget_without_a_base_asks_for_it() {
    let mut world = World::new(vec![on(
        tenant(1),
        vec![crate::fixture::rehearsed(Dimension::BudgetCost, 5)],
    )]);
    let hold = world.admit().expect("refuses nothing");
    assert_eq!(hold.unknown_budgets(), world.budget_keys());
    assert!(hold.rehearsed().is_empty());
}

#[test]
fn limits_of_other_models_and_priorities_are_passed_over() {
    let other_model = Limit {
        model: Some("other".into()),
        ..limit(Dimension::Requests, 0)
    };
    let only_low = Limit {
        priority: Some(Priority::Low),
        ..limit(Dimension::Requests, 1)
    };
    let mut world = World::new(vec![on(Scope::Global, vec![other_model, only_low])]);
    let _many = world.admit_all(3);
    world.priority = Priority::Low;
    let _one = world.admit().expect("low has its own counter");
    world.refused();
}

#[test]
fn two_limits_on_one_counter_take_once() {
    let twice = vec![limit(Dimension::Requests, 10), limit(Dimension::Requests, 5)];
    let mut world = World::new(vec![on(Scope::Global, twice)]);
    let _holds = world.admit_all(5);
    assert_eq!(used_and_held(&world), [(5, 0), (5, 0)]);
    world.refused();
}

#[test]
fn the_tightest_limits_are_told_on_success_and_refusal() {
    let mut world = World::new(vec![
        on(Scope::Global, vec![limit(Dimension::Requests, 50)]),
        on(
            key(1),
            vec![limit(Dimension::Requests, 2), limit(Dimension::InputTokens, 100_000)],
        ),
    ]);
    let hold = world.admit().expect("room");
    let requests = hold.tightest().requests.clone().expect("a requests limit");
    assert_eq!(
        (requests.scope, requests.limit_value, requests.remaining),
        (key(1), 2, 1)
    );
    assert!(
        requests
            .reset_ms
            .is_some_and(|reset_ms| (60_000..=63_000).contains(&reset_ms))
    );
    let tokens = hold.tightest().tokens.clone().expect("a token limit");
    assert_eq!((tokens.limit_value, tokens.remaining), (100_000, 99_900));
    let _second = world.admit().expect("room");
    assert_eq!(world.refused().tightest.requests.expect("told").remaining, 0);
}

#[test]
fn a_scope_that_is_being_looked_at_is_not_dropped() {
    let world = World::new(vec![]);
    let memory = &memory(&world);
    let looked_at = memory.node(&key(1));
    for _ in 0..Limits::SWEEPS_PER_ROUND {
        world.limits.sweep(world.now);
    }
    assert!(
        Arc::ptr_eq(&looked_at, &memory.node(&key(1))),
        "what it takes must be seen by others"
    );
    drop(looked_at);
    for _ in 0..Limits::SWEEPS_PER_ROUND {
        world.limits.sweep(world.now);
    }
    assert_eq!(world.limits.scope_count(), 0);
}

#[test]
fn idle_scopes_are_dropped_and_used_ones_kept() {
    let mut world = World::with_budgets(vec![
        on(Scope::Global, vec![limit(Dimension::Requests, 5)]),
        on(tenant(1), vec![limit(Dimension::BudgetCost, 100)]),
        on(
            key(1),
            vec![limit(Dimension::Concurrency, 5), limit(Dimension::TotalTokens, 9_000)],
        ),
    ]);
    let sweep_all = |world: &World| {
        for _ in 0..Limits::SWEEPS_PER_ROUND {
            world.limits.sweep(world.now);
        }
        world.limits.scope_count()
    };
    let hold = world.admit().expect("room");
    world.pass(119_999);
    ready(hold.renew(world.now));
    assert_eq!(sweep_all(&world), 3, "held");
    world.settle(hold, amounts(1, 1, 1), 1);
    assert_eq!(sweep_all(&world), 3, "not refilled twice");
    world.pass(1);
    assert_eq!(sweep_all(&world), 1, "a budget stays for its period");
    world.now.wall = at("2026-12-01T23:59:59Z");
    assert_eq!(sweep_all(&world), 1, "and a day longer");
    world.now.wall = at("2026-12-02T00:00:00Z");
    assert_eq!(sweep_all(&world), 0);
}

#[test]
fn an_explanation_says_what_admission_then_says_and_takes_nothing() {
    let mut world = world_of_every_kind();
    world.scopes[2] = on(tenant(1), vec![limit(Dimension::Requests, 2)]);
    world.upstreams = vec![
        candidate(1, vec![limit(Dimension::Requests, 1)]),
        candidate(2, vec![limit(Dimension::Requests, 9)]),
    ];
    let id_of = |number| match upstream(number) {
        Scope::Upstream(id) => Some(id),
        _ => None,
    };
    for expected in [id_of(1), id_of(2)] {
        let before = used_and_held(&world);
        let (_, explanation) = ready(world.limits.explain(&world.admission(), world.now));
        assert_eq!(used_and_held(&world), before);
        assert_eq!((explanation.told, explanation.upstream), (None, expected));
        std::mem::forget(world.admit().expect("as explained"));
    }
    let (_, explanation) = ready(world.limits.explain(&world.admission(), world.now));
    let told = &explanation.answers[explanation.told.expect("refused")];
    let denial = world.refused();
    assert_eq!(
        (&told.reading.scope, told.reading.limit_id),
        (&denial.scope, denial.limit_id)
    );
    let refusal = told.refusal.expect("it refuses");
    assert_eq!(
        (refusal.code, refusal.retry_after_ms),
        (denial.code, denial.retry_after_ms)
    );
    assert_eq!(explanation.upstream, None);
}

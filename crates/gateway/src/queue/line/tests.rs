use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use domain::ids::{LimitId, TenantId, UpstreamId};
use domain::limits::{Dimension, Scope};
use domain::priority::Priority;
use domain::refusals::RefusalCode;
use proptest::prelude::*;

use super::*;

const SETTINGS: QueueSettings = QueueSettings {
    places: 8,
    waiting_tokens_max: 1_000,
    timeout_ms: 8_000,
};

fn limit(number: u8) -> LimitId {
    LimitId::new(DateTime::<Utc>::UNIX_EPOCH, [number; 10])
}

fn tenant(number: u8) -> TenantId {
    TenantId::new(DateTime::<Utc>::UNIX_EPOCH, [number; 10])
}

fn upstream(number: u8) -> UpstreamId {
    UpstreamId::new(DateTime::<Utc>::UNIX_EPOCH, [number; 10])
}

fn lane(number: u8) -> Lane {
    Lane {
        of: LaneOf::Limit(Scope::Global, limit(number)),
        is_gate: false,
    }
}

fn blocked(lane: Lane, due_ms: u64) -> Blocked {
    Blocked {
        lane,
        scope: Scope::Global,
        dimension: Dimension::Concurrency,
        code: RefusalCode::ConcurrencyLimitExceeded,
        due_ms,
    }
}

fn arrival(priority: Priority) -> Arrival {
    Arrival {
        tenant: tenant(1),
        priority,
        tokens: 10,
        patience_ms: u64::MAX,
    }
}

/// Joins the lane, which is not due for a long time.
fn join(line: &mut Line, priority: Priority, number: u8, now_ms: u64) -> Ticket {
    line.join(arrival(priority), blocked(lane(number), u64::MAX), now_ms)
        .expect("a place")
}

fn release(line: &mut Line) {
    line.release(|_| true, &[]);
}

#[test]
fn the_highest_class_is_served_first_and_within_it_whoever_came_first() {
    let mut line = Line::new(SETTINGS);
    let low = join(&mut line, Priority::Low, 1, 0);
    let first = join(&mut line, Priority::High, 1, 1);
    let second = join(&mut line, Priority::High, 1, 2);
    let mut served = Vec::new();
    release(&mut line);
    while let [(ticket, Turn::Try(_))] = line.turns(3)[..] {
        served.push(ticket);
        line.leave(ticket);
    }
    assert_eq!(served, [first, second, low]);
}

#[test]
fn one_asks_at_a_time_and_the_next_only_after_there_was_room() {
    let mut line = Line::new(SETTINGS);
    let first = join(&mut line, Priority::Default, 1, 0);
    let second = join(&mut line, Priority::Default, 1, 0);
    assert_eq!(line.turns(1), [], "nothing has happened");
    release(&mut line);
    assert_eq!(line.turns(1), [(first, Turn::Try(Priority::Default))]);
    assert_eq!(line.turns(1), [], "it is asking");
    line.block(first, blocked(lane(1), 500), 1);
    assert_eq!(line.turns(2), [], "there was no room");
    assert_eq!(line.next_ms(2), Some(500));
    assert_eq!(line.turns(500), [(first, Turn::Try(Priority::Default))]);
    line.leave(first);
    assert_eq!(line.turns(501), [(second, Turn::Try(Priority::Default))]);
}

#[test]
fn what_is_released_while_one_asks_is_not_forgotten() {
    let mut line = Line::new(SETTINGS);
    let first = join(&mut line, Priority::Default, 1, 0);
    release(&mut line);
    line.turns(1);
    release(&mut line);
    line.block(first, blocked(lane(1), u64::MAX), 2);
    assert_eq!(line.turns(2), [(first, Turn::Try(Priority::Default))]);
}

#[test]
fn a_turn_that_was_not_used_is_the_next_ones() {
    let mut line = Line::new(SETTINGS);
    let first = join(&mut line, Priority::Default, 1, 0);
    let second = join(&mut line, Priority::Default, 1, 0);
    release(&mut line);
    assert_eq!(line.turns(1), [(first, Turn::Try(Priority::Default))]);
    line.leave(first);
    assert_eq!(line.turns(2), [(second, Turn::Try(Priority::Default))]);
}

#[test]
fn whoever_stood_behind_one_that_needed_more_is_asked_when_it_leaves() {
    let mut line = Line::new(SETTINGS);
    let large = line
        .join(arrival(Priority::Default), blocked(lane(1), 7_000), 0)
        .expect("a place");
    let behind = line.ahead(Priority::Default, |_| true, 1).cloned().expect("it waits");
    let small = line.join(arrival(Priority::Default), behind, 1).expect("a place");
    assert_eq!(line.turns(1), []);
    line.leave(large);
    assert_eq!(line.turns(2), [(small, Turn::Try(Priority::Default))]);
}

#[test]
fn lanes_do_not_wait_for_each_other() {
    let mut line = Line::new(SETTINGS);
    let held_up = join(&mut line, Priority::Critical, 1, 0);
    let other = line
        .join(arrival(Priority::Low), blocked(lane(2), 100), 0)
        .expect("a place");
    assert_eq!(line.turns(100), [(other, Turn::Try(Priority::Low))]);
    // It is blocked by what the first waits for, and stands behind it from now on.
    line.block(other, blocked(lane(1), 200), 100);
    assert_eq!(line.turns(200), [], "the first of the lane is not due");
    release(&mut line);
    assert_eq!(line.turns(201), [(held_up, Turn::Try(Priority::Critical))]);
}

#[test]
fn whoever_is_held_back_by_a_gate_holds_up_nobody_who_is_not() {
    let mut line = Line::new(SETTINGS);
    let gate = Lane {
        is_gate: true,
        ..lane(1)
    };
    let gated = line
        .join(arrival(Priority::Low), blocked(gate, u64::MAX), 0)
        .expect("a place");
    let needs = |of: &LaneOf| *of == lane(1).of;
    assert!(line.ahead(Priority::Default, needs, 1).is_none());
    assert!(line.ahead(Priority::Low, needs, 1).is_some());
    let other = join(&mut line, Priority::Default, 1, 1);
    release(&mut line);
    let turns: BTreeSet<Ticket> = line.turns(2).into_iter().map(|(ticket, _)| ticket).collect();
    assert_eq!(turns, BTreeSet::from([gated, other]));
}

#[test]
fn a_gate_is_asked_again_as_soon_as_half_of_the_wait_is_over() {
    let mut line = Line::new(SETTINGS);
    let gate = Lane {
        is_gate: true,
        ..lane(1)
    };
    let gated = line
        .join(arrival(Priority::Low), blocked(gate, u64::MAX), 0)
        .expect("a place");
    assert_eq!(line.next_ms(0), Some(4_000));
    assert_eq!(line.turns(3_999), []);
    assert_eq!(line.turns(4_000), [(gated, Turn::Try(Priority::Default))]);
}

#[test]
fn an_arrival_joins_behind_those_of_its_class_who_wait_for_what_it_needs() {
    let mut line = Line::new(SETTINGS);
    join(&mut line, Priority::Default, 1, 0);
    let needs = |number: u8| move |of: &LaneOf| *of == lane(number).of;
    assert!(line.ahead(Priority::Default, needs(1), 1).is_some());
    assert!(line.ahead(Priority::Low, needs(1), 1).is_some());
    assert!(
        line.ahead(Priority::High, needs(1), 1).is_none(),
        "a higher class passes"
    );
    assert!(
        line.ahead(Priority::High, needs(1), 4_000).is_some(),
        "until the other is as high"
    );
    assert!(
        line.ahead(Priority::Default, needs(2), 1).is_none(),
        "it needs something else"
    );
}

#[test]
fn whose_wait_is_over_asks_once_more() {
    let mut line = Line::new(SETTINGS);
    let first = join(&mut line, Priority::Low, 1, 0);
    let patient = Arrival {
        patience_ms: 100,
        ..arrival(Priority::Low)
    };
    let short = line.join(patient, blocked(lane(1), u64::MAX), 0).expect("a place");
    assert_eq!(line.next_ms(0), Some(100));
    assert_eq!(line.turns(100), [(short, Turn::Last(Priority::Low))]);
    assert_eq!(line.turns(100), []);
    line.leave(short);
    // The first of the lane asks, too, and finds out.
    assert_eq!(line.turns(101), [(first, Turn::Try(Priority::Low))]);
    line.block(first, blocked(lane(1), u64::MAX), 101);
    assert_eq!(line.turns(8_000), [(first, Turn::Last(Priority::Default))]);
}

#[test]
fn places_and_tokens_are_bounded_and_a_tenant_leaves_some() {
    let mut line = Line::new(SETTINGS);
    let of = |tenant, tokens| Arrival {
        tenant,
        tokens,
        ..arrival(Priority::Default)
    };
    let mut join = |tenant, tokens| line.join(of(tenant, tokens), blocked(lane(1), 0), 0);
    join(tenant(1), 5_000).expect("one that is larger than all may wait alone");
    assert_eq!(join(tenant(2), 1), Err(Full::Places));

    let mut line = Line::new(SETTINGS);
    let mut join = |tenant, tokens| line.join(of(tenant, tokens), blocked(lane(1), 0), 0);
    for _ in 0..6 {
        join(tenant(1), 100).expect("three quarters");
    }
    assert_eq!(join(tenant(1), 100), Err(Full::Tenant));
    assert_eq!(join(tenant(2), 500), Err(Full::Places), "too many tokens");
    join(tenant(2), 100).expect("a place is left");
    join(tenant(2), 100).expect("the last one");
    assert_eq!(join(tenant(2), 0), Err(Full::Places));
    assert_eq!(line.depth(), 8);
    assert_eq!(line.status(7).waiting_tokens, 800);
    line.leave(0);
    assert_eq!(line.status(7).waiting_tokens, 700);
}

#[test]
fn an_end_calls_up_only_those_it_can_help() {
    let mut line = Line::new(SETTINGS);
    let by_upstreams = Lane {
        of: LaneOf::Accounts([upstream(1), upstream(2)].into(), limit(2)),
        is_gate: false,
    };
    let any_upstream = line
        .join(arrival(Priority::Low), blocked(by_upstreams, u64::MAX), 0)
        .expect("a place");
    let of_requests = Blocked {
        dimension: Dimension::Requests,
        ..blocked(lane(3), u64::MAX)
    };
    line.join(arrival(Priority::Low), of_requests, 0).expect("a place");
    let of_tenant = Blocked {
        lane: Lane {
            of: LaneOf::Limit(Scope::Tenant(tenant(1)), limit(4)),
            is_gate: false,
        },
        ..blocked(lane(4), u64::MAX)
    };
    let of_tenant = line.join(arrival(Priority::Low), of_tenant, 0).expect("a place");
    let left_alone = Lane {
        of: LaneOf::LeftAlone(upstream(2), "model".into(), tenant(1)),
        is_gate: false,
    };
    line.join(arrival(Priority::Low), blocked(left_alone, u64::MAX), 0)
        .expect("a place");
    line.release(|scope| *scope == Scope::Global, &[upstream(2)]);
    assert_eq!(
        line.turns(1),
        [(any_upstream, Turn::Try(Priority::Low))],
        "requests stay counted"
    );
    line.release(|scope| *scope == Scope::Tenant(tenant(1)), &[upstream(3)]);
    assert_eq!(line.turns(1), [(of_tenant, Turn::Try(Priority::Low))]);
}

#[test]
fn the_status_says_what_most_wait_for() {
    let mut line = Line::new(SETTINGS);
    join(&mut line, Priority::Low, 1, 1_000);
    join(&mut line, Priority::Low, 2, 2_000);
    let gated = Blocked {
        code: RefusalCode::PriorityGated,
        ..blocked(lane(3), u64::MAX)
    };
    line.join(arrival(Priority::Low), gated, 3_000).expect("a place");
    let status = line.status(4_000);
    assert_eq!((status.depth, status.places, status.longest_ms), (3, 8, 3_000));
    let counts: Vec<_> = status
        .reasons
        .iter()
        .map(|reason| (reason.code, reason.count))
        .collect();
    assert_eq!(
        counts,
        [
            (RefusalCode::ConcurrencyLimitExceeded, 2),
            (RefusalCode::PriorityGated, 1)
        ]
    );
}

/// A flood of `high` keeps a lane full and arrives faster than it is served; a `low` one is served before its wait is over.
#[test]
fn a_flood_of_a_higher_class_does_not_keep_a_lower_one_waiting_beyond_its_bound() {
    let mut line = Line::new(QueueSettings {
        places: 1_000,
        waiting_tokens_max: u64::MAX,
        ..SETTINGS
    });
    let join = |line: &mut Line, tenant, priority, now_ms| {
        let arrival = Arrival {
            tenant,
            ..arrival(priority)
        };
        line.join(arrival, blocked(lane(1), u64::MAX), now_ms)
    };
    // A full house of them before it comes.
    for _ in 0..100 {
        join(&mut line, tenant(1), Priority::High, 0).expect("a place");
    }
    let low = join(&mut line, tenant(2), Priority::Low, 0).expect("a place");
    for now_ms in (0..SETTINGS.timeout_ms).step_by(10) {
        // Two come and one is served.
        for _ in 0..2 {
            let _ = join(&mut line, tenant(1), Priority::High, now_ms);
        }
        release(&mut line);
        for (ticket, turn) in line.turns(now_ms) {
            match turn {
                Turn::Try(_) if ticket == low => return,
                Turn::Try(_) => line.leave(ticket),
                Turn::Last(_) => line.leave(ticket),
            }
        }
    }
    panic!("it waited in vain");
}

/// What may happen to a line.
#[derive(Clone, Debug)]
enum Step {
    Joins {
        tenant: u8,
        priority: Priority,
        tokens: u64,
        lane: u8,
        due_in_ms: u64,
        patience_ms: u64,
    },
    /// Of those whose turn it is, this one finds room, or not, or leaves.
    Answers {
        which: usize,
        with: Answer,
    },
    /// Of all, this one leaves.
    Leaves(usize),
    Releases,
    Passes(u64),
}

#[derive(Clone, Debug)]
enum Answer {
    Admitted,
    Blocked { lane: u8, due_in_ms: u64 },
    Refused,
}

fn step() -> impl Strategy<Value = Step> {
    let priority = prop::sample::select(Priority::ALL.to_vec());
    let joins = (0..3_u8, priority, 0..300_u64, 0..3_u8, 0..5_000_u64, 1..20_000_u64).prop_map(
        |(tenant, priority, tokens, lane, due_in_ms, patience_ms)| Step::Joins {
            tenant,
            priority,
            tokens,
            lane,
            due_in_ms,
            patience_ms,
        },
    );
    let answer = prop_oneof![
        2 => Just(Answer::Admitted),
        2 => (0..3_u8, 0..5_000_u64).prop_map(|(lane, due_in_ms)| Answer::Blocked { lane, due_in_ms }),
        1 => Just(Answer::Refused),
    ];
    prop_oneof![
        4 => joins,
        6 => (any::<usize>(), answer).prop_map(|(which, with)| Step::Answers { which, with }),
        1 => any::<usize>().prop_map(Step::Leaves),
        3 => Just(Step::Releases),
        3 => (0..3_000_u64).prop_map(Step::Passes),
    ]
}

/// A waiter as the test knows it.
#[derive(Clone, Debug)]
struct Known {
    priority: Priority,
    tenant: u8,
    tokens: u64,
    joined_ms: u64,
    ends_ms: u64,
    lane: u8,
    turn: Option<Turn>,
}

impl Known {
    fn class(&self, now_ms: u64) -> Priority {
        let waited_ms = now_ms - self.joined_ms;
        let halves = [4_000, 6_000, 7_000].iter().filter(|ms| waited_ms >= **ms).count();
        (0..halves).fold(self.priority, |class, _| class.next_higher())
    }
}

proptest! {
    #[test]
    fn whatever_happens_the_order_holds_and_nobody_is_forgotten(steps in prop::collection::vec(step(), 1..200)) {
        let mut line = Line::new(SETTINGS);
        let mut known: BTreeMap<Ticket, Known> = BTreeMap::new();
        let mut now_ms = 0;
        for step in steps {
            match step {
                Step::Joins { tenant: number, priority, tokens, lane: number_of_lane, due_in_ms, patience_ms } => {
                    let arrival = Arrival { tenant: tenant(number), priority, tokens, patience_ms };
                    let joined = line.join(arrival, blocked(lane(number_of_lane), now_ms + due_in_ms), now_ms);
                    let waiting: u64 = known.values().map(|waiter| waiter.tokens).sum();
                    let own = known.values().filter(|waiter| waiter.tenant == number).count();
                    let fits = known.len() < 8 && own < 6 && (known.is_empty() || waiting + tokens <= 1_000);
                    prop_assert_eq!(joined.is_ok(), fits);
                    if let Ok(ticket) = joined {
                        let ends_ms = now_ms + patience_ms.min(SETTINGS.timeout_ms);
                        known.insert(ticket, Known {
                            priority, tenant: number, tokens, joined_ms: now_ms, ends_ms, lane: number_of_lane, turn: None,
                        });
                    }
                }
                Step::Answers { which, with } => {
                    let asking: Vec<Ticket> =
                        known.iter().filter(|(_, waiter)| waiter.turn.is_some()).map(|(ticket, _)| *ticket).collect();
                    if asking.is_empty() {
                        continue;
                    }
                    let ticket = asking[which % asking.len()];
                    let is_last = matches!(known[&ticket].turn, Some(Turn::Last(_)));
                    match with {
                        Answer::Admitted => {
                            line.leave(ticket);
                            known.remove(&ticket);
                        }
                        Answer::Blocked { lane: number, due_in_ms } if !is_last => {
                            line.block(ticket, blocked(lane(number), now_ms + due_in_ms), now_ms);
                            let waiter = known.get_mut(&ticket).expect("known");
                            (waiter.lane, waiter.turn) = (number, None);
                        }
                        Answer::Blocked { .. } | Answer::Refused => {
                            line.leave(ticket);
                            known.remove(&ticket);
                        }
                    }
                }
                Step::Leaves(which) => {
                    if let Some(ticket) = known.keys().nth(which % known.len().max(1)).copied() {
                        line.leave(ticket);
                        known.remove(&ticket);
                    }
                }
                Step::Releases => release(&mut line),
                Step::Passes(ms) => now_ms += ms,
            }

            for (ticket, turn) in line.turns(now_ms) {
                let waiter = known[&ticket].clone();
                prop_assert!(waiter.turn.is_none(), "it has its turn already");
                if let Turn::Try(_) = turn {
                    prop_assert!(now_ms < waiter.ends_ms);
                    for (other_ticket, other) in known.iter().filter(|(_, other)| other.lane == waiter.lane) {
                        let asks = matches!(other.turn, Some(Turn::Try(_)));
                        prop_assert!(!asks, "two of one lane ask at once");
                        let waits = other.turn.is_none() && now_ms < other.ends_ms;
                        let order = |ticket: Ticket, waiter: &Known| (waiter.class(now_ms), std::cmp::Reverse(ticket));
                        if waits && *other_ticket != ticket {
                            prop_assert!(order(ticket, &waiter) > order(*other_ticket, other), "overtaken");
                        }
                    }
                }
                known.get_mut(&ticket).expect("known").turn = Some(turn);
            }
            for waiter in known.values() {
                prop_assert!(waiter.turn.is_some() || now_ms < waiter.ends_ms, "its wait is over, and it was not told");
            }
            // Whoever is next is called up when they are due, at the latest.
            let next_ms = line.next_ms(now_ms);
            let is_anybody_waiting = known.values().any(|waiter| waiter.turn.is_none());
            prop_assert_eq!(next_ms.is_some(), is_anybody_waiting);
            prop_assert!(next_ms.is_none_or(|next_ms| next_ms > now_ms), "somebody is due and was not called up");
            prop_assert_eq!(line.depth(), known.len());
            prop_assert_eq!(line.status(now_ms).waiting_tokens, known.values().map(|waiter| waiter.tokens).sum::<u64>());
        }
    }
}

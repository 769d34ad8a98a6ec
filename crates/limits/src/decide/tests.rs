use domain::periods::Period;

use super::*;
use crate::fixture::{World, amounts, gated, limit, on, ready, rehearsed};
use domain::limits::{Mode, Scope};

/// Fills `limit` with `filled` requests, then asks with each priority.
fn answers(limit: Limit, filled: usize) -> Vec<Option<(RefusalCode, Option<Gate>)>> {
    Priority::ALL
        .into_iter()
        .map(|priority| {
            let mut world = World::with_budgets(vec![on(Scope::Global, vec![limit.clone()])]);
            world.priority = Priority::Critical;
            let _holds = world.admit_all(filled);
            world.priority = priority;
            world.admit().err().map(|denial| (denial.code, denial.gate))
        })
        .collect()
}

#[test]
fn without_gates_every_priority_has_the_full_capacity() {
    for dimension in [Dimension::Requests, Dimension::Concurrency] {
        assert_eq!(answers(limit(dimension, 10), 9), [None; 4]);
    }
}

#[test]
fn whoever_has_waited_long_is_judged_higher_by_gates_and_by_nothing_else() {
    let own = Limit {
        priority: Some(Priority::Low),
        ..limit(Dimension::Requests, 1)
    };
    for rehearses in [false, true] {
        let mode = if rehearses { Mode::Rehearse } else { Mode::Enforce };
        let of_all = Limit {
            mode,
            ..gated(Dimension::Concurrency, 20)
        };
        let mut world = World::new(vec![on(Scope::Global, vec![of_all, own.clone()])]);
        world.priority = Priority::Critical;
        let _holds = world.admit_all(18);
        world.priority = Priority::Low;
        let is_free = |world: &World| {
            let answers = ready(world.limits.explain(&world.admission(), world.now)).1.answers;
            answers.iter().all(|answer| answer.refusal.is_none())
        };
        let has_room = |world: &mut World| world.admit().is_ok_and(|hold| hold.rehearsed().is_empty());
        assert!(!is_free(&world) && !has_room(&mut world));
        world.gate_priority = Some(Priority::Default);
        assert!(!is_free(&world) && !has_room(&mut world));
        world.gate_priority = Some(Priority::High);
        assert!(is_free(&world) && has_room(&mut world));
        let _its_own = world.admit().expect("room");
        let denial = world.refused();
        assert_eq!((denial.code, denial.limit_id), (RefusalCode::RateLimitExceeded, own.id));
    }
}

#[test]
fn gates_shed_low_from_70_percent_and_default_from_90() {
    let lower = Some((RefusalCode::PriorityGated, Some(Gate::Lower)));
    let upper = Some((RefusalCode::PriorityGated, Some(Gate::Upper { waits: false })));
    for dimension in [Dimension::Requests, Dimension::Concurrency] {
        let full = match dimension {
            Dimension::Requests => Some((RefusalCode::RateLimitExceeded, None)),
            _ => Some((RefusalCode::ConcurrencyLimitExceeded, None)),
        };
        assert_eq!(answers(gated(dimension, 10), 6), [None; 4]);
        assert_eq!(answers(gated(dimension, 10), 7), [lower, None, None, None]);
        assert_eq!(answers(gated(dimension, 10), 8), [lower, None, None, None]);
        assert_eq!(answers(gated(dimension, 10), 9), [upper, upper, None, None]);
        assert_eq!(answers(gated(dimension, 10), 10), [upper, upper, full, full]);
    }
    // 10 of 100 nano-units each.
    assert_eq!(answers(gated(Dimension::BudgetCost, 100), 6), [None; 4]);
    assert_eq!(answers(gated(Dimension::BudgetCost, 100), 7), [lower, None, None, None]);
    assert_eq!(
        answers(gated(Dimension::BudgetCost, 100), 9),
        [upper, upper, None, None]
    );
    // 200 of 2,000 tokens each, with a burst that does not stand in the way.
    let tokens = Limit {
        burst: Some(10_000),
        ..gated(Dimension::TotalTokens, 2_000)
    };
    assert_eq!(answers(tokens.clone(), 6), [None; 4]);
    assert_eq!(answers(tokens.clone(), 7), [lower, None, None, None]);
    assert_eq!(answers(tokens, 9), [upper, upper, None, None]);
}

#[test]
fn the_upper_gate_may_be_set_to_wait() {
    let mut limit = gated(Dimension::Requests, 10);
    let denied = |limit: Limit| {
        let mut world = World::new(vec![on(Scope::Global, vec![limit])]);
        world.priority = Priority::High;
        let _holds = world.admit_all(9);
        world.priority = Priority::Default;
        world.refused()
    };
    assert!(!denied(limit.clone()).may_wait());
    limit.gates = limit.gates.map(|gates| Gates {
        upper_waits: true,
        ..gates
    });
    assert!(denied(limit).may_wait());
}

#[test]
fn a_gate_opens_when_it_said() {
    let mut world = World::new(vec![on(Scope::Global, vec![gated(Dimension::Requests, 10)])]);
    world.priority = Priority::Default;
    let _first = world.admit_all(3);
    world.pass(10_000);
    let _second = world.admit_all(4);
    world.priority = Priority::Low;
    let wait_ms = world.refused().retry_after_ms.expect("a gate on a rate knows when");
    world.pass(wait_ms - 1);
    world.refused();
    world.pass(1);
    let _third = world.admit().expect("opened");
}

#[test]
fn a_spent_budget_is_told_before_its_gate() {
    let mut world = World::new(vec![on(Scope::Global, vec![gated(Dimension::BudgetCost, 100)])]);
    world.set_budgets(100, 1);
    world.priority = Priority::Low;
    assert_eq!(world.refused().code, RefusalCode::BudgetExhausted);
}

#[test]
fn zero_admits_nothing_in_any_dimension() {
    for dimension in Dimension::ALL {
        let mut world = World::with_budgets(vec![on(Scope::Global, vec![limit(dimension, 0)])]);
        world.estimate.ceiling.cost = domain::money::Nanos::ZERO;
        world.estimate.expected.cost = domain::money::Nanos::ZERO;
        let expected = match dimension {
            // The gateway's time-out.
            Dimension::RequestSeconds => None,
            Dimension::BudgetCost | Dimension::BudgetTokens => Some(RefusalCode::BudgetExhausted),
            _ => Some(RefusalCode::RequestTooLarge),
        };
        assert_eq!(world.admit().err().map(|denial| denial.code), expected, "{dimension}");
    }
}

#[test]
fn more_than_a_window_of_tokens_or_a_cap_is_too_large_and_never_healed() {
    let cases = [
        (Dimension::InputTokens, 99, true),
        (Dimension::InputTokens, 100, false),
        (Dimension::OutputTokens, 99, true),
        (Dimension::TotalTokens, 199, true),
        (Dimension::TotalTokens, 200, false),
        (Dimension::RequestInputTokens, 99, true),
        (Dimension::RequestInputTokens, 100, false),
        (Dimension::RequestOutputTokens, 499, true),
        (Dimension::RequestOutputTokens, 500, false),
        (Dimension::RequestSeconds, 1, false),
    ];
    for (dimension, value, is_too_large) in cases {
        let mut world = World::new(vec![on(Scope::Global, vec![limit(dimension, value)])]);
        // Caps look at the ceiling, rates at what is expected.
        world.estimate.ceiling = amounts(100, 500, 50);
        let denial = world.admit().err();
        let code = denial.as_ref().map(|denial| denial.code);
        assert_eq!(
            code,
            is_too_large.then_some(RefusalCode::RequestTooLarge),
            "{dimension} {value}"
        );
        assert_eq!(denial.and_then(|denial| denial.retry_after_ms), None);
    }
}

#[test]
fn a_request_without_output_passes_an_output_limit_in_debt() {
    let mut world = World::new(vec![on(Scope::Global, vec![limit(Dimension::OutputTokens, 100)])]);
    let _hold = world.admit().expect("room");
    assert_eq!(world.refused().code, RefusalCode::RateLimitExceeded);
    world.estimate.expected.output_tokens = 0;
    let _embedding = world.admit().expect("needs no output tokens");
}

#[test]
fn a_free_request_passes_a_spent_budget_of_money() {
    let mut world = World::new(vec![on(Scope::Global, vec![limit(Dimension::BudgetCost, 100)])]);
    world.set_budgets(500, 1);
    assert_eq!(world.refused().code, RefusalCode::BudgetExhausted);
    world.estimate.ceiling.cost = domain::money::Nanos::ZERO;
    let _free = world.admit().expect("an explicit price of zero");
}

#[test]
fn a_budget_says_whether_holds_or_spend_are_in_the_way() {
    let mut world = World::with_budgets(vec![on(Scope::Global, vec![limit(Dimension::BudgetCost, 25)])]);
    let holds = world.admit_all(2);
    let denial = world.refused();
    assert_eq!(denial.code, RefusalCode::BudgetHeld);
    assert!(denial.may_wait());
    assert_eq!(denial.retry_after_ms, Some(BUDGET_HELD_RETRY_MS));
    // They really cost one each: the room is back at once.
    for (hold, seq) in holds.into_iter().zip(1..) {
        world.settle(hold, amounts(1, 1, 1), seq);
    }
    let holds = world.admit_all(2);
    for (hold, seq) in holds.into_iter().zip(3..) {
        world.settle(hold, amounts(100, 100, 10), seq);
    }
    let denial = world.refused();
    assert_eq!(denial.code, RefusalCode::BudgetExhausted);
    assert!(!denial.may_wait());
    // 29 November, noon, to the first of December.
    assert_eq!(denial.retry_after_ms, Some(36 * 3_600_000));
}

#[test]
fn raising_a_held_budget_helps_at_once() {
    let scopes = |value| vec![on(Scope::Global, vec![limit(Dimension::BudgetCost, value)])];
    let mut world = World::with_budgets(scopes(10));
    let _holds = world.admit_all(1);
    world.refused();
    world.scopes = scopes(20);
    let _raised = world.admit().expect("the counter is kept, the value is new");
    assert_eq!(world.first(), (0, 20));
}

#[test]
fn a_rehearsed_limit_counts_and_refuses_nothing() {
    let mut world = World::new(vec![on(
        Scope::Global,
        vec![
            rehearsed(Dimension::Requests, 2),
            rehearsed(Dimension::Concurrency, 100),
        ],
    )]);
    let holds = world.admit_all(4);
    let verdicts: Vec<usize> = holds.iter().map(|hold| hold.rehearsed().len()).collect();
    assert_eq!(verdicts, [0, 0, 1, 1]);
    let verdict = &holds[3].rehearsed()[0];
    assert_eq!(verdict.code, RefusalCode::RateLimitExceeded);
    assert_eq!(verdict.dimension, Dimension::Requests);
    assert_eq!(world.first(), (4, 0));
}

#[test]
fn a_rehearsed_token_limit_recovers_within_a_window_however_far_it_was_passed() {
    let mut world = World::new(vec![on(Scope::Global, vec![rehearsed(Dimension::InputTokens, 600)])]);
    let _far = world.admit_all(100);
    world.pass(66_000);
    let hold = world.admit().expect("refuses nothing");
    assert!(hold.rehearsed().is_empty());
}

#[test]
fn a_rehearsal_share_judges_enforced_limits_at_a_part_of_their_value() {
    let budget = Limit {
        period: Period::Day,
        ..limit(Dimension::BudgetCost, 100)
    };
    let mut world = World::with_budgets(vec![on(
        Scope::Global,
        vec![
            limit(Dimension::Requests, 10),
            limit(Dimension::TotalTokens, 3_000),
            budget,
        ],
    )]);
    world.rehearsal_percent = Some(20);
    let mut verdicts = Vec::new();
    for _ in 0..5 {
        let hold = world.admit().expect("only rehearsed");
        verdicts.push(
            hold.rehearsed()
                .iter()
                .map(|verdict| verdict.dimension)
                .collect::<Vec<_>>(),
        );
        ready(hold.settle(amounts(100, 100, 10), Some(verdicts.len() as u64), world.now));
        world.pass(4_000);
    }
    let (requests, tokens, cost) = (Dimension::Requests, Dimension::TotalTokens, Dimension::BudgetCost);
    // A fifth: 2 requests, 600 tokens and 50 of burst, 20 of money.
    let expected = [
        vec![],
        vec![],
        vec![requests, cost],
        vec![requests, tokens, cost],
        vec![requests, tokens, cost],
    ];
    assert_eq!(verdicts, expected);
}

//! Breakers open with good reason, let a few requests try, and close again; no tenant shuts the door on another.

use domain::ids::{TenantId, UpstreamId};
use domain::instances::BreakerState;
use proptest::prelude::*;
use uuid::Uuid;

use super::{
    Breakers, COOLING_DEFAULT_MS, FAILED_PERCENT_MIN, FAILURES_IN_ROW, Failure, FailureKind, HELD_BACK_MS_MAX,
    HELD_BACK_MS_MIN, OPEN_MS, OUTCOMES_MAX, OUTCOMES_MIN, PROBES_MAX, Permit, Report, SUCCESSES_TO_CLOSE, Transition,
    WINDOW_MS,
};

const UPSTREAM: UpstreamId = UpstreamId(Uuid::from_u128(1));
const MODEL: &str = "model";
const GOOD: Report = Report::Answered;

fn tenant(number: u128) -> TenantId {
    TenantId(Uuid::from_u128(number))
}

fn failed(kind: FailureKind) -> Report {
    failed_until(kind, None)
}

fn failed_until(kind: FailureKind, retry_after_ms: Option<u64>) -> Report {
    Report::Failed(Failure { kind, retry_after_ms })
}

/// One upstream with one model, and the time.
#[derive(Default)]
struct World {
    breakers: Breakers,
    now_ms: u64,
    transitions: Vec<Transition>,
}

impl World {
    fn pass(&mut self, number: u128) -> Option<Permit> {
        let (permit, transitions) = self.breakers.pass(UPSTREAM, MODEL, tenant(number), self.now_ms).ok()?;
        self.transitions.extend(transitions);
        Some(permit)
    }

    fn report(&mut self, permit: &mut Permit, report: Report) {
        let transitions = permit.report(report, self.now_ms);
        self.transitions.extend(transitions);
    }

    /// One request after the other; whether it was let through.
    fn ask(&mut self, number: u128, report: Report) -> bool {
        let Some(mut permit) = self.pass(number) else {
            return false;
        };
        self.report(&mut permit, report);
        true
    }

    fn ask_often(&mut self, times: usize, number: u128, report: Report) {
        for _ in 0..times {
            assert!(self.ask(number, report));
        }
    }

    fn wait_ms(&self, number: u128) -> Option<u64> {
        let until = self.breakers.wait_until(UPSTREAM, MODEL, tenant(number), self.now_ms);
        until.map(|until| until - self.now_ms)
    }

    fn state(&self) -> BreakerState {
        self.breakers
            .held_back(self.now_ms)
            .iter()
            .find(|held| held.model.is_some())
            .map_or(BreakerState::Closed, |held| held.state)
    }

    fn states_seen(&self) -> Vec<BreakerState> {
        self.transitions.iter().map(|transition| transition.to).collect()
    }
}

fn open() -> World {
    let mut world = World::default();
    world.ask_often(FAILURES_IN_ROW, 1, failed(FailureKind::Unreached));
    assert_eq!(world.state(), BreakerState::Open);
    world
}

#[test]
fn opens_at_the_fifth_failure_in_a_row_and_not_before() {
    let mut world = World::default();
    world.ask_often(FAILURES_IN_ROW - 1, 1, failed(FailureKind::Status(500)));
    world.ask_often(1, 1, GOOD);
    world.ask_often(FAILURES_IN_ROW - 1, 1, failed(FailureKind::Silent));
    assert_eq!(world.wait_ms(1), None);
    world.ask_often(1, 1, failed(FailureKind::Broken));
    assert_eq!(world.wait_ms(1), Some(OPEN_MS));
    let [transition] = &world.transitions[..] else {
        panic!("{:?}", world.transitions);
    };
    assert_eq!(
        (transition.from, transition.to, transition.until_ms),
        (BreakerState::Closed, BreakerState::Open, Some(OPEN_MS))
    );
    assert_eq!(
        transition.reason.to_string(),
        "5 failures in a row, the last: the connection broke"
    );
}

#[test]
fn opens_on_a_share_of_failures_once_there_are_enough_outcomes() {
    let mut world = World::default();
    for number in 0..OUTCOMES_MIN - 1 {
        let report = if number % 2 == 0 {
            failed(FailureKind::Status(503))
        } else {
            GOOD
        };
        world.ask_often(1, (number / 2) as u128, report);
    }
    assert_eq!(world.state(), BreakerState::Closed);
    world.ask_often(1, 99, GOOD);
    // Looked at when something fails.
    world.ask_often(1, 98, failed(FailureKind::Status(503)));
    assert_eq!(world.state(), BreakerState::Open);
}

#[test]
fn old_failures_do_not_count() {
    let mut world = World::default();
    world.ask_often(FAILURES_IN_ROW - 1, 1, failed(FailureKind::Status(500)));
    world.now_ms += WINDOW_MS + 1;
    world.ask_often(1, 1, failed(FailureKind::Status(500)));
    assert_eq!(world.state(), BreakerState::Closed);
}

#[test]
fn what_the_caller_did_wrong_is_no_failure_and_hides_none() {
    let mut world = World::default();
    world.ask_often(100, 1, Report::Declined);
    assert_eq!(world.state(), BreakerState::Closed);
    for _ in 0..FAILURES_IN_ROW {
        world.ask_often(1, 1, failed(FailureKind::Status(500)));
        world.ask(1, Report::Declined);
    }
    assert_eq!(world.state(), BreakerState::Open);
}

#[test]
fn is_open_for_as_long_as_the_provider_asks_within_bounds() {
    for (asked_ms, open_ms) in [(7_000, 7_000), (0, HELD_BACK_MS_MIN), (u64::MAX, HELD_BACK_MS_MAX)] {
        let mut world = World::default();
        world.ask_often(FAILURES_IN_ROW - 1, 1, failed(FailureKind::Status(503)));
        world.ask_often(1, 1, failed_until(FailureKind::Status(503), Some(asked_ms)));
        assert_eq!(world.wait_ms(1), Some(open_ms));
    }
}

#[test]
fn a_few_probes_that_succeed_close_it() {
    let mut world = open();
    world.now_ms += OPEN_MS;
    let mut probes: Vec<Permit> = (0..PROBES_MAX).filter_map(|_| world.pass(1)).collect();
    assert_eq!(probes.len() as u32, PROBES_MAX);
    assert!(world.pass(1).is_none(), "one probe too many");
    for _ in 0..SUCCESSES_TO_CLOSE {
        assert_eq!(world.state(), BreakerState::HalfOpen);
        let mut probe = probes.pop().expect("a probe");
        world.report(&mut probe, GOOD);
    }
    assert_eq!(world.state(), BreakerState::Closed);
    assert_eq!(
        world.states_seen(),
        [BreakerState::Open, BreakerState::HalfOpen, BreakerState::Closed]
    );
    // The last probe has nothing to say any more.
    let mut late = probes.pop().expect("a probe");
    world.report(&mut late, failed(FailureKind::Status(500)));
    world.ask_often(FAILURES_IN_ROW - 1, 1, failed(FailureKind::Status(500)));
    assert_eq!(world.state(), BreakerState::Closed);
}

#[test]
fn one_failed_probe_opens_it_again() {
    let mut world = open();
    world.now_ms += OPEN_MS;
    world.ask_often(1, 1, GOOD);
    world.ask_often(1, 1, failed(FailureKind::Unreached));
    assert_eq!(world.wait_ms(1), Some(OPEN_MS));
    assert_eq!(world.wait_ms(2), Some(OPEN_MS));
}

#[test]
fn a_probe_that_never_reports_frees_its_place() {
    let mut world = open();
    world.now_ms += OPEN_MS;
    let probes: Vec<Permit> = (0..PROBES_MAX).filter_map(|_| world.pass(1)).collect();
    assert!(world.pass(1).is_none());
    drop(probes);
    assert!(world.ask(1, Report::Declined));
    assert!(world.pass(1).is_some());
    assert_eq!(world.state(), BreakerState::HalfOpen);
}

#[test]
fn a_429_cools_at_once_and_counts_once_for_all_that_were_under_way() {
    let mut world = World::default();
    let mut burst: Vec<Permit> = (0..20).filter_map(|_| world.pass(1)).collect();
    for permit in &mut burst {
        world.report(permit, failed_until(FailureKind::RateLimited, Some(3_000)));
    }
    assert_eq!((world.state(), world.wait_ms(2)), (BreakerState::Cooling, Some(3_000)));
    world.now_ms += 3_000;
    assert_eq!(world.state(), BreakerState::Closed);
    world.ask_often(1, 1, GOOD);
    assert_eq!(world.states_seen(), [BreakerState::Cooling, BreakerState::Closed]);

    // One after the other they count as failures.
    for _ in 0..FAILURES_IN_ROW {
        assert_ne!(world.state(), BreakerState::Open);
        world.ask_often(1, 1, failed(FailureKind::RateLimited));
        world.now_ms += COOLING_DEFAULT_MS;
    }
    assert_eq!(world.state(), BreakerState::Open);
}

#[test]
fn a_longer_wait_is_kept_when_a_shorter_one_comes() {
    let mut world = World::default();
    let mut first = world.pass(1).expect("closed");
    let mut second = world.pass(1).expect("closed");
    world.report(&mut first, failed_until(FailureKind::RateLimited, Some(30_000)));
    world.report(&mut second, failed_until(FailureKind::RateLimited, Some(2_000)));
    assert_eq!(world.wait_ms(1), Some(30_000));
}

#[test]
fn an_answer_that_breaks_off_is_a_failure_although_it_began_well() {
    let mut world = World::default();
    for _ in 0..FAILURES_IN_ROW {
        let mut permit = world.pass(1).expect("closed");
        world.report(&mut permit, GOOD);
        let transitions = permit.broke_off(FailureKind::Broken, world.now_ms);
        world.transitions.extend(transitions);
    }
    assert_eq!(world.state(), BreakerState::Open);

    world.now_ms += OPEN_MS;
    let mut probe = world.pass(1).expect("a probe");
    world.report(&mut probe, GOOD);
    let transitions = probe.broke_off(FailureKind::Silent, world.now_ms);
    assert_eq!(transitions.len(), 1);
    assert_eq!(world.state(), BreakerState::Open);
}

#[test]
fn a_refused_credential_opens_all_models_at_once() {
    let mut world = World::default();
    world.ask_often(1, 1, failed(FailureKind::Unauthorized));
    for number in [1, 2] {
        let until = world
            .breakers
            .wait_until(UPSTREAM, "another model", tenant(number), world.now_ms);
        assert_eq!(until, Some(OPEN_MS));
    }
    assert_eq!(world.transitions.len(), 1);
    assert_eq!(world.transitions[0].model, None);
    let elsewhere = UpstreamId(Uuid::from_u128(2));
    assert_eq!(world.breakers.wait_until(elsewhere, MODEL, tenant(1), 0), None);

    // Whoever reads a request has accepted the credential.
    world.now_ms += OPEN_MS;
    world.ask_often(1, 1, Report::Declined);
    assert_eq!(world.states_seen().last(), Some(&BreakerState::Closed));
    assert!(world.breakers.held_back(world.now_ms).is_empty());

    world.ask_often(1, 1, failed(FailureKind::Unauthorized));
    world.breakers.forget(UPSTREAM);
    assert_eq!(world.wait_ms(1), None);
}

#[test]
fn a_403_of_one_tenant_does_not_close_the_door_for_others() {
    let mut world = World::default();
    world.ask_often(1, 2, GOOD);
    world.ask_often(10, 1, failed(FailureKind::Forbidden));
    assert_eq!(world.wait_ms(1), None);

    let mut world = World::default();
    world.ask_often(1, 1, failed(FailureKind::Forbidden));
    assert_eq!(world.wait_ms(1), Some(OPEN_MS));
    // Nobody else has said so yet.
    world.ask_often(1, 2, failed(FailureKind::Forbidden));
    assert_eq!(world.wait_ms(3), Some(OPEN_MS));
}

#[test]
fn one_tenants_failures_do_not_open_it_while_others_succeed() {
    let mut world = World::default();
    world.ask_often(1, 2, GOOD);
    world.ask_often(OUTCOMES_MAX - 1, 1, failed(FailureKind::Status(500)));
    assert_eq!((world.wait_ms(1), world.wait_ms(2)), (None, None));
}

#[test]
fn what_no_request_can_cause_opens_it_whoever_met_it() {
    let mut world = World::default();
    world.ask_often(10, 2, GOOD);
    world.ask_often(FAILURES_IN_ROW, 1, failed(FailureKind::Unreached));
    assert_eq!(world.wait_ms(2), Some(OPEN_MS));
}

#[test]
fn a_tenant_alone_opens_it_for_itself_and_a_second_one_for_all() {
    let mut world = World::default();
    world.ask_often(FAILURES_IN_ROW, 1, failed(FailureKind::Status(500)));
    assert_eq!((world.wait_ms(1), world.wait_ms(2)), (Some(OPEN_MS), None));

    world.now_ms += 10_000;
    world.ask_often(1, 2, failed(FailureKind::Status(500)));
    assert_eq!((world.wait_ms(2), world.wait_ms(3)), (Some(OPEN_MS), Some(OPEN_MS)));
}

#[test]
fn whoever_fails_late_is_believed_too() {
    let mut world = open();
    world.now_ms += OPEN_MS;
    let mut of_one = world.pass(1).expect("a probe");
    let mut of_another = world.pass(2).expect("a probe");
    world.report(&mut of_one, failed(FailureKind::Silent));
    assert_eq!(world.wait_ms(3), None);
    world.report(&mut of_another, failed(FailureKind::Silent));
    assert_eq!(world.wait_ms(3), Some(OPEN_MS));
}

#[test]
fn a_tenant_that_is_served_closes_what_another_has_opened_alone() {
    let mut world = World::default();
    world.ask_often(FAILURES_IN_ROW, 1, failed(FailureKind::Status(500)));
    world.ask_often(1, 2, GOOD);
    assert_eq!(world.state(), BreakerState::HalfOpen);
    assert!(world.wait_ms(1).is_some(), "who opened it does not try at once");
    world.ask_often(1, 2, GOOD);
    assert_eq!(world.state(), BreakerState::Closed);
}

#[test]
fn a_tenants_bad_probes_do_not_keep_the_others_out() {
    let mut world = open();
    for _ in 0..3 {
        world.now_ms += OPEN_MS;
        world.ask_often(1, 1, failed(FailureKind::Status(500)));
        assert_eq!((world.wait_ms(1), world.wait_ms(2)), (Some(OPEN_MS), None));
    }
    world.ask_often(SUCCESSES_TO_CLOSE as usize, 2, GOOD);
    assert_eq!(world.state(), BreakerState::Closed);
}

#[test]
fn only_so_many_doors_are_remembered_and_the_open_ones_longest() {
    let mut world = open();
    for number in 0..2 * super::MODELS_MAX {
        world.now_ms += 1;
        let passed = world
            .breakers
            .pass(UPSTREAM, &format!("model {number}"), tenant(1), world.now_ms);
        assert!(passed.is_ok());
    }
    for number in 0..2 * super::UPSTREAMS_MAX {
        world.now_ms += 1;
        let upstream = UpstreamId(Uuid::from_u128(100 + number as u128));
        assert!(world.breakers.pass(upstream, MODEL, tenant(1), world.now_ms).is_ok());
    }
    let inner = world.breakers.0.lock();
    assert_eq!(inner.upstreams.len(), super::UPSTREAMS_MAX);
    assert_eq!(inner.upstreams[&UPSTREAM].models.len(), super::MODELS_MAX);
    drop(inner);
    assert!(world.wait_ms(1).is_some(), "what is open is forgotten last");
}

/// What may happen.
#[derive(Clone, Copy, Debug)]
enum Step {
    Pass(u128),
    Report(usize, u8),
    Drop(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4_u128).prop_map(Step::Pass),
        4 => (any::<usize>(), 0..8_u8).prop_map(|(which, how)| Step::Report(which, how)),
        1 => any::<usize>().prop_map(Step::Drop),
        1 => (0..90_000_u64).prop_map(Step::Wait),
    ]
}

fn report_of(how: u8) -> Report {
    match how {
        0..=2 => GOOD,
        3 => Report::Declined,
        4 => failed(FailureKind::Unreached),
        5 => failed(FailureKind::Status(500)),
        6 => failed(FailureKind::Silent),
        _ => failed_until(FailureKind::RateLimited, Some(2_000)),
    }
}

proptest! {
    /// Never more probes than may be; never open without failures enough; never shut past its time.
    #[test]
    fn whatever_happens(steps in prop::collection::vec(step(), 0..400)) {
        let mut world = World::default();
        let mut under_way: Vec<(Permit, u128, bool)> = Vec::new();
        // What a reader of the log would count since it was last opened.
        let mut outcomes: Vec<bool> = Vec::new();
        for step in steps {
            let seen = world.transitions.len();
            match step {
                Step::Pass(number) => {
                    let waits = world.wait_ms(number).is_some();
                    let permit = world.pass(number);
                    prop_assert_eq!(permit.is_none(), waits);
                    let is_probe = world.state() == BreakerState::HalfOpen;
                    under_way.extend(permit.map(|permit| (permit, number, is_probe)));
                }
                Step::Report(which, how) if !under_way.is_empty() => {
                    let (mut permit, ..) = under_way.swap_remove(which % under_way.len());
                    let report = report_of(how);
                    if report != Report::Declined {
                        outcomes.push(report != GOOD);
                    }
                    world.report(&mut permit, report);
                }
                Step::Drop(which) if !under_way.is_empty() => {
                    drop(under_way.swap_remove(which % under_way.len()));
                }
                Step::Wait(ms) => world.now_ms += ms,
                Step::Report(..) | Step::Drop(_) => {}
            }
            let probes = under_way.iter().filter(|(_, _, is_probe)| *is_probe).count();
            prop_assert!(probes <= PROBES_MAX as usize, "{} probes", probes);
            for transition in &world.transitions[seen..] {
                match (transition.from, transition.to) {
                    (BreakerState::Closed, BreakerState::Open) => {
                        let row = outcomes.iter().rev().take_while(|is_failure| **is_failure).count();
                        let failures = outcomes.iter().filter(|is_failure| **is_failure).count();
                        let least = (OUTCOMES_MIN * FAILED_PERCENT_MIN).div_ceil(100);
                        prop_assert!(row >= FAILURES_IN_ROW || failures >= least, "{:?}", outcomes);
                        outcomes.clear();
                    }
                    (BreakerState::HalfOpen, BreakerState::Open) => {
                        prop_assert_eq!(outcomes.last(), Some(&true));
                        outcomes.clear();
                    }
                    _ => {}
                }
            }
        }
        drop(under_way);
        world.now_ms += HELD_BACK_MS_MAX;
        for number in 0..4 {
            prop_assert_eq!(world.wait_ms(number), None);
        }
        world.ask_often(SUCCESSES_TO_CLOSE as usize, 1, GOOD);
        prop_assert_eq!(world.state(), BreakerState::Closed);
    }

    /// However one tenant's requests fail and are mixed with the others', whom the provider serves.
    #[test]
    fn one_tenant_never_closes_the_door_for_the_others(
        steps in prop::collection::vec((0..10_u128, 0..5_u8, 0..20_000_u64), 0..400),
    ) {
        let mut world = World::default();
        for (number, how, waited_ms) in steps {
            world.now_ms += waited_ms;
            if number < 7 {
                let kind = [
                    FailureKind::Status(500),
                    FailureKind::Silent,
                    FailureKind::Broken,
                    FailureKind::Forbidden,
                    FailureKind::ErrorInAnswer,
                ][usize::from(how)];
                world.ask(1, failed(kind));
            } else {
                prop_assert!(world.ask(number, GOOD), "tenant {} is kept out", number);
            }
        }
    }

    /// With a success of another among the latest outcomes, one tenant's failures change nothing.
    #[test]
    fn one_tenants_failures_never_open_it_while_others_succeed(
        rounds in prop::collection::vec((0..OUTCOMES_MAX - 1, 2..9_u128, 0..WINDOW_MS), 1..6),
    ) {
        let mut world = World::default();
        for (failures, number, waited_ms) in rounds {
            world.now_ms += waited_ms;
            world.ask_often(1, number, GOOD);
            world.ask_often(failures, 1, failed(FailureKind::Status(500)));
        }
        prop_assert_eq!(world.transitions, []);
    }
}

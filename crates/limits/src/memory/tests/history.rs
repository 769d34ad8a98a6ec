//! Random histories, compared step by step with a model that keeps every request for ever and counts from scratch.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use domain::estimate::{Amounts, Estimate};
use domain::ids::RequestId;
use domain::limits::{Dimension, Limit, Scope};
use domain::periods::Period;
use domain::priority::Priority;
use domain::readings::Reading;
use domain::refusals::RefusalCode;
use proptest::prelude::*;
use uuid::Uuid;

use crate::admission::{amount_of, need_of};
use crate::fixture::{amounts, at, gated, key, limit, on, ready, set_budget, tenant, upstream};
use crate::{Admission, BudgetKey, Denial, Hold, Limits, Now, ScopeLimits, Settings, UpstreamCandidate};

const SETTINGS: Settings = Settings {
    lease_ms: 60_000,
    orphan_ms: 600_000,
};
const KEYS: u128 = 3;
const CELL_MS: u64 = 3_000;
const WINDOW_MS: u64 = 60_000;

#[derive(Clone, Debug)]
enum Step {
    Admit {
        key: u128,
        priority: usize,
        raised: usize,
        input: u64,
        output: u64,
        ceiling_factor: u64,
        is_reversed: bool,
    },
    Sent(prop::sample::Index),
    Settle(prop::sample::Index, u64),
    Refund(prop::sample::Index),
    Drop(prop::sample::Index),
    Lose(prop::sample::Index),
    Renew(prop::sample::Index),
    Switch(prop::sample::Index, u128),
    Pass(u64),
    Reread,
    Sweep,
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        12 => (0..KEYS, 0_usize..4, raised(), 0_u64..150, 0_u64..150, 1_u64..4, any::<bool>()).prop_map(
            |(key, priority, raised, input, output, ceiling_factor, is_reversed)| Step::Admit {
                key, priority, raised, input, output, ceiling_factor, is_reversed,
            }
        ),
        3 => index().prop_map(Step::Sent),
        5 => (index(), 0_u64..=100).prop_map(|(index, percent)| Step::Settle(index, percent)),
        1 => index().prop_map(Step::Refund),
        1 => index().prop_map(Step::Drop),
        1 => index().prop_map(Step::Lose),
        2 => index().prop_map(Step::Renew),
        2 => (index(), 1_u128..=2).prop_map(|(index, to)| Step::Switch(index, to)),
        6 => (0_u64..9_000).prop_map(Step::Pass),
        1 => (0_u64..1_500_000).prop_map(Step::Pass),
        1 => Just(Step::Reread),
        1 => Just(Step::Sweep),
    ]
}

/// How many classes higher than its priority a request is judged by gates: most have not waited.
fn raised() -> impl Strategy<Value = usize> {
    prop_oneof![3 => Just(0), 1 => 1_usize..4]
}

fn limits_of(scope: &Scope) -> Vec<Limit> {
    let hourly = |limit: Limit| Limit {
        period: Period::Hour,
        ..limit
    };
    let burst = |burst: u64, limit: Limit| Limit {
        burst: Some(burst),
        ..limit
    };
    match scope {
        Scope::Global => vec![
            gated(Dimension::Requests, 14),
            burst(400, gated(Dimension::TotalTokens, 3_000)),
            limit(Dimension::Concurrency, 7),
        ],
        Scope::Tenant(_) => vec![
            hourly(limit(Dimension::BudgetCost, 1_500)),
            hourly(gated(Dimension::BudgetTokens, 9_000)),
            limit(Dimension::InputTokens, 1_000),
        ],
        Scope::Key(_) => vec![
            limit(Dimension::Requests, 6),
            limit(Dimension::Concurrency, 4),
            burst(200, limit(Dimension::OutputTokens, 500)),
            Limit {
                priority: Some(Priority::Low),
                ..limit(Dimension::Requests, 2)
            },
            limit(Dimension::RequestOutputTokens, 400),
        ],
        _ => vec![
            limit(Dimension::Requests, 9),
            limit(Dimension::Concurrency, 3),
            burst(300, limit(Dimension::TotalTokens, 2_000)),
        ],
    }
}

fn node(scope: Scope) -> ScopeLimits {
    let limits = limits_of(&scope);
    on(scope, limits)
}

/// Key 0 belongs to the first tenant, the others to the second.
fn tree_of(number: u128) -> Vec<ScopeLimits> {
    vec![node(Scope::Global), node(tenant(number.min(1))), node(key(number))]
}

/// Milliseconds, and what came first within one.
type When = (u64, usize);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Open,
    Settled { actual: Amounts, at: When, seq: u64 },
    GivenBack { at: When, keeps_request: bool },
}

/// What one request took from some scopes.
#[derive(Clone, Debug)]
struct Part {
    id: RequestId,
    scopes: Vec<Scope>,
    priority: Priority,
    gate_priority: Priority,
    estimate: Estimate,
    at: When,
    admitted_at: DateTime<Utc>,
    expires_ms: u64,
    is_sent: bool,
    ending: Ending,
}

impl Part {
    fn stands(&self, dimension: Dimension) -> u64 {
        match self.ending {
            Ending::Open => need_of(dimension, &self.estimate),
            Ending::Settled { actual, .. } => amount_of(dimension, &actual),
            Ending::GivenBack { keeps_request, .. } => u64::from(keeps_request && dimension == Dimension::Requests),
        }
    }
}

#[derive(Default)]
struct Plain {
    parts: Vec<Part>,
}

impl Plain {
    fn counted<'a>(&'a self, scope: &'a Scope, limit: &'a Limit) -> impl Iterator<Item = &'a Part> {
        self.parts
            .iter()
            .filter(move |part| part.scopes.contains(scope) && limit.applies_to("m", part.priority))
    }

    fn used_and_held(&self, scope: &Scope, limit: &Limit, now: Now) -> (u64, u64) {
        let parts = || self.counted(scope, limit);
        let now_ms = now.monotonic_ms;
        if limit.dimension.is_rate() {
            let used = parts()
                .filter(|part| part.at.0 / CELL_MS + 20 >= now_ms / CELL_MS)
                .map(|part| part.stands(limit.dimension))
                .sum();
            return (used, 0);
        }
        let open = |part: &&Part| part.ending == Ending::Open;
        if limit.dimension == Dimension::Concurrency {
            let in_flight = parts().filter(open).filter(|part| now_ms < part.expires_ms).count();
            return (0, in_flight as u64);
        }
        if !limit.dimension.is_budget() {
            return (0, 0);
        }
        let span = limit.period.span(now.wall, Tz::UTC);
        let of_period = || parts().filter(|part| span.contains(part.admitted_at));
        let spent = of_period()
            .filter(|part| matches!(part.ending, Ending::Settled { .. }))
            .map(|part| part.stands(limit.dimension))
            .sum();
        let held = of_period()
            .filter(open)
            .filter(|part| now_ms < part.expires_ms + SETTINGS.orphan_ms)
            .map(|part| part.stands(limit.dimension))
            .sum();
        (spent, held)
    }

    /// The bucket, replayed from its first request.
    fn bucket_level(&self, scope: &Scope, limit: &Limit, now: Now) -> i128 {
        let window_ms = i128::from(WINDOW_MS);
        let capacity = i128::from(limit.burst_tokens()) * window_ms;
        let mut events: Vec<(When, i128)> = Vec::new();
        for part in self.counted(scope, limit) {
            let expected = i128::from(need_of(limit.dimension, &part.estimate));
            events.push((part.at, -expected));
            match part.ending {
                Ending::Open => {}
                Ending::Settled { actual, at, .. } => {
                    let actual = i128::from(amount_of(limit.dimension, &actual));
                    events.push((at, expected - actual));
                }
                Ending::GivenBack { at, .. } => events.push((at, expected)),
            }
        }
        events.push(((now.monotonic_ms, usize::MAX), 0));
        events.sort_by_key(|(at, _)| *at);
        let mut level = capacity;
        let mut last_ms = events[0].0.0;
        for ((at_ms, _), tokens) in events {
            level = (level + i128::from(at_ms - last_ms) * i128::from(limit.value)).min(capacity);
            level = (level + tokens * window_ms).min(capacity);
            last_ms = at_ms;
        }
        level
    }

    fn has_room(&self, node: &ScopeLimits, admission: &Admission<'_>, now: Now) -> bool {
        node.limits
            .iter()
            .filter(|limit| limit.applies_to("m", admission.priority))
            .all(|limit| {
                let need = need_of(limit.dimension, &admission.estimate);
                let (used, held) = self.used_and_held(&node.scope, limit, now);
                if let Some(gates) = limit.gates {
                    let threshold = match admission.gate_priority {
                        Priority::Low => gates.lower_percent,
                        Priority::Default => gates.upper_percent,
                        _ => u8::MAX,
                    };
                    if (used + held) * 100 >= limit.value * u64::from(threshold) && threshold < u8::MAX {
                        return false;
                    }
                }
                match limit.dimension {
                    Dimension::Requests => used < limit.value,
                    Dimension::Concurrency => held < limit.value,
                    Dimension::BudgetTokens | Dimension::BudgetCost => need == 0 || used + held + need <= limit.value,
                    Dimension::RequestInputTokens | Dimension::RequestOutputTokens => need <= limit.value,
                    Dimension::RequestSeconds => true,
                    Dimension::InputTokens | Dimension::OutputTokens | Dimension::TotalTokens => {
                        let threshold = i128::from(need.min(limit.burst_tokens())) * i128::from(WINDOW_MS);
                        need == 0
                            || (need <= limit.value
                                && self.bucket_level(&node.scope, limit, now) >= threshold
                                && used < limit.value + limit.burst_tokens())
                    }
                }
            })
    }
}

struct Run {
    limits: Limits,
    now: Now,
    plain: Plain,
    /// Open holds, each with the numbers of its two parts.
    holds: Vec<(Hold, usize, usize)>,
    lost: u64,
    next_id: u128,
    seq: u64,
    order: usize,
}

impl Run {
    fn new() -> Self {
        Self {
            limits: Limits::memory(SETTINGS),
            now: Now {
                monotonic_ms: 7_777,
                wall: at("2026-11-30T21:47:11Z"),
            },
            plain: Plain::default(),
            holds: Vec::new(),
            lost: 0,
            next_id: 0,
            seq: 0,
            order: 0,
        }
    }

    fn all_nodes(&self) -> Vec<ScopeLimits> {
        let keys = (0..KEYS).map(key);
        [Scope::Global, tenant(0), tenant(1)]
            .into_iter()
            .chain(keys)
            .chain([upstream(1), upstream(2)])
            .map(node)
            .collect()
    }

    fn peek(&self) -> Vec<Reading> {
        ready(self.limits.peek(&self.all_nodes(), None, None, Tz::UTC, self.now))
    }

    /// What the gateway does about a closed budget: sums up the ledger and asks again.
    fn set_base(&self, budget: &BudgetKey) {
        let settled = self.plain.parts.iter().filter_map(|part| match part.ending {
            Ending::Settled { actual, seq, .. } => Some((part, actual, seq)),
            _ => None,
        });
        let (mut spent, mut mark) = (0, 0);
        for (part, actual, seq) in settled {
            mark = mark.max(seq);
            if part.scopes.contains(&budget.scope) && budget.span.contains(part.admitted_at) {
                spent += i64::try_from(amount_of(budget.dimension, &actual)).unwrap();
            }
        }
        ready(set_budget(&self.limits, budget, spent, mark, self.now));
    }

    fn admit(&mut self, admission: &Admission<'_>) -> Result<Hold, Box<Denial>> {
        let first = ready(self.limits.admit(admission, self.now));
        let Err(denial) = first else { return first };
        if denial.code != RefusalCode::BudgetUnknown && denial.unknown_budgets.is_empty() {
            return Err(denial);
        }
        for budget in &denial.unknown_budgets {
            self.set_base(budget);
        }
        ready(self.limits.admit(admission, self.now))
    }

    fn part(&self, admission: &Admission<'_>, scopes: Vec<Scope>) -> Part {
        Part {
            id: admission.id,
            scopes,
            priority: admission.priority,
            gate_priority: admission.gate_priority,
            estimate: admission.estimate,
            at: (self.now.monotonic_ms, self.order),
            admitted_at: self.now.wall,
            expires_ms: self.now.monotonic_ms + SETTINGS.lease_ms,
            is_sent: false,
            ending: Ending::Open,
        }
    }

    fn take(&mut self, index: &prop::sample::Index) -> Option<(Hold, usize, usize)> {
        (!self.holds.is_empty()).then(|| self.holds.swap_remove(index.index(self.holds.len())))
    }

    fn give_back(&mut self, part: usize) {
        let part = &mut self.plain.parts[part];
        part.ending = Ending::GivenBack {
            at: (self.now.monotonic_ms, self.order),
            keeps_request: part.is_sent,
        };
    }

    fn run(&mut self, step: Step) -> Result<(), TestCaseError> {
        self.order += 1;
        match step {
            Step::Admit {
                key: number,
                priority,
                raised,
                input,
                output,
                ceiling_factor,
                is_reversed,
            } => {
                self.next_id += 1;
                let cost = i64::try_from(input + output).unwrap();
                let estimate = Estimate {
                    expected: amounts(input, output, cost),
                    ceiling: amounts(
                        input * ceiling_factor,
                        output * ceiling_factor,
                        cost * ceiling_factor.cast_signed(),
                    ),
                };
                let scopes = tree_of(number);
                let order = if is_reversed { [2, 1] } else { [1, 2] };
                let upstreams = order.map(|index| UpstreamCandidate {
                    scope: node(upstream(index)),
                    index: index as usize,
                });
                let admission = Admission {
                    id: RequestId(Uuid::from_u128(self.next_id)),
                    model: "m",
                    priority: Priority::ALL[priority],
                    gate_priority: Priority::ALL[(priority + raised).min(3)],
                    estimate,
                    scopes: &scopes,
                    upstreams: &upstreams,
                    time_zone: Tz::UTC,
                    rehearsal_percent: (number == 0).then_some(20),
                };
                let has_room = |of: &ScopeLimits| self.plain.has_room(of, &admission, self.now);
                let chosen = scopes
                    .iter()
                    .all(has_room)
                    .then(|| upstreams.iter().find(|candidate| has_room(&candidate.scope)))
                    .flatten();
                let before = self.peek();
                match self.admit(&admission) {
                    Ok(hold) => {
                        prop_assert_eq!(hold.upstream(), chosen.map(|candidate| candidate.index));
                        let index = hold.upstream().unwrap() as u128;
                        let tree = self.part(&admission, scopes.iter().map(|of| of.scope.clone()).collect());
                        let account = self.part(&admission, vec![upstream(index)]);
                        self.plain.parts.extend([tree, account]);
                        let parts = self.plain.parts.len();
                        self.holds.push((hold, parts - 2, parts - 1));
                    }
                    Err(denial) => {
                        prop_assert!(chosen.is_none(), "refused, but there was room: {:?}", denial);
                        let counters = |readings: &[Reading]| -> Vec<_> {
                            // A budget may have been read in between: its sums are the same, and known now.
                            readings
                                .iter()
                                .map(|r| (r.used, r.held, r.reset_ms, r.remaining))
                                .collect()
                        };
                        if denial.unknown_budgets.is_empty() && before.iter().all(|reading| reading.is_known) {
                            prop_assert_eq!(counters(&before), counters(&self.peek()));
                        }
                    }
                }
            }
            Step::Sent(index) => {
                if let Some((mut hold, tree, account)) = self.take(&index) {
                    hold.mark_sent();
                    self.plain.parts[tree].is_sent = true;
                    self.plain.parts[account].is_sent = true;
                    self.holds.push((hold, tree, account));
                }
            }
            Step::Settle(index, percent) => {
                if let Some((hold, tree, account)) = self.take(&index) {
                    let expected = self.plain.parts[tree].estimate.expected;
                    let share = |amount: u64| amount * percent / 100;
                    let cost = share(expected.cost.0.cast_unsigned()).cast_signed();
                    let actual = amounts(share(expected.input_tokens), share(expected.output_tokens), cost);
                    self.seq += 1;
                    ready(hold.settle(actual, Some(self.seq), self.now));
                    for part in [tree, account] {
                        self.plain.parts[part].ending = Ending::Settled {
                            actual,
                            at: (self.now.monotonic_ms, self.order),
                            seq: self.seq,
                        };
                    }
                }
            }
            Step::Refund(index) | Step::Drop(index) => {
                if let Some((hold, tree, account)) = self.take(&index) {
                    self.give_back(tree);
                    self.give_back(account);
                    ready(hold.refund(self.now));
                }
            }
            Step::Lose(index) => {
                if let Some((hold, ..)) = self.take(&index) {
                    std::mem::forget(hold);
                    self.lost += 1;
                }
            }
            Step::Renew(index) => {
                if let Some((hold, tree, account)) = self.take(&index) {
                    ready(hold.renew(self.now));
                    for part in [tree, account] {
                        self.plain.parts[part].expires_ms = self.now.monotonic_ms + SETTINGS.lease_ms;
                    }
                    self.holds.push((hold, tree, account));
                }
            }
            Step::Switch(index, to) => {
                if let Some((mut hold, tree, account)) = self.take(&index) {
                    let upstreams = [UpstreamCandidate {
                        scope: node(upstream(to)),
                        index: to as usize,
                    }];
                    let part = &self.plain.parts[tree];
                    let admission = Admission {
                        id: part.id,
                        model: "m",
                        priority: part.priority,
                        gate_priority: part.gate_priority,
                        estimate: part.estimate,
                        scopes: &[],
                        upstreams: &upstreams,
                        time_zone: Tz::UTC,
                        rehearsal_percent: None,
                    };
                    let old = self.plain.parts[account].ending;
                    let is_same = self.plain.parts[account].scopes[0] == upstream(to);
                    if is_same {
                        self.give_back(account);
                    }
                    let has_room = self.plain.has_room(&upstreams[0].scope, &admission, self.now);
                    self.plain.parts[account].ending = old;
                    let switched = ready(self.limits.switch_upstream(&mut hold, &admission, self.now));
                    prop_assert_eq!(switched.is_ok(), has_room);
                    let account = if has_room {
                        self.give_back(account);
                        self.order += 1;
                        let part = self.part(&admission, vec![upstream(to)]);
                        self.plain.parts.push(part);
                        self.plain.parts.len() - 1
                    } else {
                        account
                    };
                    self.holds.push((hold, tree, account));
                }
            }
            Step::Pass(ms) => {
                self.now.monotonic_ms += ms;
                self.now.wall += chrono::Duration::milliseconds(ms.cast_signed());
            }
            Step::Reread => {
                for budget in ready(self.limits.budgets(self.now)) {
                    self.set_base(&budget);
                }
            }
            Step::Sweep => {
                for _ in 0..Limits::SWEEPS_PER_ROUND {
                    self.limits.sweep(self.now);
                }
            }
        }
        self.check_counters()
    }

    fn check_counters(&self) -> Result<(), TestCaseError> {
        let mut readings = self.peek().into_iter();
        for of in self.all_nodes() {
            for limit in of.limits.iter() {
                let reading = readings.next().unwrap();
                if !reading.is_known {
                    continue;
                }
                let (used, held) = self.plain.used_and_held(&of.scope, limit, self.now);
                prop_assert_eq!(
                    (reading.used, reading.held),
                    (used.cast_signed(), held),
                    "{} {}",
                    of.scope,
                    limit.dimension
                );
                if limit.dimension.is_budget() {
                    prop_assert!(used <= limit.value, "settlements here never exceed what was held");
                }
            }
        }
        prop_assert_eq!(self.limits.open_holds(), self.holds.len() as u64 + self.lost);
        Ok(())
    }

    /// No window of the whole history passed a rate.
    fn check_windows(&self) -> Result<(), TestCaseError> {
        for of in self.all_nodes() {
            for limit in of.limits.iter().filter(|limit| limit.dimension.is_rate()) {
                let parts: Vec<&Part> = self.plain.counted(&of.scope, limit).collect();
                for last in &parts {
                    let within = |part: &&&Part| part.at <= last.at && part.at.0 + WINDOW_MS > last.at.0;
                    let counted: u64 = parts
                        .iter()
                        .filter(within)
                        .map(|part| part.stands(limit.dimension))
                        .sum();
                    let bound = match limit.dimension {
                        Dimension::Requests => limit.value,
                        _ => limit.value + limit.burst_tokens() + 300,
                    };
                    prop_assert!(counted <= bound, "{} {} {}", of.scope, limit.dimension, counted);
                }
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_and_counter_is_that_of_a_plain_list(steps in prop::collection::vec(step(), 1..150)) {
        let mut run = Run::new();
        for step in steps {
            run.run(step)?;
        }
        run.check_windows()?;
        // Every hold ends: only lost ones are left, and those expire.
        let open: Vec<_> = run.holds.drain(..).collect();
        for (hold, tree, account) in open {
            drop(hold);
            run.give_back(tree);
            run.give_back(account);
        }
        run.check_counters()?;
        prop_assert_eq!(run.limits.open_holds(), run.lost);
        run.now.monotonic_ms += SETTINGS.lease_ms + SETTINGS.orphan_ms;
        prop_assert!(run.peek().iter().all(|reading| reading.held == 0));
    }
}

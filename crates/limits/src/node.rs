//! One scope's counters, and what one request would take from them.

use std::sync::Arc;

use domain::estimate::Amounts;
use domain::ledger::{RehearsedVerdict, ScopeCheck};
use domain::limits::{Dimension, Limit, Mode, Scope};
use domain::periods::Span;
use domain::refusals::RefusalCode;
use parking_lot::{Mutex, MutexGuard};

use crate::admission::need_of;
use crate::budget::Budget;
use crate::counter::{Counter, Kind, Taken};
use crate::decide::{Refusal, check, check_share};
use crate::hold::Request;
use crate::reading::Usage;
use crate::told::Told;
use crate::{Admission, BudgetKey, Now, ScopeLimits, Settings};

pub(crate) type SharedNode = Arc<Mutex<Node>>;

/// The counters of one scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) counters: Vec<Counter>,
    next_serial: u64,
    /// When everything counts as used up, if it does.
    drained_ms: Option<u64>,
}

impl Node {
    pub(crate) fn new(drained_ms: Option<u64>) -> Self {
        Self {
            drained_ms,
            ..Self::default()
        }
    }

    pub(crate) fn find(&self, limit: &Limit) -> Option<usize> {
        self.counters.iter().position(|counter| counter.is_for(limit))
    }

    /// The counter of the limit's slot, made where there is none; `None` for caps on single requests.
    pub(crate) fn find_or_add(&mut self, limit: &Limit, span: impl FnOnce() -> Span, now: Now) -> Option<usize> {
        if let Some(index) = self.find(limit) {
            return Some(index);
        }
        let mut counter = Counter::new(self.next_serial, limit, span, now)?;
        if let Some(drained_ms) = self.drained_ms {
            counter.drain(limit, drained_ms, now);
        }
        self.next_serial += 1;
        self.counters.push(counter);
        Some(self.counters.len() - 1)
    }

    /// A counter that another place has counted.
    pub(crate) fn add(&mut self, limit: &Limit, kind: Kind, told: Option<Told>, now: Now) {
        self.counters
            .push(Counter::counted(self.next_serial, limit, kind, told, now));
        self.next_serial += 1;
    }

    pub(crate) fn by_serial(&mut self, serial: u64) -> Option<&mut Counter> {
        self.counters.iter_mut().find(|counter| counter.serial == serial)
    }

    pub(crate) fn find_budget(&mut self, key: &BudgetKey) -> Option<&mut Budget> {
        self.counters.iter_mut().find_map(|counter| match &mut counter.kind {
            Kind::Budget(budget) if counter.slot == key.slot() => Some(&mut **budget),
            _ => None,
        })
    }

    /// The budget of the key, closed where there was none; `None` where the key names no budget.
    pub(crate) fn budget_or_add(&mut self, key: &BudgetKey, now: Now) -> Option<&mut Budget> {
        if self.find_budget(key).is_none() {
            let mut counter = Counter::of_budget(self.next_serial, key, now)?;
            if self.drained_ms.is_some()
                && let Kind::Budget(budget) = &mut counter.kind
            {
                budget.never_start_at_zero();
            }
            self.next_serial += 1;
            self.counters.push(counter);
        }
        self.find_budget(key)
    }

    pub(crate) fn drop_idle(&mut self, settings: &Settings, now: Now) {
        self.counters.retain_mut(|counter| {
            counter.drop_expired(settings, now);
            !counter.is_idle(now)
        });
    }
}

/// What one hold has taken from one scope.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) node: SharedNode,
    /// By the counters' serials.
    pub(crate) taken: Vec<(u64, Taken)>,
}

impl Share {
    /// Of counters that nothing was taken from.
    pub(crate) fn untaken(node: SharedNode) -> Self {
        Self {
            node,
            taken: Vec::new(),
        }
    }

    pub(crate) fn settle(&self, request: &Request, actual: &Amounts, seq: Option<u64>, now_ms: u64) {
        self.for_each(|counter, taken| match taken {
            Some(taken) => counter.settle(request.id, taken, actual, seq, now_ms),
            None => counter.settle_untaken(request, actual, seq),
        });
    }

    pub(crate) fn refund(&self, request: &Request, keep_request: bool) {
        self.for_each(|counter, taken| match taken {
            Some(taken) => counter.refund(request.id, taken, keep_request),
            None => counter.refund_untaken(request),
        });
    }

    pub(crate) fn renew(&self, request: &Request, expires_ms: u64) {
        self.for_each(|counter, taken| match taken {
            Some(taken) => counter.renew(request.id, taken, expires_ms),
            None => counter.renew_untaken(request, expires_ms),
        });
    }

    /// Runs `act` on each counter with what was taken from it: nothing where it was made later, or did not count then.
    fn for_each(&self, mut act: impl FnMut(&mut Counter, Option<Taken>)) {
        for counter in &mut self.node.lock().counters {
            let taken = self.taken.iter().find(|(serial, _)| *serial == counter.serial);
            act(counter, taken.map(|(_, taken)| *taken));
        }
    }
}

/// One enforced limit with its counter.
pub(crate) struct Counted<'a> {
    pub(crate) scope: &'a Scope,
    pub(crate) limit: &'a Limit,
    pub(crate) counter: &'a Counter,
    pub(crate) remaining: u64,
}

/// One limit looked at.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) limit: usize,
    counter: Option<usize>,
    pub(crate) need: u64,
    /// The limit's answer, whether or not it counts.
    pub(crate) answer: Result<(), Refusal>,
    /// What the limit at its rehearsed share would have answered.
    share: Result<(), Refusal>,
}

/// One scope while its lock is held: every applicable limit looked at, nothing taken yet.
#[derive(Debug)]
pub(crate) struct Level<'a> {
    pub(crate) node: MutexGuard<'a, Node>,
    pub(crate) of: &'a ScopeLimits,
    pub(crate) checks: Vec<Check>,
}

impl<'a> Level<'a> {
    pub(crate) fn look(
        mut node: MutexGuard<'a, Node>,
        of: &'a ScopeLimits,
        admission: &Admission<'_>,
        settings: &Settings,
        now: Now,
    ) -> Self {
        let zone = admission.time_zone;
        let mut checks = Vec::with_capacity(of.limits.len());
        for (index, limit) in of.limits.iter().enumerate() {
            if !limit.applies_to(admission.model, admission.priority) {
                continue;
            }
            let need = need_of(limit.dimension, &admission.estimate);
            let counter = node.find_or_add(limit, || limit.period.span(now.wall, zone), now);
            if let Some(counter) = counter {
                node.counters[counter].advance(limit, settings, zone, now);
                node.counters[counter].meet(limit, of.tenant);
            }
            let counted = counter.map(|counter| &node.counters[counter]);
            let answer = check(limit, counted, need, admission.gate_priority, now);
            let share = match admission.rehearsal_percent {
                Some(percent) if limit.mode == Mode::Enforce => {
                    check_share(limit, percent, counted, need, admission.gate_priority, now)
                }
                _ => Ok(()),
            };
            checks.push(Check {
                limit: index,
                counter,
                need,
                answer,
                share,
            });
        }
        Self { node, of, checks }
    }

    /// What this scope's enforced limits refuse.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = (&Limit, &Check, Refusal)> {
        self.checks.iter().filter_map(|check| {
            let limit = &self.of.limits[check.limit];
            match (limit.mode, check.answer) {
                (Mode::Enforce, Err(refusal)) => Some((limit, check, refusal)),
                _ => None,
            }
        })
    }

    /// Takes what the request needs from every counter, once each.
    pub(crate) fn take(&mut self, admission: &Admission<'_>, settings: &Settings, now: Now) -> Vec<(u64, Taken)> {
        self.pass_by_budgets_without_limit(admission, now);
        let mut taken: Vec<(u64, Taken)> = Vec::with_capacity(self.checks.len());
        for check in &self.checks {
            let Some(counter) = check.counter.map(|index| &mut self.node.counters[index]) else {
                continue;
            };
            if taken.iter().any(|(serial, _)| *serial == counter.serial) {
                continue;
            }
            let forgives = self.of.limits[check.limit].mode == Mode::Rehearse;
            let part = counter.take(admission.id, check.need, forgives, settings.lease_ms, now);
            taken.push((counter.serial, part));
        }
        taken
    }

    /// What limits in rehearsal would have said. A budget without a base says nothing.
    pub(crate) fn rehearsed(&self, into: &mut Vec<RehearsedVerdict>) {
        for check in &self.checks {
            let limit = &self.of.limits[check.limit];
            let verdict = match limit.mode {
                Mode::Rehearse => check.answer,
                Mode::Enforce => check.share,
            };
            if let Err(refusal) = verdict
                && refusal.code != RefusalCode::BudgetUnknown
            {
                into.push(RehearsedVerdict {
                    scope: self.of.scope.clone(),
                    dimension: limit.dimension,
                    limit_id: limit.id,
                    code: refusal.code,
                });
            }
        }
    }

    /// Budgets here whose base is missing or misses something.
    pub(crate) fn unknown_budgets(&self, now: Now, into: &mut Vec<BudgetKey>) {
        for check in &self.checks {
            let counter = check.counter.map(|index| &self.node.counters[index]);
            if let Some(counter) = counter.filter(|counter| counter.wants_base(now.wall)) {
                into.extend(counter.budget_key_at(&self.of.scope, now.wall));
            }
        }
    }

    /// The chain's entries of this scope.
    pub(crate) fn chain(&self, now: Now, into: &mut Vec<ScopeCheck>) {
        for check in &self.checks {
            let limit = &self.of.limits[check.limit];
            // The gateway's time-out, nothing that could refuse here.
            if limit.dimension == Dimension::RequestSeconds {
                continue;
            }
            into.push(ScopeCheck {
                scope: self.of.scope.clone(),
                dimension: limit.dimension,
                limit_id: limit.id,
                limit_value: limit.value,
                utilisation_percent: self.utilisation_percent(check, now),
                has_room: check.answer.is_ok(),
            });
        }
    }

    /// How full the check's limit is; for a cap on single requests, how much of it this request asks for.
    pub(crate) fn utilisation_percent(&self, check: &Check, now: Now) -> f64 {
        let limit = &self.of.limits[check.limit];
        let usage = check.counter.map_or_else(
            || Usage {
                used: i128::from(check.need),
                held: 0,
            },
            |index| self.node.counters[index].usage_under(limit.value, now),
        );
        usage.percent_of(limit.value)
    }

    /// The counter of a check; none for caps on single requests.
    pub(crate) fn counter(&self, check: &Check) -> Option<&Counter> {
        check.counter.map(|index| &self.node.counters[index])
    }

    /// The counters of enforced limits, and what each has left.
    pub(crate) fn counted(&self, now: Now) -> impl Iterator<Item = Counted<'_>> {
        self.checks.iter().filter_map(move |check| {
            let limit = &self.of.limits[check.limit];
            let counter = &self.node.counters[check.counter?];
            (limit.mode == Mode::Enforce).then(|| Counted {
                scope: &self.of.scope,
                limit,
                counter,
                remaining: counter.remaining(limit, now),
            })
        })
    }

    /// Tells budgets that this request would have counted in, were their limit not away, that they miss something.
    fn pass_by_budgets_without_limit(&mut self, admission: &Admission<'_>, now: Now) {
        let met = self.checks.iter().filter(|check| check.counter.is_some()).count();
        if self.node.counters.len() <= met {
            return;
        }
        let checks = &self.checks;
        for (index, counter) in self.node.counters.iter_mut().enumerate() {
            if checks.iter().all(|check| check.counter != Some(index)) {
                counter.pass_by(admission.model, admission.priority, now);
            }
        }
    }
}

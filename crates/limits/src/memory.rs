//! Counters in this process's memory.
//!
//! Each scope's counters have one lock. An admission takes the locks of its scopes in the order of the tree, then one
//! upstream's at a time, so that no two admissions wait for each other. Whoever holds a shard of the map never waits
//! for a scope.

use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use chrono_tz::Tz;
use domain::ledger::RehearsedVerdict;
use domain::limits::Scope;
use domain::priority::Priority;
use domain::readings::{Explanation, Reading};
use foldhash::quality::RandomState;
use parking_lot::Mutex;

use crate::counter::Kind;
use crate::denial;
use crate::explain;
use crate::hold::{MemoryHold, Parts, Request};
use crate::node::{Level, Node, Share, SharedNode};
use crate::reading;
use crate::{
    Admission, BudgetBase, BudgetKey, BudgetState, Denial, Hold, Now, ScopeLimits, Settings, Tightest, UpstreamRoom,
};

const SHARDS: usize = 256;
/// Shards that one sweep looks at.
const SWEEP_SHARDS: usize = 8;
pub(crate) const SWEEPS_PER_ROUND: usize = SHARDS / SWEEP_SHARDS;

type Shard = Mutex<HashMap<Scope, SharedNode, RandomState>>;

pub(crate) struct Memory {
    settings: Settings,
    drained_ms: Option<u64>,
    shards: Box<[Shard]>,
    hasher: RandomState,
    open_holds: AtomicU64,
    next_swept: AtomicUsize,
}

/// An upstream that was taken.
struct Chosen {
    index: usize,
    /// Nothing where the upstream has neither limits nor counters.
    share: Option<Share>,
    scope: Scope,
    rehearsed: Vec<RehearsedVerdict>,
    unknown_budgets: Vec<BudgetKey>,
}

/// Without the counters, of which there may be very many.
impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("settings", &self.settings)
            .field("open_holds", &self.open_holds)
            .finish_non_exhaustive()
    }
}

impl Memory {
    /// Counters as they would be at `since_ms` had everything just been used up, so that nothing is admitted at once that
    /// another place may have admitted before. Budgets open only with a base.
    pub(crate) fn drained(settings: Settings, since_ms: u64) -> Self {
        Self {
            drained_ms: Some(since_ms),
            ..Self::new(settings)
        }
    }

    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            drained_ms: None,
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            hasher: RandomState::default(),
            open_holds: AtomicU64::new(0),
            next_swept: AtomicUsize::new(0),
        }
    }

    pub(crate) fn admit(memory: &Arc<Self>, admission: &Admission<'_>, now: Now) -> Result<Hold, Box<Denial>> {
        let scopes = admission.scopes;
        assert!(
            scopes.windows(2).all(|pair| pair[0].scope < pair[1].scope)
                && scopes.last().is_none_or(|of| !matches!(of.scope, Scope::Upstream(_))),
            "scopes are given in the order of the tree, each once"
        );
        let mut nodes: Vec<(&ScopeLimits, SharedNode)> = Vec::with_capacity(scopes.len());
        let mut uncounted = Vec::new();
        for of in scopes {
            match memory.node_of(of) {
                Some(node) => nodes.push((of, node)),
                None => uncounted.push(of.scope.clone()),
            }
        }
        let mut tree: Vec<Level<'_>> = nodes
            .iter()
            .map(|(of, node)| Level::look(node.lock(), of, admission, &memory.settings, now))
            .collect();
        if let Some(denial) = denial::of_tree(&tree, now) {
            return Err(denial);
        }
        let chosen = memory.take_upstream(&tree, None, admission, now)?;

        let mut parts = MemoryHold {
            memory: Arc::clone(memory),
            tree: Vec::with_capacity(nodes.len()),
            upstream: None,
            uncounted,
            uncounted_upstream: None,
        };
        let (mut rehearsed, mut unknown_budgets) = (Vec::new(), Vec::new());
        for (level, (_, node)) in tree.iter_mut().zip(&nodes) {
            level.rehearsed(&mut rehearsed);
            level.unknown_budgets(now, &mut unknown_budgets);
            parts.tree.push(Share {
                node: Arc::clone(node),
                taken: level.take(admission, &memory.settings, now),
            });
        }
        let mut hold = Hold {
            request: Request {
                id: admission.id,
                model: admission.model.into(),
                priority: admission.priority,
                ceiling: admission.estimate.ceiling,
                admitted_at: now.wall,
            },
            parts: Parts::Memory(parts),
            upstream_index: None,
            rehearsed,
            unknown_budgets,
            tightest: Tightest::of(&tree, now),
            is_sent: false,
            is_sent_upstream: false,
            is_open: true,
        };
        if let Some(chosen) = chosen {
            hold.put_upstream(chosen);
        }
        memory.open_holds.fetch_add(1, Ordering::Relaxed);
        Ok(hold)
    }

    pub(crate) fn switch_upstream(
        memory: &Arc<Self>,
        hold: &mut Hold,
        admission: &Admission<'_>,
        now: Now,
    ) -> Result<(), Box<Denial>> {
        let Parts::Memory(parts) = &mut hold.parts else {
            return Ok(());
        };
        let before = parts.upstream.as_ref().map(|share| (share, hold.is_sent_upstream));
        let chosen = memory.take_upstream(&[], before, admission, now)?;
        let before = parts.upstream.take();
        parts.uncounted_upstream = None;
        let keep_request = std::mem::replace(&mut hold.is_sent_upstream, false);
        hold.upstream_index = None;
        if let Some(chosen) = chosen {
            hold.put_upstream(chosen);
        }
        let Parts::Memory(parts) = &hold.parts else {
            return Ok(());
        };
        // The same upstream was given back before it was taken again.
        let is_same = |before: &Share| {
            parts
                .upstream
                .as_ref()
                .is_some_and(|share| Arc::ptr_eq(&share.node, &before.node))
        };
        if let Some(before) = before.filter(|before| !is_same(before)) {
            before.refund(&hold.request, keep_request);
        }
        Ok(())
    }

    /// Takes the first candidate with room; `None` where there are no candidates. `before` is the part of an upstream
    /// that will be given back: where it is tried again, that part is not in its own way.
    fn take_upstream(
        &self,
        tree: &[Level<'_>],
        before: Option<(&Share, bool)>,
        admission: &Admission<'_>,
        now: Now,
    ) -> Result<Option<Chosen>, Box<Denial>> {
        let mut mildest: Option<denial::Candidate> = None;
        let mut chain = Vec::new();
        let mut unknown_budgets = Vec::new();
        for candidate in admission.upstreams {
            let of = &candidate.scope;
            assert!(matches!(of.scope, Scope::Upstream(_)), "only upstreams are candidates");
            let Some(node) = self.node_of(of) else {
                return Ok(Some(Chosen {
                    index: candidate.index,
                    share: None,
                    scope: of.scope.clone(),
                    rehearsed: Vec::new(),
                    unknown_budgets,
                }));
            };
            let mut guard = node.lock();
            let mut as_before: Option<Node> = None;
            if let Some((share, keep_request)) = before.filter(|(share, _)| Arc::ptr_eq(&share.node, &node)) {
                as_before = Some(guard.clone());
                for (serial, taken) in &share.taken {
                    if let Some(counter) = guard.by_serial(*serial) {
                        counter.refund(admission.id, *taken, keep_request);
                    }
                }
            }
            let mut level = Level::look(guard, of, admission, &self.settings, now);
            level.unknown_budgets(now, &mut unknown_budgets);
            let Some(refused) = denial::Candidate::of(std::slice::from_ref(&level), now) else {
                let mut rehearsed = Vec::new();
                level.rehearsed(&mut rehearsed);
                let taken = level.take(admission, &self.settings, now);
                drop(level);
                return Ok(Some(Chosen {
                    index: candidate.index,
                    share: Some(Share { node, taken }),
                    scope: of.scope.clone(),
                    rehearsed,
                    unknown_budgets,
                }));
            };
            level.chain(now, &mut chain);
            if let Some(as_before) = as_before {
                *level.node = as_before;
            }
            drop(level);
            if mildest.as_ref().is_none_or(|mildest| refused.is_milder_than(mildest)) {
                mildest = Some(refused);
            }
        }
        let Some(mildest) = mildest else {
            return Ok(None);
        };
        let mut denial = denial::with_tree(mildest, tree, now);
        denial.chain.append(&mut chain);
        denial.unknown_budgets.append(&mut unknown_budgets);
        Err(denial)
    }

    pub(crate) fn peek(
        &self,
        scopes: &[ScopeLimits],
        model: Option<&str>,
        priority: Option<Priority>,
        time_zone: Tz,
        now: Now,
    ) -> Vec<Reading> {
        let mut readings = Vec::new();
        for of in scopes {
            let node = self.find_node(&of.scope);
            let node = node.as_ref().map(|node| node.lock());
            for limit in of.limits.iter() {
                let is_wanted = model.is_none_or(|model| limit.model.as_deref().is_none_or(|only| only == model))
                    && priority.is_none_or(|priority| limit.priority.is_none_or(|only| only == priority));
                if !is_wanted {
                    continue;
                }
                // A copy: being looked at changes nothing.
                let counter = node
                    .as_ref()
                    .and_then(|node| Some(node.counters[node.find(limit)?].clone()));
                readings.push(match counter {
                    Some(mut counter) => {
                        counter.advance(limit, &self.settings, time_zone, now);
                        counter.reading(&of.scope, limit, now)
                    }
                    None => reading::untouched(&of.scope, limit, time_zone, now.wall),
                });
            }
        }
        readings
    }

    pub(crate) fn explain(&self, admission: &Admission<'_>, now: Now) -> Explanation {
        let upstreams = admission.upstreams.iter().map(|candidate| &candidate.scope);
        let nodes = admission
            .scopes
            .iter()
            .chain(upstreams)
            .map(|of| {
                self.find_node(&of.scope)
                    .map(|node| node.lock().clone())
                    .unwrap_or_default()
            })
            .collect();
        explain::explain(nodes, admission, &self.settings, now)
    }

    pub(crate) fn correct_upstream(&self, of: &ScopeLimits, model: &str, told: &UpstreamRoom, now: Now) {
        let tellings = told.tellings(of, model);
        if tellings.is_empty() {
            return;
        }
        let node = self.node(&of.scope);
        let mut node = node.lock();
        for (limit, telling) in tellings {
            let span = || limit.period.span(now.wall, Tz::UTC);
            if let Some(index) = node.find_or_add(limit, span, now) {
                node.counters[index].tell(telling, told.sent_ms_ago, now);
            }
        }
    }

    pub(crate) fn set_budget(&self, key: &BudgetKey, base: BudgetBase, now: Now) -> bool {
        let node = self.node(&key.scope);
        let mut node = node.lock();
        node.budget_or_add(key, now)
            .is_some_and(|budget| budget.set_base(key.span, base, now.wall))
    }

    pub(crate) fn begin_budget(&self, key: &BudgetKey, last_settled: impl FnOnce() -> u64, now: Now) -> Option<u64> {
        let node = self.node(&key.scope);
        let mut node = node.lock();
        node.budget_or_add(key, now)?.begin(key.span, last_settled, now.wall)
    }

    pub(crate) fn has_budget(&self, key: &BudgetKey, now: Now) -> bool {
        self.find_node(&key.scope).is_some_and(|node| {
            node.lock()
                .find_budget(key)
                .is_some_and(|budget| budget.has_base(key.span, now.wall))
        })
    }

    pub(crate) fn budgets(&self, now: Now) -> Vec<BudgetState> {
        let mut budgets = Vec::new();
        for shard in &self.shards {
            let nodes: Vec<(Scope, SharedNode)> = shard
                .lock()
                .iter()
                .map(|(scope, node)| (scope.clone(), Arc::clone(node)))
                .collect();
            for (scope, node) in nodes {
                let node = node.lock();
                for counter in &node.counters {
                    let Kind::Budget(budget) = &counter.kind else {
                        continue;
                    };
                    let base = budget.find_span(now.wall).and_then(|span| span.base());
                    let key = counter.budget_key_at(&scope, now.wall);
                    budgets.extend(key.map(|key| BudgetState { key, base }));
                }
            }
        }
        budgets
    }

    pub(crate) fn sweep(&self, now: Now) {
        let first = self.next_swept.fetch_add(SWEEP_SHARDS, Ordering::Relaxed);
        for offset in 0..SWEEP_SHARDS {
            let mut shard = self.shards[(first + offset) % SHARDS].lock();
            shard.retain(|_, node| {
                let Some(mut counters) = node.try_lock() else {
                    return true;
                };
                counters.drop_idle(&self.settings, now);
                let is_empty = counters.counters.is_empty();
                drop(counters);
                // Counted under the shard's lock, where nobody can take another reference: one is the map's own.
                !(is_empty && Arc::strong_count(node) == 1)
            });
        }
    }

    pub(crate) fn open_holds(&self) -> u64 {
        self.open_holds.load(Ordering::Relaxed)
    }

    pub(crate) fn forget_hold(&self) {
        self.open_holds.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn scope_count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    pub(crate) fn has_counters(&self, scope: &Scope) -> bool {
        self.find_node(scope).is_some()
    }

    pub(crate) fn lease_ms(&self) -> u64 {
        self.settings.lease_ms
    }

    pub(crate) fn expiry_ms(&self, now: Now) -> u64 {
        now.monotonic_ms.saturating_add(self.settings.lease_ms)
    }

    /// The counters of a scope; `None` where it has neither limits nor counters.
    fn node_of(&self, of: &ScopeLimits) -> Option<SharedNode> {
        if of.limits.is_empty() {
            self.find_node(&of.scope)
        } else {
            Some(self.node(&of.scope))
        }
    }

    fn node(&self, scope: &Scope) -> SharedNode {
        let mut shard = self.shard(scope).lock();
        if let Some(node) = shard.get(scope) {
            return Arc::clone(node);
        }
        let node = Arc::new(Mutex::new(Node::new(self.drained_ms)));
        Arc::clone(shard.entry(scope.clone()).or_insert(node))
    }

    pub(crate) fn find_node(&self, scope: &Scope) -> Option<SharedNode> {
        self.shard(scope).lock().get(scope).map(Arc::clone)
    }

    fn shard(&self, scope: &Scope) -> &Shard {
        &self.shards[self.hasher.hash_one(scope) as usize % SHARDS]
    }
}

impl Hold {
    fn put_upstream(&mut self, mut chosen: Chosen) {
        self.upstream_index = Some(chosen.index);
        if let Parts::Memory(parts) = &mut self.parts {
            parts.uncounted_upstream = chosen.share.is_none().then_some(chosen.scope);
            parts.upstream = chosen.share;
        }
        self.rehearsed.append(&mut chosen.rehearsed);
        self.unknown_budgets.append(&mut chosen.unknown_budgets);
    }
}

#[cfg(test)]
mod tests;

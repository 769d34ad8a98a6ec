//! Thresholds of budgets: seen where something is settled and where budgets are read, written to Postgres, told once.
//!
//! A settlement only notes where it counted. A task looks at those budgets a moment later, by the same counters that admit,
//! so that no request waits for it; what the ledger says is looked at with each reading of the bases. Whoever sees a threshold
//! first writes it: Postgres keeps the others from telling it again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;
use domain::budget_events::{BudgetEvent, BudgetEventKey};
use domain::error_chain::chain;
use domain::ids::{TenantId, UpstreamId};
use domain::limits::{Limit, Scope};
use domain::periods::{Span, bucket_start};
use domain::readings::CounterStore;
use limits::{Now, ScopeLimits};
use parking_lot::Mutex;
use store::StoreError;
use store::budget_events::BUDGET_EVENTS_AT_ONCE;
use store::random::{self, Random};
use tokio::time::sleep;

use crate::policy::PolicySnapshot;
use crate::{Gateway, metrics};

/// How often it is looked where something was settled, in milliseconds.
const LOOK_INTERVAL_MS: u64 = 1_000;
/// Nodes that are looked at together; the others a moment later.
const LOOKED_AT_ONCE: usize = 500;
/// Nodes that wait to be looked at, at most. What is beyond is seen with the next settlement there, or the next reading.
const TOUCHED_MAX: usize = 10_000;
/// Events that wait for Postgres, at most. What is beyond is seen again.
const REACHED_MAX: usize = 10_000;
/// Events that are known to be told, at most. Beyond it they are written again, which tells nobody.
const TOLD_MAX: usize = 100_000;
/// How long after its period an event is remembered: as long as a settlement may still be booked there.
const TOLD_AFTER_PERIOD: TimeDelta = TimeDelta::days(1);

/// What this gateway has seen of thresholds.
#[derive(Debug, Default)]
pub(crate) struct BudgetEvents {
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    /// Nodes where something was settled, by the quarter of an hour in which it was admitted: no period begins or ends
    /// within one.
    touched: BTreeMap<DateTime<Utc>, HashSet<Scope>>,
    touched_count: usize,
    /// Not written yet.
    reached: HashMap<BudgetEventKey, BudgetEvent>,
    told: HashSet<BudgetEventKey>,
    has_overflowed: bool,
}

/// One budget of one node in one period, and what was spent of it.
pub(crate) struct Seen<'a> {
    pub(crate) node: &'a ScopeLimits,
    pub(crate) limit: &'a Limit,
    pub(crate) span: Span,
    /// The budget then.
    pub(crate) value: u64,
    pub(crate) spent: i64,
}

impl BudgetEvents {
    /// Something was settled on these nodes that had been admitted at `admitted_at`. Never waits.
    pub(crate) fn touch<'a>(&self, nodes: impl Iterator<Item = &'a ScopeLimits>, admitted_at: DateTime<Utc>) {
        let mut book = self.book.lock();
        for node in nodes.filter(|node| node.limits.iter().any(tells)) {
            book.touch(&node.scope, bucket_start(admitted_at));
        }
    }

    /// Notes every threshold that is reached and was not told yet.
    pub(crate) fn see(&self, seen: &Seen<'_>, at: DateTime<Utc>, random: &dyn Random) {
        if !tells(seen.limit) {
            return;
        }
        let reached = seen.limit.thresholds.reached(i128::from(seen.spent), seen.value);
        let mut book = self.book.lock();
        for percent in reached {
            let ms = u64::try_from(at.timestamp_millis()).unwrap_or(0);
            let event = BudgetEvent {
                id: uuid::Builder::from_unix_timestamp_millis(ms, &random::bytes(random)).into_uuid(),
                scope: seen.node.scope.clone(),
                tenant_id: tenant_of(seen.node),
                limit_id: seen.limit.id,
                dimension: seen.limit.dimension,
                period: seen.limit.period,
                model: seen.limit.model.clone(),
                priority: seen.limit.priority,
                span: seen.span,
                percent,
                value: seen.value,
                spent: seen.spent,
                at,
            };
            book.reach(event);
        }
    }

    /// Some of the nodes where something was settled, all of one quarter of an hour.
    fn take_touched(&self) -> Option<(DateTime<Utc>, Vec<Scope>)> {
        let mut book = self.book.lock();
        let mut first = book.touched.first_entry()?;
        let bucket = *first.key();
        let scopes: Vec<Scope> = first.get().iter().take(LOOKED_AT_ONCE).cloned().collect();
        for scope in &scopes {
            first.get_mut().remove(scope);
        }
        if first.get().is_empty() {
            first.remove();
        }
        book.touched_count -= scopes.len();
        Some((bucket, scopes))
    }

    fn touch_again(&self, bucket: DateTime<Utc>, scopes: &[Scope]) {
        let mut book = self.book.lock();
        for scope in scopes {
            book.touch(scope, bucket);
        }
    }

    /// Whether everything that this budget could tell of its period is told.
    fn has_told_all(&self, node: &ScopeLimits, limit: &Limit, span: Span) -> bool {
        let book = self.book.lock();
        limit.thresholds.percents().all(|percent| {
            let key = BudgetEventKey::new(&node.scope, &limit.slot(), span, percent);
            key.is_some_and(|key| book.told.contains(&key) || book.reached.contains_key(&key))
        })
    }

    fn next_reached(&self) -> Vec<BudgetEvent> {
        let book = self.book.lock();
        book.reached.values().take(BUDGET_EVENTS_AT_ONCE).cloned().collect()
    }

    fn told(&self, events: &[BudgetEvent]) {
        let mut book = self.book.lock();
        if book.told.len() >= TOLD_MAX {
            book.told.clear();
        }
        for event in events {
            let key = event.key();
            book.reached.remove(&key);
            book.told.insert(key);
        }
        book.has_overflowed &= book.reached.len() >= REACHED_MAX;
    }

    fn forget_ended(&self, at: DateTime<Utc>) {
        let mut book = self.book.lock();
        book.told.retain(|key| at < key.period_end() + TOLD_AFTER_PERIOD);
    }
}

impl Book {
    fn touch(&mut self, scope: &Scope, bucket: DateTime<Utc>) {
        if self.touched_count >= TOUCHED_MAX {
            return;
        }
        let scopes = self.touched.entry(bucket).or_default();
        // Most have been touched before: nothing is allocated for them.
        if !scopes.contains(scope) {
            scopes.insert(scope.clone());
            self.touched_count += 1;
        }
    }

    fn reach(&mut self, event: BudgetEvent) {
        let key = event.key();
        if self.told.contains(&key) || self.reached.contains_key(&key) {
            return;
        }
        if self.reached.len() < REACHED_MAX {
            self.reached.insert(key, event);
        } else if !self.has_overflowed {
            self.has_overflowed = true;
            tracing::warn!(
                most = REACHED_MAX,
                "too many thresholds of budgets wait for Postgres; further ones are told when they are seen again"
            );
        }
    }
}

/// Whether it is a budget with something to tell.
fn tells(limit: &Limit) -> bool {
    limit.dimension.is_budget() && limit.thresholds.percents().next().is_some()
}

fn tenant_of(node: &ScopeLimits) -> Option<TenantId> {
    match &node.scope {
        Scope::Tenant(tenant) | Scope::User(tenant, _) => Some(*tenant),
        _ => node.tenant,
    }
}

/// Looks at the budgets where something was settled, and writes what they have to tell.
pub(crate) async fn keep_budget_events(gateway: Arc<Gateway>) {
    let mut is_failing = false;
    loop {
        sleep(Duration::from_millis(LOOK_INTERVAL_MS)).await;
        if let Some(policy) = gateway.keeper.current() {
            gateway.look_at_budgets(&policy).await;
            match gateway.write_budget_events(&policy).await {
                Ok(()) => is_failing = false,
                Err(error) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        tracing::warn!(
                            error = chain(&error),
                            "thresholds of budgets cannot be written; it is tried again"
                        );
                    }
                }
            }
        }
        gateway.budget_events.forget_ended(gateway.clock.now().wall);
    }
}

impl Gateway {
    /// Notes that something was settled on these nodes and by this upstream.
    pub(crate) fn touch_budgets(
        &self,
        nodes: &[ScopeLimits],
        upstream_id: Option<UpstreamId>,
        admitted_at: DateTime<Utc>,
    ) {
        let policy = upstream_id.and(self.keeper.current());
        let upstream = upstream_id.and_then(|id| policy.as_ref()?.find_upstream(id));
        let upstream = upstream.map(|upstream| &upstream.scope);
        self.budget_events.touch(nodes.iter().chain(upstream), admitted_at);
    }

    async fn look_at_budgets(&self, policy: &PolicySnapshot) {
        // As many times as there is something, and no more often than everything that waits now takes.
        for _ in 0..TOUCHED_MAX.div_ceil(LOOKED_AT_ONCE) {
            let Some((bucket, scopes)) = self.budget_events.take_touched() else {
                return;
            };
            if !self.look_at(policy, bucket, &scopes).await {
                // Counters of one's own know what may be spent, not what is spent: later.
                self.budget_events.touch_again(bucket, &scopes);
                return;
            }
        }
    }

    /// Looks at the budgets of these nodes in the periods of `bucket`; false where the counters do not say what was spent.
    async fn look_at(&self, policy: &PolicySnapshot, bucket: DateTime<Utc>, scopes: &[Scope]) -> bool {
        let (now, zone) = (self.clock.now(), policy.settings.time_zone);
        let untold = |node: &ScopeLimits, limit: &Limit| {
            tells(limit)
                && !self
                    .budget_events
                    .has_told_all(node, limit, limit.period.span(bucket, zone))
        };
        let nodes: Vec<ScopeLimits> = scopes
            .iter()
            .map(|scope| {
                let node = policy.limits_set_on(scope);
                let limits = node.limits.iter().filter(|limit| untold(&node, limit)).cloned();
                ScopeLimits {
                    limits: limits.collect(),
                    ..node
                }
            })
            .filter(|node| !node.limits.is_empty())
            .collect();
        if nodes.is_empty() {
            return true;
        }
        let at = Now { wall: bucket, ..now };
        let (store, readings) = self.limits.read(&nodes, None, None, zone, at).await;
        if store == CounterStore::Degraded {
            return false;
        }
        let budgets = nodes
            .iter()
            .flat_map(|node| node.limits.iter().map(move |limit| (node, limit)));
        for ((node, limit), reading) in budgets.zip(readings) {
            // One that is being read is looked at when it is.
            if reading.is_known {
                let seen = Seen {
                    node,
                    limit,
                    span: limit.period.span(bucket, zone),
                    value: reading.limit_value,
                    spent: reading.used,
                };
                self.budget_events.see(&seen, now.wall, &*self.random);
            }
        }
        true
    }

    async fn write_budget_events(&self, policy: &PolicySnapshot) -> Result<(), StoreError> {
        loop {
            let events = self.budget_events.next_reached();
            if events.is_empty() {
                return Ok(());
            }
            // One that Postgres cannot take must not keep the others from being told.
            let mut batches = vec![events];
            while let Some(mut batch) = batches.pop() {
                match self.write_batch(policy, &batch).await {
                    Ok(()) => {}
                    Err(error) if error.is_content() && batch.len() > 1 => {
                        let rest = batch.split_off(batch.len() / 2);
                        batches.extend([rest, batch]);
                    }
                    Err(error) if error.is_content() => {
                        tracing::error!(error = chain(&error), scope = %batch[0].scope, "a threshold cannot be written");
                        self.budget_events.told(&batch);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }

    async fn write_batch(&self, policy: &PolicySnapshot, events: &[BudgetEvent]) -> Result<(), StoreError> {
        let body = |event: &BudgetEvent| {
            let tenant = event.tenant_id.and_then(|id| policy.find_tenant(id));
            event.body(
                tenant.map(|tenant| tenant.tenant.name.as_str()),
                &policy.settings.currency,
            )
        };
        let written = self.store.write_budget_events(events, body).await?;
        self.budget_events.told(events);
        for event in events.iter().filter(|event| written.contains(&event.id)) {
            metrics::budget_threshold(event.percent);
            tracing::info!(
                scope = %event.scope,
                dimension = event.dimension.as_str(),
                period = event.period.as_str(),
                percent = event.percent,
                "a threshold of a budget is reached"
            );
        }
        if !written.is_empty() {
            self.alerts.wake_webhook();
        }
        Ok(())
    }
}

/// The period before that of `at`, if it ended no longer ago than settlements may still be booked there, and the limit was
/// there by then.
pub(crate) fn just_ended(limit: &Limit, at: DateTime<Utc>, zone: Tz) -> Option<Span> {
    let current = limit.period.span(at, zone);
    let ended = limit.period.span(current.start - TimeDelta::nanoseconds(1), zone);
    // A limit's id says when it was made.
    let made = limit
        .id
        .0
        .get_timestamp()
        .map(|made| i64::try_from(made.to_unix().0).unwrap_or(i64::MAX));
    let was_there = made.is_none_or(|seconds| seconds < ended.end.timestamp());
    (tells(limit) && was_there && at - ended.end <= TOLD_AFTER_PERIOD).then_some(ended)
}

#[cfg(test)]
mod tests;

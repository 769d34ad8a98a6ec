//! What budgets have spent: base from Postgres, since from this gateway's journal, holds in memory.
//!
//! A budget without a base is closed. Bases are read when a policy brings a new budget, before it comes into force; again
//! every minute, so that any difference heals, and as soon as the ledger is adjusted; and when a request meets a budget nobody knew of. A base says which of our
//! journal's entries it contains, and the counters add those past it. A new budget begins to count before its base is
//! read, and opens only with one that contains everything settled until then.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use domain::error_chain::chain;
use domain::ids::TenantId;
use domain::limits::{Dimension, Scope};
use domain::periods::Span;
use ledger::Journal;
use limits::{BegunBudgets, BudgetKey, LifeSigns, Limits, Now};
use store::budgets::{BudgetFilter, Spent};
use store::random::{Random, SystemRandom};
use store::{Store, StoreError};
use tokio::sync::{Mutex, Notify, mpsc};
use tokio::time::timeout;

use crate::budget_events::{BudgetEvents, Seen, just_ended};
use crate::clock::Clock;
use crate::policy::PolicySnapshot;

/// How often every base is read again, in milliseconds.
pub const REREAD_INTERVAL_MS: u64 = 60_000;
/// Budgets nobody knew of that wait to be read. Beyond it they wait for their next request.
pub const UNKNOWN_MAX: usize = 1_000;

/// How long a reading waits for Postgres to have what was settled before a new budget, in milliseconds. The shipper takes
/// a tenth of it; should Postgres be behind, the budget stays closed and is read again.
pub const SHIPMENT_WAIT_MS: u64 = 800;

/// Which budgets to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Those without a base.
    Missing,
    /// All of them.
    All,
}

/// Keeps the bases current.
pub struct Budgets {
    store: Store,
    limits: Limits,
    journal: Arc<Journal>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    /// What the bases say of thresholds.
    events: Arc<BudgetEvents>,
    instance: String,
    /// Entries of an earlier run reach the counters through Postgres only: bases wait until it contains them.
    recovered_seq: u64,
    unknown: mpsc::Sender<BudgetKey>,
    /// One reading at a time.
    reading: Mutex<mpsc::Receiver<BudgetKey>>,
    /// Raised when bases were set for budgets that nobody counted for before.
    begun: Notify,
    /// Raised when the ledger was adjusted since the bases were read.
    adjusted: Notify,
    /// The newest policy whose budgets count here.
    counted_version: Arc<AtomicI64>,
}

/// What this gateway says of itself to those that share its counters.
struct Signs {
    clock: Arc<dyn Clock>,
    journal: Arc<Journal>,
    counted_version: Arc<AtomicI64>,
}

impl LifeSigns for Signs {
    fn now(&self) -> Now {
        self.clock.now()
    }

    fn last_settled(&self) -> u64 {
        self.journal.last_ending_seq()
    }

    fn policy_version(&self) -> i64 {
        self.counted_version.load(Ordering::Relaxed)
    }
}

impl Budgets {
    /// `recovered_seq` is the last entry that the journal held when it was opened.
    pub fn new(
        store: Store,
        limits: Limits,
        journal: Arc<Journal>,
        clock: Arc<dyn Clock>,
        instance: String,
        recovered_seq: u64,
    ) -> Self {
        let (unknown, reading) = mpsc::channel(UNKNOWN_MAX);
        Self {
            store,
            limits,
            journal,
            clock,
            random: Arc::new(SystemRandom),
            events: Arc::default(),
            instance,
            recovered_seq,
            unknown,
            reading: Mutex::new(reading),
            begun: Notify::new(),
            adjusted: Notify::new(),
            counted_version: Arc::default(),
        }
    }

    /// The same, noting there what the bases say of thresholds.
    pub(crate) fn noting(self, events: Arc<BudgetEvents>, random: Arc<dyn Random>) -> Self {
        Self { events, random, ..self }
    }

    /// What this gateway says of itself to those that share its counters.
    pub fn life_signs(&self) -> Arc<dyn LifeSigns> {
        Arc::new(Signs {
            clock: Arc::clone(&self.clock),
            journal: Arc::clone(&self.journal),
            counted_version: Arc::clone(&self.counted_version),
        })
    }

    /// Asks for budgets that a request met and nobody knew of.
    pub fn want(&self, keys: &[BudgetKey]) {
        for key in keys {
            // A full channel is no loss: the next request asks again.
            let _ = self.unknown.try_send(key.clone());
        }
    }

    /// Whether bases may be set: Postgres contains what an earlier run left in the journal.
    pub fn are_open(&self) -> bool {
        self.journal.status(self.clock.now().wall).shipped_seq >= self.recovered_seq
    }

    /// Waits until a budget is wanted, and reads it with all others that are.
    pub async fn read_wanted(&self, policy: &PolicySnapshot) -> Result<(), StoreError> {
        let mut reading = self.reading.lock().await;
        let Some(first) = reading.recv().await else {
            return Ok(());
        };
        let mut wanted = HashSet::from([first]);
        while let Ok(next) = reading.try_recv() {
            wanted.insert(next);
        }
        self.read(policy, wanted).await
    }

    /// Reads the bases of the policy's budgets, and of those already known, for the periods of now.
    pub async fn load(&self, policy: &PolicySnapshot, which: Which) -> Result<(), StoreError> {
        let now = self.clock.now();
        let known: Vec<BudgetKey> = budgets_of(policy, now.wall).collect();
        self.limits.count_budgets(&known);
        self.counted_version.fetch_max(policy.version, Ordering::Relaxed);
        let mut wanted: HashSet<BudgetKey>;
        if which == Which::All {
            wanted = known.into_iter().collect();
            wanted.extend(self.limits.budgets(now).await);
        } else {
            wanted = self.closed(&known, policy, now).await.into_iter().collect();
        }
        if which == Which::Missing && !wanted.is_empty() {
            // Beforehand: this may be given up any time, and then they want to be read again soon.
            self.begun.notify_one();
        }
        self.read(policy, wanted).await
    }

    /// How many of the policy's budgets are closed now, for want of a base.
    pub async fn count_closed(&self, policy: &PolicySnapshot) -> u64 {
        let now = self.clock.now();
        let keys: Vec<BudgetKey> = budgets_of(policy, now.wall).collect();
        self.closed(&keys, policy, now).await.len() as u64
    }

    async fn closed(&self, keys: &[BudgetKey], policy: &PolicySnapshot, now: Now) -> Vec<BudgetKey> {
        self.limits.closed_budgets(keys, policy.settings.time_zone, now).await
    }

    /// Waits until new budgets have begun. Those that were not read in time, or that Postgres was behind for, are closed:
    /// their bases want to be read again soon.
    pub async fn begun(&self) {
        self.begun.notified().await;
    }

    /// Tells that the ledger was adjusted: all bases want to be read again.
    pub fn note_adjusted(&self) {
        self.adjusted.notify_one();
    }

    /// Waits until the ledger is adjusted. Many adjustments while nobody waits are one.
    pub async fn adjusted(&self) {
        self.adjusted.notified().await;
    }

    async fn read(&self, policy: &PolicySnapshot, wanted: HashSet<BudgetKey>) -> Result<(), StoreError> {
        if wanted.is_empty() || !self.are_open() {
            return Ok(());
        }
        let wanted: Vec<BudgetKey> = wanted.into_iter().collect();
        let begun = self.begin(policy, &wanted).await;
        if begun.wanted.is_empty() {
            return Ok(());
        }
        // One filter that Postgres cannot take must not keep all others from being read: the batch is halved until it is
        // alone, and its budget stays closed.
        let mut batches = vec![begun.wanted.clone()];
        while let Some(mut batch) = batches.pop() {
            match self.read_batch(policy, &batch, &begun).await {
                Ok(()) => {}
                Err(error) if error.is_content() && batch.len() > 1 => {
                    let rest = batch.split_off(batch.len() / 2);
                    batches.extend([rest, batch]);
                }
                Err(error) if error.is_content() => {
                    let scopes: Vec<String> = batch.iter().map(|key| key.scope.to_string()).collect();
                    tracing::error!(
                        error = chain(&error),
                        ?scopes,
                        "a budget cannot be read; it stays closed"
                    );
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn read_batch(
        &self,
        policy: &PolicySnapshot,
        wanted: &[BudgetKey],
        begun: &BegunBudgets,
    ) -> Result<(), StoreError> {
        let filters: Vec<BudgetFilter> = wanted.iter().map(|key| filter(key, policy)).collect();
        let sums = self.store.budgets_spent(&filters).await?;
        let marks: BTreeMap<String, u64> = sums.marks.into_iter().collect();
        let mark = marks.get(&self.instance).copied().unwrap_or(0);
        let contains = |(instance, least): (&String, &u64)| marks.get(instance).copied().unwrap_or(0) >= *least;
        if !self.journal.can_compare(mark) {
            // The shipper has not met Postgres since the directory was lost: nobody can say what the sums contain.
            self.begun.notify_one();
            return Ok(());
        }
        let is_complete = begun.least_marks.iter().all(contains);
        let (now, zone) = (self.clock.now(), policy.settings.time_zone);
        let mut unset = Vec::new();
        for (key, spent) in wanted.iter().zip(&sums.spent) {
            let spent = spent_in(key.dimension, spent);
            // The period may have ended while it was read, and with it an increase.
            self.see(policy, key, spent, now.wall.min(last_instant(key.span)));
            // Somebody's journal is not in Postgres as far as a first base has to contain it.
            let is_early = !is_complete && begun.closed.contains(key);
            if is_early
                || !self
                    .limits
                    .set_budget(key, spent, &marks, &self.instance, zone, now)
                    .await
            {
                unset.push(key.clone());
            }
        }
        if !self.closed(&unset, policy, now).await.is_empty() {
            self.begun.notify_one();
        }
        Ok(())
    }

    /// Looks for thresholds in the periods that ended just before this gateway started: what was settled at their very end
    /// may have been seen by nobody.
    pub async fn look_at_ended(&self, policy: &PolicySnapshot) -> Result<(), StoreError> {
        let (now, zone) = (self.clock.now().wall, policy.settings.time_zone);
        let mut keys = Vec::new();
        for node in policy.known_scopes() {
            for limit in node.limits.iter() {
                if let Some(ended) = just_ended(limit, now, zone) {
                    keys.push(BudgetKey::of(&node, limit, ended.start, zone));
                }
            }
        }
        if keys.is_empty() {
            return Ok(());
        }
        let filters: Vec<BudgetFilter> = keys.iter().map(|key| filter(key, policy)).collect();
        let sums = self.store.budgets_spent(&filters).await?;
        for (key, spent) in keys.iter().zip(&sums.spent) {
            self.see(policy, key, spent_in(key.dimension, spent), last_instant(key.span));
        }
        Ok(())
    }

    /// Notes the thresholds that the ledger's sum of a budget has reached, by its value at `value_at`.
    fn see(&self, policy: &PolicySnapshot, key: &BudgetKey, spent: i64, value_at: DateTime<Utc>) {
        if spent <= 0 {
            return;
        }
        let node = policy.limits_set_on(&key.scope);
        if let Some(limit) = node.limits.iter().find(|limit| limit.id == key.limit_id) {
            let seen = Seen {
                node: &node,
                limit,
                span: key.span,
                value: limit.value_at(value_at),
                spent,
            };
            self.events.see(&seen, self.clock.now().wall, &*self.random);
        }
    }

    /// Lets these budgets count from now on, and waits until Postgres has what was settled before.
    async fn begin(&self, policy: &PolicySnapshot, wanted: &[BudgetKey]) -> BegunBudgets {
        let (now, zone) = (self.clock.now(), policy.settings.time_zone);
        let last_settled = || self.journal.last_ending_seq();
        let begun = self
            .limits
            .begin_budgets(wanted, last_settled, &self.instance, policy.version, zone, now)
            .await;
        let least_mark = begun.least_marks.get(&self.instance).copied().unwrap_or(0);
        let mut shipped = self.journal.shipped();
        let has_come = shipped.wait_for(|mark| *mark >= least_mark);
        // Too late is no error: the base is turned away, and read again.
        let _ = timeout(Duration::from_millis(SHIPMENT_WAIT_MS), has_come).await;
        begun
    }
}

/// The policy's budgets for the periods of `at`.
fn budgets_of(policy: &PolicySnapshot, at: DateTime<Utc>) -> impl Iterator<Item = BudgetKey> {
    let zone = policy.settings.time_zone;
    policy.known_scopes().into_iter().flat_map(move |node| {
        let budgets = node.limits.iter().filter(|limit| limit.dimension.is_budget());
        budgets
            .map(|limit| BudgetKey::of(&node, limit, at, zone))
            .collect::<Vec<_>>()
    })
}

/// The policy's budgets for the periods of `at`, with which rows of the ledger count in each: those of nodes that the
/// policy knows, and of these users.
pub fn budgets_in_force(
    policy: &PolicySnapshot,
    users: impl IntoIterator<Item = (TenantId, String)>,
    at: DateTime<Utc>,
) -> Vec<(BudgetKey, BudgetFilter)> {
    let zone = policy.settings.time_zone;
    let of_users = users.into_iter().flat_map(|(tenant, user)| {
        let node = policy.limits_on(&Scope::User(tenant, user.into()));
        let budgets = node.limits.iter().filter(|limit| limit.dimension.is_budget());
        budgets
            .map(|limit| BudgetKey::of(&node, limit, at, zone))
            .collect::<Vec<_>>()
    });
    let mut known = HashSet::new();
    budgets_of(policy, at)
        .chain(of_users)
        .filter(|key| known.insert(key.clone()))
        .map(|key| {
            let filter = filter(&key, policy);
            (key, filter)
        })
        .collect()
}

/// The last instant of a period, whose value its budget ended with.
fn last_instant(span: Span) -> DateTime<Utc> {
    span.end - chrono::Duration::nanoseconds(1)
}

fn spent_in(dimension: Dimension, spent: &Spent) -> i64 {
    if dimension == Dimension::BudgetCost {
        spent.cost.0
    } else {
        spent.tokens
    }
}

/// Which rows of the ledger count in a budget.
fn filter(key: &BudgetKey, policy: &PolicySnapshot) -> BudgetFilter {
    let mut filter = BudgetFilter {
        models: key.model.as_deref().map(|model| vec![model.to_owned()]),
        priority: key.priority,
        ..BudgetFilter::everything(key.span)
    };
    match &key.scope {
        Scope::Global => {}
        Scope::ModelGroup(group) => {
            // A limit on a group that names a model counts that model if it is of the group, and else nothing.
            let group = policy.models_in_group(group);
            filter.models = Some(match filter.models {
                None => group,
                Some(only) => only.into_iter().filter(|model| group.contains(model)).collect(),
            });
        }
        Scope::Model(model) => filter.models = Some(vec![model.to_string()]),
        Scope::Tenant(tenant) => filter.tenant = Some(*tenant),
        Scope::User(tenant, user) => {
            filter.tenant = Some(*tenant);
            filter.user = Some(user.to_string());
        }
        Scope::Key(key) => filter.key = Some(*key),
        Scope::Upstream(upstream) => filter.upstream = Some(*upstream),
    }
    filter
}

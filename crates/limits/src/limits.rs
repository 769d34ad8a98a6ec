//! The door to admission.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use chrono_tz::Tz;
use domain::estimate::Amounts;
use domain::ids::RequestId;
use domain::limits::Scope;
use domain::priority::Priority;
use domain::readings::{CounterStore, Explanation, Reading};

use crate::hold::Parts;
use crate::idempotency::memory::MemoryClaims;
use crate::idempotency::{Claim, Claimant, Claims, IdempotencyKey, Unclaimed};
use crate::in_force::{InForce, scope_at, scopes_at};
use crate::memory::Memory;
use crate::redis::{Connection, LifeSigns, Mode, RedisSettings, RedisSettingsError, RedisStore, Shared, TimeOf};
use crate::{Admission, BegunBudgets, BudgetBase, BudgetKey, Denial, Hold, Now, ScopeLimits, Settings, UpstreamRoom};

/// The counters of all scopes. Clones share them.
#[derive(Clone)]
pub struct Limits {
    store: Store,
    claims: Claims,
}

#[derive(Clone)]
enum Store {
    Memory(Arc<Memory>),
    Redis(Arc<RedisStore>),
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limits").field("store", &self.store_name()).finish()
    }
}

impl Limits {
    /// Counters in this process's memory.
    pub fn memory(settings: Settings) -> Self {
        Self {
            claims: Claims::Memory(Arc::new(MemoryClaims::new(settings.lease_ms))),
            store: Store::Memory(Arc::new(Memory::new(settings))),
        }
    }

    /// Counters in Redis, shared by all gateways that use it. `instance` is this gateway's name among them. Nothing is
    /// connected yet: see [`Limits::start`].
    ///
    /// # Errors
    /// When the settings make no sense.
    pub fn redis(settings: Settings, redis: &RedisSettings, instance: &str) -> Result<Self, RedisSettingsError> {
        Self::redis_by(settings, redis, instance, TimeOf::Server)
    }

    pub(crate) fn redis_by(
        settings: Settings,
        redis: &RedisSettings,
        instance: &str,
        time: TimeOf,
    ) -> Result<Self, RedisSettingsError> {
        let connection = Connection::open(redis)?;
        let shared = Shared::new(connection, settings, instance.to_owned(), time);
        let store = RedisStore::new(shared);
        Ok(Self {
            claims: Claims::Shared(Arc::clone(&store.claims)),
            store: Store::Redis(store),
        })
    }

    #[cfg(test)]
    pub(crate) fn in_memory(&self) -> Option<&Memory> {
        match &self.store {
            Store::Memory(memory) => Some(memory),
            Store::Redis(_) => None,
        }
    }

    #[cfg(test)]
    pub(crate) fn in_redis(&self) -> Option<&Arc<RedisStore>> {
        match &self.store {
            Store::Memory(_) => None,
            Store::Redis(store) => Some(store),
        }
    }

    /// `memory` or `redis`.
    pub fn store_name(&self) -> &'static str {
        match &self.store {
            Store::Memory(_) => "memory",
            Store::Redis(_) => "redis",
        }
    }

    /// By which counters requests are admitted.
    pub fn mode(&self, now: Now) -> Mode {
        match &self.store {
            Store::Memory(_) => Mode::Normal,
            Store::Redis(store) => store.mode(now),
        }
    }

    /// Gateways that share the counters, this one among them, as far as it knows.
    pub fn gateways(&self) -> u64 {
        match &self.store {
            Store::Memory(_) => 1,
            Store::Redis(store) => store.gateways(),
        }
    }

    /// What a shared store has not heard of yet: parts of requests that have ended, and claims.
    pub fn unheard(&self) -> usize {
        match &self.store {
            Store::Memory(_) => 0,
            Store::Redis(store) => store.shared.outbox.len() + store.claims.untold(),
        }
    }

    /// Connects to a shared store before the first request, if that takes no longer than `within`; whether it did.
    pub async fn start(&self, signs: Arc<dyn LifeSigns>, within: Duration) -> bool {
        match &self.store {
            Store::Memory(_) => true,
            Store::Redis(store) => store.start(signs, within).await,
        }
    }

    /// What runs beside the requests of a shared store, until it is dropped: says that this gateway is there, renews what
    /// it holds, tells what was not heard, and finds out when the store is back.
    pub async fn keep(&self, signs: Arc<dyn LifeSigns>) {
        match &self.store {
            Store::Memory(_) => {}
            Store::Redis(store) => store.keep(signs).await,
        }
    }

    /// Says good-bye to a shared store, after the last request.
    pub async fn leave(&self) {
        if let Store::Redis(store) = &self.store {
            store.leave().await;
        }
    }

    /// What a shared store does when its memory is full, in its own word; `None` where it does not tell, and in memory.
    pub async fn eviction(&self) -> Option<String> {
        match &self.store {
            Store::Memory(_) => None,
            Store::Redis(store) => store.shared.eviction().await,
        }
    }

    /// What is wrong with how the shared store is set up, in words.
    pub async fn complaint(&self) -> Option<String> {
        match &self.store {
            Store::Memory(_) => None,
            Store::Redis(store) => store.shared.complaint().await,
        }
    }

    /// Takes the request's estimate from every limit of every scope and of one upstream, or from none. Limits are given as
    /// they are configured: which increases are in force says `now.wall`, here and in all that follows.
    ///
    /// # Errors
    /// The [`Denial`] worth telling where a limit refuses. No counter has changed then.
    ///
    /// # Panics
    /// When the scopes are not in the order of the tree, or a candidate is no upstream.
    pub async fn admit(&self, admission: &Admission<'_>, now: Now) -> Result<Hold, Box<Denial>> {
        let in_force = InForce::of(admission, now.wall);
        let in_force = in_force.admission(admission);
        match &self.store {
            Store::Memory(memory) => Memory::admit(memory, &in_force, now),
            Store::Redis(store) => store.admit(&in_force, admission, now).await,
        }
    }

    /// Gives an idempotency key to a request, which is to run then, or says what became of the one that has it. `body_hash`
    /// is that of the request's body. A request claims once.
    ///
    /// Dropped before it is answered, nothing is claimed.
    ///
    /// # Errors
    /// [`Unclaimed`] says what to answer instead: nothing is to run.
    pub async fn claim(
        &self,
        key: &IdempotencyKey,
        body_hash: [u8; 32],
        request: RequestId,
        now: Now,
    ) -> Result<Claim, Unclaimed> {
        let claimant = Claimant {
            key: *key,
            body_hash,
            request,
        };
        self.claims.claim(claimant, now).await
    }

    /// Ends what a request still holds in a shared store that this gateway had admitted and was killed before it ended. It
    /// is booked by now: `actual` is its entry of number `seq`. `admission` is as it was, `now` when it was admitted. False
    /// where the store does not answer: then its lease ends by itself.
    pub async fn settle_lost(&self, admission: &Admission<'_>, actual: &Amounts, seq: u64, now: Now) -> bool {
        match &self.store {
            Store::Memory(_) => true,
            Store::Redis(store) => store.shared.settle_lost(admission, actual, seq, now).await.is_ok(),
        }
    }

    /// Gives back the upstream's part of a hold, with the request's count staying where it was sent, and takes that of the
    /// first of `admission.upstreams` with room, or none where the list is empty. The rest of the hold is untouched; only
    /// `upstreams` of the admission may differ from the one that was admitted.
    ///
    /// # Errors
    /// The mildest [`Denial`] where none has room: then the hold is as before.
    pub async fn switch_upstream(
        &self,
        hold: &mut Hold,
        admission: &Admission<'_>,
        now: Now,
    ) -> Result<(), Box<Denial>> {
        let in_force = InForce::of(admission, now.wall);
        let admission = in_force.admission(admission);
        match (&self.store, &hold.parts) {
            (Store::Memory(memory), Parts::Memory(_)) => Memory::switch_upstream(memory, hold, &admission, now),
            (Store::Redis(store), Parts::Shared(_)) => store.switch_upstream(hold, &admission, now).await,
            _ => Ok(()),
        }
    }

    /// Hears what a provider has said is left of its account, in answer to a request for `model`: until its reset, the rates
    /// of this upstream that count what it said and apply to the model admit no more than that, enforced or in rehearsal,
    /// for windows of at most a minute. Longer windows are the operator's own idea and are left alone, as is everything
    /// that has less room anyway. Gates, readings and explanations go by what is left, too.
    ///
    /// What is counted here stays as it is; the word stands beside it, is lowered by what is taken after it, and is over at
    /// the reset, a second after it was told where none was said, a minute after at the latest. Use made up to match it
    /// would have to be taken back: a provider whose window ends in two seconds would block ours for a minute, and what
    /// requests under way settle and give back would have to be told apart from it.
    ///
    /// Providers count in two ways, and say the same headers. In windows that end at the reset nothing comes back before. A
    /// bucket refills all the time, and its reset is when it will be full: waiting for that with nothing left would waste
    /// a minute of the account. So a word that a bucket as large as the limit could have given grows by what the limit
    /// refills; one with less left than such a bucket would have grows by nothing.
    ///
    /// A later word stands instead of an earlier one where it says less, or answers a request that was sent after that was
    /// told. Dropped or failed, nothing has changed, or what was said stands.
    pub async fn correct_upstream(&self, of: &ScopeLimits, model: &str, told: &UpstreamRoom, now: Now) {
        let of = scope_at(of, now.wall);
        match &self.store {
            Store::Memory(memory) => memory.correct_upstream(&of, model, told, now),
            Store::Redis(store) => store.correct_upstream(&of, model, told, now).await,
        }
    }

    /// Every limit's reading, in the order given, and which counters gave it; takes nothing and creates nothing. Without a
    /// model or a priority, limits of every model or priority are read. While a shared store does not answer, this
    /// gateway's own.
    pub async fn read(
        &self,
        scopes: &[ScopeLimits],
        model: Option<&str>,
        priority: Option<Priority>,
        time_zone: Tz,
        now: Now,
    ) -> (CounterStore, Vec<Reading>) {
        let scopes = scopes_at(scopes, now.wall);
        match &self.store {
            Store::Memory(memory) => {
                let readings = memory.peek(&scopes, model, priority, time_zone, now);
                (CounterStore::Memory, readings)
            }
            Store::Redis(store) => store.peek(&scopes, model, priority, time_zone, now).await,
        }
    }

    /// [`Limits::read`], whichever counters gave it.
    pub async fn peek(
        &self,
        scopes: &[ScopeLimits],
        model: Option<&str>,
        priority: Option<Priority>,
        time_zone: Tz,
        now: Now,
    ) -> Vec<Reading> {
        self.read(scopes, model, priority, time_zone, now).await.1
    }

    /// What would happen to this request now, and which counters say so; takes nothing and creates nothing.
    pub async fn explain(&self, admission: &Admission<'_>, now: Now) -> (CounterStore, Explanation) {
        let in_force = InForce::of(admission, now.wall);
        let admission = in_force.admission(admission);
        match &self.store {
            Store::Memory(memory) => (CounterStore::Memory, memory.explain(&admission, now)),
            Store::Redis(store) => store.explain(&admission, now).await,
        }
    }

    /// Counts for these budgets from now on, closed until a base is set. `last_settled`, asked for once one counts, is the
    /// number of the last journal entry that was settled here: a first base has to contain it, because nobody counted
    /// before. Where gateways share the counters, all those under this version of the policy have put what they hold into
    /// the counters when this returns.
    pub async fn begin_budgets(
        &self,
        keys: &[BudgetKey],
        last_settled: impl Fn() -> u64,
        instance: &str,
        policy_version: i64,
        time_zone: Tz,
        now: Now,
    ) -> BegunBudgets {
        match &self.store {
            Store::Memory(memory) => {
                let marks = keys
                    .iter()
                    .filter_map(|key| memory.begin_budget(key, &last_settled, now));
                let least = marks.max().map(|mark| (instance.to_owned(), mark));
                BegunBudgets {
                    wanted: keys.to_vec(),
                    closed: HashSet::new(),
                    least_marks: least.into_iter().collect(),
                }
            }
            Store::Redis(store) => store.begin_budgets(keys, policy_version, time_zone, now).await,
        }
    }

    /// Requests that end from now on are booked in these budgets, too. Due before a policy is said to be known here.
    pub fn count_budgets(&self, keys: &[BudgetKey]) {
        if let Store::Redis(store) = &self.store {
            for key in keys {
                store.shared.budgets.note(key);
            }
        }
    }

    /// Sets what the ledger says about a budget: what was spent, containing each gateway's journal entries up to its mark.
    /// False where that period is over, a base with a higher mark is known, or the mark that [`Limits::begin_budgets`]
    /// waits for is not reached: then nothing has changed.
    pub async fn set_budget(
        &self,
        key: &BudgetKey,
        spent: i64,
        marks: &BTreeMap<String, u64>,
        instance: &str,
        time_zone: Tz,
        now: Now,
    ) -> bool {
        match &self.store {
            Store::Memory(memory) => {
                let mark = marks.get(instance).copied().unwrap_or(0);
                memory.set_budget(key, BudgetBase { spent, mark }, now)
            }
            Store::Redis(store) => store.set_budget(key, spent, marks, time_zone, now).await,
        }
    }

    /// Those of these budgets that need a base for this period: they have none, or requests have passed by since.
    pub async fn closed_budgets(&self, keys: &[BudgetKey], time_zone: Tz, now: Now) -> Vec<BudgetKey> {
        match &self.store {
            Store::Memory(memory) => keys
                .iter()
                .filter(|key| !memory.has_budget(key, now))
                .cloned()
                .collect(),
            Store::Redis(store) => store.closed_budgets(keys, time_zone, now).await,
        }
    }

    /// Every budget met here whose period has not ended, for reading its base again.
    pub async fn budgets(&self, now: Now) -> Vec<BudgetKey> {
        match &self.store {
            Store::Memory(memory) => memory.budgets(now).into_iter().map(|state| state.key).collect(),
            Store::Redis(store) => store.shared.budgets.current(now.wall),
        }
    }

    /// Waits until a shared store has lost or missed something, so that budgets want to be read again; for ever where
    /// there is none.
    pub async fn forgot(&self) {
        match &self.store {
            Store::Memory(_) => std::future::pending().await,
            Store::Redis(store) => store.forgot().await,
        }
    }

    /// Requests admitted here and not ended.
    pub fn open_holds(&self) -> u64 {
        match &self.store {
            Store::Memory(memory) => memory.open_holds(),
            Store::Redis(store) => store.shared.open.count(),
        }
    }

    /// How long a hold lasts without being renewed, in milliseconds.
    pub fn lease_ms(&self) -> u64 {
        match &self.store {
            Store::Memory(memory) => memory.lease_ms(),
            Store::Redis(store) => store.shared.settings.lease_ms,
        }
    }

    /// Whether anything is counted for this scope, as far as this gateway knows.
    pub fn has_counters(&self, scope: &Scope, now: Now) -> bool {
        match &self.store {
            Store::Memory(memory) => memory.has_counters(scope),
            Store::Redis(store) => store.has_counters(scope, now),
        }
    }

    /// Scopes that have counters here, over all kinds; of a shared store those with budgets that this gateway has met.
    pub fn scope_count(&self) -> usize {
        match &self.store {
            Store::Memory(memory) => memory.scope_count(),
            Store::Redis(store) => store.scope_count(),
        }
    }

    /// Drops claims that are over, and expired holds and idle scopes in a part of the counters in memory;
    /// [`Limits::SWEEPS_PER_ROUND`] calls see all of them. Once a second is often enough.
    pub fn sweep(&self, now: Now) {
        self.claims.sweep(now);
        match &self.store {
            Store::Memory(memory) => memory.sweep(now),
            Store::Redis(store) => store.sweep(now),
        }
    }

    /// Calls of [`Limits::sweep`] that look at every scope once.
    pub const SWEEPS_PER_ROUND: usize = crate::memory::SWEEPS_PER_ROUND;
}

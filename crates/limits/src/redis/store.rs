//! The shared counters as one gateway uses them: with counters of its own for as long as the shared ones do not answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono_tz::Tz;
use domain::limits::{Dimension, Limit, Scope};
use domain::priority::Priority;
use domain::readings::{CounterStore, Explanation, Reading};
use domain::refusals::RefusalCode;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::allowances::{Allowances, millionths};
use super::gateways::{Gateways, LifeSigns, SILENT_MS_MAX};
use super::health::{Mode, Scaled, scaled};
use super::shared::{Begun, CallFailed, Shared};
use super::shared_hold::SharedHold;
use crate::admission::BegunBudgets;
use crate::hold::{Hold, Parts};
use crate::idempotency::SharedClaims;
use crate::memory::Memory;
use crate::{Admission, BudgetBase, BudgetKey, Denial, Now, ScopeLimits, Settings, UpstreamRoom};

/// How often a gateway says that it is there, in milliseconds. A call is answered as fast, and a new budget waits for it.
const BEAT_MS: u64 = 500;
/// How often it looks whether all others have answered a call, in milliseconds.
const LISTEN_MS: u64 = 50;
/// How often a gateway that reads a budget's base is given the time for it, in milliseconds.
const READING_MS: u64 = 5_000;
/// Budgets asked for at once.
const BUDGETS_AT_ONCE: usize = 100;
/// Endings told at once.
const ENDINGS_AT_ONCE: usize = 64;
/// The pause after an ending that the server did not take, in milliseconds.
const ENDINGS_PAUSE_MS: u64 = 200;
/// How long a return waits for the server to hear of everything that happened meanwhile, in milliseconds; else it is
/// tried again with the next beat.
const RETURN_MS: u64 = 5_000;

/// Counters of its own, made anew each time they begin to count.
struct Local {
    memory: Arc<Memory>,
    /// Whether anything was admitted by them, or said of an account, that the shared ones may not know of.
    has_served: bool,
}

impl Local {
    /// Counts anew unless it counts already.
    fn begin(&mut self, settings: Settings, now: Now) {
        if !self.has_served {
            self.memory = Arc::new(Memory::drained(settings, now.monotonic_ms));
        }
    }

    /// The same, to admit by.
    fn serve(&mut self, settings: Settings, now: Now) -> &Arc<Memory> {
        self.begin(settings, now);
        self.has_served = true;
        &self.memory
    }
}

pub(crate) struct RedisStore {
    pub(crate) shared: Arc<Shared>,
    pub(crate) claims: Arc<SharedClaims>,
    allowances: Allowances,
    local: Mutex<Local>,
    others: Mutex<Gateways>,
    /// One beat at a time.
    beating: tokio::sync::Mutex<()>,
    /// Parts of budgets are set aside or given back, one after the other.
    measuring: tokio::sync::Mutex<()>,
    /// The server has forgotten something: budgets want to be read again.
    forgot: Notify,
    signs: Mutex<Option<Arc<dyn LifeSigns>>>,
    has_left: AtomicBool,
}

impl RedisStore {
    pub(crate) fn new(shared: Arc<Shared>) -> Arc<Self> {
        let memory = Arc::new(Memory::drained(shared.settings, 0));
        Arc::new(Self {
            claims: SharedClaims::new(Arc::clone(&shared)),
            shared,
            allowances: Allowances::default(),
            local: Mutex::new(Local {
                memory,
                has_served: false,
            }),
            others: Mutex::default(),
            beating: tokio::sync::Mutex::default(),
            measuring: tokio::sync::Mutex::default(),
            forgot: Notify::new(),
            signs: Mutex::new(None),
            has_left: AtomicBool::new(false),
        })
    }

    pub(crate) fn mode(&self, now: Now) -> Mode {
        self.shared.health.mode(now.monotonic_ms)
    }

    /// Gateways heard of lately, this one among them.
    pub(crate) fn gateways(&self) -> u64 {
        self.shared.health.gateways()
    }

    /// `configured` is the admission with its limits as they are configured, which says when their values change by
    /// themselves.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        admission: &Admission<'_>,
        configured: &Admission<'_>,
        now: Now,
    ) -> Result<Hold, Box<Denial>> {
        match self.mode(now) {
            Mode::Degraded { share_percent } => self.admit_locally(admission, share_percent, now),
            Mode::Normal => self.admit_shared(admission, configured, now).await,
            Mode::Returning { share_percent } => {
                let scaled = Scaled::of(admission, share_percent);
                self.admit_shared(&scaled.admission(admission), configured, now).await
            }
        }
    }

    async fn admit_shared(
        self: &Arc<Self>,
        admission: &Admission<'_>,
        configured: &Admission<'_>,
        now: Now,
    ) -> Result<Hold, Box<Denial>> {
        let mut answer = self.shared.admit(admission, now).await;
        if let Ok(Err(denial)) = &answer
            && denial.code == RefusalCode::BudgetHeld
            && self.give_up_aside(admission, now).await
        {
            answer = self.shared.admit(admission, now).await;
        }
        match answer {
            Ok(Ok(hold)) => {
                self.shared.health.succeeded();
                self.meet_budgets(configured, now);
                Ok(hold)
            }
            Ok(Err(denial)) => {
                self.shared.health.succeeded();
                Err(denial)
            }
            Err(failed) => {
                self.note_failure(&failed, now);
                let share = self.share_percent(now);
                self.admit_locally(admission, share, now)
            }
        }
    }

    /// Admits by this gateway's own counters.
    fn admit_locally(
        self: &Arc<Self>,
        admission: &Admission<'_>,
        share_percent: u8,
        now: Now,
    ) -> Result<Hold, Box<Denial>> {
        let own = Scaled::of(admission, share_percent);
        let own = own.admission(admission);
        // Locked until the hold is among those that are told: nothing is spent of a part that is about to be forgotten.
        let mut local = self.local.lock();
        let memory = local.serve(self.shared.settings, now);
        self.grant(memory, &own, now);
        let mut hold = Memory::admit(memory, &own, now)?;
        // Nobody can read a base now.
        hold.unknown_budgets.clear();
        let chosen = hold.upstream_index.and_then(|index| {
            let mut candidates = own.upstreams.iter();
            candidates.find(|candidate| candidate.index == index)
        });
        let mut parts = SharedHold::locally(&self.shared, admission, chosen.map(|candidate| &candidate.scope), now);
        if let Parts::Memory(part) = std::mem::replace(&mut hold.parts, Parts::Ended) {
            parts.local = Some(part);
        }
        self.shared.open.put(parts.open_hold(&hold.request));
        hold.parts = Parts::Shared(Box::new(parts));
        Ok(hold)
    }

    /// Lets this gateway's own counters spend what is set aside for it, as much as that is by now.
    fn grant(&self, memory: &Memory, own: &Admission<'_>, now: Now) {
        for_each_budget(own, now, |key, limit| {
            let part = match self.allowances.part(&key, now) {
                Some(part) => part,
                // It is not set aside any more.
                None if memory.has_budget(&key, now) => 0,
                None => return,
            };
            let spent = limit.value.saturating_sub(part.saturating_mul(key.unit()));
            let spent = i64::try_from(spent).unwrap_or(i64::MAX);
            memory.set_budget(&key, BudgetBase { spent, mark: 0 }, now);
        });
    }

    /// Another upstream for a request under way.
    pub(crate) async fn switch_upstream(
        self: &Arc<Self>,
        hold: &mut Hold,
        admission: &Admission<'_>,
        now: Now,
    ) -> Result<(), Box<Denial>> {
        if !self.shared.health.is_degraded() {
            match self.shared.switch_upstream(hold, admission, now).await {
                Ok(answer) => {
                    self.shared.health.succeeded();
                    return answer;
                }
                Err(failed) => self.note_failure(&failed, now),
            }
        }
        self.switch_locally(hold, admission, now)
    }

    fn switch_locally(&self, hold: &mut Hold, admission: &Admission<'_>, now: Now) -> Result<(), Box<Denial>> {
        let own = Scaled::of(admission, self.share_percent(now));
        let own = own.admission(admission);
        // The account's part alone, beside what the request holds already.
        let alone = Admission { scopes: &[], ..own };
        let mut local = self.local.lock();
        let memory = local.serve(self.shared.settings, now);
        self.grant(memory, &alone, now);
        let mut taken = Memory::admit(memory, &alone, now)?;
        taken.is_open = false;
        let chosen = admission
            .upstreams
            .iter()
            .find(|candidate| Some(candidate.index) == taken.upstream_index);
        let Parts::Memory(part) = std::mem::replace(&mut taken.parts, Parts::Ended) else {
            return Ok(());
        };
        if let Parts::Shared(parts) = &mut hold.parts {
            let was_sent = std::mem::replace(&mut hold.is_sent_upstream, false);
            parts.switch_locally(
                &hold.request,
                part,
                chosen.map(|candidate| &candidate.scope),
                admission,
                was_sent,
                now,
            );
            self.shared.open.put(parts.open_hold(&hold.request));
        }
        hold.upstream_index = taken.upstream_index;
        hold.rehearsed.append(&mut taken.rehearsed);
        Ok(())
    }

    /// Hears what a provider says is left of its account. While the shared counters do not answer, those of one's own do,
    /// for the part of it that is this gateway's.
    pub(crate) async fn correct_upstream(&self, of: &ScopeLimits, model: &str, told: &UpstreamRoom, now: Now) {
        let tellings = told.tellings(of, model);
        if tellings.is_empty() {
            return;
        }
        if !self.shared.health.is_degraded() {
            let heard = self
                .shared
                .correct_upstream(&of.scope, &tellings, told.sent_ms_ago, now);
            match heard.await {
                Ok(()) => return self.shared.health.succeeded(),
                Err(failed) => self.note_failure(&failed, now),
            }
        }
        if !self.shared.health.is_degraded() {
            // The next answer says it again.
            return;
        }
        let percent = self.share_percent(now);
        let mut local = self.local.lock();
        let memory = local.serve(self.shared.settings, now);
        memory.correct_upstream(&scaled(of, percent), model, &told.scaled(percent), now);
    }

    /// Every limit's reading, and which counters gave it.
    pub(crate) async fn peek(
        &self,
        scopes: &[ScopeLimits],
        model: Option<&str>,
        priority: Option<Priority>,
        time_zone: Tz,
        now: Now,
    ) -> (CounterStore, Vec<Reading>) {
        if !self.shared.health.is_degraded()
            && let Ok(readings) = self.shared.peek(scopes, model, priority, time_zone, now).await
        {
            return (CounterStore::Redis, readings);
        }
        let percent = self.share_percent(now);
        let own: Vec<ScopeLimits> = scopes.iter().map(|of| scaled(of, percent)).collect();
        let readings = self.local(now).peek(&own, model, priority, time_zone, now);
        (CounterStore::Degraded, readings)
    }

    /// What would happen to a request, and which counters say so.
    pub(crate) async fn explain(&self, admission: &Admission<'_>, now: Now) -> (CounterStore, Explanation) {
        if !self.shared.health.is_degraded() {
            let explained = match self.mode(now) {
                Mode::Returning { share_percent } => {
                    let scaled = Scaled::of(admission, share_percent);
                    self.shared.explain(&scaled.admission(admission), now).await
                }
                _ => self.shared.explain(admission, now).await,
            };
            if let Ok(explanation) = explained {
                return (CounterStore::Redis, explanation);
            }
        }
        let own = Scaled::of(admission, self.share_percent(now));
        let explanation = self.local(now).explain(&own.admission(admission), now);
        (CounterStore::Degraded, explanation)
    }

    /// Lets budgets count, and waits until everybody's holds are counted where a base is missing.
    pub(crate) async fn begin_budgets(
        self: &Arc<Self>,
        keys: &[BudgetKey],
        policy_version: i64,
        time_zone: Tz,
        now: Now,
    ) -> BegunBudgets {
        let mut begun = BegunBudgets::default();
        if self.shared.health.is_degraded() {
            return begun;
        }
        for keys in keys.chunks(BUDGETS_AT_ONCE) {
            let answers = join_all(
                keys.iter()
                    .map(|key| self.shared.begin_budget(key, time_zone, READING_MS, now)),
            )
            .await;
            for (key, answer) in keys.iter().zip(answers) {
                match answer {
                    Ok(Begun::Wait) => {}
                    Ok(answer) => {
                        if answer == Begun::Read {
                            begun.closed.insert(key.clone());
                        }
                        begun.wanted.push(key.clone());
                    }
                    Err(failed) => self.note_failure(&failed, now),
                }
            }
        }
        if !begun.closed.is_empty() {
            match self.everyone_answers(policy_version).await {
                Some(marks) => begun.least_marks = marks,
                None => begun.wanted.clear(),
            }
        }
        begun
    }

    pub(crate) async fn set_budget(
        &self,
        key: &BudgetKey,
        spent: i64,
        marks: &BTreeMap<String, u64>,
        time_zone: Tz,
        now: Now,
    ) -> bool {
        let marks = marks.iter().map(|(instance, mark)| (instance.as_str(), *mark));
        match self.shared.set_budget(key, spent, marks, time_zone, now).await {
            Ok(is_set) => is_set,
            Err(failed) => {
                self.note_failure(&failed, now);
                false
            }
        }
    }

    /// Those that have no base, as far as anybody can tell now.
    pub(crate) async fn closed_budgets(&self, keys: &[BudgetKey], time_zone: Tz, now: Now) -> Vec<BudgetKey> {
        if self.shared.health.is_degraded() {
            let allowed = |key: &&BudgetKey| self.allowances.part(key, now).is_none();
            return keys.iter().filter(allowed).cloned().collect();
        }
        match self.shared.without_base(keys, time_zone, now).await {
            Ok(closed) => closed,
            Err(failed) => {
                self.note_failure(&failed, now);
                Vec::new()
            }
        }
    }

    /// What may be spent of a budget without the shared counters, in units of the store.
    #[cfg(test)]
    pub(crate) fn allowance(&self, key: &BudgetKey, now: Now) -> Option<u64> {
        self.allowances.part(key, now)
    }

    /// Beats at once.
    #[cfg(test)]
    pub(crate) async fn beat_now(self: &Arc<Self>) -> bool {
        let signs = self.signs.lock().clone().expect("signs of life");
        self.beat(&*signs, false).await
    }

    /// Renews one hold at once.
    #[cfg(test)]
    pub(crate) async fn renew_now(&self, id: domain::ids::RequestId, now: Now) {
        let mut open = self.shared.open.all();
        open.retain(|hold| hold.request.id == id);
        self.shared.renew(&open, now).await.expect("the server answers");
    }

    /// Tells the server everything that it has not heard.
    #[cfg(test)]
    pub(crate) async fn tell_all(&self, now: Now) {
        while self.shared.outbox.len() > 0 {
            assert!(self.tell_endings(now).await, "the server answers");
        }
    }

    /// Waits until budgets want to be read again because the server has forgotten something.
    pub(crate) async fn forgot(&self) {
        self.forgot.notified().await;
    }

    /// Says twice a second that this gateway is there, renews what it holds, and tells the server what it did not hear.
    pub(crate) async fn keep(self: &Arc<Self>, signs: Arc<dyn LifeSigns>) {
        *self.signs.lock() = Some(Arc::clone(&signs));
        let beats = async {
            loop {
                self.beat(&*signs, false).await;
                tokio::time::sleep(Duration::from_millis(BEAT_MS)).await;
            }
        };
        let renewals = async {
            loop {
                tokio::time::sleep(Duration::from_millis(self.shared.settings.lease_ms / 3)).await;
                self.claims.renew_here(signs.now());
                if !self.shared.health.is_degraded()
                    && let Err(failed) = self.renew_all(signs.now()).await
                {
                    self.note_failure(&failed, signs.now());
                }
            }
        };
        let endings = async {
            loop {
                self.shared.outbox.has_more().await;
                if self.shared.health.is_degraded() || !self.tell_endings(signs.now()).await {
                    tokio::time::sleep(Duration::from_millis(ENDINGS_PAUSE_MS)).await;
                }
            }
        };
        futures_util::join!(beats, renewals, endings, self.claims.keep_telling(&*signs));
    }

    /// Connects before the first request, if that takes no longer than `within`.
    pub(crate) async fn start(self: &Arc<Self>, signs: Arc<dyn LifeSigns>, within: Duration) -> bool {
        *self.signs.lock() = Some(Arc::clone(&signs));
        let connected = async {
            while !self.beat(&*signs, false).await {
                tokio::time::sleep(Duration::from_millis(LISTEN_MS)).await;
            }
        };
        tokio::time::timeout(within, connected).await.is_ok()
    }

    /// Says that this gateway goes, so that nobody waits for it, and gives back what is set aside for it.
    pub(crate) async fn leave(&self) {
        let Some(signs) = self.signs.lock().clone() else {
            return;
        };
        // No beat after this one says that it is there.
        let _one = self.beating.lock().await;
        self.has_left.store(true, Ordering::Relaxed);
        let told = async {
            if self.tell_all_endings(&*signs).await {
                self.give_back(self.allowances.keys(), signs.now()).await;
            }
        };
        let told = futures_util::future::join(told, self.claims.tell_all(&*signs));
        let _ = tokio::time::timeout(Duration::from_millis(RETURN_MS), told).await;
        let answered = self.others.lock().answered();
        let _ = self.shared.beat(&*signs, &answered, false, true).await;
    }

    /// One beat, with all that follows from its answer. False where there was none.
    async fn beat(self: &Arc<Self>, signs: &dyn LifeSigns, calls: bool) -> bool {
        let _one = self.beating.lock().await;
        let now = signs.now();
        if self.has_left.load(Ordering::Relaxed) || !self.say(signs, calls).await {
            return false;
        }
        // Known before anything is told: holds are counted in budgets that are known by then.
        let unanswered = self.others.lock().unanswered(signs.policy_version());
        if !self.others.lock().is_answered() {
            // A base is missing somewhere, and with it what was set aside.
            let _no_admission = self.local.lock();
            self.allowances.forget();
        }
        let was_degraded = self.shared.health.is_degraded();
        if was_degraded || unanswered.is_some() {
            // What is held and was spent here first: after that the counters can be counted on.
            let told = tokio::time::timeout(Duration::from_millis(RETURN_MS), self.tell_everything(signs));
            if !matches!(told.await, Ok(true)) {
                return false;
            }
            if let Some(call) = unanswered {
                self.others.lock().answer(call);
            }
            if !self.say(signs, false).await {
                return false;
            }
        }
        self.shared.health.saw_gateways(self.others.lock().count());
        let has_forgotten = self.others.lock().take_forgotten();
        if was_degraded || has_forgotten {
            let has_served = self.local.lock().has_served;
            self.shared
                .health
                .came_back(has_served || has_forgotten, now.monotonic_ms);
            tracing::info!(has_forgotten, "the shared counters answer; admitting by them");
            self.forgot.notify_one();
            // Those that were admitted meanwhile.
            if let Err(failed) = self.renew_all(signs.now()).await {
                self.note_failure(&failed, now);
            }
        } else {
            self.shared.health.heard_beat();
        }
        self.set_aside(now).await;
        true
    }

    /// Says that this gateway is there, and hears who else is; false where there was no answer.
    async fn say(&self, signs: &dyn LifeSigns, calls: bool) -> bool {
        let answered = self.others.lock().answered();
        match self.shared.beat(signs, &answered, calls, false).await {
            Ok(heard) => {
                self.others.lock().hear(heard);
                true
            }
            Err(failed) => {
                self.shared.note_missed_beat(&failed, signs.now());
                false
            }
        }
    }

    async fn tell_everything(&self, signs: &dyn LifeSigns) -> bool {
        self.claims.try_answers_again();
        self.tell_all_endings(signs).await && self.renew_all(signs.now()).await.is_ok()
    }

    async fn tell_all_endings(&self, signs: &dyn LifeSigns) -> bool {
        while self.shared.outbox.len() > 0 {
            if !self.tell_endings(signs.now()).await {
                return false;
            }
        }
        true
    }

    /// Tells some endings that the server has not heard of; false where it did not listen.
    async fn tell_endings(&self, now: Now) -> bool {
        let endings = self.shared.outbox.first(ENDINGS_AT_ONCE);
        let told = join_all(endings.iter().map(|ending| self.shared.tell(ending, now))).await;
        let mut all_heard = true;
        for (ending, told) in endings.iter().zip(told) {
            match told {
                Ok(()) => self.shared.outbox.heard(ending),
                Err(failed) => {
                    self.note_failure(&failed, now);
                    all_heard = false;
                }
            }
        }
        all_heard
    }

    async fn renew_all(&self, now: Now) -> Result<(), CallFailed> {
        let open = self.shared.open.all();
        self.shared.renew(&open, now).await?;
        self.claims.renew_there(now).await
    }

    /// Calls for everybody's holds, and waits until they are counted. What a base has to contain of each journal.
    async fn everyone_answers(self: &Arc<Self>, policy_version: i64) -> Option<BTreeMap<String, u64>> {
        let signs = self.signs.lock().clone()?;
        if !self.beat(&*signs, true).await {
            return None;
        }
        let call = self.others.lock().call();
        let answers = async {
            loop {
                if self.beat(&*signs, false).await
                    && let Some(marks) = self.others.lock().marks_of_all(call, policy_version)
                {
                    return marks;
                }
                tokio::time::sleep(Duration::from_millis(LISTEN_MS)).await;
            }
        };
        let within = Duration::from_millis(SILENT_MS_MAX.unsigned_abs());
        match tokio::time::timeout(within, answers).await {
            Ok(marks) => Some(marks),
            // Somebody is there and does not answer: nobody waits for it for ever.
            Err(_) => Some(self.others.lock().marks(call, policy_version)),
        }
    }

    fn meet_budgets(&self, configured: &Admission<'_>, now: Now) {
        for_each_budget(configured, now, |key, limit| self.allowances.meet(key, limit, now));
    }

    /// Sets a part of the budgets that were met lately aside for the time without shared counters.
    async fn set_aside(&self, now: Now) {
        let _one = self.measuring.lock().await;
        {
            let mut local = self.local.lock();
            if self.is_spending(&local) {
                return;
            }
            if local.has_served {
                // What was spent of them is not to be spent again.
                local.has_served = false;
                self.allowances.forget();
            }
            // Nothing is spent of parts that are being measured: what becomes of them is known when the answer is there.
            self.allowances.suspend_due(now);
        }
        let due = self.allowances.due(now);
        let millionths = millionths(self.gateways());
        for due in due.chunks(BUDGETS_AT_ONCE) {
            match self.shared.set_aside(due, millionths, now).await {
                Ok(parts) => {
                    for ((key, _), part) in due.iter().zip(parts) {
                        self.allowances.set(key, part, now);
                    }
                }
                Err(failed) => return self.note_failure(&failed, now),
            }
        }
    }

    /// Whether parts are being spent, and the server does not know how far.
    fn is_spending(&self, local: &Local) -> bool {
        local.has_served && (self.shared.outbox.len() > 0 || local.memory.open_holds() > 0)
    }

    /// Gives back what is set aside of the budgets of a request; false where nothing is.
    async fn give_up_aside(&self, admission: &Admission<'_>, now: Now) -> bool {
        let mut keys = Vec::new();
        for_each_budget(admission, now, |key, _| keys.push(key));
        self.give_back(keys, now).await
    }

    /// Gives back what is set aside of these budgets; false where nothing is.
    async fn give_back(&self, keys: Vec<BudgetKey>, now: Now) -> bool {
        // A request does not wait for a measurement: what that sets aside would be given back by the next.
        let Ok(_one) = self.measuring.try_lock() else {
            return false;
        };
        let given_up = {
            let local = self.local.lock();
            if self.is_spending(&local) {
                return false;
            }
            self.allowances.give_up(keys, now)
        };
        for given_up in given_up.chunks(BUDGETS_AT_ONCE) {
            if self.shared.set_aside(given_up, 0, now).await.is_err() {
                return false;
            }
        }
        !given_up.is_empty()
    }

    /// This gateway's own counters, to look at.
    fn local(&self, now: Now) -> Arc<Memory> {
        let mut local = self.local.lock();
        if self.shared.health.is_degraded() {
            local.begin(self.shared.settings, now);
        }
        Arc::clone(&local.memory)
    }

    fn share_percent(&self, now: Now) -> u8 {
        match self.mode(now) {
            Mode::Degraded { share_percent } => share_percent,
            Mode::Normal | Mode::Returning { .. } => self.shared.health.share_percent(),
        }
    }

    fn note_failure(&self, failed: &CallFailed, now: Now) {
        self.shared.note_failure(failed, now);
    }

    pub(crate) fn has_counters(&self, scope: &Scope, now: Now) -> bool {
        self.shared.budgets.has(scope) || self.local(now).has_counters(scope)
    }

    pub(crate) fn scope_count(&self) -> usize {
        self.shared.budgets.scope_count()
    }

    pub(crate) fn sweep(&self, now: Now) {
        self.shared.budgets.forget_ended(now.wall);
        self.local(now).sweep(now);
    }
}

fn for_each_budget(admission: &Admission<'_>, now: Now, mut act: impl FnMut(BudgetKey, &Limit)) {
    let upstreams = admission.upstreams.iter().map(|candidate| &candidate.scope);
    for of in admission.scopes.iter().chain(upstreams) {
        for limit in of.limits.iter() {
            let is_met = limit.applies_to(admission.model, admission.priority);
            if matches!(limit.dimension, Dimension::BudgetCost | Dimension::BudgetTokens) && is_met {
                act(BudgetKey::of(of, limit, now.wall, admission.time_zone), limit);
            }
        }
    }
}

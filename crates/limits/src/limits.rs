//! The door to admission.

use std::sync::Arc;

use chrono_tz::Tz;
use domain::limits::Scope;
use domain::priority::Priority;
use domain::readings::{Explanation, Reading};

use crate::memory::Memory;
use crate::{Admission, BudgetBase, BudgetKey, BudgetState, Denial, Hold, Now, ScopeLimits, Settings};

/// The counters of all scopes. Clones share them.
#[derive(Clone, Debug)]
pub struct Limits {
    pub(crate) memory: Arc<Memory>,
}

impl Limits {
    /// Counters in this process's memory.
    pub fn memory(settings: Settings) -> Self {
        Self {
            memory: Arc::new(Memory::new(settings)),
        }
    }

    /// Takes the request's estimate from every limit of every scope and of one upstream, or from none.
    ///
    /// # Errors
    /// The [`Denial`] worth telling where a limit refuses. No counter has changed then.
    ///
    /// # Panics
    /// When the scopes are not in the order of the tree, or a candidate is no upstream.
    pub async fn admit(&self, admission: &Admission<'_>, now: Now) -> Result<Hold, Box<Denial>> {
        Memory::admit(&self.memory, admission, now)
    }

    /// Every limit's reading, in the order given; takes nothing and creates nothing. Without a model or a priority,
    /// limits of every model or priority are read.
    pub async fn peek(
        &self,
        scopes: &[ScopeLimits],
        model: Option<&str>,
        priority: Option<Priority>,
        time_zone: Tz,
        now: Now,
    ) -> Vec<Reading> {
        self.memory.peek(scopes, model, priority, time_zone, now)
    }

    /// What would happen to this request now; takes nothing and creates nothing.
    pub async fn explain(&self, admission: &Admission<'_>, now: Now) -> Explanation {
        self.memory.explain(admission, now)
    }

    /// Counts for this budget from now on, closed until a base is set. `last_settled`, asked for once it counts, is the
    /// number of the last journal entry that was settled: a first base has to contain it, because nobody counted here
    /// before. Answers the mark that is waited for; `None` where a base is known.
    pub async fn begin_budget(&self, key: &BudgetKey, last_settled: impl FnOnce() -> u64, now: Now) -> Option<u64> {
        self.memory.begin_budget(key, last_settled, now)
    }

    /// Sets what the ledger says about a budget. False where that period is over, a base with a higher mark is known, or
    /// the mark that [`Limits::begin_budget`] waits for is not reached: then nothing has changed.
    pub async fn set_budget(&self, key: &BudgetKey, base: BudgetBase, now: Now) -> bool {
        self.memory.set_budget(key, base, now)
    }

    /// Whether this budget needs no base for this period: it has one, and no request has passed by it since.
    pub async fn has_budget(&self, key: &BudgetKey, now: Now) -> bool {
        self.memory.has_budget(key, now)
    }

    /// Every budget whose period has not ended, for reading its base again.
    pub async fn budgets(&self, now: Now) -> Vec<BudgetState> {
        self.memory.budgets(now)
    }

    /// Requests admitted and not ended.
    pub fn open_holds(&self) -> u64 {
        self.memory.open_holds()
    }

    /// How long a hold lasts without being renewed, in milliseconds.
    pub fn lease_ms(&self) -> u64 {
        self.memory.lease_ms()
    }

    /// Whether anything is counted for this scope.
    pub fn has_counters(&self, scope: &Scope) -> bool {
        self.memory.has_counters(scope)
    }

    /// Scopes that have counters, over all kinds.
    pub fn scope_count(&self) -> usize {
        self.memory.scope_count()
    }

    /// Drops expired holds and idle scopes in a part of the counters; [`Limits::SWEEPS_PER_ROUND`] calls see all of
    /// them. Once a second is often enough.
    pub fn sweep(&self, now: Now) {
        self.memory.sweep(now);
    }

    /// Calls of [`Limits::sweep`] that look at every scope once.
    pub const SWEEPS_PER_ROUND: usize = crate::memory::SWEEPS_PER_ROUND;
}

//! What admission took from every scope for one request.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use domain::estimate::Amounts;
use domain::ids::RequestId;
use domain::ledger::RehearsedVerdict;
use domain::limits::Scope;
use domain::priority::Priority;

use crate::memory::Memory;
use crate::node::Share;
use crate::{Admission, BudgetKey, Denial, Now, Tightest};

/// What counters need to know of a request after its admission.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) id: RequestId,
    pub(crate) model: Box<str>,
    pub(crate) priority: Priority,
    pub(crate) ceiling: Amounts,
    pub(crate) admitted_at: DateTime<Utc>,
}

/// One request's part of every counter. Ends exactly once: [`Hold::settle`], [`Hold::refund`], or by being dropped,
/// which gives everything back but the count of a request that was sent.
#[must_use = "dropping a hold gives everything back"]
#[derive(Debug)]
pub struct Hold {
    pub(crate) request: Request,
    pub(crate) memory: Arc<Memory>,
    pub(crate) tree: Vec<Share>,
    pub(crate) upstream: Option<Share>,
    /// Its scopes that had no counters when it was admitted: budgets may begin there before it ends.
    pub(crate) uncounted: Vec<Scope>,
    pub(crate) uncounted_upstream: Option<Scope>,
    pub(crate) upstream_index: Option<usize>,
    pub(crate) rehearsed: Vec<RehearsedVerdict>,
    pub(crate) unknown_budgets: Vec<BudgetKey>,
    pub(crate) tightest: Tightest,
    pub(crate) is_sent: bool,
    pub(crate) is_sent_upstream: bool,
    pub(crate) is_open: bool,
}

impl Hold {
    /// The request.
    pub fn id(&self) -> RequestId {
        self.request.id
    }

    /// The caller's number of the upstream taken; `None` where no candidates were given.
    pub fn upstream(&self) -> Option<usize> {
        self.upstream_index
    }

    /// What limits in rehearsal would have said.
    pub fn rehearsed(&self) -> &[RehearsedVerdict] {
        &self.rehearsed
    }

    /// Budgets whose base is wanted although they did not refuse: they are in rehearsal, or missed requests while their
    /// limit was away.
    pub fn unknown_budgets(&self) -> &[BudgetKey] {
        &self.unknown_budgets
    }

    /// The tightest limits after this request was taken, for response headers.
    pub fn tightest(&self) -> &Tightest {
        &self.tightest
    }

    /// Bytes are about to go upstream: from now on the request's count stays whatever happens.
    pub fn mark_sent(&mut self) {
        self.is_sent = true;
        self.is_sent_upstream = true;
    }

    /// Puts what the request really used in the place of its estimate, everywhere, and frees its places in flight.
    /// `seq` is the journal's number of its entry: a budget whose base contains it does not count it again. Without one
    /// it counts until the period ends. Budgets that have begun since its admission count it, too.
    pub async fn settle(mut self, actual: Amounts, seq: Option<u64>, now: Now) {
        self.is_open = false;
        self.for_each_share(|share| share.settle(&self.request, &actual, seq, now.monotonic_ms));
        self.memory.forget_hold();
    }

    /// Gives everything back, but for the count of a request that was sent.
    pub async fn refund(mut self) {
        self.end_by_refund();
    }

    /// Extends the lease of every part, and takes one of the budgets that have begun meanwhile. Due well before [`Settings::lease_ms`](crate::Settings::lease_ms) has passed.
    pub async fn renew(&self, now: Now) {
        let expires_ms = self.memory.expiry_ms(now);
        self.for_each_share(|share| share.renew(&self.request, expires_ms));
    }

    /// Gives back this upstream's part, with the request's count staying where it was sent, and takes that of the first
    /// of `admission.upstreams` with room, or none where the list is empty. The rest of the hold is untouched; only
    /// `upstreams` of the admission may differ from the one that was admitted.
    ///
    /// # Errors
    /// The mildest [`Denial`] where none has room: then the hold is as before.
    pub async fn switch_upstream(&mut self, admission: &Admission<'_>, now: Now) -> Result<(), Box<Denial>> {
        Memory::switch_upstream(self, admission, now)
    }

    fn end_by_refund(&mut self) {
        if !std::mem::replace(&mut self.is_open, false) {
            return;
        }
        for share in self.tree.iter().chain(&self.begun(&self.uncounted)) {
            share.refund(&self.request, self.is_sent);
        }
        for share in self.upstream.iter().chain(&self.begun(&self.uncounted_upstream)) {
            share.refund(&self.request, self.is_sent_upstream);
        }
        self.memory.forget_hold();
    }

    fn for_each_share(&self, act: impl Fn(&Share)) {
        self.tree.iter().chain(&self.upstream).for_each(&act);
        self.begun(&self.uncounted).iter().for_each(&act);
        self.begun(&self.uncounted_upstream).iter().for_each(&act);
    }

    /// Those of the scopes that have counters by now; nothing was taken there.
    fn begun<'a>(&self, scopes: impl IntoIterator<Item = &'a Scope>) -> Vec<Share> {
        let nodes = scopes.into_iter().filter_map(|scope| self.memory.find_node(scope));
        nodes.map(Share::untaken).collect()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.end_by_refund();
    }
}

//! What admission took from every scope for one request.

use std::fmt;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use domain::estimate::Amounts;
use domain::ids::RequestId;
use domain::ledger::RehearsedVerdict;
use domain::limits::Scope;
use domain::priority::Priority;

use crate::memory::Memory;
use crate::node::Share;
use crate::redis::SharedHold;
use crate::{BudgetKey, Now, Tightest};

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
pub struct Hold {
    pub(crate) request: Request,
    pub(crate) parts: Parts,
    pub(crate) upstream_index: Option<usize>,
    pub(crate) rehearsed: Vec<RehearsedVerdict>,
    pub(crate) unknown_budgets: Vec<BudgetKey>,
    pub(crate) tightest: Tightest,
    pub(crate) is_sent: bool,
    pub(crate) is_sent_upstream: bool,
    pub(crate) is_open: bool,
}

/// Where it was taken.
pub(crate) enum Parts {
    Memory(MemoryHold),
    Shared(Box<SharedHold>),
    /// Nowhere any more.
    Ended,
}

/// A part of the counters in memory.
pub(crate) struct MemoryHold {
    pub(crate) memory: Arc<Memory>,
    pub(crate) tree: Vec<Share>,
    pub(crate) upstream: Option<Share>,
    /// Its scopes that had no counters when it was admitted: budgets may begin there before it ends.
    pub(crate) uncounted: Vec<Scope>,
    pub(crate) uncounted_upstream: Option<Scope>,
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("request", &self.request)
            .field("upstream_index", &self.upstream_index)
            .finish_non_exhaustive()
    }
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
    ///
    /// Whether or not this is waited for, it happens; a shared store that does not answer hears of it later.
    pub async fn settle(mut self, actual: Amounts, seq: Option<u64>, now: Now) {
        self.is_open = false;
        match &self.parts {
            Parts::Memory(parts) => parts.settle(&self.request, &actual, seq, now),
            Parts::Shared(parts) => parts.settle(&self.request, actual, seq, now).await,
            Parts::Ended => {}
        }
    }

    /// The same where nobody can wait: a shared store hears of it soon.
    pub fn settle_later(mut self, actual: Amounts, seq: Option<u64>, now: Now) {
        self.is_open = false;
        match &self.parts {
            Parts::Memory(parts) => parts.settle(&self.request, &actual, seq, now),
            Parts::Shared(parts) => parts.end_later(&self.request, Some((actual, seq)), true, true, Some(now)),
            Parts::Ended => {}
        }
    }

    /// Gives everything back, but for the count of a request that was sent.
    pub async fn refund(mut self, now: Now) {
        self.is_open = false;
        match &self.parts {
            Parts::Memory(parts) => parts.refund(&self.request, self.is_sent, self.is_sent_upstream),
            Parts::Shared(parts) => {
                parts
                    .refund(&self.request, self.is_sent, self.is_sent_upstream, now)
                    .await;
            }
            Parts::Ended => {}
        }
    }

    /// Extends the lease of every part, and takes one of the budgets that have begun meanwhile. Due well before
    /// [`Settings::lease_ms`](crate::Settings::lease_ms) has passed. Of a shared store's holds
    /// [`Limits::keep`](crate::Limits::keep) renews all together.
    pub async fn renew(&self, now: Now) {
        if let Parts::Memory(parts) = &self.parts {
            parts.renew(&self.request, now);
        }
    }
}

impl MemoryHold {
    pub(crate) fn settle(&self, request: &Request, actual: &Amounts, seq: Option<u64>, now: Now) {
        self.for_each_share(|share| share.settle(request, actual, seq, now.monotonic_ms));
        self.memory.forget_hold();
    }

    pub(crate) fn refund(&self, request: &Request, is_sent: bool, is_sent_upstream: bool) {
        for share in self.tree.iter().chain(&self.begun(&self.uncounted)) {
            share.refund(request, is_sent);
        }
        for share in self.upstream.iter().chain(&self.begun(&self.uncounted_upstream)) {
            share.refund(request, is_sent_upstream);
        }
        self.memory.forget_hold();
    }

    pub(crate) fn renew(&self, request: &Request, now: Now) {
        let expires_ms = self.memory.expiry_ms(now);
        self.for_each_share(|share| share.renew(request, expires_ms));
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
        if !std::mem::replace(&mut self.is_open, false) {
            return;
        }
        match &self.parts {
            Parts::Memory(parts) => parts.refund(&self.request, self.is_sent, self.is_sent_upstream),
            Parts::Shared(parts) => parts.end_later(&self.request, None, self.is_sent, self.is_sent_upstream, None),
            Parts::Ended => {}
        }
    }
}

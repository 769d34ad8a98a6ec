//! One request's part of the shared counters.

use std::sync::Arc;

use chrono_tz::Tz;
use domain::estimate::Amounts;
use domain::limits::Scope;

use super::group::{Branch, Group, Name};
use super::open_holds::OpenHold;
use super::outbox::{Ending, How};
use super::shared::Shared;
use crate::hold::{MemoryHold, Request};
use crate::{Admission, Now, ScopeLimits};

/// What it has taken.
pub(crate) struct SharedHold {
    pub(crate) shared: Arc<Shared>,
    pub(crate) tree: Vec<Arc<Group>>,
    pub(crate) upstream: Option<Arc<Group>>,
    /// The position of the candidate taken.
    pub(crate) upstream_index: Option<usize>,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) time_zone: Tz,
    /// What its part of the tree is called.
    pub(crate) name: Name,
    /// The part of this gateway's own counters, where those admitted it.
    pub(crate) local: Option<MemoryHold>,
    /// The same of an upstream that was taken later.
    pub(crate) local_upstream: Option<MemoryHold>,
}

/// How a request has ended.
#[derive(Clone, Copy)]
enum End {
    Settled {
        actual: Amounts,
        seq: Option<u64>,
        now: Option<Now>,
    },
    GivenBack {
        is_sent: bool,
        is_sent_upstream: bool,
    },
}

/// Ends the local part when the shared one is ended, or left to the outbox: what is spent by itself stays counted until
/// the shared counters know of it.
struct LocalEnd<'a> {
    hold: &'a SharedHold,
    request: &'a Request,
    end: End,
}

impl Drop for LocalEnd<'_> {
    fn drop(&mut self) {
        let own = self.hold.local.iter().map(|local| (local, false));
        let upstreams = self.hold.local_upstream.iter().map(|local| (local, true));
        for (local, is_upstreams) in own.chain(upstreams) {
            match self.end {
                End::Settled {
                    actual,
                    seq,
                    now: Some(now),
                } => local.settle(self.request, &actual, seq, now),
                End::Settled { .. } => local.refund(self.request, true, true),
                End::GivenBack {
                    is_sent,
                    is_sent_upstream,
                } => {
                    let is_sent = if is_upstreams { is_sent_upstream } else { is_sent };
                    local.refund(self.request, is_sent, is_sent_upstream);
                }
            }
        }
    }
}

impl SharedHold {
    /// Of a request that this gateway's own counters have admitted: what the shared ones are told once they answer.
    pub(crate) fn locally(
        shared: &Arc<Shared>,
        admission: &Admission<'_>,
        upstream: Option<&ScopeLimits>,
        now: Now,
    ) -> Self {
        let name = shared.names.next_local(admission.id);
        let tree = match shared.is_cluster {
            true => Branch::of_tags(admission, &name, now.wall),
            false => vec![Branch::of_tree(admission, &name, now.wall)],
        };
        let upstream = upstream.map(|of| Branch::of_upstream(of, admission, &name, now.wall));
        Self {
            shared: Arc::clone(shared),
            tree: tree.iter().map(|branch| Arc::new(branch.group.leased())).collect(),
            upstream: upstream.map(|branch| Arc::new(branch.group.leased())),
            upstream_index: None,
            scopes: admission.scopes.iter().map(|of| of.scope.clone()).collect(),
            time_zone: admission.time_zone,
            name,
            local: None,
            local_upstream: None,
        }
    }

    pub(crate) fn open_hold(&self, request: &Request) -> OpenHold {
        OpenHold {
            request: request.clone(),
            groups: self.tree.iter().chain(&self.upstream).cloned().collect(),
            scopes: self.scopes.clone(),
            time_zone: self.time_zone,
            name: self.name,
        }
    }

    pub(crate) async fn settle(&self, request: &Request, actual: Amounts, seq: Option<u64>, now: Now) {
        let end = End::Settled {
            actual,
            seq,
            now: Some(now),
        };
        let _local = self.ending(request, end);
        let groups = self.by_now(request);
        self.shared.end(groups, How::Settle, actual, seq, now).await;
    }

    pub(crate) async fn refund(&self, request: &Request, is_sent: bool, is_sent_upstream: bool, now: Now) {
        let end = End::GivenBack {
            is_sent,
            is_sent_upstream,
        };
        let _local = self.ending(request, end);
        let (upstream, tree) = self.parts(request);
        futures_util::join!(
            self.shared.end(tree, how(is_sent), Amounts::default(), None, now),
            self.shared
                .end(upstream, how(is_sent_upstream), Amounts::default(), None, now),
        );
    }

    /// Leaves the ending to the outbox.
    pub(crate) fn end_later(
        &self,
        request: &Request,
        settled: Option<(Amounts, Option<u64>)>,
        is_sent: bool,
        is_sent_upstream: bool,
        now: Option<Now>,
    ) {
        let end = match settled {
            Some((actual, seq)) => End::Settled { actual, seq, now },
            None => End::GivenBack {
                is_sent,
                is_sent_upstream,
            },
        };
        let _local = self.ending(request, end);
        let (upstream, tree) = self.parts(request);
        let at = now.map_or(request.admitted_at, |now| now.wall);
        let tree = tree.into_iter().map(|group| (group, is_sent));
        let upstream = upstream.into_iter().map(|group| (group, is_sent_upstream));
        for (group, is_sent) in tree.chain(upstream) {
            let ending = match settled {
                Some((actual, seq)) => Ending {
                    actual,
                    seq,
                    ..Ending::new(group, How::Settle, at)
                },
                None => Ending::new(group, how(is_sent), at),
            };
            self.shared.outbox.push(ending);
        }
    }

    /// Another upstream's part in the place of this one's.
    pub(crate) fn switch_locally(
        &mut self,
        request: &Request,
        part: MemoryHold,
        upstream: Option<&ScopeLimits>,
        admission: &Admission<'_>,
        was_sent: bool,
        now: Now,
    ) {
        if let Some(before) = self.local_upstream.replace(part) {
            before.refund(request, was_sent, was_sent);
        }
        let name = self.shared.names.next_local(admission.id);
        let branch = upstream.map(|of| Branch::of_upstream(of, admission, &name, now.wall));
        let before = std::mem::replace(&mut self.upstream, branch.map(|branch| Arc::new(branch.group.leased())));
        let is_kept = |before: &Arc<Group>| {
            let held = self.upstream.as_ref();
            held.is_some_and(|held| held.record == before.record)
        };
        if let Some(before) = before.filter(|before| !is_kept(before)) {
            self.shared.outbox.push(Ending::new(before, how(was_sent), now.wall));
        }
    }

    fn ending<'a>(&'a self, request: &'a Request, end: End) -> LocalEnd<'a> {
        self.shared.open.remove(request.id);
        LocalEnd {
            hold: self,
            request,
            end,
        }
    }

    fn by_now(&self, request: &Request) -> Vec<Arc<Group>> {
        self.open_hold(request)
            .groups_by_now(&self.shared.budgets, self.shared.is_cluster)
    }

    /// The upstream's part, and the rest.
    fn parts(&self, request: &Request) -> (Vec<Arc<Group>>, Vec<Arc<Group>>) {
        let is_upstreams = |group: &Arc<Group>| {
            let held = self.upstream.as_ref();
            held.is_some_and(|held| held.record == group.record)
        };
        self.by_now(request).into_iter().partition(is_upstreams)
    }
}

fn how(is_sent: bool) -> How {
    match is_sent {
        true => How::Refund,
        false => How::Cancel,
    }
}

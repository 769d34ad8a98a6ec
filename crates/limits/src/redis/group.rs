//! A request's part of the counters that stand together: everything on one server, or in a cluster what has one tag.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chrono::{DateTime, Utc};
use domain::ids::RequestId;
use domain::limits::Scope;

use super::asked::{Asked, AskedOfScope};
use crate::{Admission, ScopeLimits, names};

/// The part, for as long as the request holds it.
#[derive(Debug)]
pub(crate) struct Group {
    /// Where the server writes down what the request has taken.
    pub(crate) record: String,
    /// What the request is called among members.
    pub(crate) name: Name,
    pub(crate) tag: String,
    pub(crate) counters: Vec<Asked>,
}

impl Group {
    /// The same part of those counters that are leased.
    pub(crate) fn leased(&self) -> Self {
        Self {
            record: self.record.clone(),
            name: self.name,
            tag: self.tag.clone(),
            counters: self
                .counters
                .iter()
                .filter(|counter| counter.is_leased())
                .cloned()
                .collect(),
        }
    }

    /// One counter's part.
    pub(crate) fn alone(tag: String, asked: Asked, name: &Name) -> Self {
        Self {
            record: names::record_key(&tag, name),
            name: *name,
            tag,
            counters: vec![asked],
        }
    }
}

/// The part that a request asks for.
#[derive(Debug)]
pub(crate) struct Branch<'a> {
    pub(crate) group: Arc<Group>,
    pub(crate) leaves: Vec<Leaf<'a>>,
    /// Some limit refuses whatever is counted: the counters are only looked at.
    pub(crate) refuses: bool,
}

/// One scope of a branch; its counters follow those of the scopes before it.
#[derive(Debug)]
pub(crate) struct Leaf<'a> {
    /// Its place in the tree.
    pub(crate) place: usize,
    pub(crate) of: &'a ScopeLimits,
    /// The positions of the limits that count, in the order of their counters.
    pub(crate) limits: Vec<usize>,
}

impl<'a> Branch<'a> {
    fn of(
        tag: String,
        scopes: impl Iterator<Item = (usize, &'a ScopeLimits)>,
        admission: &Admission<'_>,
        name: &Name,
        at: DateTime<Utc>,
    ) -> Self {
        let (mut counters, mut leaves, mut refuses) = (Vec::new(), Vec::new(), false);
        for (place, of) in scopes {
            let mut found = AskedOfScope::of(of, admission, at);
            counters.append(&mut found.asked);
            refuses |= found.refuses;
            leaves.push(Leaf {
                place,
                of,
                limits: found.limits,
            });
        }
        let group = Arc::new(Group {
            record: names::record_key(&tag, name),
            name: *name,
            tag,
            counters,
        });
        Self { group, leaves, refuses }
    }

    /// The whole tree as one branch.
    pub(crate) fn of_tree(admission: &Admission<'a>, name: &Name, at: DateTime<Utc>) -> Self {
        let tag = main_tag(admission.scopes);
        Self::of(tag, admission.scopes.iter().enumerate(), admission, name, at)
    }

    /// The tree as a branch for each tag, that of the tenant first.
    pub(crate) fn of_tags(admission: &Admission<'a>, name: &Name, at: DateTime<Utc>) -> Vec<Self> {
        let tags: Vec<String> = admission
            .scopes
            .iter()
            .map(|of| names::tag(&of.scope, of.tenant))
            .collect();
        let main = main_tag(admission.scopes);
        let mut order: Vec<&String> = Vec::new();
        for tag in tags.iter().filter(|tag| **tag == main).chain(&tags) {
            if !order.contains(&tag) {
                order.push(tag);
            }
        }
        order
            .into_iter()
            .map(|tag| {
                let scopes = admission.scopes.iter().enumerate();
                let own = scopes.filter(|(place, _)| tags[*place] == *tag);
                Self::of(tag.clone(), own, admission, name, at)
            })
            .filter(|branch| !branch.leaves.is_empty())
            .collect()
    }

    /// One upstream's branch.
    pub(crate) fn of_upstream(of: &'a ScopeLimits, admission: &Admission<'_>, name: &Name, at: DateTime<Utc>) -> Self {
        let tag = names::tag(&of.scope, of.tenant);
        Self::of(tag, std::iter::once((0, of)), admission, name, at)
    }

    /// Whether it is the tenant's own.
    pub(crate) fn is_own(&self) -> bool {
        self.leaves.iter().any(|leaf| leaf.of.scope.is_own())
    }
}

/// What a part of a request is called in Redis. No other part ever was: the server may hear late of the end of one that
/// was given up, when the same request has been admitted after all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    id: RequestId,
    /// Who has admitted it: `#` the shared counters, `~` the gateway's own.
    by: char,
    number: u64,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, by, number } = self;
        write!(f, "{id}{by}{number}")
    }
}

/// Names for parts.
#[derive(Debug, Default)]
pub(crate) struct Names {
    given: AtomicU64,
}

impl Names {
    /// Of a part that the shared counters are asked for.
    pub(crate) fn next(&self, id: RequestId) -> Name {
        self.by('#', id)
    }

    /// Of a part that this gateway's own counters have admitted.
    pub(crate) fn next_local(&self, id: RequestId) -> Name {
        self.by('~', id)
    }

    fn by(&self, by: char, id: RequestId) -> Name {
        let number = self.given.fetch_add(1, Ordering::Relaxed);
        Name { id, by, number }
    }
}

/// The tag of the tenant, or of the first scope where there is none.
fn main_tag(scopes: &[ScopeLimits]) -> String {
    let own = scopes.iter().find(|of| of.scope.is_own()).or(scopes.first());
    own.map_or_else(
        || names::tag(&Scope::Global, None),
        |of| names::tag(&of.scope, of.tenant),
    )
}

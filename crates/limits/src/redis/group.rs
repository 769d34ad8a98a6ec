//! A request's part of the counters that stand together: everything on one server, or in a cluster what has one tag.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

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
            name: self.name.clone(),
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
            record: names::record_key(&tag, name.id, &name.suffix),
            name: name.clone(),
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
            record: names::record_key(&tag, name.id, &name.suffix),
            name: name.clone(),
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

/// What a request is called in Redis.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) id: RequestId,
    /// Tells the parts of several attempts apart, whose ends the server may hear of late.
    pub(crate) suffix: Cow<'static, str>,
}

impl Name {
    pub(crate) fn new(id: RequestId, suffix: impl Into<Cow<'static, str>>) -> Self {
        Self {
            id,
            suffix: suffix.into(),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.id, self.suffix)
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

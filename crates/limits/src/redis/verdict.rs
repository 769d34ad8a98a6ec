//! What a request is answered, from the counters that a script looked at: by the code that memory answers by.

use domain::ledger::RehearsedVerdict;
use parking_lot::Mutex;

use crate::denial::{self, Candidate};
use crate::node::{Level, Node};
use crate::{Admission, BudgetKey, Denial, Now, ScopeLimits, Settings, Tightest};

/// One scope's counters as they were before the request, and the time they were read at.
pub(crate) struct Looked<'a> {
    pub(crate) of: &'a ScopeLimits,
    pub(crate) node: Mutex<Node>,
    pub(crate) now: Now,
}

/// What an admitted request is told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) rehearsed: Vec<RehearsedVerdict>,
    pub(crate) unknown_budgets: Vec<BudgetKey>,
    pub(crate) tightest: Tightest,
}

fn levels<'a>(looked: &'a [Looked<'a>], admission: &Admission<'_>, settings: &Settings) -> Vec<Level<'a>> {
    looked
        .iter()
        .map(|looked| Level::look(looked.node.lock(), looked.of, admission, settings, looked.now))
        .collect()
}

/// Of a request that was taken everywhere in `tree`, and by the last of `upstreams`, the others having refused.
pub(crate) fn admitted(
    tree: &[Looked<'_>],
    upstreams: &[Looked<'_>],
    admission: &Admission<'_>,
    settings: &Settings,
    now: Now,
) -> Told {
    let mut told = Told::default();
    let mut tree = levels(tree, admission, settings);
    for level in &mut tree {
        level.rehearsed(&mut told.rehearsed);
        level.unknown_budgets(now, &mut told.unknown_budgets);
        level.take(admission, settings, now);
    }
    told.tightest = Tightest::of(&tree, now);
    let upstreams = levels(upstreams, admission, settings);
    for upstream in &upstreams {
        upstream.unknown_budgets(now, &mut told.unknown_budgets);
    }
    if let Some(chosen) = upstreams.last() {
        chosen.rehearsed(&mut told.rehearsed);
    }
    told
}

/// Of a request that was not taken; `None` where all of these counters had room.
pub(crate) fn refused(
    tree: &[Looked<'_>],
    upstreams: &[Looked<'_>],
    admission: &Admission<'_>,
    settings: &Settings,
    now: Now,
) -> Option<Box<Denial>> {
    let tree = levels(tree, admission, settings);
    if let Some(denial) = denial::of_tree(&tree, now) {
        return Some(denial);
    }
    let upstreams = levels(upstreams, admission, settings);
    let mut mildest: Option<Candidate> = None;
    for upstream in &upstreams {
        let refused = Candidate::of(std::slice::from_ref(upstream), now)?;
        if mildest.as_ref().is_none_or(|mildest| refused.is_milder_than(mildest)) {
            mildest = Some(refused);
        }
    }
    let mut denial = denial::with_tree(mildest?, &tree, now);
    for upstream in &upstreams {
        upstream.chain(now, &mut denial.chain);
        upstream.unknown_budgets(now, &mut denial.unknown_budgets);
    }
    Some(denial)
}

//! What would happen to a request, without taking anything.

use domain::limits::{Dimension, Scope};
use domain::readings::{Explanation, LimitAnswer, LimitRefusal};
use parking_lot::Mutex;

use crate::decide::Refusal;
use crate::denial::{Candidate, is_worse};
use crate::node::{Level, Node};
use crate::reading::untouched;
use crate::{Admission, Now, ScopeLimits, Settings};

/// The answers of these counters, which are copies: one node for each scope of the admission, then one for each of its
/// upstreams.
pub(crate) fn explain(nodes: Vec<Node>, admission: &Admission<'_>, settings: &Settings, now: Now) -> Explanation {
    let mut nodes = nodes.into_iter();
    let mut explanation = Explanation::default();
    let mut told: Option<(usize, Refusal)> = None;
    for of in admission.scopes {
        let node = nodes.next().unwrap_or_default();
        for (index, refusal) in ask(node, of, admission, settings, now, &mut explanation) {
            if told.as_ref().is_none_or(|(_, before)| is_worse(&refusal, before)) {
                told = Some((index, refusal));
            }
        }
    }
    let mut mildest: Option<(usize, Candidate)> = None;
    for candidate in admission.upstreams {
        let node = nodes.next().unwrap_or_default();
        let first = explanation.answers.len();
        let cell = Mutex::new(node.clone());
        let level = Level::look(cell.lock(), &candidate.scope, admission, settings, now);
        let refused = Candidate::of(std::slice::from_ref(&level), now);
        drop(level);
        let refusals = ask(node, &candidate.scope, admission, settings, now, &mut explanation);
        let Some(refused) = refused else {
            if let Scope::Upstream(id) = candidate.scope.scope {
                explanation.upstream = Some(id);
            }
            mildest = None;
            break;
        };
        let worst = refusals
            .into_iter()
            .reduce(|told, next| match is_worse(&next.1, &told.1) {
                true => next,
                false => told,
            });
        if mildest
            .as_ref()
            .is_none_or(|(_, mildest)| refused.is_milder_than(mildest))
        {
            mildest = Some((worst.map_or(first, |(index, _)| index), refused));
        }
    }
    explanation.told = told.map(|(index, _)| index).or(mildest.map(|(index, _)| index));
    if explanation.told.is_some() {
        explanation.upstream = None;
    }
    explanation
}

/// Adds the answers of one scope; the positions of those that refuse, with why.
fn ask(
    node: Node,
    of: &ScopeLimits,
    admission: &Admission<'_>,
    settings: &Settings,
    now: Now,
    into: &mut Explanation,
) -> Vec<(usize, Refusal)> {
    let cell = Mutex::new(node);
    let level = Level::look(cell.lock(), of, admission, settings, now);
    let mut refusals = Vec::new();
    for check in &level.checks {
        let limit = &of.limits[check.limit];
        if limit.dimension == Dimension::RequestSeconds {
            continue;
        }
        if let (domain::limits::Mode::Enforce, Err(refusal)) = (limit.mode, check.answer) {
            refusals.push((into.answers.len(), refusal));
        }
        let reading = match level.counter(check) {
            Some(counter) => counter.reading(&of.scope, limit, now),
            None => domain::readings::Reading {
                utilisation_percent: level.utilisation_percent(check, now),
                ..untouched(&of.scope, limit, admission.time_zone, now.wall)
            },
        };
        into.answers.push(LimitAnswer {
            reading,
            need: check.need,
            refusal: check.answer.err().map(|refusal| LimitRefusal {
                code: refusal.code,
                retry_after_ms: refusal.retry_after_ms,
                gate: refusal.gate,
            }),
        });
    }
    refusals
}

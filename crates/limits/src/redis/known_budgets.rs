//! The budgets that this gateway has met: those that requests may have to be booked in although they began later, and
//! those whose bases are read again.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use domain::limits::Scope;
use parking_lot::Mutex;

use crate::budget::kept_until;
use crate::hold::Request;
use crate::{Admission, BudgetKey};

/// Budgets known of one scope at most: its own limits and those of its classes, in two periods each.
const OF_SCOPE_MAX: usize = 1_000;

/// By scope.
#[derive(Debug, Default)]
pub(crate) struct KnownBudgets {
    by_scope: Mutex<HashMap<Scope, Vec<BudgetKey>>>,
}

impl KnownBudgets {
    pub(crate) fn note(&self, key: &BudgetKey) {
        let mut by_scope = self.by_scope.lock();
        let known = by_scope.entry(key.scope.clone()).or_default();
        if !known.contains(key) && known.len() < OF_SCOPE_MAX {
            known.push(key.clone());
        }
    }

    /// Those that a request is counted in.
    pub(crate) fn note_all(&self, admission: &Admission<'_>, at: DateTime<Utc>) {
        let upstreams = admission.upstreams.iter().map(|candidate| &candidate.scope);
        for of in admission.scopes.iter().chain(upstreams) {
            for limit in of.limits.iter().filter(|limit| limit.dimension.is_budget()) {
                if limit.applies_to(admission.model, admission.priority) && !self.knows(&of.scope, limit, at) {
                    self.note(&BudgetKey::of(of, limit, at, admission.time_zone));
                }
            }
        }
    }

    /// Those of a scope that would have counted the request.
    pub(crate) fn counting(&self, scope: &Scope, request: &Request) -> Vec<BudgetKey> {
        let by_scope = self.by_scope.lock();
        let known = by_scope.get(scope).into_iter().flatten();
        known
            .filter(|key| {
                key.span.contains(request.admitted_at)
                    && key.model.as_deref().is_none_or(|only| only == &*request.model)
                    && key.priority.is_none_or(|only| only == request.priority)
            })
            .cloned()
            .collect()
    }

    /// Those whose period has not ended.
    pub(crate) fn current(&self, at: DateTime<Utc>) -> Vec<BudgetKey> {
        let by_scope = self.by_scope.lock();
        let known = by_scope.values().flatten();
        known.filter(|key| key.span.contains(at)).cloned().collect()
    }

    /// Whether anything was counted for a scope here lately.
    pub(crate) fn has(&self, scope: &Scope) -> bool {
        self.by_scope.lock().contains_key(scope)
    }

    pub(crate) fn scope_count(&self) -> usize {
        self.by_scope.lock().len()
    }

    /// Forgets periods that nobody asks for any more.
    pub(crate) fn forget_ended(&self, at: DateTime<Utc>) {
        self.by_scope.lock().retain(|_, known| {
            known.retain(|key| at < kept_until(key.span));
            !known.is_empty()
        });
    }

    fn knows(&self, scope: &Scope, limit: &domain::limits::Limit, at: DateTime<Utc>) -> bool {
        let by_scope = self.by_scope.lock();
        let mut known = by_scope.get(scope).into_iter().flatten();
        known.any(|key| key.limit_id == limit.id && key.span.contains(at))
    }
}

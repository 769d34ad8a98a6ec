//! Limits as they are in force at one moment: increases begin and end here, whatever keeps the counters.

use std::borrow::Cow;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use domain::limits::Limit;

use crate::admission::UpstreamCandidate;
use crate::{Admission, ScopeLimits};

/// The scopes and upstreams of an admission with the values of one moment.
pub(crate) struct InForce<'a> {
    scopes: Cow<'a, [ScopeLimits]>,
    upstreams: Cow<'a, [UpstreamCandidate]>,
}

impl<'a> InForce<'a> {
    /// Copies nothing while no increase is in force.
    pub(crate) fn of(admission: &Admission<'a>, at: DateTime<Utc>) -> Self {
        let is_raised = |candidate: &UpstreamCandidate| is_raised(&candidate.scope, at);
        Self {
            scopes: scopes_at(admission.scopes, at),
            upstreams: match admission.upstreams.iter().any(is_raised) {
                false => Cow::Borrowed(admission.upstreams),
                true => admission
                    .upstreams
                    .iter()
                    .map(|candidate| UpstreamCandidate {
                        scope: scope_at(&candidate.scope, at).into_owned(),
                        index: candidate.index,
                    })
                    .collect(),
            },
        }
    }

    pub(crate) fn admission<'b>(&'b self, admission: &Admission<'b>) -> Admission<'b> {
        Admission {
            scopes: &self.scopes,
            upstreams: &self.upstreams,
            ..*admission
        }
    }
}

/// Nodes with the values of one moment.
pub(crate) fn scopes_at(scopes: &[ScopeLimits], at: DateTime<Utc>) -> Cow<'_, [ScopeLimits]> {
    match scopes.iter().any(|of| is_raised(of, at)) {
        false => Cow::Borrowed(scopes),
        true => scopes.iter().map(|of| scope_at(of, at).into_owned()).collect(),
    }
}

/// A node with the values of one moment.
pub(crate) fn scope_at(of: &ScopeLimits, at: DateTime<Utc>) -> Cow<'_, ScopeLimits> {
    if !is_raised(of, at) {
        return Cow::Borrowed(of);
    }
    let limits: Arc<[Limit]> = of.limits.iter().map(|limit| limit.at(at)).collect();
    Cow::Owned(ScopeLimits {
        scope: of.scope.clone(),
        limits,
        tenant: of.tenant,
    })
}

fn is_raised(of: &ScopeLimits, at: DateTime<Utc>) -> bool {
    of.limits.iter().any(|limit| limit.increase_at(at).is_some())
}

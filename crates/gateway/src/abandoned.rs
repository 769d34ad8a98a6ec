//! What requests of an earlier life still hold in a shared store. Their gateway was killed, and has booked them since.

use std::time::Duration;

use domain::estimate::{Amounts, Estimate};
use domain::ledger::Settlement;
use limits::{Admission, Now, UpstreamCandidate};
use tokio::time::timeout;

use crate::Gateway;
use crate::policy::{PolicySnapshot, RequestUser};

/// How long a start takes for it, in milliseconds; what is left ends by its lease.
const WAIT_MS: u64 = 5_000;

impl Gateway {
    /// Gives up what these still hold. They are in the journal under their numbers.
    pub async fn settle_lost(&self, abandoned: &[(u64, Settlement)]) {
        let Some(policy) = self.policy().filter(|_| !abandoned.is_empty()) else {
            return;
        };
        let all_told = async {
            let mut all_told = true;
            for (seq, settlement) in abandoned {
                all_told &= self.settle_one(&policy, *seq, settlement).await;
            }
            all_told
        };
        if !timeout(Duration::from_millis(WAIT_MS), all_told).await.unwrap_or(false) {
            tracing::warn!("some holds of an earlier run stay until their leases end");
        }
    }

    async fn settle_one(&self, policy: &PolicySnapshot, seq: u64, settlement: &Settlement) -> bool {
        let identity = &settlement.identity;
        let found = identity.model.as_deref().and_then(|model| {
            let key = policy.find_key_by_id(identity.key_id)?;
            let tenant = policy.find_tenant(identity.tenant_id)?;
            Some((key, tenant, policy.find_model(model)?))
        });
        let Some((key, tenant, model)) = found else {
            return false;
        };
        let user = match &identity.user_id {
            Some(user) => RequestUser::of_id(&user.as_str().into()),
            None => RequestUser::Nobody,
        };
        let upstreams: Vec<UpstreamCandidate> = settlement
            .upstream_id
            .and_then(|id| policy.find_upstream(id))
            .map(|upstream| UpstreamCandidate {
                scope: upstream.scope.clone(),
                index: 0,
            })
            .into_iter()
            .collect();
        let actual = Amounts {
            input_tokens: settlement.usage.input_tokens(),
            output_tokens: settlement.usage.output_tokens,
            cost: settlement.cost_nanos,
        };
        let scopes = policy.scopes(key, tenant, &user, model);
        let admission = Admission {
            id: identity.id,
            model: &model.model.name,
            priority: identity.priority,
            gate_priority: identity.priority,
            estimate: Estimate::default(),
            scopes: &scopes,
            upstreams: &upstreams,
            time_zone: policy.settings.time_zone,
            rehearsal_percent: None,
        };
        let admitted = Now {
            wall: settlement.admitted_at,
            ..self.clock.now()
        };
        self.limits.settle_lost(&admission, &actual, seq, admitted).await
    }
}

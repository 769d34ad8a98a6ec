//! Who waits for admission, gateway by gateway; for those who see everything.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use domain::instances::{QueueStatus, STATUS_STALE_MS};
use domain::limits::Scope;
pub use store::scope_names::ScopeName;

use crate::{Actor, Control, ControlError};

/// The queue of one gateway.
#[derive(Clone, Debug)]
pub struct GatewayQueue {
    /// Its name.
    pub instance: String,
    /// As it last reported.
    pub queue: QueueStatus,
    /// Jobs that run there.
    pub jobs_running: u64,
}

/// The queues of the gateways that are there.
#[derive(Clone, Debug, Default)]
pub struct Queues {
    /// By gateway, in the order of names.
    pub gateways: Vec<GatewayQueue>,
    /// What the scopes that requests wait for are called.
    pub names: HashMap<Scope, ScopeName>,
}

impl Control {
    /// The queues of the gateways that are there now.
    pub async fn queues(&self, actor: &Actor, now: DateTime<Utc>) -> Result<Queues, ControlError> {
        let mut gateways: Vec<GatewayQueue> = self
            .instances(actor)
            .await?
            .into_iter()
            .filter(|instance| (now - instance.seen_at).num_milliseconds() <= STATUS_STALE_MS)
            .map(|instance| GatewayQueue {
                instance: instance.instance,
                queue: instance.status.queue,
                jobs_running: instance.status.jobs_running,
            })
            .collect();
        gateways.sort_by(|one, other| one.instance.cmp(&other.instance));
        let scopes: Vec<Scope> = gateways
            .iter()
            .flat_map(|gateway| gateway.queue.reasons.iter().map(|reason| reason.scope.clone()))
            .collect();
        let names = if scopes.is_empty() {
            HashMap::new()
        } else {
            self.store.scope_names(&scopes).await?
        };
        Ok(Queues { gateways, names })
    }
}

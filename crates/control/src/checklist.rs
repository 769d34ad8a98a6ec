//! Whether the installation is fit for production, from what gateways wrote and Postgres knows.

use chrono::{DateTime, Utc};
use domain::checklist::{Backups, Facts, Gateway, Item, Webhook, checklist};
use store::alerts::DeliveryRow;
use store::instances::LogArchiving;

use crate::{Actor, Control, ControlError};

impl Control {
    /// The list for production, for those who see everything. No secret is needed, and none is told.
    pub async fn checklist(&self, actor: &Actor, now: DateTime<Utc>) -> Result<Vec<Item>, ControlError> {
        actor.require_everything()?;
        let gateways = self.store.instances().await?;
        let webhook = match self.store.find_webhook().await? {
            Some(_) => of_deliveries(&self.store.deliveries().await?),
            None => Webhook::Missing,
        };
        let facts = Facts {
            now,
            gateways: gateways
                .into_iter()
                .map(|instance| Gateway {
                    name: instance.instance,
                    seen_at: instance.seen_at,
                    status: instance.status,
                })
                .collect(),
            webhook,
            backups: self.store.log_archiving().await?.map_or(Backups::Unknown, of_archiving),
        };
        Ok(checklist(&facts))
    }
}

/// By the latest event that was delivered, given up, or has failed at least once; what waits for its first attempt says
/// nothing.
fn of_deliveries(deliveries: &[DeliveryRow]) -> Webhook {
    let latest = deliveries.iter().find_map(|delivery| {
        if delivery.delivered_at.is_some() {
            Some(Webhook::Delivered)
        } else if delivery.given_up_at.is_some() || delivery.last_error.is_some() {
            Some(Webhook::Failed)
        } else {
            None
        }
    });
    latest.unwrap_or(Webhook::Unused)
}

fn of_archiving(archiving: LogArchiving) -> Backups {
    match (archiving.last_archived_at, archiving.last_failed_at) {
        (Some(archived), Some(failed)) if failed > archived => Backups::NotArchived,
        (Some(_), _) => Backups::Archived,
        (None, Some(_)) => Backups::NotArchived,
        // Nothing has happened yet.
        (None, None) => Backups::Unknown,
    }
}

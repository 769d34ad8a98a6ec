//! Keys and overlaps that end soon are told of, once each.

use chrono::{DateTime, Utc};
use store::key_warnings::NewKeyWarning;

use crate::{Control, ControlError};

impl Control {
    /// Tells the webhook and the log of every key and every overlap of a rotation that ends soon. Each end is told of once,
    /// however many processes call this and how often. Returns how many were new.
    pub async fn warn_of_ending_keys(&self, now: DateTime<Utc>) -> Result<u64, ControlError> {
        let endings = self.store.untold_endings(now).await?;
        let due = endings
            .into_iter()
            .filter(|key| key.ending.told_from(key.ends_at) <= now);
        let warnings: Vec<NewKeyWarning> = due
            .map(|key| NewKeyWarning {
                id: self.audit_id(now),
                key,
            })
            .collect();
        if warnings.is_empty() {
            return Ok(0);
        }
        let written = self.store.write_key_warnings(&warnings, now).await?;
        for warning in warnings.iter().filter(|warning| written.contains(&warning.id)) {
            tracing::info!(
                key = %warning.key.key_id,
                name = warning.key.name,
                tenant = warning.key.tenant_name,
                ends_at = %warning.key.ends_at,
                "{}",
                warning.key.ending.event(),
            );
        }
        Ok(written.len() as u64)
    }
}

//! What keys did this month.

use std::collections::HashMap;

use chrono::{DateTime, Datelike as _, Utc};
use domain::ids::KeyId;
use domain::management_tokens::Permission;
use store::key_uses::KeyMonth;
use store::keys::KeyRow;

use crate::{Actor, Control, ControlError};

impl Control {
    /// What these keys have spent in the billing month of `now`, and how many of their requests were refused: from the month's
    /// sums, in one question. Of keys that the actor does not see there is nothing.
    pub async fn key_months(
        &self,
        actor: &Actor,
        keys: &[KeyRow],
        now: DateTime<Utc>,
    ) -> Result<HashMap<KeyId, KeyMonth>, ControlError> {
        actor.require_permission(Permission::KeysRead)?;
        let reach = actor.reach()?;
        let seen = keys.iter().filter(|key| reach.covers(key.tenant_id, key.owner_id));
        let ids: Vec<KeyId> = seen.map(|key| key.id).collect();
        let today = now.with_timezone(&self.zone().await?).date_naive();
        let month = today.with_day(1).unwrap_or(today);
        Ok(self.store.key_months(&ids, month).await?)
    }
}

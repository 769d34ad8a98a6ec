//! Keys that do not wait: all of them for those who see everything, those of a manager's tenant, a member's own.

use chrono::{DateTime, Utc};
use domain::ids::TenantId;
pub use store::early_retries::{EARLY_KEYS_MAX, EarlyKey};

use crate::actor::Reach;
use crate::lookback::Lookback;
use crate::{Actor, Control, ControlError};

impl Control {
    /// Keys with refused requests that came before the wait was over that the key had been told, the most first.
    pub async fn early_retries(
        &self,
        actor: &Actor,
        tenant: Option<TenantId>,
        lookback: Lookback,
        now: DateTime<Utc>,
    ) -> Result<Vec<EarlyKey>, ControlError> {
        let is_own = |own| tenant.is_none_or(|asked| asked == own);
        let (tenant, owner) = match actor.reach()? {
            Reach::Everything => (tenant, None),
            Reach::Tenant(own) if is_own(own) => (Some(own), None),
            Reach::Own(own, person) if is_own(own) => (Some(own), Some(person)),
            Reach::Tenant(_) | Reach::Own(..) => return Err(ControlError::Forbidden),
        };
        let span = lookback.span(now, self.zone().await?);
        Ok(self.store.early_retries(span, tenant, owner).await?)
    }
}

//! Reading the ledger: everything for those who see everything, a manager's own tenant, a member's own requests.

use domain::ids::RequestId;
use domain::ledger::{Rejection, Settlement};
use store::entries::{EntryCursor, EntryFilter, EntryPage, LedgerEntry, Named};

use crate::actor::Reach;
use crate::{Actor, Control, ControlError};

impl Control {
    /// Settlements and rejections together, newest first.
    pub async fn ledger_entries(
        &self,
        actor: &Actor,
        filter: &EntryFilter,
        after: Option<EntryCursor>,
        entries_max: u32,
    ) -> Result<EntryPage<LedgerEntry>, ControlError> {
        let filter = within_reach(actor, filter)?;
        Ok(self.store.ledger_entries(&filter, after, entries_max).await?)
    }

    /// Settlements, newest first.
    pub async fn settlements(
        &self,
        actor: &Actor,
        filter: &EntryFilter,
        after: Option<EntryCursor>,
        entries_max: u32,
    ) -> Result<EntryPage<Settlement>, ControlError> {
        let filter = within_reach(actor, filter)?;
        Ok(self.store.settlements(&filter, after, entries_max).await?)
    }

    /// Rejections, newest first.
    pub async fn rejections(
        &self,
        actor: &Actor,
        filter: &EntryFilter,
        after: Option<EntryCursor>,
        entries_max: u32,
    ) -> Result<EntryPage<Rejection>, ControlError> {
        let filter = within_reach(actor, filter)?;
        Ok(self.store.rejections(&filter, after, entries_max).await?)
    }

    /// The entry of one request.
    pub async fn ledger_entry(&self, actor: &Actor, id: RequestId) -> Result<Named<LedgerEntry>, ControlError> {
        let filter = EntryFilter {
            request: Some(id),
            ..EntryFilter::default()
        };
        let page = self.ledger_entries(actor, &filter, None, 1).await?;
        page.entries
            .into_iter()
            .next()
            .ok_or(ControlError::NotFound { what: "request" })
    }
}

/// What was asked for, cut down to what the actor may see. Asking for somebody else's is refused, not emptied: an empty
/// list would look like an answer.
fn within_reach(actor: &Actor, filter: &EntryFilter) -> Result<EntryFilter, ControlError> {
    let mut filter = filter.clone();
    match actor.reach()? {
        Reach::Everything => {}
        Reach::Tenant(own) => {
            if filter.tenant.is_some_and(|asked| asked != own) {
                return Err(ControlError::Forbidden);
            }
            filter.tenant = Some(own);
        }
        Reach::Own(own, person) => {
            let is_other =
                filter.tenant.is_some_and(|asked| asked != own) || filter.owner.is_some_and(|asked| asked != person);
            if is_other {
                return Err(ControlError::Forbidden);
            }
            filter.tenant = Some(own);
            filter.owner = Some(person);
        }
    }
    Ok(filter)
}

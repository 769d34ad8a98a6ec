//! Reading the ledger: everything for those who see everything, a manager's own tenant, a member's own requests.

use domain::ids::RequestId;
use domain::ledger::{Rejection, Settlement};
use domain::management_tokens::Permission;
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
        let page = self.store.ledger_entries(&filter, after, entries_max).await?;
        shown(actor, page, |entry| match entry {
            LedgerEntry::Settlement(settlement) => hide_upstream(settlement),
            LedgerEntry::Rejection(rejection) => hide_shared_scopes(rejection),
        })
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
        shown(
            actor,
            self.store.settlements(&filter, after, entries_max).await?,
            hide_upstream,
        )
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
        shown(
            actor,
            self.store.rejections(&filter, after, entries_max).await?,
            hide_shared_scopes,
        )
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

/// What was asked for, cut down to what the actor may see.
fn within_reach(actor: &Actor, filter: &EntryFilter) -> Result<EntryFilter, ControlError> {
    actor.require_permission(Permission::LedgerRead)?;
    let mut filter = filter.clone();
    actor.narrow(&mut filter.tenant, &mut filter.owner)?;
    Ok(filter)
}

/// The page as the actor may see it: `hide` takes from each entry what is not a tenant's business.
fn shown<T>(actor: &Actor, mut page: EntryPage<T>, hide: impl Fn(&mut T)) -> Result<EntryPage<T>, ControlError> {
    if actor.reach()? != Reach::Everything {
        page.entries.iter_mut().for_each(|named| hide(&mut named.entry));
    }
    Ok(page)
}

/// Who serves a model, and under which name, is the operators' business, and so is what shared limits would have said.
fn hide_upstream(settlement: &mut Settlement) {
    settlement.rehearsed.retain(|verdict| verdict.scope.is_own());
    settlement.upstream_id = None;
    settlement.upstream_model = None;
    settlement.attempts.clear();
}

/// How full a shared scope was tells about other tenants. That one refused was told to the caller, and stays.
fn hide_shared_scopes(rejection: &mut Rejection) {
    rejection.chain.retain(|check| check.scope.is_own());
    if rejection.scope.as_ref().is_some_and(|scope| !scope.is_own()) {
        rejection.limit_id = None;
        rejection.limit_key = None;
    }
}

#[cfg(test)]
mod tests;

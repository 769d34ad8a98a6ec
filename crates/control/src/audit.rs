//! Who changed what.

use chrono::{DateTime, Utc};
use domain::ids::TenantId;
use serde_json::Value;
use store::audit::{AuditEntry, AuditFilter};
use store::{Transaction, random};
use uuid::Uuid;

use crate::actor::Reach;
use crate::{Actor, Control, ControlError};
use domain::management_tokens::Permission;

/// One change to note. Never give it a secret.
pub(crate) struct Change {
    /// Noun first: `key.issue`.
    pub(crate) action: &'static str,
    /// `key:<id>`.
    pub(crate) subject: String,
    /// Whose.
    pub(crate) tenant_id: Option<TenantId>,
    /// As it was.
    pub(crate) before: Option<Value>,
    /// As it is.
    pub(crate) after: Option<Value>,
}

impl Control {
    /// The audit log, newest first: everything for those who see everything, a manager's own tenant.
    pub async fn audit_entries(&self, actor: &Actor, mut filter: AuditFilter) -> Result<Vec<AuditEntry>, ControlError> {
        actor.require_permission(Permission::AuditRead)?;
        match actor.reach()? {
            Reach::Everything => {}
            Reach::Tenant(own) => match filter.tenant_id {
                Some(asked) if asked != own => return Err(ControlError::Forbidden),
                _ => filter.tenant_id = Some(own),
            },
            Reach::Own(..) => return Err(ControlError::Forbidden),
        }
        Ok(self.store.audit_entries(&filter).await?)
    }

    /// One entry, if the actor may see it.
    pub async fn audit_entry(&self, actor: &Actor, id: Uuid) -> Result<AuditEntry, ControlError> {
        actor.require_permission(Permission::AuditRead)?;
        let reach = actor.reach()?;
        let entry = self.store.find_audit_entry(id).await?;
        entry
            .filter(|entry| match reach {
                Reach::Everything => true,
                Reach::Tenant(own) => entry.tenant_id == Some(own),
                Reach::Own(..) => false,
            })
            .ok_or(ControlError::NotFound {
                what: "entry of the audit log",
            })
    }

    /// Notes a change in the transaction that makes it.
    pub(crate) async fn note(
        &self,
        transaction: &mut Transaction,
        actor: &Actor,
        now: DateTime<Utc>,
        change: Change,
    ) -> Result<(), ControlError> {
        let entry = AuditEntry {
            id: self.audit_id(now),
            at: now,
            actor_id: actor.person_id(),
            actor: actor.label().to_owned(),
            action: change.action.to_owned(),
            subject: change.subject,
            tenant_id: change.tenant_id,
            before: change.before,
            after: change.after,
            peer: actor.peer().map(str::to_owned),
        };
        Ok(store::audit::append(transaction, &entry).await?)
    }

    pub(crate) fn audit_id(&self, now: DateTime<Utc>) -> Uuid {
        let millis = u64::try_from(now.timestamp_millis()).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &random::bytes(&*self.random)).into_uuid()
    }
}

//! Who changed what.

pub mod difference;
mod subject;

use std::collections::HashMap;
use std::net::IpAddr;

use chrono::{DateTime, Utc};
use domain::ids::TenantId;
use domain::limits::Scope;
use domain::management_tokens::Permission;
use serde_json::Value;
use store::audit::{AuditEntry, AuditFilter, NamedKind};
use store::{Transaction, keys, random};
use uuid::Uuid;

use crate::actor::Reach;
use crate::{Actor, Control, ControlError};

pub use subject::AuditSubject;

/// An entry with what it names.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedAuditEntry {
    /// The entry.
    pub entry: AuditEntry,
    /// By which way it came.
    pub surface: Surface,
    /// What it is about.
    pub subject: AuditSubject,
    /// What that is called now, where it has a name that can change and is still there.
    pub subject_name: Option<String>,
    /// What the tenant is called now.
    pub tenant_name: Option<String>,
}

/// By which way a change came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// A person, in the console.
    Console,
    /// A program with a management token, at the JSON API.
    Api,
    /// The program itself: command line, demo.
    Program,
}

impl Surface {
    /// Only people have ids, and only what comes over the network has an address; the command line says who ran it where.
    fn of(entry: &AuditEntry) -> Self {
        let peer = entry.peer.as_deref();
        let has_address = peer.is_some_and(|peer| peer.parse::<IpAddr>().is_ok());
        match (entry.actor_id, has_address) {
            (Some(_), _) => Self::Console,
            (None, true) => Self::Api,
            (None, false) => Self::Program,
        }
    }
}

/// One change to note. Never give it a secret.
pub(crate) struct Change {
    /// Noun first: `key.issue`.
    pub(crate) action: &'static str,
    /// `key:<id>`.
    pub(crate) subject: String,
    /// Whose; a key's tenant is found for it.
    pub(crate) tenant_id: Option<TenantId>,
    /// As it was.
    pub(crate) before: Option<Value>,
    /// As it is.
    pub(crate) after: Option<Value>,
}

impl Control {
    /// The audit log, newest first: everything for those who see everything, a manager's own tenant. A manager does not
    /// learn from which address others came, and so cannot look for it either.
    pub async fn audit_entries(&self, actor: &Actor, filter: AuditFilter) -> Result<Vec<AuditEntry>, ControlError> {
        let (reach, entries) = self.seen_audit_entries(actor, filter).await?;
        Ok(entries
            .into_iter()
            .map(|entry| within_sight(actor, reach, entry))
            .collect())
    }

    async fn seen_audit_entries(
        &self,
        actor: &Actor,
        mut filter: AuditFilter,
    ) -> Result<(Reach, Vec<AuditEntry>), ControlError> {
        actor.require_permission(Permission::AuditRead)?;
        let reach = actor.reach()?;
        match reach {
            Reach::Everything => {}
            Reach::Tenant(own) => {
                if filter.tenant_id.is_some_and(|asked| asked != own) {
                    return Err(ControlError::Forbidden);
                }
                filter.tenant_id = Some(own);
                if filter.peer.is_some() {
                    let Some(person) = actor.person_id() else {
                        return Ok((reach, Vec::new()));
                    };
                    if filter.actor_id.is_some_and(|asked| asked != person) {
                        return Ok((reach, Vec::new()));
                    }
                    filter.actor_id = Some(person);
                }
            }
            Reach::Own(..) => return Err(ControlError::Forbidden),
        }
        Ok((reach, self.store.audit_entries(&filter).await?))
    }

    /// The same with names.
    pub async fn named_audit_entries(
        &self,
        actor: &Actor,
        filter: AuditFilter,
    ) -> Result<Vec<NamedAuditEntry>, ControlError> {
        let (reach, entries) = self.seen_audit_entries(actor, filter).await?;
        self.named(actor, reach, entries).await
    }

    /// One entry: any, or one of a manager's own tenant.
    pub async fn audit_entry(&self, actor: &Actor, id: Uuid) -> Result<NamedAuditEntry, ControlError> {
        const NOT_FOUND: ControlError = ControlError::NotFound {
            what: "entry of the audit log",
        };
        actor.require_permission(Permission::AuditRead)?;
        let reach = actor.reach()?;
        let entry = self.store.find_audit_entry(id).await?.ok_or(NOT_FOUND)?;
        let is_seen = match reach {
            Reach::Everything => true,
            Reach::Tenant(own) => entry.tenant_id == Some(own),
            Reach::Own(..) => return Err(ControlError::Forbidden),
        };
        if !is_seen {
            return Err(NOT_FOUND);
        }
        let named = self.named(actor, reach, vec![entry]).await?;
        named.into_iter().next().ok_or(NOT_FOUND)
    }

    async fn named(
        &self,
        actor: &Actor,
        reach: Reach,
        entries: Vec<AuditEntry>,
    ) -> Result<Vec<NamedAuditEntry>, ControlError> {
        let entries: Vec<(AuditSubject, AuditEntry)> = entries
            .into_iter()
            .map(|entry| (AuditSubject::read(&entry.subject), entry))
            .collect();
        let tenant_of = |entry: &AuditEntry| entry.tenant_id.map(|id| (NamedKind::Tenant, id.0));
        let wanted: Vec<(NamedKind, Uuid)> = entries
            .iter()
            .flat_map(|(subject, entry)| subject.named().into_iter().chain(tenant_of(entry)))
            .collect();
        let names: HashMap<(NamedKind, Uuid), String> = self.store.names_of(&wanted).await?;
        Ok(entries
            .into_iter()
            .map(|(subject, entry)| NamedAuditEntry {
                surface: Surface::of(&entry),
                subject_name: subject.named().and_then(|named| names.get(&named).cloned()),
                tenant_name: tenant_of(&entry).and_then(|named| names.get(&named).cloned()),
                subject,
                entry: within_sight(actor, reach, entry),
            })
            .collect())
    }

    /// Notes a change in the transaction that makes it. What is done to a key is its tenant's, whoever says so.
    pub(crate) async fn note(
        &self,
        transaction: &mut Transaction,
        actor: &Actor,
        now: DateTime<Utc>,
        mut change: Change,
    ) -> Result<(), ControlError> {
        if let (None, Ok(Scope::Key(key))) = (change.tenant_id, change.subject.parse()) {
            change.tenant_id = keys::tenant_of(transaction, key).await?;
        }
        Ok(store::audit::append(transaction, &self.entry(actor, now, change)).await?)
    }

    /// A change as it is noted.
    pub(crate) fn entry(&self, actor: &Actor, now: DateTime<Utc>, change: Change) -> AuditEntry {
        AuditEntry {
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
        }
    }

    pub(crate) fn audit_id(&self, now: DateTime<Utc>) -> Uuid {
        let millis = u64::try_from(now.timestamp_millis()).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &random::bytes(&*self.random)).into_uuid()
    }
}

/// The entry as the actor may see it.
fn within_sight(actor: &Actor, reach: Reach, mut entry: AuditEntry) -> AuditEntry {
    let is_own = entry.actor_id.is_some() && entry.actor_id == actor.person_id();
    if reach != Reach::Everything && !is_own {
        entry.peer = None;
    }
    entry
}

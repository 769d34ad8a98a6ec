//! Who changed what, written in the transaction of the change.

use chrono::{DateTime, Utc};
use domain::ids::{PersonId, TenantId};
use uuid::Uuid;

use crate::{Store, StoreError, Transaction};

/// Entries of one page at most.
pub const AUDIT_PAGE_MAX: i64 = 200;

/// One entry.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    /// Which one; sorts by time.
    pub id: Uuid,
    /// When.
    pub at: DateTime<Utc>,
    /// The person who acted; absent for set-up, demo and command line.
    pub actor_id: Option<PersonId>,
    /// The person's e-mail address, or what acted instead.
    pub actor: String,
    /// What was done, noun first: `key.issue`.
    pub action: String,
    /// What it was done to: `key:<id>`.
    pub subject: String,
    /// Whose.
    pub tenant_id: Option<TenantId>,
    /// The changed fields as they were; never a secret.
    pub before: Option<serde_json::Value>,
    /// The changed fields as they are; never a secret.
    pub after: Option<serde_json::Value>,
    /// The address the actor came from.
    pub peer: Option<String>,
}

/// Which entries to list.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Only this tenant's.
    pub tenant_id: Option<TenantId>,
    /// Only those that are older than this entry: the page after the one that ended with it.
    pub before: Option<(DateTime<Utc>, Uuid)>,
    /// So many, at most [`AUDIT_PAGE_MAX`].
    pub count: i64,
}

/// Appends an entry.
pub async fn append(transaction: &mut Transaction, entry: &AuditEntry) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into audit_log (id, at, actor_id, actor, action, subject, tenant_id, before, after, peer)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        entry.id,
        entry.at,
        entry.actor_id.map(|id| id.0),
        entry.actor,
        entry.action,
        entry.subject,
        entry.tenant_id.map(|id| id.0),
        entry.before,
        entry.after,
        entry.peer,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

impl Store {
    /// One entry.
    pub async fn find_audit_entry(&self, id: Uuid) -> Result<Option<AuditEntry>, StoreError> {
        let row = sqlx::query!(
            "select id, at, actor_id, actor, action, subject, tenant_id, before, after, peer from audit_log where id = $1",
            id,
        )
        .fetch_optional(self.pool())
        .await?;
        Ok(row.map(|row| AuditEntry {
            id: row.id,
            at: row.at,
            actor_id: row.actor_id.map(Into::into),
            actor: row.actor,
            action: row.action,
            subject: row.subject,
            tenant_id: row.tenant_id.map(Into::into),
            before: row.before,
            after: row.after,
            peer: row.peer,
        }))
    }

    /// Entries, newest first.
    pub async fn audit_entries(&self, filter: &AuditFilter) -> Result<Vec<AuditEntry>, StoreError> {
        let (before_at, before_id) = filter.before.unzip();
        let rows = sqlx::query!(
            "select id, at, actor_id, actor, action, subject, tenant_id, before, after, peer
             from audit_log
             where ($1::uuid is null or tenant_id = $1)
               and ($2::timestamptz is null or (at, id) < ($2, $3::uuid))
             order by at desc, id desc
             limit $4",
            filter.tenant_id.map(|id| id.0),
            before_at,
            before_id,
            filter.count.clamp(0, AUDIT_PAGE_MAX),
        )
        .fetch_all(self.pool())
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| AuditEntry {
                id: row.id,
                at: row.at,
                actor_id: row.actor_id.map(Into::into),
                actor: row.actor,
                action: row.action,
                subject: row.subject,
                tenant_id: row.tenant_id.map(Into::into),
                before: row.before,
                after: row.after,
                peer: row.peer,
            })
            .collect())
    }
}

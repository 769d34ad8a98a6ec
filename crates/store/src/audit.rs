//! Who changed what, written in the transaction of the change.

use std::collections::HashMap;

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

/// Which entries to list. Absent parts let everything through; present ones must all match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only this tenant's.
    pub tenant_id: Option<TenantId>,
    /// Only what this person did.
    pub actor_id: Option<PersonId>,
    /// Only by those whose name or e-mail address begins so, in any case.
    pub actor: Option<String>,
    /// Only actions that begin so: `key.issue`, or `key` for all of them.
    pub action: Option<String>,
    /// Only what was done to one of these: `key:<id>`.
    pub subjects: Option<Vec<String>>,
    /// Only from this address.
    pub peer: Option<String>,
    /// Only from here on.
    pub from: Option<DateTime<Utc>>,
    /// Only before this.
    pub until: Option<DateTime<Utc>>,
    /// Only those that are older than this entry: the page after the one that ended with it.
    pub before: Option<(DateTime<Utc>, Uuid)>,
    /// So many, at most [`AUDIT_PAGE_MAX`].
    pub count: i64,
}

/// A kind of thing with ids of its own that entries are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NamedKind {
    /// A tenant.
    Tenant,
    /// A plan.
    Plan,
    /// A key.
    Key,
    /// A person.
    Person,
    /// An upstream.
    Upstream,
    /// A management token.
    ManagementToken,
}

impl NamedKind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Tenant,
        Self::Plan,
        Self::Key,
        Self::Person,
        Self::Upstream,
        Self::ManagementToken,
    ];

    /// The word that subjects begin with.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Plan => "plan",
            Self::Key => "key",
            Self::Person => "person",
            Self::Upstream => "upstream",
            Self::ManagementToken => "management_token",
        }
    }
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
    /// Entries, newest first.
    pub async fn audit_entries(&self, filter: &AuditFilter) -> Result<Vec<AuditEntry>, StoreError> {
        let (before_at, before_id) = filter.before.unzip();
        let actor = filter.actor.as_ref().map(|actor| actor.to_lowercase());
        let mut search = self.begin_search().await?;
        let rows = sqlx::query_as!(
            Columns,
            "select id, at, actor_id, actor, action, subject, tenant_id, before, after, peer
             from audit_log
             where ($1::uuid is null or tenant_id = $1)
               and ($2::uuid is null or actor_id = $2)
               and ($3::text is null or starts_with(lower(actor), $3))
               and ($4::text is null or starts_with(action, $4))
               and ($5::text[] is null or subject = any($5))
               and ($6::text is null or peer = $6)
               and ($7::timestamptz is null or at >= $7)
               and ($8::timestamptz is null or at < $8)
               and ($9::timestamptz is null or (at, id) < ($9, $10::uuid))
             order by at desc, id desc
             limit $11",
            filter.tenant_id.map(|id| id.0),
            filter.actor_id.map(|id| id.0),
            actor,
            filter.action,
            filter.subjects.as_deref(),
            filter.peer,
            filter.from,
            filter.until,
            before_at,
            before_id,
            filter.count.clamp(0, AUDIT_PAGE_MAX),
        )
        .fetch_all(&mut *search)
        .await?;
        Ok(rows.into_iter().map(Columns::into_entry).collect())
    }

    /// One entry.
    pub async fn find_audit_entry(&self, id: Uuid) -> Result<Option<AuditEntry>, StoreError> {
        let row = sqlx::query_as!(
            Columns,
            "select id, at, actor_id, actor, action, subject, tenant_id, before, after, peer
             from audit_log
             where id = $1",
            id,
        )
        .fetch_optional(self.pool())
        .await?;
        Ok(row.map(Columns::into_entry))
    }

    /// What these are called now; those that are gone are left out. As many as entries of a page name: a few hundred.
    pub async fn names_of(
        &self,
        wanted: &[(NamedKind, Uuid)],
    ) -> Result<HashMap<(NamedKind, Uuid), String>, StoreError> {
        if wanted.is_empty() {
            return Ok(HashMap::new());
        }
        let ids_of = |kind: NamedKind| -> Vec<Uuid> {
            let of_kind = wanted.iter().filter(|(other, _)| *other == kind);
            of_kind.map(|(_, id)| *id).collect()
        };
        let rows = sqlx::query!(
            r#"
            select 'tenant' as "kind!", id as "id!", name as "name!" from tenants where id = any($1)
            union all
            select 'plan', id, name from plans where id = any($2)
            union all
            select 'key', id, name from keys where id = any($3)
            union all
            select 'person', id, name from people where id = any($4)
            union all
            select 'upstream', id, name from upstreams where id = any($5)
            union all
            select 'management_token', id, name from management_tokens where id = any($6)
            "#,
            &ids_of(NamedKind::Tenant)[..],
            &ids_of(NamedKind::Plan)[..],
            &ids_of(NamedKind::Key)[..],
            &ids_of(NamedKind::Person)[..],
            &ids_of(NamedKind::Upstream)[..],
            &ids_of(NamedKind::ManagementToken)[..],
        )
        .fetch_all(self.pool())
        .await?;
        Ok(rows
            .into_iter()
            .filter_map(|row| {
                let kind = NamedKind::ALL.into_iter().find(|kind| kind.as_str() == row.kind)?;
                Some(((kind, row.id), row.name))
            })
            .collect())
    }
}

struct Columns {
    id: Uuid,
    at: DateTime<Utc>,
    actor_id: Option<Uuid>,
    actor: String,
    action: String,
    subject: String,
    tenant_id: Option<Uuid>,
    before: Option<serde_json::Value>,
    after: Option<serde_json::Value>,
    peer: Option<String>,
}

impl Columns {
    fn into_entry(self) -> AuditEntry {
        AuditEntry {
            id: self.id,
            at: self.at,
            actor_id: self.actor_id.map(Into::into),
            actor: self.actor,
            action: self.action,
            subject: self.subject,
            tenant_id: self.tenant_id.map(Into::into),
            before: self.before,
            after: self.after,
            peer: self.peer,
        }
    }
}

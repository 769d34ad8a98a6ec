//! Tokens of the management API. Of a token only its hash is kept; a revoked one stays for audit.

use chrono::{DateTime, Utc};
use domain::ids::{ManagementTokenId, PersonId, TenantId};
use domain::key_text::SecretHash;
use domain::management_tokens::Permission;
use sqlx::PgExecutor;
use uuid::Uuid;

use crate::{Store, StoreError, Transaction};

/// Tokens of one list at most.
pub const TOKENS_LISTED_MAX: i64 = 500;

/// A token as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagementTokenRow {
    /// Which one.
    pub id: ManagementTokenId,
    /// The part of its text that may be shown.
    pub public_id: String,
    /// What people call it.
    pub name: String,
    /// Whose; the whole installation's when absent.
    pub tenant_id: Option<TenantId>,
    /// That tenant's name.
    pub tenant_name: Option<String>,
    /// What it may do, as far as this program knows the words.
    pub permissions: Vec<Permission>,
    /// When it was issued.
    pub created_at: DateTime<Utc>,
    /// By whom.
    pub created_by: String,
    /// Refused from then on.
    pub expires_at: DateTime<Utc>,
    /// Refused since then.
    pub revoked_at: Option<DateTime<Utc>>,
    /// When it was last shown, to the minute.
    pub last_used_at: Option<DateTime<Utc>>,
}

/// A token to add.
#[derive(Clone, Debug)]
pub struct NewManagementToken {
    /// Which one.
    pub id: ManagementTokenId,
    /// The part of its text that may be shown.
    pub public_id: String,
    /// Of its whole text.
    pub token_hash: SecretHash,
    /// What people call it.
    pub name: String,
    /// Whose; the whole installation's when absent.
    pub tenant_id: Option<TenantId>,
    /// What it may do.
    pub permissions: Vec<Permission>,
    /// When it was issued.
    pub created_at: DateTime<Utc>,
    /// By whom.
    pub created_by: String,
    /// By which person, if it was one.
    pub created_by_id: Option<PersonId>,
    /// Refused from then on.
    pub expires_at: DateTime<Utc>,
}

impl Store {
    /// Tokens that a person issued and that still work, the oldest first; there are few of them at any time.
    pub async fn live_management_tokens_of(
        &self,
        person_id: PersonId,
        now: DateTime<Utc>,
    ) -> Result<Vec<ManagementTokenRow>, StoreError> {
        live_of(self.pool(), person_id, now).await
    }

    /// Tokens, those that still work first, then the newest first; at most [`TOKENS_LISTED_MAX`].
    pub async fn management_tokens(&self, now: DateTime<Utc>) -> Result<Vec<ManagementTokenRow>, StoreError> {
        let rows = sqlx::query_as!(
            Columns,
            "select management_tokens.id, public_id, management_tokens.name, tenant_id, tenants.name as \"tenant_name?\",
                    permissions, management_tokens.created_at, created_by, expires_at, revoked_at, last_used_at
             from management_tokens
             left join tenants on tenants.id = tenant_id
             order by revoked_at is null and expires_at > $1 desc, management_tokens.created_at desc,
                      management_tokens.id desc
             limit $2",
            now,
            TOKENS_LISTED_MAX,
        )
        .fetch_all(self.pool())
        .await?;
        Ok(rows.into_iter().map(Columns::into_row).collect())
    }

    /// The token with this id.
    pub async fn find_management_token(&self, id: ManagementTokenId) -> Result<Option<ManagementTokenRow>, StoreError> {
        find(self.pool(), Some(id), None).await
    }

    /// The token whose text has this hash, whether or not it still works.
    pub async fn find_management_token_by_hash(
        &self,
        hash: SecretHash,
    ) -> Result<Option<ManagementTokenRow>, StoreError> {
        find(self.pool(), None, Some(hash)).await
    }

    /// Notes that a token was shown, unless somebody has noted one at `noted_since` or later.
    pub async fn note_management_token_used(
        &self,
        id: ManagementTokenId,
        now: DateTime<Utc>,
        noted_since: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        sqlx::query!(
            "update management_tokens
             set last_used_at = $2
             where id = $1 and (last_used_at is null or last_used_at < $3)",
            id.0,
            now,
            noted_since,
        )
        .execute(self.pool())
        .await?;
        Ok(())
    }
}

/// Lets nobody else issue a token until the transaction ends; how many still work.
pub async fn lock_and_count_live(transaction: &mut Transaction, now: DateTime<Utc>) -> Result<i64, StoreError> {
    sqlx::query!("lock table management_tokens in share row exclusive mode")
        .execute(&mut **transaction)
        .await?;
    Ok(sqlx::query_scalar!(
        "select count(*) as \"count!\" from management_tokens where revoked_at is null and expires_at > $1",
        now,
    )
    .fetch_one(&mut **transaction)
    .await?)
}

/// Whether a token was ever issued, whatever became of it. Others wait as in [`lock_and_count_live`].
pub async fn lock_and_look_for_any(transaction: &mut Transaction) -> Result<bool, StoreError> {
    sqlx::query!("lock table management_tokens in share row exclusive mode")
        .execute(&mut **transaction)
        .await?;
    Ok(
        sqlx::query_scalar!("select exists (select from management_tokens) as \"exists!\"")
            .fetch_one(&mut **transaction)
            .await?,
    )
}

/// Adds a token.
pub async fn insert(transaction: &mut Transaction, token: &NewManagementToken) -> Result<(), StoreError> {
    let permissions: Vec<String> = token.permissions.iter().map(Permission::to_string).collect();
    sqlx::query!(
        "insert into management_tokens
             (id, public_id, name, tenant_id, permissions, token_hash, created_at, created_by, created_by_id,
              expires_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        token.id.0,
        token.public_id,
        token.name,
        token.tenant_id.map(|id| id.0),
        &permissions,
        token.token_hash.0.as_slice(),
        token.created_at,
        token.created_by,
        token.created_by_id.map(|id| id.0),
        token.expires_at,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// One token, kept from other writers until the transaction ends.
pub async fn lock(
    transaction: &mut Transaction,
    id: ManagementTokenId,
) -> Result<Option<ManagementTokenRow>, StoreError> {
    sqlx::query!(
        "select 1 as one from management_tokens where id = $1 for no key update",
        id.0
    )
    .fetch_optional(&mut **transaction)
    .await?;
    find(&mut **transaction, Some(id), None).await
}

/// Revokes a token that is locked.
pub async fn revoke(
    transaction: &mut Transaction,
    id: ManagementTokenId,
    revoked_at: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "update management_tokens set revoked_at = $2 where id = $1 and revoked_at is null",
        id.0,
        revoked_at,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Tokens that a person issued and that still work, kept from other writers until the transaction ends.
pub async fn lock_live_of(
    transaction: &mut Transaction,
    person_id: PersonId,
    now: DateTime<Utc>,
) -> Result<Vec<ManagementTokenRow>, StoreError> {
    sqlx::query!(
        "select id from management_tokens
         where created_by_id = $1 and revoked_at is null and expires_at > $2
         order by id
         for no key update",
        person_id.0,
        now,
    )
    .fetch_all(&mut **transaction)
    .await?;
    live_of(&mut **transaction, person_id, now).await
}

async fn live_of(
    executor: impl PgExecutor<'_>,
    person_id: PersonId,
    now: DateTime<Utc>,
) -> Result<Vec<ManagementTokenRow>, StoreError> {
    let rows = sqlx::query_as!(
        Columns,
        "select management_tokens.id, public_id, management_tokens.name, tenant_id, tenants.name as \"tenant_name?\",
                permissions, management_tokens.created_at, created_by, expires_at, revoked_at, last_used_at
         from management_tokens
         left join tenants on tenants.id = tenant_id
         where created_by_id = $1 and revoked_at is null and expires_at > $2
         order by management_tokens.id",
        person_id.0,
        now,
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(Columns::into_row).collect())
}

async fn find(
    executor: impl PgExecutor<'_>,
    id: Option<ManagementTokenId>,
    hash: Option<SecretHash>,
) -> Result<Option<ManagementTokenRow>, StoreError> {
    let row = sqlx::query_as!(
        Columns,
        "select management_tokens.id, public_id, management_tokens.name, tenant_id, tenants.name as \"tenant_name?\",
                permissions, management_tokens.created_at, created_by, expires_at, revoked_at, last_used_at
         from management_tokens
         left join tenants on tenants.id = tenant_id
         where management_tokens.id = $1 or token_hash = $2",
        id.map(Uuid::from),
        hash.as_ref().map(|hash| hash.0.as_slice()),
    )
    .fetch_optional(executor)
    .await?;
    Ok(row.map(Columns::into_row))
}

struct Columns {
    id: Uuid,
    public_id: String,
    name: String,
    tenant_id: Option<Uuid>,
    tenant_name: Option<String>,
    permissions: Vec<String>,
    created_at: DateTime<Utc>,
    created_by: String,
    expires_at: DateTime<Utc>,
    revoked_at: Option<DateTime<Utc>>,
    last_used_at: Option<DateTime<Utc>>,
}

impl Columns {
    fn into_row(self) -> ManagementTokenRow {
        // A word that a newer program knows gives nothing here, and takes nothing from the others.
        let permissions = self.permissions.iter().filter_map(|permission| permission.parse().ok());
        ManagementTokenRow {
            permissions: permissions.collect(),
            id: self.id.into(),
            public_id: self.public_id,
            name: self.name,
            tenant_id: self.tenant_id.map(Into::into),
            tenant_name: self.tenant_name,
            created_at: self.created_at,
            created_by: self.created_by,
            expires_at: self.expires_at,
            revoked_at: self.revoked_at,
            last_used_at: self.last_used_at,
        }
    }
}

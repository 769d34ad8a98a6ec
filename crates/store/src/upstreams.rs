//! Upstreams: provider endpoints with sealed credentials.

use chrono::{DateTime, Utc};
use domain::ids::UpstreamId;
use domain::policy::Dialect;
use sqlx::PgExecutor;
use uuid::Uuid;

use crate::policy::parse;
use crate::{Store, StoreError, Transaction};

/// Upstreams at most.
pub const UPSTREAMS_MAX: i64 = 1_000;

/// An upstream as the console sees it: without its credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamRow {
    /// Which one.
    pub id: UpstreamId,
    /// Its name, unique without regard to case.
    pub name: String,
    /// What it speaks.
    pub dialect: Dialect,
    /// Up to and including the version, without a slash at the end.
    pub base_url: String,
    /// Whether it has a credential.
    pub has_credential: bool,
    /// Not used while set.
    pub disabled_at: Option<DateTime<Utc>>,
    /// When it was added.
    pub created_at: DateTime<Utc>,
    /// Raised by every change.
    pub version: i64,
}

/// What can be changed about an upstream, but for its credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamValues {
    /// Its name, unique without regard to case.
    pub name: String,
    /// What it speaks.
    pub dialect: Dialect,
    /// Up to and including the version, without a slash at the end.
    pub base_url: String,
    /// Not used while set.
    pub disabled_at: Option<DateTime<Utc>>,
}

impl Store {
    /// Upstreams by name; at most [`UPSTREAMS_MAX`].
    pub async fn upstreams(&self) -> Result<Vec<UpstreamRow>, StoreError> {
        let rows = sqlx::query_as!(
            Columns,
            "select id, name, dialect, base_url, credential_sealed is not null as \"has_credential!\", disabled_at,
                    created_at, version
             from upstreams
             order by lower(name)
             limit $1",
            UPSTREAMS_MAX,
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter().map(Columns::into_row).collect()
    }

    /// One upstream.
    pub async fn find_upstream(&self, id: UpstreamId) -> Result<Option<UpstreamRow>, StoreError> {
        find(self.pool(), id).await
    }
}

/// One upstream, kept from other writers until the transaction ends.
pub async fn lock(transaction: &mut Transaction, id: UpstreamId) -> Result<Option<UpstreamRow>, StoreError> {
    sqlx::query!("select 1 as one from upstreams where id = $1 for no key update", id.0)
        .fetch_optional(&mut **transaction)
        .await?;
    find(&mut **transaction, id).await
}

/// How many there are.
pub async fn count(transaction: &mut Transaction) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar!("select count(*) as \"count!\" from upstreams")
        .fetch_one(&mut **transaction)
        .await?)
}

/// Which of these do not exist.
pub async fn missing(transaction: &mut Transaction, ids: &[UpstreamId]) -> Result<Vec<UpstreamId>, StoreError> {
    let asked: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let missing = sqlx::query_scalar!(
        "select asked.id as \"id!\"
         from unnest($1::uuid[]) as asked (id)
         where not exists (select from upstreams where upstreams.id = asked.id)",
        &asked,
    )
    .fetch_all(&mut **transaction)
    .await?;
    Ok(missing.into_iter().map(Into::into).collect())
}

/// Adds an upstream. Constraint `upstreams_name`: the name is taken.
pub async fn insert(
    transaction: &mut Transaction,
    id: UpstreamId,
    values: &UpstreamValues,
    credential_sealed: Option<&[u8]>,
    created_at: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into upstreams (id, name, dialect, base_url, credential_sealed, disabled_at, created_at, policy_version)
         values ($1, $2, $3, $4, $5, $6, $7, 0)",
        id.0,
        values.name,
        values.dialect.as_str(),
        values.base_url,
        credential_sealed,
        values.disabled_at,
        created_at,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Changes an upstream that is locked. Constraint `upstreams_name`: the name is taken.
pub async fn update(transaction: &mut Transaction, id: UpstreamId, values: &UpstreamValues) -> Result<(), StoreError> {
    sqlx::query!(
        "update upstreams
         set name = $2, dialect = $3, base_url = $4, disabled_at = $5, version = version + 1
         where id = $1",
        id.0,
        values.name,
        values.dialect.as_str(),
        values.base_url,
        values.disabled_at,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Replaces the credential of an upstream that is locked, or takes it away.
pub async fn set_credential(
    transaction: &mut Transaction,
    id: UpstreamId,
    credential_sealed: Option<&[u8]>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "update upstreams set credential_sealed = $2 where id = $1",
        id.0,
        credential_sealed,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

async fn find(executor: impl PgExecutor<'_>, id: UpstreamId) -> Result<Option<UpstreamRow>, StoreError> {
    sqlx::query_as!(
        Columns,
        "select id, name, dialect, base_url, credential_sealed is not null as \"has_credential!\", disabled_at,
                created_at, version
         from upstreams
         where id = $1",
        id.0,
    )
    .fetch_optional(executor)
    .await?
    .map(Columns::into_row)
    .transpose()
}

struct Columns {
    id: Uuid,
    name: String,
    dialect: String,
    base_url: String,
    has_credential: bool,
    disabled_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
    version: i64,
}

impl Columns {
    fn into_row(self) -> Result<UpstreamRow, StoreError> {
        Ok(UpstreamRow {
            id: self.id.into(),
            name: self.name,
            dialect: parse(&self.dialect, "upstreams.dialect")?,
            base_url: self.base_url,
            has_credential: self.has_credential,
            disabled_at: self.disabled_at,
            created_at: self.created_at,
            version: self.version,
        })
    }
}

//! Keys that do not wait: refused requests that came before the wait was over that their key had been told.

use domain::ids::{KeyId, PersonId, TenantId};
use domain::periods::Span;
use uuid::Uuid;

use crate::policy::count;
use crate::{Store, StoreError};

/// Keys of the list at most.
pub const EARLY_KEYS_MAX: i64 = 20;

/// A key that does not wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlyKey {
    /// Whose.
    pub tenant_id: TenantId,
    /// The tenant's name.
    pub tenant_name: Option<String>,
    /// Which key.
    pub key_id: KeyId,
    /// The key's name.
    pub key_name: Option<String>,
    /// The part of the key's text that may be shown.
    pub key_public_id: Option<String>,
    /// Its refused requests.
    pub refusals: u64,
    /// Of these, those that came too early.
    pub early: u64,
    /// The most that a caller said it had tried before; `None` where none said anything.
    pub caller_retries_max: Option<i32>,
}

impl Store {
    /// Keys with refused requests in `span` (on 15-minute boundaries) that came too early, the most first; at most
    /// [`EARLY_KEYS_MAX`]. Those of one tenant or one owner, if given.
    pub async fn early_retries(
        &self,
        span: Span,
        tenant: Option<TenantId>,
        owner: Option<PersonId>,
    ) -> Result<Vec<EarlyKey>, StoreError> {
        let rows = sqlx::query!(
            r#"
            with refused as (
                select
                    tenant_id, key_id, sum(refusals) as refusals, sum(early_refusals) as early,
                    max(caller_retries_max) as caller_retries_max
                from rejection_rollups
                where bucket_start >= $1
                    and bucket_start < $2
                    and ($3::uuid is null or tenant_id = $3)
                    and ($4::uuid is null or key_id in (select keys.id from keys where owner_id = $4))
                    and code <> 'replayed'
                group by tenant_id, key_id
                having sum(early_refusals) > 0
                order by early desc, tenant_id, key_id
                limit $5
            )
            select
                refused.tenant_id, tenants.name as "tenant_name?", refused.key_id, keys.name as "key_name?",
                keys.public_id as "key_public_id?", refusals::bigint as "refusals!", early::bigint as "early!",
                caller_retries_max
            from refused
            left join tenants on tenants.id = refused.tenant_id
            left join keys on keys.id = refused.key_id
            order by early desc, refused.tenant_id, refused.key_id
            "#,
            span.start,
            span.end,
            tenant.map(Uuid::from),
            owner.map(Uuid::from),
            EARLY_KEYS_MAX,
        )
        .fetch_all(self.pool())
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| EarlyKey {
                tenant_id: row.tenant_id.into(),
                tenant_name: row.tenant_name,
                key_id: row.key_id.into(),
                key_name: row.key_name,
                key_public_id: row.key_public_id,
                refusals: count(row.refusals),
                early: count(row.early),
                caller_retries_max: row.caller_retries_max,
            })
            .collect())
    }
}

//! How keys are used: when last, and in a month's sums.

use std::collections::HashMap;

use chrono::{DateTime, NaiveDate, Utc};
use domain::ids::KeyId;
use domain::key_text::SecretHash;
use domain::money::Nanos;
use uuid::Uuid;

use crate::policy::count;
use crate::{Store, StoreError, in_time};

/// Uses written at once, at most.
pub const KEY_USES_AT_ONCE: usize = 1_000;
/// How long writing some may take, in milliseconds.
const WRITE_WAIT_MS: u64 = 2_000;

/// A secret was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUse {
    /// Which one.
    pub secret: SecretHash,
    /// Whose.
    pub key_id: KeyId,
    /// When last.
    pub at: DateTime<Utc>,
}

/// What a key did in a month.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyMonth {
    /// What it spent, adjustments included.
    pub cost: Nanos,
    /// Its requests that were refused.
    pub refusals: u64,
}

impl Store {
    /// Writes when secrets were last shown. Earlier times than are known change nothing, so that gateways may tell of the same
    /// ones in any order. At most [`KEY_USES_AT_ONCE`].
    pub async fn note_key_uses(&self, uses: &[KeyUse]) -> Result<(), StoreError> {
        in_time(WRITE_WAIT_MS, async {
            let hashes: Vec<Vec<u8>> = uses.iter().map(|used| used.secret.0.to_vec()).collect();
            let keys: Vec<Uuid> = uses.iter().map(|used| used.key_id.0).collect();
            let at: Vec<DateTime<Utc>> = uses.iter().map(|used| used.at).collect();
            let mut transaction = self.begin().await?;
            // In one order, so that gateways that write the same ones do not wait for each other in a circle.
            sqlx::query!(
                "with uses as (
                     select new.secret_hash, new.at
                     from unnest($1::bytea[], $2::timestamptz[]) as new (secret_hash, at)
                     join key_secrets on key_secrets.secret_hash = new.secret_hash
                     order by new.secret_hash
                     for no key update of key_secrets
                 )
                 update key_secrets
                 set last_used_at = greatest(last_used_at, uses.at)
                 from uses
                 where key_secrets.secret_hash = uses.secret_hash",
                &hashes,
                &at,
            )
            .execute(&mut *transaction)
            .await?;
            sqlx::query!(
                "insert into key_uses (key_id, last_used_at)
                 select new.key_id, max(new.at)
                 from unnest($1::uuid[], $2::timestamptz[]) as new (key_id, at)
                 join keys on keys.id = new.key_id
                 group by new.key_id
                 order by new.key_id
                 on conflict (key_id) do update
                 set last_used_at = greatest(key_uses.last_used_at, excluded.last_used_at)",
                &keys,
                &at,
            )
            .execute(&mut *transaction)
            .await?;
            transaction.commit().await?;
            Ok(())
        })
        .await
    }

    /// What these keys did in the month that begins with this day of the billing zone; those that did nothing are there with
    /// nothing.
    pub async fn key_months(&self, keys: &[KeyId], month: NaiveDate) -> Result<HashMap<KeyId, KeyMonth>, StoreError> {
        let ids: Vec<Uuid> = keys.iter().map(|id| id.0).collect();
        let rows = sqlx::query!(
            "select
                asked.id as \"id!\",
                coalesce((select sum(cost_nanos + adjusted_cost_nanos)
                          from settlement_month_rollups as used
                          where grain = 'key_only' and used.tenant_id = keys.tenant_id and used.key_id = keys.id
                              and month = $2), 0)::bigint as \"cost_nanos!\",
                coalesce((select sum(refusals)
                          from rejection_month_rollups as refused
                          where grain = 'key_only' and refused.tenant_id = keys.tenant_id and refused.key_id = keys.id
                              and month = $2), 0)::bigint as \"refusals!\"
             from unnest($1::uuid[]) as asked (id)
             join keys on keys.id = asked.id",
            &ids,
            month,
        )
        .fetch_all(self.pool())
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| {
                let month = KeyMonth {
                    cost: Nanos(row.cost_nanos),
                    refusals: count(row.refusals),
                };
                (row.id.into(), month)
            })
            .collect())
    }
}

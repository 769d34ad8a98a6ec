//! Keys that are about to end, and what was told of them: each end once, whoever sees it.

use std::collections::HashSet;

use chrono::{DateTime, Duration, Utc};
use domain::ids::KeyId;
use domain::key_warnings::{EndingKey, KEY_EXPIRY_WARNING_DAYS, KeyEnding, OVERLAP_WARNING_DAYS_MAX};
use uuid::Uuid;

use crate::{Store, StoreError, in_time};

/// Endings that are looked at, and written, at once; the next ones first.
pub const ENDINGS_AT_ONCE: i64 = 1_000;
/// How long reading or writing some may take, in milliseconds.
const WAIT_MS: u64 = 5_000;
/// Rows that one call deletes at most.
const OLD_BATCH: i64 = 1_000;

/// An end to tell of.
#[derive(Clone, Debug)]
pub struct NewKeyWarning {
    /// The event's id, by which its receiver knows it again.
    pub id: Uuid,
    /// The end.
    pub key: EndingKey,
}

impl Store {
    /// Keys and overlaps that end soon and were not told of, the next first; at most [`ENDINGS_AT_ONCE`] of each.
    pub async fn untold_endings(&self, now: DateTime<Utc>) -> Result<Vec<EndingKey>, StoreError> {
        in_time(WAIT_MS, async {
            let expiring = sqlx::query_as!(
                Columns,
                "select keys.id as key_id, public_id, keys.name, keys.tenant_id, tenants.name as tenant_name,
                        people.email as \"owner_email?\", expires_at as \"ends_at!\", null::timestamptz as began_at,
                        last_used_at as \"last_used_at?\"
                 from keys
                 join tenants on tenants.id = keys.tenant_id
                 left join people on people.id = keys.owner_id
                 left join key_uses on key_uses.key_id = keys.id
                 where revoked_at is null
                   and expires_at > $1
                   and expires_at <= $2
                   and tenants.removed_at is null
                   and not exists (
                       select from key_warnings
                       where key_warnings.key_id = keys.id and kind = 'key_expires' and ends_at = expires_at)
                 order by expires_at
                 limit $3",
                now,
                now + Duration::days(KEY_EXPIRY_WARNING_DAYS),
                ENDINGS_AT_ONCE,
            )
            .fetch_all(self.pool())
            .await?;
            let overlaps = sqlx::query_as!(
                Columns,
                "select keys.id as key_id, public_id, keys.name, keys.tenant_id, tenants.name as tenant_name,
                        people.email as \"owner_email?\", valid_until as \"ends_at!\",
                        (select max(created_at) from key_secrets as newer where newer.key_id = keys.id) as began_at,
                        last_used_at as \"last_used_at?\"
                 from key_secrets
                 join keys on keys.id = key_secrets.key_id
                 join tenants on tenants.id = keys.tenant_id
                 left join people on people.id = keys.owner_id
                 where revoked_at is null
                   and valid_until > $1
                   and valid_until <= $2
                   and tenants.removed_at is null
                   and not exists (
                       select from key_warnings
                       where key_warnings.key_id = keys.id and kind = 'overlap_ends' and ends_at = valid_until)
                 order by valid_until
                 limit $3",
                now,
                now + Duration::days(OVERLAP_WARNING_DAYS_MAX),
                ENDINGS_AT_ONCE,
            )
            .fetch_all(self.pool())
            .await?;
            Ok(expiring.into_iter().chain(overlaps).map(Columns::into_ending).collect())
        })
        .await
    }

    /// Writes those endings that nobody has told of, with what the webhook is to hear (where there is one). Answers with the
    /// ids of those that were new. At most twice [`ENDINGS_AT_ONCE`].
    pub async fn write_key_warnings(
        &self,
        warnings: &[NewKeyWarning],
        at: DateTime<Utc>,
    ) -> Result<HashSet<Uuid>, StoreError> {
        in_time(WAIT_MS, async {
            let mut transaction = self.begin().await?;
            let ids: Vec<Uuid> = warnings.iter().map(|warning| warning.id).collect();
            let keys: Vec<Uuid> = warnings.iter().map(|warning| warning.key.key_id.0).collect();
            let kinds: Vec<String> = warnings
                .iter()
                .map(|warning| warning.key.ending.as_str().to_owned())
                .collect();
            let ends: Vec<DateTime<Utc>> = warnings.iter().map(|warning| warning.key.ends_at).collect();
            // In one order, so that those that write the same ones do not wait for each other in a circle.
            let written = sqlx::query_scalar!(
                "insert into key_warnings (id, key_id, kind, ends_at, at)
                 select id, key_id, kind, ends_at, $5
                 from unnest($1::uuid[], $2::uuid[], $3::text[], $4::timestamptz[]) as new (id, key_id, kind, ends_at)
                 order by key_id, kind, ends_at
                 on conflict on constraint key_warnings_once do nothing
                 returning id",
                &ids,
                &keys,
                &kinds,
                &ends,
                at,
            )
            .fetch_all(&mut *transaction)
            .await?;
            let written: HashSet<Uuid> = written.into_iter().collect();
            let new: Vec<&NewKeyWarning> = warnings.iter().filter(|new| written.contains(&new.id)).collect();
            let ids: Vec<Uuid> = new.iter().map(|new| new.id).collect();
            let events: Vec<String> = new.iter().map(|new| new.key.ending.event().to_owned()).collect();
            let bodies: Vec<String> = new.iter().map(|new| new.key.body(new.id, at)).collect();
            sqlx::query!(
                "insert into alert_deliveries (id, event, at, body, due_at)
                 select id, event, $4, body, $4
                 from unnest($1::uuid[], $2::text[], $3::text[]) as new (id, event, body)
                 where exists (select from alert_webhook)",
                &ids,
                &events,
                &bodies,
                at,
            )
            .execute(&mut *transaction)
            .await?;
            transaction.commit().await?;
            Ok(written)
        })
        .await
    }

    /// Deletes a batch of what was told of ends before `before`; returns how many there were.
    pub async fn delete_old_key_warnings(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        let done = sqlx::query!(
            "delete from key_warnings
             where id = any (array (select id from key_warnings where ends_at < $1 limit $2))",
            before,
            OLD_BATCH,
        )
        .execute(self.pool())
        .await?;
        Ok(done.rows_affected())
    }
}

struct Columns {
    key_id: Uuid,
    public_id: String,
    name: String,
    tenant_id: Uuid,
    tenant_name: String,
    owner_email: Option<String>,
    ends_at: DateTime<Utc>,
    began_at: Option<DateTime<Utc>>,
    last_used_at: Option<DateTime<Utc>>,
}

impl Columns {
    fn into_ending(self) -> EndingKey {
        EndingKey {
            ending: match self.began_at {
                Some(began_at) => KeyEnding::OverlapEnds { began_at },
                None => KeyEnding::KeyExpires,
            },
            ends_at: self.ends_at,
            key_id: KeyId(self.key_id),
            public_id: self.public_id,
            name: self.name,
            tenant_id: self.tenant_id.into(),
            tenant_name: self.tenant_name,
            owner_email: self.owner_email,
            last_used_at: self.last_used_at,
        }
    }
}

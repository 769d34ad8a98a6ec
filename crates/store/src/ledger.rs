//! The ledger's entries going in: batches from a gateway's journal, exactly once, with their roll-ups and the mark of how
//! far the journal is contained.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, Days, Months, NaiveDate, Utc};
use domain::ledger::{LATENCY_BOUNDS_MS, Rejection, Settlement};
use serde::Serialize;
use uuid::Uuid;

use crate::{Store, StoreError, Transaction, in_time};

/// How often a batch is repeated when another transaction was in its way, before the caller hears of it.
pub const CONFLICT_RETRIES_MAX: u32 = 6;
/// Wait before the first repetition, in milliseconds; doubled each time, and up to as much again by chance.
const CONFLICT_WAIT_MS: u64 = 5;
/// How long Postgres may take for a batch, in milliseconds. One that was committed all the same is recognised by its mark.
const SHIP_WAIT_MS: u64 = 30_000;
/// How long it may take to tell a mark, in milliseconds.
const MARK_WAIT_MS: u64 = 5_000;
/// How long it may take to make a month's partitions, in milliseconds.
const PARTITION_WAIT_MS: u64 = 30_000;
/// Months for which partitions exist ahead, the current one included.
const PARTITION_MONTHS: u32 = 3;

/// Entries of one gateway's journal, in the journal's order. Holds are no rows: they only move the mark.
#[derive(Clone, Debug, Default)]
pub struct ShipBatch<'a> {
    /// The mark on which the batch builds: everything up to it is already contained. 0 at the very beginning.
    pub previous_seq: u64,
    /// The mark after it, above `previous_seq`.
    pub last_seq: u64,
    /// Requests that ran.
    pub settlements: Vec<&'a Settlement>,
    /// Requests that were refused.
    pub rejections: Vec<&'a Rejection>,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shipped {
    /// Committed, together with its roll-ups and the mark.
    Committed {
        /// Settlements that were new.
        settlements: u64,
        /// Rejections that were new.
        rejections: u64,
    },
    /// Nothing was written, because Postgres's mark is not the one the batch builds on: an earlier answer was lost,
    /// somebody else shipped, or the database was restored. Go on from `mark`.
    Elsewhere {
        /// What Postgres contains.
        mark: u64,
    },
}

/// A journal record that Postgres will not take.
#[derive(Clone, Copy, Debug)]
pub struct QuarantinedRecord<'a> {
    /// The mark on which it builds, as in [`ShipBatch`].
    pub previous_seq: u64,
    /// Its number in the journal.
    pub seq: u64,
    /// The record as it was journalled, whole.
    pub bytes: &'a [u8],
    /// Why it is here.
    pub reason: &'a str,
}

impl Store {
    /// Writes a batch in one transaction: entries that are not there yet, their roll-ups, the mark. The order of locks
    /// is the same for every caller; deadlocks and serialisation failures are repeated [`CONFLICT_RETRIES_MAX`] times.
    ///
    /// # Errors
    /// [`StoreError::is_content`] says that an entry of the batch can never be written.
    pub async fn ship_ledger(&self, instance: &str, batch: &ShipBatch<'_>) -> Result<Shipped, StoreError> {
        let settlements = json_array(&batch.settlements)?;
        let rejections = json_array(&batch.rejections)?;
        let mut retries = 0;
        loop {
            match self
                .ship_once(instance, batch, settlements.as_deref(), rejections.as_deref())
                .await
            {
                Err(StoreError::Conflict(_)) if retries < CONFLICT_RETRIES_MAX => {
                    tokio::time::sleep(conflict_wait(retries)).await;
                    retries += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn ship_once(
        &self,
        instance: &str,
        batch: &ShipBatch<'_>,
        settlements: Option<&str>,
        rejections: Option<&str>,
    ) -> Result<Shipped, StoreError> {
        in_time(SHIP_WAIT_MS, self.ship(instance, batch, settlements, rejections)).await
    }

    async fn ship(
        &self,
        instance: &str,
        batch: &ShipBatch<'_>,
        settlements: Option<&str>,
        rejections: Option<&str>,
    ) -> Result<Shipped, StoreError> {
        let mut transaction = self.begin().await?;
        let mark = lock_mark(&mut transaction, instance).await?;
        if mark != batch.previous_seq {
            return Ok(Shipped::Elsewhere { mark });
        }
        let settlements = match settlements {
            Some(entries) => insert_settlements(&mut transaction, entries).await?,
            None => 0,
        };
        let rejections = match rejections {
            Some(entries) => insert_rejections(&mut transaction, entries).await?,
            None => 0,
        };
        move_mark(&mut transaction, instance, batch.last_seq).await?;
        transaction.commit().await?;
        Ok(Shipped::Committed {
            settlements,
            rejections,
        })
    }

    /// Puts a record aside, whole, and moves the mark past it, in one transaction.
    pub async fn quarantine_record(
        &self,
        instance: &str,
        record: &QuarantinedRecord<'_>,
    ) -> Result<Shipped, StoreError> {
        in_time(SHIP_WAIT_MS, self.put_aside(instance, record)).await
    }

    async fn put_aside(&self, instance: &str, record: &QuarantinedRecord<'_>) -> Result<Shipped, StoreError> {
        let mut transaction = self.begin().await?;
        let mark = lock_mark(&mut transaction, instance).await?;
        if mark != record.previous_seq {
            return Ok(Shipped::Elsewhere { mark });
        }
        // What jsonb cannot hold (a NUL character, say) is kept as bytes.
        let json = std::str::from_utf8(record.bytes)
            .ok()
            .filter(|text| !text.contains("\\u0000") && serde_json::from_str::<serde_json::Value>(text).is_ok());
        let raw = json.is_none().then_some(record.bytes);
        sqlx::query!(
            "insert into ledger_quarantine (instance, seq, record, raw, reason, quarantined_at)
             values ($1, $2, $3::text::jsonb, $4, $5, now())
             on conflict (instance, seq) do nothing",
            instance,
            signed(record.seq),
            json,
            raw,
            record.reason.replace('\0', "\u{fffd}"),
        )
        .execute(&mut *transaction)
        .await?;
        move_mark(&mut transaction, instance, record.seq).await?;
        transaction.commit().await?;
        Ok(Shipped::Committed {
            settlements: 0,
            rejections: 0,
        })
    }

    /// How far a gateway's journal is contained in Postgres; 0 for one that never shipped. Waits for a batch that is still
    /// under way, as one of a gateway that was killed may be.
    pub async fn ledger_mark(&self, instance: &str) -> Result<u64, StoreError> {
        in_time(MARK_WAIT_MS, async {
            let mark = sqlx::query_scalar!(
                "select seq from ledger_progress where instance = $1 for share",
                instance
            )
            .fetch_optional(self.pool())
            .await?;
            Ok(mark.map_or(0, unsigned))
        })
        .await
    }

    /// The marks of every gateway that ever shipped.
    pub async fn ledger_marks(&self) -> Result<HashMap<String, u64>, StoreError> {
        let mut connection = self.pool().acquire().await?;
        marks(&mut connection).await
    }

    /// How many records are in quarantine and not yet resolved.
    pub async fn count_quarantined(&self) -> Result<u64, StoreError> {
        let count =
            sqlx::query_scalar!(r#"select count(*) as "count!" from ledger_quarantine where resolved_at is null"#)
                .fetch_one(self.pool())
                .await?;
        Ok(unsigned(count))
    }

    /// Makes the partitions of the month of `now` and the months after it. Called at start and once a day; entries of
    /// months without a partition go to the default one, so a failure here loses nothing.
    pub async fn ensure_partitions(&self, now: DateTime<Utc>) -> Result<(), StoreError> {
        for month in partition_months(now) {
            let made = in_time(PARTITION_WAIT_MS, async {
                sqlx::query!("select create_ledger_partitions($1)", month)
                    .execute(self.pool())
                    .await?;
                Ok(())
            });
            match made.await {
                Ok(()) => {}
                // The default partition already has entries of that month; they stay there, and are found there.
                Err(error) if error.is_content() => {
                    tracing::warn!(%month, %error, "a month of the ledger stays in the default partition");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The marks of every gateway, inside the caller's snapshot.
pub(crate) async fn marks(connection: &mut sqlx::PgConnection) -> Result<HashMap<String, u64>, StoreError> {
    let rows = sqlx::query!("select instance, seq from ledger_progress")
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(|row| (row.instance, unsigned(row.seq))).collect())
}

async fn lock_mark(transaction: &mut Transaction, instance: &str) -> Result<u64, StoreError> {
    sqlx::query!(
        "insert into ledger_progress (instance, seq, updated_at) values ($1, 0, now()) on conflict do nothing",
        instance,
    )
    .execute(&mut **transaction)
    .await?;
    // The journal deletes what is committed, so a commit has to outlive a crash of Postgres, even on a server that is set to
    // forgo that.
    let row = sqlx::query!(
        "select seq, case when current_setting('synchronous_commit') = 'off'
                         then set_config('synchronous_commit', 'local', true) end as durability
         from ledger_progress where instance = $1 for update",
        instance
    )
    .fetch_one(&mut **transaction)
    .await?;
    Ok(unsigned(row.seq))
}

async fn move_mark(transaction: &mut Transaction, instance: &str, seq: u64) -> Result<(), StoreError> {
    sqlx::query!(
        "update ledger_progress set seq = $2, updated_at = now() where instance = $1",
        instance,
        signed(seq),
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

pub(crate) async fn insert_settlements(transaction: &mut Transaction, entries: &str) -> Result<u64, StoreError> {
    // Columns are named one by one, so that a column added later keeps its default while this code still runs.
    let inserted = sqlx::query_scalar!(
        r#"
        with inserted as (
            insert into settlements (
                id, admitted_at, settled_at, tenant_id, user_id, key_id, model, dialect, endpoint, priority, is_streamed,
                tags, instance, user_agent, job_id, upstream_id, upstream_model, upstream_request_id, outcome, status,
                attempts,
                input_fresh_tokens, cache_read_tokens, cache_write_5m_tokens, cache_write_1h_tokens, output_tokens,
                reasoning_tokens, usage_source, expected_input_tokens, expected_output_tokens, expected_cost_nanos,
                ceiling_input_tokens, ceiling_output_tokens, ceiling_cost_nanos, cost_nanos, overrun_nanos, price_id,
                is_unpriced, queue_ms, first_byte_ms, total_ms, rehearsed)
            select
                id, admitted_at, settled_at, tenant_id, user_id, key_id, model, dialect, endpoint, priority, is_streamed,
                tags, instance, user_agent, job_id, upstream_id, upstream_model, upstream_request_id, outcome, status,
                attempts,
                input_fresh_tokens, cache_read_tokens, cache_write_5m_tokens, cache_write_1h_tokens, output_tokens,
                reasoning_tokens, usage_source, expected_input_tokens, expected_output_tokens, expected_cost_nanos,
                ceiling_input_tokens, ceiling_output_tokens, ceiling_cost_nanos, cost_nanos, overrun_nanos, price_id,
                is_unpriced, queue_ms, first_byte_ms, total_ms, rehearsed
            from jsonb_populate_recordset(null::settlements, $1::text::jsonb)
            on conflict do nothing
            returning *
        ),
        placed as (
            select
                inserted.*,
                date_bin('15 minutes', admitted_at, timestamptz '2000-01-01 00:00:00+00') as bucket_start,
                -- Bounds belong to the bucket below them, hence the minus one.
                width_bucket(total_ms - 1, $2::bigint[]) as total_slot,
                width_bucket(first_byte_ms - 1, $2::bigint[]) as first_byte_slot
            from inserted
        ),
        rolled as (
            insert into settlement_rollups as kept (
                bucket_start, tenant_id, user_id, key_id, model, upstream_id, priority,
                requests, failed_requests, unpriced_requests, estimated_requests,
                input_fresh_tokens, cache_read_tokens, cache_write_5m_tokens, cache_write_1h_tokens, output_tokens,
                reasoning_tokens, expected_input_tokens, expected_output_tokens, expected_cost_nanos, cost_nanos,
                overrun_nanos, queue_ms, total_ms, total_ms_histogram, first_byte_ms_histogram)
            select
                bucket_start, tenant_id, coalesce(user_id, ''), key_id, coalesce(model, ''),
                coalesce(upstream_id, '00000000-0000-0000-0000-000000000000'), priority,
                count(*),
                count(*) filter (where outcome not in ('completed', 'client_closed')),
                count(*) filter (where is_unpriced),
                count(*) filter (where usage_source = 'estimated'),
                sum(input_fresh_tokens), sum(cache_read_tokens), sum(cache_write_5m_tokens), sum(cache_write_1h_tokens),
                sum(output_tokens), sum(reasoning_tokens), sum(expected_input_tokens), sum(expected_output_tokens),
                sum(expected_cost_nanos), sum(cost_nanos), sum(overrun_nanos), sum(queue_ms), sum(total_ms),
                array[
                    count(*) filter (where total_slot = 0), count(*) filter (where total_slot = 1),
                    count(*) filter (where total_slot = 2), count(*) filter (where total_slot = 3),
                    count(*) filter (where total_slot = 4), count(*) filter (where total_slot = 5),
                    count(*) filter (where total_slot = 6), count(*) filter (where total_slot = 7),
                    count(*) filter (where total_slot = 8), count(*) filter (where total_slot = 9),
                    count(*) filter (where total_slot = 10), count(*) filter (where total_slot = 11),
                    count(*) filter (where total_slot = 12), count(*) filter (where total_slot = 13),
                    count(*) filter (where total_slot = 14), count(*) filter (where total_slot = 15)],
                array[
                    count(*) filter (where first_byte_slot = 0), count(*) filter (where first_byte_slot = 1),
                    count(*) filter (where first_byte_slot = 2), count(*) filter (where first_byte_slot = 3),
                    count(*) filter (where first_byte_slot = 4), count(*) filter (where first_byte_slot = 5),
                    count(*) filter (where first_byte_slot = 6), count(*) filter (where first_byte_slot = 7),
                    count(*) filter (where first_byte_slot = 8), count(*) filter (where first_byte_slot = 9),
                    count(*) filter (where first_byte_slot = 10), count(*) filter (where first_byte_slot = 11),
                    count(*) filter (where first_byte_slot = 12), count(*) filter (where first_byte_slot = 13),
                    count(*) filter (where first_byte_slot = 14), count(*) filter (where first_byte_slot = 15)]
            from placed
            group by 1, 2, 3, 4, 5, 6, 7
            -- Rows are locked in the order in which they come: the primary key's, for every writer.
            order by 1, 2, 4, 3, 5, 6, 7
            on conflict (bucket_start, tenant_id, key_id, user_id, model, upstream_id, priority) do update set
                requests = kept.requests + excluded.requests,
                failed_requests = kept.failed_requests + excluded.failed_requests,
                unpriced_requests = kept.unpriced_requests + excluded.unpriced_requests,
                estimated_requests = kept.estimated_requests + excluded.estimated_requests,
                input_fresh_tokens = kept.input_fresh_tokens + excluded.input_fresh_tokens,
                cache_read_tokens = kept.cache_read_tokens + excluded.cache_read_tokens,
                cache_write_5m_tokens = kept.cache_write_5m_tokens + excluded.cache_write_5m_tokens,
                cache_write_1h_tokens = kept.cache_write_1h_tokens + excluded.cache_write_1h_tokens,
                output_tokens = kept.output_tokens + excluded.output_tokens,
                reasoning_tokens = kept.reasoning_tokens + excluded.reasoning_tokens,
                expected_input_tokens = kept.expected_input_tokens + excluded.expected_input_tokens,
                expected_output_tokens = kept.expected_output_tokens + excluded.expected_output_tokens,
                expected_cost_nanos = kept.expected_cost_nanos + excluded.expected_cost_nanos,
                cost_nanos = kept.cost_nanos + excluded.cost_nanos,
                overrun_nanos = kept.overrun_nanos + excluded.overrun_nanos,
                queue_ms = kept.queue_ms + excluded.queue_ms,
                total_ms = kept.total_ms + excluded.total_ms,
                total_ms_histogram = add_histograms(kept.total_ms_histogram, excluded.total_ms_histogram),
                first_byte_ms_histogram =
                    add_histograms(kept.first_byte_ms_histogram, excluded.first_byte_ms_histogram)
        ),
        verdicts as (
            select
                bucket_start, split_part(verdict ->> 'scope', ':', 1) as scope_kind,
                (verdict ->> 'limit_id')::uuid as limit_id, verdict ->> 'code' as code, tenant_id, key_id, id
            from placed, jsonb_array_elements(rehearsed) as verdict
            where rehearsed <> '[]'
        ),
        rehearsals_rolled as (
            insert into rehearsal_rollups as kept (
                bucket_start, scope_kind, limit_id, code, tenant_id, key_id, requests)
            select
                bucket_start, coalesce(scope_kind, ''), coalesce(limit_id, '00000000-0000-0000-0000-000000000000'),
                coalesce(code, ''), tenant_id, key_id, count(distinct id)
            from verdicts
            group by grouping sets (
                (bucket_start, tenant_id, key_id),
                (bucket_start, tenant_id, key_id, scope_kind),
                (bucket_start, tenant_id, key_id, scope_kind, limit_id, code))
            order by 1, 2, 3, 4, 5, 6
            on conflict (bucket_start, scope_kind, limit_id, code, tenant_id, key_id)
            do update set requests = kept.requests + excluded.requests
        ),
        tags_rolled as (
            insert into tag_rollups as kept (
                bucket_start, tenant_id, tag_name, tag_value, key_id, requests, failed_requests, input_fresh_tokens,
                cache_read_tokens, cache_write_5m_tokens, cache_write_1h_tokens, output_tokens, reasoning_tokens,
                cost_nanos)
            select
                bucket_start, tenant_id, tag.key, tag.value, key_id,
                count(*),
                count(*) filter (where outcome not in ('completed', 'client_closed')),
                sum(input_fresh_tokens), sum(cache_read_tokens), sum(cache_write_5m_tokens), sum(cache_write_1h_tokens),
                sum(output_tokens), sum(reasoning_tokens), sum(cost_nanos)
            from placed, jsonb_each_text(tags) as tag
            where tags <> '{}'
            group by 1, 2, 3, 4, 5
            order by 1, 2, 3, 4, 5
            on conflict (bucket_start, tenant_id, tag_name, tag_value, key_id) do update set
                requests = kept.requests + excluded.requests,
                failed_requests = kept.failed_requests + excluded.failed_requests,
                input_fresh_tokens = kept.input_fresh_tokens + excluded.input_fresh_tokens,
                cache_read_tokens = kept.cache_read_tokens + excluded.cache_read_tokens,
                cache_write_5m_tokens = kept.cache_write_5m_tokens + excluded.cache_write_5m_tokens,
                cache_write_1h_tokens = kept.cache_write_1h_tokens + excluded.cache_write_1h_tokens,
                output_tokens = kept.output_tokens + excluded.output_tokens,
                reasoning_tokens = kept.reasoning_tokens + excluded.reasoning_tokens,
                cost_nanos = kept.cost_nanos + excluded.cost_nanos
        )
        select count(*) as "count!" from inserted
        "#,
        entries,
        &LATENCY_BOUNDS_MS[..],
    )
    .fetch_one(&mut **transaction)
    .await?;
    Ok(unsigned(inserted))
}

pub(crate) async fn insert_rejections(transaction: &mut Transaction, entries: &str) -> Result<u64, StoreError> {
    let inserted = sqlx::query_scalar!(
        r#"
        with inserted as (
            insert into rejections (
                id, refused_at, tenant_id, user_id, key_id, model, dialect, endpoint, priority, is_streamed, tags,
                instance, user_agent, job_id, code, status, scope, dimension, limit_id, limit_key, chain, message,
                retry_after_seconds, caller_retries, refusal_count, early_count, expected_input_tokens,
                expected_output_tokens, expected_cost_nanos, queue_ms)
            select
                id, refused_at, tenant_id, user_id, key_id, model, dialect, endpoint, priority, is_streamed, tags,
                instance, user_agent, job_id, code, status, scope, dimension, limit_id, limit_key, chain, message,
                retry_after_seconds, caller_retries, refusal_count, early_count, expected_input_tokens,
                expected_output_tokens, expected_cost_nanos, queue_ms
            from jsonb_populate_recordset(null::rejections, $1::text::jsonb)
            on conflict do nothing
            returning *
        ),
        rolled as (
            insert into rejection_rollups as kept (
                bucket_start, tenant_id, user_id, key_id, model, priority, code, scope_kind, dimension, refusals,
                early_refusals, caller_retries_max)
            select
                date_bin('15 minutes', refused_at, timestamptz '2000-01-01 00:00:00+00'),
                -- A refused request may name any model; the key of an index row has a bound.
                tenant_id, coalesce(user_id, ''), key_id, left(coalesce(model, ''), 200), priority, code,
                coalesce(split_part(scope, ':', 1), ''), coalesce(dimension, ''), sum(refusal_count), sum(early_count),
                max(caller_retries)
            from inserted
            group by 1, 2, 3, 4, 5, 6, 7, 8, 9
            order by 1, 2, 4, 3, 5, 6, 7, 8, 9
            on conflict (bucket_start, tenant_id, key_id, user_id, model, priority, code, scope_kind, dimension)
            do update set
                refusals = kept.refusals + excluded.refusals,
                early_refusals = kept.early_refusals + excluded.early_refusals,
                caller_retries_max = greatest(kept.caller_retries_max, excluded.caller_retries_max)
        )
        select count(*) as "count!" from inserted
        "#,
        entries,
    )
    .fetch_one(&mut **transaction)
    .await?;
    Ok(unsigned(inserted))
}

/// The entries as one JSON array; `None` when there are none. A NUL character, which jsonb cannot hold, becomes U+FFFD:
/// an entry must go in whatever a caller has put into its texts.
pub(crate) fn json_array<T: Serialize>(entries: &[&T]) -> Result<Option<String>, StoreError> {
    if entries.is_empty() {
        return Ok(None);
    }
    let unwritable = |_| StoreError::Value {
        column: "the entry's JSON",
    };
    let text = serde_json::to_string(entries).map_err(unwritable)?;
    if !text.contains("\\u0000") {
        return Ok(Some(text));
    }
    let mut value: serde_json::Value = serde_json::from_str(&text).map_err(unwritable)?;
    replace_nul(&mut value);
    Ok(Some(value.to_string()))
}

fn replace_nul(value: &mut serde_json::Value) {
    use serde_json::Value as V;
    match value {
        V::String(text) => *text = text.replace('\0', "\u{fffd}"),
        V::Array(items) => items.iter_mut().for_each(replace_nul),
        V::Object(fields) => {
            let replaced = std::mem::take(fields).into_iter().map(|(name, mut field)| {
                replace_nul(&mut field);
                (name.replace('\0', "\u{fffd}"), field)
            });
            *fields = replaced.collect();
        }
        V::Null | V::Bool(_) | V::Number(_) => {}
    }
}

fn conflict_wait(retries: u32) -> Duration {
    let wait_ms = CONFLICT_WAIT_MS << retries;
    // The low bits of a version 7 UUID are random.
    let random = Uuid::now_v7().as_u128() as u64;
    Duration::from_millis(wait_ms + random % (wait_ms + 1))
}

fn partition_months(now: DateTime<Utc>) -> impl Iterator<Item = NaiveDate> {
    // A day back, because an entry that was admitted before midnight may be shipped after it.
    let first = (now - Days::new(1)).date_naive();
    (0..=PARTITION_MONTHS).map(move |months| first + Months::new(months))
}

/// A sequence number as Postgres keeps it. They start at microseconds since 1970 and never reach the end of `bigint`.
pub(crate) fn signed(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests;

//! How long the ledger's entries are kept. Months that are over are dropped whole; roll-ups and adjustments stay.
//!
//! Nothing here waits for long, or makes others wait: what needs a table to itself gives up after [`LOCK_WAIT_MS`] and is
//! tried again with the next round. Detaching concurrently, which needs no such lock, Postgres refuses where there is a
//! default partition. Several gateways may call this at once.

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::AssertSqlSafe;

use crate::audit::{self, AuditEntry};
use crate::{Store, StoreError, Transaction, in_time};

/// How long a step waits for others to leave a table, in milliseconds: so long those that come meanwhile wait, too.
const LOCK_WAIT_MS: u64 = 500;
/// How long it keeps others from a table at most, in milliseconds.
const HOLD_MS_MAX: u64 = 5_000;
/// How long a step may take altogether, in milliseconds.
const STEP_WAIT_MS: u64 = 30_000;
/// Entries that are deleted in one transaction.
const DELETED_AT_ONCE: i64 = 5_000;
/// Such transactions in one round, for each table.
const DELETIONS_MAX: u32 = 100;
/// Entries of a month that are moved out of the default partition; more stay there, and are found there.
const PLACED_MAX: i64 = 50_000;
/// Months for which that is done in one round, for each table.
const PLACED_MONTHS_MAX: i64 = 12;

/// How long entries are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionRow {
    /// For so many full months beside the current one; all, if absent.
    pub months: Option<u16>,
    /// Entries before were dropped, and only roll-ups count them; none were, if absent.
    pub entries_from: Option<DateTime<Utc>>,
    /// The settings' version.
    pub version: i64,
}

/// What one round has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tended {
    /// Partitions that were dropped.
    pub dropped: u64,
    /// Entries that were deleted from the default partitions.
    pub deleted: u64,
    /// Entries that were moved from there to a partition of their own.
    pub placed: u64,
    /// Whether something was in the way, and the next round has more to do.
    pub is_unfinished: bool,
}

/// What is gone for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped<'a> {
    /// A month of settlements or rejections, by the table's name: `settlements_2026_09`.
    Partition(&'a str),
    /// Entries of earlier months that lay elsewhere.
    Entries {
        /// `settlements` or `rejections`.
        table: &'static str,
        /// How many.
        count: u64,
    },
}

/// The two tables that are divided by months, and the instant that they are divided by.
const TABLES: [(&str, &str); 2] = [("settlements", "admitted_at"), ("rejections", "refused_at")];

impl Store {
    /// The first instant whose entries are all there; absent while none were dropped. Entries before may still come late,
    /// and are dropped in their turn; roll-ups count all of them.
    pub async fn entries_kept_from(&self) -> Result<Option<DateTime<Utc>>, StoreError> {
        Ok(sqlx::query_scalar!("select entries_from from ledger_retention")
            .fetch_optional(self.pool())
            .await?)
    }

    /// How long entries are kept; `None` in a database that was never started with.
    pub async fn retention(&self) -> Result<Option<RetentionRow>, StoreError> {
        let row = sqlx::query!(
            r#"select ledger_retention_months, version, entries_from as "entries_from?"
               from settings left join ledger_retention using (only_row)"#
        )
        .fetch_optional(self.pool())
        .await?;
        Ok(row.map(|row| RetentionRow {
            months: row
                .ledger_retention_months
                .and_then(|months| u16::try_from(months).ok()),
            entries_from: row.entries_from,
            version: row.version,
        }))
    }

    /// One round: drops the months before `entries_from`, if given, and puts what landed in the default partitions where
    /// it belongs. Whatever is dropped for good is noted in the same transaction, as `note` says.
    ///
    /// # Errors
    /// When Postgres cannot be reached, or refuses for another reason than that somebody is in the way.
    pub async fn tend_ledger(
        &self,
        entries_from: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
        note: &(dyn Fn(Dropped<'_>) -> AuditEntry + Sync),
    ) -> Result<Tended, StoreError> {
        let mut tended = Tended::default();
        if let Some(entries_from) = entries_from {
            self.drop_months(entries_from, now, note, &mut tended).await?;
            self.delete_early(entries_from, note, &mut tended).await?;
        }
        self.place_stray(&mut tended).await?;
        Ok(tended)
    }

    async fn drop_months(
        &self,
        entries_from: DateTime<Utc>,
        now: DateTime<Utc>,
        note: &(dyn Fn(Dropped<'_>) -> AuditEntry + Sync),
        tended: &mut Tended,
    ) -> Result<(), StoreError> {
        let old = sqlx::query!(
            r#"select parent as "parent!", partition as "partition!", is_attached as "is_attached!"
               from old_ledger_partitions($1)"#,
            entries_from,
        )
        .fetch_all(self.pool())
        .await?;
        if !old.is_empty() || self.has_early_entries(entries_from).await? {
            // Before anything is dropped: whoever adds up entries must never miss some without knowing it.
            sqlx::query!(
                "insert into ledger_retention as kept (entries_from, changed_at) values ($1, $2)
                 on conflict (only_row) do update set entries_from = excluded.entries_from, changed_at = excluded.changed_at
                 where kept.entries_from < excluded.entries_from",
                entries_from,
                now,
            )
            .execute(self.pool())
            .await?;
        }
        for row in old {
            let (parent, partition) = (row.parent.as_str(), row.partition.as_str());
            // Apart from dropping it: the parent is free again before files are removed.
            let detach = Change::Detach { parent, partition };
            if row.is_attached && self.step(detach).await?.is_none() {
                tended.is_unfinished = true;
                continue;
            }
            let entry = note(Dropped::Partition(partition));
            match self
                .step(Change::Drop {
                    partition,
                    entry: &entry,
                })
                .await?
            {
                Some(0) => {}
                Some(_) => {
                    tended.dropped += 1;
                    tracing::info!(partition, "a month of the ledger was dropped");
                }
                None => tended.is_unfinished = true,
            }
        }
        Ok(())
    }

    async fn has_early_entries(&self, entries_from: DateTime<Utc>) -> Result<bool, StoreError> {
        Ok(sqlx::query_scalar!(
            r#"select exists (select from settlements_default where admitted_at < $1)
                   or exists (select from rejections_default where refused_at < $1) as "exists!""#,
            entries_from,
        )
        .fetch_one(self.pool())
        .await?)
    }

    /// Deletes what lies in the default partitions and is too old, in bounded portions.
    async fn delete_early(
        &self,
        entries_from: DateTime<Utc>,
        note: &(dyn Fn(Dropped<'_>) -> AuditEntry + Sync),
        tended: &mut Tended,
    ) -> Result<(), StoreError> {
        for is_settlements in [true, false] {
            let mut portions = 0;
            loop {
                let deleted = in_time(STEP_WAIT_MS, self.delete_portion(is_settlements, entries_from, note)).await?;
                tended.deleted += deleted;
                portions += 1;
                if deleted < DELETED_AT_ONCE as u64 {
                    break;
                }
                if portions == DELETIONS_MAX {
                    tended.is_unfinished = true;
                    break;
                }
            }
        }
        Ok(())
    }

    async fn delete_portion(
        &self,
        is_settlements: bool,
        entries_from: DateTime<Utc>,
        note: &(dyn Fn(Dropped<'_>) -> AuditEntry + Sync),
    ) -> Result<u64, StoreError> {
        let mut transaction = self.begin().await?;
        let table = if is_settlements { "settlements" } else { "rejections" };
        let done = if is_settlements {
            sqlx::query!(
                "delete from settlements_default where ctid = any (array(
                     select ctid from settlements_default where admitted_at < $1 limit $2 for update skip locked))",
                entries_from,
                DELETED_AT_ONCE,
            )
            .execute(&mut *transaction)
            .await?
        } else {
            sqlx::query!(
                "delete from rejections_default where ctid = any (array(
                     select ctid from rejections_default where refused_at < $1 limit $2 for update skip locked))",
                entries_from,
                DELETED_AT_ONCE,
            )
            .execute(&mut *transaction)
            .await?
        };
        let count = done.rows_affected();
        if count > 0 {
            audit::append(&mut transaction, &note(Dropped::Entries { table, count })).await?;
        }
        transaction.commit().await?;
        Ok(count)
    }

    /// Moves what landed in the default partitions to the months' own: entries that came while a month's partition could not
    /// be made, or from a clock that was wrong.
    async fn place_stray(&self, tended: &mut Tended) -> Result<(), StoreError> {
        for (parent, counted) in TABLES {
            for month in self.stray_months(parent, counted).await? {
                match self.step(Change::Place { parent, month }).await?.map(u64::try_from) {
                    None => tended.is_unfinished = true,
                    Some(Ok(placed)) => tended.placed += placed,
                    // Nobody could write while they are moved.
                    Some(Err(_)) => tracing::warn!(
                        parent,
                        %month,
                        "more entries of this month lie in the default partition than are moved; they are found there"
                    ),
                }
            }
        }
        Ok(())
    }

    /// Months of entries in the default partition that have no partition of their own.
    async fn stray_months(&self, parent: &str, counted: &str) -> Result<Vec<NaiveDate>, StoreError> {
        // Each month by a look into the index, and not by reading all of it.
        let text = format!(
            "with recursive found as (
                 (select date_trunc('month', {counted} at time zone 'UTC')::date as month
                  from {parent}_default order by {counted} limit 1)
                 union all
                 select (
                     select date_trunc('month', {counted} at time zone 'UTC')::date
                     from {parent}_default
                     where {counted} >= (found.month + interval '1 month') at time zone 'UTC'
                     order by {counted} limit 1)
                 from found where found.month is not null)
             select month from found where month is not null and to_regclass($1 || to_char(month, '_YYYY_MM')) is null
             limit $2"
        );
        Ok(sqlx::query_scalar(AssertSqlSafe(text))
            .bind(parent)
            .bind(PLACED_MONTHS_MAX)
            .fetch_all(self.pool())
            .await?)
    }

    /// Does one thing in a transaction of its own: how many entries it has moved, or partitions dropped; `None` when
    /// somebody was in the way.
    async fn step(&self, change: Change<'_>) -> Result<Option<i64>, StoreError> {
        let done = in_time(STEP_WAIT_MS, async {
            let mut transaction = self.begin().await?;
            let bounds =
                format!("set local lock_timeout = {LOCK_WAIT_MS}; set local statement_timeout = {HOLD_MS_MAX}");
            execute(&mut transaction, bounds).await?;
            let moved = change.make(&mut transaction).await?;
            transaction.commit().await?;
            Ok(moved)
        });
        match done.await {
            Ok(moved) => Ok(Some(moved)),
            Err(error) if error.is_in_the_way() || matches!(error, StoreError::TooSlow(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A change that needs a table to itself for a moment.
enum Change<'a> {
    Detach { parent: &'a str, partition: &'a str },
    Drop { partition: &'a str, entry: &'a AuditEntry },
    Place { parent: &'a str, month: NaiveDate },
}

impl Change<'_> {
    async fn make(&self, transaction: &mut Transaction) -> Result<i64, StoreError> {
        match self {
            Self::Detach { parent, partition } => {
                let (parent, partition) = (quoted(parent), quoted(partition));
                execute(
                    transaction,
                    format!("alter table {parent} detach partition {partition}"),
                )
                .await?;
                Ok(0)
            }
            Self::Drop { partition, entry } => {
                // One at a time: of several that want to drop it, one has.
                sqlx::query!("select pg_advisory_xact_lock(hashtext('tollgate.ledger_drop'))")
                    .execute(&mut **transaction)
                    .await?;
                let is_there = sqlx::query_scalar!(
                    r#"select to_regclass(quote_ident($1)) is not null as "is_there!""#,
                    *partition,
                )
                .fetch_one(&mut **transaction)
                .await?;
                if !is_there {
                    return Ok(0);
                }
                execute(transaction, format!("drop table {}", quoted(partition))).await?;
                audit::append(transaction, entry).await?;
                Ok(1)
            }
            Self::Place { parent, month } => Ok(sqlx::query_scalar!(
                r#"select place_default_entries($1, $2, $3) as "moved!""#,
                parent,
                month,
                PLACED_MAX,
            )
            .fetch_one(&mut **transaction)
            .await?),
        }
    }
}

/// Keeps entries for so many full months beside the current one; all, with `None`.
pub async fn update_retention(transaction: &mut Transaction, months: Option<u16>) -> Result<(), StoreError> {
    sqlx::query!(
        "update settings set ledger_retention_months = $1, version = version + 1",
        months.and_then(|months| i16::try_from(months).ok()),
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// How long entries are kept now, inside the caller's transaction.
pub async fn retention_months(transaction: &mut Transaction) -> Result<Option<u16>, StoreError> {
    let months = sqlx::query_scalar!("select ledger_retention_months from settings")
        .fetch_optional(&mut **transaction)
        .await?;
    Ok(months.flatten().and_then(|months| u16::try_from(months).ok()))
}

async fn execute(transaction: &mut Transaction, text: String) -> Result<(), StoreError> {
    sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut **transaction).await?;
    Ok(())
}

/// A name from Postgres's own list of tables, as part of a statement.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

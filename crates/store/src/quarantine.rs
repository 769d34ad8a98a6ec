//! Journal records that Postgres would not take, kept whole, and gaps: numbers of records that are known to be lost.

use chrono::{DateTime, Utc};
use domain::ledger::JournalRecord;

use crate::ledger::{insert_rejections, insert_settlements, json_array, signed, unsigned};
use crate::{Store, StoreError, Transaction, in_time};

/// The most that are listed.
pub const QUARANTINED_MAX: i64 = 200;
/// How long it may take to say how many there are, in milliseconds.
const COUNT_WAIT_MS: u64 = 2_000;
/// How long a gap may take to be written down, in milliseconds.
const GAP_WAIT_MS: u64 = 5_000;

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It was written to the ledger after all.
    Shipped,
    /// Somebody has dealt with it otherwise.
    Closed,
}

impl Resolution {
    /// The word in SQL, JSON and pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shipped => "shipped",
            Self::Closed => "closed",
        }
    }
}

/// One record in quarantine, or a gap.
#[derive(Clone, Debug, PartialEq)]
pub struct QuarantineRow {
    /// Whose journal it is from.
    pub instance: String,
    /// Its number there; the first of a gap.
    pub seq: u64,
    /// The last number of a gap.
    pub last_seq: Option<u64>,
    /// The record, where it is JSON.
    pub record: Option<serde_json::Value>,
    /// Its bytes, where it is not.
    pub raw: Option<Vec<u8>>,
    /// Why it is here.
    pub reason: String,
    /// Since when.
    pub quarantined_at: DateTime<Utc>,
    /// When somebody dealt with it.
    pub resolved_at: Option<DateTime<Utc>>,
    /// How: `shipped` or `closed`.
    pub resolution: Option<String>,
    /// Who.
    pub resolved_by: Option<String>,
    /// What they noted.
    pub note: Option<String>,
}

impl QuarantineRow {
    /// The record, if this version can read it.
    pub fn readable(&self) -> Option<JournalRecord> {
        match (&self.record, &self.raw) {
            (Some(record), _) => serde_json::from_value(record.clone()).ok(),
            (None, Some(raw)) => serde_json::from_slice(raw).ok(),
            (None, None) => None,
        }
    }

    /// Whether it stands for records that are lost.
    pub fn is_gap(&self) -> bool {
        self.last_seq.is_some()
    }
}

struct RawRow {
    instance: String,
    seq: i64,
    last_seq: Option<i64>,
    record: Option<serde_json::Value>,
    raw: Option<Vec<u8>>,
    reason: String,
    quarantined_at: DateTime<Utc>,
    resolved_at: Option<DateTime<Utc>>,
    resolution: Option<String>,
    resolved_by: Option<String>,
    note: Option<String>,
}

impl From<RawRow> for QuarantineRow {
    fn from(row: RawRow) -> Self {
        Self {
            instance: row.instance,
            seq: unsigned(row.seq),
            last_seq: row.last_seq.map(unsigned),
            record: row.record,
            raw: row.raw,
            reason: row.reason,
            quarantined_at: row.quarantined_at,
            resolved_at: row.resolved_at,
            resolution: row.resolution,
            resolved_by: row.resolved_by,
            note: row.note,
        }
    }
}

impl Store {
    /// How many of one gateway's records are in quarantine and not yet dealt with.
    pub async fn count_quarantined_of(&self, instance: &str) -> Result<u64, StoreError> {
        in_time(COUNT_WAIT_MS, async {
            let count = sqlx::query_scalar!(
                r#"select count(*) as "count!" from ledger_quarantine where resolved_at is null and instance = $1"#,
                instance,
            )
            .fetch_one(self.pool())
            .await?;
            Ok(unsigned(count))
        })
        .await
    }

    /// Those that nobody has dealt with, the oldest first, and then the others, the latest first; at most
    /// [`QUARANTINED_MAX`].
    pub async fn quarantined(&self) -> Result<Vec<QuarantineRow>, StoreError> {
        let rows = sqlx::query_as!(
            RawRow,
            "select instance, seq, last_seq, record, raw, reason, quarantined_at, resolved_at, resolution, resolved_by, note
             from ledger_quarantine
             order by resolved_at desc nulls first, quarantined_at, instance, seq
             limit $1",
            QUARANTINED_MAX,
        )
        .fetch_all(self.pool())
        .await?;
        Ok(rows.into_iter().map(Into::into).collect())
    }

    /// Writes down that the records of these numbers of a gateway's journal are lost. Once: told again, nothing changes.
    pub async fn note_ledger_gap(
        &self,
        instance: &str,
        first_seq: u64,
        last_seq: u64,
        reason: &str,
    ) -> Result<(), StoreError> {
        in_time(GAP_WAIT_MS, async {
            sqlx::query!(
                "insert into ledger_quarantine (instance, seq, last_seq, reason, quarantined_at)
                 values ($1, $2, $3, $4, now())
                 on conflict (instance, seq) do nothing",
                instance,
                signed(first_seq),
                signed(last_seq),
                reason,
            )
            .execute(self.pool())
            .await?;
            Ok(())
        })
        .await
    }
}

/// A record in quarantine; kept from others until the transaction ends.
pub async fn lock_quarantined(
    transaction: &mut Transaction,
    instance: &str,
    seq: u64,
) -> Result<Option<QuarantineRow>, StoreError> {
    let row = sqlx::query_as!(
        RawRow,
        "select instance, seq, last_seq, record, raw, reason, quarantined_at, resolved_at, resolution, resolved_by, note
         from ledger_quarantine where instance = $1 and seq = $2 for update",
        instance,
        signed(seq),
    )
    .fetch_optional(&mut **transaction)
    .await?;
    Ok(row.map(Into::into))
}

/// Writes a record to the ledger, with its roll-ups; false when it is there already, or when it is a hold, which is no row.
///
/// # Errors
/// [`StoreError::is_content`] says that Postgres still does not take it.
pub async fn ship_record(transaction: &mut Transaction, record: &JournalRecord) -> Result<bool, StoreError> {
    let inserted = match record {
        JournalRecord::Hold(_) => 0,
        JournalRecord::Settlement(settlement) => match json_array(&[&**settlement])? {
            Some(entries) => insert_settlements(transaction, &entries).await?,
            None => 0,
        },
        JournalRecord::Rejection(rejection) => match json_array(&[&**rejection])? {
            Some(entries) => insert_rejections(transaction, &entries).await?,
            None => 0,
        },
    };
    Ok(inserted > 0)
}

/// Notes what became of it.
pub async fn resolve(
    transaction: &mut Transaction,
    row: &QuarantineRow,
    resolution: Resolution,
    by: &str,
    note: &str,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "update ledger_quarantine set resolved_at = $3, resolution = $4, resolved_by = $5, note = $6
         where instance = $1 and seq = $2",
        row.instance,
        signed(row.seq),
        now,
        resolution.as_str(),
        by,
        note,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

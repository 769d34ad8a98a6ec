//! Records that Postgres would not take, and gaps. For those who see everything; operators deal with them.

use chrono::{DateTime, Utc};
use domain::error_chain::chain;
use domain::ledger::JournalRecord;
use domain::text;
use domain::text::Text;
use serde_json::json;
use store::quarantine::{self, Resolution};
pub use store::quarantine::{QUARANTINED_MAX, QuarantineRow};

use crate::audit::Change;
use crate::{Actor, Control, ControlError, commit};

/// The longest note, in characters.
pub const NOTE_CHARS_MAX: usize = 500;
/// What is noted of a record that went in.
pub const SHIPPED_NOTE: &str = "written to the ledger";

/// What became of a record that was shipped again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShippedAgain {
    /// It is in the ledger now, and in every total.
    Written,
    /// It was there already.
    WasThere,
}

impl Control {
    /// What is in quarantine: first what nobody has dealt with, the oldest first; then the others, the latest first. At most
    /// [`QUARANTINED_MAX`].
    pub async fn quarantined(&self, actor: &Actor) -> Result<Vec<QuarantineRow>, ControlError> {
        actor.require_everything()?;
        Ok(self.store.quarantined().await?)
    }

    /// Tries again to write a record to the ledger, with its roll-ups. Field `record` says why that cannot be done.
    pub async fn ship_again(
        &self,
        actor: &Actor,
        instance: &str,
        seq: u64,
        now: DateTime<Utc>,
    ) -> Result<ShippedAgain, ControlError> {
        actor.require_operator()?;
        let refused = |message: Text| ControlError::field("record", message);
        let mut transaction = self.store.begin().await?;
        let row = open_row(quarantine::lock_quarantined(&mut transaction, instance, seq).await?)?;
        if row.is_gap() {
            return Err(refused(text!(
                "there is no record to ship: this stands for records that are lost"
            )));
        }
        let Some(record) = row.readable() else {
            return Err(refused(text!(
                "this version cannot read the record; a newer one may, or mark it as resolved and book what it says by an \
                 adjustment"
            )));
        };
        if matches!(record, JournalRecord::Hold(_)) {
            return Err(refused(text!(
                "the beginning of a request is no entry of the ledger: mark it as resolved"
            )));
        }
        let is_new = match quarantine::ship_record(&mut transaction, &record).await {
            Ok(is_new) => is_new,
            Err(error) if error.is_content() => {
                return Err(refused(text!(
                    "Postgres still does not take it: {error}",
                    error = chain(&error)
                )));
            }
            Err(error) => return Err(error.into()),
        };
        quarantine::resolve(
            &mut transaction,
            &row,
            Resolution::Shipped,
            actor.label(),
            SHIPPED_NOTE,
            now,
        )
        .await?;
        let change = changed("quarantine.ship", &row, json!({ "is_new": is_new }));
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await?;
        Ok(if is_new {
            ShippedAgain::Written
        } else {
            ShippedAgain::WasThere
        })
    }

    /// Marks a record or a gap as dealt with, and notes how. Field `note`.
    pub async fn close_quarantined(
        &self,
        actor: &Actor,
        instance: &str,
        seq: u64,
        note: &str,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        actor.require_operator()?;
        // Postgres takes no NUL.
        let note = note.replace('\0', "\u{fffd}");
        let note = note.trim();
        if note.is_empty() || note.chars().count() > NOTE_CHARS_MAX {
            let message = text!(
                "say in at most {count} characters what was done about it",
                count = NOTE_CHARS_MAX
            );
            return Err(ControlError::field("note", message));
        }
        let mut transaction = self.store.begin().await?;
        let row = open_row(quarantine::lock_quarantined(&mut transaction, instance, seq).await?)?;
        quarantine::resolve(&mut transaction, &row, Resolution::Closed, actor.label(), note, now).await?;
        let change = changed("quarantine.close", &row, json!({ "note": note }));
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await
    }
}

/// One that nobody has dealt with.
fn open_row(row: Option<QuarantineRow>) -> Result<QuarantineRow, ControlError> {
    let row = row.ok_or(ControlError::NotFound {
        what: "record in quarantine",
    })?;
    match row.resolved_at {
        None => Ok(row),
        Some(_) => Err(ControlError::field(
            "record",
            text!("somebody has dealt with it already"),
        )),
    }
}

fn changed(action: &'static str, row: &QuarantineRow, after: serde_json::Value) -> Change {
    Change {
        action,
        subject: format!("quarantine:{}/{}", row.instance, row.seq),
        tenant_id: None,
        before: Some(json!({ "reason": row.reason })),
        after: Some(after),
    }
}

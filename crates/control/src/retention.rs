//! How long the ledger's entries are kept. Roll-ups, and with them reports and budgets, are kept in every case.

use chrono::{DateTime, Datelike, NaiveDate, Utc};
pub use domain::retention::MONTHS_MAX;
use domain::text;
use domain::text::Text;
use serde_json::json;
use store::retention::{self, Dropped};
pub use store::retention::{RetentionRow, Tended};

use crate::audit::Change;
use crate::fields::Fields;
use crate::settings::{changed, lock};
use crate::{Actor, Control, ControlError, commit};

impl Control {
    /// How long entries are kept, and since when they are.
    pub async fn retention(&self, actor: &Actor) -> Result<RetentionRow, ControlError> {
        actor.require_everything()?;
        let row = self.store.retention().await?;
        row.ok_or(ControlError::NotFound { what: "settings" })
    }

    /// The first instant whose entries are all there; absent while none were dropped. It concerns everyone who looks for an
    /// entry.
    pub async fn entries_kept_from(&self) -> Result<Option<DateTime<Utc>>, ControlError> {
        Ok(self.store.entries_kept_from().await?)
    }

    /// Keeps entries for so many full months beside the current one, or all of them. Field `months`, 1 to [`MONTHS_MAX`].
    /// What is dropped does not come back when it is raised later, so that a shorter time wants a word of its own: field
    /// `confirmed`.
    pub async fn set_retention(
        &self,
        actor: &Actor,
        version: i64,
        months: Option<u16>,
        is_confirmed: bool,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        actor.require_operator()?;
        let mut fields = Fields::default();
        fields.require(
            months.is_none_or(|months| (1..=MONTHS_MAX).contains(&months)),
            "months",
            text!("between 1 and 1200 months"),
        );
        fields.check()?;
        let mut transaction = self.store.begin().await?;
        lock(&mut transaction, version).await?;
        let before = retention::retention_months(&mut transaction).await?;
        if let Some(months) = months
            && before.is_none_or(|before| months < before)
            && !is_confirmed
        {
            let from = domain::retention::entries_from(now, self.zone().await?, months);
            let message = text!(
                "this drops the entries of months that ended before {day} and they do not come back; tick the box to do it",
                day = day_text(from.date_naive())
            );
            return Err(ControlError::field("confirmed", message));
        }
        retention::update_retention(&mut transaction, months).await?;
        let change = changed("settings.retention", json!(before), json!(months));
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await
    }

    /// Drops the months that are not to be kept any more, and puts stray entries where they belong: one bounded round. Any
    /// number of gateways may do so at once.
    pub async fn tend_ledger(&self, now: DateTime<Utc>) -> Result<Tended, ControlError> {
        let zone = self.zone().await?;
        let months = self.store.retention().await?.and_then(|row| row.months);
        let from = months.map(|months| domain::retention::entries_from(now, zone, months));
        let note = |dropped: Dropped<'_>| self.entry(&HOUSEKEEPING, now, gone(dropped, from));
        Ok(self.store.tend_ledger(from, now, &note).await?)
    }
}

/// A day in words: `1 November 2026`.
fn day_text(day: NaiveDate) -> Text {
    let (year, month, day) = (day.year(), day.month(), day.day());
    match month {
        1 => text!("{day} January {year}", day, year),
        2 => text!("{day} February {year}", day, year),
        3 => text!("{day} March {year}", day, year),
        4 => text!("{day} April {year}", day, year),
        5 => text!("{day} May {year}", day, year),
        6 => text!("{day} June {year}", day, year),
        7 => text!("{day} July {year}", day, year),
        8 => text!("{day} August {year}", day, year),
        9 => text!("{day} September {year}", day, year),
        10 => text!("{day} October {year}", day, year),
        11 => text!("{day} November {year}", day, year),
        _ => text!("{day} December {year}", day, year),
    }
}

/// Who drops what is not to be kept any more.
const HOUSEKEEPING: Actor = Actor::System { name: "housekeeping" };

fn gone(dropped: Dropped<'_>, entries_from: Option<DateTime<Utc>>) -> Change {
    let before = match dropped {
        Dropped::Partition(partition) => json!({ "partition": partition }),
        Dropped::Entries { table, count } => json!({ "table": table, "entries": count }),
    };
    Change {
        action: "ledger.drop",
        subject: "ledger".to_owned(),
        tenant_id: None,
        before: Some(before),
        after: Some(json!({ "entries_from": entries_from })),
    }
}

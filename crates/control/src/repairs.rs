//! Roll-ups that are not the sum of their entries, made anew: from the command line.

use chrono::{DateTime, NaiveDate, Utc};
use domain::periods::Span;
use serde_json::{Value, json};
pub use store::rollups::RollupDifference;
use store::{calendar, rollups};

use crate::audit::Change;
use crate::{Actor, Control, ControlError, commit};

/// Rows that an entry of the audit log shows of what was made anew; the rest is counted.
const ROWS_NOTED_MAX: usize = 20;

impl Control {
    /// Makes the 15-minute roll-ups of `span` anew from their entries, and with them the sums by day and month. What was found
    /// to differ is noted.
    pub async fn rebuild_rollups(
        &self,
        actor: &Actor,
        span: Span,
        found: &[RollupDifference],
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        actor.require_operator_in_person()?;
        let mut transaction = self.store.begin().await?;
        rollups::rebuild(&mut transaction, span).await?;
        let change = made_anew(json!({ "from": span.start, "until": span.end }), found);
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await
    }

    /// Makes the sums by day and month of the billing month that begins with `first_day` anew from the 15-minute roll-ups. What
    /// was found to differ is noted.
    pub async fn rebuild_calendar(
        &self,
        actor: &Actor,
        first_day: NaiveDate,
        found: &[RollupDifference],
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        actor.require_operator_in_person()?;
        let mut transaction = self.store.begin().await?;
        calendar::rebuild(&mut transaction, first_day).await?;
        let change = made_anew(json!({ "month": first_day }), found);
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await
    }
}

fn made_anew(of: Value, found: &[RollupDifference]) -> Change {
    let rows = |side: fn(&RollupDifference) -> &Option<Value>| -> Vec<Value> {
        let shown = found.iter().take(ROWS_NOTED_MAX);
        shown
            .map(|difference| json!({ "table": difference.table, "row": side(difference) }))
            .collect()
    };
    Change {
        action: "ledger.repair",
        subject: "ledger".to_owned(),
        tenant_id: None,
        before: Some(json!({ "rows": rows(|difference| &difference.stored) })),
        after: Some(json!({
            "of": of,
            "differing_rows": found.len(),
            "rows": rows(|difference| &difference.from_entries),
        })),
    }
}

//! Adjustments as CSV, as [`crate::usage_csv`] makes the others: the latest made first, the sum in the last line.

use chrono::{DateTime, SecondsFormat, Utc};
use domain::adjustments::Figures;
use domain::ids::TenantId;
use domain::ledger::Adjustment;
use domain::periods::Month;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use store::adjustments::{AdjustmentCursor, AdjustmentFilter};
use store::entries::{Named, PAGE_ENTRIES_MAX};
use store::{Store, StoreError};

use crate::usage_csv::{Lines, MONEY_PLACES, UsageCsv, pieces, safe_text};
use crate::{Actor, Control, ControlError};

impl Control {
    /// The adjustments that [`Control::adjustments`] lists, page by page in constant memory.
    pub async fn adjustments_csv(
        &self,
        actor: &Actor,
        tenant: Option<TenantId>,
        month: Option<Month>,
    ) -> Result<UsageCsv, ControlError> {
        let filter = self.adjustments_within_reach(actor, tenant, month).await?;
        let currency = self.settings().await?.settings.currency;
        let of_month = month.map_or(String::new(), |month| format!("-{month}"));
        let lines = AdjustmentLines {
            sum: Figures::default(),
            rows_written: 0,
        };
        Ok(UsageCsv {
            file_name: format!("tollgate-adjustments{of_month}.csv"),
            bytes: pieces(header(&currency), rows(self.store.clone(), filter), lines),
        })
    }
}

type Row = Result<Named<Adjustment>, StoreError>;

/// Where the reading of pages stands.
enum Next {
    Page(Option<AdjustmentCursor>),
    Nothing,
}

/// What is appended meanwhile is newer than the first page, so the pages together are a whole.
fn rows(store: Store, filter: AdjustmentFilter) -> BoxStream<'static, Row> {
    let pages = stream::unfold((store, filter, Next::Page(None)), |(store, filter, next)| async move {
        let Next::Page(after) = next else {
            return None;
        };
        let read = store.adjustments(&filter, after, PAGE_ENTRIES_MAX).await;
        let (rows, next): (Vec<Row>, Next) = match read {
            Ok(page) => {
                let next = page.next.map_or(Next::Nothing, |cursor| Next::Page(Some(cursor)));
                (page.adjustments.into_iter().map(Ok).collect(), next)
            }
            Err(error) => (vec![Err(error)], Next::Nothing),
        };
        Some((stream::iter(rows), (store, filter, next)))
    });
    pages.flatten().boxed()
}

struct AdjustmentLines {
    sum: Figures,
    rows_written: u64,
}

impl Lines for AdjustmentLines {
    type Row = Named<Adjustment>;

    fn row(&mut self, row: &Named<Adjustment>) -> Vec<String> {
        let adjustment = &row.entry;
        let figures = Figures::of_adjustment(adjustment);
        self.sum = self.sum + figures;
        self.rows_written += 1;
        let text = |text: Option<&str>| text.map_or(String::new(), safe_text);
        let id = |id: Option<String>| id.unwrap_or_default();
        vec![
            self.rows_written.to_string(),
            String::new(),
            instant(adjustment.created_at),
            instant(adjustment.admitted_at),
            text(row.tenant_name.as_deref()),
            adjustment.tenant_id.to_string(),
            text(row.user_name.as_deref().or(adjustment.user_id.as_deref())),
            text(row.key_name.as_deref()),
            id(adjustment.key_id.map(|key| key.to_string())),
            text(adjustment.model.as_deref()),
            id(adjustment.request_id.map(|request| request.to_string())),
            figures.input_tokens.to_string(),
            figures.output_tokens.to_string(),
            figures.cost_nanos.to_decimal(MONEY_PLACES),
            safe_text(&adjustment.reason),
            text(adjustment.reference.as_deref()),
            safe_text(&adjustment.author),
            adjustment.id.to_string(),
        ]
    }

    fn end(&mut self) -> Vec<Vec<String>> {
        let mut total = vec!["total".to_owned(), self.rows_written.to_string()];
        total.resize(11, String::new());
        total.extend([
            self.sum.input_tokens.to_string(),
            self.sum.output_tokens.to_string(),
            self.sum.cost_nanos.to_decimal(MONEY_PLACES),
        ]);
        total.resize(COLUMNS.len(), String::new());
        vec![total]
    }
}

const COLUMNS: [&str; 18] = [
    "row",
    "rows",
    "made_at",
    "counts_at",
    "tenant",
    "tenant_id",
    "user",
    "key",
    "key_id",
    "model",
    "request_id",
    "input_tokens",
    "output_tokens",
    "amount",
    "reason",
    "reference",
    "author",
    "adjustment_id",
];

fn header(currency: &str) -> Vec<String> {
    let currency = currency.to_lowercase();
    let name = |column: &str| match column {
        "amount" => format!("amount_{currency}"),
        column => column.to_owned(),
    };
    COLUMNS.into_iter().map(name).collect()
}

fn instant(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

//! The monthly report as CSV, made row by row.
//!
//! One column for each reason of a refusal, whether or not it came up, so that every file has the same columns.
//! UTF-8, comma, CRLF, one header line. Rows are numbered in the first column; the last line says `total` there and how
//! many rows precede it in the second, so that a file that was cut off is seen to be. Money has nine decimals, the
//! currency is in the column's name. Names that came from people cannot become formulas in a spreadsheet.

use std::fmt;

use domain::money::Nanos;
use domain::periods::Month;
use domain::refusals::RefusalCode;
use domain::reports::{Completeness, Grouping, MonthState, Totals};
use futures_util::stream::BoxStream;
use store::StoreError;
use store::reports::{Before, ReportRow, ReportStream};

use crate::ControlError;
use crate::pieces::{self, Document, Pieces};

/// Decimals of an amount of money: all there are.
pub(crate) const MONEY_PLACES: u32 = 9;
/// The last two columns of every file.
pub(crate) const COMPLETENESS_COLUMNS: [&str; 2] = ["month_state", "complete_until"];
/// Shares of requests that were as fast or faster, by the latency histograms.
pub(crate) const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)];

/// A report to be downloaded.
pub struct UsageCsv {
    /// `tollgate-usage-2026-11-by-tenant.csv`; `tollgate-usage-2026-11-open-by-tenant.csv` while the month can change.
    pub file_name: String,
    /// The bytes in pieces. An error ends them before the line of totals.
    pub bytes: Pieces,
}

impl fmt::Debug for UsageCsv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UsageCsv")
            .field("file_name", &self.file_name)
            .finish_non_exhaustive()
    }
}

impl UsageCsv {
    /// Media type of the file.
    pub const MEDIA_TYPE: &'static str = "text/csv; charset=utf-8; header=present";

    pub(crate) fn new(month: Month, grouping: Grouping, currency: &str, report: ReportStream) -> Self {
        let ReportStream {
            totals,
            before,
            completeness,
            rows,
        } = report;
        let file_name = file_name(month, grouping, completeness.state);
        let lines = UsageLines {
            grouping,
            month: month.to_string(),
            completeness,
            totals,
            before,
            rows_written: 0,
        };
        Self {
            file_name,
            bytes: pieces(header(grouping, currency), rows, lines),
        }
    }
}

/// The file's name. What can still change says so.
fn file_name(month: Month, grouping: Grouping, state: MonthState) -> String {
    let by = [
        (grouping.tenant, "tenant"),
        (grouping.user, "user"),
        (grouping.key, "key"),
        (grouping.model, "model"),
        (grouping.priority, "priority"),
    ];
    let by: Vec<&str> = by
        .into_iter()
        .filter(|(is_in, _)| *is_in)
        .map(|(_, word)| word)
        .collect();
    let by = match by.as_slice() {
        [] => String::new(),
        by => format!("-by-{}", by.join("-")),
    };
    format!("tollgate-usage-{month}{}{by}.csv", state_suffix(state))
}

/// What a file's name says of a month that can still change.
pub(crate) fn state_suffix(state: MonthState) -> &'static str {
    match state {
        MonthState::Open => "-open",
        MonthState::Closing => "-closing",
        MonthState::Final => "",
    }
}

/// How a report becomes lines.
pub(crate) trait Lines: Send + 'static {
    /// A row of the report.
    type Row: Send + 'static;

    /// A row's line.
    fn row(&mut self, row: &Self::Row) -> Vec<String>;

    /// The lines after the last row. A file without them was cut off.
    fn end(&mut self) -> Vec<Vec<String>>;
}

/// The bytes of a report in pieces: its header, its rows, its end.
pub(crate) fn pieces<L: Lines>(
    header: Vec<String>,
    rows: BoxStream<'static, Result<L::Row, StoreError>>,
    lines: L,
) -> Pieces {
    pieces::pieces(rows, Csv { header, lines })
}

struct Csv<L> {
    header: Vec<String>,
    lines: L,
}

impl<L: Lines> Document for Csv<L> {
    type Row = L::Row;

    fn start(&mut self) -> Result<Vec<u8>, ControlError> {
        written([std::mem::take(&mut self.header)])
    }

    fn rows(&mut self, rows: Vec<L::Row>) -> Result<Vec<u8>, ControlError> {
        written(rows.iter().map(|row| self.lines.row(row)))
    }

    fn end(&mut self) -> Result<Vec<u8>, ControlError> {
        written(self.lines.end())
    }
}

struct UsageLines {
    grouping: Grouping,
    month: String,
    completeness: Completeness,
    totals: Totals,
    before: Before,
    rows_written: u64,
}

impl Lines for UsageLines {
    type Row = ReportRow;

    fn row(&mut self, row: &ReportRow) -> Vec<String> {
        self.rows_written += 1;
        let mut cells = vec![self.rows_written.to_string(), String::new(), self.month.clone()];
        let text = |text: &Option<String>| text.as_deref().map(safe_text).unwrap_or_default();
        if self.grouping.has_tenant() {
            cells.push(row.tenant_id.map(|id| id.to_string()).unwrap_or_default());
            cells.push(text(&row.tenant_name));
        }
        if self.grouping.user {
            cells.push(text(&row.user_id));
            cells.push(text(&row.user_name));
        }
        if self.grouping.key {
            cells.push(row.key_id.map(|id| id.to_string()).unwrap_or_default());
            cells.push(text(&row.key_public_id));
            cells.push(text(&row.key_name));
        }
        if self.grouping.model {
            cells.push(text(&row.model));
        }
        if self.grouping.priority {
            cells.push(row.priority.map(|priority| priority.to_string()).unwrap_or_default());
        }
        self.sums(&mut cells, &row.totals, row.before, row.budget);
        cells
    }

    fn end(&mut self) -> Vec<Vec<String>> {
        let mut cells = vec!["total".to_owned(), self.rows_written.to_string(), self.month.clone()];
        cells.resize(cells.len() + group_columns(self.grouping).len(), String::new());
        self.sums(&mut cells, &self.totals, self.before, None);
        vec![cells]
    }
}

impl UsageLines {
    fn sums(&self, cells: &mut Vec<String>, totals: &Totals, before: Before, budget: Option<Nanos>) {
        let usage = &totals.usage;
        let counts = [
            totals.requests,
            totals.failed_requests,
            totals.unpriced_requests,
            totals.estimated_requests,
            totals.refused_requests(),
            usage.input_fresh_tokens,
            usage.cache_read_tokens,
            usage.cache_write_5m_tokens,
            usage.cache_write_1h_tokens,
            usage.output_tokens,
            usage.reasoning_tokens,
        ];
        cells.extend(counts.iter().map(u64::to_string));
        cells.push(totals.adjusted_input_tokens.to_string());
        cells.push(totals.adjusted_output_tokens.to_string());
        let amounts = [
            totals.cost,
            totals.adjusted_cost,
            totals.charged(),
            totals.expected_cost,
            totals.overrun,
        ];
        let money = |amount: Nanos| amount.to_decimal(MONEY_PLACES);
        cells.extend(amounts.into_iter().map(money));
        cells.push(percent(totals.estimate_error_percent()));
        cells.push(budget.map(money).unwrap_or_default());
        cells.push(percent(
            budget.and_then(|budget| share_percent(totals.charged(), budget)),
        ));
        cells.push(before.requests.to_string());
        cells.push(money(before.charged));
        for latencies in [&totals.first_byte_latencies, &totals.total_latencies] {
            let quantiles = QUANTILES.map(|(_, quantile)| latencies.quantile_ms(quantile));
            cells.extend(quantiles.map(|ms| ms.map(|ms| ms.to_string()).unwrap_or_default()));
        }
        cells.push(totals.mean_queue_ms().map(|ms| ms.to_string()).unwrap_or_default());
        cells.extend(refusal_codes().map(|code| totals.refusals.get(code.as_str()).unwrap_or(&0).to_string()));
        cells.extend(completeness_cells(&self.completeness));
    }
}

/// The codes that count as refused.
fn refusal_codes() -> impl Iterator<Item = RefusalCode> {
    let is_refusal = |code: &RefusalCode| *code != RefusalCode::Replayed;
    RefusalCode::ALL.into_iter().filter(is_refusal)
}

/// A percentage with one decimal.
fn percent(percent: Option<f64>) -> String {
    percent.map(|percent| format!("{percent:.1}")).unwrap_or_default()
}

/// How much of a budget is charged; nothing for a budget of zero.
pub(crate) fn share_percent(charged: Nanos, budget: Nanos) -> Option<f64> {
    (budget.0 > 0).then(|| charged.0 as f64 * 100.0 / budget.0 as f64)
}

/// The cells of the last two columns of every file.
pub(crate) fn completeness_cells(completeness: &Completeness) -> [String; 2] {
    let until = completeness.complete_until;
    [
        completeness.state.as_str().to_owned(),
        until.to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
    ]
}

fn header(grouping: Grouping, currency: &str) -> Vec<String> {
    let currency = currency.to_lowercase();
    let mut names: Vec<String> = ["row", "rows", "month"].map(str::to_owned).to_vec();
    names.extend(group_columns(grouping).into_iter().map(str::to_owned));
    names.extend(
        [
            "requests",
            "failed_requests",
            "unpriced_requests",
            "estimated_requests",
            "refused_requests",
            "input_fresh_tokens",
            "cache_read_tokens",
            "cache_write_5m_tokens",
            "cache_write_1h_tokens",
            "output_tokens",
            "reasoning_tokens",
            "adjusted_input_tokens",
            "adjusted_output_tokens",
        ]
        .map(str::to_owned),
    );
    let money = |name: &str| format!("{name}_{currency}");
    names.extend(["cost", "adjusted_cost", "charged", "expected_cost", "overrun"].map(money));
    names.push("estimate_error_percent".to_owned());
    names.push(money("budget"));
    names.push("budget_share_percent".to_owned());
    names.push("month_before_requests".to_owned());
    names.push(money("month_before_charged"));
    for of in ["first_byte_ms", "total_ms"] {
        names.extend(QUANTILES.map(|(name, _)| format!("{of}_{name}")));
    }
    names.push("mean_queue_ms".to_owned());
    names.extend(refusal_codes().map(|code| format!("refused_{code}")));
    names.extend(COMPLETENESS_COLUMNS.map(str::to_owned));
    names
}

fn group_columns(grouping: Grouping) -> Vec<&'static str> {
    let columns: [(bool, &[&str]); 5] = [
        (grouping.has_tenant(), &["tenant_id", "tenant"]),
        (grouping.user, &["user_id", "user"]),
        (grouping.key, &["key_id", "key_public_id", "key"]),
        (grouping.model, &["model"]),
        (grouping.priority, &["priority"]),
    ];
    columns
        .into_iter()
        .filter(|(is_in, _)| *is_in)
        .flat_map(|(_, names)| names.iter().copied())
        .collect()
}

/// Characters that begin a formula somewhere; the last four are the wide forms of the first.
const FORMULA_STARTS: [char; 11] = ['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'];

/// A text that no spreadsheet takes for a formula: one that could be gets an apostrophe in front.
pub(crate) fn safe_text(text: &str) -> String {
    if text.starts_with(FORMULA_STARTS) {
        format!("'{text}")
    } else {
        text.to_owned()
    }
}

fn written(lines: impl IntoIterator<Item = Vec<String>>) -> Result<Vec<u8>, ControlError> {
    let mut writer = csv::WriterBuilder::new()
        .terminator(csv::Terminator::CRLF)
        .from_writer(Vec::new());
    for line in lines {
        writer
            .write_record(&line)
            .map_err(|error| ControlError::Internal(Box::new(error)))?;
    }
    writer
        .into_inner()
        .map_err(|error| ControlError::Internal(error.to_string().into()))
}

#[cfg(test)]
mod tests;

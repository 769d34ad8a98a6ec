//! The monthly report as CSV, made row by row.
//!
//! UTF-8, comma, CRLF, one header line. Rows are numbered in the first column; the last line says `total` there and how
//! many rows precede it in the second, so that a file that was cut off is seen to be. Money has nine decimals, the
//! currency is in the column's name. Names that came from people cannot become formulas in a spreadsheet.

use std::fmt;

use domain::money::Nanos;
use domain::periods::Month;
use domain::reports::{Completeness, Grouping, Totals};
use futures_util::stream::{self, BoxStream, StreamExt};
use store::StoreError;
use store::reports::{ReportRow, ReportStream};

use crate::ControlError;

/// Decimals of an amount of money: all there are.
pub(crate) const MONEY_PLACES: u32 = 9;
/// The last two columns of every file.
pub(crate) const COMPLETENESS_COLUMNS: [&str; 2] = ["month_state", "complete_until"];
/// Rows that make one piece of the stream.
const ROWS_PER_CHUNK: usize = 256;

/// A report to be downloaded.
pub struct UsageCsv {
    /// `tollgate-usage-2026-11-by-tenant.csv`.
    pub file_name: String,
    /// The bytes in pieces. An error ends them before the line of totals.
    pub bytes: BoxStream<'static, Result<Vec<u8>, ControlError>>,
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
            completeness,
            rows,
        } = report;
        let lines = UsageLines {
            grouping,
            month: month.to_string(),
            completeness,
            totals,
            rows_written: 0,
        };
        Self {
            file_name: file_name(month, grouping),
            bytes: pieces(header(grouping, currency), rows, lines),
        }
    }
}

/// The file's name.
fn file_name(month: Month, grouping: Grouping) -> String {
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
    if by.is_empty() {
        format!("tollgate-usage-{month}.csv")
    } else {
        format!("tollgate-usage-{month}-by-{}.csv", by.join("-"))
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
) -> BoxStream<'static, Result<Vec<u8>, ControlError>> {
    let start = Step::Header {
        header,
        rows: rows.chunks(ROWS_PER_CHUNK).boxed(),
        lines,
    };
    stream::unfold(start, next_piece).boxed()
}

type RowChunks<R> = BoxStream<'static, Vec<Result<R, StoreError>>>;

/// What comes next.
enum Step<L: Lines> {
    Header {
        header: Vec<String>,
        rows: RowChunks<L::Row>,
        lines: L,
    },
    Rows {
        rows: RowChunks<L::Row>,
        lines: L,
    },
    Nothing,
}

async fn next_piece<L: Lines>(step: Step<L>) -> Option<(Result<Vec<u8>, ControlError>, Step<L>)> {
    match step {
        Step::Nothing => None,
        Step::Header { header, rows, lines } => Some(match written([header]) {
            Ok(bytes) => (Ok(bytes), Step::Rows { rows, lines }),
            Err(error) => (Err(error), Step::Nothing),
        }),
        Step::Rows { mut rows, mut lines } => Some(match rows.next().await {
            None => (written(lines.end()), Step::Nothing),
            Some(chunk) => match piece(&mut lines, chunk) {
                Ok(bytes) => (Ok(bytes), Step::Rows { rows, lines }),
                Err(error) => (Err(error), Step::Nothing),
            },
        }),
    }
}

fn piece<L: Lines>(lines: &mut L, rows: Vec<Result<L::Row, StoreError>>) -> Result<Vec<u8>, ControlError> {
    let mut made = Vec::with_capacity(rows.len());
    for row in rows {
        made.push(lines.row(&row?));
    }
    written(made)
}

struct UsageLines {
    grouping: Grouping,
    month: String,
    completeness: Completeness,
    totals: Totals,
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
        self.sums(&mut cells, &row.totals);
        cells
    }

    fn end(&mut self) -> Vec<Vec<String>> {
        let mut cells = vec!["total".to_owned(), self.rows_written.to_string(), self.month.clone()];
        cells.resize(cells.len() + group_columns(self.grouping).len(), String::new());
        self.sums(&mut cells, &self.totals);
        vec![cells]
    }
}

impl UsageLines {
    fn sums(&self, cells: &mut Vec<String>, totals: &Totals) {
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
        cells.extend(amounts.into_iter().map(|amount: Nanos| amount.to_decimal(MONEY_PLACES)));
        cells.extend(completeness_cells(&self.completeness));
    }
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
    names.extend(
        ["cost", "adjusted_cost", "charged", "expected_cost", "overrun"].map(|name| format!("{name}_{currency}")),
    );
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

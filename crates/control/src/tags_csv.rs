//! The monthly report by tag as CSV, as [`crate::usage_csv`] makes the others.
//!
//! A row for each value, whose column `tagged` says `yes`; one for the requests without the tag, where it says `no`; the
//! total, which is that of the month.

use domain::reports::{Completeness, MonthState, TagTotals};
use store::tags::{TagRow, TagStream};

use crate::tags::MonthlyTagQuery;
use crate::usage_csv::{
    COMPLETENESS_COLUMNS, Lines, MONEY_PLACES, UsageCsv, completeness_cells, pieces, safe_text, state_suffix,
};

/// The report as a file.
pub(crate) fn file(query: &MonthlyTagQuery, currency: &str, report: TagStream) -> UsageCsv {
    let TagStream {
        without,
        totals,
        completeness,
        rows,
    } = report;
    let file_name = file_name(query, completeness.state);
    let lines = TagLines {
        month: query.month.to_string(),
        name: query.name.clone(),
        completeness,
        without,
        totals,
        rows_written: 0,
    };
    UsageCsv {
        file_name,
        bytes: pieces(header(currency), rows, lines),
    }
}

/// A tag's name may hold anything, a file's name may not.
fn file_name(query: &MonthlyTagQuery, state: MonthState) -> String {
    let name: String = query
        .name
        .chars()
        .map(|character| match character {
            plain if plain.is_ascii_alphanumeric() || plain == '_' => plain,
            _ => '-',
        })
        .collect();
    format!(
        "tollgate-usage-{}{}-by-tag-{name}.csv",
        query.month,
        state_suffix(state)
    )
}

struct TagLines {
    month: String,
    name: String,
    completeness: Completeness,
    without: TagTotals,
    totals: TagTotals,
    rows_written: u64,
}

impl Lines for TagLines {
    type Row = TagRow;

    fn row(&mut self, row: &TagRow) -> Vec<String> {
        self.numbered("yes", safe_text(&row.value), &row.totals)
    }

    fn end(&mut self) -> Vec<Vec<String>> {
        let without = self.without;
        let without = self.numbered("no", String::new(), &without);
        let mut total = vec![
            "total".to_owned(),
            self.rows_written.to_string(),
            self.month.clone(),
            safe_text(&self.name),
            String::new(),
            String::new(),
        ];
        self.sums(&mut total, &self.totals);
        vec![without, total]
    }
}

impl TagLines {
    fn numbered(&mut self, tagged: &str, value: String, totals: &TagTotals) -> Vec<String> {
        self.rows_written += 1;
        let mut cells = vec![
            self.rows_written.to_string(),
            String::new(),
            self.month.clone(),
            safe_text(&self.name),
            tagged.to_owned(),
            value,
        ];
        self.sums(&mut cells, totals);
        cells
    }

    fn sums(&self, cells: &mut Vec<String>, totals: &TagTotals) {
        let usage = &totals.usage;
        let counts = [
            totals.requests,
            totals.failed_requests,
            usage.input_fresh_tokens,
            usage.cache_read_tokens,
            usage.cache_write_5m_tokens,
            usage.cache_write_1h_tokens,
            usage.output_tokens,
            usage.reasoning_tokens,
        ];
        cells.extend(counts.iter().map(u64::to_string));
        cells.push(totals.cost.to_decimal(MONEY_PLACES));
        cells.extend(completeness_cells(&self.completeness));
    }
}

fn header(currency: &str) -> Vec<String> {
    let mut names: Vec<String> = [
        "row",
        "rows",
        "month",
        "tag",
        "tagged",
        "value",
        "requests",
        "failed_requests",
        "input_fresh_tokens",
        "cache_read_tokens",
        "cache_write_5m_tokens",
        "cache_write_1h_tokens",
        "output_tokens",
        "reasoning_tokens",
    ]
    .map(str::to_owned)
    .to_vec();
    names.push(format!("cost_{}", currency.to_lowercase()));
    names.extend(COMPLETENESS_COLUMNS.map(str::to_owned));
    names
}

#[cfg(test)]
mod tests;

//! The monthly report as JSON, made row by row like the CSV and with the same figures.
//!
//! Money is a decimal text with all nine digits, of the one currency that the head names. What the report says of itself
//! comes first, then `rows`, then `row_count` and `totals`: a document that is cut off is no JSON.

use domain::money::Nanos;
use domain::periods::Month;
use domain::reports::{Completeness, Grouping, Latencies, TagTotals, Totals};
use domain::usage::TokenUsage;
use serde_json::{Map, Value, json};
use store::reports::{Before, ReportRow, ReportStream};
use store::tags::{TagRow, TagStream};

use crate::ControlError;
use crate::pieces::{Document, Pieces, pieces};
use crate::usage_csv::{MONEY_PLACES, QUANTILES, share_percent};

/// What a report says of itself.
pub(crate) struct Head {
    pub(crate) month: Month,
    pub(crate) time_zone: String,
    pub(crate) currency: String,
}

/// The report by tenant, user, key, model or priority.
pub(crate) fn usage(head: &Head, grouping: Grouping, report: ReportStream) -> Pieces {
    let ReportStream {
        totals,
        before,
        completeness,
        rows,
    } = report;
    let head = head.values(&completeness, "by", json!(words(grouping)));
    let end = sums(&totals, before, None);
    pieces(rows, RowsJson::new(head, end, move |row| row_value(grouping, row)))
}

/// The report by the values of a tag.
pub(crate) fn tags(head: &Head, name: &str, report: TagStream) -> Pieces {
    let TagStream {
        without,
        totals,
        completeness,
        rows,
    } = report;
    let head = head.values(&completeness, "tag", json!(name));
    let mut end = tag_sums(&totals);
    end.insert("untagged".to_owned(), Value::Object(tag_sums(&without)));
    let row = |row: &TagRow| {
        let mut value = Map::new();
        value.insert("value".to_owned(), json!(row.value));
        value.extend(tag_sums(&row.totals));
        value
    };
    pieces(rows, RowsJson::new(head, end, row))
}

impl Head {
    fn values(&self, completeness: &Completeness, divided_by: &str, words: Value) -> Map<String, Value> {
        let mut head = Map::new();
        head.insert("month".to_owned(), json!(self.month.to_string()));
        head.insert("time_zone".to_owned(), json!(self.time_zone));
        head.insert("currency".to_owned(), json!(self.currency));
        head.insert("state".to_owned(), json!(completeness.state));
        head.insert("complete_until".to_owned(), json!(completeness.complete_until));
        head.insert("waiting_for".to_owned(), json!(completeness.waiting_for));
        head.insert(divided_by.to_owned(), words);
        head
    }
}

/// How a row is written.
type RowWriter<R> = Box<dyn Fn(&R) -> Map<String, Value> + Send>;

/// Rows as they come, between a head and sums.
struct RowsJson<R> {
    head: Map<String, Value>,
    totals: Map<String, Value>,
    row: RowWriter<R>,
    rows_written: u64,
}

impl<R> RowsJson<R> {
    fn new(
        head: Map<String, Value>,
        totals: Map<String, Value>,
        row: impl Fn(&R) -> Map<String, Value> + Send + 'static,
    ) -> Self {
        Self {
            head,
            totals,
            row: Box::new(row),
            rows_written: 0,
        }
    }
}

impl<R: Send + 'static> Document for RowsJson<R> {
    type Row = R;

    fn start(&mut self) -> Result<Vec<u8>, ControlError> {
        let mut bytes = written(&std::mem::take(&mut self.head))?;
        // The object stays open for what follows.
        bytes.pop();
        bytes.extend_from_slice(b",\"rows\":[");
        Ok(bytes)
    }

    fn rows(&mut self, rows: Vec<R>) -> Result<Vec<u8>, ControlError> {
        let mut bytes = Vec::new();
        for row in &rows {
            bytes.extend_from_slice(if self.rows_written == 0 { b"\n" } else { b",\n" });
            bytes.extend(written(&(self.row)(row))?);
            self.rows_written += 1;
        }
        Ok(bytes)
    }

    fn end(&mut self) -> Result<Vec<u8>, ControlError> {
        let mut bytes = format!("\n],\"row_count\":{},\"totals\":", self.rows_written).into_bytes();
        bytes.extend(written(&std::mem::take(&mut self.totals))?);
        bytes.extend_from_slice(b"}\n");
        Ok(bytes)
    }
}

fn written(value: &Map<String, Value>) -> Result<Vec<u8>, ControlError> {
    serde_json::to_vec(value).map_err(|error| ControlError::Internal(Box::new(error)))
}

fn words(grouping: Grouping) -> Vec<&'static str> {
    let divisions = [
        (grouping.tenant, "tenant"),
        (grouping.user, "user"),
        (grouping.key, "key"),
        (grouping.model, "model"),
        (grouping.priority, "priority"),
    ];
    let chosen = divisions.into_iter().filter(|(is_in, _)| *is_in);
    chosen.map(|(_, word)| word).collect()
}

/// What the report is divided by, and the sums.
fn row_value(grouping: Grouping, row: &ReportRow) -> Map<String, Value> {
    let mut value = Map::new();
    let mut put = |is_in: bool, name: &str, part: Value| {
        if is_in {
            value.insert(name.to_owned(), part);
        }
    };
    put(grouping.has_tenant(), "tenant_id", json!(row.tenant_id));
    put(grouping.has_tenant(), "tenant", json!(row.tenant_name));
    put(grouping.user, "user_id", json!(row.user_id));
    put(grouping.user, "user", json!(row.user_name));
    put(grouping.key, "key_id", json!(row.key_id));
    put(grouping.key, "key_public_id", json!(row.key_public_id));
    put(grouping.key, "key", json!(row.key_name));
    put(grouping.model, "model", json!(row.model));
    put(grouping.priority, "priority", json!(row.priority));
    value.extend(sums(&row.totals, row.before, row.budget));
    value
}

fn sums(totals: &Totals, before: Before, budget: Option<Nanos>) -> Map<String, Value> {
    let mut value = object(json!({
        "requests": totals.requests,
        "failed_requests": totals.failed_requests,
        "unpriced_requests": totals.unpriced_requests,
        "estimated_requests": totals.estimated_requests,
        "refused_requests": totals.refused_requests(),
    }));
    value.extend(tokens(&totals.usage));
    value.extend(object(json!({
        "adjustments": totals.adjustments,
        "adjusted_input_tokens": totals.adjusted_input_tokens,
        "adjusted_output_tokens": totals.adjusted_output_tokens,
        "cost": money(totals.cost),
        "adjusted_cost": money(totals.adjusted_cost),
        "charged": money(totals.charged()),
        "expected_cost": money(totals.expected_cost),
        "overrun": money(totals.overrun),
        "estimate_error_percent": percent(totals.estimate_error_percent()),
        "budget": budget.map(money),
        "budget_share_percent": percent(budget.and_then(|budget| share_percent(totals.charged(), budget))),
        "month_before": { "requests": before.requests, "charged": money(before.charged) },
        "first_byte_ms": quantiles(&totals.first_byte_latencies),
        "total_ms": quantiles(&totals.total_latencies),
        "mean_queue_ms": totals.mean_queue_ms(),
        "refusals": totals.refusals,
    })));
    value
}

fn tag_sums(totals: &TagTotals) -> Map<String, Value> {
    let mut value = object(json!({
        "requests": totals.requests,
        "failed_requests": totals.failed_requests,
    }));
    value.extend(tokens(&totals.usage));
    value.insert("cost".to_owned(), json!(money(totals.cost)));
    value
}

fn tokens(usage: &TokenUsage) -> Map<String, Value> {
    object(json!(usage))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

/// An amount with every digit that there is.
pub(crate) fn money(amount: Nanos) -> String {
    amount.to_decimal(MONEY_PLACES)
}

/// A percentage with one decimal, as the CSV has it.
fn percent(percent: Option<f64>) -> Option<f64> {
    percent.map(|percent| (percent * 10.0).round() / 10.0)
}

fn quantiles(latencies: &Latencies) -> Value {
    let quantiles = QUANTILES.map(|(name, quantile)| (name.to_owned(), json!(latencies.quantile_ms(quantile))));
    Value::Object(quantiles.into_iter().collect())
}

#[cfg(test)]
mod tests;

//! The ledger's entries as CSV, the oldest first, made row by row as [`crate::usage_csv`] makes reports.
//!
//! Rows are numbered in the first column; the last line says `total` there and how many rows precede it in the second, with
//! the sums of what can be added up, so that a file that was cut off is seen to be.

use chrono::{DateTime, SecondsFormat, Utc};
use domain::ids::TenantId;
use domain::ledger::{Adjustment, Identity, Rejection, Settlement};
use domain::money::{Nanos, decimal};
use domain::periods::Span;
use futures_util::stream::BoxStream;
use serde::Serialize;
use store::StoreError;
use store::entries::Named;
use store::exports::ExportQuery;

use crate::pieces::Pieces;
use crate::usage_csv::{Lines, MONEY_PLACES, pieces, safe_text};
use crate::{Actor, Control, ControlError};

/// One of the three kinds of entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Requests that ran, by the time of admission.
    Settlements,
    /// Requests that were refused, by the time of refusal.
    Rejections,
    /// Signed corrections, by the time at which they count.
    Adjustments,
}

impl Control {
    /// All entries of one kind in a span, of everybody or of one tenant, from one snapshot of the database. For those who
    /// see everything.
    pub async fn ledger_csv(
        &self,
        actor: &Actor,
        kind: EntryKind,
        span: Span,
        tenant: Option<TenantId>,
    ) -> Result<Pieces, ControlError> {
        actor.require_everything()?;
        let currency = self.settings().await?.settings.currency;
        let query = ExportQuery { span, tenant };
        Ok(match kind {
            EntryKind::Settlements => file(&currency, settlements(), self.store.stream_settlements(query).await?),
            EntryKind::Rejections => file(&currency, rejections(), self.store.stream_rejections(query).await?),
            EntryKind::Adjustments => file(&currency, adjustments(), self.store.stream_adjustments(query).await?),
        })
    }
}

fn file<T: Send + 'static>(
    currency: &str,
    columns: Vec<Column<T>>,
    rows: BoxStream<'static, Result<Named<T>, StoreError>>,
) -> Pieces {
    let lines = EntryLines::new(columns);
    pieces(lines.header(currency), rows, lines)
}

/// One column: its name and what stands in it.
struct Column<T> {
    name: &'static str,
    cell: Cell<T>,
}

enum Cell<T> {
    /// A text, or a figure that means nothing when added up.
    Plain(fn(&Named<T>) -> String),
    /// A count.
    Count(fn(&T) -> i128),
    /// Money, with the currency in the column's name.
    Money(fn(&T) -> Nanos),
}

fn plain<T>(name: &'static str, cell: fn(&Named<T>) -> String) -> Column<T> {
    Column {
        name,
        cell: Cell::Plain(cell),
    }
}

fn count<T>(name: &'static str, cell: fn(&T) -> i128) -> Column<T> {
    Column {
        name,
        cell: Cell::Count(cell),
    }
}

fn money<T>(name: &'static str, cell: fn(&T) -> Nanos) -> Column<T> {
    Column {
        name,
        cell: Cell::Money(cell),
    }
}

struct EntryLines<T> {
    columns: Vec<Column<T>>,
    sums: Vec<i128>,
    rows_written: u64,
}

impl<T> EntryLines<T> {
    fn new(columns: Vec<Column<T>>) -> Self {
        Self {
            sums: vec![0; columns.len()],
            columns,
            rows_written: 0,
        }
    }

    fn header(&self, currency: &str) -> Vec<String> {
        let currency = currency.to_lowercase();
        let names = self.columns.iter().map(|column| match column.cell {
            Cell::Plain(_) | Cell::Count(_) => column.name.to_owned(),
            Cell::Money(_) => format!("{}_{currency}", column.name),
        });
        ["row", "rows"].map(str::to_owned).into_iter().chain(names).collect()
    }
}

impl<T: Send + 'static> Lines for EntryLines<T> {
    type Row = Named<T>;

    fn row(&mut self, row: &Named<T>) -> Vec<String> {
        self.rows_written += 1;
        let mut cells = vec![self.rows_written.to_string(), String::new()];
        for (column, sum) in self.columns.iter().zip(&mut self.sums) {
            cells.push(match column.cell {
                Cell::Plain(cell) => cell(row),
                Cell::Count(cell) => {
                    let count = cell(&row.entry);
                    *sum += count;
                    count.to_string()
                }
                Cell::Money(cell) => {
                    let amount = cell(&row.entry);
                    *sum += i128::from(amount.0);
                    amount.to_decimal(MONEY_PLACES)
                }
            });
        }
        cells
    }

    fn end(&mut self) -> Vec<Vec<String>> {
        let mut cells = vec!["total".to_owned(), self.rows_written.to_string()];
        let sums = self.columns.iter().zip(&self.sums);
        cells.extend(sums.map(|(column, sum)| match column.cell {
            Cell::Plain(_) => String::new(),
            Cell::Count(_) => sum.to_string(),
            Cell::Money(_) => decimal(*sum, MONEY_PLACES),
        }));
        vec![cells]
    }
}

/// What settlements and rejections have in common.
trait OfRequest {
    fn identity(&self) -> &Identity;
}

impl OfRequest for Settlement {
    fn identity(&self) -> &Identity {
        &self.identity
    }
}

impl OfRequest for Rejection {
    fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// Whose and for what, for both.
fn identity<T: OfRequest>() -> Vec<Column<T>> {
    vec![
        plain("tenant_id", |row| row.entry.identity().tenant_id.to_string()),
        plain("tenant", |row| text(row.tenant_name.as_deref())),
        plain("user_id", |row| text(row.entry.identity().user_id.as_deref())),
        plain("user", |row| text(row.user_name.as_deref())),
        plain("key_id", |row| row.entry.identity().key_id.to_string()),
        plain("key_public_id", |row| text(row.key_public_id.as_deref())),
        plain("key", |row| text(row.key_name.as_deref())),
        plain("model", |row| text(row.entry.identity().model.as_deref())),
        plain("dialect", |row| row.entry.identity().dialect.to_string()),
        plain("endpoint", |row| text(Some(&row.entry.identity().endpoint))),
        plain("priority", |row| row.entry.identity().priority.to_string()),
        plain("is_streamed", |row| row.entry.identity().is_streamed.to_string()),
        plain("tags", |row| json(&row.entry.identity().tags)),
        plain("job_id", |row| shown(row.entry.identity().job_id)),
        plain("instance", |row| text(Some(&row.entry.identity().instance))),
        plain("user_agent", |row| text(row.entry.identity().user_agent.as_deref())),
    ]
}

fn settlements() -> Vec<Column<Settlement>> {
    let mut columns = vec![
        plain("id", |row: &Named<Settlement>| row.entry.identity.id.to_string()),
        plain("admitted_at", |row| instant(row.entry.admitted_at)),
        plain("settled_at", |row| instant(row.entry.settled_at)),
    ];
    columns.extend(identity());
    columns.extend([
        plain("outcome", |row: &Named<Settlement>| {
            row.entry.outcome.as_str().to_owned()
        }),
        plain("status", |row| shown(row.entry.status)),
        count("attempts", |entry: &Settlement| entry.attempts.len() as i128),
        plain("upstream_id", |row| shown(row.entry.upstream_id)),
        plain("upstream_model", |row| text(row.entry.upstream_model.as_deref())),
        plain("upstream_request_id", |row| {
            text(row.entry.upstream_request_id.as_deref())
        }),
        count("input_fresh_tokens", |entry| entry.usage.input_fresh_tokens.into()),
        count("cache_read_tokens", |entry| entry.usage.cache_read_tokens.into()),
        count("cache_write_5m_tokens", |entry| {
            entry.usage.cache_write_5m_tokens.into()
        }),
        count("cache_write_1h_tokens", |entry| {
            entry.usage.cache_write_1h_tokens.into()
        }),
        count("output_tokens", |entry| entry.usage.output_tokens.into()),
        count("reasoning_tokens", |entry| entry.usage.reasoning_tokens.into()),
        plain("usage_source", |row| row.entry.usage_source.as_str().to_owned()),
        count("expected_input_tokens", |entry| entry.expected_input_tokens.into()),
        count("expected_output_tokens", |entry| entry.expected_output_tokens.into()),
        money("expected_cost", |entry| entry.expected_cost_nanos),
        count("ceiling_input_tokens", |entry| entry.ceiling_input_tokens.into()),
        count("ceiling_output_tokens", |entry| entry.ceiling_output_tokens.into()),
        money("ceiling_cost", |entry| entry.ceiling_cost_nanos),
        money("cost", |entry| entry.cost_nanos),
        money("overrun", |entry| entry.overrun_nanos),
        plain("price_id", |row| shown(row.entry.price_id)),
        plain("is_unpriced", |row| row.entry.is_unpriced.to_string()),
        plain("queue_ms", |row| row.entry.queue_ms.to_string()),
        plain("first_byte_ms", |row| shown(row.entry.first_byte_ms)),
        plain("total_ms", |row| row.entry.total_ms.to_string()),
    ]);
    columns
}

fn rejections() -> Vec<Column<Rejection>> {
    let mut columns = vec![
        plain("id", |row: &Named<Rejection>| row.entry.identity.id.to_string()),
        plain("refused_at", |row| instant(row.entry.refused_at)),
    ];
    columns.extend(identity());
    columns.extend([
        plain("code", |row: &Named<Rejection>| row.entry.code.to_string()),
        plain("status", |row| row.entry.status.to_string()),
        plain("scope", |row| {
            text(row.entry.scope.as_ref().map(ToString::to_string).as_deref())
        }),
        plain("dimension", |row| {
            let dimension = row.entry.dimension.map(|dimension| dimension.as_str());
            dimension.unwrap_or_default().to_owned()
        }),
        plain("limit_id", |row| shown(row.entry.limit_id)),
        plain("limit_key", |row| text(row.entry.limit_key.as_deref())),
        plain("message", |row| text(Some(&row.entry.message))),
        plain("retry_after_seconds", |row| shown(row.entry.retry_after_seconds)),
        plain("caller_retries", |row| shown(row.entry.caller_retries)),
        count("refusal_count", |entry: &Rejection| entry.refusal_count.into()),
        count("early_count", |entry| entry.early_count.into()),
        count("expected_input_tokens", |entry| entry.expected_input_tokens.into()),
        count("expected_output_tokens", |entry| entry.expected_output_tokens.into()),
        money("expected_cost", |entry| entry.expected_cost_nanos),
        plain("queue_ms", |row| row.entry.queue_ms.to_string()),
    ]);
    columns
}

fn adjustments() -> Vec<Column<Adjustment>> {
    vec![
        plain("id", |row: &Named<Adjustment>| row.entry.id.to_string()),
        plain("admitted_at", |row| instant(row.entry.admitted_at)),
        plain("created_at", |row| instant(row.entry.created_at)),
        plain("request_id", |row| shown(row.entry.request_id)),
        plain("tenant_id", |row| row.entry.tenant_id.to_string()),
        plain("tenant", |row| text(row.tenant_name.as_deref())),
        plain("user_id", |row| text(row.entry.user_id.as_deref())),
        plain("user", |row| text(row.user_name.as_deref())),
        plain("key_id", |row| shown(row.entry.key_id)),
        plain("key_public_id", |row| text(row.key_public_id.as_deref())),
        plain("key", |row| text(row.key_name.as_deref())),
        plain("model", |row| text(row.entry.model.as_deref())),
        plain("upstream_id", |row| shown(row.entry.upstream_id)),
        plain("priority", |row| row.entry.priority.to_string()),
        count("input_tokens", |entry: &Adjustment| entry.input_tokens.into()),
        count("output_tokens", |entry| entry.output_tokens.into()),
        money("cost", |entry| entry.cost_nanos),
        plain("reason", |row| text(Some(&row.entry.reason))),
        plain("author", |row| text(Some(&row.entry.author))),
        plain("reference", |row| text(row.entry.reference.as_deref())),
    ]
}

fn text(text: Option<&str>) -> String {
    text.map(safe_text).unwrap_or_default()
}

fn shown<T: ToString>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// An object, which no spreadsheet takes for a formula.
fn json(value: &impl Serialize) -> String {
    // Maps of texts cannot fail to be written.
    serde_json::to_string(value).unwrap_or_default()
}

/// To the microsecond, as Postgres keeps it.
fn instant(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, true)
}

#[cfg(test)]
mod tests;

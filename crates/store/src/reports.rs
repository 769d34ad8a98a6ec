//! Reports: sums over the roll-ups, divided and filtered, each report from one snapshot of the database.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Duration, NaiveDate, Utc};
use chrono_tz::Tz;
use domain::ids::{KeyId, PersonId, TenantId};
use domain::money::Nanos;
use domain::periods::{Period, Span};
use domain::priority::Priority;
use domain::reports::{Completeness, DayTotals, Grouping, LATENCY_BUCKETS, Latencies, Totals};
use domain::usage::TokenUsage;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use sqlx::PgConnection;
use sqlx::types::Json;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::calendar::whole_month;
use crate::policy::{count, parse};
use crate::{Store, StoreError, Transaction, in_time};

/// Rows of a report that is read whole; the stream has no such bound.
pub const REPORT_ROWS_MAX: u32 = 1_000;
/// What Postgres may use for each step of a report before it goes to disk.
const REPORT_MEMORY: &str = "32MB";
/// Days of a chart at most.
pub const DAYS_MAX: usize = 400;
/// Rows of an overview's lists of the largest.
pub const TOP_ROWS: u32 = 10;
/// How long a streamed report may take, the reader's own time included, in milliseconds.
const STREAM_TIMEOUT_MS: u32 = 15 * 60 * 1_000;
/// Reports that are streamed at once; beyond it they wait as for a connection.
pub(crate) const STREAMS_MAX: usize = 4;
/// How long a streamed report waits for its place, in milliseconds.
const STREAM_PLACE_WAIT_MS: u64 = 3_000;
/// A reader who takes nothing for so long has left, in milliseconds.
const STREAM_STALL_MS: u64 = 60_000;
/// How late an entry may reach the journal after the instant it counts at, in seconds: equal refusals are folded for a
/// minute before they are written.
const ENTRY_DELAY_SECONDS_MAX: i64 = 120;
/// Rows that wait between database and reader.
const STREAM_ROWS_WAITING_MAX: usize = 256;

/// What a report counts. Absent parts let everything through; present ones must all match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportFilter {
    /// Of this tenant.
    pub tenant: Option<TenantId>,
    /// Of this person: under their name or with one of their keys.
    pub owner: Option<PersonId>,
    /// For this user: a person's id or an end user's name.
    pub user: Option<String>,
    /// With this key.
    pub key: Option<KeyId>,
    /// For this model.
    pub model: Option<String>,
    /// At this priority.
    pub priority: Option<Priority>,
}

/// One report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportQuery {
    /// By `admitted_at` and `refused_at`; on 15-minute boundaries, as every zone's days and months are.
    pub span: Span,
    /// What it counts.
    pub filter: ReportFilter,
    /// By what it is divided.
    pub grouping: Grouping,
    /// The span that it is compared with, if any.
    pub before: Option<Span>,
}

impl ReportQuery {
    /// A report that is compared with nothing.
    pub fn new(span: Span, filter: ReportFilter, grouping: Grouping) -> Self {
        Self {
            span,
            filter,
            grouping,
            before: None,
        }
    }

    /// Which of a month's sums it needs: the fewest that can still be divided and filtered as it asks.
    fn grain(&self) -> &'static str {
        let (filter, grouping) = (&self.filter, self.grouping);
        let has_users = grouping.user || filter.owner.is_some() || filter.user.is_some();
        let has_keys = grouping.key || filter.key.is_some();
        match (has_users, has_keys) {
            (true, _) => "key",
            (false, true) => "key_only",
            (false, false) => "tenant",
        }
    }

    /// Whose monthly budgets its rows can be measured against: a row must hold everything that counts in its node's budget.
    fn budgeted(&self) -> Option<&'static str> {
        let (filter, grouping) = (&self.filter, self.grouping);
        let is_divided_by =
            |divisions: [bool; 4]| divisions == [grouping.user, grouping.key, grouping.model, grouping.priority];
        let cuts = [
            filter.owner.is_some(),
            filter.user.is_some(),
            filter.key.is_some(),
            filter.model.is_some() || filter.priority.is_some(),
        ];
        let (user, key, model) = (
            is_divided_by([true, false, false, false]),
            is_divided_by([false, true, false, false]),
            is_divided_by([false, false, true, false]) && !grouping.tenant,
        );
        let tenant = is_divided_by([false; 4]) && grouping.tenant;
        match cuts {
            [_, false, _, false] if key => Some("key"),
            [false, _, false, false] if user => Some("user"),
            [false, false, false, false] if tenant => Some("tenant"),
            [false, false, false, false] if model && filter.tenant.is_none() => Some("model"),
            _ => None,
        }
    }
}

/// What was charged in the span before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// Requests that ran.
    pub requests: u64,
    /// Cost and adjustments.
    pub charged: Nanos,
}

/// One row of a report. What the report is not divided by is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportRow {
    /// Whose.
    pub tenant_id: Option<TenantId>,
    /// The tenant's name.
    pub tenant_name: Option<String>,
    /// For whom: a person's id or an end user's name; also `None` for requests without a user.
    pub user_id: Option<String>,
    /// The person's name, where the user is one.
    pub user_name: Option<String>,
    /// With which key; also `None` for adjustments that name none.
    pub key_id: Option<KeyId>,
    /// The key's name.
    pub key_name: Option<String>,
    /// The part of the key's text that may be shown.
    pub key_public_id: Option<String>,
    /// The model; also `None` for requests and adjustments without one.
    pub model: Option<String>,
    /// The priority.
    pub priority: Option<Priority>,
    /// The sums.
    pub totals: Totals,
    /// The same row's of the span before; zero where there is none to compare with.
    pub before: Before,
    /// The monthly cost budget, as it is now, of the tenant, user, key or model that the row is about; `None` without one, and
    /// where the report is divided by more or leaves something out.
    pub budget: Option<Nanos>,
}

/// A report read whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The largest first; at most [`REPORT_ROWS_MAX`].
    pub rows: Vec<ReportRow>,
    /// Whether there are more rows.
    pub is_cut: bool,
    /// Over everything, rows beyond the bound included.
    pub totals: Totals,
    /// Over everything of the span before.
    pub before: Before,
    /// How complete it is.
    pub completeness: Completeness,
}

/// A report read row by row.
pub struct ReportStream {
    /// Over all the rows that follow.
    pub totals: Totals,
    /// Over everything of the span before, what has no row in this one included.
    pub before: Before,
    /// How complete it is.
    pub completeness: Completeness,
    /// The largest first. Holds a connection until it ends or is dropped.
    pub rows: BoxStream<'static, Result<ReportRow, StoreError>>,
}

/// What the first page shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overview {
    /// Over everything.
    pub totals: Totals,
    /// Every day of the span, in order; at most [`DAYS_MAX`].
    pub days: Vec<DayTotals>,
    /// The tenants that cost most; at most [`TOP_ROWS`], as are the others.
    pub top_tenants: Vec<ReportRow>,
    /// The keys that cost most.
    pub top_keys: Vec<ReportRow>,
    /// The models that cost most.
    pub top_models: Vec<ReportRow>,
    /// How complete it is.
    pub completeness: Completeness,
}

impl Store {
    /// A report, whole.
    pub async fn report(&self, query: &ReportQuery, now: DateTime<Utc>) -> Result<Report, StoreError> {
        let mut snapshot = self.begin_report().await?;
        let source = Sources::of(&mut snapshot, query, now).await?;
        let mut rows = read_rows(&mut snapshot, source, query, REPORT_ROWS_MAX + 1).await?;
        let is_cut = rows.len() > REPORT_ROWS_MAX as usize;
        rows.truncate(REPORT_ROWS_MAX as usize);
        let (totals, before) = match is_cut {
            true => read_totals(&mut snapshot, source, query).await?,
            false => add_up(&rows),
        };
        let completeness = read_completeness(&mut snapshot, query.span, now).await?;
        snapshot.commit().await?;
        Ok(Report {
            rows,
            is_cut,
            totals,
            before,
            completeness,
        })
    }

    /// A report as a stream in constant memory, rows and totals from one snapshot.
    pub async fn stream_report(&self, query: ReportQuery, now: DateTime<Utc>) -> Result<ReportStream, StoreError> {
        let (mut snapshot, place) = self.begin_stream().await?;
        let source = Sources::of(&mut snapshot, &query, now).await?;
        let (totals, before) = read_totals(&mut snapshot, source, &query).await?;
        let completeness = read_completeness(&mut snapshot, query.span, now).await?;
        Ok(ReportStream {
            totals,
            before,
            completeness,
            rows: stream_rows(snapshot, PlacedQuery { query, source }, place),
        })
    }

    /// A snapshot in which roll-ups are added up. Postgres cannot know how many rows a report will have; taking them for few, it
    /// would go through a month's sums once for each.
    pub(crate) async fn begin_report(&self) -> Result<Transaction, StoreError> {
        let mut snapshot = self.begin_snapshot().await?;
        sqlx::query!(
            r#"select set_config('enable_nestloop', 'off', true) as "nestloop!", set_config('work_mem', $1, true) as "memory!""#,
            REPORT_MEMORY,
        )
        .fetch_one(&mut *snapshot)
        .await?;
        Ok(snapshot)
    }

    /// A snapshot for a report that is read row by row, and its place among them.
    pub(crate) async fn begin_stream(&self) -> Result<(Transaction, OwnedSemaphorePermit), StoreError> {
        let place = in_time(STREAM_PLACE_WAIT_MS, async {
            let place = Arc::clone(&self.report_streams).acquire_owned().await;
            place.map_err(|_| StoreError::from(sqlx::Error::PoolClosed))
        })
        .await?;
        let mut snapshot = self.begin_report().await?;
        sqlx::query!(
            r#"select set_config('statement_timeout', $1, true) as "set!""#,
            STREAM_TIMEOUT_MS.to_string(),
        )
        .fetch_one(&mut *snapshot)
        .await?;
        Ok((snapshot, place))
    }

    /// What happened in `span`, which is cut into days of `zone`.
    pub async fn overview(
        &self,
        span: Span,
        filter: &ReportFilter,
        zone: Tz,
        now: DateTime<Utc>,
    ) -> Result<Overview, StoreError> {
        let query = |grouping| ReportQuery {
            span,
            filter: filter.clone(),
            grouping,
            before: None,
        };
        let none = Grouping::NONE;
        let mut snapshot = self.begin_report().await?;
        let source = Sources::of(&mut snapshot, &query(none), now).await?;
        let overview = Overview {
            totals: read_totals(&mut snapshot, source, &query(none)).await?.0,
            days: read_days(&mut snapshot, source.span, span, filter, zone).await?,
            top_tenants: read_rows(
                &mut snapshot,
                source,
                &query(Grouping { tenant: true, ..none }),
                TOP_ROWS,
            )
            .await?,
            top_keys: read_rows(&mut snapshot, source, &query(Grouping { key: true, ..none }), TOP_ROWS).await?,
            top_models: read_rows(
                &mut snapshot,
                source,
                &query(Grouping { model: true, ..none }),
                TOP_ROWS,
            )
            .await?,
            completeness: read_completeness(&mut snapshot, span, now).await?,
        };
        snapshot.commit().await?;
        Ok(overview)
    }

    /// The days of `span` in `zone`, in order; at most [`DAYS_MAX`].
    pub async fn report_days(&self, span: Span, filter: &ReportFilter, zone: Tz) -> Result<Vec<DayTotals>, StoreError> {
        let mut connection = self.pool().acquire().await?;
        let source = Source::of(&mut connection, span).await?;
        read_days(&mut connection, source, span, filter, zone).await
    }

    /// How complete sums over `span` are.
    pub async fn completeness(&self, span: Span, now: DateTime<Utc>) -> Result<Completeness, StoreError> {
        let mut connection = self.pool().acquire().await?;
        read_completeness(&mut connection, span, now).await
    }
}

/// The rows, read inside the snapshot that moves into the stream. The reader's pace is the database's: only a few rows wait
/// between them.
///
/// They are read on a task, which the stream owns and ends: a reader who stops asking must not keep a connection and a
/// snapshot for as long as it likes.
pub(crate) fn stream_rows<Q: RowsQuery>(
    mut snapshot: Transaction,
    query: Q,
    place: OwnedSemaphorePermit,
) -> BoxStream<'static, Result<Q::Row, StoreError>> {
    let (sender, receiver) = mpsc::channel(STREAM_ROWS_WAITING_MAX);
    let read = in_time(u64::from(STREAM_TIMEOUT_MS), async move {
        let _place = place;
        let mut rows = query.rows(&mut snapshot, i64::MAX);
        while let Some(row) = rows.next().await {
            in_time(STREAM_STALL_MS, async { Ok(sender.send(row).await) })
                .await?
                .map_err(|_| StoreError::from(sqlx::Error::WorkerCrashed))?;
        }
        Ok(())
    });
    let reading = Reading {
        rows: receiver,
        task: tokio::spawn(read),
    };
    stream::unfold(Some(reading), |reading| async move {
        let mut reading = reading?;
        if let Some(row) = reading.rows.recv().await {
            return Some((row, Some(reading)));
        }
        // Broken off must not look like the end.
        let ended = (&mut reading.task).await;
        let ended = ended.unwrap_or_else(|_| Err(sqlx::Error::WorkerCrashed.into()));
        ended.err().map(|error| (Err(error), None))
    })
    .boxed()
}

/// A report whose rows can be read one by one, the largest first.
pub(crate) trait RowsQuery: Send + Sync + 'static {
    /// What it gives.
    type Row: Send + 'static;

    /// At most `rows_max` of its rows.
    fn rows<'c>(
        &'c self,
        connection: &'c mut PgConnection,
        rows_max: i64,
    ) -> BoxStream<'c, Result<Self::Row, StoreError>>;
}

/// A report and from where it is read.
struct PlacedQuery {
    query: ReportQuery,
    source: Sources,
}

impl RowsQuery for PlacedQuery {
    type Row = ReportRow;

    fn rows<'c>(
        &'c self,
        connection: &'c mut PgConnection,
        rows_max: i64,
    ) -> BoxStream<'c, Result<ReportRow, StoreError>> {
        rows(connection, self.source, &self.query, rows_max)
    }
}

/// A report on its way to its reader; whoever drops it ends the reading.
struct Reading<R> {
    rows: mpsc::Receiver<Result<R, StoreError>>,
    task: JoinHandle<Result<(), StoreError>>,
}

impl<R> Drop for Reading<R> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Which roll-ups a report adds up. Both say the same of a month; by the month there are some hundred times fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Those of the month that begins with this day.
    Month(NaiveDate),
    /// Those of 15 minutes.
    Buckets,
}

impl Source {
    /// The fewest that cover `span`.
    pub(crate) async fn of(connection: &mut PgConnection, span: Span) -> Result<Self, StoreError> {
        let month = whole_month(connection, span).await?;
        Ok(month.map_or(Self::Buckets, Self::Month))
    }

    /// The month, for queries that leave the other roll-ups out if there is one.
    pub(crate) fn month(self) -> Option<NaiveDate> {
        match self {
            Self::Month(first_day) => Some(first_day),
            Self::Buckets => None,
        }
    }
}

/// From where a report is read, and what it is compared with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sources {
    span: Source,
    before: Source,
    /// When the budgets are read: an increase may be over.
    now: DateTime<Utc>,
}

impl Sources {
    pub(crate) async fn of(
        connection: &mut PgConnection,
        query: &ReportQuery,
        now: DateTime<Utc>,
    ) -> Result<Self, StoreError> {
        let span = Source::of(connection, query.span).await?;
        let before = match query.before {
            Some(before) => Source::of(connection, before).await?,
            None => Source::Buckets,
        };
        Ok(Self { span, before, now })
    }
}

async fn read_rows(
    connection: &mut PgConnection,
    source: Sources,
    query: &ReportQuery,
    rows_max: u32,
) -> Result<Vec<ReportRow>, StoreError> {
    rows(connection, source, query, i64::from(rows_max)).try_collect().await
}

pub(crate) async fn read_totals(
    connection: &mut PgConnection,
    source: Sources,
    query: &ReportQuery,
) -> Result<(Totals, Before), StoreError> {
    let whole = ReportQuery {
        grouping: Grouping::NONE,
        ..query.clone()
    };
    let row = read_rows(connection, source, &whole, 1).await?.into_iter().next();
    Ok(row.map(|row| (row.totals, row.before)).unwrap_or_default())
}

/// The totals of rows that are all there are.
fn add_up(rows: &[ReportRow]) -> (Totals, Before) {
    let (mut totals, mut before) = (Totals::default(), Before::default());
    for row in rows {
        totals += &row.totals;
        before.requests = before.requests.saturating_add(row.before.requests);
        before.charged += row.before.charged;
    }
    (totals, before)
}

fn rows<'c>(
    connection: &'c mut PgConnection,
    source: Sources,
    query: &'c ReportQuery,
    rows_max: i64,
) -> BoxStream<'c, Result<ReportRow, StoreError>> {
    let ReportQuery {
        span,
        filter,
        grouping,
        before,
    } = query;
    let (budgeted, budget_class) = match query.budgeted() {
        Some(kind) => (Some(kind), (kind != "model").then_some(kind)),
        None => (None, None),
    };
    sqlx::query_as!(
        ReportColumns,
        r#"
        with kept as not materialized (
            select
                case when $1 then tenant_id else '00000000-0000-0000-0000-000000000000' end as tenant_id,
                case when $2 then user_id else '' end as user_id,
                case when $3 then key_id else '00000000-0000-0000-0000-000000000000' end as key_id,
                case when $4 then model else '' end as model,
                case when $5 then priority else '' end as priority,
                requests, failed_requests, unpriced_requests, estimated_requests, input_fresh_tokens, cache_read_tokens,
                cache_write_5m_tokens, cache_write_1h_tokens, output_tokens, reasoning_tokens, expected_input_tokens,
                expected_output_tokens, expected_cost_nanos, cost_nanos, overrun_nanos, adjustments,
                adjusted_input_tokens, adjusted_output_tokens, adjusted_cost_nanos, queue_ms, total_ms_histogram,
                first_byte_ms_histogram
            from (
                -- A whole month has sums of its own.
                select
                    tenant_id, user_id, key_id, model, priority, requests, failed_requests, unpriced_requests,
                    estimated_requests, input_fresh_tokens, cache_read_tokens, cache_write_5m_tokens,
                    cache_write_1h_tokens, output_tokens, reasoning_tokens, expected_input_tokens,
                    expected_output_tokens, expected_cost_nanos, cost_nanos, overrun_nanos, adjustments,
                    adjusted_input_tokens, adjusted_output_tokens, adjusted_cost_nanos, queue_ms, total_ms_histogram,
                    first_byte_ms_histogram
                from settlement_month_rollups
                where month = $15
                    and grain = $21
                union all
                select
                    tenant_id, user_id, key_id, model, priority, requests, failed_requests, unpriced_requests,
                    estimated_requests, input_fresh_tokens, cache_read_tokens, cache_write_5m_tokens,
                    cache_write_1h_tokens, output_tokens, reasoning_tokens, expected_input_tokens,
                    expected_output_tokens, expected_cost_nanos, cost_nanos, overrun_nanos, adjustments,
                    adjusted_input_tokens, adjusted_output_tokens, adjusted_cost_nanos, queue_ms, total_ms_histogram,
                    first_byte_ms_histogram
                from settlement_rollups
                where $15::date is null
                    and bucket_start >= $6
                    and bucket_start < $7
            ) as sources
            where ($8::uuid is null or tenant_id = $8)
                and ($9::uuid is null or user_id = $9::text
                    or key_id in (select keys.id from keys where owner_id = $9))
                and ($10::text is null or user_id = $10)
                and ($11::uuid is null or key_id = $11)
                and ($12::text is null or model = $12)
                and ($13::text is null or priority = $13)
        ),
        kept_refusals as not materialized (
            select
                case when $1 then tenant_id else '00000000-0000-0000-0000-000000000000' end as tenant_id,
                case when $2 then user_id else '' end as user_id,
                case when $3 then key_id else '00000000-0000-0000-0000-000000000000' end as key_id,
                case when $4 then model else '' end as model,
                case when $5 then priority else '' end as priority,
                code, refusals
            from (
                select tenant_id, user_id, key_id, model, priority, code, refusals
                from rejection_month_rollups
                where month = $15
                    and grain = $21
                union all
                select tenant_id, user_id, key_id, model, priority, code, refusals
                from rejection_rollups
                where $15::date is null
                    and bucket_start >= $6
                    and bucket_start < $7
            ) as sources
            where ($8::uuid is null or tenant_id = $8)
                and ($9::uuid is null or user_id = $9::text
                    or key_id in (select keys.id from keys where owner_id = $9))
                and ($10::text is null or user_id = $10)
                and ($11::uuid is null or key_id = $11)
                and ($12::text is null or model = $12)
                and ($13::text is null or priority = $13)
                -- What was answered from the record was not refused.
                and code <> 'replayed'
        ),
        kept_before as not materialized (
            select
                case when $1 then tenant_id else '00000000-0000-0000-0000-000000000000' end as tenant_id,
                case when $2 then user_id else '' end as user_id,
                case when $3 then key_id else '00000000-0000-0000-0000-000000000000' end as key_id,
                case when $4 then model else '' end as model,
                case when $5 then priority else '' end as priority,
                requests, cost_nanos + adjusted_cost_nanos as charged_nanos
            from (
                select tenant_id, user_id, key_id, model, priority, requests, cost_nanos, adjusted_cost_nanos
                from settlement_month_rollups
                where month = $16
                    and grain = $21
                union all
                select tenant_id, user_id, key_id, model, priority, requests, cost_nanos, adjusted_cost_nanos
                from settlement_rollups
                where $16::date is null
                    and bucket_start >= $17::timestamptz
                    and bucket_start < $18::timestamptz
            ) as sources
            where ($8::uuid is null or tenant_id = $8)
                and ($9::uuid is null or user_id = $9::text
                or key_id in (select keys.id from keys where owner_id = $9))
                and ($10::text is null or user_id = $10)
                and ($11::uuid is null or key_id = $11)
                and ($12::text is null or model = $12)
                and ($13::text is null or priority = $13)
        ),
        -- Which rows there will be, by little, so that all figures are made for those alone.
        grouped as (
            select tenant_id, user_id, key_id, model, priority, charged_nanos, ran
            from (
                select tenant_id, user_id, key_id, model, priority, sum(cost_nanos + adjusted_cost_nanos) as charged_nanos, sum(requests) as ran
                from kept
                group by tenant_id, user_id, key_id, model, priority
            ) as charged
            full join (
                select distinct tenant_id, user_id, key_id, model, priority from kept_refusals
            ) as refusing using (tenant_id, user_id, key_id, model, priority)
            -- Whoever has gone stands beside what there was of them.
            full join (
                select distinct tenant_id, user_id, key_id, model, priority from kept_before
            ) as gone using (tenant_id, user_id, key_id, model, priority)
            order by coalesce(charged_nanos, 0) desc, coalesce(ran, 0) desc, tenant_id, user_id, key_id, model, priority
            limit $14
        ),
        used as (
            select
                tenant_id, user_id, key_id, model, priority,
                sum(requests) as requests,
                sum(failed_requests) as failed_requests,
                sum(unpriced_requests) as unpriced_requests,
                sum(estimated_requests) as estimated_requests,
                sum(input_fresh_tokens) as input_fresh_tokens,
                sum(cache_read_tokens) as cache_read_tokens,
                sum(cache_write_5m_tokens) as cache_write_5m_tokens,
                sum(cache_write_1h_tokens) as cache_write_1h_tokens,
                sum(output_tokens) as output_tokens,
                sum(reasoning_tokens) as reasoning_tokens,
                sum(expected_input_tokens) as expected_input_tokens,
                sum(expected_output_tokens) as expected_output_tokens,
                sum(expected_cost_nanos) as expected_cost_nanos,
                sum(cost_nanos) as cost_nanos,
                sum(overrun_nanos) as overrun_nanos,
                sum(adjustments) as adjustments,
                sum(adjusted_input_tokens) as adjusted_input_tokens,
                sum(adjusted_output_tokens) as adjusted_output_tokens,
                sum(adjusted_cost_nanos) as adjusted_cost_nanos,
                sum(queue_ms) as queue_ms,
                array[
                    sum(total_ms_histogram[1]), sum(total_ms_histogram[2]), sum(total_ms_histogram[3]),
                    sum(total_ms_histogram[4]), sum(total_ms_histogram[5]), sum(total_ms_histogram[6]),
                    sum(total_ms_histogram[7]), sum(total_ms_histogram[8]), sum(total_ms_histogram[9]),
                    sum(total_ms_histogram[10]), sum(total_ms_histogram[11]), sum(total_ms_histogram[12]),
                    sum(total_ms_histogram[13]), sum(total_ms_histogram[14]), sum(total_ms_histogram[15]),
                    sum(total_ms_histogram[16])] as total_ms_histogram,
                array[
                    sum(first_byte_ms_histogram[1]), sum(first_byte_ms_histogram[2]), sum(first_byte_ms_histogram[3]),
                    sum(first_byte_ms_histogram[4]), sum(first_byte_ms_histogram[5]), sum(first_byte_ms_histogram[6]),
                    sum(first_byte_ms_histogram[7]), sum(first_byte_ms_histogram[8]), sum(first_byte_ms_histogram[9]),
                    sum(first_byte_ms_histogram[10]), sum(first_byte_ms_histogram[11]), sum(first_byte_ms_histogram[12]),
                    sum(first_byte_ms_histogram[13]), sum(first_byte_ms_histogram[14]), sum(first_byte_ms_histogram[15]),
                    sum(first_byte_ms_histogram[16])] as first_byte_ms_histogram
            from kept
            join grouped using (tenant_id, user_id, key_id, model, priority)
            group by tenant_id, user_id, key_id, model, priority
        ),
        refused as (
            select tenant_id, user_id, key_id, model, priority, jsonb_object_agg(code, refusals) as refusals
            from (
                select tenant_id, user_id, key_id, model, priority, code, sum(refusals) as refusals
                from kept_refusals
                join grouped using (tenant_id, user_id, key_id, model, priority)
                group by tenant_id, user_id, key_id, model, priority, code
            ) as by_code
            group by tenant_id, user_id, key_id, model, priority
        ),
        used_before as (
            select
                tenant_id, user_id, key_id, model, priority, sum(kept_before.requests) as before_requests,
                sum(kept_before.charged_nanos) as before_charged_nanos
            from kept_before
            join grouped using (tenant_id, user_id, key_id, model, priority)
            group by tenant_id, user_id, key_id, model, priority
        )
        select
            grouped.tenant_id as "tenant_id!",
            tenants.name as "tenant_name?",
            grouped.user_id as "user_id!",
            people.name as "user_name?",
            grouped.key_id as "key_id!",
            keys.name as "key_name?",
            keys.public_id as "key_public_id?",
            grouped.model as "model!",
            grouped.priority as "priority!",
            coalesce(requests, 0)::bigint as "requests!",
            coalesce(failed_requests, 0)::bigint as "failed_requests!",
            coalesce(unpriced_requests, 0)::bigint as "unpriced_requests!",
            coalesce(estimated_requests, 0)::bigint as "estimated_requests!",
            coalesce(input_fresh_tokens, 0)::bigint as "input_fresh_tokens!",
            coalesce(cache_read_tokens, 0)::bigint as "cache_read_tokens!",
            coalesce(cache_write_5m_tokens, 0)::bigint as "cache_write_5m_tokens!",
            coalesce(cache_write_1h_tokens, 0)::bigint as "cache_write_1h_tokens!",
            coalesce(output_tokens, 0)::bigint as "output_tokens!",
            coalesce(reasoning_tokens, 0)::bigint as "reasoning_tokens!",
            coalesce(expected_input_tokens, 0)::bigint as "expected_input_tokens!",
            coalesce(expected_output_tokens, 0)::bigint as "expected_output_tokens!",
            coalesce(expected_cost_nanos, 0)::bigint as "expected_cost_nanos!",
            coalesce(cost_nanos, 0)::bigint as "cost_nanos!",
            coalesce(overrun_nanos, 0)::bigint as "overrun_nanos!",
            coalesce(adjustments, 0)::bigint as "adjustments!",
            coalesce(adjusted_input_tokens, 0)::bigint as "adjusted_input_tokens!",
            coalesce(adjusted_output_tokens, 0)::bigint as "adjusted_output_tokens!",
            coalesce(adjusted_cost_nanos, 0)::bigint as "adjusted_cost_nanos!",
            coalesce(queue_ms, 0)::bigint as "queue_ms!",
            coalesce(total_ms_histogram, '{}')::bigint[] as "total_ms_histogram!",
            coalesce(first_byte_ms_histogram, '{}')::bigint[] as "first_byte_ms_histogram!",
            coalesce(refusals, '{}') as "refusals!: Json<BTreeMap<String, u64>>",
            coalesce(before_requests, 0)::bigint as "before_requests!",
            coalesce(before_charged_nanos, 0)::bigint as "before_charged_nanos!",
            budget.value as "budget?"
        from grouped
        left join used using (tenant_id, user_id, key_id, model, priority)
        left join refused using (tenant_id, user_id, key_id, model, priority)
        left join used_before using (tenant_id, user_id, key_id, model, priority)
        left join tenants on tenants.id = grouped.tenant_id
        left join keys on keys.id = grouped.key_id
        left join people on people.id::text = grouped.user_id
        left join lateral (
            -- The narrowest: the node's own, its tenant's for each of its kind, its plan's.
            select case when increase_until > $22 then greatest(value, increase_value) else value end as value
            from limits
            where $19::text is not null
                and limits.removed_at is null
                and dimension = 'budget_cost'
                and period = 'month'
                and mode = 'enforce'
                and limits.model is null
                and limits.priority is null
                -- Only whole budgets: others' part of a key's use is not in its owner's report.
                and ($9::uuid is null or keys.owner_id = $9)
                and (
                    class is null and scope_kind = $19 and scope_id = case $19
                        when 'tenant' then grouped.tenant_id::text
                        when 'user' then grouped.tenant_id || '/' || nullif(grouped.user_id, '')
                        when 'key' then grouped.key_id::text
                        else grouped.model
                    end
                    or (class = $20 or class = 'end_user' and $20 = 'user' and people.id is null)
                        and (scope_kind = 'tenant' and scope_id = grouped.tenant_id::text
                            or scope_kind = 'plan' and scope_id = tenants.plan_id::text)
                        and (class <> 'user' or grouped.user_id <> '')
                )
            order by class is not null, scope_kind = 'plan', class = 'user'
            limit 1
        ) as budget on true
        order by
            coalesce(charged_nanos, 0) desc, coalesce(ran, 0) desc,
            grouped.tenant_id, grouped.user_id, grouped.key_id, grouped.model, grouped.priority
        "#,
        grouping.has_tenant(),
        grouping.user,
        grouping.key,
        grouping.model,
        grouping.priority,
        span.start,
        span.end,
        filter.tenant.map(Uuid::from),
        filter.owner.map(Uuid::from),
        filter.user,
        filter.key.map(Uuid::from),
        filter.model,
        filter.priority.map(Priority::as_str),
        rows_max,
        source.span.month(),
        source.before.month(),
        before.map(|before| before.start),
        before.map(|before| before.end),
        budgeted,
        budget_class,
        query.grain(),
        source.now,
    )
    .fetch(connection)
    .map(|row| row?.into_row())
    .boxed()
}

struct ReportColumns {
    tenant_id: Uuid,
    tenant_name: Option<String>,
    user_id: String,
    user_name: Option<String>,
    key_id: Uuid,
    key_name: Option<String>,
    key_public_id: Option<String>,
    model: String,
    priority: String,
    requests: i64,
    failed_requests: i64,
    unpriced_requests: i64,
    estimated_requests: i64,
    input_fresh_tokens: i64,
    cache_read_tokens: i64,
    cache_write_5m_tokens: i64,
    cache_write_1h_tokens: i64,
    output_tokens: i64,
    reasoning_tokens: i64,
    expected_input_tokens: i64,
    expected_output_tokens: i64,
    expected_cost_nanos: i64,
    cost_nanos: i64,
    overrun_nanos: i64,
    adjustments: i64,
    adjusted_input_tokens: i64,
    adjusted_output_tokens: i64,
    adjusted_cost_nanos: i64,
    queue_ms: i64,
    total_ms_histogram: Vec<i64>,
    first_byte_ms_histogram: Vec<i64>,
    refusals: Json<BTreeMap<String, u64>>,
    before_requests: i64,
    before_charged_nanos: i64,
    budget: Option<i64>,
}

impl ReportColumns {
    fn into_row(self) -> Result<ReportRow, StoreError> {
        let some_id = |id: Uuid| (!id.is_nil()).then_some(id);
        let some_text = |text: String| (!text.is_empty()).then_some(text);
        Ok(ReportRow {
            tenant_id: some_id(self.tenant_id).map(TenantId),
            tenant_name: self.tenant_name,
            user_id: some_text(self.user_id),
            user_name: self.user_name,
            key_id: some_id(self.key_id).map(KeyId),
            key_name: self.key_name,
            key_public_id: self.key_public_id,
            model: some_text(self.model),
            priority: some_text(self.priority)
                .map(|text| parse(&text, "settlement_rollups.priority"))
                .transpose()?,
            totals: Totals {
                requests: count(self.requests),
                failed_requests: count(self.failed_requests),
                unpriced_requests: count(self.unpriced_requests),
                estimated_requests: count(self.estimated_requests),
                usage: TokenUsage {
                    input_fresh_tokens: count(self.input_fresh_tokens),
                    cache_read_tokens: count(self.cache_read_tokens),
                    cache_write_5m_tokens: count(self.cache_write_5m_tokens),
                    cache_write_1h_tokens: count(self.cache_write_1h_tokens),
                    output_tokens: count(self.output_tokens),
                    reasoning_tokens: count(self.reasoning_tokens),
                },
                expected_input_tokens: count(self.expected_input_tokens),
                expected_output_tokens: count(self.expected_output_tokens),
                expected_cost: Nanos(self.expected_cost_nanos),
                cost: Nanos(self.cost_nanos),
                overrun: Nanos(self.overrun_nanos),
                adjustments: count(self.adjustments),
                adjusted_input_tokens: self.adjusted_input_tokens,
                adjusted_output_tokens: self.adjusted_output_tokens,
                adjusted_cost: Nanos(self.adjusted_cost_nanos),
                queue_ms: count(self.queue_ms),
                total_latencies: latencies(&self.total_ms_histogram),
                first_byte_latencies: latencies(&self.first_byte_ms_histogram),
                refusals: self.refusals.0,
            },
            before: Before {
                requests: count(self.before_requests),
                charged: Nanos(self.before_charged_nanos),
            },
            budget: self.budget.map(Nanos),
        })
    }
}

fn latencies(histogram: &[i64]) -> Latencies {
    let mut buckets = [0; LATENCY_BUCKETS];
    for (bucket, &requests) in buckets.iter_mut().zip(histogram) {
        *bucket = count(requests);
    }
    Latencies(buckets)
}

async fn read_days(
    connection: &mut PgConnection,
    source: Source,
    span: Span,
    filter: &ReportFilter,
    zone: Tz,
) -> Result<Vec<DayTotals>, StoreError> {
    let mut days = days(span, zone);
    let starts: Vec<DateTime<Utc>> = days.iter().map(|(start, _)| *start).collect();
    // What is a tenant's, a model's and a priority's has sums by day.
    let is_by_day = filter.owner.is_none() && filter.user.is_none() && filter.key.is_none();
    let first_day = days.first().map(|(_, day)| day.day).filter(|_| is_by_day);
    let first_day = match source {
        Source::Month(_) => first_day,
        Source::Buckets => None,
    };
    let rows = sqlx::query!(
        r#"
        with used as (
            select
                width_bucket(bucket_start, $1::timestamptz[]) as day,
                sum(requests) as requests,
                sum(input_fresh_tokens + cache_read_tokens + cache_write_5m_tokens + cache_write_1h_tokens
                    + output_tokens + adjusted_input_tokens + adjusted_output_tokens) as tokens,
                sum(cost_nanos + adjusted_cost_nanos) as charged_nanos
            from settlement_rollups
            where $10::date is null
                and bucket_start >= $2
                and bucket_start < $3
                and ($4::uuid is null or tenant_id = $4)
                and ($5::uuid is null or user_id = $5::text
                    or key_id in (select keys.id from keys where owner_id = $5))
                and ($6::text is null or user_id = $6)
                and ($7::uuid is null or key_id = $7)
                and ($8::text is null or model = $8)
                and ($9::text is null or priority = $9)
            group by 1
            union all
            select day - $10 + 1, sum(requests), sum(tokens), sum(charged_nanos)
            from settlement_day_rollups
            where day >= $10
                and day < $10 + $11::integer
                and ($4::uuid is null or tenant_id = $4)
                and ($8::text is null or model = $8)
                and ($9::text is null or priority = $9)
            group by 1
        ),
        refused as (
            select width_bucket(bucket_start, $1::timestamptz[]) as day, sum(refusals) as refusals
            from rejection_rollups
            where $10::date is null
                and bucket_start >= $2
                and bucket_start < $3
                and ($4::uuid is null or tenant_id = $4)
                and ($5::uuid is null or user_id = $5::text
                    or key_id in (select keys.id from keys where owner_id = $5))
                and ($6::text is null or user_id = $6)
                and ($7::uuid is null or key_id = $7)
                and ($8::text is null or model = $8)
                and ($9::text is null or priority = $9)
                and code <> 'replayed'
            group by 1
            union all
            select day - $10 + 1, sum(refusals)
            from rejection_day_rollups
            where day >= $10
                and day < $10 + $11::integer
                and ($4::uuid is null or tenant_id = $4)
                and ($8::text is null or model = $8)
                and ($9::text is null or priority = $9)
            group by 1
        )
        select
            day as "day!",
            coalesce(requests, 0)::bigint as "requests!",
            coalesce(refusals, 0)::bigint as "refusals!",
            coalesce(tokens, 0)::bigint as "tokens!",
            coalesce(charged_nanos, 0)::bigint as "charged_nanos!"
        from used full join refused using (day)
        "#,
        &starts,
        span.start,
        span.end,
        filter.tenant.map(Uuid::from),
        filter.owner.map(Uuid::from),
        filter.user,
        filter.key.map(Uuid::from),
        filter.model,
        filter.priority.map(Priority::as_str),
        first_day,
        days.len() as i32,
    )
    .fetch_all(connection)
    .await?;
    for row in rows {
        // The first day is number 1; a span longer than the chart ends in its last day.
        let at = usize::try_from(row.day).unwrap_or(0).saturating_sub(1);
        if let Some((_, day)) = days.get_mut(at) {
            day.requests = count(row.requests);
            day.refused_requests = count(row.refusals);
            day.tokens = row.tokens;
            day.charged = Nanos(row.charged_nanos);
        }
    }
    Ok(days.into_iter().map(|(_, day)| day).collect())
}

/// The days of a span with their first instants, empty.
fn days(span: Span, zone: Tz) -> Vec<(DateTime<Utc>, DayTotals)> {
    let mut days = Vec::new();
    let mut start = span.start;
    while start < span.end && days.len() < DAYS_MAX {
        let day: NaiveDate = start.with_timezone(&zone).date_naive();
        days.push((
            start,
            DayTotals {
                day,
                requests: 0,
                refused_requests: 0,
                tokens: 0,
                charged: Nanos::ZERO,
            },
        ));
        start = Period::Day.span(start, zone).end;
    }
    days
}

/// How complete sums over `span` are, inside the caller's snapshot.
pub(crate) async fn read_completeness(
    connection: &mut PgConnection,
    span: Span,
    now: DateTime<Utc>,
) -> Result<Completeness, StoreError> {
    let instances = crate::instances::list(connection).await?;
    let shipped_until = instances.into_iter().map(|gateway| {
        // A gateway that says nothing newer may have taken requests since.
        let lag = Duration::milliseconds(i64::try_from(gateway.status.journal_lag_ms).unwrap_or(i64::MAX / 2));
        let until = gateway
            .status
            .complete_until
            .or_else(|| gateway.seen_at.checked_sub_signed(lag))
            .unwrap_or(gateway.seen_at);
        let delay = Duration::seconds(ENTRY_DELAY_SECONDS_MAX);
        (gateway.instance, until.min(gateway.seen_at) - delay)
    });
    Ok(Completeness::new(span, now, shipped_until))
}

#[cfg(test)]
mod tests;

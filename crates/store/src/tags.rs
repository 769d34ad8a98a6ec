//! Reports by the callers' tags: sums over their roll-ups, each report from one snapshot of the database.

use chrono::{DateTime, Utc};
use domain::ids::{PersonId, TenantId};
use domain::money::Nanos;
use domain::periods::Span;
use domain::reports::{Completeness, Grouping, TagTotals};
use domain::usage::TokenUsage;
use futures_util::TryStreamExt;
use futures_util::stream::{BoxStream, StreamExt};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::policy::count;
use crate::reports::{
    REPORT_ROWS_MAX, ReportFilter, ReportQuery, RowsQuery, Sources, read_completeness, read_totals, stream_rows,
};
use crate::{Store, StoreError};

/// Names of tags that are listed at most.
pub const TAG_NAMES_MAX: i64 = 100;
/// Names of all times among which those of a month are looked for: callers make them up.
const TAG_NAMES_LOOKED_AT_MAX: i32 = 10_000;

/// Whose requests a report by tag counts. Absent parts let everything through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TagFilter {
    /// Of this tenant.
    pub tenant: Option<TenantId>,
    /// Of this person: with one of their keys.
    pub owner: Option<PersonId>,
}

/// One report by tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagQuery {
    /// By `admitted_at`; on 15-minute boundaries.
    pub span: Span,
    /// What it counts.
    pub filter: TagFilter,
    /// The tag's name, whose values divide it.
    pub name: String,
}

/// One value's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagRow {
    /// The tag's value; may be empty.
    pub value: String,
    /// The sums.
    pub totals: TagTotals,
}

/// A report by tag, read whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagReport {
    /// The dearest first; at most [`REPORT_ROWS_MAX`].
    pub rows: Vec<TagRow>,
    /// Whether there are more rows.
    pub is_cut: bool,
    /// Requests without a tag of this name.
    pub without: TagTotals,
    /// Over all requests, rows beyond the bound included.
    pub totals: TagTotals,
    /// How complete it is.
    pub completeness: Completeness,
}

/// A report by tag, read row by row.
pub struct TagStream {
    /// Requests without a tag of this name.
    pub without: TagTotals,
    /// Over all requests.
    pub totals: TagTotals,
    /// How complete it is.
    pub completeness: Completeness,
    /// The dearest first. Holds a connection until it ends or is dropped.
    pub rows: BoxStream<'static, Result<TagRow, StoreError>>,
}

impl Store {
    /// The names of tags that requests of `span` had, in the alphabet's order; at most [`TAG_NAMES_MAX`].
    pub async fn tag_names(&self, span: Span, filter: TagFilter) -> Result<Vec<String>, StoreError> {
        Ok(sqlx::query_scalar!(
            r#"
            -- From each name to the next in the index: there are few, in very many rows.
            with recursive names as (
                (select tag_name, 1 as number from tag_rollups order by tag_name limit 1)
                union all
                select
                    (select tag_name from tag_rollups where tag_name > names.tag_name order by tag_name limit 1), number + 1
                from names
                where names.tag_name is not null
                    and number < $6
            )
            select tag_name as "tag_name!"
            from names
            where tag_name is not null
                and exists (
                    select
                    from tag_rollups
                    where tag_rollups.tag_name = names.tag_name
                        and bucket_start >= $1
                        and bucket_start < $2
                        and ($3::uuid is null or tenant_id = $3)
                        and ($4::uuid is null or key_id in (select keys.id from keys where owner_id = $4))
                )
            limit $5
            "#,
            span.start,
            span.end,
            filter.tenant.map(Uuid::from),
            filter.owner.map(Uuid::from),
            TAG_NAMES_MAX,
            TAG_NAMES_LOOKED_AT_MAX,
        )
        .fetch_all(self.pool())
        .await?)
    }

    /// A report by tag, whole.
    pub async fn tag_report(&self, query: &TagQuery, now: DateTime<Utc>) -> Result<TagReport, StoreError> {
        let mut snapshot = self.begin_report().await?;
        let mut rows: Vec<TagRow> = query
            .rows(&mut snapshot, i64::from(REPORT_ROWS_MAX) + 1)
            .try_collect()
            .await?;
        let is_cut = rows.len() > REPORT_ROWS_MAX as usize;
        rows.truncate(REPORT_ROWS_MAX as usize);
        let (totals, without) = read_sums(&mut snapshot, query, now).await?;
        let completeness = read_completeness(&mut snapshot, query.span, now).await?;
        snapshot.commit().await?;
        Ok(TagReport {
            rows,
            is_cut,
            without,
            totals,
            completeness,
        })
    }

    /// A report by tag as a stream in constant memory, rows and sums from one snapshot.
    pub async fn stream_tag_report(&self, query: TagQuery, now: DateTime<Utc>) -> Result<TagStream, StoreError> {
        let (mut snapshot, place) = self.begin_stream().await?;
        let (totals, without) = read_sums(&mut snapshot, &query, now).await?;
        let completeness = read_completeness(&mut snapshot, query.span, now).await?;
        Ok(TagStream {
            without,
            totals,
            completeness,
            rows: stream_rows(snapshot, query, place),
        })
    }
}

/// The sums over all requests, and over those without a tag of the name.
async fn read_sums(
    connection: &mut PgConnection,
    query: &TagQuery,
    now: DateTime<Utc>,
) -> Result<(TagTotals, TagTotals), StoreError> {
    let filter = ReportFilter {
        tenant: query.filter.tenant,
        owner: query.filter.owner,
        ..ReportFilter::default()
    };
    let everything = ReportQuery::new(query.span, filter, Grouping::NONE);
    let sources = Sources::of(connection, &everything, now).await?;
    let totals = TagTotals::of(&read_totals(connection, sources, &everything).await?.0);
    let tagged = rows(connection, query, false, 1).try_next().await?;
    let tagged = tagged.map(|row| row.totals).unwrap_or_default();
    Ok((totals, totals.without(&tagged)))
}

impl RowsQuery for TagQuery {
    type Row = TagRow;

    fn rows<'c>(
        &'c self,
        connection: &'c mut PgConnection,
        rows_max: i64,
    ) -> BoxStream<'c, Result<TagRow, StoreError>> {
        rows(connection, self, true, rows_max)
    }
}

/// A row for each value, or one for all of them.
fn rows<'c>(
    connection: &'c mut PgConnection,
    query: &'c TagQuery,
    is_by_value: bool,
    rows_max: i64,
) -> BoxStream<'c, Result<TagRow, StoreError>> {
    let TagQuery { span, filter, name } = query;
    sqlx::query_as!(
        TagColumns,
        r#"
        select
            case when $1 then tag_value else '' end as "value!",
            sum(requests)::bigint as "requests!",
            sum(failed_requests)::bigint as "failed_requests!",
            sum(input_fresh_tokens)::bigint as "input_fresh_tokens!",
            sum(cache_read_tokens)::bigint as "cache_read_tokens!",
            sum(cache_write_5m_tokens)::bigint as "cache_write_5m_tokens!",
            sum(cache_write_1h_tokens)::bigint as "cache_write_1h_tokens!",
            sum(output_tokens)::bigint as "output_tokens!",
            sum(reasoning_tokens)::bigint as "reasoning_tokens!",
            sum(cost_nanos)::bigint as "cost_nanos!"
        from tag_rollups
        where bucket_start >= $2
            and bucket_start < $3
            and tag_name = $4
            and ($5::uuid is null or tenant_id = $5)
            and ($6::uuid is null or key_id in (select keys.id from keys where owner_id = $6))
        group by 1
        order by sum(cost_nanos) desc, sum(requests) desc, 1
        limit $7
        "#,
        is_by_value,
        span.start,
        span.end,
        name,
        filter.tenant.map(Uuid::from),
        filter.owner.map(Uuid::from),
        rows_max,
    )
    .fetch(connection)
    .map(|row| Ok(row?.into_row()))
    .boxed()
}

struct TagColumns {
    value: String,
    requests: i64,
    failed_requests: i64,
    input_fresh_tokens: i64,
    cache_read_tokens: i64,
    cache_write_5m_tokens: i64,
    cache_write_1h_tokens: i64,
    output_tokens: i64,
    reasoning_tokens: i64,
    cost_nanos: i64,
}

impl TagColumns {
    fn into_row(self) -> TagRow {
        TagRow {
            value: self.value,
            totals: TagTotals {
                requests: count(self.requests),
                failed_requests: count(self.failed_requests),
                usage: TokenUsage {
                    input_fresh_tokens: count(self.input_fresh_tokens),
                    cache_read_tokens: count(self.cache_read_tokens),
                    cache_write_5m_tokens: count(self.cache_write_5m_tokens),
                    cache_write_1h_tokens: count(self.cache_write_1h_tokens),
                    output_tokens: count(self.output_tokens),
                    reasoning_tokens: count(self.reasoning_tokens),
                },
                cost: Nanos(self.cost_nanos),
            },
        }
    }
}

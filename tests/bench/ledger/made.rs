//! Entries made by Postgres itself, in the order of time as gateways write them, and their roll-ups.

use std::time::Instant;

use chrono::{DateTime, Duration, Utc};
use domain::periods::{Month, Span};
use sqlx::{AssertSqlSafe, Executor as _, PgConnection};
use test_support::tollgate::Tollgate;

/// Entries that one statement makes.
const CHUNK: u64 = 200_000;
/// Roll-ups are made for so many hours at once.
const ROLLED_HOURS: i64 = 2;

/// How much is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) rows: u64,
    pub(crate) tenants: u32,
    pub(crate) keys: u32,
    pub(crate) users: u32,
}

/// Makes the last whole month, and a tenth of it in the month before; answers which month.
pub(crate) async fn make(tollgate: &Tollgate, size: &Size) -> anyhow::Result<Month> {
    let zone = chrono_tz::UTC;
    let month = Month::containing(Utc::now(), zone).previous();
    let mut sql = tollgate.sql().await;
    let organisation = include_str!("organisation.sql")
        .replace("{tenants}", &size.tenants.to_string())
        .replace("{keys}", &size.keys.to_string());
    sql.execute(AssertSqlSafe(organisation)).await?;
    // Sums by month and day are made in one go at the end, and not along with each row.
    sql.execute("delete from billing_calendar; delete from billing_days")
        .await?;
    let refused = size.rows / 20;
    let spans = [
        (month.previous().span(zone), size.rows / 10, 0),
        (month.span(zone), size.rows, refused),
    ];
    for (span, settlements, rejections) in spans {
        tollgate
            .running
            .store
            .ensure_partitions(span.start + Duration::days(1))
            .await?;
        fill(&mut sql, include_str!("settlements.sql"), span, settlements, size).await?;
        fill(&mut sql, include_str!("rejections.sql"), span, rejections, size).await?;
        sql.execute("analyze settlements").await?;
        roll_up(tollgate, span).await?;
    }
    let begun = Instant::now();
    tollgate.running.store.prepare_calendar(zone).await?;
    eprintln!("sums by month and day: {:.0?}", begun.elapsed());
    let begun = Instant::now();
    sql.execute("vacuum (analyze)").await?;
    eprintln!("vacuum: {:.0?}", begun.elapsed());
    Ok(month)
}

async fn fill(sql: &mut PgConnection, text: &str, span: Span, rows: u64, size: &Size) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut first = 0;
    while first < rows {
        let last = (first + CHUNK).min(rows) - 1;
        sql.execute(AssertSqlSafe(statement(text, span, rows, (first, last), size)))
            .await?;
        first = last + 1;
    }
    if rows > 0 {
        eprintln!(
            "{rows} entries from {}: {:.0?}",
            span.start.date_naive(),
            begun.elapsed()
        );
    }
    Ok(())
}

fn statement(text: &str, span: Span, rows: u64, (first, last): (u64, u64), size: &Size) -> String {
    let step_ms = (span.end - span.start).num_milliseconds() as f64 / rows as f64;
    let start: DateTime<Utc> = span.start;
    [
        ("{first}", first.to_string()),
        ("{last}", last.to_string()),
        ("{start}", start.to_rfc3339()),
        ("{step_ms}", format!("{step_ms:.3}")),
        ("{users}", size.users.to_string()),
        ("{keys}", size.keys.to_string()),
    ]
    .iter()
    .fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
}

async fn roll_up(tollgate: &Tollgate, span: Span) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut start = span.start;
    while start < span.end {
        let end = (start + Duration::hours(ROLLED_HOURS)).min(span.end);
        tollgate.running.store.rebuild_rollups(Span { start, end }).await?;
        start = end;
    }
    eprintln!("roll-ups from {}: {:.0?}", span.start.date_naive(), begun.elapsed());
    Ok(())
}

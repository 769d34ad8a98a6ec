//! The days of the billing time zone in the database, and the sums by month and day that go by them.

use chrono::{DateTime, NaiveDate, Utc};
use chrono_tz::{IANA_TZDB_VERSION, Tz};
use domain::periods::{Span, day_start};
use sqlx::PgConnection;

use crate::{Store, StoreError, Transaction};

/// The first month with days in the calendar. Reports of months before it add up 15-minute roll-ups.
const FIRST_DAY: NaiveDate = NaiveDate::from_ymd_opt(2020, 1, 1).expect("a date");
/// The day that ends the calendar.
const LAST_DAY: NaiveDate = NaiveDate::from_ymd_opt(2060, 1, 1).expect("a date");
/// Whoever makes the calendar holds this advisory lock, so that gateways that start together make it once.
const CALENDAR_LOCK: i64 = 0x746f_6c6c_6461_7973;

impl Store {
    /// Writes the zone's days, if they are not there or were made by an older time zone database, and fills the roll-ups by
    /// month and day from those by 15 minutes. Takes as long as it takes: the first time on a database with a history, all
    /// of its roll-ups are read, and writers wait.
    pub async fn prepare_calendar(&self, zone: Tz) -> Result<(), StoreError> {
        if is_current(&mut *self.pool().acquire().await?, zone).await? {
            return Ok(());
        }
        let patient = self.patient_pool();
        let prepared = prepare(&patient, zone).await;
        patient.close().await;
        prepared
    }
}

/// Makes the sums by month and day of the billing month that begins with `first_day` anew from the 15-minute roll-ups.
/// Entries that are shipped meanwhile wait. Nothing is left where the calendar has no such month.
pub async fn rebuild(transaction: &mut Transaction, first_day: NaiveDate) -> Result<(), StoreError> {
    keep_writers_out(transaction).await?;
    for statement in [
        sqlx::query!("delete from settlement_month_rollups where month = $1", first_day),
        sqlx::query!("delete from rejection_month_rollups where month = $1", first_day),
        sqlx::query!(
            "delete from settlement_day_rollups where day >= $1 and day < $1::date + interval '1 month'",
            first_day,
        ),
        sqlx::query!(
            "delete from rejection_day_rollups where day >= $1 and day < $1::date + interval '1 month'",
            first_day,
        ),
    ] {
        statement.execute(&mut **transaction).await?;
    }
    fill_month(transaction, first_day).await
}

async fn prepare(pool: &sqlx::PgPool, zone: Tz) -> Result<(), StoreError> {
    let mut transaction = pool.begin().await?;
    sqlx::query!("select pg_advisory_xact_lock($1)", CALENDAR_LOCK)
        .execute(&mut *transaction)
        .await?;
    if is_current(&mut transaction, zone).await? {
        return Ok(());
    }
    keep_writers_out(&mut transaction).await?;
    for statement in [
        sqlx::query!("delete from billing_days"),
        sqlx::query!("delete from settlement_month_rollups"),
        sqlx::query!("delete from settlement_day_rollups"),
        sqlx::query!("delete from rejection_month_rollups"),
        sqlx::query!("delete from rejection_day_rollups"),
    ] {
        statement.execute(&mut *transaction).await?;
    }
    let (days, starts) = days(zone);
    sqlx::query!(
        "insert into billing_days (day, starts_at) select * from unnest($1::date[], $2::timestamptz[])",
        &days,
        &starts,
    )
    .execute(&mut *transaction)
    .await?;
    sqlx::query!("analyze billing_days").execute(&mut *transaction).await?;
    for month in months_with_rollups(&mut transaction).await? {
        fill_month(&mut transaction, month).await?;
    }
    sqlx::query!(
        "insert into billing_calendar (time_zone, tz_version)
         values ($1, $2)
         on conflict (only_row) do update set time_zone = excluded.time_zone, tz_version = excluded.tz_version",
        zone.name(),
        IANA_TZDB_VERSION,
    )
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(())
}

/// Whoever writes roll-ups meanwhile would add to sums that are about to be made of what they wrote.
async fn keep_writers_out(transaction: &mut Transaction) -> Result<(), StoreError> {
    sqlx::query!("lock table settlement_rollups, rejection_rollups in share row exclusive mode")
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// The sums of a month that has none yet.
async fn fill_month(transaction: &mut Transaction, first_day: NaiveDate) -> Result<(), StoreError> {
    for statement in [
        sqlx::query!(
            "insert into settlement_month_rollups select * from sum_settlement_months($1)",
            first_day
        ),
        sqlx::query!(
            "insert into rejection_month_rollups select * from sum_rejection_months($1)",
            first_day
        ),
        sqlx::query!(
            "insert into settlement_day_rollups select * from sum_settlement_days($1)",
            first_day
        ),
        sqlx::query!(
            "insert into rejection_day_rollups select * from sum_rejection_days($1)",
            first_day
        ),
    ] {
        statement.execute(&mut **transaction).await?;
    }
    Ok(())
}

/// The first days of the months from the oldest roll-up to the newest.
async fn months_with_rollups(connection: &mut PgConnection) -> Result<Vec<NaiveDate>, StoreError> {
    let months = sqlx::query_scalar!(
        r#"
        select billing_days.day
        from (
            select min(bucket_start) as oldest, max(bucket_start) as newest
            from (
                (select min(bucket_start) as bucket_start from settlement_rollups)
                union all (select max(bucket_start) from settlement_rollups)
                union all (select min(bucket_start) from rejection_rollups)
                union all (select max(bucket_start) from rejection_rollups)
            ) as ends
        ) as kept
        join billing_days
            on starts_at <= newest
            and starts_at > oldest - interval '32 days'
            and extract(day from day) = 1
        order by day
        "#
    )
    .fetch_all(connection)
    .await?;
    Ok(months)
}

/// Whether the calendar is there, and by no older time zone database than ours: gateways of two versions must not make it in
/// turn. Versions are years with a letter, such as 2026b.
async fn is_current(connection: &mut PgConnection, zone: Tz) -> Result<bool, StoreError> {
    let kept = sqlx::query!("select time_zone, tz_version from billing_calendar")
        .fetch_optional(connection)
        .await?;
    Ok(kept.is_some_and(|kept| kept.time_zone == zone.name() && kept.tz_version.as_str() >= IANA_TZDB_VERSION))
}

fn days(zone: Tz) -> (Vec<NaiveDate>, Vec<DateTime<Utc>>) {
    let days: Vec<NaiveDate> = FIRST_DAY.iter_days().take_while(|day| *day <= LAST_DAY).collect();
    let starts = days.iter().map(|day| day_start(*day, zone)).collect();
    (days, starts)
}

/// The first day of the billing month that `span` covers exactly, if it is one that sums are kept for.
pub(crate) async fn whole_month(connection: &mut PgConnection, span: Span) -> Result<Option<NaiveDate>, StoreError> {
    let first_day = sqlx::query_scalar!(
        r#"
        select first.day
        from billing_days as first
        join billing_days as following on following.day = first.day + interval '1 month'
        where first.starts_at = $1
            and following.starts_at = $2
            and extract(day from first.day) = 1
        "#,
        span.start,
        span.end,
    )
    .fetch_optional(connection)
    .await?;
    Ok(first_day)
}

//! How long the ledger's entries are kept: whole months, as the ledger's tables are divided.

use chrono::{DateTime, Datelike, NaiveDate, NaiveTime, Utc};
use chrono_tz::Tz;

use crate::periods::Month;

/// The most months that can be set.
pub const MONTHS_MAX: u16 = 1_200;

/// The first instant whose entries are kept, when they are kept for `months` full months of billing beside the current one.
/// The tables are divided by months in UTC: what one of them has beyond the billing month is kept with it.
pub fn entries_from(now: DateTime<Utc>, zone: Tz, months: u16) -> DateTime<Utc> {
    let first = (0..months).fold(Month::containing(now, zone), |month, _| month.previous());
    let kept_from = first.span(zone).start;
    let day = kept_from.date_naive();
    let first_day: NaiveDate = day.with_day(1).unwrap_or(day);
    first_day.and_time(NaiveTime::MIN).and_utc()
}

#[cfg(test)]
mod tests;

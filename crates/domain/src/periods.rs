//! Calendar periods of budgets and 15-minute buckets of roll-ups, in the one billing time zone.

use std::fmt;
use std::str::FromStr;

use chrono::{
    DateTime, Datelike, Days, Duration, FixedOffset, LocalResult, Months, NaiveDate, NaiveDateTime, Offset as _,
    TimeZone, Timelike, Utc,
};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};

use crate::text;
use crate::text::Text;

/// Length of a roll-up bucket in minutes. Every time zone in use is offset by a multiple of it, and changes its clock at one
/// since 2024, so that every zone's hour, day, week and month is a sum of buckets.
pub const BUCKET_MINUTES: i64 = 15;

const SECONDS_PER_HOUR: i64 = 3_600;

/// How long a budget lasts before it starts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// From the full hour.
    Hour,
    /// From local midnight.
    Day,
    /// From Monday, local midnight (ISO 8601).
    Week,
    /// From the first of the month, local midnight.
    Month,
}

/// A span of time, start included, end excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Span {
    /// First instant.
    pub start: DateTime<Utc>,
    /// First instant after.
    pub end: DateTime<Utc>,
}

impl Span {
    /// Whether `at` lies inside.
    pub fn contains(&self, at: DateTime<Utc>) -> bool {
        self.start <= at && at < self.end
    }
}

impl Period {
    /// All of them, shortest first.
    pub const ALL: [Self; 4] = [Self::Hour, Self::Day, Self::Week, Self::Month];

    /// The word in SQL, JSON and pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }

    /// The period that contains `at`, by the calendar of `zone`, clock changes included. Periods follow one another without
    /// a gap, also where a clock change skips midnight or lets it happen twice.
    pub fn span(self, at: DateTime<Utc>, zone: Tz) -> Span {
        let today = at.with_timezone(&zone).date_naive();
        let mut first = match self {
            Self::Hour => return hour(at, zone),
            Self::Day => today,
            Self::Week => today - Days::new(u64::from(today.weekday().num_days_from_monday())),
            Self::Month => today.with_day(1).unwrap_or(today),
        };
        loop {
            let next = match self {
                Self::Hour | Self::Day => first + Days::new(1),
                Self::Week => first + Days::new(7),
                Self::Month => first + Months::new(1),
            };
            let span = Span {
                start: day_start(first, zone),
                end: day_start(next, zone),
            };
            // A clock that is put back just after midnight shows the day before once more, which is over.
            if at < span.end {
                return span;
            }
            first = next;
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is none of the four periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct UnknownPeriod;

impl UnknownPeriod {
    /// What to write instead.
    pub fn text(self) -> Text {
        text!("a period is one of hour, day, week, month")
    }
}

impl FromStr for Period {
    type Err = UnknownPeriod;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|period| period.as_str() == text)
            .ok_or(UnknownPeriod)
    }
}

/// A calendar month such as 2026-11.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Month {
    first_day: NaiveDate,
}

impl Month {
    /// The month that contains `at` in `zone`.
    pub fn containing(at: DateTime<Utc>, zone: Tz) -> Self {
        let start = Period::Month.span(at, zone).start;
        let day = start.with_timezone(&zone).date_naive();
        Self {
            first_day: day.with_day(1).unwrap_or(day),
        }
    }

    /// Its first and end instants in `zone`.
    pub fn span(self, zone: Tz) -> Span {
        Span {
            start: day_start(self.first_day, zone),
            end: day_start(self.first_day + Months::new(1), zone),
        }
    }

    /// The month before.
    pub fn previous(self) -> Self {
        Self {
            first_day: self.first_day - Months::new(1),
        }
    }

    /// The month after.
    pub fn next(self) -> Self {
        Self {
            first_day: self.first_day + Months::new(1),
        }
    }

    /// Its first day.
    pub fn first_day(self) -> NaiveDate {
        self.first_day
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first_day.format("%Y-%m"))
    }
}

/// The text is no month.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct NotAMonth;

impl NotAMonth {
    /// What to write instead.
    pub fn text(self) -> Text {
        text!("write a month as year and month, for example 2026-11")
    }
}

impl FromStr for Month {
    type Err = NotAMonth;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (year, month) = text.split_once('-').ok_or(NotAMonth)?;
        if year.len() != 4 || month.len() != 2 {
            return Err(NotAMonth);
        }
        let year: i32 = year.parse().map_err(|_| NotAMonth)?;
        let month: u32 = month.parse().map_err(|_| NotAMonth)?;
        // Bounded so that neighbours and instants always exist.
        if !(1970..=9998).contains(&year) {
            return Err(NotAMonth);
        }
        NaiveDate::from_ymd_opt(year, month, 1)
            .map(|first_day| Self { first_day })
            .ok_or(NotAMonth)
    }
}

/// Start of the 15-minute bucket that contains `at`.
pub fn bucket_start(at: DateTime<Utc>) -> DateTime<Utc> {
    let width = BUCKET_MINUTES * 60;
    let start = at.timestamp().div_euclid(width) * width;
    DateTime::from_timestamp(start, 0).unwrap_or(at)
}

/// `at` plus whole calendar months in `zone`, clamped to the end of a shorter month. Key lifetimes use it.
pub fn months_after(at: DateTime<Utc>, months: u32, zone: Tz) -> DateTime<Utc> {
    let local = at.with_timezone(&zone).naive_local();
    local
        .checked_add_months(Months::new(months))
        .map_or(at, |later| first_instant(later, zone))
}

/// The end of a local day: the first instant of the next.
pub fn end_of_day(day: NaiveDate, zone: Tz) -> DateTime<Utc> {
    day_start(day + Days::new(1), zone)
}

/// From the full hour of the local clock to the next, cut in absolute time: a local hour that happens twice in autumn is two
/// hours. Where the clock is changed within an hour, that hour ends and another one begins.
fn hour(at: DateTime<Utc>, zone: Tz) -> Span {
    let second = at - Duration::nanoseconds(i64::from(at.nanosecond()));
    let local = second.with_timezone(&zone).naive_local();
    let start = second - Duration::seconds(i64::from(local.minute() * 60 + local.second()));
    let last = start + Duration::seconds(SECONDS_PER_HOUR - 1);
    let offset = |at| offset_at(at, zone);
    Span {
        start: if offset(start) == offset(second) {
            start
        } else {
            clock_change(start, second, offset)
        },
        end: if offset(last) == offset(second) {
            start + Duration::hours(1)
        } else {
            clock_change(second, last, offset)
        },
    }
}

fn offset_at(at: DateTime<Utc>, zone: Tz) -> FixedOffset {
    zone.offset_from_utc_datetime(&at.naive_utc()).fix()
}

/// The first second after `before` at which the offset is not what it was then. At `after` it is another one.
fn clock_change(
    mut before: DateTime<Utc>,
    mut after: DateTime<Utc>,
    offset: impl Fn(DateTime<Utc>) -> FixedOffset,
) -> DateTime<Utc> {
    let old = offset(before);
    while after - before > Duration::seconds(1) {
        let middle = before + Duration::seconds((after - before).num_seconds() / 2);
        if offset(middle) == old {
            before = middle;
        } else {
            after = middle;
        }
    }
    after
}

/// The first instant of a local day. Where a clock change skips midnight, the day starts when the clock has moved on.
pub fn day_start(day: NaiveDate, zone: Tz) -> DateTime<Utc> {
    first_instant(day.and_time(chrono::NaiveTime::MIN), zone)
}

fn first_instant(local: NaiveDateTime, zone: Tz) -> DateTime<Utc> {
    match zone.from_local_datetime(&local) {
        LocalResult::Single(at) | LocalResult::Ambiguous(at, _) => at.with_timezone(&Utc),
        LocalResult::None => {
            // Inside a gap: soon after, the clock reads again. The first instant is that of the change.
            let step = Duration::minutes(BUCKET_MINUTES);
            let mut probe = local;
            for _ in 0..(24 * 60 / BUCKET_MINUTES) {
                probe += step;
                if let LocalResult::Single(at) | LocalResult::Ambiguous(at, _) = zone.from_local_datetime(&probe) {
                    let at = at.with_timezone(&Utc);
                    return clock_change(at - step, at, |at| offset_at(at, zone));
                }
            }
            Utc.from_utc_datetime(&local)
        }
    }
}

#[cfg(test)]
mod tests;

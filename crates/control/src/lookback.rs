//! How far back a page looks that shows what happened lately.

use std::str::FromStr;

use chrono::{DateTime, Duration, Utc};
use chrono_tz::Tz;
use domain::periods::{BUCKET_MINUTES, Month, Span, bucket_start};

/// How far back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lookback {
    /// An hour.
    Hour,
    /// A day.
    #[default]
    Day,
    /// Seven days.
    Week,
    /// Thirty days.
    ThirtyDays,
    /// The calendar month so far, in the billing time zone.
    Month,
}

impl Lookback {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Hour, Self::Day, Self::Week, Self::ThirtyDays, Self::Month];
    /// What pages offer that show what goes on, shortest first.
    pub const LATELY: [Self; 3] = [Self::Hour, Self::Day, Self::Month];
    /// What pages offer that show how well something fits, shortest first.
    pub const WHILE: [Self; 3] = [Self::Day, Self::Week, Self::ThirtyDays];

    /// The word in addresses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::ThirtyDays => "30-days",
            Self::Month => "month",
        }
    }

    /// What it covers at `now`, in whole 15 minutes, as roll-ups are kept: an hour is up to 75 minutes.
    pub fn span(self, now: DateTime<Utc>, zone: Tz) -> Span {
        let here = bucket_start(now);
        let back = |hours| Span {
            start: here - Duration::hours(hours),
            end: here + Duration::minutes(BUCKET_MINUTES),
        };
        match self {
            Self::Hour => back(1),
            Self::Day => back(24),
            Self::Week => back(7 * 24),
            Self::ThirtyDays => back(30 * 24),
            Self::Month => Month::containing(now, zone).span(zone),
        }
    }
}

/// The text is none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("choose one of hour, day, week, 30-days, month")]
pub struct UnknownLookback;

impl FromStr for Lookback {
    type Err = UnknownLookback;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|lookback| lookback.as_str() == text)
            .ok_or(UnknownLookback)
    }
}

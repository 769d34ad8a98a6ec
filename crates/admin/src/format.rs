//! How the console writes money, counts, sizes and times. One place, so that the same value looks the same everywhere.

use chrono::{DateTime, NaiveDate, Utc};
use chrono_tz::Tz;
use domain::money::Nanos;
use domain::periods::Month;
use domain::policy::Settings;

/// Digits after the point in sums.
const SUM_PLACES: u32 = 2;
/// Below this many nano-units an amount is written with every digit it has: a single request often costs less than a cent.
const SMALL_NANOS: i64 = 1_000_000_000;
/// Digits after the point of small amounts.
const SMALL_PLACES: u32 = 6;

/// The installation's ways of writing: its billing currency and its billing time zone.
#[derive(Clone, Debug)]
pub struct Format {
    currency: String,
    zone: Tz,
}

impl Format {
    /// The ways of the installation with these settings.
    pub fn new(settings: &Settings) -> Self {
        Self {
            currency: settings.currency.clone(),
            zone: settings.time_zone,
        }
    }

    /// The billing time zone.
    pub fn zone(&self) -> Tz {
        self.zone
    }

    /// ISO 4217 code of the billing currency.
    pub fn currency(&self) -> &str {
        &self.currency
    }

    /// A sum of money, to the cent: `EUR 1,234.50`.
    pub fn money(&self, amount: Nanos) -> String {
        self.with_currency(&amount.to_decimal(SUM_PLACES))
    }

    /// A sum of money without the currency, for tables whose caption names it.
    pub fn bare_money(&self, amount: Nanos) -> String {
        grouped(&amount.to_decimal(SUM_PLACES))
    }

    /// The cost of one request: six places below one unit, to the cent above.
    pub fn cost(&self, amount: Nanos) -> String {
        if amount != Nanos::ZERO && amount.0.abs() < SMALL_NANOS {
            self.with_currency(&amount.to_decimal(SMALL_PLACES))
        } else {
            self.money(amount)
        }
    }

    /// An amount with every digit it has: prices, and the arithmetic behind a cost.
    pub fn exact(&self, amount: Nanos) -> String {
        self.with_currency(&amount.to_string())
    }

    /// A price per million tokens. One of zero is not written like a figure, or it would look like a missing one.
    pub fn rate(&self, nanos_per_mtok: i64) -> String {
        if nanos_per_mtok == 0 {
            return t!("free", in "a price").to_owned();
        }
        self.exact(Nanos(nanos_per_mtok))
    }

    /// A price per million tokens without the currency, for tables whose caption names it.
    pub fn bare_rate(&self, nanos_per_mtok: i64) -> String {
        if nanos_per_mtok == 0 {
            return t!("free", in "a price").to_owned();
        }
        grouped(&Nanos(nanos_per_mtok).to_string())
    }

    /// An instant to the second without its zone, for tables whose caption names it: `29 Nov 2026, 14:03:22`.
    pub fn bare_time(&self, at: DateTime<Utc>) -> String {
        self.written(at, t!("%-d %b %Y, %H:%M:%S"))
    }

    /// An instant to the second, with its zone: `29 Nov 2026, 14:03:22 CET`.
    pub fn time(&self, at: DateTime<Utc>) -> String {
        self.written(at, t!("%-d %b %Y, %H:%M:%S %Z"))
    }

    /// An instant to the minute, with its zone.
    pub fn minute(&self, at: DateTime<Utc>) -> String {
        self.written(at, t!("%-d %b %Y, %H:%M %Z"))
    }

    /// An instant to the minute without its zone, for tables whose caption names it.
    pub fn bare_minute(&self, at: DateTime<Utc>) -> String {
        self.written(at, t!("%-d %b %Y, %H:%M"))
    }

    /// The value of a `datetime-local` field.
    pub fn field_time(&self, at: DateTime<Utc>) -> String {
        at.with_timezone(&self.zone).format("%Y-%m-%dT%H:%M").to_string()
    }

    /// The instant in the billing zone, by a pattern of chrono's.
    fn written(&self, at: DateTime<Utc>, pattern: &str) -> String {
        at.with_timezone(&self.zone).format(pattern).to_string()
    }

    fn with_currency(&self, decimal: &str) -> String {
        // A narrow space that does not break keeps code and figure on one line.
        format!("{}\u{a0}{}", self.currency, grouped(decimal))
    }
}

/// A count with thousands separators: `1,234,567`.
pub fn count(value: u64) -> String {
    grouped(&value.to_string())
}

/// A signed count with thousands separators.
pub fn signed_count(value: i64) -> String {
    grouped(&value.to_string())
}

/// A duration: `840 ms`, `12.4 s`, `3 min 20 s`.
pub fn duration_ms(milliseconds: i64) -> String {
    match milliseconds {
        ..1_000 => format!("{milliseconds} ms"),
        1_000..60_000 => format!("{}.{} s", milliseconds / 1_000, milliseconds % 1_000 / 100),
        60_000..3_600_000 => t!(
            "{minutes} min {seconds} s",
            minutes = milliseconds / 60_000,
            seconds = milliseconds % 60_000 / 1_000
        ),
        3_600_000.. => t!(
            "{hours} h {minutes} min",
            hours = milliseconds / 3_600_000,
            minutes = milliseconds % 3_600_000 / 60_000
        ),
    }
}

/// A size on disk: `512 B`, `1.4 MiB`.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if value < 1_024 {
        return format!("{value} B");
    }
    let mut scaled = value as f64 / 1_024.0;
    let mut unit = 0;
    while scaled >= 1_024.0 && unit + 1 < UNITS.len() {
        scaled /= 1_024.0;
        unit += 1;
    }
    format!("{scaled:.1} {}", UNITS[unit])
}

/// How much of `limit` is `used`, in whole percent, rounded down, so that 100 % means spent; `None` without a limit.
pub fn percent(used: i64, limit: i64) -> Option<i64> {
    (limit > 0).then(|| i64::try_from(i128::from(used.max(0)) * 100 / i128::from(limit)).unwrap_or(i64::MAX))
}

/// What `part` is of `whole`, in whole percent; what is not nothing is not written as 0 %, and what is not all not as 100 %.
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    let percent = (u128::from(part) * 200 / u128::from(whole)).div_ceil(2);
    match percent {
        0 if part > 0 => t!("under 1 %").to_owned(),
        100 if part < whole => t!("over 99 %").to_owned(),
        _ => format!("{percent} %"),
    }
}

/// A month in words: `November 2026`.
pub fn month_name(month: Month) -> String {
    month.first_day().format(t!("%B %Y")).to_string()
}

/// A day with its year: `29 Nov 2026`.
pub fn date(day: NaiveDate) -> String {
    day.format(t!("%-d %b %Y")).to_string()
}

/// A day: `29 Nov`.
pub fn day(day: NaiveDate) -> String {
    day.format(t!("%-d %b")).to_string()
}

/// A word of the code, as people read it: `rate_limit_exceeded` becomes `rate limit exceeded`.
pub fn words(code: &str) -> String {
    code.replace('_', " ")
}

/// Inserts a comma between each three digits before the point.
fn grouped(decimal: &str) -> String {
    let (sign, digits) = decimal
        .strip_prefix('-')
        .map_or(("", decimal), |rest| ("\u{2212}", rest));
    let (whole, fraction) = digits
        .split_once('.')
        .map_or((digits, None), |(whole, fraction)| (whole, Some(fraction)));
    let mut text = String::with_capacity(decimal.len() + whole.len() / 3 + 2);
    text.push_str(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if let Some(fraction) = fraction {
        text.push('.');
        text.push_str(fraction);
    }
    text
}

#[cfg(test)]
mod tests;

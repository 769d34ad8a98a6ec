//! Money as an integer: nano-units (1e-9) of the one billing currency.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Neg, Sub};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text;
use crate::text::Text;

/// Nano-units in one unit of the currency.
pub const NANOS_PER_UNIT: i64 = 1_000_000_000;

/// An amount in nano-units of the billing currency. Adjustments may be negative; everything else is at least zero.
/// The range, about 9.2 billion units either way, is kept by saturating.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub i64);

impl Nanos {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// Whole units of the currency.
    pub fn from_units(units: i64) -> Self {
        Self(units.saturating_mul(NANOS_PER_UNIT))
    }

    /// Decimal text with `places` digits (0 to 9) after the point, rounded half away from zero.
    pub fn to_decimal(self, places: u32) -> String {
        let places = places.min(9);
        let step = 10_i128.pow(9 - places);
        let magnitude = (i128::from(self.0).abs() + step / 2) / step;
        decimal(if self.0 < 0 { -magnitude } else { magnitude }, places)
    }
}

/// Exact decimal text of `value`, which counts units of the last of `places` digits after the point; at most 38 of them.
pub fn decimal(value: i128, places: u32) -> String {
    let sign = if value < 0 { "-" } else { "" };
    let magnitude = value.unsigned_abs();
    if places == 0 {
        return format!("{sign}{magnitude}");
    }
    let scale = 10_u128.pow(places.min(38));
    format!(
        "{sign}{}.{:0width$}",
        magnitude / scale,
        magnitude % scale,
        width = places as usize
    )
}

/// Exact decimal text, trailing zeros removed but for two places: `12.50`, `0.000000125`.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let full = self.to_decimal(9);
        let point = full.len() - 9;
        let mut end = full.len();
        while end > point + 2 && full.as_bytes()[end - 1] == b'0' {
            end -= 1;
        }
        f.write_str(&full[..end])
    }
}

/// Why a text is not an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub enum ParseAmountError {
    /// Not digits with at most one point.
    NotANumber,
    /// More than nine digits after the point.
    TooPrecise,
    /// Beyond what an amount can hold.
    TooLarge,
}

impl ParseAmountError {
    /// What is wrong, for whoever wrote it.
    pub fn text(&self) -> Text {
        match self {
            Self::NotANumber => text!("write an amount such as 250 or 12.50, with digits and at most one point"),
            Self::TooPrecise => text!("an amount has at most nine digits after the point"),
            Self::TooLarge => text!("this amount is too large (at most 9,223,372,036)"),
        }
    }
}

impl FromStr for Nanos {
    type Err = ParseAmountError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let only_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !only_digits(whole) || !only_digits(fraction) {
            return Err(ParseAmountError::NotANumber);
        }
        if fraction.len() > 9 {
            return Err(ParseAmountError::TooPrecise);
        }
        let padded = format!("{whole}{fraction:0<9}");
        let nanos: i64 = padded.parse().map_err(|_| ParseAmountError::TooLarge)?;
        Ok(Self(if negative { -nanos } else { nanos }))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Neg for Nanos {
    type Output = Self;
    fn neg(self) -> Self {
        Self(self.0.saturating_neg())
    }
}

impl Sum for Nanos {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

#[cfg(test)]
mod tests;

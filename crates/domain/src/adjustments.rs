//! Corrections of requests: what one amounts to with all its adjustments, and the difference that puts it right.

use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

use crate::ledger::{Adjustment, Settlement};
use crate::money::Nanos;
use crate::prices::Price;
use crate::text;
use crate::text::Text;
use crate::usage::TokenUsage;

/// The most tokens of either kind that one adjustment adds or takes away.
pub const ADJUSTED_TOKENS_MAX: i64 = 1_000_000_000_000;
/// The most money that one adjustment adds or takes away: a hundred million units of the currency, so that sums over many
/// stay far within what an amount can hold.
pub const ADJUSTED_COST_MAX: Nanos = Nanos(100_000_000 * crate::money::NANOS_PER_UNIT);

/// What an adjustment corrects: figures of a request, or a difference between such.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Tokens of input, of all classes.
    pub input_tokens: i64,
    /// Tokens of output.
    pub output_tokens: i64,
    /// Money.
    pub cost_nanos: Nanos,
}

impl Figures {
    /// A request's as it was settled.
    pub fn of_settlement(settlement: &Settlement) -> Self {
        Self::of_usage(&settlement.usage, settlement.cost_nanos)
    }

    /// An adjustment's.
    pub fn of_adjustment(adjustment: &Adjustment) -> Self {
        Self {
            input_tokens: adjustment.input_tokens,
            output_tokens: adjustment.output_tokens,
            cost_nanos: adjustment.cost_nanos,
        }
    }

    /// Of so many tokens at this cost.
    pub fn of_usage(usage: &TokenUsage, cost_nanos: Nanos) -> Self {
        Self {
            input_tokens: i64::try_from(usage.input_tokens()).unwrap_or(i64::MAX),
            output_tokens: i64::try_from(usage.output_tokens).unwrap_or(i64::MAX),
            cost_nanos,
        }
    }

    /// Whether there is nothing in it.
    pub fn is_zero(self) -> bool {
        self == Self::default()
    }

    /// Whether any of it is below zero.
    pub fn is_below_zero(self) -> bool {
        self.input_tokens < 0 || self.output_tokens < 0 || self.cost_nanos < Nanos::ZERO
    }

    /// Whether it is more than one adjustment may change.
    pub fn is_too_large(self) -> bool {
        let is_beyond = |tokens: i64| !(-ADJUSTED_TOKENS_MAX..=ADJUSTED_TOKENS_MAX).contains(&tokens);
        is_beyond(self.input_tokens)
            || is_beyond(self.output_tokens)
            || !(-ADJUSTED_COST_MAX..=ADJUSTED_COST_MAX).contains(&self.cost_nanos)
    }
}

impl Add for Figures {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cost_nanos: self.cost_nanos + other.cost_nanos,
        }
    }
}

impl Sub for Figures {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_sub(other.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(other.output_tokens),
            cost_nanos: self.cost_nanos - other.cost_nanos,
        }
    }
}

impl std::iter::Sum for Figures {
    fn sum<I: Iterator<Item = Self>>(figures: I) -> Self {
        figures.fold(Self::default(), Add::add)
    }
}

/// What is right about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Correction {
    /// These tokens, or those that were settled, at this price.
    AtPrice {
        /// The right tokens; as settled, if absent.
        usage: Option<TokenUsage>,
        /// The price to charge them at.
        price: Price,
    },
    /// This cost.
    AtCost {
        /// The right tokens; as they are now, if absent.
        usage: Option<TokenUsage>,
        /// The right cost, at least zero.
        cost_nanos: Nanos,
    },
    /// It is wrong by so much.
    By(Figures),
}

/// A request before and after a correction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrected {
    /// With the adjustments that it has.
    pub before: Figures,
    /// What is adjusted.
    pub difference: Figures,
    /// With that, too.
    pub after: Figures,
}

/// Why a request is not corrected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub enum CorrectionError {
    /// It is so already.
    NothingChanges,
    /// Something of it would be below zero.
    BelowZero,
    /// More than one adjustment changes.
    TooLarge,
    /// Nobody knows by class what tokens it has now.
    ClassesUnknown,
}

impl CorrectionError {
    /// The message, for a reader in any language.
    pub fn text(self) -> Text {
        match self {
            Self::NothingChanges => text!("these are the figures that it has now, so there is nothing to correct"),
            Self::BelowZero => text!(
                "a request cannot be corrected below zero: with all its adjustments, tokens and cost are at least 0; \
                 write a smaller difference, or the right figures"
            ),
            Self::TooLarge => text!(
                "this is more than one adjustment may change: at most 1,000,000,000,000 tokens and 100,000,000 of the \
                 currency"
            ),
            Self::ClassesUnknown => text!(
                "its tokens have been corrected before, so nobody knows their classes; write the right tokens by class"
            ),
        }
    }
}

/// Puts a request right that was settled like this and has adjustments that come to `adjusted`.
pub fn correct(
    settlement: &Settlement,
    adjusted: Figures,
    correction: &Correction,
) -> Result<Corrected, CorrectionError> {
    let before = Figures::of_settlement(settlement) + adjusted;
    let after = match correction {
        Correction::AtPrice { usage, price } => {
            let has_other_tokens = adjusted.input_tokens != 0 || adjusted.output_tokens != 0;
            if usage.is_none() && has_other_tokens {
                return Err(CorrectionError::ClassesUnknown);
            }
            let usage = usage.as_ref().unwrap_or(&settlement.usage);
            Figures::of_usage(usage, price.cost(usage))
        }
        Correction::AtCost { usage, cost_nanos } => match usage {
            Some(usage) => Figures::of_usage(usage, *cost_nanos),
            None => Figures {
                cost_nanos: *cost_nanos,
                ..before
            },
        },
        Correction::By(difference) => before + *difference,
    };
    let difference = after - before;
    if difference.is_zero() {
        return Err(CorrectionError::NothingChanges);
    }
    if after.is_below_zero() {
        return Err(CorrectionError::BelowZero);
    }
    if difference.is_too_large() {
        return Err(CorrectionError::TooLarge);
    }
    Ok(Corrected {
        before,
        difference,
        after,
    })
}

#[cfg(test)]
mod tests;

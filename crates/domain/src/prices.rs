//! What a model's tokens cost: nano-units per million tokens, by class, with long-context tiers and validity.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::ids::PriceId;
use crate::money::Nanos;
use crate::usage::TokenUsage;

/// Rates of the token classes in nano-units per million tokens; at least zero. An explicit zero is a price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rates {
    /// Fresh input.
    pub input_nanos_per_mtok: i64,
    /// Input read from a cache.
    pub cache_read_nanos_per_mtok: i64,
    /// Input written to a cache for five minutes.
    pub cache_write_5m_nanos_per_mtok: i64,
    /// Input written to a cache for one hour.
    pub cache_write_1h_nanos_per_mtok: i64,
    /// Output, reasoning included.
    pub output_nanos_per_mtok: i64,
}

impl Rates {
    /// Rates of a provider that knows no cache: every input class costs the same.
    pub fn flat(input_nanos_per_mtok: i64, output_nanos_per_mtok: i64) -> Self {
        Self {
            input_nanos_per_mtok,
            cache_read_nanos_per_mtok: input_nanos_per_mtok,
            cache_write_5m_nanos_per_mtok: input_nanos_per_mtok,
            cache_write_1h_nanos_per_mtok: input_nanos_per_mtok,
            output_nanos_per_mtok,
        }
    }

    /// What `usage` costs class by class; their sum, rounded up once, is its cost.
    pub fn lines(&self, usage: &TokenUsage) -> [PriceLine; 5] {
        let line = |class, tokens, rate_nanos_per_mtok: i64| PriceLine {
            class,
            tokens,
            rate_nanos_per_mtok: rate_nanos_per_mtok.max(0),
        };
        [
            line("input_fresh", usage.input_fresh_tokens, self.input_nanos_per_mtok),
            line("cache_read", usage.cache_read_tokens, self.cache_read_nanos_per_mtok),
            line(
                "cache_write_5m",
                usage.cache_write_5m_tokens,
                self.cache_write_5m_nanos_per_mtok,
            ),
            line(
                "cache_write_1h",
                usage.cache_write_1h_tokens,
                self.cache_write_1h_nanos_per_mtok,
            ),
            line("output", usage.output_tokens, self.output_nanos_per_mtok),
        ]
    }

    /// The cost of `usage`: `sum(tokens * rate) / 1e6`, rounded up once.
    pub fn cost(&self, usage: &TokenUsage) -> Nanos {
        let millionths = self
            .lines(usage)
            .iter()
            .fold(0_i128, |sum, line| sum.saturating_add(line.nano_millionths()));
        Nanos(i64::try_from(millionths.saturating_add(999_999) / 1_000_000).unwrap_or(i64::MAX))
    }

    /// The dearest an input token can be, whichever class it turns out to be.
    pub fn dearest_input_nanos_per_mtok(&self) -> i64 {
        self.input_nanos_per_mtok
            .max(self.cache_read_nanos_per_mtok)
            .max(self.cache_write_5m_nanos_per_mtok)
            .max(self.cache_write_1h_nanos_per_mtok)
    }
}

/// Tokens of one class at their rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriceLine {
    /// The class, in the words of [`TokenUsage`]: `input_fresh`.
    pub class: &'static str,
    /// How many.
    pub tokens: u64,
    /// At which rate, in nano-units per million tokens; at least zero.
    pub rate_nanos_per_mtok: i64,
}

impl PriceLine {
    /// Tokens times rate, exact: in millionths of a nano-unit.
    pub fn nano_millionths(&self) -> i128 {
        i128::from(self.tokens).saturating_mul(i128::from(self.rate_nanos_per_mtok))
    }
}

/// Rates that apply to the whole request once its input is longer than a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceTier {
    /// Applies when all input classes together exceed this many tokens.
    pub above_input_tokens: u64,
    /// The rates then.
    #[serde(flatten)]
    pub rates: Rates,
}

/// One price row: in force from `valid_from` until `valid_until` (exclusive; open when absent).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// Which row; stored on every settlement.
    pub id: PriceId,
    /// The model's name.
    pub model: String,
    /// Start of validity.
    pub valid_from: DateTime<Utc>,
    /// End of validity, exclusive.
    pub valid_until: Option<DateTime<Utc>>,
    /// Rates below every tier.
    pub rates: Rates,
    /// Long-context tiers, in no particular order; at most eight.
    pub tiers: Vec<PriceTier>,
}

impl Price {
    /// Whether this row prices a request admitted at `admitted_at`.
    pub fn is_valid_at(&self, admitted_at: DateTime<Utc>) -> bool {
        self.valid_from <= admitted_at && self.valid_until.is_none_or(|end| admitted_at < end)
    }

    /// The rates for a request with so many input tokens.
    pub fn rates_for(&self, input_tokens: u64) -> &Rates {
        self.tiers
            .iter()
            .filter(|tier| input_tokens > tier.above_input_tokens)
            .max_by_key(|tier| tier.above_input_tokens)
            .map_or(&self.rates, |tier| &tier.rates)
    }

    /// What `usage` costs.
    pub fn cost(&self, usage: &TokenUsage) -> Nanos {
        self.rates_for(usage.input_tokens()).cost(usage)
    }

    /// The most that `input_tokens` and `output_tokens` can cost, in any class and any tier they can reach.
    pub fn ceiling(&self, input_tokens: u64, output_tokens: u64) -> Nanos {
        let reachable = self
            .tiers
            .iter()
            .filter(|tier| input_tokens > tier.above_input_tokens)
            .map(|tier| &tier.rates);
        std::iter::once(&self.rates)
            .chain(reachable)
            .map(|rates| {
                Rates::flat(rates.dearest_input_nanos_per_mtok(), rates.output_nanos_per_mtok).cost(&TokenUsage {
                    input_fresh_tokens: input_tokens,
                    output_tokens,
                    ..TokenUsage::default()
                })
            })
            .max()
            .unwrap_or(Nanos::ZERO)
    }
}

/// What happens to a request for a model that has no valid price.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "policy")]
pub enum Unpriced {
    /// Refuse it with `model_unpriced`.
    Refuse,
    /// Charge these rates and mark the row as unpriced.
    Charge(Rates),
}

#[cfg(test)]
mod tests;

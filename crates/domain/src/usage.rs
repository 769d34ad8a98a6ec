//! Token usage in classes that do not overlap.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Where the token figures of a settlement come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageSource {
    /// The provider said so.
    Reported,
    /// Counted here, because the provider said nothing.
    Estimated,
    /// Nothing was used: the provider was never reached or refused the request.
    #[default]
    None,
}

impl UsageSource {
    /// The word in SQL and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::Estimated => "estimated",
            Self::None => "none",
        }
    }
}

/// Tokens of one request, each counted in exactly one class. `reasoning` is the part of `output` that was not shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// Input that no cache answered.
    pub input_fresh_tokens: u64,
    /// Input read from the provider's cache.
    pub cache_read_tokens: u64,
    /// Input written to the provider's cache for five minutes (or the provider's only lifetime).
    pub cache_write_5m_tokens: u64,
    /// Input written to the provider's cache for one hour.
    pub cache_write_1h_tokens: u64,
    /// Everything generated, reasoning included.
    pub output_tokens: u64,
    /// The part of `output_tokens` that is reasoning; never added to it.
    pub reasoning_tokens: u64,
}

impl TokenUsage {
    /// Input of all classes.
    pub fn input_tokens(&self) -> u64 {
        self.input_fresh_tokens
            .saturating_add(self.cache_read_tokens)
            .saturating_add(self.cache_write_5m_tokens)
            .saturating_add(self.cache_write_1h_tokens)
    }

    /// Input and output.
    pub fn total_tokens(&self) -> u64 {
        self.input_tokens().saturating_add(self.output_tokens)
    }
}

impl AddAssign<&Self> for TokenUsage {
    fn add_assign(&mut self, other: &Self) {
        self.input_fresh_tokens = self.input_fresh_tokens.saturating_add(other.input_fresh_tokens);
        self.cache_read_tokens = self.cache_read_tokens.saturating_add(other.cache_read_tokens);
        self.cache_write_5m_tokens = self.cache_write_5m_tokens.saturating_add(other.cache_write_5m_tokens);
        self.cache_write_1h_tokens = self.cache_write_1h_tokens.saturating_add(other.cache_write_1h_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(other.reasoning_tokens);
    }
}

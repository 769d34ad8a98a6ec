//! What a request is thought to use before it has run.

use serde::{Deserialize, Serialize};

use crate::money::Nanos;

/// Tokens and money of one request: estimated before, actual after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amounts {
    /// Input tokens of all classes.
    pub input_tokens: u64,
    /// Output tokens, reasoning included.
    pub output_tokens: u64,
    /// What they cost.
    pub cost: Nanos,
}

impl Amounts {
    /// Input and output.
    pub fn total_tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

/// `expected` is what rates hold; `ceiling`, never below it in any field, is what budgets hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    /// About the 90th percentile of what such requests use.
    pub expected: Amounts,
    /// The most it can use: the output cap on the dearest route at the highest price tier it can reach.
    pub ceiling: Amounts,
}

//! Priorities: who goes first when a shared scope is nearly full.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// From least to most urgent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Background work.
    Low,
    /// Ordinary traffic.
    #[default]
    Default,
    /// People are waiting.
    High,
    /// The business stops without it.
    Critical,
}

impl Priority {
    /// All of them, ascending.
    pub const ALL: [Self; 4] = [Self::Low, Self::Default, Self::High, Self::Critical];

    /// The word in SQL, JSON, headers and pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Default => "default",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    /// What a request runs at: the key's priority, under the tenant's ceiling; `asked` may lower it, never raise it.
    pub fn effective(key: Self, ceiling: Self, asked: Option<Self>) -> Self {
        let allowed = key.min(ceiling);
        asked.map_or(allowed, |asked| asked.min(allowed))
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is none of the four priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a priority is one of low, default, high, critical")]
pub struct UnknownPriority;

impl FromStr for Priority {
    type Err = UnknownPriority;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|priority| priority.as_str() == text)
            .ok_or(UnknownPriority)
    }
}

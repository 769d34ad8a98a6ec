//! Priorities: who goes first when a shared scope is nearly full.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::money::Nanos;
use crate::text;
use crate::text::Text;

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

    /// The one above it; the highest is its own.
    #[must_use]
    pub fn next_higher(self) -> Self {
        match self {
            Self::Low => Self::Default,
            Self::Default => Self::High,
            Self::High | Self::Critical => Self::Critical,
        }
    }

    /// What a request runs at: the key's priority, under the tenant's ceiling; `asked` may lower it, never raise it.
    pub fn effective(key: Self, ceiling: Self, asked: Option<Self>) -> Self {
        let allowed = key.min(ceiling);
        asked.map_or(allowed, |asked| asked.min(allowed))
    }
}

/// What happened at one priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtPriority {
    /// Requests that ran.
    pub requests: u64,
    /// What they cost, adjustments included.
    pub charged: Nanos,
    /// Requests that a gate held back and that were refused for it.
    pub gated: u64,
}

/// What happened at each priority: whether traffic is divided among them, or everything is urgent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic([AtPriority; 4]);

impl Traffic {
    /// What happened at this one.
    pub fn at(&self, priority: Priority) -> &AtPriority {
        &self.0[priority as usize]
    }

    /// The same, to be filled in.
    pub fn at_mut(&mut self, priority: Priority) -> &mut AtPriority {
        &mut self.0[priority as usize]
    }

    /// Requests that ran.
    pub fn requests(&self) -> u64 {
        self.0.iter().map(|at| at.requests).sum()
    }

    /// What they cost.
    pub fn charged(&self) -> Nanos {
        self.0.iter().map(|at| at.charged).sum()
    }

    /// Requests that gates held back.
    pub fn gated(&self) -> u64 {
        self.0.iter().map(|at| at.gated).sum()
    }

    /// Requests that ran at `high` or `critical`: those that no gate holds back.
    pub fn urgent(&self) -> u64 {
        self.at(Priority::High).requests + self.at(Priority::Critical).requests
    }

    /// Whether more than half was urgent: then priorities divide little, and gates hold back the few that are modest.
    pub fn is_mostly_urgent(&self) -> bool {
        self.urgent() > self.requests() / 2
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is none of the four priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct UnknownPriority;

impl UnknownPriority {
    /// What is wrong.
    pub fn text(&self) -> Text {
        text!("a priority is one of low, default, high, critical")
    }
}

impl FromStr for Priority {
    type Err = UnknownPriority;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|priority| priority.as_str() == text)
            .ok_or(UnknownPriority)
    }
}

#[cfg(test)]
mod tests;

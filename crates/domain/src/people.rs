//! Who signs in, and what they may do.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text;
use crate::text::Text;

/// What a person may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything.
    Operator,
    /// Reads everything, changes nothing.
    Auditor,
    /// Runs one tenant: its people and keys.
    Manager,
    /// Own keys and own usage, within one tenant.
    Member,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Operator, Self::Auditor, Self::Manager, Self::Member];

    /// The word in SQL, JSON and pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Auditor => "auditor",
            Self::Manager => "manager",
            Self::Member => "member",
        }
    }

    /// Whether such a person belongs to one tenant.
    pub fn belongs_to_tenant(self) -> bool {
        matches!(self, Self::Manager | Self::Member)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is no role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct UnknownRole;

impl UnknownRole {
    /// What to write instead.
    pub fn text(&self) -> Text {
        text!("a role is one of operator, auditor, manager, member")
    }
}

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or(UnknownRole)
    }
}

//! Management tokens: what programs show at the JSON API, `tg-mgmt-<public id>-<secret><checksum>`, and what they may do
//! there.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::key_text::SecretHash;
use crate::secret_text::{self, Malformed, RANDOM_BYTES};
use crate::text;
use crate::text::Text;

const PREFIX: &str = "tg-mgmt-";

/// Defines [`Permission`] with its words.
macro_rules! permissions {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// One thing that a token may do. Not called a scope: that is a node of the quota tree. Tokens that were issued keep
        /// their words, so a word never changes; programs that do not know one yet pass it over.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Permission {
            $($(#[$doc])* #[serde(rename = $word)] $name,)*
        }

        impl Permission {
            /// All of them.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$name),*];

            /// The word in SQL, JSON and forms: `<noun>:read` or `<noun>:write`.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }
        }
    };
}

permissions! {
    /// Read reports.
    ReportsRead = "reports:read",
    /// Read settlements, rejections and adjustments.
    LedgerRead = "ledger:read",
    /// Book adjustments.
    AdjustmentsWrite = "adjustments:write",
    /// Read tenants.
    TenantsRead = "tenants:read",
    /// Make, change, suspend tenants.
    TenantsWrite = "tenants:write",
    /// Read plans.
    PlansRead = "plans:read",
    /// Make, change, remove plans.
    PlansWrite = "plans:write",
    /// Read who signs in.
    PeopleRead = "people:read",
    /// Invite people, change them and shut them out; operators only in person.
    PeopleWrite = "people:write",
    /// Read keys, without their secrets.
    KeysRead = "keys:read",
    /// Issue, change, revoke keys.
    KeysWrite = "keys:write",
    /// Read limits and budgets.
    LimitsRead = "limits:read",
    /// Set limits and budgets.
    LimitsWrite = "limits:write",
    /// Read models.
    ModelsRead = "models:read",
    /// Add and change models.
    ModelsWrite = "models:write",
    /// Read prices, past and to come.
    PricesRead = "prices:read",
    /// Add and remove prices.
    PricesWrite = "prices:write",
    /// Read upstreams, without their credentials.
    UpstreamsRead = "upstreams:read",
    /// Add and change upstreams.
    UpstreamsWrite = "upstreams:write",
    /// Read jobs, without what they carry.
    JobsRead = "jobs:read",
    /// Call jobs off.
    JobsWrite = "jobs:write",
    /// Ask what would become of a request.
    ExplainRead = "explain:read",
    /// Read the audit log.
    AuditRead = "audit:read",
}

impl Permission {
    /// What it is about: `tenants` of `tenants:read`.
    pub fn noun(self) -> &'static str {
        self.as_str().split(':').next().unwrap_or_default()
    }

    /// Whether only a token for the whole installation can have it: what operators alone may do or see.
    pub fn is_for_operators(self) -> bool {
        match self {
            Self::ReportsRead
            | Self::LedgerRead
            | Self::TenantsRead
            | Self::PeopleRead
            | Self::PeopleWrite
            | Self::KeysRead
            | Self::KeysWrite
            | Self::LimitsRead
            | Self::ModelsRead
            | Self::JobsRead
            | Self::JobsWrite
            | Self::ExplainRead
            | Self::AuditRead => false,
            Self::AdjustmentsWrite
            | Self::TenantsWrite
            | Self::PlansRead
            | Self::PlansWrite
            | Self::LimitsWrite
            | Self::ModelsWrite
            | Self::PricesRead
            | Self::PricesWrite
            | Self::UpstreamsRead
            | Self::UpstreamsWrite => true,
        }
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is no permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct UnknownPermission;

impl UnknownPermission {
    /// What to write instead.
    pub fn text(&self) -> Text {
        text!(
            "a permission is one of {permissions}",
            permissions = Permission::ALL.map(Permission::as_str).join(", ")
        )
    }
}

impl FromStr for Permission {
    type Err = UnknownPermission;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|permission| permission.as_str() == text)
            .ok_or(UnknownPermission)
    }
}

/// A whole token, secret included. As with a key, showing the secret is a deliberate call of [`TokenText::reveal`].
#[derive(Clone, PartialEq, Eq)]
pub struct TokenText(String);

/// Random bytes that [`TokenText::generate`] wants.
pub const TOKEN_RANDOM_BYTES: usize = RANDOM_BYTES;

/// The text cannot be a token of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedToken {
    /// Another prefix, length or alphabet.
    #[error("this is no management token (they look like tg-mgmt-<id>-<secret>)")]
    Shape,
    /// The checksum does not match: a character is wrong or missing.
    #[error("this management token is mistyped or cut off")]
    Checksum,
}

impl TokenText {
    /// A new token from random bytes.
    pub fn generate(random: &[u8; TOKEN_RANDOM_BYTES]) -> Self {
        Self(secret_text::generate(PREFIX, random))
    }

    /// Reads a token; checks shape and checksum, not whether it exists.
    pub fn parse(text: &str) -> Result<Self, MalformedToken> {
        secret_text::check(PREFIX, text).map_err(|malformed| match malformed {
            Malformed::Shape => MalformedToken::Shape,
            Malformed::Checksum => MalformedToken::Checksum,
        })?;
        Ok(Self(text.to_owned()))
    }

    /// The part that may be shown and logged.
    pub fn public_id(&self) -> &str {
        secret_text::public_id(PREFIX, &self.0)
    }

    /// What is stored instead of the secret.
    pub fn hash(&self) -> SecretHash {
        SecretHash::of(&self.0)
    }

    /// The whole text, to be shown once to whoever issued it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenText({PREFIX}{}-..)", self.public_id())
    }
}

/// How a token is shown everywhere after it was issued: `tg-mgmt-<public id>-…`.
pub fn masked(public_id: &str) -> String {
    secret_text::masked(PREFIX, public_id)
}

#[cfg(test)]
mod tests;

//! What is told of a key before it stops working, or before the secret that a rotation replaced does.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::json;
use uuid::Uuid;

use crate::ids::{KeyId, TenantId};
use crate::key_text::masked;

/// From how many days before on the end of a key is told of.
pub const KEY_EXPIRY_WARNING_DAYS: i64 = 7;
/// From how many days before on the end of an overlap is told of at most.
pub const OVERLAP_WARNING_DAYS_MAX: i64 = 1;
/// How long it is remembered after the end that it was told of, in days.
pub const KEY_WARNINGS_KEPT_DAYS: i64 = 30;

/// What ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyEnding {
    /// The key: all its requests are refused from then on.
    KeyExpires,
    /// The overlap of a rotation: the old secret stops working.
    OverlapEnds {
        /// When the key got its new secret.
        began_at: DateTime<Utc>,
    },
}

impl KeyEnding {
    /// The word in SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KeyExpires => "key_expires",
            Self::OverlapEnds { .. } => "overlap_ends",
        }
    }

    /// The event's name for the webhook.
    pub fn event(self) -> &'static str {
        match self {
            Self::KeyExpires => "key.expires",
            Self::OverlapEnds { .. } => "key.overlap_ends",
        }
    }

    /// From when on it is told of: a key's a week before, an overlap's a quarter of it before, a day at most.
    pub fn told_from(self, ends_at: DateTime<Utc>) -> DateTime<Utc> {
        match self {
            Self::KeyExpires => ends_at - TimeDelta::days(KEY_EXPIRY_WARNING_DAYS),
            Self::OverlapEnds { began_at } => {
                let quarter = (ends_at - began_at).max(TimeDelta::zero()) / 4;
                ends_at - quarter.min(TimeDelta::days(OVERLAP_WARNING_DAYS_MAX))
            }
        }
    }
}

/// A key that is about to end, or whose old secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndingKey {
    /// What ends.
    pub ending: KeyEnding,
    /// When.
    pub ends_at: DateTime<Utc>,
    /// Of which key.
    pub key_id: KeyId,
    /// The part of its text that may be shown.
    pub public_id: String,
    /// What people call it.
    pub name: String,
    /// Whose it is.
    pub tenant_id: TenantId,
    /// That tenant's name.
    pub tenant_name: String,
    /// The address of the person who owns it; a service account's key has none.
    pub owner_email: Option<String>,
    /// When what ends was last used, as far as gateways have written it down.
    pub last_used_at: Option<DateTime<Utc>>,
}

impl EndingKey {
    /// What the webhook is sent, under the event's own id.
    pub fn body(&self, id: Uuid, at: DateTime<Utc>) -> String {
        json!({
            "id": id,
            "event": self.ending.event(),
            "at": at,
            "key": {
                "id": self.key_id,
                "key": masked(&self.public_id),
                "name": self.name,
                "tenant_id": self.tenant_id,
                "tenant": self.tenant_name,
                "owner": self.owner_email,
                "ends_at": self.ends_at,
                "last_used_at": self.last_used_at,
            },
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests;

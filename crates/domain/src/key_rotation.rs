//! Rotation: a key gets a new secret and stays the same key. For a while, the overlap, the old secret works beside it.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::key_text::SecretHash;
use crate::policy::KeySecret;
use crate::text;
use crate::text::Text;

/// The longest overlap: 30 days.
pub const OVERLAP_SECONDS_MAX: u64 = 30 * 24 * 3_600;
/// How long the old secret goes on working: from not at all to [`OVERLAP_SECONDS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overlap(Duration);

/// The overlap is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct OverlapTooLong;

impl OverlapTooLong {
    /// What is wrong, for people.
    pub fn text(self) -> Text {
        text!("both secrets work for 30 days at most")
    }
}

impl Overlap {
    /// The old secret ends with the rotation.
    pub const AT_ONCE: Self = Self(Duration::ZERO);
    /// What is offered, the shortest first.
    pub const OFFERED: [Self; 5] = [
        Self::AT_ONCE,
        Self(Duration::from_secs(3_600)),
        Self(Duration::from_secs(24 * 3_600)),
        Self(Duration::from_secs(7 * 24 * 3_600)),
        Self(Duration::from_secs(OVERLAP_SECONDS_MAX)),
    ];

    /// So many seconds.
    ///
    /// # Errors
    /// Above [`OVERLAP_SECONDS_MAX`].
    pub fn of_seconds(seconds: u64) -> Result<Self, OverlapTooLong> {
        if seconds > OVERLAP_SECONDS_MAX {
            return Err(OverlapTooLong);
        }
        Ok(Self(Duration::from_secs(seconds)))
    }

    /// In whole seconds.
    pub fn seconds(self) -> u64 {
        self.0.as_secs()
    }

    /// When it ends that begins at `at`.
    pub fn end(self, at: DateTime<Utc>) -> DateTime<Utc> {
        at + self.0
    }
}

/// A day: long enough for a deployment, short enough that a lost secret does not work for long.
impl Default for Overlap {
    fn default() -> Self {
        Self::OFFERED[2]
    }
}

/// What becomes of the secrets that a key has when it gets another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Those that end at once.
    pub removed: Vec<SecretHash>,
    /// The one that works on, and until when.
    pub kept: Option<(SecretHash, DateTime<Utc>)>,
    /// Whether an overlap goes on in which the new secret stands in for the one that was to be the next: its text was lost.
    pub replaces_pending: bool,
}

impl Rotation {
    /// Decides at `now`. While an overlap runs, the old secret keeps its end and the pending one is replaced, so that whoever
    /// lost the answer loses nothing but time. Without overlap nothing but the new secret works, whatever was before.
    /// No secret outlives `ended`, the end that the key had with it: a new end is the new secret's alone.
    pub fn new(secrets: &[KeySecret], overlap: Overlap, ended: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Self {
        let old = secrets
            .iter()
            .filter_map(|secret| Some((secret.hash, secret.valid_until?)))
            .filter(|(_, until)| now < *until)
            .max_by_key(|(_, until)| *until);
        let current = secrets.iter().find(|secret| secret.valid_until.is_none());
        let kept = match (overlap, old, current) {
            (Overlap::AT_ONCE, ..) => None,
            (_, Some(old), _) => Some(old),
            (overlap, None, Some(current)) => {
                let until = overlap.end(now);
                Some((current.hash, ended.map_or(until, |ended| until.min(ended))))
            }
            (_, None, None) => None,
        };
        let stays = |hash: SecretHash| kept.is_some_and(|(kept, _)| kept == hash);
        Self {
            removed: secrets
                .iter()
                .map(|secret| secret.hash)
                .filter(|hash| !stays(*hash))
                .collect(),
            replaces_pending: old.is_some() && kept == old,
            kept,
        }
    }
}

#[cfg(test)]
mod tests;

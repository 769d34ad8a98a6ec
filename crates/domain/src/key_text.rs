//! The text of an API key: `sk-tg-<public id>-<secret><checksum>`, as [`crate::secret_text`] makes it. Only the SHA-256 of
//! the whole text is stored: the secret is too random to be guessed, so a slow hash would add latency and no safety.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::secret_text::{self, Malformed};

pub use crate::secret_text::RANDOM_BYTES as KEY_RANDOM_BYTES;

const PREFIX: &str = "sk-tg-";

/// SHA-256 of the whole text of a key or token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SecretHash(#[serde(with = "hex::serde")] pub [u8; 32]);

impl SecretHash {
    /// The hash under which `text` would be stored, whether or not it is well formed.
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretHash(..)")
    }
}

/// A whole key, secret included. It has no `Display`, and its `Debug` shows the public id only: showing the secret is a
/// deliberate call of [`KeyText::reveal`].
#[derive(Clone, PartialEq, Eq)]
pub struct KeyText(String);

/// The text cannot be a key of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedKey {
    /// Another prefix, length or alphabet.
    #[error("this is not a Tollgate key (they look like sk-tg-<id>-<secret>)")]
    Shape,
    /// The checksum does not match: a character is wrong or missing.
    #[error("this key is mistyped or cut off")]
    Checksum,
}

impl KeyText {
    /// A new key from random bytes.
    pub fn generate(random: &[u8; KEY_RANDOM_BYTES]) -> Self {
        Self(secret_text::generate(PREFIX, random))
    }

    /// A new secret for a key that keeps its public id, and so its place in logs and pages.
    pub fn renew(public_id: &str, random: &[u8; KEY_RANDOM_BYTES]) -> Self {
        Self(secret_text::renew(PREFIX, public_id, random))
    }

    /// Reads a key; checks shape and checksum, not whether it exists.
    pub fn parse(text: &str) -> Result<Self, MalformedKey> {
        secret_text::check(PREFIX, text).map_err(|malformed| match malformed {
            Malformed::Shape => MalformedKey::Shape,
            Malformed::Checksum => MalformedKey::Checksum,
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

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyText({PREFIX}{}-..)", self.public_id())
    }
}

/// How a key is shown everywhere after it was issued: `sk-tg-<public id>-…`.
pub fn masked(public_id: &str) -> String {
    secret_text::masked(PREFIX, public_id)
}

/// The public id in a key's text, whether it is shown masked, cut off or whole.
pub fn shown_public_id(text: &str) -> Option<&str> {
    let public_id = text.strip_prefix(PREFIX)?.split('-').next()?;
    (!public_id.is_empty()).then_some(public_id)
}

#[cfg(test)]
mod tests;

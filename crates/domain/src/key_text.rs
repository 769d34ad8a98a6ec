//! The text of an API key: `sk-tg-<public id>-<secret><checksum>`.
//!
//! The public id (12 of `0-9a-z`) is safe to log and show. The secret is 43 letters and digits, more than 256 bits. The
//! checksum, six letters and digits from a SHA-256 of what precedes it, tells a mistyped key from an unknown one without
//! a look-up. Only the SHA-256 of the whole text is stored: the secret is too random to be guessed, so a slow hash would
//! add latency and no safety.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const PREFIX: &str = "sk-tg-";
const PUBLIC_ID_CHARS: usize = 12;
const SECRET_CHARS: usize = 43;
const CHECKSUM_CHARS: usize = 6;
const LOWER: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
const ALPHANUMERIC: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Random bytes that [`KeyText::generate`] wants.
pub const KEY_RANDOM_BYTES: usize = 2 * (PUBLIC_ID_CHARS + SECRET_CHARS);

/// SHA-256 of a key's whole text.
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
        let (id, secret) = random.split_at(2 * PUBLIC_ID_CHARS);
        let body = format!("{PREFIX}{}-{}", letters(id, LOWER), letters(secret, ALPHANUMERIC));
        let checksum = checksum(&body);
        Self(body + &checksum)
    }

    /// Reads a key; checks shape and checksum, not whether it exists.
    pub fn parse(text: &str) -> Result<Self, MalformedKey> {
        let rest = text.strip_prefix(PREFIX).ok_or(MalformedKey::Shape)?;
        let (id, secret) = rest.split_once('-').ok_or(MalformedKey::Shape)?;
        let id_ok = id.len() == PUBLIC_ID_CHARS && id.bytes().all(|byte| LOWER.contains(&byte));
        let secret_ok =
            secret.len() == SECRET_CHARS + CHECKSUM_CHARS && secret.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !id_ok || !secret_ok {
            return Err(MalformedKey::Shape);
        }
        let (body, given) = text.split_at(text.len() - CHECKSUM_CHARS);
        if checksum(body) != given {
            return Err(MalformedKey::Checksum);
        }
        Ok(Self(text.to_owned()))
    }

    /// The part that may be shown and logged.
    pub fn public_id(&self) -> &str {
        &self.0[PREFIX.len()..PREFIX.len() + PUBLIC_ID_CHARS]
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
    format!("{PREFIX}{public_id}-…")
}

/// The public id in a key's text, whether it is shown masked, cut off or whole.
pub fn shown_public_id(text: &str) -> Option<&str> {
    let public_id = text.strip_prefix(PREFIX)?.split('-').next()?;
    (!public_id.is_empty()).then_some(public_id)
}

/// Two random bytes a letter: the bias of taking them modulo 62 is below one in a thousand.
fn letters(random: &[u8], alphabet: &[u8]) -> String {
    random
        .chunks_exact(2)
        .map(|pair| char::from(alphabet[usize::from(u16::from_be_bytes([pair[0], pair[1]])) % alphabet.len()]))
        .collect()
}

fn checksum(body: &str) -> String {
    let digest = Sha256::digest(body.as_bytes());
    letters(&digest[..2 * CHECKSUM_CHARS], ALPHANUMERIC)
}

#[cfg(test)]
mod tests;

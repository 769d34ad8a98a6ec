//! Sealing of what is stored but must not be readable in the database: upstream credentials, sessions,
//! the webhook, what jobs ask for and what they are answered, answers that may be given again.
//!
//! XChaCha20-Poly1305 under the installation's secret key; the random nonce precedes the sealed bytes, and the purpose
//! and the row's id are bound to them, so that a sealed value moved to another row does not open.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use crate::random::{self, Random};

/// Length of the secret key, bytes.
pub const SECRET_KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;
/// What is sealed under the key that starts a database first, to tell it from another later.
const CHECK_TEXT: &[u8] = b"tollgate";

/// What a sealed value is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The credential of the upstream with this id.
    UpstreamCredential,
    /// The data of a session.
    Session,
    /// The text that tells whether the secret key is the right one.
    KeyCheck,
    /// The policy snapshot that a gateway keeps on disk.
    PolicySnapshot,
    /// What the job with this id asks for.
    JobRequest,
    /// The answer to it.
    JobResponse,
    /// The answer to the request with this id, kept under its idempotency key.
    IdempotentAnswer,
    /// Where alerts are sent.
    WebhookUrl,
    /// What they are signed with.
    WebhookSecret,
}

impl Purpose {
    fn as_str(self) -> &'static str {
        match self {
            Self::UpstreamCredential => "upstream.credential",
            Self::Session => "session",
            Self::KeyCheck => "key.check",
            Self::PolicySnapshot => "policy.snapshot",
            Self::JobRequest => "job.request",
            Self::JobResponse => "job.response",
            Self::IdempotentAnswer => "idempotent.answer",
            Self::WebhookUrl => "webhook.url",
            Self::WebhookSecret => "webhook.secret",
        }
    }
}

/// The installation's secret key. Neither shown nor logged.
#[derive(Clone)]
pub struct SecretKey([u8; SECRET_KEY_BYTES]);

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

/// The text is no secret key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the secret key must be 32 bytes, written as 64 hexadecimal digits or in base64 (try: openssl rand -base64 32)"
)]
pub struct NotASecretKey;

/// The value was sealed under another key or for something else, or is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a sealed value cannot be opened: it was sealed under another secret key, or is damaged")]
pub struct CannotOpen;

impl SecretKey {
    /// A key from its bytes.
    pub fn from_bytes(bytes: [u8; SECRET_KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// A new key.
    pub fn generate(random: &dyn Random) -> Self {
        Self(random::bytes(random))
    }

    /// Reads a key from hexadecimal digits or base64 (either alphabet, padded or not); surrounding blanks are ignored.
    pub fn parse(text: &str) -> Result<Self, NotASecretKey> {
        let text = text.trim();
        let decoded = if text.len() == 2 * SECRET_KEY_BYTES {
            hex::decode(text).ok()
        } else {
            [&STANDARD, &STANDARD_NO_PAD, &URL_SAFE, &URL_SAFE_NO_PAD]
                .into_iter()
                .find_map(|engine| engine.decode(text).ok())
        };
        decoded
            .and_then(|bytes| bytes.try_into().ok())
            .map(Self)
            .ok_or(NotASecretKey)
    }

    /// The key in base64, for the file it is kept in.
    pub fn reveal(&self) -> String {
        STANDARD.encode(self.0)
    }

    /// Seals `plain` for one purpose and one row.
    pub fn seal(&self, purpose: Purpose, id: &str, plain: &[u8], random: &dyn Random) -> Vec<u8> {
        let nonce: [u8; NONCE_BYTES] = random::bytes(random);
        let bound = bound(purpose, id);
        let payload = Payload {
            msg: plain,
            aad: &bound,
        };
        let sealed = self
            .cipher()
            .encrypt(&XNonce::from(nonce), payload)
            .expect("only texts of many gigabytes cannot be sealed");
        [nonce.as_slice(), &sealed].concat()
    }

    /// Opens what was sealed for the same purpose and row.
    pub fn open(&self, purpose: Purpose, id: &str, sealed: &[u8]) -> Result<Vec<u8>, CannotOpen> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or(CannotOpen)?;
        let bound = bound(purpose, id);
        let payload = Payload {
            msg: sealed,
            aad: &bound,
        };
        self.cipher()
            .decrypt(&XNonce::from(*nonce), payload)
            .map_err(|_| CannotOpen)
    }

    /// What is kept in the settings to recognise this key.
    pub fn make_check(&self, random: &dyn Random) -> Vec<u8> {
        self.seal(Purpose::KeyCheck, "", CHECK_TEXT, random)
    }

    /// Whether `check` was made by this key.
    pub fn matches_check(&self, check: &[u8]) -> bool {
        self.open(Purpose::KeyCheck, "", check)
            .is_ok_and(|text| text == CHECK_TEXT)
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(&self.0.into())
    }
}

fn bound(purpose: Purpose, id: &str) -> Vec<u8> {
    format!("{}:{id}", purpose.as_str()).into_bytes()
}

#[cfg(test)]
mod tests;

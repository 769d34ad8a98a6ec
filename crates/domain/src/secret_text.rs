//! Texts that prove who somebody is: `<prefix><public id>-<secret><checksum>`.
//!
//! The public id (12 of `0-9a-z`) is safe to log and show. The secret is 43 letters and digits, more than 256 bits. The
//! checksum, six letters and digits from a SHA-256 of what precedes it, tells a mistyped text from an unknown one without
//! a look-up.

use sha2::{Digest, Sha256};

const PUBLIC_ID_CHARS: usize = 12;
const SECRET_CHARS: usize = 43;
const CHECKSUM_CHARS: usize = 6;
const LOWER: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
const ALPHANUMERIC: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Random bytes that [`generate`] wants.
pub const RANDOM_BYTES: usize = 2 * (PUBLIC_ID_CHARS + SECRET_CHARS);

/// Why a text cannot be one of ours.
pub(crate) enum Malformed {
    /// Another prefix, length or alphabet.
    Shape,
    /// The checksum does not match.
    Checksum,
}

/// A new text from random bytes.
pub(crate) fn generate(prefix: &str, random: &[u8; RANDOM_BYTES]) -> String {
    let public_id = letters(&random[..2 * PUBLIC_ID_CHARS], LOWER);
    renew(prefix, &public_id, random)
}

/// A new text for a public id that is in use already. The random bytes that would make an id are left unused.
pub(crate) fn renew(prefix: &str, public_id: &str, random: &[u8; RANDOM_BYTES]) -> String {
    let secret = letters(&random[2 * PUBLIC_ID_CHARS..], ALPHANUMERIC);
    let body = format!("{prefix}{public_id}-{secret}");
    let checksum = checksum(&body);
    body + &checksum
}

/// Whether shape and checksum are right.
pub(crate) fn check(prefix: &str, text: &str) -> Result<(), Malformed> {
    let rest = text.strip_prefix(prefix).ok_or(Malformed::Shape)?;
    let (id, secret) = rest.split_once('-').ok_or(Malformed::Shape)?;
    let id_ok = id.len() == PUBLIC_ID_CHARS && id.bytes().all(|byte| LOWER.contains(&byte));
    let secret_ok =
        secret.len() == SECRET_CHARS + CHECKSUM_CHARS && secret.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !id_ok || !secret_ok {
        return Err(Malformed::Shape);
    }
    let (body, given) = text.split_at(text.len() - CHECKSUM_CHARS);
    if checksum(body) == given {
        Ok(())
    } else {
        Err(Malformed::Checksum)
    }
}

/// The part of a text of ours that may be shown and logged.
pub(crate) fn public_id<'a>(prefix: &str, text: &'a str) -> &'a str {
    &text[prefix.len()..prefix.len() + PUBLIC_ID_CHARS]
}

/// How a text is shown after it was issued.
pub(crate) fn masked(prefix: &str, public_id: &str) -> String {
    format!("{prefix}{public_id}-…")
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

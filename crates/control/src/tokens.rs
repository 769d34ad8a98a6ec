//! Tokens of one-time links: shown once, kept as a hash.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use store::random::{self, Random};

const TOKEN_BYTES: usize = 32;

/// The secret part of a one-time link. Neither shown nor logged but by [`LinkToken::reveal`].
#[derive(Clone, PartialEq, Eq)]
pub struct LinkToken(String);

impl LinkToken {
    pub(crate) fn generate(random: &dyn Random) -> Self {
        Self(URL_SAFE_NO_PAD.encode(random::bytes::<TOKEN_BYTES>(random)))
    }

    /// The text, fit for a URL's path, to be shown once.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for LinkToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkToken(..)")
    }
}

/// What is stored in place of a token.
pub(crate) fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.trim().as_bytes()).into()
}

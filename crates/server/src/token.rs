//! `tollgate token generate`.

use domain::management_tokens::{TOKEN_RANDOM_BYTES, TokenText};
use store::random::{self, SystemRandom};

/// A new token. Nobody knows of it until a gateway adopts it.
pub fn generate() -> TokenText {
    TokenText::generate(&random::bytes::<TOKEN_RANDOM_BYTES>(&SystemRandom))
}

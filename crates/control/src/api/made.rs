//! Ids that callers make for what has no name of its own, so that a call that is repeated because its answer was lost makes
//! nothing twice.

use domain::ids::ManagementTokenId;
use http::HeaderMap;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::Actor;
use crate::fields::Fields;

/// The longest idempotency key, in characters.
pub(super) const IDEMPOTENCY_KEY_CHARS_MAX: usize = 255;

/// The caller's own id, or one made from its idempotency key. `what` tells apart what the same key makes.
pub(super) fn made_id(
    actor: &Actor,
    headers: &HeaderMap,
    what: &'static str,
    given: &str,
    fields: &mut Fields,
) -> Option<Uuid> {
    let key = headers.get("idempotency-key").map(|key| key.to_str().map(str::trim));
    let key = match key {
        None => None,
        Some(Ok(key)) if (1..=IDEMPOTENCY_KEY_CHARS_MAX).contains(&key.len()) => Some(key),
        Some(_) => {
            let message = format!("write 1 to {IDEMPOTENCY_KEY_CHARS_MAX} plain characters");
            fields.refuse_call("Idempotency-Key", message);
            return None;
        }
    };
    if !given.is_empty() {
        let id = given.parse().ok();
        if id.is_none() {
            fields.refuse_call("id", format!("write a UUID that you have made for this {what}"));
        }
        return id;
    }
    match (key, actor) {
        (Some(key), Actor::Token(token)) => Some(id_of_key(token.id, what, key)),
        _ => {
            let message = format!(
                "send the header Idempotency-Key (at most {IDEMPOTENCY_KEY_CHARS_MAX} characters), or a UUID of your own \
                 here, so that a call that is repeated makes no second {what}"
            );
            fields.refuse_call("id", message);
            None
        }
    }
}

/// The same key of another token means something else.
fn id_of_key(token: ManagementTokenId, what: &str, key: &str) -> Uuid {
    let digest = Sha256::digest(format!("{what} {token} {key}"));
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

//! Who is calling: the key's text against the policy snapshot, without any input or output.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use domain::key_text::{KeyText, MalformedKey};
use domain::key_warnings::KeyEnding;
use domain::policy::{Key, KeySecret};
use domain::priority::Priority;
use domain::refusals::RefusalCode;
use http::HeaderMap;
use protocol::headers::key_text;

use crate::policy::{PolicySnapshot, TenantPolicy};

/// A caller whose key is known, with the policy it is judged by throughout the request.
#[derive(Clone)]
pub struct Caller {
    /// The policy.
    pub policy: Arc<PolicySnapshot>,
    /// Its key.
    pub key: Arc<Key>,
    /// The key's tenant.
    pub tenant: Arc<TenantPolicy>,
    /// The secret that it has shown, if it has shown one: while a rotation's overlap runs, a key has two.
    pub secret: Option<KeySecret>,
}

/// Why nobody can be held to account for a request. Leaves no ledger row: there is no account to put it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unauthenticated {
    /// No key was sent.
    #[error("No API key was sent. Send it as `Authorization: Bearer <key>` or in `x-api-key`.")]
    NoKey,
    /// It cannot be a key of this gateway.
    #[error("The API key is not valid: {0}. Check that it was copied whole.")]
    Malformed(MalformedKey),
    /// Well formed, but nobody issued it.
    #[error("The API key is not known here. It may have been rotated or issued elsewhere.")]
    Unknown,
    /// Perhaps issued just now; the database cannot be asked.
    #[error("The API key cannot be verified at the moment. Keep it and retry shortly.")]
    Unverifiable,
}

impl Unauthenticated {
    /// Its code.
    pub fn code(self) -> RefusalCode {
        match self {
            Self::NoKey | Self::Malformed(_) | Self::Unknown => RefusalCode::InvalidKey,
            Self::Unverifiable => RefusalCode::KeyUnverifiable,
        }
    }
}

/// Finds the caller. `can_tell_unknown_keys` says whether the snapshot is fresh enough to call a key unknown.
pub fn authenticate(
    headers: &HeaderMap,
    policy: Option<Arc<PolicySnapshot>>,
    can_tell_unknown_keys: bool,
    at: DateTime<Utc>,
) -> Result<Caller, Unauthenticated> {
    let presented = key_text(headers).ok_or(Unauthenticated::NoKey)?;
    let text = KeyText::parse(presented).map_err(Unauthenticated::Malformed)?;
    let not_found = if can_tell_unknown_keys {
        Unauthenticated::Unknown
    } else {
        Unauthenticated::Unverifiable
    };
    let policy = policy.ok_or(not_found)?;
    let (key, secret) = policy.find_key(&text.hash(), at).ok_or(not_found)?;
    let (key, secret) = (Arc::clone(key), Some(secret.clone()));
    let tenant = Arc::clone(policy.find_tenant(key.tenant_id).ok_or(not_found)?);
    Ok(Caller {
        policy,
        key,
        tenant,
        secret,
    })
}

impl Caller {
    /// Why this known key may not be used at `at`, if it may not.
    pub fn refusal_at(&self, at: DateTime<Utc>) -> Option<(RefusalCode, &'static str)> {
        if self.key.revoked_at.is_some_and(|revoked| revoked <= at) {
            return Some((RefusalCode::KeyRevoked, "This API key was revoked. Use another key."));
        }
        if self.key.expires_at.is_some_and(|expires| expires <= at) {
            return Some((
                RefusalCode::KeyExpired,
                "This API key has expired. Rotate it in the console with a later expiry, or use another key.",
            ));
        }
        if self.tenant.tenant.suspended_at.is_some_and(|suspended| suspended <= at) {
            return Some((
                RefusalCode::TenantSuspended,
                "This tenant is suspended. Ask your platform operator.",
            ));
        }
        None
    }

    /// What its requests run at, at most: its tenant's ceiling, and for people's keys the rules for those.
    pub fn priority_ceiling(&self) -> Priority {
        self.tenant.ceiling_of(&self.key)
    }

    /// When what the caller authenticates with ends, if that should be known at `at`: of an old secret always, of the key
    /// in its last days.
    pub fn ends_soon_at(&self, at: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let is_soon = |expires: &DateTime<Utc>| KeyEnding::KeyExpires.told_from(*expires) <= at;
        let expires = self.key.expires_at.filter(is_soon);
        let secret_until = self.secret.as_ref().and_then(|secret| secret.valid_until);
        secret_until.into_iter().chain(expires).min()
    }
}

#[cfg(test)]
mod tests;

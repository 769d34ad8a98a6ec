//! Rotation: a key gets a new secret and keeps its id, its counters and what it may do.

use chrono::{DateTime, Utc};
use domain::ids::KeyId;
use domain::key_rotation::{Overlap, Rotation};
use domain::key_rules::KeyPowers;
use domain::key_text::{KEY_RANDOM_BYTES, KeyText};
use domain::management_tokens::Permission;
use domain::text;
use serde_json::{Value, json};
use store::keys::{KeyRow, KeyValues};
use store::{keys, random, tenants};

use super::choices::{About, Latitude};
use super::{Expiry, IssuedKey, NOT_FOUND, changed, has_ended, lock, require_room, revoked_already};
use crate::fields::Fields;
use crate::{Actor, Control, ControlError, commit};

/// How a key is rotated. An overlap alone is one that leaves the end as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotationDraft {
    /// How long the secret before works on.
    pub overlap: Overlap,
    /// When the key ends from then on; as before where absent.
    pub expiry: Option<Expiry>,
}

impl From<Overlap> for RotationDraft {
    fn from(overlap: Overlap) -> Self {
        Self { overlap, expiry: None }
    }
}

impl Control {
    /// Gives a key another secret. The text in the answer is the only copy. The secret before works on for the overlap.
    ///
    /// What its tenant's rules for people's keys do not allow any more, it loses. Its end it keeps, if they allow it, unless
    /// another one is chosen: its life begins anew, so one within the longest life from now on.
    ///
    /// A key that has expired comes back with an end that is chosen. No secret that it had works again, whatever overlap is
    /// asked for.
    ///
    /// Whoever lost the answer rotates again: while an overlap runs, the pending secret is replaced, and the old one keeps its
    /// end, whatever overlap is asked for. No secret outlives the end that the key had with it. Without an overlap ([`Overlap::AT_ONCE`]) nothing but the new secret works.
    /// Fields `key`, `expiry`.
    pub async fn rotate_key(
        &self,
        actor: &Actor,
        id: KeyId,
        version: i64,
        draft: impl Into<RotationDraft>,
        now: DateTime<Utc>,
    ) -> Result<IssuedKey, ControlError> {
        actor.require_permission(Permission::KeysWrite)?;
        let RotationDraft { mut overlap, expiry } = draft.into();
        let tenant_id = self.key_to_change(actor, id).await?.tenant_id;
        let zone = self.zone().await?;
        let mut transaction = self.store.begin().await?;
        let tenant = tenants::lock(&mut transaction, tenant_id)
            .await?
            .ok_or(ControlError::NotFound { what: "tenant" })?;
        let before = lock(&mut transaction, id, version).await?;
        let has_ended = has_ended(&before, now);
        if expiry.is_none() || before.revoked_at.is_some() {
            require_usable(&before, now)?;
        }
        let about = About::rotated(&tenant, &before);
        let values = renewed(&Latitude::new(actor, &about, now, zone), &before, expiry)?;
        if has_ended {
            overlap = Overlap::AT_ONCE;
            require_room(&mut transaction, "key", &tenant, before.owner_id, now).await?;
        }
        if values != values_of(&before) {
            keys::update(&mut transaction, id, &values).await?;
        }
        let secrets = keys::secrets(&mut transaction, id).await?;
        let rotation = Rotation::new(&secrets, overlap, before.expires_at, now);
        let text = KeyText::renew(&before.public_id, &random::bytes::<KEY_RANDOM_BYTES>(&*self.random));
        keys::rotate(&mut transaction, id, &rotation, text.hash(), now, actor.person_id()).await?;
        let row = keys::lock(&mut transaction, id).await?.ok_or(NOT_FOUND)?;
        let action = if rotation.replaces_pending {
            "key.replace_secret"
        } else {
            "key.rotate"
        };
        let change = changed(action, &row, Some(shown(&before)), Some(shown(&row)));
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await?;
        Ok(IssuedKey { row, text })
    }

    /// Ends the overlap now: only the new secret works. Where none runs, nothing changes. Field `key`.
    pub async fn end_overlap(
        &self,
        actor: &Actor,
        id: KeyId,
        version: i64,
        now: DateTime<Utc>,
    ) -> Result<KeyRow, ControlError> {
        actor.require_permission(Permission::KeysWrite)?;
        self.key_to_change(actor, id).await?;
        let mut transaction = self.store.begin().await?;
        let before = lock(&mut transaction, id, version).await?;
        require_usable(&before, now)?;
        let secrets = keys::secrets(&mut transaction, id).await?;
        let old = secrets.iter().filter(|secret| secret.valid_until.is_some());
        let old: Vec<_> = old.map(|secret| secret.hash).collect();
        if old.is_empty() {
            return Ok(before);
        }
        keys::end_secrets(&mut transaction, id, &old).await?;
        let after = keys::lock(&mut transaction, id).await?.ok_or(NOT_FOUND)?;
        let change = changed("key.end_overlap", &after, Some(shown(&before)), Some(shown(&after)));
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await?;
        Ok(after)
    }
}

/// What the key is with its new secret: held to the rules anew, and with the end that was chosen.
fn renewed(latitude: &Latitude<'_>, before: &KeyRow, expiry: Option<Expiry>) -> Result<KeyValues, ControlError> {
    let kept = latitude.kept(before);
    let mut values = KeyValues {
        priority: kept.priority,
        allowed_models: kept.models.clone(),
        expires_at: kept.expires_at,
        ..values_of(before)
    };
    let Some(expiry) = expiry else {
        return Ok(values);
    };
    let mut fields = Fields::default();
    let powers = KeyPowers {
        expires_at: latitude.chosen_end(&mut fields, expiry),
        ..kept.clone()
    };
    latitude.check_end(&mut fields, powers.expires_at);
    fields.check()?;
    values.expires_at = powers.expires_at;
    values.bounds = latitude.bounds_after(Some(&kept), &powers);
    Ok(values)
}

fn values_of(key: &KeyRow) -> KeyValues {
    KeyValues {
        name: key.name.clone(),
        priority: key.priority,
        allowed_models: key.allowed_models.clone(),
        may_name_users: key.may_name_users,
        degrades: key.degrades,
        expires_at: key.expires_at,
        bounds: key.bounds.clone(),
    }
}

fn require_usable(key: &KeyRow, now: DateTime<Utc>) -> Result<(), ControlError> {
    if key.revoked_at.is_some() {
        return Err(revoked_already());
    }
    if has_ended(key, now) {
        return Err(ControlError::field(
            "key",
            text!("this key has expired; to bring it back, rotate it and choose a later expiry"),
        ));
    }
    Ok(())
}

fn shown(key: &KeyRow) -> Value {
    json!({
        "public_id": key.public_id,
        "rotated_at": key.rotated_at,
        "old_secret_until": key.old_secret_until,
        "priority": key.priority,
        "allowed_models": key.allowed_models,
        "expires_at": key.expires_at,
    })
}

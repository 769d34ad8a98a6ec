//! Rotation: a key gets a new secret and keeps its id, its counters and what it may do.

use chrono::{DateTime, Utc};
use domain::ids::KeyId;
use domain::key_rotation::{Overlap, Rotation};
use domain::key_text::{KEY_RANDOM_BYTES, KeyText};
use domain::management_tokens::Permission;
use domain::text;
use serde_json::{Value, json};
use store::keys::KeyRow;
use store::{keys, random, tenants};

use super::{IssuedKey, NOT_FOUND, changed, lock, revoked_already};
use crate::{Actor, Control, ControlError, commit};

impl Control {
    /// Gives a key another secret. The text in the answer is the only copy. The secret before works on for the overlap.
    ///
    /// What its tenant's rules for people's keys do not allow any more, it loses; its end it keeps, if they allow it.
    ///
    /// Whoever lost the answer rotates again: while an overlap runs, the pending secret is replaced, and the old one keeps its
    /// end, whatever overlap is asked for. Without an overlap ([`Overlap::AT_ONCE`]) nothing but the new secret works.
    /// Field `key`.
    pub async fn rotate_key(
        &self,
        actor: &Actor,
        id: KeyId,
        version: i64,
        overlap: Overlap,
        now: DateTime<Utc>,
    ) -> Result<IssuedKey, ControlError> {
        actor.require_permission(Permission::KeysWrite)?;
        let tenant_id = self.key_to_change(actor, id).await?.tenant_id;
        let zone = self.zone().await?;
        let mut transaction = self.store.begin().await?;
        let tenant = tenants::lock(&mut transaction, tenant_id)
            .await?
            .ok_or(ControlError::NotFound { what: "tenant" })?;
        let before = lock(&mut transaction, id, version).await?;
        require_usable(&before, now)?;
        // Its life begins anew, so it is held to the rules anew.
        let confined = match before.owner_id {
            Some(_) => tenant.tenant.key_rules.confine(before.powers(), now, zone),
            None => before.powers(),
        };
        if confined != before.powers() {
            keys::confine(&mut transaction, id, &confined).await?;
        }
        let secrets = keys::secrets(&mut transaction, id).await?;
        let rotation = Rotation::new(&secrets, overlap, now);
        let text = KeyText::renew(&before.public_id, &random::bytes::<KEY_RANDOM_BYTES>(&*self.random));
        keys::rotate(&mut transaction, id, &rotation, text.hash(), now).await?;
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

fn require_usable(key: &KeyRow, now: DateTime<Utc>) -> Result<(), ControlError> {
    if key.revoked_at.is_some() {
        return Err(revoked_already());
    }
    if key.expires_at.is_some_and(|at| at <= now) {
        return Err(ControlError::field(
            "key",
            text!("this key has expired; choose a later expiry first, or issue another one"),
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

//! Limits that the owner of a key sets below those of the operators.

use chrono::{DateTime, Utc};
use domain::ids::KeyId;
use domain::management_tokens::Permission;
use domain::own_limits::OwnLimits;
use serde_json::json;
use store::keys;
use store::keys::KeyRow;

use super::{NOT_FOUND, changed, lock, revoked_already};
use crate::fields::Fields;
use crate::limits::NodeLimits;
use crate::{Actor, Control, ControlError, commit};

impl Control {
    /// Whether the actor sets this key's own limits: its owner, or for a service account's key whoever runs the tenant.
    /// Nobody else, so that an owner's limit is lifted by nobody but the owner.
    pub fn sets_own_limits(&self, actor: &Actor, key: &KeyRow) -> bool {
        match key.owner_id {
            Some(owner) => actor.person_id() == Some(owner),
            None => actor.may_run(key.tenant_id),
        }
    }

    /// Makes a key's own limits what is given. They hold beside the operators', and only ever lower what those allow.
    /// Fields as those of a node's plain limits, and `key`.
    pub async fn set_own_limits(
        &self,
        actor: &Actor,
        id: KeyId,
        version: i64,
        wanted: &NodeLimits,
        now: DateTime<Utc>,
    ) -> Result<KeyRow, ControlError> {
        actor.require_permission(Permission::KeysWrite)?;
        let key = self.key_to_change(actor, id).await?;
        if !self.sets_own_limits(actor, &key) {
            return Err(ControlError::Forbidden);
        }
        let mut fields = Fields::default();
        wanted.validate(&mut fields);
        fields.check()?;
        let mut transaction = self.store.begin().await?;
        let before = lock(&mut transaction, id, version).await?;
        if before.revoked_at.is_some() {
            return Err(revoked_already());
        }
        let own = OwnLimits::from(wanted);
        keys::set_own_limits(&mut transaction, id, &own).await?;
        let after = keys::lock(&mut transaction, id).await?.ok_or(NOT_FOUND)?;
        let shown = |own: &OwnLimits| Some(json!({ "own_limits": own }));
        let change = changed("key.own_limits", &after, shown(&before.own_limits), shown(&own));
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await?;
        Ok(after)
    }
}

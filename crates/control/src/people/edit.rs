//! Changing somebody: what they are called, where they sign in, what they may do, whose they are.

use chrono::{DateTime, Utc};
use domain::ids::PersonId;
use domain::management_tokens::Permission;
use domain::people::Role;
use domain::text;
use serde_json::{Value, json};
use store::keys::KeysOf;
use store::people::{Person, PersonValues};
use store::{keys, people, sessions};

use super::{
    GONE, Kept, PersonDraft, checked, require_person_for_operator, require_tenant, require_version, shown, subject,
};
use crate::audit::Change;
use crate::{Actor, Control, ControlError, commit};

/// What is to become of somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonEdit {
    /// As they are to be.
    pub person: PersonDraft,
    /// Field `revokes_keys`: how many keys of theirs the editor knows to be revoked with a move out of their tenant. It must
    /// be as many as there are.
    pub revokes_keys: Option<usize>,
    /// What goes on of what they issued, where they could not issue it any more.
    pub kept: Kept,
}

impl Control {
    /// Changes somebody. Operators anybody, but not their own role or tenant; managers only who of their tenant's other
    /// people are managers too; programs as those do, and nobody who is an operator or is to be one. Fields `name`, `email`, `role`, `tenant_id`, `revokes_keys`.
    ///
    /// Another role or tenant ends their sessions. Keys stay with their tenant, so those of somebody who leaves it are revoked;
    /// and so is what they issued and could not issue any more, unless it is to be kept. Management tokens stay where a manager
    /// changes somebody's role: an operator kept them when that person lost the right to issue any.
    pub async fn edit_person(
        &self,
        actor: &Actor,
        id: PersonId,
        version: i64,
        edit: &PersonEdit,
        now: DateTime<Utc>,
    ) -> Result<Person, ControlError> {
        actor.require_permission(Permission::PeopleWrite)?;
        let values = checked(&edit.person, None)?;
        let mut transaction = self.store.begin().await?;
        // Tenants before people, as where keys are issued.
        require_tenant(&mut transaction, values.tenant_id).await?;
        let operators = people::lock_operators(&mut transaction).await?;
        let person = self.lock_within(&mut transaction, actor, id).await?;
        require_version(&person, version)?;
        let before = values_of(&person);
        require_may_edit(actor, id, &before, &values)?;
        if before == values {
            return Ok(person);
        }
        if operators == [id] && values.role != Role::Operator {
            return Err(ControlError::field(
                "role",
                text!("this is the last operator; invite another one first"),
            ));
        }
        let mut after = shown(&values);
        if before.tenant_id.is_some() && values.tenant_id != before.tenant_id {
            let owned = keys::lock_unrevoked(&mut transaction, KeysOf::Owner(id)).await?.len();
            if owned > 0 && edit.revokes_keys != Some(owned) {
                let message = if owned == 1 {
                    text!("with their tenant they lose their key, for good; tick the box to do it")
                } else {
                    text!(
                        "with their tenant they lose their {count} keys, for good; tick the box to do it",
                        count = owned
                    )
                };
                return Err(ControlError::field("revokes_keys", message));
            }
            after["revoked_keys"] = json!(self.revoke_owned(&mut transaction, actor, id, now).await?);
        }
        people::update(&mut transaction, id, &values).await?;
        if moves(&before, &values) {
            after["ended_sessions"] = json!(sessions::delete_of(&mut transaction, id).await?);
            let issued = self
                .revoke_issued(&mut transaction, actor, id, Some(&values), edit.kept, now)
                .await?;
            after["revoked_service_keys"] = json!(issued.service_keys);
            after["revoked_management_tokens"] = json!(issued.management_tokens);
        }
        if let Some(left) = before.tenant_id.filter(|left| values.tenant_id != Some(*left)) {
            // For the tenant's manager, who does not see what becomes of them elsewhere.
            let change = Change {
                action: "person.leave",
                subject: subject(id),
                tenant_id: Some(left),
                before: Some(shown(&before)),
                after: None,
            };
            self.note(&mut transaction, actor, now, change).await?;
        }
        let change = edited(id, &values, shown(&before), after);
        self.note(&mut transaction, actor, now, change).await?;
        let person = people::lock(&mut transaction, id).await?.ok_or(GONE)?;
        commit(transaction).await?;
        Ok(person)
    }
}

fn values_of(person: &Person) -> PersonValues {
    PersonValues {
        email: person.email.clone(),
        name: person.name.clone(),
        role: person.role,
        tenant_id: person.tenant_id,
    }
}

fn moves(before: &PersonValues, after: &PersonValues) -> bool {
    before.role != after.role || before.tenant_id != after.tenant_id
}

/// Refuses what this actor may not change about this person, whom they may change otherwise.
fn require_may_edit(
    actor: &Actor,
    id: PersonId,
    before: &PersonValues,
    after: &PersonValues,
) -> Result<(), ControlError> {
    let is_self = actor.person_id() == Some(id);
    if !actor.is_operator() {
        let stays = after.name == before.name && after.email == before.email && after.tenant_id == before.tenant_id;
        return if stays && !is_self && after.role.belongs_to_tenant() {
            Ok(())
        } else {
            Err(ControlError::Forbidden)
        };
    }
    if is_self && moves(before, after) {
        return Err(ControlError::field(
            "role",
            text!("another operator has to change your own role"),
        ));
    }
    // Who is an operator already was kept from programs when they were locked.
    require_person_for_operator(actor, after.role)
}

fn edited(id: PersonId, values: &PersonValues, before: Value, after: Value) -> Change {
    Change {
        action: "person.edit",
        subject: subject(id),
        tenant_id: values.tenant_id,
        before: Some(before),
        after: Some(after),
    }
}

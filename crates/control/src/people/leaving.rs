//! What goes with somebody who is shut out, moved or demoted: the keys that they own, and what they have issued that would
//! go on without them.

use chrono::{DateTime, Utc};
use domain::ids::{KeyId, ManagementTokenId, PersonId, TenantId};
use domain::people::Role;
use store::keys::{KeyRow, KeysOf};
use store::management_tokens::ManagementTokenRow;
use store::people::PersonValues;
use store::{Transaction, keys, management_tokens};

use crate::actor::Reach;
use crate::{Actor, Control, ControlError};

/// What of somebody's issuing is to go on without them: nothing, unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Service accounts' keys that they issued.
    pub service_keys: bool,
    /// Management tokens that they issued.
    pub management_tokens: bool,
}

/// What somebody has issued that goes on without them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Issued {
    /// Service accounts' keys that are not revoked.
    pub service_keys: Vec<KeyRow>,
    /// Management tokens that work, for those who may see them.
    pub management_tokens: Vec<ManagementTokenRow>,
    /// How many work.
    pub management_token_count: usize,
}

/// What was revoked of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Revoked {
    pub(super) service_keys: Vec<KeyId>,
    pub(super) management_tokens: Vec<ManagementTokenId>,
}

impl Control {
    /// What somebody has issued: service accounts' keys as far as the actor may run them. Of management tokens those who run
    /// one tenant learn how many there are.
    pub(super) async fn issued_by(
        &self,
        actor: &Actor,
        id: PersonId,
        now: DateTime<Utc>,
    ) -> Result<Issued, ControlError> {
        let within = within(actor)?;
        let of = KeysOf::IssuedBy {
            person: id,
            within,
            without: None,
        };
        let tokens = self.store.live_management_tokens_of(id, now).await?;
        Ok(Issued {
            service_keys: self.store.unrevoked_keys(of).await?,
            management_token_count: tokens.len(),
            management_tokens: match within {
                None => tokens,
                Some(_) => Vec::new(),
            },
        })
    }

    /// Revokes every key that somebody owns; which.
    pub(super) async fn revoke_owned(
        &self,
        transaction: &mut Transaction,
        actor: &Actor,
        id: PersonId,
        now: DateTime<Utc>,
    ) -> Result<Vec<KeyId>, ControlError> {
        let owned = keys::lock_unrevoked(transaction, KeysOf::Owner(id)).await?;
        self.revoke_keys(transaction, actor, &owned, now).await
    }

    /// Revokes what somebody has issued and could not issue as `after` any more; everything, if they are shut out. What is
    /// kept stays, and so do service accounts' keys of tenants that the actor does not run.
    ///
    /// A management token acts by itself, and whoever issued it has seen its text: with some they could open their account
    /// again. So whoever shuts somebody out ends all of them, and only those who issue and revoke tokens may keep any.
    pub(super) async fn revoke_issued(
        &self,
        transaction: &mut Transaction,
        actor: &Actor,
        id: PersonId,
        after: Option<&PersonValues>,
        kept: Kept,
        now: DateTime<Utc>,
    ) -> Result<Revoked, ControlError> {
        let mut revoked = Revoked::default();
        if after.is_some_and(|person| person.role == Role::Operator) {
            return Ok(revoked);
        }
        let within = within(actor)?;
        if kept.management_tokens && within.is_some() {
            return Err(ControlError::Forbidden);
        }
        let manages = after.filter(|person| person.role == Role::Manager);
        if !kept.service_keys {
            let of = KeysOf::IssuedBy {
                person: id,
                within,
                without: manages.and_then(|person| person.tenant_id),
            };
            let issued = keys::lock_unrevoked(transaction, of).await?;
            revoked.service_keys = self.revoke_keys(transaction, actor, &issued, now).await?;
        }
        let is_shut_out = after.is_none();
        if !kept.management_tokens && (is_shut_out || within.is_none()) {
            for token in management_tokens::lock_live_of(transaction, id, now).await? {
                management_tokens::revoke(transaction, token.id, now).await?;
                let change = crate::management_tokens::revoked(&token);
                self.note(transaction, actor, now, change).await?;
                revoked.management_tokens.push(token.id);
            }
        }
        Ok(revoked)
    }

    async fn revoke_keys(
        &self,
        transaction: &mut Transaction,
        actor: &Actor,
        rows: &[KeyRow],
        now: DateTime<Utc>,
    ) -> Result<Vec<KeyId>, ControlError> {
        let ids: Vec<KeyId> = rows.iter().map(|row| row.id).collect();
        keys::revoke_all(transaction, &ids, now).await?;
        for row in rows {
            self.note(transaction, actor, now, crate::keys::revoked(row)).await?;
        }
        Ok(ids)
    }
}

/// The tenant beyond which the actor runs nothing, if there is such a bound.
fn within(actor: &Actor) -> Result<Option<TenantId>, ControlError> {
    Ok(match actor.reach()? {
        Reach::Everything => None,
        Reach::Tenant(own) | Reach::Own(own, _) => Some(own),
    })
}

//! Management tokens: what programs show at the JSON API. Operators issue and revoke them, in person: no token issues
//! another one.

use chrono::{DateTime, Duration, Utc};
use domain::ids::{ManagementTokenId, TenantId};
use domain::management_tokens::{Permission, TOKEN_RANDOM_BYTES, TokenText};
use domain::text;
use serde_json::{Value, json};
use store::management_tokens::{ManagementTokenRow, NewManagementToken};
use store::{management_tokens, random};

use crate::audit::Change;
use crate::fields::Fields;
use crate::{Actor, Control, ControlError, commit};

/// Tokens that work at the same time, at most.
pub const TOKENS_MAX: i64 = 200;
/// How long a token works unless its form says otherwise, in days.
pub const LIFETIME_DAYS_DEFAULT: u32 = 90;
/// The longest lifetime, in days.
pub const LIFETIME_DAYS_MAX: u32 = 366;
/// That a token was shown is noted at most so often, in seconds: a request costs no write.
const USED_EVERY_SECONDS: i64 = 60;

/// What can be said about a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagementTokenDraft {
    /// Field `name`.
    pub name: String,
    /// Field `tenant_id`: whose it is; the whole installation's when absent.
    pub tenant_id: Option<TenantId>,
    /// Field `permissions`: at least one.
    pub permissions: Vec<Permission>,
    /// Field `lifetime_days`: 1 to [`LIFETIME_DAYS_MAX`].
    pub lifetime_days: u32,
}

/// A token that was just issued.
#[derive(Clone, Debug)]
pub struct IssuedManagementToken {
    /// The token.
    pub row: ManagementTokenRow,
    /// Its text, to be shown once: nobody can show it again.
    pub text: TokenText,
}

/// What became of a token that was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShownToken {
    /// Nobody issued it.
    Unknown,
    /// It has ended, or was revoked.
    Ended(&'static str),
    /// It works, and acts as this.
    Works(Actor),
}

/// What became of a token that was given at a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adopted {
    /// It works from now on, until then.
    Now(DateTime<Utc>),
    /// It was adopted, or issued, before; whether it still works says its row.
    Before,
    /// Others were issued before, so that it means nothing.
    Refused,
}

impl Control {
    /// Tokens, those that still work first. For operators.
    pub async fn management_tokens(
        &self,
        actor: &Actor,
        now: DateTime<Utc>,
    ) -> Result<Vec<ManagementTokenRow>, ControlError> {
        actor.require_operator_in_person()?;
        Ok(self.store.management_tokens(now).await?)
    }

    /// One token. For operators.
    pub async fn management_token(
        &self,
        actor: &Actor,
        id: ManagementTokenId,
    ) -> Result<ManagementTokenRow, ControlError> {
        actor.require_operator_in_person()?;
        self.store.find_management_token(id).await?.ok_or(NOT_FOUND)
    }

    /// Issues a token. The text in the answer is the only copy.
    pub async fn issue_management_token(
        &self,
        actor: &Actor,
        draft: &ManagementTokenDraft,
        now: DateTime<Utc>,
    ) -> Result<IssuedManagementToken, ControlError> {
        actor.require_operator_in_person()?;
        let mut permissions = draft.permissions.clone();
        permissions.sort_unstable();
        permissions.dedup();
        let mut fields = Fields::default();
        let name = fields.name("name", &draft.name);
        fields.require(!permissions.is_empty(), "permissions", text!("choose what it may do"));
        if let Some(tenant) = draft.tenant_id {
            let is_known = self.store.find_tenant(tenant).await?.is_some();
            fields.require(is_known, "tenant_id", text!("there is no such tenant"));
            if let Some(permission) = permissions.iter().find(|permission| permission.is_for_operators()) {
                fields.refuse(
                    "permissions",
                    text!(
                        "only a token for all tenants can have {permission}: operators alone may do that",
                        permission = permission.as_str()
                    ),
                );
            }
        }
        if !(1..=LIFETIME_DAYS_MAX).contains(&draft.lifetime_days) {
            fields.refuse(
                "lifetime_days",
                text!("between 1 and {max} days", max = LIFETIME_DAYS_MAX),
            );
        }
        fields.check()?;
        let mut transaction = self.store.begin().await?;
        if actor.person_id().is_some() {
            // So that revoking what somebody issued who is shut out, and their issuing more, do not pass each other.
            self.lock_self(&mut transaction, actor).await?;
        }
        if management_tokens::lock_and_count_live(&mut transaction, now).await? >= TOKENS_MAX {
            let message = text!("there are {max} tokens already; revoke one first", max = TOKENS_MAX);
            return Err(ControlError::field("name", message));
        }
        let text = TokenText::generate(&random::bytes::<TOKEN_RANDOM_BYTES>(&*self.random));
        let token = NewManagementToken {
            id: self.new_id(ManagementTokenId::new, now),
            public_id: text.public_id().to_owned(),
            token_hash: text.hash(),
            name,
            tenant_id: draft.tenant_id,
            permissions,
            created_at: now,
            created_by: actor.label().to_owned(),
            created_by_id: actor.person_id(),
            expires_at: now + Duration::days(i64::from(draft.lifetime_days)),
        };
        management_tokens::insert(&mut transaction, &token).await?;
        let row = management_tokens::lock(&mut transaction, token.id)
            .await?
            .ok_or(NOT_FOUND)?;
        let change = changed("management_token.issue", &row, None, Some(shown(&row)));
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await?;
        Ok(IssuedManagementToken { row, text })
    }

    /// Adopts a token that somebody else has made, for all tenants and with every permission, if none was ever issued:
    /// automation gets in at first start, and whoever has the environment of a later one gets nothing.
    pub async fn adopt_management_token(&self, text: &TokenText, now: DateTime<Utc>) -> Result<Adopted, ControlError> {
        let actor = Actor::System { name: "first start" };
        let mut transaction = self.store.begin().await?;
        if management_tokens::lock_and_look_for_any(&mut transaction).await? {
            drop(transaction);
            let known = self.store.find_management_token_by_hash(text.hash()).await?;
            return Ok(known.map_or(Adopted::Refused, |_| Adopted::Before));
        }
        let token = NewManagementToken {
            id: self.new_id(ManagementTokenId::new, now),
            public_id: text.public_id().to_owned(),
            token_hash: text.hash(),
            name: "Bootstrap".to_owned(),
            tenant_id: None,
            permissions: Permission::ALL.to_vec(),
            created_at: now,
            created_by: actor.label().to_owned(),
            created_by_id: None,
            expires_at: now + Duration::days(i64::from(LIFETIME_DAYS_DEFAULT)),
        };
        management_tokens::insert(&mut transaction, &token).await?;
        let row = management_tokens::lock(&mut transaction, token.id)
            .await?
            .ok_or(NOT_FOUND)?;
        let change = changed("management_token.adopt", &row, None, Some(shown(&row)));
        self.note(&mut transaction, &actor, now, change).await?;
        commit(transaction).await?;
        Ok(Adopted::Now(token.expires_at))
    }

    /// Revokes a token for good. Doing so again changes nothing.
    pub async fn revoke_management_token(
        &self,
        actor: &Actor,
        id: ManagementTokenId,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        actor.require_operator_in_person()?;
        let mut transaction = self.store.begin().await?;
        let row = management_tokens::lock(&mut transaction, id).await?.ok_or(NOT_FOUND)?;
        if row.revoked_at.is_some() {
            return Ok(());
        }
        management_tokens::revoke(&mut transaction, id, now).await?;
        self.note(&mut transaction, actor, now, revoked(&row)).await?;
        commit(transaction).await
    }

    /// Who shows this token, coming from `peer`. That it is used is noted, to the minute.
    pub async fn shown_management_token(
        &self,
        text: &TokenText,
        peer: Option<String>,
        now: DateTime<Utc>,
    ) -> Result<ShownToken, ControlError> {
        let Some(row) = self.store.find_management_token_by_hash(text.hash()).await? else {
            return Ok(ShownToken::Unknown);
        };
        if row.revoked_at.is_some() {
            return Ok(ShownToken::Ended("this management token was revoked"));
        }
        if row.expires_at <= now {
            return Ok(ShownToken::Ended(
                "this management token has expired; issue another one in the console's settings",
            ));
        }
        let noted_since = now - Duration::seconds(USED_EVERY_SECONDS);
        if row.last_used_at.is_none_or(|at| at < noted_since) {
            self.store.note_management_token_used(row.id, now, noted_since).await?;
        }
        Ok(ShownToken::Works(Actor::token(&row, peer)))
    }
}

const NOT_FOUND: ControlError = ControlError::NotFound {
    what: "management token",
};

fn shown(token: &ManagementTokenRow) -> Value {
    json!({
        "public_id": token.public_id,
        "name": token.name,
        "permissions": token.permissions,
        "expires_at": token.expires_at,
    })
}

/// What is noted when a token is revoked, on its own page or with whoever issued it.
pub(crate) fn revoked(token: &ManagementTokenRow) -> Change {
    changed("management_token.revoke", token, Some(shown(token)), None)
}

fn changed(action: &'static str, token: &ManagementTokenRow, before: Option<Value>, after: Option<Value>) -> Change {
    Change {
        action,
        subject: format!("management_token:{}", token.id),
        // A manager reads what concerns the tenant.
        tenant_id: token.tenant_id,
        before,
        after,
    }
}

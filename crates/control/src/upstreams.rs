//! Upstreams: provider endpoints. Credentials go in and never come out.

use std::fmt;

use chrono::{DateTime, Utc};
use domain::ids::UpstreamId;
use domain::policy::Dialect;
use domain::text;
use serde_json::{Value, json};
use store::sealing::Purpose;
use store::upstreams;
use store::upstreams::UpstreamRow;
use store::upstreams::{UPSTREAMS_MAX, UpstreamValues};
use url::Url;

use crate::audit::Change;
use crate::fields::Fields;
use crate::{Actor, Control, ControlError, commit};
use domain::management_tokens::Permission;

/// The longest base URL, in characters.
pub const BASE_URL_CHARS_MAX: usize = 500;
/// The longest credential, in characters.
pub const CREDENTIAL_CHARS_MAX: usize = 4_096;

/// What becomes of an upstream's credential.
#[derive(Clone, PartialEq, Eq)]
pub enum CredentialChange {
    /// Stays as it is.
    Keep,
    /// Goes away: the upstream wants none.
    Clear,
    /// Becomes this.
    Replace(String),
}

impl CredentialChange {
    /// A form's field: blank keeps what there is.
    pub fn from_text(text: &str) -> Self {
        match text.trim() {
            "" => Self::Keep,
            text => Self::Replace(text.to_owned()),
        }
    }
}

impl fmt::Debug for CredentialChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keep => "Keep",
            Self::Clear => "Clear",
            Self::Replace(_) => "Replace(..)",
        })
    }
}

/// What can be said about an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamDraft {
    /// Fields `name`, `dialect`, `base_url`, `credential`.
    pub name: String,
    /// What it speaks.
    pub dialect: Dialect,
    /// Up to and including the version: `https://provider.example/v1`. A slash at the end is taken off.
    pub base_url: String,
    /// Its credential.
    pub credential: CredentialChange,
    /// Not used.
    pub is_disabled: bool,
}

impl Control {
    /// Upstreams by name.
    pub async fn upstreams(&self, actor: &Actor) -> Result<Vec<UpstreamRow>, ControlError> {
        actor.require_permission(Permission::UpstreamsRead)?;
        actor.require_everything()?;
        Ok(self.store.upstreams().await?)
    }

    /// One upstream.
    pub async fn upstream(&self, actor: &Actor, id: UpstreamId) -> Result<UpstreamRow, ControlError> {
        actor.require_permission(Permission::UpstreamsRead)?;
        self.upstream_within_reach(actor, id).await
    }

    /// One upstream for an operation on it, which asks for a permission of its own.
    pub(crate) async fn upstream_within_reach(
        &self,
        actor: &Actor,
        id: UpstreamId,
    ) -> Result<UpstreamRow, ControlError> {
        actor.require_everything()?;
        self.store.find_upstream(id).await?.ok_or(NOT_FOUND)
    }

    /// The upstream whose name this is, for whoever could add one.
    pub(crate) async fn upstream_named(&self, actor: &Actor, name: &str) -> Result<Option<UpstreamId>, ControlError> {
        actor.require_operator()?;
        let name = name.trim().to_lowercase();
        let upstreams = self.store.upstreams().await?;
        let named = upstreams.iter().find(|row| row.name.to_lowercase() == name);
        Ok(named.map(|row| row.id))
    }

    /// Adds an upstream.
    pub async fn create_upstream(
        &self,
        actor: &Actor,
        draft: &UpstreamDraft,
        now: DateTime<Utc>,
    ) -> Result<UpstreamId, ControlError> {
        actor.require_permission(Permission::UpstreamsWrite)?;
        actor.require_operator()?;
        let values = checked(draft, None, now)?;
        let id = self.new_id(UpstreamId::new, now);
        let sealed = self.sealed(id, &draft.credential);
        let mut transaction = self.store.begin().await?;
        if upstreams::count(&mut transaction).await? >= UPSTREAMS_MAX {
            return Err(ControlError::field(
                "name",
                text!("there are {count} upstreams already", count = UPSTREAMS_MAX),
            ));
        }
        upstreams::insert(&mut transaction, id, &values, sealed.as_deref(), now).await?;
        let after = shown(&values, sealed.is_some(), sealed.is_some());
        self.note(
            &mut transaction,
            actor,
            now,
            changed("upstream.create", id, None, Some(after)),
        )
        .await?;
        commit(transaction).await?;
        Ok(id)
    }

    /// Changes an upstream. A credential stays with the address it was given for: another host, port or scheme wants it
    /// again.
    pub async fn edit_upstream(
        &self,
        actor: &Actor,
        id: UpstreamId,
        version: i64,
        draft: &UpstreamDraft,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        actor.require_permission(Permission::UpstreamsWrite)?;
        actor.require_operator()?;
        let mut transaction = self.store.begin().await?;
        let row = upstreams::lock(&mut transaction, id).await?.ok_or(NOT_FOUND)?;
        if row.version != version {
            return Err(ControlError::Conflict {
                what: "upstream",
                read: version,
                current: row.version,
            });
        }
        let values = checked(draft, row.disabled_at, now)?;
        if row.has_credential
            && draft.credential == CredentialChange::Keep
            && origin(&row.base_url) != origin(&values.base_url)
        {
            return Err(ControlError::field(
                "credential",
                text!("the address is another one; write its credential again"),
            ));
        }
        upstreams::update(&mut transaction, id, &values).await?;
        let sealed = self.sealed(id, &draft.credential);
        let has_credential = match draft.credential {
            CredentialChange::Keep => row.has_credential,
            CredentialChange::Clear | CredentialChange::Replace(_) => {
                upstreams::set_credential(&mut transaction, id, sealed.as_deref()).await?;
                sealed.is_some()
            }
        };
        let before = UpstreamValues {
            name: row.name,
            dialect: row.dialect,
            base_url: row.base_url,
            disabled_at: row.disabled_at,
        };
        let change = changed(
            "upstream.edit",
            id,
            Some(shown(&before, row.has_credential, false)),
            Some(shown(&values, has_credential, sealed.is_some())),
        );
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await
    }

    fn sealed(&self, id: UpstreamId, credential: &CredentialChange) -> Option<Vec<u8>> {
        let CredentialChange::Replace(plain) = credential else {
            return None;
        };
        let plain = plain.trim().as_bytes();
        Some(
            self.secret_key
                .seal(Purpose::UpstreamCredential, &id.to_string(), plain, &*self.random),
        )
    }
}

const NOT_FOUND: ControlError = ControlError::NotFound { what: "upstream" };

fn checked(
    draft: &UpstreamDraft,
    disabled_before: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Result<UpstreamValues, ControlError> {
    let mut fields = Fields::default();
    let name = fields.name("name", &draft.name);
    let base_url = check_base_url(&mut fields, &draft.base_url);
    if let CredentialChange::Replace(text) = &draft.credential {
        let text = text.trim();
        fields.require(!text.is_empty(), "credential", text!("write the credential"));
        if text.chars().count() > CREDENTIAL_CHARS_MAX {
            fields.refuse(
                "credential",
                text!("at most {count} characters", count = CREDENTIAL_CHARS_MAX),
            );
        }
        fields.require(
            text.chars().all(|character| character.is_ascii_graphic()),
            "credential",
            text!("a credential is sent in a header: no blanks, line breaks or accents"),
        );
    }
    fields.check()?;
    Ok(UpstreamValues {
        name,
        dialect: draft.dialect,
        base_url,
        disabled_at: draft.is_disabled.then(|| disabled_before.unwrap_or(now)),
    })
}

/// The address without a slash at the end; what is wrong with it is noted.
fn check_base_url(fields: &mut Fields, text: &str) -> String {
    const FIELD: &str = "base_url";
    let text = text.trim().trim_end_matches('/');
    if text.chars().count() > BASE_URL_CHARS_MAX {
        fields.refuse(FIELD, text!("at most {count} characters", count = BASE_URL_CHARS_MAX));
        return text.to_owned();
    }
    let parsed = Url::parse(text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let Some(url) = parsed else {
        fields.refuse(FIELD, text!("write a whole address such as https://api.example.com/v1"));
        return text.to_owned();
    };
    if !url.username().is_empty() || url.password().is_some() {
        fields.refuse(
            FIELD,
            text!("no name or password in the address; the credential has its own field"),
        );
    }
    if url.query().is_some() || url.fragment().is_some() {
        fields.refuse(FIELD, text!("the address ends with its path, without ? or #"));
    }
    url.as_str().trim_end_matches('/').to_owned()
}

fn origin(base_url: &str) -> Option<String> {
    Url::parse(base_url).ok().map(|url| url.origin().ascii_serialization())
}

fn shown(values: &UpstreamValues, has_credential: bool, is_credential_new: bool) -> Value {
    json!({
        "name": values.name,
        "dialect": values.dialect,
        "base_url": values.base_url,
        "is_disabled": values.disabled_at.is_some(),
        "has_credential": has_credential,
        "is_credential_new": is_credential_new,
    })
}

fn changed(action: &'static str, id: UpstreamId, before: Option<Value>, after: Option<Value>) -> Change {
    Change {
        action,
        subject: format!("upstream:{id}"),
        tenant_id: None,
        before,
        after,
    }
}

#[cfg(test)]
mod tests;

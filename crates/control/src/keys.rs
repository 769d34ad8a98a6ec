//! API keys: members have their own, managers those of their tenant, operators all; auditors look on.

mod check;
mod choices;
mod own_limits;
mod rotation;
mod rules;
mod usage;
mod warnings;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use domain::ids::{KeyId, PersonId, TenantId};
use domain::key_rules::KeyPowers;
use domain::key_text::{KEY_RANDOM_BYTES, KeyText};
use domain::management_tokens::Permission;
use domain::people::Role;
use domain::periods::months_after;
use domain::priority::Priority;
use domain::text;
use domain::text::Text;
use serde_json::{Value, json};
use store::keys::{KeyFilter, KeyRow};
use store::keys::{KeyValues, NewKey};
use store::tenants::TenantRow;
use store::{Transaction, keys, models, people, random, tenants};

use crate::actor::Reach;
use crate::audit::Change;
use crate::fields::Fields;
use crate::{Actor, Control, ControlError, commit};

pub use check::KeyCheck;
pub use choices::{EndChoices, KeyChoices, RotationChoices};
pub use rotation::RotationDraft;

use choices::{About, Latitude};

/// Keys of one tenant that are neither revoked nor expired, at most.
pub const KEYS_PER_TENANT_MAX: i64 = 10_000;
/// Keys of one person that are neither revoked nor expired, at most.
pub const KEYS_PER_PERSON_MAX: i64 = 50;
/// Models that one key may name.
pub const ALLOWED_MODELS_MAX: usize = 200;
/// Lifetimes that forms offer, in months.
pub const LIFETIME_MONTHS: [u32; 4] = [1, 3, 6, 12];
/// The longest lifetime, in months.
pub const LIFETIME_MONTHS_MAX: u32 = 120;

/// When a key ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// Never.
    Never,
    /// So many calendar months from now, clamped to the end of a shorter month.
    Months(u32),
    /// At this instant.
    At(DateTime<Utc>),
}

impl Expiry {
    /// The exact instant, to be shown before it is chosen.
    pub fn at(self, now: DateTime<Utc>, zone: Tz) -> Option<DateTime<Utc>> {
        match self {
            Self::Never => None,
            Self::Months(months) => Some(months_after(now, months, zone)),
            Self::At(at) => Some(at),
        }
    }
}

/// Whose key it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOwner {
    /// A person of the tenant.
    Person(PersonId),
    /// A service account: the tenant's own. Not for members to issue.
    Service,
}

/// What can be said about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDraft {
    /// Fields `name`, `priority`, `allowed_models`, `may_name_users`, `degrades`, `expiry`; when issued also `tenant_id`,
    /// `owner`.
    pub name: String,
    /// What its requests run at; never above the tenant's ceiling.
    pub priority: Priority,
    /// Models it may use; all when absent.
    pub allowed_models: Option<Vec<String>>,
    /// Whether requests may name an end user; for applications, so not for members to decide, and never a person's key.
    pub may_name_users: bool,
    /// Whether a request that could be admitted later is answered with a job rather than refused.
    pub degrades: bool,
    /// When it ends.
    pub expiry: Expiry,
}

/// A key that has just got a secret.
#[derive(Clone, Debug)]
pub struct IssuedKey {
    /// The key.
    pub row: KeyRow,
    /// Its text, to be shown once: nobody can show it again.
    pub text: KeyText,
}

impl Control {
    /// Keys in the order that is asked for, as far as the actor may see them.
    pub async fn keys(&self, actor: &Actor, mut filter: KeyFilter) -> Result<Vec<KeyRow>, ControlError> {
        actor.require_permission(Permission::KeysRead)?;
        actor.narrow(&mut filter.tenant_id, &mut filter.owner_id)?;
        Ok(self.store.keys(&filter).await?)
    }

    /// One key, if the actor may see it.
    pub async fn key(&self, actor: &Actor, id: KeyId) -> Result<KeyRow, ControlError> {
        actor.require_permission(Permission::KeysRead)?;
        self.key_within_reach(actor, id).await
    }

    /// One key for another operation on it, which asks for a permission of its own.
    pub(crate) async fn key_within_reach(&self, actor: &Actor, id: KeyId) -> Result<KeyRow, ControlError> {
        let reach = actor.reach()?;
        let key = self.store.find_key(id).await?;
        key.filter(|key| reach.covers(key.tenant_id, key.owner_id))
            .ok_or(NOT_FOUND)
    }

    /// Issues a key. The text in the answer is the only copy.
    pub async fn issue_key(
        &self,
        actor: &Actor,
        tenant_id: TenantId,
        owner: KeyOwner,
        draft: &KeyDraft,
        now: DateTime<Utc>,
    ) -> Result<IssuedKey, ControlError> {
        let id = self.new_id(KeyId::new, now);
        self.issue_key_as(actor, id, tenant_id, owner, draft, now).await
    }

    /// Issues a key under an id that its caller has made, so that a call that is repeated issues no second one: it is told
    /// that the key exists.
    pub async fn issue_key_as(
        &self,
        actor: &Actor,
        id: KeyId,
        tenant_id: TenantId,
        owner: KeyOwner,
        draft: &KeyDraft,
        now: DateTime<Utc>,
    ) -> Result<IssuedKey, ControlError> {
        actor.require_permission(Permission::KeysWrite)?;
        require_may_issue(actor, tenant_id, owner)?;
        let zone = self.zone().await?;
        let mut transaction = self.store.begin().await?;
        // The lock also keeps the ceiling as it is, and the counts below exact.
        let tenant = tenants::lock(&mut transaction, tenant_id)
            .await?
            .ok_or(ControlError::field("tenant_id", text!("there is no such tenant")))?;
        if owner == KeyOwner::Service && actor.person_id().is_some() {
            // So that revoking what somebody issued who is shut out, and their issuing more, do not pass each other.
            self.lock_self(&mut transaction, actor).await?;
        }
        if keys::lock(&mut transaction, id).await?.is_some() {
            return Err(ControlError::Exists {
                what: "key",
                id: id.to_string(),
            });
        }
        let owner_id = require_owner(&mut transaction, tenant_id, owner).await?;
        let about = About {
            tenant: &tenant,
            owner_id,
            before: None,
            begun_at: None,
        };
        let values = checked(&mut transaction, actor, draft, &about, now, zone).await?;
        require_room(&mut transaction, "name", &tenant, owner_id, now).await?;
        let text = KeyText::generate(&random::bytes::<KEY_RANDOM_BYTES>(&*self.random));
        let key = NewKey {
            id,
            public_id: text.public_id().to_owned(),
            secret_hash: text.hash(),
            tenant_id,
            owner_id,
            values,
            created_at: now,
            created_by: actor.label().to_owned(),
            created_by_id: actor.person_id(),
        };
        keys::insert(&mut transaction, &key).await?;
        let row = keys::lock(&mut transaction, key.id).await?.ok_or(NOT_FOUND)?;
        self.note(
            &mut transaction,
            actor,
            now,
            changed("key.issue", &row, None, Some(shown(&row))),
        )
        .await?;
        commit(transaction).await?;
        Ok(IssuedKey { row, text })
    }

    /// Changes a key that is not revoked.
    pub async fn edit_key(
        &self,
        actor: &Actor,
        id: KeyId,
        version: i64,
        draft: &KeyDraft,
        now: DateTime<Utc>,
    ) -> Result<KeyRow, ControlError> {
        actor.require_permission(Permission::KeysWrite)?;
        let zone = self.zone().await?;
        let mut transaction = self.store.begin().await?;
        let tenant_id = self.key_to_change(actor, id).await?.tenant_id;
        let tenant = tenants::lock(&mut transaction, tenant_id)
            .await?
            .ok_or(ControlError::NotFound { what: "tenant" })?;
        let before = lock(&mut transaction, id, version).await?;
        if before.revoked_at.is_some() {
            return Err(revoked_already());
        }
        let about = About::edited(&tenant, &before);
        let values = checked(&mut transaction, actor, draft, &about, now, zone).await?;
        // One that had expired comes back to life.
        if has_ended(&before, now) && values.expires_at.is_none_or(|at| now < at) {
            require_room(&mut transaction, "name", &tenant, before.owner_id, now).await?;
        }
        keys::update(&mut transaction, id, &values).await?;
        let after = keys::lock(&mut transaction, id).await?.ok_or(NOT_FOUND)?;
        let change = changed("key.edit", &after, Some(shown(&before)), Some(shown(&after)));
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await?;
        Ok(after)
    }

    /// Revokes a key for good. Doing so again changes nothing.
    pub async fn revoke_key(&self, actor: &Actor, id: KeyId, now: DateTime<Utc>) -> Result<(), ControlError> {
        actor.require_permission(Permission::KeysWrite)?;
        self.key_to_change(actor, id).await?;
        let mut transaction = self.store.begin().await?;
        let row = keys::lock(&mut transaction, id).await?.ok_or(NOT_FOUND)?;
        if row.revoked_at.is_some() {
            return Ok(());
        }
        keys::revoke(&mut transaction, id, now).await?;
        self.note(&mut transaction, actor, now, revoked(&row)).await?;
        commit(transaction).await
    }

    /// The key, if the actor may change it. Whose it is never changes, so this needs no lock.
    async fn key_to_change(&self, actor: &Actor, id: KeyId) -> Result<KeyRow, ControlError> {
        if let Actor::Person(person) = actor
            && person.role == Role::Auditor
        {
            return Err(ControlError::Forbidden);
        }
        self.key_within_reach(actor, id).await
    }
}

const NOT_FOUND: ControlError = ControlError::NotFound { what: "key" };

/// What is said of a change to a key that is revoked.
fn revoked_already() -> ControlError {
    ControlError::field("key", text!("this key is revoked; issue another one"))
}

/// Whether its end is over.
fn has_ended(key: &KeyRow, now: DateTime<Utc>) -> bool {
    key.expires_at.is_some_and(|at| at <= now)
}

fn require_may_issue(actor: &Actor, tenant: TenantId, owner: KeyOwner) -> Result<(), ControlError> {
    let is_own = matches!(actor.reach()?, Reach::Own(own, person)
        if own == tenant && owner == KeyOwner::Person(person));
    if is_own || actor.may_run(tenant) {
        Ok(())
    } else {
        Err(ControlError::Forbidden)
    }
}

async fn require_owner(
    transaction: &mut Transaction,
    tenant: TenantId,
    owner: KeyOwner,
) -> Result<Option<PersonId>, ControlError> {
    let KeyOwner::Person(id) = owner else {
        return Ok(None);
    };
    // Locked, so that shutting the person out and issuing them a key do not pass each other.
    let person = people::lock(transaction, id).await?;
    match person {
        Some(person) if person.tenant_id == Some(tenant) && person.disabled_at.is_none() => Ok(Some(id)),
        _ => Err(ControlError::field(
            "owner",
            text!("choose somebody who belongs to this tenant"),
        )),
    }
}

/// There is room for one more key that works. What is wrong is said of `field`.
async fn require_room(
    transaction: &mut Transaction,
    field: &'static str,
    tenant: &TenantRow,
    owner: Option<PersonId>,
    now: DateTime<Utc>,
) -> Result<(), ControlError> {
    let (tenant, rules) = (tenant.tenant.id, &tenant.tenant.key_rules);
    if keys::count_live(transaction, tenant, None, now).await? >= KEYS_PER_TENANT_MAX {
        return Err(ControlError::field(
            field,
            text!(
                "this tenant has {most} keys already; revoke one first",
                most = KEYS_PER_TENANT_MAX
            ),
        ));
    }
    let most = rules
        .keys_per_person
        .map_or(KEYS_PER_PERSON_MAX, i64::from)
        .min(KEYS_PER_PERSON_MAX);
    if owner.is_some() && keys::count_live(transaction, tenant, owner, now).await? >= most {
        return Err(ControlError::field(
            field,
            match most {
                0 => text!("people of this tenant have no keys of their own; a manager issues service accounts' keys"),
                1 => text!("this person has a key already, and may have one; revoke it first"),
                most => text!(
                    "this person has {most} keys already, and may have no more; revoke one first",
                    most
                ),
            },
        ));
    }
    Ok(())
}

async fn lock(transaction: &mut Transaction, id: KeyId, read: i64) -> Result<KeyRow, ControlError> {
    let row = keys::lock(transaction, id).await?.ok_or(NOT_FOUND)?;
    if row.version == read {
        return Ok(row);
    }
    Err(ControlError::Conflict {
        what: "key",
        read,
        current: row.version,
    })
}

async fn checked(
    transaction: &mut Transaction,
    actor: &Actor,
    draft: &KeyDraft,
    about: &About<'_>,
    now: DateTime<Utc>,
    zone: Tz,
) -> Result<KeyValues, ControlError> {
    let &About { tenant, before, .. } = about;
    let mut fields = Fields::default();
    let name = fields.name("name", &draft.name);
    // Rows from before this rule may have it, and anybody who may change such a key may take it away.
    let may_name_users_before = before.is_some_and(|key| key.may_name_users);
    if about.owner_id.is_some() {
        fields.require(
            !draft.may_name_users,
            "may_name_users",
            text!("only a service account's key may name end users: a person's key counts in its owner's limits"),
        );
    } else if draft.may_name_users != may_name_users_before && !actor.may_run(tenant.tenant.id) {
        fields.refuse("may_name_users", text!("ask a manager of your tenant to change this"));
    }
    let latitude = Latitude::new(actor, about, now, zone);
    let powers = KeyPowers {
        priority: draft.priority,
        models: check_models(transaction, &mut fields, draft, before).await?,
        expires_at: latitude.chosen_end(&mut fields, draft.expiry),
    };
    latitude.check(&mut fields, &powers);
    fields.check()?;
    let bounds = latitude.bounds_after(before.map(KeyRow::powers).as_ref(), &powers);
    Ok(KeyValues {
        name,
        priority: powers.priority,
        allowed_models: powers.models,
        may_name_users: draft.may_name_users,
        degrades: draft.degrades,
        expires_at: powers.expires_at,
        bounds,
    })
}

async fn check_models(
    transaction: &mut Transaction,
    fields: &mut Fields,
    draft: &KeyDraft,
    before: Option<&KeyRow>,
) -> Result<Option<Vec<String>>, ControlError> {
    let Some(names) = &draft.allowed_models else {
        return Ok(None);
    };
    let mut names = names.clone();
    names.sort_unstable();
    names.dedup();
    // A rotation may have taken the last one away. That stays so until somebody chooses others.
    let has_none = before.is_some_and(|key| key.allowed_models.as_ref().is_some_and(Vec::is_empty));
    fields.require(
        !names.is_empty() || has_none,
        "allowed_models",
        text!("choose at least one model, or allow all of them"),
    );
    if names.len() > ALLOWED_MODELS_MAX {
        fields.refuse("allowed_models", too_many_models());
        return Ok(Some(names));
    }
    let missing = models::missing(transaction, &names).await?;
    if !missing.is_empty() {
        fields.refuse("allowed_models", no_models(&missing));
    }
    Ok(Some(names))
}

fn months_range() -> Text {
    text!("between 1 and {most} months", most = LIFETIME_MONTHS_MAX)
}

fn too_many_models() -> Text {
    text!("at most {most} models", most = ALLOWED_MODELS_MAX)
}

fn no_models(missing: &[String]) -> Text {
    text!("there is no model {models}", models = missing.join(", "))
}

/// A priority's word inside a text.
fn priority_text(priority: Priority) -> Text {
    match priority {
        Priority::Low => text!("low"),
        Priority::Default => text!("default"),
        Priority::High => text!("high"),
        Priority::Critical => text!("critical"),
    }
}

fn shown(key: &KeyRow) -> Value {
    json!({
        "public_id": key.public_id,
        "name": key.name,
        "owner_id": key.owner_id,
        "priority": key.priority,
        "allowed_models": key.allowed_models,
        "may_name_users": key.may_name_users,
        "degrades": key.degrades,
        "expires_at": key.expires_at,
    })
}

/// What is noted when a key is revoked, on its own page or with its owner.
pub(crate) fn revoked(row: &KeyRow) -> Change {
    changed("key.revoke", row, Some(shown(row)), None)
}

fn changed(action: &'static str, key: &KeyRow, before: Option<Value>, after: Option<Value>) -> Change {
    Change {
        action,
        subject: format!("key:{}", key.id),
        tenant_id: Some(key.tenant_id),
        before,
        after,
    }
}

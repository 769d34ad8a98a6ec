//! The rules for keys that people own: set by who runs the tenant, held whenever such a key is issued, changed or rotated.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use domain::ids::TenantId;
use domain::key_rules::{KeyBounds, KeyPowers, KeyRules};
use domain::management_tokens::Permission;
use domain::text;
use serde_json::{Value, json};
use store::{models, tenants};

use super::{
    ALLOWED_MODELS_MAX, About, KEYS_PER_PERSON_MAX, LIFETIME_MONTHS_MAX, months_range, no_models, priority_text,
    too_many_models,
};
use crate::audit::Change;
use crate::fields::Fields;
use crate::{Actor, Control, ControlError, commit};

impl Control {
    /// Sets what the keys of a tenant's people may be: for operators, and for the tenant's managers, who may make service
    /// accounts' keys beyond the rules anyway. Priorities and models are held at every request from then on, those of keys that
    /// are there included; number and life when a key is next issued, changed or rotated.
    /// Fields `keys_per_person`, `months_max`, `models`.
    pub async fn set_key_rules(
        &self,
        actor: &Actor,
        tenant_id: TenantId,
        version: i64,
        rules: &KeyRules,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        actor.require_permission(Permission::TenantsWrite)?;
        if !actor.may_run(tenant_id) {
            return Err(match actor.sees_tenant(tenant_id)? {
                true => ControlError::Forbidden,
                false => ControlError::NotFound { what: "tenant" },
            });
        }
        let mut transaction = self.store.begin().await?;
        let row = tenants::lock(&mut transaction, tenant_id)
            .await?
            .ok_or(ControlError::NotFound { what: "tenant" })?;
        if row.version != version {
            return Err(ControlError::Conflict {
                what: "tenant",
                read: version,
                current: row.version,
            });
        }
        let mut rules = rules.clone();
        let mut fields = Fields::default();
        if rules
            .keys_per_person
            .is_some_and(|most| i64::from(most) > KEYS_PER_PERSON_MAX)
        {
            fields.refuse("keys_per_person", text!("at most {most}", most = KEYS_PER_PERSON_MAX));
        }
        if rules
            .months_max
            .is_some_and(|months| !(1..=LIFETIME_MONTHS_MAX).contains(&months))
        {
            fields.refuse("months_max", months_range());
        }
        if let Some(names) = &mut rules.models {
            names.sort_unstable();
            names.dedup();
            fields.require(
                !names.is_empty(),
                "models",
                text!("choose at least one model, or allow all of them"),
            );
            if names.len() > ALLOWED_MODELS_MAX {
                fields.refuse("models", too_many_models());
            } else {
                let missing = models::missing(&mut transaction, names).await?;
                if !missing.is_empty() {
                    fields.refuse("models", no_models(&missing));
                }
            }
        }
        fields.check()?;
        tenants::set_key_rules(&mut transaction, tenant_id, &rules).await?;
        let change = Change {
            action: "tenant.key_rules",
            subject: format!("tenant:{tenant_id}"),
            tenant_id: Some(tenant_id),
            before: Some(shown(&row.tenant.key_rules)),
            after: Some(shown(&rules)),
        };
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await
    }
}

/// Notes what a key may not be given, and answers with what its owner may give it from then on. The rules hold for whoever
/// acts; what somebody above the owner has set for this key, for the owner.
pub(super) fn check(
    fields: &mut Fields,
    actor: &Actor,
    about: &About<'_>,
    powers: &KeyPowers,
    now: DateTime<Utc>,
    zone: Tz,
) -> KeyBounds {
    let Some(owner) = about.owner_id else {
        return KeyBounds::default();
    };
    let rules = &about.tenant.tenant.key_rules;
    if let Some(most) = rules.priority_ceiling
        && powers.priority > most
    {
        fields.refuse(
            "priority",
            text!(
                "keys of this tenant's people run at {most} at most",
                most = priority_text(most)
            ),
        );
    }
    // All models are those that the rules allow when a request comes.
    let beyond: Vec<&str> = powers
        .models
        .iter()
        .flatten()
        .map(String::as_str)
        .filter(|model| !rules.allow_model(model))
        .collect();
    if !beyond.is_empty() {
        fields.refuse(
            "allowed_models",
            text!(
                "keys of this tenant's people may not use {models}",
                models = beyond.join(", ")
            ),
        );
    }
    let latest = KeyBounds {
        expires_at: rules.latest_end(about.begun_at(now), zone),
        ..KeyBounds::default()
    };
    if !latest.allow_end(powers.expires_at)
        && let (Some(months), Some(at)) = (rules.months_max, latest.expires_at)
    {
        let until = shown_time(at, zone);
        fields.refuse(
            "expiry",
            match about.before {
                None => text!(
                    "keys of this tenant's people live {months} months at most: until {until}",
                    months,
                    until
                ),
                Some(_) => text!(
                    "keys of this tenant's people live {months} months at most from when they got their secret: this one \
                     until {until}; rotate it to begin anew",
                    months,
                    until
                ),
            },
        );
    }
    let before = about.before.map(|key| key.powers());
    let bounds = about.before.map(|key| key.bounds.clone()).unwrap_or_default();
    if actor.person_id() != Some(owner) {
        return bounds.set_by_superior(before.as_ref(), powers);
    }
    if let Some(most) = bounds.priority
        && powers.priority > most
    {
        fields.refuse(
            "priority",
            text!(
                "a manager has set {most} for this key; ask them to raise it",
                most = priority_text(most)
            ),
        );
    }
    if !bounds.allow_models(powers.models.as_deref()) {
        let models = bounds.models.as_deref().unwrap_or_default().join(", ");
        fields.refuse(
            "allowed_models",
            text!("a manager has set {models} for this key; ask them for more", models),
        );
    }
    if !bounds.allow_end(powers.expires_at)
        && let Some(at) = bounds.expires_at
    {
        let until = shown_time(at, zone);
        fields.refuse(
            "expiry",
            text!(
                "a manager has set the end of this key, {until}; ask them for a later one",
                until
            ),
        );
    }
    bounds
}

fn shown_time(at: DateTime<Utc>, zone: Tz) -> String {
    at.with_timezone(&zone).format("%Y-%m-%d %H:%M %Z").to_string()
}

fn shown(rules: &KeyRules) -> Value {
    json!({
        "keys_per_person": rules.keys_per_person,
        "key_months_max": rules.months_max,
        "member_priority_ceiling": rules.priority_ceiling,
        "member_models": rules.models,
    })
}

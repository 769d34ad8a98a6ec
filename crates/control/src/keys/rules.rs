//! The rules for keys that people own: set by who runs the tenant. Whenever such a key is issued, changed or rotated, `choices`
//! holds it to them.

use chrono::{DateTime, Utc};
use domain::ids::TenantId;
use domain::key_rules::KeyRules;
use domain::management_tokens::Permission;
use domain::text;
use serde_json::{Value, json};
use store::{models, tenants};

use super::{ALLOWED_MODELS_MAX, KEYS_PER_PERSON_MAX, LIFETIME_MONTHS_MAX, months_range, no_models, too_many_models};
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

fn shown(rules: &KeyRules) -> Value {
    json!({
        "keys_per_person": rules.keys_per_person,
        "key_months_max": rules.months_max,
        "member_priority_ceiling": rules.priority_ceiling,
        "member_models": rules.models,
    })
}

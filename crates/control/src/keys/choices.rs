//! What somebody may give a key. Decided here once: forms offer what is allowed, and operations refuse the rest with the
//! reason.

use chrono::{DateTime, Duration, SubsecRound as _, TimeDelta, Utc};
use chrono_tz::Tz;
use domain::ids::{KeyId, PersonId, TenantId};
use domain::key_rules::{KeyBounds, KeyPowers, KeyRules};
use domain::management_tokens::Permission;
use domain::periods::months_after;
use domain::priority::Priority;
use domain::text;
use domain::text::Text;
use store::keys::KeyRow;
use store::tenants::TenantRow;

use super::{
    Expiry, KeyOwner, LIFETIME_MONTHS, LIFETIME_MONTHS_MAX, has_ended, months_range, priority_text, require_may_issue,
    revoked_already,
};
use crate::fields::Fields;
use crate::{Actor, Control, ControlError};

/// Months differ in length: one that begins in February counts as long as one that began in January.
const LIKE_BEFORE_DAYS: i64 = 3;

/// What may be chosen for a key. The operations allow nothing else, except that an end that is over may stay, and so may an
/// empty list of models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChoices {
    /// Priorities, the lowest first.
    pub priorities: Vec<Priority>,
    /// Models that it may name, by name.
    pub models: Vec<String>,
    /// Whether it may use all models, those of the future included, as far as its tenant's rules allow them.
    pub is_any_model: bool,
    /// Whether the tenant's rules name the models of its people's keys.
    pub has_model_rule: bool,
    /// When it may end.
    pub ends: EndChoices,
}

/// When a key may end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndChoices {
    /// Whether it need not end.
    pub is_endless: bool,
    /// The latest end, where there is one. It may be over.
    pub latest: Option<DateTime<Utc>>,
    /// Lifetimes in months and when they end, the shortest first.
    pub lifetimes: Vec<(u32, DateTime<Utc>)>,
}

impl EndChoices {
    /// Whether some end is still to come.
    pub fn is_any(&self, now: DateTime<Utc>) -> bool {
        self.latest.is_none_or(|latest| now < latest)
    }

    /// The longest lifetime, in months.
    pub fn longest(&self) -> Option<u32> {
        self.lifetimes.last().map(|(months, _)| *months)
    }

    /// The shortest lifetime that is about as long as `life`, else the longest; in months.
    pub fn like(&self, life: TimeDelta, now: DateTime<Utc>) -> Option<u32> {
        let least = life - TimeDelta::days(LIKE_BEFORE_DAYS);
        let like = self.lifetimes.iter().find(|(_, end)| *end - now >= least);
        like.map(|(months, _)| *months).or_else(|| self.longest())
    }
}

/// What comes of a rotation, and what may be chosen with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotationChoices {
    /// What the key may do from then on, and until when unless another end is chosen: what it may now, without what its
    /// tenant's rules do not allow any more.
    pub kept: KeyPowers,
    /// Whether it has expired: another end must be chosen, and nothing but the new secret will work.
    pub has_expired: bool,
    /// When it may end.
    pub ends: EndChoices,
}

impl Control {
    /// What may be chosen for a new key of this owner.
    pub async fn choices_for_new_key(
        &self,
        actor: &Actor,
        tenant_id: TenantId,
        owner: KeyOwner,
        now: DateTime<Utc>,
    ) -> Result<KeyChoices, ControlError> {
        actor.require_permission(Permission::KeysWrite)?;
        require_may_issue(actor, tenant_id, owner)?;
        let tenant = self.tenant_of_keys(tenant_id).await?;
        let owner_id = match owner {
            KeyOwner::Person(person) => Some(person),
            KeyOwner::Service => None,
        };
        let about = About {
            tenant: &tenant,
            owner_id,
            before: None,
            begun_at: None,
        };
        self.choices(actor, &about, now).await
    }

    /// What may be chosen for a key that is there, and keeps its secret.
    pub async fn choices_for_key(
        &self,
        actor: &Actor,
        id: KeyId,
        now: DateTime<Utc>,
    ) -> Result<KeyChoices, ControlError> {
        actor.require_permission(Permission::KeysWrite)?;
        let key = self.key_to_change(actor, id).await?;
        let tenant = self.tenant_of_keys(key.tenant_id).await?;
        self.choices(actor, &About::edited(&tenant, &key), now).await
    }

    /// What may be chosen when a key gets another secret.
    pub async fn choices_for_rotation(
        &self,
        actor: &Actor,
        id: KeyId,
        now: DateTime<Utc>,
    ) -> Result<RotationChoices, ControlError> {
        actor.require_permission(Permission::KeysWrite)?;
        let key = self.key_to_change(actor, id).await?;
        if key.revoked_at.is_some() {
            return Err(revoked_already());
        }
        let tenant = self.tenant_of_keys(key.tenant_id).await?;
        let about = About::rotated(&tenant, &key);
        let latitude = Latitude::new(actor, &about, now, self.zone().await?);
        Ok(RotationChoices {
            kept: latitude.kept(&key),
            has_expired: has_ended(&key, now),
            ends: latitude.ends(),
        })
    }

    async fn tenant_of_keys(&self, id: TenantId) -> Result<TenantRow, ControlError> {
        let tenant = self.store.find_tenant(id).await?;
        tenant.ok_or(ControlError::NotFound { what: "tenant" })
    }

    async fn choices(&self, actor: &Actor, about: &About<'_>, now: DateTime<Utc>) -> Result<KeyChoices, ControlError> {
        let latitude = Latitude::new(actor, about, now, self.zone().await?);
        let models = self.models(actor, now).await?;
        let names = models.into_iter().map(|row| row.model.name);
        let is_allowed = |name: &String| latitude.against_models(Some(std::slice::from_ref(name))).is_none();
        Ok(KeyChoices {
            priorities: Priority::ALL
                .into_iter()
                .filter(|priority| latitude.against_priority(*priority).is_none())
                .collect(),
            models: names.filter(is_allowed).collect(),
            is_any_model: latitude.against_models(None).is_none(),
            has_model_rule: latitude.rules.is_some_and(|rules| rules.models.is_some()),
            ends: latitude.ends(),
        })
    }
}

/// What is decided about: a key that is to be issued, changed or rotated.
#[derive(Clone, Copy, Debug)]
pub(super) struct About<'a> {
    pub(super) tenant: &'a TenantRow,
    /// The person who owns it.
    pub(super) owner_id: Option<PersonId>,
    /// What it is, if it is there.
    pub(super) before: Option<&'a KeyRow>,
    /// Since when its life counts: its secret's, if it keeps that. A new secret's life begins now.
    pub(super) begun_at: Option<DateTime<Utc>>,
}

impl<'a> About<'a> {
    /// A key that is changed and keeps its secret.
    pub(super) fn edited(tenant: &'a TenantRow, key: &'a KeyRow) -> Self {
        Self {
            begun_at: Some(key.rotated_at.unwrap_or(key.created_at)),
            ..Self::rotated(tenant, key)
        }
    }

    /// A key that gets another secret.
    pub(super) fn rotated(tenant: &'a TenantRow, key: &'a KeyRow) -> Self {
        Self {
            tenant,
            owner_id: key.owner_id,
            before: Some(key),
            begun_at: None,
        }
    }
}

/// What somebody may give a key, and why not more. The tenant's rules hold for whoever acts on a person's key; what somebody
/// above its owner has set for it, for the owner.
pub(super) struct Latitude<'a> {
    about: &'a About<'a>,
    rules: Option<&'a KeyRules>,
    bounds: KeyBounds,
    is_owner: bool,
    now: DateTime<Utc>,
    zone: Tz,
}

impl<'a> Latitude<'a> {
    pub(super) fn new(actor: &Actor, about: &'a About<'a>, now: DateTime<Utc>, zone: Tz) -> Self {
        let is_owner = about.owner_id.is_some() && actor.person_id() == about.owner_id;
        let bounds = about.before.filter(|_| is_owner).map(|key| key.bounds.clone());
        Self {
            about,
            rules: about.owner_id.map(|_| &about.tenant.tenant.key_rules),
            bounds: bounds.unwrap_or_default(),
            is_owner,
            now,
            zone,
        }
    }

    /// What the key keeps of what it may do when it gets another secret.
    pub(super) fn kept(&self, key: &KeyRow) -> KeyPowers {
        match self.rules {
            Some(rules) => rules.confine(key.powers(), self.now, self.zone),
            None => key.powers(),
        }
    }

    /// The most that its owner may give the key, after it was given `powers` in place of `before`.
    pub(super) fn bounds_after(&self, before: Option<&KeyPowers>, powers: &KeyPowers) -> KeyBounds {
        if self.about.owner_id.is_none() {
            return KeyBounds::default();
        }
        let bounds = self.about.before.map(|key| key.bounds.clone()).unwrap_or_default();
        if self.is_owner {
            return bounds;
        }
        bounds.set_by_superior(before, powers)
    }

    /// Notes what of these powers the key may not be given.
    pub(super) fn check(&self, fields: &mut Fields, powers: &KeyPowers) {
        if let Some(why) = self.against_priority(powers.priority) {
            fields.refuse("priority", why);
        }
        if let Some(why) = self.against_models(powers.models.as_deref()) {
            fields.refuse("allowed_models", why);
        }
        self.check_end(fields, powers.expires_at);
    }

    /// Notes why the key may not end then.
    pub(super) fn check_end(&self, fields: &mut Fields, end: Option<DateTime<Utc>>) {
        if let Some(why) = self.against_end(end) {
            fields.refuse("expiry", why);
        }
    }

    /// The end that was chosen, as Postgres keeps it, so that what was written is known again. Notes what is no end at all;
    /// one that the key has already may stay, though it is over.
    pub(super) fn chosen_end(&self, fields: &mut Fields, expiry: Expiry) -> Option<DateTime<Utc>> {
        let end = match expiry {
            Expiry::Months(months) => Some(self.end_after(months)),
            expiry => expiry.at(self.now, self.zone),
        };
        let end = end.map(|at| at.trunc_subsecs(6));
        let keeps_secret = self.about.begun_at.is_some();
        let is_unchanged = keeps_secret && self.about.before.is_some_and(|key| key.expires_at == end);
        match expiry {
            Expiry::Never => {}
            Expiry::Months(months) => {
                if !(1..=LIFETIME_MONTHS_MAX).contains(&months) {
                    fields.refuse("expiry", months_range());
                }
                if !is_unchanged && end.is_some_and(|at| at <= self.now) {
                    fields.refuse(
                        "expiry",
                        text!("by its tenant's rules this key's life is over by then; rotate it to begin anew"),
                    );
                }
            }
            Expiry::At(at) => {
                let latest = self.now + Duration::days(i64::from(LIFETIME_MONTHS_MAX) * 31);
                if !is_unchanged && !(self.now..=latest).contains(&at) {
                    fields.refuse("expiry", text!("choose a time in the future, within ten years"));
                }
            }
        }
        end
    }

    /// When a key ends that is wanted for so long from now on.
    fn end_after(&self, months: u32) -> DateTime<Utc> {
        match self.rules {
            Some(rules) => rules.end_after(months, self.now, self.begun_at(), self.zone),
            None => months_after(self.now, months, self.zone),
        }
    }

    fn begun_at(&self) -> DateTime<Utc> {
        self.about.begun_at.unwrap_or(self.now)
    }

    /// The latest end that the tenant's rules allow, and the life in months that they go by.
    fn latest_by_rules(&self) -> Option<(u32, DateTime<Utc>)> {
        let rules = self.rules?;
        Some((rules.months_max?, rules.latest_end(self.begun_at(), self.zone)?))
    }

    fn ends(&self) -> EndChoices {
        let lifetimes = LIFETIME_MONTHS.into_iter();
        let lifetimes = lifetimes.map(|months| (months, self.end_after(months)));
        let by_rules = self.latest_by_rules().map(|(_, latest)| latest);
        EndChoices {
            is_endless: self.against_end(None).is_none(),
            latest: by_rules.into_iter().chain(self.bounds.expires_at).min(),
            lifetimes: lifetimes
                .filter(|(_, end)| self.now < *end && self.against_end(Some(*end)).is_none())
                .collect(),
        }
    }

    fn against_priority(&self, priority: Priority) -> Option<Text> {
        let ceiling = self.about.tenant.priority_ceiling_in_force;
        if priority > ceiling {
            return Some(text!(
                "this tenant's keys run at {ceiling} at most",
                ceiling = priority_text(ceiling)
            ));
        }
        if let Some(most) = self.rules.and_then(|rules| rules.priority_ceiling)
            && priority > most
        {
            return Some(text!(
                "keys of this tenant's people run at {most} at most",
                most = priority_text(most)
            ));
        }
        let most = self.bounds.priority.filter(|most| priority > *most)?;
        Some(text!(
            "a manager has set {most} for this key; ask them to raise it",
            most = priority_text(most)
        ))
    }

    fn against_models(&self, models: Option<&[String]>) -> Option<Text> {
        // All models are those that the rules allow when a request comes.
        if let Some(rules) = self.rules {
            let named = models.into_iter().flatten().map(String::as_str);
            let beyond: Vec<&str> = named.filter(|model| !rules.allow_model(model)).collect();
            if !beyond.is_empty() {
                return Some(text!(
                    "keys of this tenant's people may not use {models}",
                    models = beyond.join(", ")
                ));
            }
        }
        if self.bounds.allow_models(models) {
            return None;
        }
        let models = self.bounds.models.as_deref().unwrap_or_default().join(", ");
        Some(text!(
            "a manager has set {models} for this key; ask them for more",
            models
        ))
    }

    fn against_end(&self, end: Option<DateTime<Utc>>) -> Option<Text> {
        if let Some((months, latest)) = self.latest_by_rules()
            && end.is_none_or(|end| end > latest)
        {
            let until = self.shown(latest);
            return Some(match self.about.begun_at {
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
            });
        }
        if self.bounds.allow_end(end) {
            return None;
        }
        let until = self.shown(self.bounds.expires_at?);
        Some(text!(
            "a manager has set the end of this key, {until}; ask them for a later one",
            until
        ))
    }

    fn shown(&self, at: DateTime<Utc>) -> String {
        at.with_timezone(&self.zone).format("%Y-%m-%d %H:%M %Z").to_string()
    }
}

#[cfg(test)]
mod tests;

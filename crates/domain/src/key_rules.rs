//! What people's own keys may be: the tenant's rules, and what somebody above them has set for one key. Service accounts'
//! keys are the tenant's own, and under neither.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};

use crate::periods::months_after;
use crate::priority::Priority;

/// A tenant's rules for the keys that its people own, managers' own ones included. What is absent is not ruled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRules {
    /// Keys of one person that are neither revoked nor expired.
    pub keys_per_person: Option<u32>,
    /// The longest life, in calendar months from when a key got its present secret.
    pub months_max: Option<u32>,
    /// The highest priority, under the tenant's ceiling.
    pub priority_ceiling: Option<Priority>,
    /// Models they may use; all when absent.
    pub models: Option<Vec<String>>,
}

/// What a key may do and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPowers {
    /// What its requests run at.
    pub priority: Priority,
    /// Models it may use; all when absent.
    pub models: Option<Vec<String>>,
    /// When it ends; never when absent.
    pub expires_at: Option<DateTime<Utc>>,
}

/// The most that a key may be given. What is absent is not bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyBounds {
    /// The highest priority.
    pub priority: Option<Priority>,
    /// The models.
    pub models: Option<Vec<String>>,
    /// The latest end.
    pub expires_at: Option<DateTime<Utc>>,
}

impl KeyRules {
    /// Whether they let a key use `model`.
    pub fn allow_model(&self, model: &str) -> bool {
        self.models
            .as_ref()
            .is_none_or(|models| models.iter().any(|name| name == model))
    }

    /// The latest end of a key that got its secret at `since`.
    pub fn latest_end(&self, since: DateTime<Utc>, zone: Tz) -> Option<DateTime<Utc>> {
        self.months_max.map(|months| months_after(since, months, zone))
    }

    /// The end of a key that is wanted for `months` from `now` on: what is left of its life, where that is shorter. Longer lives
    /// than they allow are not cut to them.
    pub fn end_after(&self, months: u32, now: DateTime<Utc>, since: DateTime<Utc>, zone: Tz) -> DateTime<Utc> {
        let end = months_after(now, months, zone);
        let most = self.months_max.filter(|most| months <= *most);
        most.map_or(end, |most| end.min(months_after(since, most, zone)))
    }

    /// The part of these powers that they allow. All models, where a key may use all, stay all: of those, the rules in force at
    /// the time of a request allow some.
    pub fn confine(&self, powers: KeyPowers, since: DateTime<Utc>, zone: Tz) -> KeyPowers {
        KeyPowers {
            priority: self
                .priority_ceiling
                .map_or(powers.priority, |most| most.min(powers.priority)),
            models: powers
                .models
                .map(|models| models.into_iter().filter(|model| self.allow_model(model)).collect()),
            expires_at: powers.expires_at.into_iter().chain(self.latest_end(since, zone)).min(),
        }
    }
}

impl KeyBounds {
    /// Whether these models are within the bounds.
    pub fn allow_models(&self, models: Option<&[String]>) -> bool {
        is_within(models, self.models.as_deref())
    }

    /// Whether this end is within the bounds.
    pub fn allow_end(&self, expires_at: Option<DateTime<Utc>>) -> bool {
        ends_within(expires_at, self.expires_at)
    }

    /// The bounds after somebody above its owner has issued a key with these powers, or changed what it had `before`. What they
    /// make narrower is bounded from then on, so that the owner cannot undo it; what they widen is bounded by the wider, if it
    /// was bounded; what they leave alone stays as it was.
    pub fn set_by_superior(self, before: Option<&KeyPowers>, after: &KeyPowers) -> Self {
        let Some(before) = before else {
            return Self {
                priority: Some(after.priority),
                models: after.models.clone(),
                expires_at: after.expires_at,
            };
        };
        let (models_before, models_after) = (before.models.as_deref(), after.models.as_deref());
        Self {
            priority: match before.priority == after.priority {
                true => self.priority,
                false => {
                    let is_widened = after.priority > before.priority;
                    (!is_widened || self.priority.is_some()).then_some(after.priority)
                }
            },
            models: match is_within(models_before, models_after) && is_within(models_after, models_before) {
                true => self.models,
                false => {
                    let is_widened = is_within(models_before, models_after);
                    after.models.clone().filter(|_| !is_widened || self.models.is_some())
                }
            },
            expires_at: match before.expires_at == after.expires_at {
                true => self.expires_at,
                false => {
                    let is_widened = ends_within(before.expires_at, after.expires_at);
                    after.expires_at.filter(|_| !is_widened || self.expires_at.is_some())
                }
            },
        }
    }
}

fn is_within(models: Option<&[String]>, bound: Option<&[String]>) -> bool {
    match (models, bound) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(models), Some(bound)) => models.iter().all(|model| bound.contains(model)),
    }
}

fn ends_within(expires_at: Option<DateTime<Utc>>, bound: Option<DateTime<Utc>>) -> bool {
    match (expires_at, bound) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(expires_at), Some(bound)) => expires_at <= bound,
    }
}

#[cfg(test)]
mod tests;

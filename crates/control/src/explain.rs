//! What would become of a request now: for any key, a manager's own tenant's, or a member's own. Nothing is sent and
//! nothing taken.
//!
//! What shared limits and providers say is the operators' business, as in the ledger: people of a tenant see their own
//! limits, and of the others only whether the service is busy.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use domain::estimate::Estimate;
use domain::ids::UpstreamId;
use domain::key_text::{masked, shown_public_id};
use domain::limits::{Mode, Scope};
use domain::priority::Priority;
use domain::questions::{Answer, Question, ToldRefusal};
use domain::readings::{CounterStore, LimitAnswer};
use domain::text;
use store::keys::{KEYS_PAGE_MAX, KeyFilter, KeyRow};

use crate::actor::Reach;
use crate::fields::{COUNT_MAX, Fields};
use crate::models::MODEL_NAME_CHARS_MAX;
use crate::{Actor, Control, ControlError};
use domain::management_tokens::Permission;

/// The longest name of an end user that is asked about, in characters.
pub const USER_CHARS_MAX: usize = 256;

/// What would become of a request, as far as whoever asks may know.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// Whose it would be.
    pub key: KeyRow,
    /// Who counted.
    pub store: CounterStore,
    /// When it was asked.
    pub asked_at: DateTime<Utc>,
    /// What it would run at.
    pub priority: Priority,
    /// Whom it would count for, by name where there is one; nobody in particular where absent.
    pub user: Option<String>,
    /// What it would be thought to use; absent where it is refused before.
    pub estimate: Option<Estimate>,
    /// What the caller would be told; it would be admitted where there is nothing to tell.
    pub refusal: Option<ToldRefusal>,
    /// The upstream that would take it, by name. For those who may know of upstreams.
    pub upstream: Option<String>,
    /// Whether that one was drawn among several.
    pub is_upstream_drawn: bool,
    /// Every limit in the order it is asked; empty where the request is refused before.
    pub asked: Vec<AskedLimit>,
    /// What stands for the limits that are left out of `asked`: for people of a tenant.
    pub shared: Option<SharedLimits>,
}

/// One limit on the way.
#[derive(Clone, Debug, PartialEq)]
pub struct AskedLimit {
    /// What its node is called.
    pub name: String,
    /// What it would say.
    pub answer: LimitAnswer,
    /// Whether the caller would be told this one's refusal.
    pub is_told: bool,
}

/// What limits say that are shared with other tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedLimits {
    /// None of them refuses.
    HaveRoom,
    /// One of them refuses.
    AreBusy,
}

impl Control {
    /// What would become of this request now. Fields `model`, `input_tokens`, `output_cap_tokens`, `user`.
    pub async fn explain(&self, actor: &Actor, question: &Question) -> Result<Explained, ControlError> {
        actor.require_permission(Permission::ExplainRead)?;
        check(question)?;
        let key = self.key_within_reach(actor, question.key_id).await?;
        let answer = self.live.answer(question.clone()).await?;
        let reach = actor.reach()?;
        let names = match reach {
            Reach::Everything => self.upstream_names().await?,
            Reach::Tenant(_) | Reach::Own(..) => HashMap::new(),
        };
        Ok(explained(key, answer, reach == Reach::Everything, &names))
    }

    /// Keys that the actor may ask about, at most `count`: with this text in their name, their owner's, their tenant's or
    /// their public id; all of them where it is blank. A key's text as pages show it finds it, too.
    pub async fn find_keys(&self, actor: &Actor, text: &str, count: usize) -> Result<Vec<KeyRow>, ControlError> {
        actor.require_permission(Permission::KeysRead)?;
        let text = text.trim();
        if let Ok(id) = text.parse() {
            return match self.key(actor, id).await {
                Ok(key) => Ok(vec![key]),
                Err(ControlError::NotFound { .. }) => Ok(Vec::new()),
                Err(error) => Err(error),
            };
        }
        let filter = KeyFilter {
            includes_revoked: !text.is_empty(),
            containing: Some(shown_public_id(text).unwrap_or(text).to_owned()).filter(|text| !text.is_empty()),
            count: i64::try_from(count).unwrap_or(KEYS_PAGE_MAX),
            ..KeyFilter::default()
        };
        let mut keys = self.keys(actor, filter).await?;
        // Who writes a whole name means that key, and not those whose names contain it.
        let is_named = |key: &KeyRow| key.public_id == text || masked(&key.public_id) == text || key.name == text;
        if keys.iter().filter(|key| is_named(key)).count() == 1 {
            keys.retain(is_named);
        }
        Ok(keys)
    }

    async fn upstream_names(&self) -> Result<HashMap<UpstreamId, String>, ControlError> {
        let rows = self.store.upstreams().await?;
        Ok(rows.into_iter().map(|row| (row.id, row.name)).collect())
    }
}

fn check(question: &Question) -> Result<(), ControlError> {
    let mut fields = Fields::default();
    let model_chars = question.model.chars().count();
    fields.require(model_chars > 0, "model", text!("name a model"));
    if model_chars > MODEL_NAME_CHARS_MAX {
        fields.refuse(
            "model",
            text!("at most {count} characters", count = MODEL_NAME_CHARS_MAX),
        );
    }
    for (field, tokens) in [
        ("input_tokens", Some(question.input_tokens)),
        ("output_cap_tokens", question.output_cap_tokens),
    ] {
        if tokens.is_some_and(|tokens| tokens > COUNT_MAX) {
            fields.refuse(field, text!("at most {most}", most = COUNT_MAX));
        }
    }
    if let Some(user) = &question.user
        && user.chars().count() > USER_CHARS_MAX
    {
        fields.refuse("user", text!("at most {count} characters", count = USER_CHARS_MAX));
    }
    fields.check()
}

fn explained(key: KeyRow, answer: Answer, sees_shared: bool, names: &HashMap<UpstreamId, String>) -> Explained {
    let told = answer.explanation.told;
    let answers = answer.explanation.answers;
    let refuses = |answer: &LimitAnswer| answer.refusal.is_some() && answer.reading.mode == Mode::Enforce;
    let shared = (!sees_shared && answer.estimate.is_some()).then(|| {
        let is_told = told
            .and_then(|index| answers.get(index))
            .is_some_and(|answer| !answer.reading.scope.is_own());
        // An upstream that refuses is passed over for the next one.
        let refuses = answers.iter().any(|answer| {
            refuses(answer) && !answer.reading.scope.is_own() && !matches!(answer.reading.scope, Scope::Upstream(_))
        });
        if is_told || refuses {
            SharedLimits::AreBusy
        } else {
            SharedLimits::HaveRoom
        }
    });
    let user_name = |id: &str| match (&key.owner_id, &key.owner_name) {
        (Some(owner), Some(name)) if owner.to_string() == id => name.clone(),
        _ => id.to_owned(),
    };
    let name_of = |scope: &Scope| match scope {
        Scope::Global => "The installation".to_owned(),
        Scope::ModelGroup(name) | Scope::Model(name) => name.to_string(),
        Scope::Tenant(_) => key.tenant_name.clone(),
        Scope::User(_, id) => user_name(id),
        Scope::Key(_) => key.name.clone(),
        Scope::Upstream(id) => names.get(id).cloned().unwrap_or_else(|| id.to_string()),
    };
    let asked = answers
        .into_iter()
        .enumerate()
        .filter(|(_, answer)| sees_shared || answer.reading.scope.is_own())
        .map(|(index, answer)| AskedLimit {
            name: name_of(&answer.reading.scope),
            is_told: told == Some(index),
            answer,
        })
        .collect();
    Explained {
        store: answer.store,
        asked_at: answer.asked_at,
        priority: answer.priority,
        user: answer.user_id.as_deref().map(user_name),
        estimate: answer.estimate,
        refusal: answer.refusal,
        upstream: answer
            .explanation
            .upstream
            .filter(|_| sees_shared)
            .map(|id| name_of(&Scope::Upstream(id))),
        is_upstream_drawn: sees_shared && answer.is_upstream_drawn,
        asked,
        shared,
        key,
    }
}

#[cfg(test)]
mod tests;

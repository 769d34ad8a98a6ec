//! Trying a key without a provider: does the gateway know it, and what would become of a request?

use chrono::{DateTime, Utc};
use domain::ids::KeyId;
use domain::management_tokens::Permission;
use domain::policy::Dialect;
use domain::questions::{Question, ToldRefusal};
use domain::text;
use domain::text::Text;
use store::keys::KeyRow;
use store::models::ModelRow;

use super::NOT_FOUND;
use crate::live::LiveError;
use crate::{Actor, Control, ControlError};

/// The input of the request that is asked about, in tokens: a greeting.
const INPUT_TOKENS: u64 = 10;
/// Its output cap, in tokens.
const OUTPUT_CAP_TOKENS: u64 = 50;

/// What came of trying a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyCheck {
    /// A short chat request for this model would be admitted now.
    Works {
        /// The model.
        model: String,
    },
    /// The gateway knows the key, and would refuse the request.
    Refused {
        /// The model.
        model: String,
        /// What the caller would be told.
        message: String,
    },
    /// The gateway knows the key, and there is no model that could be asked for.
    NoModel,
    /// The gateway of this process does not know the key's newest secret, or cannot say.
    Unknown(LiveError),
}

impl KeyCheck {
    /// Whether all is well.
    pub fn is_good(&self) -> bool {
        matches!(self, Self::Works { .. })
    }

    /// The result for people.
    pub fn words(&self) -> Text {
        match self {
            Self::Works { model } => text!(
                "The gateway knows this key, and would admit a short chat request for {model} now.",
                model
            ),
            Self::Refused { model, message } => text!(
                "The gateway knows this key, but would refuse a short chat request for {model} now: {message}",
                model,
                message
            ),
            Self::NoModel => {
                text!("The gateway knows this key, but there is no model with a price that it may use.")
            }
            Self::Unknown(error) => text!("The key could not be tried: {reason}.", reason = error.text()),
        }
    }
}

impl Control {
    /// Tries a key: whether the gateway of this process knows its newest secret, and whether it would admit a short chat
    /// request now. For those who may change it. Nothing is sent to a provider, and nothing taken.
    pub async fn check_key(&self, actor: &Actor, id: KeyId, now: DateTime<Utc>) -> Result<KeyCheck, ControlError> {
        actor.require_permission(Permission::KeysWrite)?;
        let key = self.key_to_change(actor, id).await?;
        let secret = self.store.newest_secret(id).await?.ok_or(NOT_FOUND)?;
        match self.live.knows_secret(secret).await {
            Ok(true) => {}
            Ok(false) => return Ok(KeyCheck::Unknown(LiveError::UnknownKey)),
            Err(error) => return Ok(KeyCheck::Unknown(error)),
        }
        let Some(row) = self.model_to_try(actor, &key, now).await? else {
            return Ok(KeyCheck::NoModel);
        };
        let model = row.model.name;
        let question = Question {
            key_id: id,
            model: model.clone(),
            input_tokens: INPUT_TOKENS,
            output_cap_tokens: Some(OUTPUT_CAP_TOKENS.min(row.model.output_cap_tokens)),
            priority: None,
            user: None,
        };
        Ok(match self.live.answer(question).await {
            Ok(answer) => match answer.refusal {
                None => KeyCheck::Works { model },
                Some(ToldRefusal { message, .. }) => KeyCheck::Refused { model, message },
            },
            Err(error) => KeyCheck::Unknown(error),
        })
    }

    /// A model that this key may use, can be chatted with and has a price; one in OpenAI's dialect, if there is one.
    pub async fn model_to_try(
        &self,
        actor: &Actor,
        key: &KeyRow,
        now: DateTime<Utc>,
    ) -> Result<Option<ModelRow>, ControlError> {
        let tenant = self.store.find_tenant(key.tenant_id).await?;
        let rules = tenant
            .filter(|_| key.owner_id.is_some())
            .map(|row| row.tenant.key_rules);
        let may_use = |name: &str| {
            let is_named = key
                .allowed_models
                .as_ref()
                .is_none_or(|names| names.iter().any(|allowed| allowed == name));
            is_named && rules.as_ref().is_none_or(|rules| rules.allow_model(name))
        };
        let mut models = self.models(actor, now).await?;
        models.retain(|row| row.can_chat() && !row.dialects.is_empty() && may_use(&row.model.name));
        let preferred = models.iter().position(|row| row.dialects.contains(&Dialect::Openai));
        Ok(models.into_iter().nth(preferred.unwrap_or(0)))
    }
}

//! What to ask for.

use domain::priority::Priority;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::labels::Labels;

/// A chat request. Fields that have no method here are set by [`Self::field`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChatRequest {
    model: String,
    messages: Vec<Value>,
    #[serde(flatten)]
    fields: Map<String, Value>,
    #[serde(skip)]
    pub(crate) labels: Labels,
}

impl ChatRequest {
    /// A request without messages yet.
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            messages: Vec::new(),
            fields: Map::new(),
            labels: Labels::default(),
        }
    }

    /// Adds what the model shall always heed.
    #[must_use]
    pub fn system(self, text: impl Into<String>) -> Self {
        self.message(json!({ "role": "system", "content": text.into() }))
    }

    /// Adds what the user says.
    #[must_use]
    pub fn user(self, text: impl Into<String>) -> Self {
        self.message(json!({ "role": "user", "content": text.into() }))
    }

    /// Adds what the model said before.
    #[must_use]
    pub fn assistant(self, text: impl Into<String>) -> Self {
        self.message(json!({ "role": "assistant", "content": text.into() }))
    }

    /// Adds a message of any shape.
    #[must_use]
    pub fn message(mut self, message: Value) -> Self {
        self.messages.push(message);
        self
    }

    /// Bounds the answer. A request with a bound holds less of a budget while it runs.
    #[must_use]
    pub fn output_tokens_max(self, tokens: u64) -> Self {
        self.field("max_completion_tokens", tokens)
    }

    /// Sets any other field of the body.
    #[must_use]
    pub fn field(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.fields.insert(name.into(), value.into());
        self
    }

    /// Says whom the request is for, if the key may name users.
    #[must_use]
    pub fn on_behalf_of(mut self, user: impl Into<String>) -> Self {
        self.labels.user = Some(user.into());
        self
    }

    /// Runs the request at this priority, if that is lower than the key's.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.labels.priority = Some(priority);
        self
    }

    /// Adds a tag for the ledger, such as `project` and `search`.
    #[must_use]
    pub fn tag(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.tags.insert(name.into(), value.into());
        self
    }

    /// The body; a stream is asked for its usage.
    pub(crate) fn body(&self, is_streamed: bool) -> Result<Vec<u8>, serde_json::Error> {
        let mut body = serde_json::to_value(self)?;
        if is_streamed {
            body["stream"] = true.into();
            body["stream_options"] = json!({ "include_usage": true });
        }
        serde_json::to_vec(&body)
    }
}

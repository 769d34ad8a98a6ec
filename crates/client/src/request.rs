//! What to ask for.

use serde::Serialize;
use serde_json::{Map, Value, json};

/// A chat request. Fields that have no method here are set by [`Self::field`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChatRequest {
    model: String,
    messages: Vec<Value>,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

impl ChatRequest {
    /// A request without messages yet.
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            messages: Vec::new(),
            fields: Map::new(),
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

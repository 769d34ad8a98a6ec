//! What OpenAI's older dialects have in common: usage, chunks of a stream, lists of texts.

use bytes::Bytes;
use domain::usage::TokenUsage;
use serde_json::{Value, json};

use super::{Exchange, event};
use crate::asked::wrong;
use crate::behaviour::Behaviour;
use crate::failure::Failure;
use crate::sending::{Load, Piece};

/// The most choices (`n`, `best_of`) of one prompt.
pub(super) const CHOICES_MAX: u64 = 128;
/// The most texts in one request.
const TEXTS_MAX: usize = 2_048;

/// Usage as the provider says it.
pub(super) fn usage(usage: &TokenUsage, behaviour: &Behaviour) -> Value {
    let prompt_tokens = behaviour.said_prompt_tokens.unwrap_or(usage.input_tokens());
    let completion_tokens = behaviour.said_completion_tokens.unwrap_or(usage.output_tokens);
    let mut said = json!({
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens.saturating_add(completion_tokens),
        "prompt_tokens_details": { "cached_tokens": usage.cache_read_tokens },
        "completion_tokens_details": { "reasoning_tokens": usage.reasoning_tokens },
    });
    // Older models know no such writes and say nothing of them.
    let written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens;
    if written > 0 {
        said["prompt_tokens_details"]["cache_write_tokens"] = written.into();
    }
    said
}

/// A text of a request that may hold several.
#[derive(Clone, Copy, Debug)]
pub(super) enum Text<'a> {
    Written(&'a str),
    /// Cut into tokens by the caller.
    Cut(&'a [Value]),
}

/// One text or a list of them, each a string or a list of tokens: the four shapes of `prompt` and `input`.
///
/// # Errors
/// When it is something else, empty, or more than [`TEXTS_MAX`].
pub(super) fn texts<'a>(field: &str, value: &'a Value) -> Result<Vec<Text<'a>>, Failure> {
    let is_tokens = |list: &[Value]| !list.is_empty() && list.iter().all(Value::is_u64);
    let texts = match value {
        Value::String(text) => Some(vec![Text::Written(text)]),
        Value::Array(list) if is_tokens(list) => Some(vec![Text::Cut(list)]),
        Value::Array(list) => list
            .iter()
            .map(|entry| match entry {
                Value::String(text) => Some(Text::Written(text)),
                Value::Array(list) if is_tokens(list) => Some(Text::Cut(list)),
                _ => None,
            })
            .collect(),
        _ => None,
    };
    texts
        .filter(|texts| (1..=TEXTS_MAX).contains(&texts.len()))
        .ok_or_else(|| {
            wrong(
                field,
                "a text, a list of tokens, or a list of these, not empty or too long",
            )
        })
}

/// The events of a stream of chunks.
pub(super) struct Chunks<'a> {
    exchange: &'a Exchange,
    /// What the ids begin with.
    id_prefix: &'static str,
    object: &'static str,
    /// The running usage.
    sent: TokenUsage,
    pieces: Vec<Piece>,
}

impl<'a> Chunks<'a> {
    pub(super) fn begin(exchange: &'a Exchange, id_prefix: &'static str, object: &'static str) -> Self {
        Self {
            exchange,
            id_prefix,
            object,
            sent: TokenUsage {
                output_tokens: 0,
                reasoning_tokens: 0,
                ..exchange.answer.usage
            },
            pieces: Vec::new(),
        }
    }

    /// The next piece of one choice.
    pub(super) fn push(&mut self, choice: Value, load: Load) {
        let behaviour = &self.exchange.behaviour;
        self.sent.output_tokens += load.tokens;
        self.sent.reasoning_tokens += load.reasoning_tokens;
        let mut data = self.chunk(json!([choice]));
        if behaviour.has_usage_each_chunk {
            data["usage"] = usage(&self.sent, behaviour);
        } else if self.says_usage() {
            data["usage"] = Value::Null;
        }
        let data = if behaviour.is_malformed {
            Bytes::from_static(b"data: {\"choices\": [oops\n\n")
        } else {
            event(&data)
        };
        self.pieces.push(Piece { data, load });
    }

    /// The usage, if it was asked for, and `[DONE]`.
    pub(super) fn finish(mut self) -> Vec<Piece> {
        if self.says_usage() {
            let mut data = self.chunk(json!([]));
            data["usage"] = usage(&self.exchange.answer.usage, &self.exchange.behaviour);
            self.pieces.push(Piece::bare(event(&data)));
        }
        self.pieces.push(Piece::bare(Bytes::from_static(b"data: [DONE]\n\n")));
        self.pieces
    }

    fn says_usage(&self) -> bool {
        self.exchange.asked.includes_usage && !self.exchange.behaviour.hides_usage
    }

    fn chunk(&self, choices: Value) -> Value {
        json!({
            "id": self.exchange.answer.id(self.id_prefix),
            "object": self.object,
            "created": 0,
            "model": self.exchange.asked.model,
            "choices": choices,
        })
    }
}

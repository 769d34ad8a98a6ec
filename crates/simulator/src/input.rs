//! What a request gives to the model, as far as an answer depends on it: how much it is, whether it came before, and what
//! is ordered in it.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use crate::random::{SEED_START, fnv};

/// Tokens of the frame of every request.
const REQUEST_TOKENS: u64 = 3;
/// Tokens of the frame of each message.
const MESSAGE_TOKENS: u64 = 4;
/// Bytes of text that make a token.
const TOKEN_BYTES: u64 = 5;
/// Tokens of an image.
const IMAGE_TOKENS: u64 = 85;
/// Tokens of any other medium.
const MEDIUM_TOKENS: u64 = 250;

/// How long the cache shall keep what ends at a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    FiveMinutes,
    OneHour,
}

/// Everything up to the end of a block: a tool, a text, an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefix {
    pub(crate) hash: u64,
    pub(crate) tokens: u64,
    /// Where the caller wants it kept.
    pub(crate) mark: Option<Lifetime>,
}

/// The input of a request, gathered as it is read.
#[derive(Debug)]
pub(crate) struct Input {
    seed: u64,
    hasher: DefaultHasher,
    messages: u64,
    text_bytes: u64,
    other_tokens: u64,
    orders: Vec<String>,
    prefixes: Vec<Prefix>,
}

impl Input {
    pub(crate) fn to(model: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        model.hash(&mut hasher);
        Self {
            seed: fnv(SEED_START, model.as_bytes()),
            hasher,
            messages: 0,
            text_bytes: 0,
            other_tokens: 0,
            orders: Vec::new(),
            prefixes: Vec::new(),
        }
    }

    /// One more message; what follows belongs to it.
    pub(crate) fn message(&mut self) {
        self.messages += 1;
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.text_bytes += text.len() as u64;
        self.seed = fnv(self.seed, text.as_bytes());
        text.hash(&mut self.hasher);
        if text.contains("[[sim:") {
            self.orders.push(text.to_owned());
        }
    }

    /// A text as it is, nothing of null, and the JSON of everything else.
    pub(crate) fn value(&mut self, value: &Value) {
        match value {
            Value::Null => {}
            Value::String(text) => self.text(text),
            other => self.text(&other.to_string()),
        }
    }

    pub(crate) fn image(&mut self, image: &Value) {
        self.other_tokens += IMAGE_TOKENS;
        image.hash(&mut self.hasher);
    }

    /// A recording or a document.
    pub(crate) fn medium(&mut self, medium: &Value) {
        self.other_tokens += MEDIUM_TOKENS;
        medium.hash(&mut self.hasher);
    }

    /// A text that the caller has cut into tokens itself.
    pub(crate) fn tokens(&mut self, tokens: &[Value]) {
        self.other_tokens += tokens.len() as u64;
        for token in tokens.iter().filter_map(Value::as_u64) {
            self.seed = fnv(self.seed, &token.to_le_bytes());
        }
        tokens.hash(&mut self.hasher);
    }

    /// Here ends what a cache can keep as one.
    pub(crate) fn end_block(&mut self, mark: Option<Lifetime>) {
        self.prefixes.push(Prefix {
            hash: self.hasher.finish(),
            tokens: self.counted(),
            mark,
        });
    }

    /// Marks the end of all that was read, if it ends with a block.
    pub(crate) fn mark_end(&mut self, lifetime: Lifetime) {
        if let Some(last) = self.prefixes.last_mut() {
            last.mark.get_or_insert(lifetime);
        }
    }

    /// As stated at the top of the crate.
    pub(crate) fn counted(&self) -> u64 {
        REQUEST_TOKENS + MESSAGE_TOKENS * self.messages + self.text_bytes.div_ceil(TOKEN_BYTES) + self.other_tokens
    }

    /// From the model and the texts: how an answer is delivered does not change it.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Of all of it.
    pub(crate) fn hash(&self) -> u64 {
        self.hasher.finish()
    }

    /// The texts that hold orders.
    pub(crate) fn orders(&self) -> impl Iterator<Item = &str> {
        self.orders.iter().map(String::as_str)
    }

    /// What a cache could keep, the shortest first.
    pub(crate) fn prefixes(&self) -> &[Prefix] {
        &self.prefixes
    }
}

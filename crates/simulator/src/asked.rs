//! A request as it was read, whatever dialect it came in.

use serde_json::Value;

use crate::failure::Failure;
use crate::input::Input;

/// How a provider's cache is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caching {
    /// Nobody asks for it, and writing is free unless ordered: a whole prompt that came before is read.
    Automatic,
    /// What the caller marks is written, at a price, and read when it comes again.
    Marked,
}

/// What a request asks for.
#[derive(Debug)]
pub(crate) struct Asked {
    /// With the orders that hang on it.
    pub(crate) model: String,
    pub(crate) is_streamed: bool,
    /// Whether a stream shall end with its usage, where that is asked for.
    pub(crate) includes_usage: bool,
    /// For each choice.
    pub(crate) output_cap_tokens: Option<u64>,
    /// How many answers are generated, shown or not; none where nothing is.
    pub(crate) choices: u32,
    /// Whether it wants the model to think.
    pub(crate) wants_thoughts: bool,
    pub(crate) caching: Caching,
    /// Whether it uses nothing, and so nothing of the account.
    pub(crate) is_free: bool,
    /// Whom it is for.
    pub(crate) user: Option<String>,
    pub(crate) input: Input,
    /// All of it, for what only one dialect knows.
    pub(crate) body: Value,
}

impl Asked {
    /// Reads what all dialects have in common; the input is yet to be read.
    pub(crate) fn begin(body: Value) -> Result<Self, Failure> {
        if !body.is_object() {
            return Err(Failure::unreadable("The body is not a JSON object."));
        }
        let model = match &body["model"] {
            Value::String(model) if !model.is_empty() => model.clone(),
            Value::Null | Value::String(_) => return Err(Failure::unreadable("You must provide a model parameter.")),
            _ => return Err(wrong("model", "a string")),
        };
        let named = [&body["user"], &body["metadata"]["user_id"]];
        let user = named
            .into_iter()
            .filter_map(Value::as_str)
            .find(|user| !user.is_empty());
        Ok(Self {
            is_streamed: flag(&body, "stream")?,
            includes_usage: flag(&body["stream_options"], "include_usage")?,
            output_cap_tokens: None,
            choices: 1,
            wants_thoughts: false,
            caching: Caching::Automatic,
            is_free: false,
            user: user.map(str::to_owned),
            input: Input::to(&model),
            model,
            body,
        })
    }

    pub(crate) fn has_stream_options(&self) -> bool {
        self.body["stream_options"].is_object()
    }
}

/// A field that is not what it should be.
pub(crate) fn wrong(field: &str, expected: &str) -> Failure {
    Failure::unreadable(format!("Invalid value for `{field}`: expected {expected}."))
}

fn flag(body: &Value, field: &str) -> Result<bool, Failure> {
    match &body[field] {
        Value::Null => Ok(false),
        Value::Bool(flag) => Ok(*flag),
        _ => Err(wrong(field, "true or false")),
    }
}

/// A number, if there is one.
///
/// # Errors
/// When it is no whole number from `least` to `most`.
pub(crate) fn count(body: &Value, field: &str, least: u64, most: u64) -> Result<Option<u64>, Failure> {
    match &body[field] {
        Value::Null => Ok(None),
        value => value
            .as_u64()
            .filter(|count| (least..=most).contains(count))
            .map(Some)
            .ok_or_else(|| wrong(field, &format!("a whole number of at least {least}, not too large"))),
    }
}

/// The entries of a list; none where it is left out.
///
/// # Errors
/// When it is something else.
pub(crate) fn list<'a>(body: &'a Value, field: &str) -> Result<&'a [Value], Failure> {
    match &body[field] {
        Value::Null => Ok(&[]),
        Value::Array(entries) => Ok(entries),
        _ => Err(wrong(field, "a list")),
    }
}

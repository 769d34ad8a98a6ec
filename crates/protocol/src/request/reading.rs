//! One pass over a body: which fields it has, where they lie, what they say. What each field means is told by the module
//! of its endpoint.

use std::fmt;
use std::ops::Range;

use domain::parts::PartKind;
use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::json::{Key, boolean, count, each, for_each_field, kind_of, meant, member, string, user};
use super::{
    CHOICES_MAX, Cap, InspectError, MESSAGES_MAX, MODEL_CHARS_MAX, NESTING_MAX, PARTS_MAX, Places, Span, StreamOptions,
    chat_completions, completions, embeddings, messages, responses,
};
use crate::endpoint::Endpoint;

/// What the fields said.
#[derive(Default)]
pub(super) struct Fields {
    pub(super) model: Option<String>,
    pub(super) is_streamed: bool,
    pub(super) includes_usage: bool,
    /// `n`.
    pub(super) choices: Option<u32>,
    pub(super) best_of: Option<u32>,
    pub(super) user: Option<String>,
    pub(super) metadata_user_id: Option<String>,
    pub(super) messages: usize,
    /// Prompts, or texts to embed.
    pub(super) inputs: usize,
    pub(super) preamble_tokens: u64,
    pub(super) spans: Vec<Span>,
}

pub(super) struct Reading<'a> {
    endpoint: Endpoint,
    text: &'a str,
    places: Places,
    pub(super) fields: Fields,
    /// Which of the endpoint's fields were there, by their index.
    seen: u64,
    /// The top-level field being read.
    field: &'static str,
    /// What is wrong with the content, said by us; serde's own error only stops the reading.
    error: Option<InspectError>,
    /// The innermost field being read whose shape serde checks.
    within: Option<(&'static str, &'static str)>,
    /// How deep in contents within contents.
    depth: usize,
}

/// Fields of some provider that make it bill something else than the model that was asked for, at the rates known here:
/// other models, searches, tools of its own, a context that it shortens by another run. None of them has a price, so none
/// can be held or charged; so they are refused whoever is asked, unless they are null.
const BILLED: [&str; 10] = [
    "models",
    "route",
    "provider",
    "fallbacks",
    "fallback_models",
    "web_search_options",
    "search_parameters",
    "plugins",
    "mcp_servers",
    "context_management",
];

/// The top-level fields that are read, each at most once; at most 64. The second is what a request is about, and required.
fn known(endpoint: Endpoint) -> &'static [&'static str] {
    let known: &[&str] = match endpoint {
        Endpoint::ChatCompletions => &chat_completions::FIELDS,
        Endpoint::Completions => &completions::FIELDS,
        Endpoint::Responses => &responses::FIELDS,
        Endpoint::Embeddings => &embeddings::FIELDS,
        Endpoint::Messages | Endpoint::CountTokens => &messages::FIELDS,
    };
    debug_assert!(known.len() <= 64);
    known
}

impl<'a> Reading<'a> {
    pub(super) fn new(endpoint: Endpoint, text: &'a str) -> Self {
        Self {
            endpoint,
            text,
            places: Places::default(),
            fields: Fields::default(),
            seen: 0,
            field: "",
            error: None,
            within: None,
            depth: 0,
        }
    }

    pub(super) fn read(mut self) -> Result<(Places, Fields), InspectError> {
        let mut deserializer = serde_json::Deserializer::from_str(self.text);
        let outcome = deserializer
            .deserialize_map(Top(&mut self))
            .and_then(|()| deserializer.end());
        if let Err(error) = outcome {
            return Err(self.blame(&error));
        }
        let about = self.about();
        if !self.has_seen(about) {
            // Of two that are missing, the first is named first.
            let missing = if self.fields.model.is_none() { "model" } else { about };
            return Err(InspectError::Missing(missing));
        }
        Ok((self.places, self.fields))
    }

    /// The field that says what the request is about.
    fn about(&self) -> &'static str {
        known(self.endpoint)[1]
    }

    fn has_seen(&self, field: &str) -> bool {
        let index = known(self.endpoint).iter().position(|known| *known == field);
        index.is_some_and(|index| self.seen & (1 << index) != 0)
    }

    fn blame(&mut self, error: &serde_json::Error) -> InspectError {
        if let Some(error) = self.error.take() {
            return error;
        }
        match (error.is_data(), self.within) {
            (true, Some((field, expected))) => InspectError::WrongType { field, expected },
            (true, None) => InspectError::NotAnObject(self.about()),
            (false, _) => InspectError::Syntax {
                line: error.line(),
                column: error.column(),
            },
        }
    }

    /// Where `part` of the body lies.
    fn range(&self, part: &'a str) -> Range<usize> {
        let start = part.as_ptr() as usize - self.text.as_ptr() as usize;
        start..start + part.len()
    }

    fn fail<T, E: serde::de::Error>(&mut self, error: InspectError) -> Result<T, E> {
        self.error = Some(error);
        Err(E::custom("refused"))
    }

    fn keep<T, E: serde::de::Error>(&mut self, checked: Result<T, InspectError>) -> Result<T, E> {
        checked.or_else(|error| self.fail(error))
    }

    pub(super) fn push(&mut self, kind: PartKind, part: &'a str) -> Result<(), InspectError> {
        if self.fields.spans.len() >= PARTS_MAX {
            return Err(InspectError::TooLong {
                field: self.field,
                max: PARTS_MAX,
                unit: "parts",
            });
        }
        let range = self.range(part);
        self.fields.spans.push(Span { kind, range });
        Ok(())
    }

    pub(super) fn push_all<const N: usize>(&mut self, parts: [Option<&'a RawValue>; N]) -> Result<(), InspectError> {
        parts
            .into_iter()
            .flatten()
            .filter(|raw| raw.get() != "null")
            .try_for_each(|raw| self.push(PartKind::Text, raw.get()))
    }

    /// A file by its data; one that is only named has no size, and the empty range says so.
    pub(super) fn push_file(&mut self, data: Option<&'a RawValue>, named: &'a RawValue) -> Result<(), InspectError> {
        let data = data.map(RawValue::get).filter(|data| *data != "null");
        self.push(PartKind::File, data.unwrap_or(&named.get()[..0]))
    }

    /// A content: a text, a list of parts, or null.
    pub(super) fn content(
        &mut self,
        field: &'static str,
        raw: &'a RawValue,
        part: fn(&mut Self, &'a RawValue) -> Result<(), InspectError>,
    ) -> Result<(), InspectError> {
        match raw.get().as_bytes().first() {
            Some(b'n') => Ok(()),
            Some(b'[') => each(field, raw, &mut |element| part(self, element)),
            _ => self.push(PartKind::Text, raw.get()),
        }
    }

    /// Reads what lies within a content, unless it lies too deep.
    pub(super) fn within(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<(), InspectError>,
    ) -> Result<(), InspectError> {
        if self.depth >= NESTING_MAX {
            return Err(InspectError::TooLong {
                field: self.field,
                max: NESTING_MAX,
                unit: "levels of contents within contents",
            });
        }
        self.depth += 1;
        let outcome = read(self);
        self.depth -= 1;
        outcome
    }

    /// Counts one more message.
    pub(super) fn add_message(&mut self) -> Result<(), InspectError> {
        self.fields.messages += 1;
        if self.fields.messages > MESSAGES_MAX {
            return Err(InspectError::TooLong {
                field: self.field,
                max: MESSAGES_MAX,
                unit: "messages",
            });
        }
        Ok(())
    }

    /// One top-level field other than `messages`.
    fn field(&mut self, name: &'static str, raw: &'a RawValue) -> Result<(), InspectError> {
        let text = raw.get();
        match (name, self.endpoint) {
            ("model", _) => {
                let model = string(name, text)?.ok_or(InspectError::Missing(name))?;
                if model.is_empty() {
                    return Err(InspectError::Missing(name));
                }
                if model.chars().count() > MODEL_CHARS_MAX {
                    return Err(InspectError::TooLong {
                        field: name,
                        max: MODEL_CHARS_MAX,
                        unit: "characters",
                    });
                }
                self.places.model = self.range(text);
                self.fields.model = Some(model);
                Ok(())
            }
            ("stream", Endpoint::CountTokens) => Ok(()),
            ("stream", _) => {
                self.fields.is_streamed = boolean(name, text)?.unwrap_or(false);
                Ok(())
            }
            ("user", _) => {
                self.fields.user = user(name, text)?;
                Ok(())
            }
            ("metadata", _) => self.metadata(text),
            (_, Endpoint::ChatCompletions) => chat_completions::field(self, name, raw),
            (_, Endpoint::Completions) => completions::field(self, name, raw),
            (_, Endpoint::Responses) => responses::field(self, name, raw),
            (_, Endpoint::Embeddings) => embeddings::field(self, name, raw),
            (_, Endpoint::Messages | Endpoint::CountTokens) => messages::field(self, name, raw),
        }
    }

    fn message_field(&mut self, key: &str, raw: &'a RawValue) -> Result<(), InspectError> {
        match self.endpoint {
            Endpoint::Messages | Endpoint::CountTokens => messages::message_field(self, key, raw),
            _ => chat_completions::message_field(self, key, raw),
        }
    }

    /// A field that caps the output.
    pub(super) fn cap(&mut self, field: &'static str, text: &'a str) -> Result<(), InspectError> {
        let tokens = count(field, text)?;
        let place = self.range(text);
        self.places.caps.push(Cap { field, tokens, place });
        Ok(())
    }

    pub(super) fn stream_options(&mut self, text: &'a str) -> Result<(), InspectError> {
        const WRONG: InspectError = InspectError::WrongType {
            field: "stream_options",
            expected: "an object or null",
        };
        if text == "null" {
            self.places.stream_options = Some(StreamOptions::Null(self.range(text)));
            return Ok(());
        }
        if !text.starts_with('{') {
            return Err(WRONG);
        }
        let start = self.range(text).start;
        let mut include_usage: Option<&'a str> = None;
        let mut is_empty = true;
        for_each_field(text, &mut |key, value| {
            is_empty = false;
            match meant(key, &["include_usage"])? {
                Some(field) if include_usage.is_some() => Err(InspectError::Duplicate(field)),
                Some(_) => {
                    include_usage = Some(value.get());
                    Ok(())
                }
                None => Ok(()),
            }
        })
        .ok_or(WRONG)??;
        if let Some(value) = include_usage {
            self.fields.includes_usage = boolean("stream_options.include_usage", value)?.unwrap_or(false);
        }
        self.places.stream_options = Some(StreamOptions::Object {
            fields_start: start + 1,
            is_empty,
            include_usage: include_usage.map(|value| self.range(value)),
        });
        Ok(())
    }

    fn metadata(&mut self, text: &'a str) -> Result<(), InspectError> {
        let mut found: Option<&'a str> = None;
        if text.starts_with('{') {
            for_each_field(text, &mut |key, value| match key {
                "user_id" if found.is_some() => Err(InspectError::Duplicate("metadata.user_id")),
                "user_id" => {
                    found = Some(value.get());
                    Ok(())
                }
                _ => Ok(()),
            })
            .unwrap_or(Ok(()))?;
        }
        if let Some(value) = found {
            self.fields.metadata_user_id = user("metadata.user_id", value)?;
        }
        Ok(())
    }
}

/// How many choices a field asks for, 1 to [`CHOICES_MAX`].
pub(super) fn choices(field: &'static str, text: &str) -> Result<Option<u32>, InspectError> {
    let wrong = InspectError::WrongType {
        field,
        expected: "a whole number from 1 to 128",
    };
    count(field, text)?
        .map(|n| u32::try_from(n).ok().filter(|n| *n <= CHOICES_MAX).ok_or(wrong))
        .transpose()
}

fn refuse_billed(field: &'static str, raw: &RawValue) -> Result<(), InspectError> {
    let is_empty = raw.get() == "null" || (raw.get() == "[]" && field == "mcp_servers");
    let remedy = match field {
        "context_management" => return edits_that_drop(field, raw),
        _ if is_empty => None,
        "models" | "route" | "provider" | "fallbacks" | "fallback_models" => {
            Some("routes are configured in the gateway")
        }
        _ => Some("leave it out"),
    };
    remedy.map_or(Ok(()), |remedy| Err(InspectError::Refused { field, remedy }))
}

/// Edits of the context that drop what is old are free; writing a summary of it is another run of the model.
fn edits_that_drop(field: &'static str, raw: &RawValue) -> Result<(), InspectError> {
    let edits = if raw.get().starts_with('{') {
        member(field, raw, "edits")?
    } else {
        Some(raw)
    };
    let Some(edits) = edits else { return Ok(()) };
    each(field, edits, &mut |edit| match kind_of(field, edit)? {
        Some(kind) if kind.starts_with("clear_") => Ok(()),
        _ => Err(InspectError::Refused {
            field,
            remedy: "only edits that drop contents are served, whose type begins with `clear_`",
        }),
    })
}

struct Top<'s, 'a>(&'s mut Reading<'a>);

impl<'a> Visitor<'a> for Top<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let reading = self.0;
        let known = known(reading.endpoint);
        while let Some(Key(key)) = map.next_key()? {
            let meant_here = meant(&key, known);
            let Some(name) = reading.keep(meant_here)? else {
                let billed = meant(&key, &BILLED);
                match reading.keep(billed)? {
                    Some(name) => {
                        let refused = refuse_billed(name, map.next_value::<&'a RawValue>()?);
                        reading.keep(refused)?;
                    }
                    None => {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                continue;
            };
            let index = known.iter().position(|field| *field == name).unwrap_or_default();
            if reading.seen & (1 << index) != 0 {
                return reading.fail(InspectError::Duplicate(name));
            }
            reading.seen |= 1 << index;
            reading.field = name;
            if name == "messages" {
                reading.within = Some((name, "an array of objects"));
                map.next_value_seed(Messages(reading))?;
                reading.within = None;
            } else {
                let raw = map.next_value::<&'a RawValue>()?;
                if index == 1 && raw.get() == "null" {
                    return reading.fail(InspectError::Missing(name));
                }
                let read = reading.field(name, raw);
                reading.keep(read)?;
            }
        }
        Ok(())
    }
}

struct Messages<'s, 'a>(&'s mut Reading<'a>);

impl<'a> DeserializeSeed<'a> for Messages<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'a> Visitor<'a> for Messages<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut messages: A) -> Result<(), A::Error> {
        while messages.next_element_seed(Message(self.0))?.is_some() {
            let added = self.0.add_message();
            self.0.keep(added)?;
        }
        Ok(())
    }
}

struct Message<'s, 'a>(&'s mut Reading<'a>);

impl<'a> DeserializeSeed<'a> for Message<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Message<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = map.next_key()? {
            let raw = map.next_value::<&'a RawValue>()?;
            let read = self.0.message_field(&key, raw);
            self.0.keep(read)?;
        }
        Ok(())
    }
}

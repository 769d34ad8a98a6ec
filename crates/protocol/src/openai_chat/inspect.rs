//! Reads what a `chat/completions` request asks for, without building a tree of its body.
//!
//! The body is scanned once; what is kept are byte ranges into it. Where a provider might understand a body in another
//! way than we do (a key twice, a key in another case), it is refused: limits and prices depend on our reading.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use domain::parts::{Part, PartKind};
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The most messages in one request.
pub const MESSAGES_MAX: usize = 10_000;
/// The most parts (texts, images, tool calls, definitions) in one request.
pub const PARTS_MAX: usize = 40_000;
/// The longest name of a model, in characters.
pub const MODEL_CHARS_MAX: usize = 256;
/// The most choices (`n`) one request may ask for; also the provider's own bound.
pub const CHOICES_MAX: u32 = 128;
/// The longest `user` that is read, in bytes; what is longer is refused.
pub const USER_BYTES_MAX: usize = 1_024;

/// Why a body is refused. The text is for the caller, and repeats nothing of the body's content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InspectError {
    /// Bytes that are no UTF-8.
    #[error("The body is not UTF-8 text. Send JSON encoded as UTF-8.")]
    NotUtf8,
    /// No JSON.
    #[error(
        "The body is not valid JSON: it cannot be read beyond line {line}, column {column}. \
         Check quotes, commas and escapes there."
    )]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// In bytes, counted from 1.
        column: usize,
    },
    /// JSON, but no object.
    #[error("The body must be a JSON object with at least `model` and `messages`.")]
    NotAnObject,
    /// A required field is absent or null.
    #[error("The field `{0}` is required.")]
    Missing(&'static str),
    /// A field has another type than it should.
    #[error("The field `{field}` must be {expected}.")]
    WrongType {
        /// Which.
        field: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// A field is given more than once.
    #[error("The field `{0}` is given more than once. Give it once: which one counts is not defined.")]
    Duplicate(&'static str),
    /// A field is spelt with other letters than it should be, which some providers accept and others do not.
    #[error("A field is spelt almost like `{0}`. Use exactly this spelling, or leave the field out.")]
    AlmostSpelt(&'static str),
    /// A field changes what the provider bills, past every price and limit kept here.
    #[error("The field `{field}` is not passed on, because it changes what the provider bills: {remedy}.")]
    Refused {
        /// Which.
        field: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// A name holds characters that no log, table or database can show.
    #[error("The field `{0}` must not contain control characters.")]
    ControlCharacter(&'static str),
    /// A text is too long, or a list has too many entries.
    #[error("The field `{field}` is too long: at most {max} {unit} are allowed.")]
    TooLong {
        /// Which.
        field: &'static str,
        /// How much is allowed.
        max: usize,
        /// Of what.
        unit: &'static str,
    },
}

impl InspectError {
    /// The field at fault, for the `param` of an error body.
    pub fn param(&self) -> Option<&'static str> {
        match self {
            Self::Missing(field)
            | Self::Duplicate(field)
            | Self::AlmostSpelt(field)
            | Self::ControlCharacter(field) => Some(field),
            Self::WrongType { field, .. } | Self::TooLong { field, .. } | Self::Refused { field, .. } => Some(field),
            Self::NotUtf8 | Self::Syntax { .. } | Self::NotAnObject => None,
        }
    }
}

/// A `chat/completions` request: its own bytes, and what was read of them.
#[derive(Clone)]
pub struct ChatRequest {
    pub(super) body: Bytes,
    pub(super) places: Places,
    model: String,
    is_streamed: bool,
    includes_usage: bool,
    pub(super) max_tokens: Option<u64>,
    pub(super) max_completion_tokens: Option<u64>,
    choices: u32,
    user: Option<String>,
    metadata_user_id: Option<String>,
    messages: usize,
    spans: Vec<Span>,
    part_bytes: u64,
}

/// Where the fields are that may have to be rewritten, as byte ranges of the body.
#[derive(Clone, Default)]
pub(super) struct Places {
    /// Just after the body's opening brace.
    pub(super) fields_start: usize,
    /// The model's name with its quotes.
    pub(super) model: Range<usize>,
    /// The value of `stream_options`.
    pub(super) stream_options: Option<StreamOptions>,
    /// The value of `max_tokens`, also when it is null.
    pub(super) max_tokens: Option<Range<usize>>,
    /// The value of `max_completion_tokens`, also when it is null.
    pub(super) max_completion_tokens: Option<Range<usize>>,
}

#[derive(Clone)]
pub(super) enum StreamOptions {
    /// `null`, here.
    Null(Range<usize>),
    /// An object.
    Object {
        /// Just after its opening brace.
        fields_start: usize,
        is_empty: bool,
        /// The value of `include_usage`.
        include_usage: Option<Range<usize>>,
    },
}

/// One part, as a range of the body.
#[derive(Clone)]
struct Span {
    kind: PartKind,
    range: Range<usize>,
}

impl fmt::Debug for ChatRequest {
    /// Never shows content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatRequest")
            .field("model", &self.model)
            .field("is_streamed", &self.is_streamed)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

impl ChatRequest {
    /// Reads `body`, which stays shared with the caller.
    ///
    /// # Errors
    /// When the body is no request, or could be understood in two ways.
    pub fn inspect(body: &Bytes) -> Result<Self, InspectError> {
        let text = std::str::from_utf8(body).map_err(|_| InspectError::NotUtf8)?;
        let fields_start = text.len() - text.trim_start_matches([' ', '\t', '\r', '\n']).len() + 1;
        let mut reading = Reading::new(text);
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let outcome = deserializer
            .deserialize_map(Top(&mut reading))
            .and_then(|()| deserializer.end());
        if let Err(error) = outcome {
            return Err(reading.blame(&error));
        }

        let Reading { mut places, fields, .. } = reading;
        places.fields_start = fields_start;
        Ok(Self {
            body: body.clone(),
            places,
            model: fields.model.ok_or(InspectError::Missing("model"))?,
            is_streamed: fields.is_streamed,
            includes_usage: fields.includes_usage,
            max_tokens: fields.max_tokens,
            max_completion_tokens: fields.max_completion_tokens,
            choices: fields.choices.unwrap_or(1),
            user: fields.user,
            metadata_user_id: fields.metadata_user_id,
            messages: fields.messages.ok_or(InspectError::Missing("messages"))?,
            part_bytes: fields.spans.iter().map(|span| span.range.len() as u64).sum(),
            spans: fields.spans,
        })
    }

    /// The body as it came.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The model asked for; not empty.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Whether the answer shall be a stream.
    pub fn is_streamed(&self) -> bool {
        self.is_streamed
    }

    /// Whether the caller asked for usage in the stream.
    pub fn includes_usage(&self) -> bool {
        self.includes_usage
    }

    /// The most output tokens the caller wants per choice. Providers differ in which of the two fields they obey: where
    /// both are given, the larger one counts.
    pub fn output_cap_tokens(&self) -> Option<u64> {
        self.max_completion_tokens.max(self.max_tokens)
    }

    /// How many answers are asked for, 1 to [`CHOICES_MAX`]; each may use the whole output cap.
    pub fn choices(&self) -> u32 {
        self.choices
    }

    /// The end user: `user`, or else `metadata.user_id`. Not trusted before the key is known to be allowed to name users.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref().or(self.metadata_user_id.as_deref())
    }

    /// How many messages.
    pub fn messages(&self) -> usize {
        self.messages
    }

    /// An upper bound of the bytes of all parts, known without decoding them.
    pub fn part_bytes(&self) -> u64 {
        self.part_bytes
    }

    /// The parts in the order of the body, decoded one by one.
    pub fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        self.spans.iter().map(|span| self.part(span))
    }

    fn part(&self, span: &Span) -> Part<'_> {
        match span.kind {
            PartKind::Text | PartKind::Definition => {
                let raw = self.body.get(span.range.clone()).unwrap_or_default();
                let text = decode(std::str::from_utf8(raw).unwrap_or_default());
                Part {
                    kind: span.kind,
                    bytes: text.len() as u64,
                    text,
                }
            }
            PartKind::Image { .. } | PartKind::Audio | PartKind::File => Part {
                kind: span.kind,
                bytes: span.range.len() as u64,
                text: Cow::Borrowed(""),
            },
        }
    }
}

/// The text of a JSON string; other JSON, and strings that are no valid text, as they are written.
fn decode(raw: &str) -> Cow<'_, str> {
    let Some(inner) = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return Cow::Borrowed(raw);
    };
    if inner.contains('\\') {
        serde_json::from_str(raw).map_or(Cow::Borrowed(raw), Cow::Owned)
    } else {
        Cow::Borrowed(inner)
    }
}

#[derive(Default)]
struct Fields {
    model: Option<String>,
    is_streamed: bool,
    includes_usage: bool,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    choices: Option<u32>,
    user: Option<String>,
    metadata_user_id: Option<String>,
    messages: Option<usize>,
    spans: Vec<Span>,
}

/// The top-level fields that are read, each at most once.
const READ: [&str; 23] = [
    "model",
    "messages",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "n",
    "user",
    "metadata",
    "tools",
    "functions",
    "response_format",
    "prediction",
    "service_tier",
    "modalities",
    "audio",
    "web_search_options",
    "search_parameters",
    "plugins",
    "models",
    "route",
    "provider",
    "fallbacks",
];

struct Reading<'a> {
    base: usize,
    places: Places,
    fields: Fields,
    seen: [bool; READ.len()],
    /// The top-level field being read.
    field: &'static str,
    /// What is wrong with the content, said by us; serde's own error only stops the reading.
    error: Option<InspectError>,
    /// The innermost field being read whose shape serde checks.
    within: Option<(&'static str, &'static str)>,
    _text: std::marker::PhantomData<&'a str>,
}

impl<'a> Reading<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            base: text.as_ptr() as usize,
            places: Places::default(),
            fields: Fields::default(),
            seen: [false; READ.len()],
            field: "",
            error: None,
            within: None,
            _text: std::marker::PhantomData,
        }
    }

    fn blame(&mut self, error: &serde_json::Error) -> InspectError {
        if let Some(error) = self.error.take() {
            return error;
        }
        match (error.is_data(), self.within) {
            (true, Some((field, expected))) => InspectError::WrongType { field, expected },
            (true, None) => InspectError::NotAnObject,
            (false, _) => InspectError::Syntax {
                line: error.line(),
                column: error.column(),
            },
        }
    }

    /// Where `part` of the body lies.
    fn range(&self, part: &'a str) -> Range<usize> {
        let start = part.as_ptr() as usize - self.base;
        start..start + part.len()
    }

    fn fail<T, E: serde::de::Error>(&mut self, error: InspectError) -> Result<T, E> {
        self.error = Some(error);
        Err(E::custom("refused"))
    }

    fn keep<T, E: serde::de::Error>(&mut self, checked: Result<T, InspectError>) -> Result<T, E> {
        checked.or_else(|error| self.fail(error))
    }

    fn push(&mut self, kind: PartKind, part: &'a str) -> Result<(), InspectError> {
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

    fn push_all<const N: usize>(&mut self, parts: [Option<&'a RawValue>; N]) -> Result<(), InspectError> {
        parts
            .into_iter()
            .flatten()
            .filter(|raw| raw.get() != "null")
            .try_for_each(|raw| self.push(PartKind::Text, raw.get()))
    }

    /// One top-level field other than `messages`.
    fn field(&mut self, name: &'static str, raw: &'a RawValue) -> Result<(), InspectError> {
        let text = raw.get();
        match name {
            "model" => {
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
            }
            "stream" => self.fields.is_streamed = boolean(name, text)?.unwrap_or(false),
            "stream_options" => self.stream_options(text)?,
            "max_tokens" => {
                self.places.max_tokens = Some(self.range(text));
                self.fields.max_tokens = count(name, text)?;
            }
            "max_completion_tokens" => {
                self.places.max_completion_tokens = Some(self.range(text));
                self.fields.max_completion_tokens = count(name, text)?;
            }
            "n" => {
                self.fields.choices = count(name, text)?
                    .map(|n| u32::try_from(n).ok().filter(|n| *n <= CHOICES_MAX).ok_or(WRONG_N))
                    .transpose()?;
            }
            "user" => self.fields.user = user(name, text)?,
            "metadata" => self.metadata(text)?,
            "tools" => each(name, raw, &mut |element| self.push(PartKind::Definition, element.get()))?,
            "functions" => each(name, raw, &mut |element| self.push(PartKind::Definition, element.get()))?,
            "response_format" if text.starts_with('{') => self.push(PartKind::Definition, text)?,
            "prediction" if text.starts_with('{') => self.prediction(text)?,
            _ => refuse_billed(name, text)?,
        }
        Ok(())
    }

    fn stream_options(&mut self, text: &'a str) -> Result<(), InspectError> {
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

    fn prediction(&mut self, text: &'a str) -> Result<(), InspectError> {
        #[derive(Deserialize)]
        struct Prediction<'a> {
            #[serde(borrow)]
            content: Option<&'a RawValue>,
        }
        match serde_json::from_str::<Prediction<'_>>(text) {
            Ok(Prediction { content: Some(content) }) => self.content(content),
            Ok(Prediction { content: None }) => Ok(()),
            Err(_) => self.push(PartKind::Text, text),
        }
    }

    /// The content of a message: a text, a list of parts, or null.
    fn content(&mut self, raw: &'a RawValue) -> Result<(), InspectError> {
        match raw.get().as_bytes().first() {
            Some(b'n') => Ok(()),
            Some(b'[') => each("messages", raw, &mut |part| self.content_part(part)),
            _ => self.push(PartKind::Text, raw.get()),
        }
    }

    /// One part of a message. What is not known counts with all its JSON: more than the provider would count.
    fn content_part(&mut self, raw: &'a RawValue) -> Result<(), InspectError> {
        #[derive(Deserialize)]
        struct ContentPart<'a> {
            r#type: Option<Cow<'a, str>>,
            #[serde(borrow)]
            text: Option<&'a RawValue>,
            #[serde(borrow)]
            refusal: Option<&'a RawValue>,
            #[serde(borrow)]
            image_url: Option<&'a RawValue>,
            #[serde(borrow)]
            input_audio: Option<&'a RawValue>,
            #[serde(borrow)]
            file: Option<&'a RawValue>,
        }
        let Ok(part) = serde_json::from_str::<ContentPart<'a>>(raw.get()) else {
            return self.push(PartKind::Text, raw.get());
        };
        match (part.r#type.as_deref(), &part) {
            (Some("text"), ContentPart { text: Some(text), .. }) => self.push(PartKind::Text, text.get()),
            (
                Some("refusal"),
                ContentPart {
                    refusal: Some(refusal), ..
                },
            ) => self.push(PartKind::Text, refusal.get()),
            (
                Some("image_url"),
                ContentPart {
                    image_url: Some(image), ..
                },
            ) => {
                let kind = PartKind::Image {
                    is_low_detail: member(image, "detail").is_some_and(|detail| detail.get() == "\"low\""),
                };
                self.push(kind, member(image, "url").map_or(image.get(), RawValue::get))
            }
            (
                Some("input_audio"),
                ContentPart {
                    input_audio: Some(audio),
                    ..
                },
            ) => self.push(
                PartKind::Audio,
                member(audio, "data").map_or(audio.get(), RawValue::get),
            ),
            (Some("file"), ContentPart { file: Some(file), .. }) => {
                // A file that is only named has no size; the empty range says so.
                let data = member(file, "file_data").map_or("", RawValue::get);
                let data = if data.is_empty() { &file.get()[..0] } else { data };
                self.push(PartKind::File, data)
            }
            _ => self.push(PartKind::Text, raw.get()),
        }
    }

    /// One call of a tool in an assistant's message: its name and what it was called with.
    fn tool_call(&mut self, raw: &'a RawValue) -> Result<(), InspectError> {
        #[derive(Deserialize)]
        struct ToolCall<'a> {
            #[serde(borrow)]
            function: Option<Call<'a>>,
            #[serde(borrow)]
            custom: Option<Call<'a>>,
        }
        match serde_json::from_str::<ToolCall<'a>>(raw.get()) {
            Ok(ToolCall {
                function: None,
                custom: None,
            })
            | Err(_) => self.push(PartKind::Text, raw.get()),
            Ok(ToolCall { function, custom }) => [function, custom]
                .into_iter()
                .flatten()
                .try_for_each(|call| self.push_all([call.name, call.arguments, call.input])),
        }
    }

    /// One field of a message.
    fn message_field(&mut self, key: &str, raw: &'a RawValue) -> Result<(), InspectError> {
        if raw.get() == "null" {
            return Ok(());
        }
        match key {
            // Their tokens are part of the overhead of each message, or they are references.
            "role" | "tool_call_id" | "audio" => Ok(()),
            "content" => self.content(raw),
            "tool_calls" => each("messages", raw, &mut |call| self.tool_call(call)),
            "function_call" => match serde_json::from_str::<Call<'a>>(raw.get()) {
                Ok(call) => self.push_all([call.name, call.arguments, None]),
                Err(_) => self.push(PartKind::Text, raw.get()),
            },
            _ => self.push(PartKind::Text, raw.get()),
        }
    }
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

/// Refuses what would make the provider bill something else than the model that was asked for, at the rates known here:
/// other tiers, other models, output that is no text, searches. None of them has a price, so none can be held or charged.
fn refuse_billed(field: &'static str, text: &str) -> Result<(), InspectError> {
    let (is_harmless, remedy) = match field {
        "service_tier" => (
            matches!(string(field, text)?.as_deref(), None | Some("auto" | "default")),
            "use `auto` or `default`, or leave it out",
        ),
        "modalities" => (
            serde_json::from_str::<Option<Vec<String>>>(text)
                .is_ok_and(|kinds| kinds.unwrap_or_default().iter().all(|kind| kind == "text")),
            "only `text` is served",
        ),
        "models" | "route" | "provider" | "fallbacks" => (text == "null", "routes are configured in the gateway"),
        "audio" | "web_search_options" | "search_parameters" | "plugins" => (text == "null", "leave it out"),
        _ => (true, ""),
    };
    if is_harmless {
        Ok(())
    } else {
        Err(InspectError::Refused { field, remedy })
    }
}

const WRONG_N: InspectError = InspectError::WrongType {
    field: "n",
    expected: "a whole number from 1 to 128",
};

/// Which of the `known` fields `key` is.
///
/// # Errors
/// When it is none of them exactly, but some providers would take it for one: theirs fold case.
fn meant(key: &str, known: &'static [&'static str]) -> Result<Option<&'static str>, InspectError> {
    if let Some(field) = known.iter().find(|field| **field == key) {
        return Ok(Some(field));
    }
    let folded = |c: char| match c {
        'ſ' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    match known.iter().find(|field| key.chars().map(folded).eq(field.chars())) {
        Some(field) => Err(InspectError::AlmostSpelt(field)),
        None => Ok(None),
    }
}

fn string(field: &'static str, text: &str) -> Result<Option<String>, InspectError> {
    serde_json::from_str(text).map_err(|_| InspectError::WrongType {
        field,
        expected: "a string",
    })
}

fn user(field: &'static str, text: &str) -> Result<Option<String>, InspectError> {
    if text.len() > USER_BYTES_MAX {
        return Err(InspectError::TooLong {
            field,
            max: USER_BYTES_MAX,
            unit: "bytes",
        });
    }
    let user = string(field, text)?.filter(|user| !user.is_empty());
    if user.as_ref().is_some_and(|user| user.contains(char::is_control)) {
        return Err(InspectError::ControlCharacter(field));
    }
    Ok(user)
}

fn boolean(field: &'static str, text: &str) -> Result<Option<bool>, InspectError> {
    serde_json::from_str(text).map_err(|_| InspectError::WrongType {
        field,
        expected: "true or false",
    })
}

/// Zero is refused: some providers take it for "no limit".
fn count(field: &'static str, text: &str) -> Result<Option<u64>, InspectError> {
    match serde_json::from_str::<Option<u64>>(text) {
        Ok(Some(0)) | Err(_) => Err(InspectError::WrongType {
            field,
            expected: "a whole number of at least 1",
        }),
        Ok(count) => Ok(count),
    }
}

/// The first field `name` of an object.
fn member<'a>(object: &'a RawValue, name: &str) -> Option<&'a RawValue> {
    let mut found = None;
    let _ = for_each_field(object.get(), &mut |key, value| {
        if key == name && found.is_none() {
            found = Some(value);
        }
        Ok(())
    })?;
    found
}

/// Calls `visit` for each element of a list, stopping at its first error; null and other values have none.
fn each<'a>(
    field: &'static str,
    raw: &'a RawValue,
    visit: &mut dyn FnMut(&'a RawValue) -> Result<(), InspectError>,
) -> Result<(), InspectError> {
    struct Elements<'v, 'a> {
        visit: &'v mut dyn FnMut(&'a RawValue) -> Result<(), InspectError>,
        error: &'v mut Option<InspectError>,
    }
    impl<'a> Visitor<'a> for Elements<'_, 'a> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }

        fn visit_seq<A: SeqAccess<'a>>(self, mut elements: A) -> Result<(), A::Error> {
            while let Some(element) = elements.next_element::<&'a RawValue>()? {
                if let Err(error) = (self.visit)(element) {
                    *self.error = Some(error);
                    return Err(A::Error::custom("refused"));
                }
            }
            Ok(())
        }
    }

    if raw.get() == "null" {
        return Ok(());
    }
    let mut error = None;
    let mut deserializer = serde_json::Deserializer::from_str(raw.get());
    let outcome = deserializer.deserialize_seq(Elements {
        visit,
        error: &mut error,
    });
    match (outcome, error) {
        (Ok(()), _) => Ok(()),
        (Err(_), Some(error)) => Err(error),
        (Err(_), None) => Err(InspectError::WrongType {
            field,
            expected: "an array where it lists things",
        }),
    }
}

/// Calls `visit` for each field of an object, stopping at its first error; `None` when it is no object.
fn for_each_field<'a>(
    text: &'a str,
    visit: &mut dyn FnMut(&str, &'a RawValue) -> Result<(), InspectError>,
) -> Option<Result<(), InspectError>> {
    struct Members<'v, 'a> {
        visit: &'v mut dyn FnMut(&str, &'a RawValue) -> Result<(), InspectError>,
    }
    impl<'a> Visitor<'a> for Members<'_, 'a> {
        type Value = Result<(), InspectError>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            // After an error the rest is still read, so that the deserializer ends where the object does.
            let mut outcome = Ok(());
            while let Some(Key(key)) = map.next_key()? {
                let value = map.next_value::<&'a RawValue>()?;
                if outcome.is_ok() {
                    outcome = (self.visit)(&key, value);
                }
            }
            Ok(outcome)
        }
    }

    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer.deserialize_map(Members { visit }).ok()
}

/// A key, borrowed unless it has escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

struct Top<'s, 'a>(&'s mut Reading<'a>);

impl<'a> Visitor<'a> for Top<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let reading = self.0;
        while let Some(Key(key)) = map.next_key()? {
            let meant = meant(&key, &READ);
            let Some(name) = reading.keep(meant)? else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let index = READ.iter().position(|field| *field == name).unwrap_or_default();
            if std::mem::replace(&mut reading.seen[index], true) {
                return reading.fail(InspectError::Duplicate(name));
            }
            reading.field = name;
            if name == "messages" {
                reading.within = Some((name, "an array of objects"));
                let messages = map.next_value_seed(Messages(reading))?;
                reading.fields.messages = Some(messages);
                reading.within = None;
            } else {
                let raw = map.next_value::<&'a RawValue>()?;
                let read = reading.field(name, raw);
                reading.keep(read)?;
            }
        }
        Ok(())
    }
}

struct Messages<'s, 'a>(&'s mut Reading<'a>);

impl<'a> DeserializeSeed<'a> for Messages<'_, 'a> {
    type Value = usize;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'a> Visitor<'a> for Messages<'_, 'a> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut messages: A) -> Result<usize, A::Error> {
        let mut count = 0;
        while messages.next_element_seed(Message(self.0))?.is_some() {
            count += 1;
            if count > MESSAGES_MAX {
                return self.0.fail(InspectError::TooLong {
                    field: "messages",
                    max: MESSAGES_MAX,
                    unit: "messages",
                });
            }
        }
        Ok(count)
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

#[cfg(test)]
mod tests;

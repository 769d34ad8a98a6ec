//! Reads what a request asks for, without building a tree of its body.
//!
//! The body is scanned once; what is kept are byte ranges into it. Where a provider might understand a body in another
//! way than we do (a key twice, a key in another case), it is refused: limits and prices depend on our reading.
//!
//! To add a call of a provider's API, add it to [`Endpoint`], put a module beside [`chat_completions`] that says which
//! fields are read and how, tell in [`crate::usage`] what its answers use, and add a folder of cases under `golden/`.

mod chat_completions;
mod completions;
mod embeddings;
mod json;
mod messages;
mod reading;
mod responses;
mod rewrite;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use domain::parts::{Part, PartKind};

use crate::endpoint::Endpoint;
use reading::Reading;
pub use rewrite::Rewrite;

/// The most messages in one request.
pub const MESSAGES_MAX: usize = 10_000;
/// The most parts (texts, images, tool calls, definitions) in one request.
pub const PARTS_MAX: usize = 40_000;
/// How deep contents may lie within contents, such as those of a tool's result.
pub const NESTING_MAX: usize = 8;
/// The longest name of a model, in characters.
pub const MODEL_CHARS_MAX: usize = 256;
/// The most choices (`n`, `best_of`) that may be asked for; also the provider's own bound.
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
    #[error("The body must be a JSON object with at least `model` and `{0}`.")]
    NotAnObject(&'static str),
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
    /// A field refers to what the provider keeps under the account that all callers here share.
    #[error(
        "The field `{0}` is not passed on: it refers to what the provider keeps for everybody who shares its account \
         here, and its size cannot be known. Send what it stands for instead."
    )]
    KeptByProvider(&'static str),
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
            | Self::KeptByProvider(field)
            | Self::ControlCharacter(field) => Some(field),
            Self::WrongType { field, .. } | Self::TooLong { field, .. } | Self::Refused { field, .. } => Some(field),
            Self::NotUtf8 | Self::Syntax { .. } | Self::NotAnObject(_) => None,
        }
    }
}

/// A request: its own bytes, and what was read of them.
#[derive(Clone)]
pub struct InferenceRequest {
    endpoint: Endpoint,
    body: Bytes,
    places: Places,
    model: String,
    is_streamed: bool,
    includes_usage: bool,
    choices: u32,
    user: Option<String>,
    metadata_user_id: Option<String>,
    messages: usize,
    preamble_tokens: u64,
    spans: Vec<Span>,
    part_bytes: u64,
}

/// Where the fields are that may have to be rewritten, as byte ranges of the body.
#[derive(Clone, Default)]
struct Places {
    /// Just after the body's opening brace.
    fields_start: usize,
    /// The model's name with its quotes.
    model: Range<usize>,
    /// The value of `stream_options`.
    stream_options: Option<StreamOptions>,
    /// The fields that cap the output.
    caps: Vec<Cap>,
}

/// A field that caps the output.
#[derive(Clone)]
struct Cap {
    field: &'static str,
    /// Absent when it is null.
    tokens: Option<u64>,
    /// Its value.
    place: Range<usize>,
}

#[derive(Clone)]
enum StreamOptions {
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

impl fmt::Debug for InferenceRequest {
    /// Never shows content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InferenceRequest")
            .field("endpoint", &self.endpoint)
            .field("model", &self.model)
            .field("is_streamed", &self.is_streamed)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

impl InferenceRequest {
    /// Reads `body`, which stays shared with the caller, as `endpoint` understands it.
    ///
    /// # Errors
    /// When the body is no request, or could be understood in two ways.
    pub fn inspect(endpoint: Endpoint, body: &Bytes) -> Result<Self, InspectError> {
        let text = std::str::from_utf8(body).map_err(|_| InspectError::NotUtf8)?;
        let fields_start = text.len() - text.trim_start_matches([' ', '\t', '\r', '\n']).len() + 1;
        let (mut places, fields) = Reading::new(endpoint, text).read()?;
        places.fields_start = fields_start;
        Ok(Self {
            endpoint,
            body: body.clone(),
            places,
            model: fields.model.ok_or(InspectError::Missing("model"))?,
            is_streamed: fields.is_streamed,
            includes_usage: fields.includes_usage,
            choices: match endpoint {
                Endpoint::Completions => completions::answers(fields.choices, fields.best_of, fields.inputs),
                Endpoint::ChatCompletions => fields.choices.unwrap_or(1),
                Endpoint::Responses | Endpoint::Messages => 1,
                Endpoint::Embeddings | Endpoint::CountTokens => 0,
            },
            user: fields.user,
            metadata_user_id: fields.metadata_user_id,
            messages: fields.messages,
            preamble_tokens: fields.preamble_tokens,
            part_bytes: fields.spans.iter().map(|span| span.range.len() as u64).sum(),
            spans: fields.spans,
        })
    }

    /// Which call it is.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
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

    /// Whether the caller gets the usage in a stream: because it asked for it, or because providers always tell it.
    pub fn includes_usage(&self) -> bool {
        self.includes_usage || !self.can_ask_for_usage()
    }

    /// Whether a stream of this kind tells its usage only if it is asked to.
    pub fn can_ask_for_usage(&self) -> bool {
        matches!(self.endpoint, Endpoint::ChatCompletions | Endpoint::Completions)
    }

    /// The most output tokens the caller wants per choice. Providers differ in which of two fields they obey: where
    /// both are given, the larger one counts.
    pub fn output_cap_tokens(&self) -> Option<u64> {
        self.places.caps.iter().filter_map(|cap| cap.tokens).max()
    }

    /// What is generated at most where the caller states no cap, if the API says so itself.
    pub fn output_default_tokens(&self) -> Option<u64> {
        (self.endpoint == Endpoint::Completions).then_some(completions::OUTPUT_DEFAULT_TOKENS)
    }

    /// How many answers are generated, each of which may use the whole output cap; zero where nothing is.
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

    /// Tokens of what the provider is known to put before the prompt by itself, such as the explanation of how tools are used.
    pub fn preamble_tokens(&self) -> u64 {
        self.preamble_tokens
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
            PartKind::Tokens { .. } | PartKind::Opaque | PartKind::Image { .. } | PartKind::Audio | PartKind::File => {
                Part {
                    kind: span.kind,
                    bytes: span.range.len() as u64,
                    text: Cow::Borrowed(""),
                }
            }
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

#[cfg(test)]
mod tests;

//! What an answer used: from a whole response, or from the events of a stream as they pass.
//!
//! Events are read without building a tree: an ordinary one costs one pass over its bytes and no allocation. What has an
//! unexpected shape is skipped, never an error: an answer is passed on whether or not we understand it.

use std::fmt;
use std::ops::Range;

use domain::parts::TextSize;
use domain::usage::{TokenUsage, UsageSource};
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::errors::UpstreamError;

/// The most tokens that a provider is believed to have counted, of any kind. No model reads or writes near so many in one
/// request; a figure above it is an accident, and counts as not said.
pub const COUNTED_TOKENS_MAX: u64 = 1 << 40;

/// What the provider said was used. Each figure is the latest it gave, never a sum; absent is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportedUsage {
    /// All input, cached included.
    pub prompt_tokens: Option<u64>,
    /// Output as the provider counts it.
    pub completion_tokens: Option<u64>,
    /// Input and output.
    pub total_tokens: Option<u64>,
    /// The part of the input that a cache answered.
    pub cached_tokens: Option<u64>,
    /// The part of the input that was written to a cache.
    pub cache_write_tokens: Option<u64>,
    /// Output that was not shown.
    pub reasoning_tokens: Option<u64>,
}

impl ReportedUsage {
    /// Whether input and output are both known.
    pub fn is_complete(&self) -> bool {
        self.prompt_tokens.is_some() && self.completion_tokens.is_some()
    }

    /// Whether the provider said nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The usage in classes that do not overlap, if input and output were both said.
    pub fn to_usage(&self) -> Option<TokenUsage> {
        let said_prompt = self.prompt_tokens?;
        let said_completion = self.completion_tokens?;
        let cached = self.cached_tokens.unwrap_or(0);
        let written = self.cache_write_tokens.unwrap_or(0);
        let reasoning = self.reasoning_tokens.unwrap_or(0);

        // Some providers have more in the total than in its two parts: cached input beside the prompt, or reasoning
        // beside the completion, sometimes without naming it.
        let beside = self.total_tokens.map_or(0, |total| {
            total.saturating_sub(said_prompt).saturating_sub(said_completion)
        });
        let is_cache = beside > 0 && beside == cached.saturating_add(written) && beside != reasoning;
        let (prompt, output_tokens) = if is_cache {
            (said_prompt.saturating_add(beside), said_completion)
        } else {
            (said_prompt, said_completion.saturating_add(beside))
        };

        let cache_read_tokens = cached.min(prompt);
        let cache_write_5m_tokens = written.min(prompt - cache_read_tokens);
        Some(TokenUsage {
            input_fresh_tokens: prompt - cache_read_tokens - cache_write_5m_tokens,
            cache_read_tokens,
            cache_write_5m_tokens,
            cache_write_1h_tokens: 0,
            output_tokens,
            reasoning_tokens: reasoning.max(output_tokens - said_completion).min(output_tokens),
        })
    }

    /// Without the figures that cannot be right: no request has an empty prompt, and what was `seen` of the answer was not
    /// made of nothing.
    #[must_use]
    pub fn plausible(self, seen: &OutputSizes) -> Self {
        let has_output = seen.pieces > 0;
        Self {
            prompt_tokens: self.prompt_tokens.filter(|tokens| *tokens > 0),
            completion_tokens: self.completion_tokens.filter(|tokens| *tokens > 0 || !has_output),
            ..self
        }
    }

    /// The usage with what the provider left out taken from an estimate, and where it comes from.
    pub fn or_estimate(&self, input_tokens: u64, output_tokens: u64) -> (TokenUsage, UsageSource) {
        let source = if self.is_complete() {
            UsageSource::Reported
        } else {
            UsageSource::Estimated
        };
        let filled = Self {
            prompt_tokens: self.prompt_tokens.or(Some(input_tokens)),
            completion_tokens: self
                .completion_tokens
                .or_else(|| Some(output_tokens.max(self.reasoning_tokens.unwrap_or(0)))),
            // What a total has beside its parts says something only where the parts are the provider's own.
            total_tokens: self.total_tokens.filter(|_| self.is_complete()),
            ..*self
        };
        (filled.to_usage().unwrap_or_default(), source)
    }

    fn update(&mut self, newer: Self) {
        let latest = |old: &mut Option<u64>, new: Option<u64>| *old = new.or(*old);
        latest(&mut self.prompt_tokens, newer.prompt_tokens);
        latest(&mut self.completion_tokens, newer.completion_tokens);
        latest(&mut self.total_tokens, newer.total_tokens);
        latest(&mut self.cached_tokens, newer.cached_tokens);
        latest(&mut self.cache_write_tokens, newer.cache_write_tokens);
        latest(&mut self.reasoning_tokens, newer.reasoning_tokens);
    }
}

/// Sizes of what was generated, for estimating when there is no usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputSizes {
    /// Text that is shown, refusals included.
    pub content: TextSize,
    /// Reasoning text.
    pub reasoning: TextSize,
    /// Names and arguments of tool calls.
    pub tool_calls: TextSize,
    /// Pieces that carried any of these; each is at least one token.
    pub pieces: u64,
}

impl OutputSizes {
    /// All of it.
    pub fn text(&self) -> TextSize {
        self.content + self.reasoning + self.tool_calls
    }
}

/// What an event of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A chunk with choices, or one of a kind that is only passed on.
    Delta,
    /// The extra chunk that has usage and no choices: not for callers who did not ask for it.
    UsageOnly,
    /// `[DONE]`.
    Done,
    /// An error inside the stream.
    Error,
    /// No chunk that can be read.
    Unreadable,
}

/// What was seen in one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// What it is.
    pub kind: EventKind,
    /// Where `"usage":null` stands in the data, with the comma that goes with it. Providers that were asked for usage put
    /// it into every chunk; for a caller who did not ask it is cut out (see [`crate::sse::SseEvent::without`]).
    pub null_usage: Option<Range<usize>>,
}

/// Follows a stream and keeps what it says about usage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamUsage {
    /// What the provider said so far.
    pub reported: ReportedUsage,
    /// What it generated so far.
    pub output: OutputSizes,
    /// Events that could be read.
    pub events_read: u64,
    /// Events that could not: what they carried is not in `output`.
    pub events_unreadable: u64,
    /// Whether a choice told why it ended.
    pub has_finish_reason: bool,
    /// Whether `[DONE]` was seen.
    pub is_done: bool,
    /// The error the stream brought, if it did.
    pub error: Option<UpstreamError>,
}

impl StreamUsage {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes note of one event's data.
    pub fn observe(&mut self, data: &[u8]) -> Observed {
        if data.trim_ascii() == b"[DONE]" {
            self.is_done = true;
            return Observed {
                kind: EventKind::Done,
                null_usage: None,
            };
        }
        let Some(chunk) = Chunk::read(data) else {
            self.events_unreadable = self.events_unreadable.saturating_add(1);
            return Observed {
                kind: EventKind::Unreadable,
                null_usage: None,
            };
        };
        self.events_read = self.events_read.saturating_add(1);
        self.output.content += chunk.output.content;
        self.output.reasoning += chunk.output.reasoning;
        self.output.tool_calls += chunk.output.tool_calls;
        self.output.pieces = self.output.pieces.saturating_add(chunk.output.pieces);
        self.has_finish_reason |= chunk.has_finish_reason;
        let usage = chunk.usage.map(RawValue::get).filter(|usage| *usage != "null");
        if let Some(usage) = usage {
            self.reported.update(read_usage(usage));
        }
        let is_error = chunk.error.is_some_and(|error| error.get() != "null");
        if is_error && self.error.is_none() {
            self.error = Some(UpstreamError::read(data));
        }
        Observed {
            kind: match (is_error, usage) {
                (true, _) => EventKind::Error,
                (false, Some(_)) if chunk.choices == 0 => EventKind::UsageOnly,
                (false, _) => EventKind::Delta,
            },
            null_usage: chunk
                .usage
                .filter(|usage| usage.get() == "null")
                .and_then(|usage| field_range(data, usage.get())),
        }
    }

    /// Whether all of it could be read, so that `output` is all there was.
    pub fn is_understood(&self) -> bool {
        self.events_read > 0 && self.events_unreadable == 0
    }

    /// Whether the stream came to its proper end.
    pub fn is_finished(&self) -> bool {
        self.is_done || self.has_finish_reason
    }
}

/// What a whole response says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatResponse {
    /// What the provider said was used.
    pub reported: ReportedUsage,
    /// What it generated.
    pub output: OutputSizes,
    /// The error it is instead of an answer, whatever its status says.
    pub error: Option<UpstreamError>,
}

impl ChatResponse {
    /// Reads a response's body; nothing is known of a body that is no response.
    pub fn read(body: &[u8]) -> Self {
        let mut seen = StreamUsage::new();
        seen.observe(body);
        Self {
            reported: seen.reported,
            output: seen.output,
            error: seen.error,
        }
    }
}

/// The range of the field whose value is `value`, a piece of `data`, with the comma that joins it to the others.
fn field_range(data: &[u8], value: &str) -> Option<Range<usize>> {
    let start = (value.as_ptr() as usize).checked_sub(data.as_ptr() as usize)?;
    let mut end = start + value.len();
    let before = data.get(..start)?.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end();
    // A key written with escapes is not worth the trouble.
    let before = before.strip_suffix(b"\"usage\"")?.trim_ascii_end();
    if let Some(before) = before.strip_suffix(b",") {
        return Some(before.len()..end);
    }
    let start = before.len();
    let after = data.get(end..)?;
    let rest = after.trim_ascii_start();
    if let Some(rest) = rest.strip_prefix(b",") {
        end = data.len() - rest.len();
    }
    Some(start..end)
}

/// The usage object, as far as it has figures.
fn read_usage(text: &str) -> ReportedUsage {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Wire {
        prompt_tokens: Count,
        completion_tokens: Count,
        total_tokens: Count,
        cached_tokens: Count,
        prompt_cache_hit_tokens: Count,
        prompt_tokens_details: Lenient<PromptDetails>,
        completion_tokens_details: Lenient<CompletionDetails>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct PromptDetails {
        cached_tokens: Count,
        cache_write_tokens: Count,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct CompletionDetails {
        reasoning_tokens: Count,
    }

    let wire: Wire = serde_json::from_str(text).unwrap_or_default();
    let PromptDetails {
        cached_tokens,
        cache_write_tokens,
    } = wire.prompt_tokens_details.0;
    ReportedUsage {
        prompt_tokens: wire.prompt_tokens.0,
        completion_tokens: wire.completion_tokens.0,
        total_tokens: wire.total_tokens.0,
        cached_tokens: cached_tokens
            .0
            .or(wire.cached_tokens.0)
            .or(wire.prompt_cache_hit_tokens.0),
        cache_write_tokens: cache_write_tokens.0,
        reasoning_tokens: wire.completion_tokens_details.0.reasoning_tokens.0,
    }
}

/// A number of tokens, however it is written; `None` for what is none, or more than [`COUNTED_TOKENS_MAX`].
#[derive(Clone, Copy, Default)]
struct Count(Option<u64>);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        let count = text.parse::<u64>().ok().or_else(|| {
            let number: f64 = text.parse().ok()?;
            // Casting saturates, and a count is never cut down.
            (number.is_finite() && number >= 0.0).then(|| number.ceil() as u64)
        });
        Ok(Self(count.filter(|count| *count <= COUNTED_TOKENS_MAX)))
    }
}

/// A value, or its default when it has another shape.
#[derive(Default)]
struct Lenient<T>(T);

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'de RawValue>::deserialize(deserializer)?;
        Ok(Self(serde_json::from_str(raw.get()).unwrap_or_default()))
    }
}

/// A chunk of a stream or a whole response: they differ in `delta` and `message` only.
#[derive(Default)]
struct Chunk<'a> {
    choices: usize,
    output: OutputSizes,
    has_finish_reason: bool,
    usage: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

impl<'a> Chunk<'a> {
    fn read(data: &'a [u8]) -> Option<Self> {
        let mut chunk = Self::default();
        let mut deserializer = serde_json::Deserializer::from_slice(data);
        deserializer.deserialize_map(ChunkFields(&mut chunk)).ok()?;
        deserializer.end().ok()?;
        Some(chunk)
    }
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Field {
    // Of a chunk.
    Choices,
    Usage,
    Error,
    // Of a choice.
    #[serde(alias = "message")]
    Delta,
    FinishReason,
    // Of a delta.
    #[serde(alias = "refusal", alias = "text")]
    Content,
    ReasoningContent,
    Reasoning,
    ToolCalls,
    FunctionCall,
    // Of a tool call.
    #[serde(alias = "custom")]
    Function,
    #[serde(other)]
    Other,
}

struct ChunkFields<'s, 'a>(&'s mut Chunk<'a>);

impl<'a> Visitor<'a> for ChunkFields<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(field) = map.next_key()? {
            match field {
                Field::Choices => map.next_value_seed(Choices(self.0))?,
                Field::Usage => self.0.usage = Some(map.next_value()?),
                Field::Error => self.0.error = Some(map.next_value()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Makes a seed of a visitor, one that takes any other shape for nothing.
macro_rules! lenient_seed {
    () => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("anything")
        }
        fn visit_unit<E>(self) -> Result<(), E> {
            Ok(())
        }
        fn visit_bool<E>(self, _: bool) -> Result<(), E> {
            Ok(())
        }
        fn visit_u64<E>(self, _: u64) -> Result<(), E> {
            Ok(())
        }
        fn visit_i64<E>(self, _: i64) -> Result<(), E> {
            Ok(())
        }
        fn visit_f64<E>(self, _: f64) -> Result<(), E> {
            Ok(())
        }
    };
    (str) => {
        fn visit_str<E>(self, _: &str) -> Result<(), E> {
            Ok(())
        }
    };
    (seq) => {
        fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<(), A::Error> {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            Ok(())
        }
    };
    (map) => {
        fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(())
        }
    };
}

macro_rules! seed_of_visitor {
    ($name:ident < $($life:lifetime),+ >) => {
        impl<'a> DeserializeSeed<'a> for $name<$($life),+> {
            type Value = ();
            fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
                deserializer.deserialize_any(self)
            }
        }
    };
}

struct Choices<'s, 'a>(&'s mut Chunk<'a>);
seed_of_visitor!(Choices<'_, 'a>);

impl<'a> Visitor<'a> for Choices<'_, 'a> {
    type Value = ();
    lenient_seed!();
    lenient_seed!(str);
    lenient_seed!(map);

    fn visit_seq<A: SeqAccess<'a>>(self, mut choices: A) -> Result<(), A::Error> {
        while choices.next_element_seed(Choice(self.0))?.is_some() {
            self.0.choices += 1;
        }
        Ok(())
    }
}

struct Choice<'s, 'a>(&'s mut Chunk<'a>);
seed_of_visitor!(Choice<'_, 'a>);

impl<'a> Visitor<'a> for Choice<'_, 'a> {
    type Value = ();
    lenient_seed!();
    lenient_seed!(str);
    lenient_seed!(seq);

    fn visit_map<A: MapAccess<'a>>(self, mut choice: A) -> Result<(), A::Error> {
        while let Some(field) = choice.next_key()? {
            match field {
                Field::Delta => choice.next_value_seed(Delta(&mut self.0.output))?,
                Field::FinishReason => {
                    let is_given = choice.next_value::<&'a RawValue>()?.get() != "null";
                    self.0.has_finish_reason |= is_given;
                }
                _ => {
                    choice.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

struct Delta<'s>(&'s mut OutputSizes);
seed_of_visitor!(Delta<'_>);

impl<'a> Visitor<'a> for Delta<'_> {
    type Value = ();
    lenient_seed!();
    lenient_seed!(str);
    lenient_seed!(seq);

    fn visit_map<A: MapAccess<'a>>(self, mut delta: A) -> Result<(), A::Error> {
        let before = self.0.text();
        // Some providers give their reasoning under two names at once.
        let mut reasoning = TextSize::default();
        while let Some(field) = delta.next_key()? {
            match field {
                Field::Content => delta.next_value_seed(Texts(&mut self.0.content))?,
                Field::ReasoningContent | Field::Reasoning => {
                    let mut size = TextSize::default();
                    delta.next_value_seed(Texts(&mut size))?;
                    if size.bytes() > reasoning.bytes() {
                        reasoning = size;
                    }
                }
                Field::ToolCalls => delta.next_value_seed(ToolCalls(&mut self.0.tool_calls))?,
                Field::FunctionCall => delta.next_value_seed(Texts(&mut self.0.tool_calls))?,
                _ => {
                    delta.next_value::<IgnoredAny>()?;
                }
            }
        }
        self.0.reasoning += reasoning;
        if self.0.text() != before {
            self.0.pieces = self.0.pieces.saturating_add(1);
        }
        Ok(())
    }
}

struct ToolCalls<'s>(&'s mut TextSize);
seed_of_visitor!(ToolCalls<'_>);

impl<'a> Visitor<'a> for ToolCalls<'_> {
    type Value = ();
    lenient_seed!();
    lenient_seed!(str);

    fn visit_seq<A: SeqAccess<'a>>(self, mut calls: A) -> Result<(), A::Error> {
        while calls.next_element_seed(ToolCalls(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'a>>(self, mut call: A) -> Result<(), A::Error> {
        while let Some(field) = call.next_key()? {
            match field {
                Field::Function => call.next_value_seed(Texts(self.0))?,
                _ => {
                    call.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Adds up all strings of a value.
struct Texts<'s>(&'s mut TextSize);
seed_of_visitor!(Texts<'_>);

impl<'a> Visitor<'a> for Texts<'_> {
    type Value = ();
    lenient_seed!();

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        *self.0 += TextSize::of(text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut texts: A) -> Result<(), A::Error> {
        while texts.next_element_seed(Texts(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'a>>(self, mut texts: A) -> Result<(), A::Error> {
        while texts.next_key::<IgnoredAny>()?.is_some() {
            texts.next_value_seed(Texts(self.0))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

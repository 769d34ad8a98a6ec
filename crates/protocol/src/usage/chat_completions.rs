//! What chunks and whole answers of OpenAI's `chat/completions`, `completions` and `embeddings` say.

use std::fmt;
use std::ops::Range;

use domain::parts::TextSize;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::json::{CacheWrites, Count, Lenient, Texts, lenient_seed, seed_of_visitor};
use super::{Event, EventKind, OutputSizes, ReportedUsage};
use crate::errors::UpstreamError;

/// What one chunk or a whole answer says.
pub(super) fn read(data: &[u8]) -> Option<Event> {
    let chunk = Chunk::read(data)?;
    let usage = chunk.usage.map(RawValue::get).filter(|usage| *usage != "null");
    let is_error = chunk.error.is_some_and(|error| error.get() != "null");
    Some(Event {
        kind: match (is_error, usage) {
            (true, _) => EventKind::Error,
            (false, Some(_)) if chunk.choices == 0 => EventKind::UsageOnly,
            (false, _) => EventKind::Delta,
        },
        output: chunk.output,
        reported: usage.map(read_usage).unwrap_or_default(),
        has_finish_reason: chunk.has_finish_reason,
        error: is_error.then(|| UpstreamError::read(data)),
        null_usage: chunk
            .usage
            .filter(|usage| usage.get() == "null")
            .and_then(|usage| field_range(data, usage.get())),
    })
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
        cache_write_tokens_details: Lenient<CacheWrites>,
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
        cache_write_tokens_details,
    } = wire.prompt_tokens_details.0;
    ReportedUsage {
        input_tokens: wire.prompt_tokens.0,
        output_tokens: wire.completion_tokens.0,
        total_tokens: wire.total_tokens.0,
        cached_tokens: cached_tokens
            .0
            .or(wire.cached_tokens.0)
            .or(wire.prompt_cache_hit_tokens.0),
        cache_write_tokens: cache_write_tokens.0,
        cache_write_1h_tokens: cache_write_tokens_details.0.ttl_12h_tokens.0,
        reasoning_tokens: wire.completion_tokens_details.0.reasoning_tokens.0,
        ..ReportedUsage::default()
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
                // The text of a completion, which has no delta around it.
                Field::Content => {
                    let mut text = TextSize::default();
                    choice.next_value_seed(Texts(&mut text))?;
                    self.0.output += OutputSizes::piece(text, TextSize::default(), TextSize::default());
                }
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

//! What events and whole answers of OpenAI's `responses` say.

use std::borrow::Cow;

use domain::parts::TextSize;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::json::{CacheWrites, Count, Lenient, read, size_of, sizes_of};
use super::{Event, EventKind, OutputSizes, ReportedUsage};
use crate::errors::UpstreamError;

/// What one event says. Texts are counted where they come in pieces; the events that say them again as a whole are not.
pub(super) fn read_event(data: &[u8]) -> Option<Event> {
    #[derive(Deserialize)]
    struct Wire<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
        #[serde(borrow)]
        delta: Option<&'a RawValue>,
        #[serde(borrow)]
        item: Option<&'a RawValue>,
        #[serde(borrow)]
        response: Option<&'a RawValue>,
    }
    let wire: Wire<'_> = serde_json::from_slice(data).ok()?;
    let nothing = TextSize::default();
    let delta = || wire.delta.map(size_of).unwrap_or_default();
    let piece = |output| Event {
        output,
        ..Event::default()
    };
    let event = match &*wire.r#type {
        "response.output_text.delta" | "response.refusal.delta" => piece(OutputSizes::piece(delta(), nothing, nothing)),
        "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
            piece(OutputSizes::piece(nothing, delta(), nothing))
        }
        "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
            piece(OutputSizes::piece(nothing, nothing, delta()))
        }
        "response.output_item.added" => {
            let name = wire.item.and_then(|item| read::<Item<'_>>(item)?.name);
            piece(OutputSizes::piece(
                nothing,
                nothing,
                name.map(size_of).unwrap_or_default(),
            ))
        }
        "response.completed" | "response.incomplete" => Event {
            kind: EventKind::Done,
            reported: wire.response.map(usage_of).unwrap_or_default(),
            ..Event::default()
        },
        "response.failed" => Event {
            kind: EventKind::Error,
            reported: wire.response.map(usage_of).unwrap_or_default(),
            error: wire
                .response
                .map(|response| UpstreamError::read(response.get().as_bytes())),
            ..Event::default()
        },
        "error" => Event {
            kind: EventKind::Error,
            error: Some(UpstreamError::read(data)),
            ..Event::default()
        },
        _ => Event::default(),
    };
    Some(event)
}

/// What a whole answer says.
pub(super) fn read_answer(body: &[u8]) -> Option<Event> {
    let response: Response<'_> = serde_json::from_slice(body).ok()?;
    let items: Vec<&RawValue> = response.output.and_then(read).unwrap_or_default();
    let reported = response.usage.map(read_usage).unwrap_or_default();
    Some(Event::whole(
        body,
        response.error,
        reported,
        items.into_iter().map(sizes),
    ))
}

#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow)]
    output: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow)]
    r#type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    summary: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

/// The sizes of one item of the output.
fn sizes(raw: &RawValue) -> OutputSizes {
    let Some(item) = read::<Item<'_>>(raw) else {
        return OutputSizes::default();
    };
    let nothing = TextSize::default();
    match item.r#type.as_deref() {
        Some("message") => OutputSizes::piece(texts(item.content), nothing, nothing),
        Some("reasoning") => OutputSizes::piece(nothing, texts(item.content) + texts(item.summary), nothing),
        _ => OutputSizes::piece(nothing, nothing, sizes_of([item.name, item.arguments, item.input])),
    }
}

/// The texts in a list of parts.
fn texts(parts: Option<&RawValue>) -> TextSize {
    #[derive(Deserialize)]
    struct Part<'a> {
        #[serde(borrow)]
        text: Option<&'a RawValue>,
        #[serde(borrow)]
        refusal: Option<&'a RawValue>,
    }
    let parts: Vec<Lenient<Option<Part<'_>>>> = parts.and_then(read).unwrap_or_default();
    parts
        .into_iter()
        .filter_map(|part| part.0)
        .map(|part| sizes_of([part.text, part.refusal]))
        .fold(TextSize::default(), |sum, size| sum + size)
}

fn usage_of(response: &RawValue) -> ReportedUsage {
    let usage = read::<Response<'_>>(response).and_then(|response| response.usage);
    usage.map(read_usage).unwrap_or_default()
}

/// The usage object, as far as it has figures.
fn read_usage(raw: &RawValue) -> ReportedUsage {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Wire {
        input_tokens: Count,
        output_tokens: Count,
        total_tokens: Count,
        input_tokens_details: Lenient<InputDetails>,
        output_tokens_details: Lenient<OutputDetails>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct InputDetails {
        cached_tokens: Count,
        cache_write_tokens: Count,
        cache_write_tokens_details: Lenient<CacheWrites>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct OutputDetails {
        reasoning_tokens: Count,
    }
    let wire: Wire = read(raw).unwrap_or_default();
    ReportedUsage {
        input_tokens: wire.input_tokens.0,
        output_tokens: wire.output_tokens.0,
        total_tokens: wire.total_tokens.0,
        cached_tokens: wire.input_tokens_details.0.cached_tokens.0,
        cache_write_tokens: wire.input_tokens_details.0.cache_write_tokens.0,
        cache_write_1h_tokens: wire
            .input_tokens_details
            .0
            .cache_write_tokens_details
            .0
            .ttl_12h_tokens
            .0,
        reasoning_tokens: wire.output_tokens_details.0.reasoning_tokens.0,
        ..ReportedUsage::default()
    }
}

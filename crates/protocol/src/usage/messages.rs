//! What events and whole answers of Anthropic's `messages` say.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::json::{Count, Lenient, read, sizes_of};
use super::{Event, EventKind, OutputSizes, ReportedUsage};
use crate::errors::UpstreamError;

/// What one event says.
pub(super) fn read_event(data: &[u8]) -> Option<Event> {
    #[derive(Deserialize)]
    struct Wire<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
        #[serde(borrow)]
        message: Option<&'a RawValue>,
        #[serde(borrow)]
        content_block: Option<&'a RawValue>,
        #[serde(borrow)]
        delta: Option<&'a RawValue>,
        #[serde(borrow)]
        usage: Option<&'a RawValue>,
    }
    let wire: Wire<'_> = serde_json::from_slice(data).ok()?;
    let event = match &*wire.r#type {
        "message_start" => {
            let usage = wire.message.and_then(|message| read::<Message<'_>>(message)?.usage);
            Event {
                reported: ReportedUsage {
                    // Only a beginning; the figure that counts comes at the end.
                    output_tokens: None,
                    ..usage.map(read_usage).unwrap_or_default()
                },
                ..Event::default()
            }
        }
        "content_block_start" => Event {
            output: wire.content_block.map(sizes).unwrap_or_default(),
            ..Event::default()
        },
        "content_block_delta" => Event {
            output: wire.delta.map(sizes).unwrap_or_default(),
            ..Event::default()
        },
        "message_delta" => Event {
            reported: wire.usage.map(read_usage).unwrap_or_default(),
            has_finish_reason: wire
                .delta
                .and_then(|delta| read::<Message<'_>>(delta)?.stop_reason)
                .is_some_and(|reason| reason.get() != "null"),
            ..Event::default()
        },
        "message_stop" => Event {
            kind: EventKind::Done,
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
    let message: Message<'_> = serde_json::from_slice(body).ok()?;
    let blocks: Vec<&RawValue> = message.content.and_then(read).unwrap_or_default();
    let reported = message.usage.map(read_usage).unwrap_or_default();
    Some(Event::whole(
        body,
        message.error,
        reported,
        blocks.into_iter().map(sizes),
    ))
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    stop_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// The sizes of a block of content, or of a piece of one. Signatures are no output of the model.
fn sizes(raw: &RawValue) -> OutputSizes {
    #[derive(Deserialize)]
    struct Block<'a> {
        #[serde(borrow)]
        text: Option<&'a RawValue>,
        #[serde(borrow)]
        thinking: Option<&'a RawValue>,
        #[serde(borrow)]
        data: Option<&'a RawValue>,
        #[serde(borrow)]
        name: Option<&'a RawValue>,
        #[serde(borrow)]
        input: Option<&'a RawValue>,
        #[serde(borrow)]
        partial_json: Option<&'a RawValue>,
    }
    let Some(block) = read::<Block<'_>>(raw) else {
        return OutputSizes::default();
    };
    OutputSizes::piece(
        sizes_of([block.text]),
        sizes_of([block.thinking, block.data]),
        sizes_of([block.name, block.input, block.partial_json]),
    )
}

/// The usage object, as far as it has figures.
fn read_usage(raw: &RawValue) -> ReportedUsage {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Wire {
        input_tokens: Count,
        output_tokens: Count,
        cache_read_input_tokens: Count,
        cache_creation_input_tokens: Count,
        cache_creation: Lenient<CacheCreation>,
        output_tokens_details: Lenient<OutputDetails>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct OutputDetails {
        thinking_tokens: Count,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct CacheCreation {
        ephemeral_5m_input_tokens: Count,
        ephemeral_1h_input_tokens: Count,
    }
    let wire: Wire = read(raw).unwrap_or_default();
    let CacheCreation {
        ephemeral_5m_input_tokens: Count(for_5m),
        ephemeral_1h_input_tokens: Count(for_1h),
    } = wire.cache_creation.0;
    let by_time = for_5m
        .or(for_1h)
        .map(|_| for_5m.unwrap_or(0).saturating_add(for_1h.unwrap_or(0)));
    ReportedUsage {
        input_tokens: wire.input_tokens.0,
        output_tokens: wire.output_tokens.0,
        cached_tokens: wire.cache_read_input_tokens.0,
        cache_write_tokens: wire.cache_creation_input_tokens.0.max(by_time),
        cache_write_1h_tokens: for_1h,
        reasoning_tokens: wire.output_tokens_details.0.thinking_tokens.0,
        counts_cache_apart: true,
        ..ReportedUsage::default()
    }
}

//! The fields of OpenAI's `responses`.

use std::borrow::Cow;

use domain::parts::PartKind;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::InspectError;
use super::chat_completions::service_tier;
use super::json::{boolean, each, member, string};
use super::reading::Reading;

pub(super) const FIELDS: [&str; 14] = [
    "model",
    "input",
    "stream",
    "max_output_tokens",
    "instructions",
    "tools",
    "text",
    "user",
    "metadata",
    "service_tier",
    "background",
    "previous_response_id",
    "conversation",
    "prompt",
];

/// Tools that the caller runs itself. All others are run by the provider, and billed by the call.
const CALLER_TOOLS: [&str; 6] = [
    "function",
    "custom",
    "local_shell",
    "apply_patch",
    "computer_use_preview",
    "computer",
];

pub(super) fn field<'a>(reading: &mut Reading<'a>, name: &'static str, raw: &'a RawValue) -> Result<(), InspectError> {
    let text = raw.get();
    match name {
        "input" if text.starts_with('[') => each(name, raw, &mut |item| {
            reading.add_message()?;
            self::item(reading, item)
        }),
        "input" => {
            reading.add_message()?;
            reading.push(PartKind::Text, text)
        }
        "max_output_tokens" => reading.cap(name, text),
        "instructions" if text != "null" => {
            reading.add_message()?;
            content(reading, raw)
        }
        "tools" => each(name, raw, &mut |tool| self::tool(reading, tool)),
        "text" => match member(raw, "format") {
            Some(format) if format.get().starts_with('{') => reading.push(PartKind::Definition, format.get()),
            _ => Ok(()),
        },
        "service_tier" => service_tier(name, text),
        "background" if boolean(name, text)? == Some(true) => Err(InspectError::Refused {
            field: name,
            remedy: "send the header `Prefer: respond-async` instead, and get a job of the gateway where there is no room",
        }),
        "previous_response_id" | "conversation" | "prompt" if text != "null" => Err(InspectError::KeptByProvider(name)),
        _ => Ok(()),
    }
}

fn tool<'a>(reading: &mut Reading<'a>, raw: &'a RawValue) -> Result<(), InspectError> {
    let kind = member(raw, "type").and_then(|kind| string("tools", kind.get()).ok().flatten());
    match kind {
        Some(kind) if !CALLER_TOOLS.contains(&kind.as_str()) => Err(InspectError::Refused {
            field: "tools",
            remedy: "only tools that you run yourself are served, of the types `function` and `custom` among others",
        }),
        _ => reading.push(PartKind::Definition, raw.get()),
    }
}

/// One item of the input: a message, a call of a tool or its output, earlier reasoning. What is not known counts with all
/// its JSON.
fn item<'a>(reading: &mut Reading<'a>, raw: &'a RawValue) -> Result<(), InspectError> {
    #[derive(Deserialize)]
    struct Item<'a> {
        #[serde(borrow)]
        r#type: Option<Cow<'a, str>>,
        #[serde(borrow)]
        content: Option<&'a RawValue>,
        #[serde(borrow)]
        name: Option<&'a RawValue>,
        #[serde(borrow)]
        arguments: Option<&'a RawValue>,
        #[serde(borrow)]
        input: Option<&'a RawValue>,
        #[serde(borrow)]
        output: Option<&'a RawValue>,
        #[serde(borrow)]
        summary: Option<&'a RawValue>,
        #[serde(borrow)]
        encrypted_content: Option<&'a RawValue>,
    }
    let Ok(item) = serde_json::from_str::<Item<'a>>(raw.get()) else {
        return reading.push(PartKind::Text, raw.get());
    };
    match item.r#type.as_deref() {
        Some("message") | None => match item.content {
            Some(content) => self::content(reading, content),
            None => reading.push(PartKind::Text, raw.get()),
        },
        Some("function_call" | "custom_tool_call") => reading.push_all([item.name, item.arguments, item.input]),
        Some("function_call_output" | "custom_tool_call_output") => match item.output {
            Some(output) => content(reading, output),
            None => Ok(()),
        },
        Some("reasoning") => {
            if let Some(secret) = item.encrypted_content.filter(|secret| secret.get() != "null") {
                reading.push(PartKind::Opaque, secret.get())?;
            }
            reading.push_all([item.summary, item.content])
        }
        Some("item_reference") => Err(InspectError::KeptByProvider("input")),
        Some(_) => reading.push(PartKind::Text, raw.get()),
    }
}

/// A text, a list of parts, or null.
fn content<'a>(reading: &mut Reading<'a>, raw: &'a RawValue) -> Result<(), InspectError> {
    match raw.get().as_bytes().first() {
        Some(b'n') => Ok(()),
        Some(b'[') => each("input", raw, &mut |part| content_part(reading, part)),
        _ => reading.push(PartKind::Text, raw.get()),
    }
}

fn content_part<'a>(reading: &mut Reading<'a>, raw: &'a RawValue) -> Result<(), InspectError> {
    #[derive(Deserialize)]
    struct ContentPart<'a> {
        #[serde(borrow)]
        r#type: Option<Cow<'a, str>>,
        #[serde(borrow)]
        text: Option<&'a RawValue>,
        #[serde(borrow)]
        refusal: Option<&'a RawValue>,
        #[serde(borrow)]
        image_url: Option<&'a RawValue>,
        #[serde(borrow)]
        detail: Option<&'a RawValue>,
        #[serde(borrow)]
        file_data: Option<&'a RawValue>,
        #[serde(borrow)]
        input_audio: Option<&'a RawValue>,
    }
    let Ok(part) = serde_json::from_str::<ContentPart<'a>>(raw.get()) else {
        return reading.push(PartKind::Text, raw.get());
    };
    match (part.r#type.as_deref(), part.text, part.refusal) {
        (Some("input_text" | "output_text" | "text" | "summary_text"), Some(text), _) => {
            reading.push(PartKind::Text, text.get())
        }
        (Some("refusal"), _, Some(refusal)) => reading.push(PartKind::Text, refusal.get()),
        (Some("input_image"), ..) => {
            let kind = PartKind::Image {
                is_low_detail: part.detail.is_some_and(|detail| detail.get() == "\"low\""),
            };
            reading.push(kind, part.image_url.map_or(raw.get(), RawValue::get))
        }
        (Some("input_file"), ..) => reading.push_file(part.file_data, raw),
        (Some("input_audio"), ..) => {
            let data = part.input_audio.and_then(|audio| member(audio, "data"));
            reading.push(PartKind::Audio, data.map_or(raw.get(), RawValue::get))
        }
        _ => reading.push(PartKind::Text, raw.get()),
    }
}

//! The fields of OpenAI's `responses`.

use std::borrow::Cow;

use domain::parts::PartKind;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::InspectError;
use super::chat_completions::{caller_tool, service_tier};
use super::json::{boolean, each, member, object};
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

/// What is thought to be behind an item of reasoning that is only named. What the provider reports corrects it.
const REASONING_BY_ID_TOKENS: u64 = 1_000;
/// The same of all of them: providers drop what was thought before the last question.
const REASONING_BY_ID_TOKENS_MAX: u64 = 5_000;

const NOT_ONCE: InspectError = InspectError::WrongType {
    field: "input",
    expected: "a text, or a list of items with each of their fields once",
};

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
        "tools" => each(name, raw, &mut |tool| caller_tool(reading, tool, &CALLER_TOOLS)),
        "text" => match member(name, raw, "format")? {
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
    let Some(item) = object::<Item<'a>>(raw, NOT_ONCE)? else {
        return reading.push(PartKind::Text, raw.get());
    };
    match item.r#type.as_deref() {
        Some("message") | None => match item.content {
            Some(content) => self::content(reading, content),
            // Only an id: what it stands for is with the provider.
            None => Err(InspectError::KeptByProvider("input")),
        },
        Some("function_call" | "custom_tool_call") => reading.push_all([item.name, item.arguments, item.input]),
        Some("reasoning") => {
            let secret = item.encrypted_content.filter(|secret| secret.get() != "null");
            match secret {
                Some(secret) => reading.push(PartKind::Opaque, secret.get())?,
                // The provider has it by its id, which is how its own SDKs send back what it answered.
                None => {
                    let so_far = &mut reading.fields.preamble_tokens;
                    *so_far = (*so_far + REASONING_BY_ID_TOKENS).min(REASONING_BY_ID_TOKENS_MAX);
                }
            }
            reading.push_all([item.summary, item.content])
        }
        Some("item_reference" | "image_generation_call") => Err(InspectError::KeptByProvider("input")),
        Some(kind) if kind.ends_with("_call_output") => match item.output {
            Some(output) => call_output(reading, output),
            None => Ok(()),
        },
        Some(_) => reading.push(PartKind::Text, raw.get()),
    }
}

/// What a tool has answered: a text, parts, or a picture of a screen.
fn call_output<'a>(reading: &mut Reading<'a>, output: &'a RawValue) -> Result<(), InspectError> {
    let image = member("input", output, "image_url")?;
    if member("input", output, "file_id")?.is_some() {
        return Err(InspectError::KeptByProvider("input"));
    }
    match image {
        Some(image) => reading.push(PartKind::Image { is_low_detail: false }, image.get()),
        None => content(reading, output),
    }
}

/// What an item says.
fn content<'a>(reading: &mut Reading<'a>, raw: &'a RawValue) -> Result<(), InspectError> {
    reading.content("input", raw, content_part)
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
        file_id: Option<&'a RawValue>,
        #[serde(borrow)]
        input_audio: Option<&'a RawValue>,
    }
    let Some(part) = object::<ContentPart<'a>>(raw, NOT_ONCE)? else {
        return reading.push(PartKind::Text, raw.get());
    };
    if part.file_id.is_some_and(|id| id.get() != "null") {
        return Err(InspectError::KeptByProvider("input"));
    }
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
            let data = match part.input_audio {
                Some(audio) => member("input", audio, "data")?,
                None => None,
            };
            reading.push(PartKind::Audio, data.map_or(raw.get(), RawValue::get))
        }
        _ => reading.push(PartKind::Text, raw.get()),
    }
}

//! The fields of OpenAI's `chat/completions`.

use std::borrow::Cow;

use domain::parts::PartKind;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::InspectError;
use super::json::{each, kind_of, member, object, string};
use super::reading::{Reading, choices};

pub(super) const FIELDS: [&str; 16] = [
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
];

/// Tools that the caller runs itself. All others are run by some provider, and billed by the call.
const CALLER_TOOLS: [&str; 2] = ["function", "custom"];

pub(super) fn field<'a>(reading: &mut Reading<'a>, name: &'static str, raw: &'a RawValue) -> Result<(), InspectError> {
    let text = raw.get();
    match name {
        "stream_options" => reading.stream_options(text),
        "max_tokens" | "max_completion_tokens" => reading.cap(name, text),
        "n" => {
            reading.fields.choices = choices(name, text)?;
            Ok(())
        }
        "tools" => each(name, raw, &mut |tool| caller_tool(reading, tool, &CALLER_TOOLS)),
        "functions" => each(name, raw, &mut |function| {
            reading.push(PartKind::Definition, function.get())
        }),
        "response_format" if text.starts_with('{') => reading.push(PartKind::Definition, text),
        "prediction" if text.starts_with('{') => prediction(reading, text),
        _ => refuse_billed(name, text),
    }
}

fn prediction<'a>(reading: &mut Reading<'a>, text: &'a str) -> Result<(), InspectError> {
    #[derive(Deserialize)]
    struct Prediction<'a> {
        #[serde(borrow)]
        content: Option<&'a RawValue>,
    }
    match serde_json::from_str::<Prediction<'_>>(text) {
        Ok(Prediction { content: Some(content) }) => self::content(reading, content),
        Ok(Prediction { content: None }) => Ok(()),
        Err(_) => reading.push(PartKind::Text, text),
    }
}

/// The content of a message.
fn content<'a>(reading: &mut Reading<'a>, raw: &'a RawValue) -> Result<(), InspectError> {
    reading.content("messages", raw, content_part)
}

/// One part of a message. What is not known counts with all its JSON: more than the provider would count.
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
        input_audio: Option<&'a RawValue>,
        #[serde(borrow)]
        file: Option<&'a RawValue>,
    }
    let wrong = InspectError::WrongType {
        field: "messages",
        expected: "a list of messages whose parts have each of their fields once",
    };
    let Some(part) = object::<ContentPart<'a>>(raw, wrong)? else {
        return reading.push(PartKind::Text, raw.get());
    };
    match (part.r#type.as_deref(), &part) {
        (Some("text"), ContentPart { text: Some(text), .. }) => reading.push(PartKind::Text, text.get()),
        (
            Some("refusal"),
            ContentPart {
                refusal: Some(refusal), ..
            },
        ) => reading.push(PartKind::Text, refusal.get()),
        (
            Some("image_url"),
            ContentPart {
                image_url: Some(image), ..
            },
        ) => {
            let kind = PartKind::Image {
                is_low_detail: member("messages", image, "detail")?.is_some_and(|detail| detail.get() == "\"low\""),
            };
            let url = member("messages", image, "url")?;
            reading.push(kind, url.map_or(image.get(), RawValue::get))
        }
        (
            Some("input_audio"),
            ContentPart {
                input_audio: Some(audio),
                ..
            },
        ) => {
            let data = member("messages", audio, "data")?;
            reading.push(PartKind::Audio, data.map_or(audio.get(), RawValue::get))
        }
        (Some("file"), ContentPart { file: Some(file), .. }) => {
            if member("messages", file, "file_id")?.is_some() {
                return Err(InspectError::KeptByProvider("messages"));
            }
            reading.push_file(member("messages", file, "file_data")?, file)
        }
        _ => reading.push(PartKind::Text, raw.get()),
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

/// One call of a tool in an assistant's message: its name and what it was called with.
fn tool_call<'a>(reading: &mut Reading<'a>, raw: &'a RawValue) -> Result<(), InspectError> {
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
        | Err(_) => reading.push(PartKind::Text, raw.get()),
        Ok(ToolCall { function, custom }) => [function, custom]
            .into_iter()
            .flatten()
            .try_for_each(|call| reading.push_all([call.name, call.arguments, call.input])),
    }
}

/// One field of a message.
pub(super) fn message_field<'a>(reading: &mut Reading<'a>, key: &str, raw: &'a RawValue) -> Result<(), InspectError> {
    if raw.get() == "null" {
        return Ok(());
    }
    match key {
        // Their tokens are part of the overhead of each message, or they are references.
        "role" | "tool_call_id" => Ok(()),
        // An answer that was spoken, by its id.
        "audio" => Err(InspectError::KeptByProvider("messages")),
        "content" => content(reading, raw),
        "tool_calls" => each("messages", raw, &mut |call| tool_call(reading, call)),
        "function_call" => match serde_json::from_str::<Call<'a>>(raw.get()) {
            Ok(call) => reading.push_all([call.name, call.arguments, None]),
            Err(_) => reading.push(PartKind::Text, raw.get()),
        },
        _ => reading.push(PartKind::Text, raw.get()),
    }
}

/// A tool, by its definition.
///
/// # Errors
/// When its type is none of those that the caller runs itself.
pub(super) fn caller_tool<'a>(
    reading: &mut Reading<'a>,
    raw: &'a RawValue,
    caller_tools: &[&str],
) -> Result<(), InspectError> {
    match kind_of("tools", raw)? {
        Some(kind) if !caller_tools.contains(&kind.as_str()) => Err(InspectError::Refused {
            field: "tools",
            remedy: "only tools that you run yourself are served, of the types `function` and `custom` among others",
        }),
        _ => reading.push(PartKind::Definition, raw.get()),
    }
}

/// Refuses what would make the provider bill something else than the model that was asked for, at the rates known here:
/// other tiers, and output that is no text.
fn refuse_billed(field: &'static str, text: &str) -> Result<(), InspectError> {
    let (is_harmless, remedy) = match field {
        "service_tier" => return service_tier(field, text),
        "modalities" => (
            serde_json::from_str::<Option<Vec<String>>>(text)
                .is_ok_and(|kinds| kinds.unwrap_or_default().iter().all(|kind| kind == "text")),
            "only `text` is served",
        ),
        "audio" => (text == "null", "leave it out"),
        _ => (true, ""),
    };
    if is_harmless {
        Ok(())
    } else {
        Err(InspectError::Refused { field, remedy })
    }
}

/// Refuses tiers with other prices.
pub(super) fn service_tier(field: &'static str, text: &str) -> Result<(), InspectError> {
    match string(field, text)?.as_deref() {
        None | Some("auto" | "default") => Ok(()),
        _ => Err(InspectError::Refused {
            field,
            remedy: "use `auto` or `default`, or leave it out",
        }),
    }
}

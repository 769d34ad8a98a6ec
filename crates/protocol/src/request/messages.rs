//! The fields of Anthropic's `messages` and `messages/count_tokens`.

use std::borrow::Cow;

use domain::parts::PartKind;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::InspectError;
use super::json::{each, kind_of, member, object, string};
use super::reading::Reading;

pub(super) const FIELDS: [&str; 13] = [
    "model",
    "messages",
    "stream",
    "max_tokens",
    "system",
    "tools",
    "metadata",
    "output_format",
    "output_config",
    "service_tier",
    "container",
    "inference_geo",
    "speed",
];

/// What the provider explains to the model when there are tools. Its documentation gives 313 to 346 tokens by model.
const TOOLS_PREAMBLE_TOKENS: u64 = 350;
/// What it says about each tool that it defines itself and the caller runs: 245 (bash) to 735 (computer).
const DEFINED_TOOL_TOKENS: u64 = 750;
/// Tools that the provider defines and the caller runs; what follows is a date. All others of a type are run by the
/// provider, and billed by the call or with input that nobody knows before.
const DEFINED_TOOLS: [&str; 4] = ["bash_", "text_editor_", "computer_", "memory_"];

pub(super) fn field<'a>(reading: &mut Reading<'a>, name: &'static str, raw: &'a RawValue) -> Result<(), InspectError> {
    let text = raw.get();
    match name {
        "max_tokens" => reading.cap(name, text),
        "system" if text != "null" => {
            reading.add_message()?;
            content(reading, raw)
        }
        "tools" => each(name, raw, &mut |tool| self::tool(reading, tool)),
        "output_format" if text.starts_with('{') => reading.push(PartKind::Definition, text),
        "output_config" => match member(name, raw, "format")? {
            Some(format) => reading.push(PartKind::Definition, format.get()),
            None => Ok(()),
        },
        _ => refuse_billed(name, text),
    }
}

fn tool<'a>(reading: &mut Reading<'a>, raw: &'a RawValue) -> Result<(), InspectError> {
    if reading.fields.preamble_tokens == 0 {
        reading.fields.preamble_tokens = TOOLS_PREAMBLE_TOKENS;
    }
    match kind_of("tools", raw)?.as_deref() {
        None | Some("custom") => {}
        Some(kind) if DEFINED_TOOLS.iter().any(|prefix| kind.starts_with(prefix)) => {
            reading.fields.preamble_tokens += DEFINED_TOOL_TOKENS;
        }
        Some(_) => {
            return Err(InspectError::Refused {
                field: "tools",
                remedy: "only tools that you run yourself are served",
            });
        }
    }
    reading.push(PartKind::Definition, raw.get())
}

/// One field of a message.
pub(super) fn message_field<'a>(reading: &mut Reading<'a>, key: &str, raw: &'a RawValue) -> Result<(), InspectError> {
    match key {
        // Part of the overhead of each message.
        "role" => Ok(()),
        "content" => content(reading, raw),
        _ if raw.get() == "null" => Ok(()),
        _ => reading.push(PartKind::Text, raw.get()),
    }
}

/// What is said, in a message or within one of its blocks.
fn content<'a>(reading: &mut Reading<'a>, raw: &'a RawValue) -> Result<(), InspectError> {
    reading.content("messages", raw, |reading, block| {
        reading.within(|reading| self::block(reading, block))
    })
}

/// One block of a message. What is not known counts with all its JSON.
fn block<'a>(reading: &mut Reading<'a>, raw: &'a RawValue) -> Result<(), InspectError> {
    #[derive(Deserialize)]
    struct Block<'a> {
        #[serde(borrow)]
        r#type: Option<Cow<'a, str>>,
        #[serde(borrow)]
        text: Option<&'a RawValue>,
        #[serde(borrow)]
        source: Option<&'a RawValue>,
        #[serde(borrow)]
        title: Option<&'a RawValue>,
        #[serde(borrow)]
        context: Option<&'a RawValue>,
        #[serde(borrow)]
        name: Option<&'a RawValue>,
        #[serde(borrow)]
        input: Option<&'a RawValue>,
        #[serde(borrow)]
        content: Option<&'a RawValue>,
        #[serde(borrow)]
        thinking: Option<&'a RawValue>,
        #[serde(borrow)]
        signature: Option<&'a RawValue>,
        #[serde(borrow)]
        data: Option<&'a RawValue>,
    }
    let wrong = InspectError::WrongType {
        field: "messages",
        expected: "a list of messages whose blocks have each of their fields once",
    };
    let Some(block) = object::<Block<'a>>(raw, wrong)? else {
        return reading.push(PartKind::Text, raw.get());
    };
    match (block.r#type.as_deref(), &block) {
        (Some("text"), Block { text: Some(text), .. }) => reading.push(PartKind::Text, text.get()),
        (Some("image"), Block { source, .. }) => {
            let kind = PartKind::Image { is_low_detail: false };
            let data = match source {
                Some(source) => source_of(source)?.data,
                None => None,
            };
            reading.push(kind, data.map_or(raw.get(), RawValue::get))
        }
        (
            Some("document"),
            Block {
                source: Some(source), ..
            },
        ) => {
            reading.push_all([block.title, block.context])?;
            document(reading, source)
        }
        (Some("tool_use"), _) => reading.push_all([block.name, block.input]),
        (Some("tool_result"), _) => block.content.map_or(Ok(()), |content| self::content(reading, content)),
        (
            Some("thinking"),
            Block {
                thinking: Some(thinking),
                ..
            },
        ) => match block.signature {
            // The provider reads it out of the signature.
            Some(signature) if thinking.get() == "\"\"" => reading.push(PartKind::Opaque, signature.get()),
            _ => reading.push(PartKind::Text, thinking.get()),
        },
        (Some("redacted_thinking"), Block { data: Some(data), .. }) => reading.push(PartKind::Opaque, data.get()),
        (Some("container_upload"), _) => Err(InspectError::KeptByProvider("messages")),
        _ => reading.push(PartKind::Text, raw.get()),
    }
}

/// Where an image or a document comes from.
struct Source<'a> {
    kind: Option<String>,
    data: Option<&'a RawValue>,
    content: Option<&'a RawValue>,
}

fn source_of(raw: &RawValue) -> Result<Source<'_>, InspectError> {
    let source = Source {
        kind: kind_of("messages", raw)?,
        data: member("messages", raw, "data")?,
        content: member("messages", raw, "content")?,
    };
    match source.kind.as_deref() {
        Some("file") => Err(InspectError::KeptByProvider("messages")),
        _ => Ok(source),
    }
}

/// A document by its data, its text, blocks of its own, or only its name.
fn document<'a>(reading: &mut Reading<'a>, raw: &'a RawValue) -> Result<(), InspectError> {
    let Source { kind, data, content } = source_of(raw)?;
    match (kind.as_deref(), data, content) {
        (Some("text"), Some(data), _) => reading.push(PartKind::Text, data.get()),
        (Some("content"), _, Some(content)) => self::content(reading, content),
        (_, data, _) => reading.push_file(data, raw),
    }
}

/// Refuses what would make the provider bill something else than the model's tokens at the rates known here.
fn refuse_billed(field: &'static str, text: &str) -> Result<(), InspectError> {
    let is_one_of = |words: &[&str]| -> Result<bool, InspectError> {
        Ok(string(field, text)?.is_none_or(|word| words.contains(&word.as_str())))
    };
    let (is_harmless, remedy) = match field {
        "service_tier" => (is_one_of(&["auto", "standard_only"])?, "use `auto` or `standard_only`"),
        "inference_geo" => (is_one_of(&["global"])?, "leave it out"),
        "speed" => (is_one_of(&["standard"])?, "leave it out"),
        "container" => (text == "null", "leave it out"),
        _ => (true, ""),
    };
    if is_harmless {
        Ok(())
    } else {
        Err(InspectError::Refused { field, remedy })
    }
}

//! The fields of OpenAI's `completions`, the older call that continues a prompt.

use domain::parts::PartKind;
use serde_json::value::RawValue;

use super::InspectError;
use super::json::each;
use super::reading::{Reading, choices};

/// What is generated of a completion whose request does not say.
pub(super) const OUTPUT_DEFAULT_TOKENS: u64 = 16;

pub(super) const FIELDS: [&str; 10] = [
    "model",
    "prompt",
    "stream",
    "stream_options",
    "max_tokens",
    "n",
    "best_of",
    "suffix",
    "user",
    "metadata",
];

pub(super) fn field<'a>(reading: &mut Reading<'a>, name: &'static str, raw: &'a RawValue) -> Result<(), InspectError> {
    let text = raw.get();
    match name {
        "prompt" => inputs(reading, name, raw),
        "stream_options" => reading.stream_options(text),
        "max_tokens" => reading.cap(name, text),
        "n" => {
            reading.fields.choices = choices(name, text)?;
            Ok(())
        }
        "best_of" => {
            reading.fields.best_of = choices(name, text)?;
            Ok(())
        }
        _ => reading.push_all([Some(raw)]),
    }
}

/// How many answers are generated and billed: for each prompt as many as are asked for, or as the best are chosen from.
pub(super) fn answers(choices: Option<u32>, best_of: Option<u32>, prompts: usize) -> u32 {
    let each = choices.max(best_of).unwrap_or(1);
    u32::try_from(prompts.max(1)).unwrap_or(u32::MAX).saturating_mul(each)
}

/// Texts to work on, each of them a string or a list of tokens: one, or a list of them.
pub(super) fn inputs<'a>(
    reading: &mut Reading<'a>,
    field: &'static str,
    raw: &'a RawValue,
) -> Result<(), InspectError> {
    if !raw.get().starts_with('[') {
        reading.fields.inputs += 1;
        return reading.push(PartKind::Text, raw.get());
    }
    let mut count = 0;
    each(field, raw, &mut |input| match input.get().as_bytes().first() {
        Some(b'0'..=b'9') => {
            count += 1;
            Ok(())
        }
        Some(b'[') => {
            reading.fields.inputs += 1;
            tokens(reading, field, input)
        }
        _ => {
            reading.fields.inputs += 1;
            reading.push(PartKind::Text, input.get())
        }
    })?;
    if count > 0 {
        reading.fields.inputs += 1;
        reading.push(PartKind::Tokens { count }, raw.get())?;
    }
    Ok(())
}

/// A list of tokens. What is no number in it counts with all its text.
fn tokens<'a>(reading: &mut Reading<'a>, field: &'static str, raw: &'a RawValue) -> Result<(), InspectError> {
    let mut count = 0;
    each(field, raw, &mut |token| match token.get().as_bytes().first() {
        Some(b'0'..=b'9') => {
            count += 1;
            Ok(())
        }
        _ => reading.push(PartKind::Text, token.get()),
    })?;
    reading.push(PartKind::Tokens { count }, raw.get())
}

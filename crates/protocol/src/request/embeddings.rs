//! The fields of OpenAI's `embeddings`.

use serde_json::value::RawValue;

use super::InspectError;
use super::completions::inputs;
use super::reading::Reading;

pub(super) const FIELDS: [&str; 4] = ["model", "input", "user", "metadata"];

pub(super) fn field<'a>(reading: &mut Reading<'a>, name: &'static str, raw: &'a RawValue) -> Result<(), InspectError> {
    match name {
        "input" => inputs(reading, name, raw),
        _ => Ok(()),
    }
}

//! Rewrites a body for the upstream: the caller's bytes, but for the few fields that must change.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::{InferenceRequest, StreamOptions};
use crate::endpoint::Endpoint;

/// What must be different upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewrite<'a> {
    /// The model's name there.
    pub model: &'a str,
    /// Whether a stream shall end with its usage although the caller did not ask. Nothing changes for a request that
    /// asked itself, or that wants no stream.
    pub asks_for_usage: bool,
    /// The output cap to hold the provider to, per choice: stated if the request states none, and put in the place of
    /// every higher one. A lower one stays as it is.
    pub output_cap_tokens: Option<u64>,
}

impl InferenceRequest {
    /// The body for the upstream; the very same bytes when nothing has to change.
    pub fn rewrite(&self, rewrite: &Rewrite<'_>) -> Bytes {
        let places = &self.places;
        let mut edits: Vec<(Range<usize>, String)> = Vec::new();
        // Goes before the first field. The body has at least two, so a comma always belongs behind it.
        let mut new_fields = String::new();

        if rewrite.model != self.model() {
            edits.push((places.model.clone(), quoted(rewrite.model)));
        }
        if rewrite.asks_for_usage && self.is_streamed() && !self.includes_usage() {
            match &places.stream_options {
                None => new_fields.push_str(r#""stream_options":{"include_usage":true},"#),
                Some(StreamOptions::Null(range)) => edits.push((range.clone(), r#"{"include_usage":true}"#.into())),
                Some(StreamOptions::Object {
                    include_usage: Some(range),
                    ..
                }) => edits.push((range.clone(), "true".into())),
                Some(StreamOptions::Object {
                    fields_start, is_empty, ..
                }) => {
                    let comma = if *is_empty { "" } else { "," };
                    edits.push((*fields_start..*fields_start, format!(r#""include_usage":true{comma}"#)));
                }
            }
        }
        if let Some(cap) = rewrite.output_cap_tokens {
            self.cap_output(cap, &mut edits, &mut new_fields);
        }
        if !new_fields.is_empty() {
            edits.push((places.fields_start..places.fields_start, new_fields));
        }

        edits.sort_by_key(|(range, _)| range.start);
        splice(&self.body, &edits)
    }

    fn cap_output(&self, cap: u64, edits: &mut Vec<(Range<usize>, String)>, new_fields: &mut String) {
        let caps = &self.places.caps;
        if self.output_cap_tokens().is_some() {
            // Which of two fields a provider obeys is not known, so neither may stay above.
            let above = caps
                .iter()
                .filter(|stated| stated.tokens.is_some_and(|tokens| tokens > cap));
            edits.extend(above.map(|stated| (stated.place.clone(), cap.to_string())));
        } else if let Some(field) = cap_field(self.endpoint) {
            match caps.iter().find(|null| null.field == field) {
                Some(null) => edits.push((null.place.clone(), cap.to_string())),
                None => new_fields.push_str(&format!(r#""{field}":{cap},"#)),
            }
        }
    }
}

/// The field that states a cap where the caller has stated none.
fn cap_field(endpoint: Endpoint) -> Option<&'static str> {
    match endpoint {
        Endpoint::ChatCompletions => Some("max_completion_tokens"),
        Endpoint::Completions | Endpoint::Messages => Some("max_tokens"),
        Endpoint::Responses => Some("max_output_tokens"),
        Endpoint::Embeddings | Endpoint::CountTokens => None,
    }
}

/// `body` with each range replaced by its text; ranges ascend and do not overlap.
fn splice(body: &Bytes, edits: &[(Range<usize>, String)]) -> Bytes {
    if edits.is_empty() {
        return body.clone();
    }
    let added: usize = edits.iter().map(|(_, text)| text.len()).sum();
    let mut spliced = BytesMut::with_capacity(body.len() + added);
    let mut copied = 0;
    for (range, text) in edits {
        spliced.extend_from_slice(&body[copied..range.start]);
        spliced.extend_from_slice(text.as_bytes());
        copied = range.end;
    }
    spliced.extend_from_slice(&body[copied..]);
    spliced.freeze()
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests;

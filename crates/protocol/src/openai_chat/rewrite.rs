//! Rewrites a body for the upstream: the caller's bytes, but for the few fields that must change.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::inspect::{ChatRequest, StreamOptions};

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

impl ChatRequest {
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
        match (rewrite.output_cap_tokens, self.output_cap_tokens()) {
            (Some(cap), None) => match &places.max_completion_tokens {
                Some(null) => edits.push((null.clone(), cap.to_string())),
                None => new_fields.push_str(&format!(r#""max_completion_tokens":{cap},"#)),
            },
            (Some(cap), Some(_)) => {
                // Which of the two fields a provider obeys is not known, so neither may stay above.
                let stated = [
                    (self.max_tokens, &places.max_tokens),
                    (self.max_completion_tokens, &places.max_completion_tokens),
                ];
                for (tokens, place) in stated {
                    if let (Some(_), Some(place)) = (tokens.filter(|tokens| *tokens > cap), place) {
                        edits.push((place.clone(), cap.to_string()));
                    }
                }
            }
            (None, _) => {}
        }
        if !new_fields.is_empty() {
            edits.push((places.fields_start..places.fields_start, new_fields));
        }

        edits.sort_by_key(|(range, _)| range.start);
        splice(&self.body, &edits)
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

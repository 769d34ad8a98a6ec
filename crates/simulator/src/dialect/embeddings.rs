//! OpenAI's `POST /v1/embeddings`: vectors that follow from model and text, and mean nothing.

use serde_json::{Value, json};

use super::openai::{Text, texts};
use super::{Dialect, Exchange};
use crate::asked::{Asked, count, wrong};
use crate::failure::Failure;
use crate::provider::Provider;
use crate::random::{Random, SEED_START, fnv};

/// The length of a vector where none is asked for.
const DIMENSIONS_DEFAULT: u64 = 64;
/// The longest vector.
const DIMENSIONS_MAX: u64 = 4_096;
/// The most numbers in one answer.
const NUMBERS_MAX: u64 = 1_000_000;

pub(crate) struct Embeddings;

impl Dialect for Embeddings {
    const PROVIDER: Provider = Provider::OpenAi;

    fn read(body: Value) -> Result<Asked, Failure> {
        let mut asked = Asked::begin(body)?;
        let Asked { body, input, .. } = &mut asked;
        let texts = texts("input", &body["input"])?;
        for text in &texts {
            input.message();
            match text {
                Text::Written("") => return Err(wrong("input", "texts that are not empty")),
                Text::Written(text) => input.text(text),
                Text::Cut(tokens) => input.tokens(tokens),
            }
        }
        let dimensions = count(body, "dimensions", 1, DIMENSIONS_MAX)?.unwrap_or(DIMENSIONS_DEFAULT);
        if dimensions * texts.len() as u64 > NUMBERS_MAX {
            return Err(wrong("input", "fewer texts, or fewer dimensions"));
        }
        if !matches!(&body["encoding_format"], Value::Null | Value::String(_)) || encoding(body).is_none() {
            return Err(wrong("encoding_format", "`float` or `base64`"));
        }
        asked.is_streamed = false;
        asked.choices = 0;
        Ok(asked)
    }

    fn whole(exchange: &Exchange) -> Value {
        let Exchange {
            asked,
            answer,
            behaviour,
        } = exchange;
        let dimensions = asked.body["dimensions"].as_u64().unwrap_or(DIMENSIONS_DEFAULT);
        let data: Vec<Value> = texts("input", &asked.body["input"])
            .unwrap_or_default()
            .into_iter()
            .map(|text| vector(seed(&asked.model, text), dimensions))
            .enumerate()
            .map(|(index, vector)| {
                let embedding = match encoding(&asked.body) {
                    Some(Encoding::Base64) => base64(vector.into_iter().flat_map(f32::to_le_bytes)).into(),
                    _ => json!(vector),
                };
                json!({ "object": "embedding", "index": index, "embedding": embedding })
            })
            .collect();
        let mut body = json!({ "object": "list", "data": data, "model": asked.model });
        if !behaviour.hides_usage {
            let tokens = behaviour.said_prompt_tokens.unwrap_or(answer.usage.input_tokens());
            body["usage"] = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
        }
        body
    }
}

enum Encoding {
    Float,
    Base64,
}

fn encoding(body: &Value) -> Option<Encoding> {
    match body["encoding_format"].as_str() {
        None | Some("float") => Some(Encoding::Float),
        Some("base64") => Some(Encoding::Base64),
        Some(_) => None,
    }
}

fn seed(model: &str, text: Text<'_>) -> u64 {
    let model = fnv(SEED_START, model.as_bytes());
    match text {
        Text::Written(text) => fnv(model, text.as_bytes()),
        Text::Cut(tokens) => tokens
            .iter()
            .filter_map(Value::as_u64)
            .fold(model, |seed, token| fnv(seed, &token.to_le_bytes())),
    }
}

/// A direction: its length is one.
fn vector(seed: u64, dimensions: u64) -> Vec<f32> {
    let mut random = Random::of(seed);
    let numbers: Vec<f64> = (0..dimensions).map(|_| random.normal()).collect();
    let length = numbers.iter().map(|number| number * number).sum::<f64>().sqrt();
    numbers.into_iter().map(|number| (number / length) as f32).collect()
}

/// RFC 4648, section 4.
fn base64(bytes: impl Iterator<Item = u8>) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes: Vec<u8> = bytes.collect();
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0_u32, |bits, at| {
            bits << 8 | u32::from(group.get(at).copied().unwrap_or(0))
        });
        for letter in 0..4 {
            let is_filler = letter > group.len();
            let at = (bits >> (18 - 6 * letter)) & 63;
            text.push(if is_filler {
                '='
            } else {
                char::from(LETTERS[at as usize])
            });
        }
    }
    text
}

#[cfg(test)]
mod tests;

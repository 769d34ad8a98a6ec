//! OpenAI's `POST /v1/completions`, the one without messages.

use serde_json::{Value, json};

use super::openai::{CHOICES_MAX, Chunks, Text, texts, usage};
use super::{Dialect, Exchange};
use crate::answer::{Choice, Ending, spaced, word_of};
use crate::asked::{Asked, count, wrong};
use crate::failure::Failure;
use crate::provider::Provider;
use crate::sending::{Load, Piece};

/// What is generated at most where no cap is given.
const OUTPUT_TOKENS_DEFAULT: u64 = 16;
/// What is completed where no prompt is given.
const PROMPT_DEFAULT: &str = "<|endoftext|>";

pub(crate) struct Completions;

impl Dialect for Completions {
    const PROVIDER: Provider = Provider::OpenAi;

    fn read(mut body: Value) -> Result<Asked, Failure> {
        if body.is_object() && body["prompt"].is_null() {
            body["prompt"] = PROMPT_DEFAULT.into();
        }
        let mut asked = Asked::begin(body)?;
        let Asked {
            body,
            input,
            is_streamed,
            ..
        } = &mut asked;
        let prompts = texts("prompt", &body["prompt"])?;
        for prompt in &prompts {
            input.message();
            match prompt {
                Text::Written(text) => input.text(text),
                Text::Cut(tokens) => input.tokens(tokens),
            }
        }
        input.value(&body["suffix"]);
        let shown = count(body, "n", 1, CHOICES_MAX)?.unwrap_or(1);
        let generated = count(body, "best_of", 1, CHOICES_MAX)?.unwrap_or(shown);
        if generated < shown {
            return Err(wrong("best_of", "at least `n`"));
        }
        if generated > shown && *is_streamed {
            return Err(wrong("best_of", "no more than `n` in a stream"));
        }
        // Nothing is generated where the cap is zero; who only wants the prompt back asks for that.
        let cap = count(body, "max_tokens", 0, u64::MAX)?;
        asked.choices = (prompts.len() as u64 * generated) as u32;
        asked.output_cap_tokens = Some(cap.unwrap_or(OUTPUT_TOKENS_DEFAULT));
        Ok(asked)
    }

    fn whole(exchange: &Exchange) -> Value {
        let choices: Vec<Value> = shown(exchange)
            .map(|(index, prefix, shown)| choice(index, prefix + &shown.text(), finish_reason(shown.ending).into()))
            .collect();
        let mut body = json!({
            "id": exchange.answer.id("cmpl-"),
            "object": "text_completion",
            "created": 0,
            "model": exchange.asked.model,
            "choices": choices,
        });
        if !exchange.behaviour.hides_usage {
            body["usage"] = usage(&exchange.answer.usage, &exchange.behaviour);
        }
        body
    }

    fn pieces(exchange: &Exchange) -> Vec<Piece> {
        let mut chunks = Chunks::begin(exchange, "cmpl-", "text_completion");
        for (index, prefix, shown) in shown(exchange) {
            if !prefix.is_empty() {
                chunks.push(choice(index, prefix, Value::Null), Load::NONE);
            }
            if !shown.reasoning.is_empty() {
                let hidden = Load::hidden(shown.reasoning.len() as u64);
                chunks.push(choice(index, String::new(), Value::Null), hidden);
            }
            for (nth, word) in shown.words.iter().enumerate() {
                chunks.push(choice(index, spaced(nth, word), Value::Null), Load::WORD);
            }
            let end = choice(index, String::new(), finish_reason(shown.ending).into());
            chunks.push(end, Load::NONE);
        }
        chunks.finish()
    }
}

/// The choices that are shown, of each prompt the first `n`: their place, the prompt if it shall be echoed, and what was
/// generated.
fn shown(exchange: &Exchange) -> impl Iterator<Item = (usize, String, &Choice)> {
    let body = &exchange.asked.body;
    let prompts = texts("prompt", &body["prompt"]).unwrap_or_default();
    let generated = exchange.answer.choices.len() / prompts.len().max(1);
    let shown = body["n"].as_u64().unwrap_or(1) as usize;
    let has_echo = body["echo"] == true;
    prompts
        .into_iter()
        .zip(exchange.answer.choices.chunks(generated.max(1)))
        .flat_map(move |(prompt, choices)| {
            let echo = if has_echo { written(prompt) } else { String::new() };
            choices.iter().take(shown).map(move |choice| (echo.clone(), choice))
        })
        .enumerate()
        .map(|(index, (echo, choice))| (index, echo, choice))
}

/// A prompt as a text, each token a word.
fn written(prompt: Text<'_>) -> String {
    match prompt {
        Text::Written(text) => text.to_owned(),
        Text::Cut(tokens) => {
            let words: Vec<&str> = tokens.iter().filter_map(Value::as_u64).map(word_of).collect();
            words.join(" ")
        }
    }
}

fn choice(index: usize, text: String, finish_reason: Value) -> Value {
    json!({ "index": index, "text": text, "logprobs": null, "finish_reason": finish_reason })
}

/// There are no tools to call here.
fn finish_reason(ending: Ending) -> &'static str {
    match ending {
        Ending::Said | Ending::ToolCalled => "stop",
        Ending::Capped => "length",
    }
}

#[cfg(test)]
mod tests;

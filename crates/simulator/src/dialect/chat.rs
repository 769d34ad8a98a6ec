//! OpenAI's `POST /v1/chat/completions`.

use serde_json::{Value, json};

use super::openai::{CHOICES_MAX, Chunks, usage};
use super::{Dialect, Exchange};
use crate::answer::{Choice, Ending, spaced};
use crate::asked::{Asked, count, list, wrong};
use crate::failure::Failure;
use crate::input::Input;
use crate::provider::Provider;
use crate::sending::{Load, Piece};

pub(crate) struct Chat;

impl Dialect for Chat {
    const PROVIDER: Provider = Provider::OpenAi;

    fn read(body: Value) -> Result<Asked, Failure> {
        let mut asked = Asked::begin(body)?;
        let Asked { body, input, .. } = &mut asked;
        let caps = [
            count(body, "max_tokens", 1, u64::MAX)?,
            count(body, "max_completion_tokens", 1, u64::MAX)?,
        ];
        let choices = count(body, "n", 1, CHOICES_MAX)?.unwrap_or(1) as u32;
        list(body, "functions")?
            .iter()
            .for_each(|function| input.value(function));
        if body["messages"].is_null() {
            return Err(Failure::unreadable("Missing required parameter: 'messages'."));
        }
        for message in list(body, "messages")? {
            read_message(input, message)?;
        }
        content(input, &body["prediction"]["content"])?;
        if body["response_format"].is_object() {
            input.value(&body["response_format"]);
        }
        list(body, "tools")?.iter().for_each(|tool| input.value(tool));
        asked.output_cap_tokens = caps.into_iter().max().flatten();
        asked.choices = choices;
        Ok(asked)
    }

    fn whole(exchange: &Exchange) -> Value {
        let choices: Vec<Value> = exchange
            .answer
            .choices
            .iter()
            .enumerate()
            .map(|(index, choice)| {
                json!({
                    "index": index,
                    "message": message(exchange, choice),
                    "logprobs": null,
                    "finish_reason": finish_reason(choice.ending),
                })
            })
            .collect();
        let mut body = json!({
            "id": exchange.answer.id("chatcmpl-"),
            "object": "chat.completion",
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
        let mut chunks = Chunks::begin(exchange, "chatcmpl-", "chat.completion.chunk");
        for (index, choice) in exchange.answer.choices.iter().enumerate() {
            let mut deltas = Deltas {
                chunks: &mut chunks,
                index,
            };
            deltas.push(json!({ "role": "assistant", "content": "" }), Load::NONE);
            if exchange.behaviour.shows_reasoning {
                for (nth, word) in choice.reasoning.iter().enumerate() {
                    deltas.push(json!({ "reasoning_content": spaced(nth, word) }), Load::THOUGHT);
                }
            } else if !choice.reasoning.is_empty() {
                deltas.push(json!({}), Load::hidden(choice.reasoning.len() as u64));
            }
            if exchange.behaviour.calls_tool {
                deltas.tool_call(exchange, choice);
            } else {
                for (nth, word) in choice.words.iter().enumerate() {
                    deltas.push(json!({ "content": spaced(nth, word) }), Load::WORD);
                }
            }
            deltas.end(choice);
        }
        chunks.finish()
    }
}

fn read_message(input: &mut Input, message: &Value) -> Result<(), Failure> {
    let fields = message
        .as_object()
        .ok_or_else(|| wrong("messages", "a list of objects"))?;
    input.message();
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        match name.as_str() {
            // Part of the frame of each message, or references.
            "role" | "tool_call_id" | "audio" => {}
            "content" => content(input, value)?,
            "tool_calls" => list(message, "tool_calls")?
                .iter()
                .for_each(|call| tool_call(input, call)),
            "function_call" => call(input, value),
            _ => input.value(value),
        }
    }
    Ok(())
}

/// A text or a list of parts.
fn content(input: &mut Input, content: &Value) -> Result<(), Failure> {
    let Value::Array(parts) = content else {
        input.value(content);
        return Ok(());
    };
    for part in parts {
        let kind = part["type"].as_str().unwrap_or_default();
        match (kind, &part[kind]) {
            ("text" | "refusal", text) if !text.is_null() => input.value(text),
            ("image_url", image) if !image.is_null() => input.image(image),
            ("input_audio" | "file", medium) if !medium.is_null() => input.medium(medium),
            // What is not known counts with all its JSON.
            _ => input.value(part),
        }
    }
    Ok(())
}

fn tool_call(input: &mut Input, tool_call: &Value) {
    let known = ["function", "custom"].map(|kind| &tool_call[kind]);
    if known.iter().all(|named| named.is_null()) {
        return input.value(tool_call);
    }
    known.into_iter().for_each(|named| call(input, named));
}

fn call(input: &mut Input, call: &Value) {
    for field in ["name", "arguments", "input"] {
        input.value(&call[field]);
    }
}

fn message(exchange: &Exchange, choice: &Choice) -> Value {
    let mut message = json!({ "role": "assistant", "content": choice.text(), "refusal": null });
    if exchange.behaviour.calls_tool {
        message["content"] = Value::Null;
        message["tool_calls"] = json!([{
            "id": exchange.answer.id("call_"),
            "type": "function",
            "function": { "name": "speak", "arguments": choice.arguments() },
        }]);
    }
    if exchange.behaviour.shows_reasoning {
        message["reasoning_content"] = choice.thoughts().into();
    }
    message
}

fn finish_reason(ending: Ending) -> &'static str {
    match ending {
        Ending::Said => "stop",
        Ending::Capped => "length",
        Ending::ToolCalled => "tool_calls",
    }
}

/// The events of one choice.
struct Deltas<'c, 'a> {
    chunks: &'c mut Chunks<'a>,
    index: usize,
}

impl Deltas<'_, '_> {
    fn tool_call(&mut self, exchange: &Exchange, choice: &Choice) {
        let id = exchange.answer.id("call_");
        let function = json!({ "name": "speak", "arguments": "" });
        let call = json!({ "index": 0, "id": id, "type": "function", "function": function });
        self.push(json!({ "tool_calls": [call] }), Load::NONE);
        for (text, words) in choice.argument_pieces() {
            let call = json!({ "index": 0, "function": { "arguments": text } });
            self.push(json!({ "tool_calls": [call] }), Load::words(words));
        }
    }

    fn push(&mut self, delta: Value, load: Load) {
        let choice = json!({ "index": self.index, "delta": delta, "logprobs": null, "finish_reason": null });
        self.chunks.push(choice, load);
    }

    fn end(&mut self, choice: &Choice) {
        let reason = finish_reason(choice.ending);
        let choice = json!({ "index": self.index, "delta": {}, "logprobs": null, "finish_reason": reason });
        self.chunks.push(choice, Load::NONE);
    }
}

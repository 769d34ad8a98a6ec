//! OpenAI's `POST /v1/responses`. Nothing is kept: what was answered before cannot be referred to.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Dialect, Exchange, named_event};
use crate::answer::{Choice, Ending, spaced};
use crate::asked::{Asked, count, list, wrong};
use crate::failure::Failure;
use crate::input::Input;
use crate::provider::Provider;
use crate::sending::{Load, Piece};

/// The least cap that the provider takes.
const OUTPUT_TOKENS_LEAST: u64 = 16;

pub(crate) struct Responses;

impl Dialect for Responses {
    const PROVIDER: Provider = Provider::OpenAi;

    fn read(body: Value) -> Result<Asked, Failure> {
        let mut asked = Asked::begin(body)?;
        let cap = count(&asked.body, "max_output_tokens", OUTPUT_TOKENS_LEAST, u64::MAX)?;
        let Asked { body, input, .. } = &mut asked;
        if !body["previous_response_id"].is_null() {
            return Err(Failure::unreadable("Previous response not found."));
        }
        match &body["instructions"] {
            Value::Null => {}
            Value::String(text) => {
                input.message();
                input.text(text);
            }
            _ => return Err(wrong("instructions", "a text")),
        }
        match &body["input"] {
            Value::Null => return Err(Failure::unreadable("Missing required parameter: 'input'.")),
            Value::String(text) => {
                input.message();
                input.text(text);
            }
            _ => list(body, "input")?.iter().try_for_each(|read| item(input, read))?,
        }
        if body["text"]["format"].is_object() {
            input.value(&body["text"]["format"]);
        }
        list(body, "tools")?.iter().for_each(|tool| input.value(tool));
        asked.output_cap_tokens = cap;
        Ok(asked)
    }

    fn whole(exchange: &Exchange) -> Value {
        response(exchange, State::Over)
    }

    fn pieces(exchange: &Exchange) -> Vec<Piece> {
        let mut events = Events {
            exchange,
            items: 0,
            pieces: Vec::new(),
        };
        for kind in ["response.created", "response.in_progress"] {
            let begun = json!({ "response": response(exchange, State::Begun) });
            events.push(kind, begun, Load::NONE);
        }
        for choice in &exchange.answer.choices {
            events.choice(choice);
        }
        let kind = match is_capped(exchange) {
            true => "response.incomplete",
            false => "response.completed",
        };
        events.push(kind, json!({ "response": response(exchange, State::Over) }), Load::NONE);
        events.pieces
    }

    /// The error is nested, as the provider sends it, not flat, as its reference has it.
    fn broken(exchange: &Exchange, failure: &Failure, sent: u64) -> Bytes {
        let mut event = match exchange.behaviour.fails_response {
            true => json!({ "type": "response.failed", "response": response(exchange, State::Failed(failure)) }),
            false => {
                let mut event = Self::PROVIDER.error(failure, None);
                event["type"] = "error".into();
                event
            }
        };
        event["sequence_number"] = sent.into();
        named_event(&event)
    }
}

fn item(input: &mut Input, item: &Value) -> Result<(), Failure> {
    if !item.is_object() {
        return Err(wrong("input", "a text or a list of items"));
    }
    input.message();
    match item["type"].as_str() {
        None | Some("message") => content(input, &item["content"]),
        Some("function_call") => {
            input.value(&item["name"]);
            input.value(&item["arguments"]);
        }
        Some("function_call_output") => content(input, &item["output"]),
        Some("reasoning") => {
            content(input, &item["summary"]);
            content(input, &item["content"]);
        }
        // What is not known counts with all its JSON.
        Some(_) => input.value(item),
    }
    Ok(())
}

/// A text or a list of parts.
fn content(input: &mut Input, content: &Value) {
    let Value::Array(parts) = content else {
        return input.value(content);
    };
    for part in parts {
        match part["type"].as_str() {
            Some("input_text" | "output_text" | "summary_text" | "reasoning_text" | "text") => {
                input.value(&part["text"]);
            }
            Some("refusal") => input.value(&part["refusal"]),
            Some("input_image") => input.image(part),
            Some("input_file" | "input_audio") => input.medium(part),
            _ => input.value(part),
        }
    }
}

/// How far a response is.
#[derive(Clone, Copy)]
enum State<'a> {
    Begun,
    Over,
    Failed(&'a Failure),
}

fn response(exchange: &Exchange, state: State<'_>) -> Value {
    let asked = &exchange.asked.body;
    let told = |field: &str, otherwise: Value| match &asked[field] {
        Value::Null => otherwise,
        told => told.clone(),
    };
    let (status, error) = match state {
        State::Begun => ("in_progress", Value::Null),
        State::Over => (status(is_capped(exchange)), Value::Null),
        State::Failed(failure) => ("failed", json!({ "code": "server_error", "message": failure.message })),
    };
    let output: Vec<Value> = match state {
        State::Over => exchange
            .answer
            .choices
            .iter()
            .flat_map(|choice| items(exchange, choice))
            .collect(),
        _ => Vec::new(),
    };
    let mut response = json!({
        "id": exchange.answer.id("resp_"),
        "object": "response",
        "created_at": 0,
        "status": status,
        "background": false,
        "error": error,
        "incomplete_details": null,
        "instructions": asked["instructions"],
        "max_output_tokens": asked["max_output_tokens"],
        "model": exchange.asked.model,
        "output": output,
        "parallel_tool_calls": told("parallel_tool_calls", true.into()),
        "previous_response_id": null,
        "reasoning": told("reasoning", json!({ "effort": null, "summary": null })),
        "service_tier": "default",
        "store": told("store", true.into()),
        "temperature": told("temperature", 1.0.into()),
        "text": told("text", json!({ "format": { "type": "text" } })),
        "tool_choice": told("tool_choice", "auto".into()),
        "tools": told("tools", json!([])),
        "top_p": told("top_p", 1.0.into()),
        "truncation": told("truncation", "disabled".into()),
        "user": asked["user"],
        "metadata": told("metadata", json!({})),
    });
    if matches!(state, State::Over) && is_capped(exchange) {
        response["incomplete_details"] = json!({ "reason": "max_output_tokens" });
    }
    if !exchange.behaviour.hides_usage {
        response["usage"] = match state {
            State::Over => usage(exchange),
            _ => Value::Null,
        };
    }
    response
}

fn usage(exchange: &Exchange) -> Value {
    let (usage, behaviour) = (&exchange.answer.usage, &exchange.behaviour);
    let input_tokens = behaviour.said_prompt_tokens.unwrap_or(usage.input_tokens());
    let output_tokens = behaviour.said_completion_tokens.unwrap_or(usage.output_tokens);
    json!({
        "input_tokens": input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_5m_tokens + usage.cache_write_1h_tokens,
            "cache_write_tokens_details": {
                "ttl_30m_tokens": usage.cache_write_5m_tokens,
                "ttl_12h_tokens": usage.cache_write_1h_tokens,
            },
        },
        "output_tokens": output_tokens,
        "output_tokens_details": { "reasoning_tokens": usage.reasoning_tokens },
        "total_tokens": input_tokens.saturating_add(output_tokens),
    })
}

fn is_capped(exchange: &Exchange) -> bool {
    let mut choices = exchange.answer.choices.iter();
    choices.any(|choice| choice.ending == Ending::Capped)
}

fn status(is_capped: bool) -> &'static str {
    if is_capped { "incomplete" } else { "completed" }
}

/// The summary of reasoning comes where it is asked for or ordered; its item in any case.
fn shows_summary(exchange: &Exchange) -> bool {
    exchange.behaviour.shows_reasoning || !exchange.asked.body["reasoning"]["summary"].is_null()
}

/// The output, in the order in which a stream brings it.
fn items(exchange: &Exchange, choice: &Choice) -> Vec<Value> {
    let mut items = Vec::new();
    if !choice.reasoning.is_empty() {
        items.push(reasoning_item(exchange, choice));
    }
    if exchange.behaviour.calls_tool {
        items.push(call_item(exchange, status(is_capped(exchange)), &choice.arguments()));
    } else if choice.is_said() {
        let text = text_part(&choice.text());
        items.push(message_item(exchange, status(is_capped(exchange)), json!([text])));
    }
    items
}

fn reasoning_item(exchange: &Exchange, choice: &Choice) -> Value {
    let summary = match shows_summary(exchange) {
        true => json!([{ "type": "summary_text", "text": choice.thoughts() }]),
        false => json!([]),
    };
    json!({ "id": exchange.answer.id("rs_"), "type": "reasoning", "summary": summary })
}

fn message_item(exchange: &Exchange, status: &str, content: Value) -> Value {
    json!({
        "id": exchange.answer.id("msg_"),
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": content,
    })
}

fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

fn call_item(exchange: &Exchange, status: &str, arguments: &str) -> Value {
    json!({
        "id": exchange.answer.id("fc_"),
        "type": "function_call",
        "status": status,
        "call_id": exchange.answer.id("call_"),
        "name": "speak",
        "arguments": arguments,
    })
}

/// The events of a response.
struct Events<'a> {
    exchange: &'a Exchange,
    /// How many items of output began.
    items: usize,
    pieces: Vec<Piece>,
}

impl Events<'_> {
    fn choice(&mut self, choice: &Choice) {
        if !choice.reasoning.is_empty() {
            self.reasoning(choice);
        }
        if self.exchange.behaviour.calls_tool {
            self.call(choice);
        } else if choice.is_said() {
            self.message(choice);
        }
    }

    fn reasoning(&mut self, choice: &Choice) {
        let done = reasoning_item(self.exchange, choice);
        let id = self.exchange.answer.id("rs_");
        self.begin(json!({ "id": id, "type": "reasoning", "summary": [] }));
        if !shows_summary(self.exchange) {
            return self.end(done, Load::hidden(choice.reasoning.len() as u64));
        }
        let at = json!({ "item_id": id, "output_index": self.items, "summary_index": 0 });
        let part = |text: &str| json!({ "type": "summary_text", "text": text });
        let thoughts = choice.thoughts();
        self.push(
            "response.reasoning_summary_part.added",
            with(&at, "part", part("")),
            Load::NONE,
        );
        for (nth, word) in choice.reasoning.iter().enumerate() {
            let delta = with(&at, "delta", spaced(nth, word).into());
            self.push("response.reasoning_summary_text.delta", delta, Load::THOUGHT);
        }
        let text = with(&at, "text", thoughts.clone().into());
        self.push("response.reasoning_summary_text.done", text, Load::NONE);
        self.push(
            "response.reasoning_summary_part.done",
            with(&at, "part", part(&thoughts)),
            Load::NONE,
        );
        self.end(done, Load::NONE);
    }

    fn message(&mut self, choice: &Choice) {
        let id = self.exchange.answer.id("msg_");
        self.begin(message_item(self.exchange, "in_progress", json!([])));
        let at = json!({ "item_id": id, "output_index": self.items, "content_index": 0 });
        let whole = text_part(&choice.text());
        self.push(
            "response.content_part.added",
            with(&at, "part", text_part("")),
            Load::NONE,
        );
        for (nth, word) in choice.words.iter().enumerate() {
            let delta = with(&at, "delta", spaced(nth, word).into());
            self.push(
                "response.output_text.delta",
                with(&delta, "logprobs", json!([])),
                Load::WORD,
            );
        }
        let text = with(&at, "text", whole["text"].clone());
        self.push(
            "response.output_text.done",
            with(&text, "logprobs", json!([])),
            Load::NONE,
        );
        self.push(
            "response.content_part.done",
            with(&at, "part", whole.clone()),
            Load::NONE,
        );
        let status = status(is_capped(self.exchange));
        self.end(message_item(self.exchange, status, json!([whole])), Load::NONE);
    }

    fn call(&mut self, choice: &Choice) {
        self.begin(call_item(self.exchange, "in_progress", ""));
        let at = json!({ "item_id": self.exchange.answer.id("fc_"), "output_index": self.items });
        for (text, words) in choice.argument_pieces() {
            let delta = with(&at, "delta", text.into());
            self.push("response.function_call_arguments.delta", delta, Load::words(words));
        }
        let arguments = choice.arguments();
        let done = with(&at, "arguments", arguments.as_str().into());
        self.push(
            "response.function_call_arguments.done",
            with(&done, "name", "speak".into()),
            Load::NONE,
        );
        let status = status(is_capped(self.exchange));
        self.end(call_item(self.exchange, status, &arguments), Load::NONE);
    }

    fn begin(&mut self, item: Value) {
        let added = json!({ "output_index": self.items, "item": item });
        self.push("response.output_item.added", added, Load::NONE);
    }

    fn end(&mut self, item: Value, load: Load) {
        let done = json!({ "output_index": self.items, "item": item });
        self.push("response.output_item.done", done, load);
        self.items += 1;
    }

    fn push(&mut self, kind: &str, mut event: Value, load: Load) {
        event["type"] = kind.into();
        event["sequence_number"] = self.pieces.len().into();
        let data = match self.exchange.behaviour.is_malformed && kind.ends_with(".delta") {
            true => Bytes::from(format!("event: {kind}\ndata: {{\"type\": [oops\n\n")),
            false => named_event(&event),
        };
        self.pieces.push(Piece { data, load });
    }
}

fn with(event: &Value, field: &str, value: Value) -> Value {
    let mut event = event.clone();
    event[field] = value;
    event
}

#[cfg(test)]
mod tests;

//! Anthropic's `POST /v1/messages`, and its `count_tokens`.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Dialect, Exchange, named_event};
use crate::answer::{Choice, Ending, spaced};
use crate::asked::{Asked, Caching, count, list, wrong};
use crate::failure::Failure;
use crate::input::{Input, Lifetime};
use crate::provider::Provider;
use crate::sending::{Load, Piece};

pub(crate) struct Messages;

/// How much a message would be, for nothing.
pub(crate) struct CountTokens;

impl Dialect for Messages {
    const PROVIDER: Provider = Provider::Anthropic;

    fn read(body: Value) -> Result<Asked, Failure> {
        let cap = count(&body, "max_tokens", 1, u64::MAX)?;
        let mut asked = read(body)?;
        if cap.is_none() {
            return Err(Failure::unreadable("max_tokens: Field required"));
        }
        asked.output_cap_tokens = cap;
        asked.wants_thoughts = matches!(asked.body["thinking"]["type"].as_str(), Some("enabled" | "adaptive"));
        Ok(asked)
    }

    fn whole(exchange: &Exchange) -> Value {
        let mut body = message(exchange);
        let mut content = Vec::new();
        for choice in &exchange.answer.choices {
            if !choice.reasoning.is_empty() {
                let thinking = if shows_thinking(exchange) {
                    choice.thoughts()
                } else {
                    String::new()
                };
                content.push(json!({ "type": "thinking", "thinking": thinking, "signature": signature(exchange) }));
            }
            if exchange.behaviour.calls_tool {
                let input = json!({ "text": choice.text() });
                content.push(json!({ "type": "tool_use", "id": tool_id(exchange), "name": "speak", "input": input }));
            } else if choice.is_said() {
                content.push(json!({ "type": "text", "text": choice.text() }));
            }
            body["stop_reason"] = stop_reason(choice.ending).into();
        }
        body["content"] = content.into();
        if !exchange.behaviour.hides_usage {
            body["usage"] = usage(exchange);
        }
        body
    }

    fn pieces(exchange: &Exchange) -> Vec<Piece> {
        let mut events = Events {
            exchange,
            blocks: 0,
            pieces: Vec::new(),
        };
        let mut start = message(exchange);
        if !exchange.behaviour.hides_usage {
            // What is said before anything was generated; the end corrects it.
            start["usage"] = usage(exchange);
            start["usage"]["output_tokens"] = 1.into();
            start["usage"]
                .as_object_mut()
                .map(|usage| usage.remove("output_tokens_details"));
        }
        events.push(json!({ "type": "message_start", "message": start }), Load::NONE);
        for choice in &exchange.answer.choices {
            events.choice(choice);
        }
        events.pieces
    }

    fn broken(_exchange: &Exchange, failure: &Failure, _sent: u64) -> Bytes {
        named_event(&Self::PROVIDER.error(failure, None))
    }
}

impl Dialect for CountTokens {
    const PROVIDER: Provider = Provider::Anthropic;

    fn read(body: Value) -> Result<Asked, Failure> {
        let mut asked = read(body)?;
        asked.is_streamed = false;
        asked.choices = 0;
        asked.is_free = true;
        Ok(asked)
    }

    fn whole(exchange: &Exchange) -> Value {
        let said = exchange.behaviour.said_prompt_tokens;
        json!({ "input_tokens": said.unwrap_or(exchange.asked.input.counted()) })
    }
}

/// In the order in which the cache takes it: tools, system, messages.
fn read(body: Value) -> Result<Asked, Failure> {
    let mut asked = Asked::begin(body)?;
    asked.caching = Caching::Marked;
    let Asked { body, input, .. } = &mut asked;
    for tool in list(body, "tools")? {
        input.value(&without_mark(tool));
        input.end_block(mark(tool)?);
    }
    if !body["system"].is_null() {
        input.message();
        content(input, "system", &body["system"])?;
    }
    let messages = list(body, "messages")?;
    if messages.is_empty() {
        return Err(Failure::unreadable("messages: at least one message is required"));
    }
    for message in messages {
        if !matches!(message["role"].as_str(), Some("user" | "assistant")) {
            return Err(Failure::unreadable("messages: roles are `user` and `assistant`"));
        }
        input.message();
        content(input, "messages", &message["content"])?;
    }
    if let Some(lifetime) = mark(body)? {
        input.mark_end(lifetime);
    }
    Ok(asked)
}

/// A text or a list of blocks.
fn content(input: &mut Input, field: &str, content: &Value) -> Result<(), Failure> {
    match content {
        Value::String(text) => {
            input.text(text);
            input.end_block(None);
        }
        Value::Array(blocks) => {
            for read in blocks {
                block(input, field, read)?;
                input.end_block(mark(read)?);
            }
        }
        _ => return Err(wrong(field, "a text or a list of blocks")),
    }
    Ok(())
}

fn block(input: &mut Input, field: &str, block: &Value) -> Result<(), Failure> {
    let source = &block["source"];
    match block["type"].as_str() {
        Some("text") => input.value(&block["text"]),
        Some("image") => input.image(source),
        Some("document") => {
            for named in ["title", "context"] {
                input.value(&block[named]);
            }
            match source["type"].as_str() {
                Some("text") => input.value(&source["data"]),
                Some("content") => content(input, field, &source["content"])?,
                _ => input.medium(source),
            }
        }
        Some("tool_use") => {
            input.value(&block["name"]);
            input.value(&block["input"]);
        }
        Some("tool_result") if block["content"].is_null() => {}
        Some("tool_result") => content(input, field, &block["content"])?,
        Some("thinking") => input.value(&block["thinking"]),
        Some("redacted_thinking") => {}
        // What is not known counts with all its JSON.
        Some(_) => input.value(&without_mark(block)),
        None => return Err(wrong(field, "blocks with a type")),
    }
    Ok(())
}

/// Whether the cache shall keep what ends here.
fn mark(block: &Value) -> Result<Option<Lifetime>, Failure> {
    let mark = &block["cache_control"];
    if mark.is_null() {
        return Ok(None);
    }
    match (mark["type"].as_str(), mark["ttl"].as_str()) {
        (Some("ephemeral"), None | Some("5m")) => Ok(Some(Lifetime::FiveMinutes)),
        (Some("ephemeral"), Some("1h")) => Ok(Some(Lifetime::OneHour)),
        _ => Err(wrong("cache_control", "type `ephemeral` and ttl `5m` or `1h`")),
    }
}

/// The same whether it is marked or not, so that the cache finds it.
fn without_mark(block: &Value) -> Value {
    let mut block = block.clone();
    if let Some(fields) = block.as_object_mut() {
        fields.remove("cache_control");
    }
    block
}

/// Before anything is said.
fn message(exchange: &Exchange) -> Value {
    json!({
        "id": exchange.answer.id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": exchange.asked.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
    })
}

fn usage(exchange: &Exchange) -> Value {
    let usage = &exchange.answer.usage;
    let (five_minutes, one_hour) = (usage.cache_write_5m_tokens, usage.cache_write_1h_tokens);
    let mut said = output_usage(exchange);
    said["input_tokens"] = exchange
        .behaviour
        .said_prompt_tokens
        .unwrap_or(usage.input_fresh_tokens)
        .into();
    said["cache_creation_input_tokens"] = (five_minutes + one_hour).into();
    said["cache_read_input_tokens"] = usage.cache_read_tokens.into();
    said["cache_creation"] = json!({
        "ephemeral_5m_input_tokens": five_minutes,
        "ephemeral_1h_input_tokens": one_hour,
    });
    said["service_tier"] = "standard".into();
    said
}

/// What was generated, thinking included; how much of it was thinking is only said where there was some.
fn output_usage(exchange: &Exchange) -> Value {
    let usage = &exchange.answer.usage;
    let said = exchange.behaviour.said_completion_tokens;
    let mut said = json!({ "output_tokens": said.unwrap_or(usage.output_tokens) });
    if usage.reasoning_tokens > 0 {
        said["output_tokens_details"] = json!({ "thinking_tokens": usage.reasoning_tokens });
    }
    said
}

fn stop_reason(ending: Ending) -> &'static str {
    match ending {
        Ending::Said => "end_turn",
        Ending::Capped => "max_tokens",
        Ending::ToolCalled => "tool_use",
    }
}

/// Thinking is shown unless the caller wants it left out; its block comes in any case.
fn shows_thinking(exchange: &Exchange) -> bool {
    exchange.asked.body["thinking"]["display"] != "omitted"
}

/// What proves that thinking was not made up by who sends it back.
fn signature(exchange: &Exchange) -> String {
    exchange.answer.id("EqSim")
}

fn tool_id(exchange: &Exchange) -> String {
    exchange.answer.id("toolu_")
}

/// The events of a message.
struct Events<'a> {
    exchange: &'a Exchange,
    /// How many blocks began.
    blocks: usize,
    pieces: Vec<Piece>,
}

impl Events<'_> {
    fn choice(&mut self, choice: &Choice) {
        if !choice.reasoning.is_empty() {
            self.thinking(choice);
        }
        if self.exchange.behaviour.calls_tool {
            self.tool_use(choice);
        } else if choice.is_said() {
            self.start(json!({ "type": "text", "text": "" }));
            for (nth, word) in choice.words.iter().enumerate() {
                self.delta(json!({ "type": "text_delta", "text": spaced(nth, word) }), Load::WORD);
            }
            self.stop();
        }
        let delta = json!({ "stop_reason": stop_reason(choice.ending), "stop_sequence": null });
        let mut end = json!({ "type": "message_delta", "delta": delta });
        if !self.exchange.behaviour.hides_usage {
            end["usage"] = output_usage(self.exchange);
        }
        self.push(end, Load::NONE);
        self.push(json!({ "type": "message_stop" }), Load::NONE);
    }

    fn thinking(&mut self, choice: &Choice) {
        self.start(json!({ "type": "thinking", "thinking": "", "signature": "" }));
        let mut unshown = Load::hidden(choice.reasoning.len() as u64);
        if shows_thinking(self.exchange) {
            unshown = Load::NONE;
            for (nth, word) in choice.reasoning.iter().enumerate() {
                let delta = json!({ "type": "thinking_delta", "thinking": spaced(nth, word) });
                self.delta(delta, Load::THOUGHT);
            }
        }
        let signature = signature(self.exchange);
        self.delta(json!({ "type": "signature_delta", "signature": signature }), unshown);
        self.stop();
    }

    fn tool_use(&mut self, choice: &Choice) {
        let id = tool_id(self.exchange);
        self.start(json!({ "type": "tool_use", "id": id, "name": "speak", "input": {} }));
        self.delta(json!({ "type": "input_json_delta", "partial_json": "" }), Load::NONE);
        for (text, words) in choice.argument_pieces() {
            let delta = json!({ "type": "input_json_delta", "partial_json": text });
            self.delta(delta, Load::words(words));
        }
        self.stop();
    }

    fn start(&mut self, block: Value) {
        let start = json!({ "type": "content_block_start", "index": self.blocks, "content_block": block });
        self.push(start, Load::NONE);
        if self.blocks == 0 {
            self.push(json!({ "type": "ping" }), Load::NONE);
        }
        self.blocks += 1;
    }

    fn delta(&mut self, delta: Value, load: Load) {
        let index = self.blocks - 1;
        if self.exchange.behaviour.is_malformed {
            let data = Bytes::from_static(b"event: content_block_delta\ndata: {\"type\": [oops\n\n");
            return self.pieces.push(Piece { data, load });
        }
        let delta = json!({ "type": "content_block_delta", "index": index, "delta": delta });
        self.push(delta, load);
    }

    fn stop(&mut self) {
        let index = self.blocks - 1;
        self.push(json!({ "type": "content_block_stop", "index": index }), Load::NONE);
    }

    fn push(&mut self, event: Value, load: Load) {
        let data = named_event(&event);
        self.pieces.push(Piece { data, load });
    }
}

#[cfg(test)]
mod tests;

//! `POST /v1/chat/completions`.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use chrono::Utc;
use futures_util::stream::{self, BoxStream, StreamExt};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use protocol::request::InferenceRequest as ChatRequest;
use serde_json::{Value, json};

use crate::Shared;
use crate::account::LimitReached;
use crate::answer::{Answer, Choice, usage_json};
use crate::behaviour::Behaviour;
use crate::connection::ResetSwitch;
use crate::latency::latency_ms;
use crate::random::prompt_seed;
use crate::traffic::Arrival;

/// The longest wait that can be ordered, in milliseconds.
const PAUSE_MS_MAX: u64 = 600_000;

/// A request in flight: counted in when it arrives and out when it is dropped, whatever happened.
struct Flight {
    shared: Arc<Shared>,
    is_finished: bool,
}

impl Flight {
    fn begin(shared: &Arc<Shared>) -> Self {
        shared.counters.change(|stats| {
            stats.requests_received += 1;
            stats.requests_in_flight += 1;
        });
        Self {
            shared: Arc::clone(shared),
            is_finished: false,
        }
    }

    fn finish(mut self) {
        self.is_finished = true;
    }

    fn fail(self) {
        self.shared.counters.change(|stats| stats.requests_failed += 1);
        self.finish();
    }

    async fn park(&self) {
        let released = self.shared.gate.released();
        let _parked = Parked::begin(&self.shared);
        released.await;
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.shared.counters.change(|stats| {
            stats.requests_in_flight -= 1;
            if self.is_finished {
                stats.requests_finished += 1;
            } else {
                stats.requests_aborted += 1;
            }
        });
    }
}

struct Parked(Arc<Shared>);

impl Parked {
    fn begin(shared: &Arc<Shared>) -> Self {
        shared.counters.change(|stats| stats.requests_parked += 1);
        Self(Arc::clone(shared))
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.0.counters.change(|stats| stats.requests_parked -= 1);
    }
}

pub(crate) async fn complete(
    State(shared): State<Arc<Shared>>,
    Extension(switch): Extension<ResetSwitch>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let flight = Flight::begin(&shared);
    match answer(&shared, &switch, &headers, &body, &flight).await {
        Ok((answer, behaviour, request)) if request.is_streamed() => {
            streamed(flight, switch, &request, answer, behaviour)
        }
        Ok((answer, behaviour, request)) => whole(flight, &request, &answer, &behaviour),
        Err(refusal) => {
            if !switch.is_on() {
                flight.fail();
            }
            *refusal
        }
    }
}

/// Decides what is answered, and waits as long as ordered before the first byte of it.
async fn answer(
    shared: &Arc<Shared>,
    switch: &ResetSwitch,
    headers: &HeaderMap,
    body: &Bytes,
    flight: &Flight,
) -> Result<(Answer, Behaviour, ChatRequest), Box<Response>> {
    let mut behaviour = shared
        .script
        .lock()
        .pop_front()
        .unwrap_or_else(|| shared.config.behaviour.clone());

    if let Some(expected) = &shared.config.credential
        && protocol::headers::key_text(headers) != Some(expected.as_str())
    {
        return Err(refuse(
            StatusCode::UNAUTHORIZED,
            "Incorrect API key provided.",
            "invalid_api_key",
        ));
    }
    let request = ChatRequest::inspect(protocol::endpoint::Endpoint::ChatCompletions, body)
        .map_err(|error| refuse(StatusCode::BAD_REQUEST, &error.to_string(), "invalid_request"))?;
    let (model, suffix) = request.model().split_once('@').unwrap_or((request.model(), ""));
    let known = &shared.config.models;
    if !known.is_empty() && !known.iter().any(|name| name == model) {
        return Err(refuse(
            StatusCode::NOT_FOUND,
            "The model does not exist.",
            "model_not_found",
        ));
    }
    order(&mut behaviour, headers, suffix, &request)
        .map_err(|error| refuse(StatusCode::BAD_REQUEST, &error.to_string(), "unknown_order"))?;

    if let Some(permille) = behaviour.fail_permille
        && shared.failures.lock().below(1_000) >= u64::from(permille)
    {
        behaviour = behaviour.without_failures();
    }

    let outcome = decide(shared, &behaviour, body, &request);
    if behaviour.holds || shared.gate.is_closed() {
        flight.park().await;
    }
    // A provider without room says so at once.
    if !matches!(outcome, Outcome::Limited(_)) {
        pause(
            behaviour
                .first_byte_ms
                .saturating_add(latency_ms(&behaviour, prompt_seed(&request))),
        )
        .await;
    }
    match outcome {
        Outcome::Answer(answer) => Ok((*answer, behaviour, request)),
        Outcome::Limited(reached) => Err(limited(shared, &behaviour, &reached)),
        Outcome::Silence => std::future::pending().await,
        Outcome::Reset => {
            switch.reset();
            Err(ordered_failure(500, &behaviour, shared))
        }
        Outcome::Failure(status) => Err(ordered_failure(status, &behaviour, shared)),
        Outcome::UnknownOption => Err(refuse(
            StatusCode::BAD_REQUEST,
            "Unrecognized request argument supplied: stream_options",
            "unknown_parameter",
        )),
    }
}

/// What becomes of a request.
enum Outcome {
    Answer(Box<Answer>),
    Limited(LimitReached),
    Silence,
    Reset,
    Failure(u16),
    UnknownOption,
}

/// Decides on arrival; what is answered takes its part of the account.
fn decide(shared: &Shared, behaviour: &Behaviour, body: &[u8], request: &ChatRequest) -> Outcome {
    if behaviour.is_silent {
        return Outcome::Silence;
    }
    if behaviour.resets {
        return Outcome::Reset;
    }
    if let Some(status) = behaviour.status {
        return Outcome::Failure(status);
    }
    if behaviour.rejects_stream_options && has_stream_options(body) {
        return Outcome::UnknownOption;
    }
    let is_seen = shared.prompts.lock().see(request) && shared.config.caches_prompts;
    let answer = Answer::to(request, behaviour, is_seen);
    let tokens = answer.usage.total_tokens();
    // Before the account is asked, so that arrivals are kept in the order in which it met them.
    let mut traffic = shared.traffic.lock();
    let taken = shared.account.lock().take(tokens);
    let arrival = Arrival {
        at_ms: shared.started.elapsed().as_millis() as u64,
        user: request.user().map(Into::into),
        tokens,
        is_admitted: taken.is_ok(),
    };
    traffic.note(arrival, shared.config.arrivals_kept);
    drop(traffic);
    match taken {
        Ok(()) => Outcome::Answer(Box::new(answer)),
        Err(reached) => {
            shared.counters.change(|stats| stats.requests_limited += 1);
            Outcome::Limited(reached)
        }
    }
}

fn limited(shared: &Shared, behaviour: &Behaviour, reached: &LimitReached) -> Box<Response> {
    let message = format!("Rate limit reached for {} per minute on this account.", reached.name);
    let mut response = failure(
        StatusCode::TOO_MANY_REQUESTS,
        &message,
        reached.name,
        "rate_limit_exceeded",
    );
    response.headers_mut().extend(account_headers(shared, behaviour));
    if let Ok(value) = HeaderValue::try_from(reached.retry_after_seconds.to_string()) {
        response.headers_mut().insert(header::RETRY_AFTER, value);
    }
    Box::new(response)
}

fn account_headers(shared: &Shared, behaviour: &Behaviour) -> HeaderMap {
    let mut account = shared.account.lock();
    match behaviour.has_anthropic_headers {
        true => account.anthropic_headers(Utc::now()),
        false => account.openai_headers(),
    }
}

fn order(
    behaviour: &mut Behaviour,
    headers: &HeaderMap,
    suffix: &str,
    request: &ChatRequest,
) -> Result<(), crate::UnknownOrder> {
    behaviour.apply(suffix)?;
    for value in headers.get_all("x-simulator") {
        behaviour.apply(value.to_str().unwrap_or("unreadable"))?;
    }
    for part in request.parts() {
        behaviour.apply_text(&part.text)?;
    }
    Ok(())
}

fn has_stream_options(body: &[u8]) -> bool {
    serde_json::from_slice::<Value>(body).is_ok_and(|body| body.get("stream_options").is_some_and(Value::is_object))
}

async fn pause(millis: u64) {
    if millis > 0 {
        tokio::time::sleep(Duration::from_millis(millis.min(PAUSE_MS_MAX))).await;
    }
}

/// What ordered failures say.
fn failure_text(behaviour: &Behaviour, shared: &Shared) -> String {
    let mut text = "The simulator was ordered to fail.".to_owned();
    if behaviour.quotes_credential {
        let credential = shared.config.credential.as_deref().unwrap_or_default();
        text.push_str(&format!(" It was given {credential} for org-SimulatedAccount1."));
    }
    text
}

fn ordered_failure(status: u16, behaviour: &Behaviour, shared: &Shared) -> Box<Response> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let (kind, code) = match status.as_u16() {
        429 => ("requests", "rate_limit_exceeded"),
        400..=499 => ("invalid_request_error", "ordered_failure"),
        _ => ("server_error", "ordered_failure"),
    };
    let mut response = failure(status, &failure_text(behaviour, shared), kind, code);
    if let Some(value) = behaviour
        .retry_after
        .as_deref()
        .and_then(|text| HeaderValue::from_str(text).ok())
    {
        response.headers_mut().insert(header::RETRY_AFTER, value);
    }
    Box::new(response)
}

fn refuse(status: StatusCode, message: &str, code: &'static str) -> Box<Response> {
    Box::new(failure(status, message, "invalid_request_error", code))
}

pub(crate) fn failure(status: StatusCode, message: &str, kind: &'static str, code: &'static str) -> Response {
    let body = json!({ "error": { "message": message, "type": kind, "param": null, "code": code } });
    let content_type = [(header::CONTENT_TYPE, "application/json")];
    (status, content_type, body.to_string()).into_response()
}

fn with_headers(
    mut response: Response,
    shared: &Shared,
    answer: &Answer,
    behaviour: &Behaviour,
    content_type: &str,
) -> Response {
    let headers = response.headers_mut();
    let content_type = behaviour.content_type.as_deref().unwrap_or(content_type);
    let named = [
        (header::CONTENT_TYPE, Some(content_type)),
        (header::CONTENT_ENCODING, behaviour.content_encoding.as_deref()),
    ];
    for (name, text) in named {
        if let Some(Ok(value)) = text.map(HeaderValue::from_str) {
            headers.insert(name, value);
        }
    }
    if let Ok(id) = HeaderValue::try_from(answer.id.replace("chatcmpl-", "req_")) {
        headers.insert(protocol::headers::X_REQUEST_ID, id);
    }
    headers.extend(account_headers(shared, behaviour));
    response
}

fn whole(flight: Flight, request: &ChatRequest, answer: &Answer, behaviour: &Behaviour) -> Response {
    let shared = Arc::clone(&flight.shared);
    let choices: Vec<Value> = answer
        .choices
        .iter()
        .enumerate()
        .map(|(index, choice)| {
            json!({
                "index": index,
                "message": message(choice, behaviour, &answer.id),
                "logprobs": null,
                "finish_reason": choice.finish_reason,
            })
        })
        .collect();
    let mut body = json!({
        "id": answer.id,
        "object": "chat.completion",
        "created": 0,
        "model": request.model(),
        "choices": choices,
    });
    if !behaviour.hides_usage {
        body["usage"] = usage_json(&answer.usage, behaviour);
    }
    let text = if behaviour.is_malformed {
        "<html>not what you asked for".into()
    } else {
        body.to_string()
    };
    let length = text.len();
    let usage = answer.usage;
    let body = stream::once(async move {
        flight.shared.counters.change(|stats| {
            stats.prompt_tokens_sent += usage.input_tokens();
            stats.cached_tokens_sent += usage.cache_read_tokens;
            stats.completion_tokens_sent += usage.output_tokens;
            stats.reasoning_tokens_sent += usage.reasoning_tokens;
        });
        flight.finish();
        Ok::<_, Infallible>(text)
    });
    let mut response = with_headers(
        Response::new(Body::from_stream(body)),
        &shared,
        answer,
        behaviour,
        "application/json",
    );
    response
        .headers_mut()
        .insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    response
}

fn message(choice: &Choice, behaviour: &Behaviour, id: &str) -> Value {
    let mut message = json!({ "role": "assistant", "content": choice.text(), "refusal": null });
    if behaviour.calls_tool {
        message["content"] = Value::Null;
        message["tool_calls"] = json!([{
            "id": id.replace("chatcmpl-", "call_"),
            "type": "function",
            "function": { "name": "speak", "arguments": choice.arguments() },
        }]);
    }
    if behaviour.shows_reasoning {
        message["reasoning_content"] = choice.reasoning.join(" ").into();
    }
    message
}

/// One event of the stream and what it stands for.
struct Piece {
    data: Bytes,
    completion_tokens: u64,
    reasoning_tokens: u64,
    /// Whether it counts for the orders that say "after so many chunks": it carries generated words.
    is_chunk: bool,
}

fn streamed(
    flight: Flight,
    switch: ResetSwitch,
    request: &ChatRequest,
    answer: Answer,
    behaviour: Behaviour,
) -> Response {
    let shared = Arc::clone(&flight.shared);
    let pieces = pieces(request, &answer, &behaviour).into();
    let named = behaviour.clone();
    let sending = Sending {
        flight,
        switch,
        pieces,
        behaviour,
        prompt: Some((answer.usage.input_tokens(), answer.usage.cache_read_tokens)),
        chunks: 0,
        is_over: false,
        is_held: false,
    };
    let body: BoxStream<'static, io::Result<Bytes>> = stream::unfold(sending, Sending::next).boxed();
    let mut response = with_headers(
        Response::new(Body::from_stream(body)),
        &shared,
        &answer,
        &named,
        "text/event-stream",
    );
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// A stream on its way. Dropped in between, its flight counts as aborted.
struct Sending {
    flight: Flight,
    switch: ResetSwitch,
    pieces: std::collections::VecDeque<Piece>,
    behaviour: Behaviour,
    /// Input and cached tokens, counted with the first byte.
    prompt: Option<(u64, u64)>,
    chunks: u64,
    is_over: bool,
    is_held: bool,
}

impl Sending {
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        if self.is_over {
            return None;
        }
        let reached = |after: Option<u64>| after.is_some_and(|after| self.chunks >= after);
        if reached(self.behaviour.reset_after_chunks) {
            // Pending once, so that what was sent before is flushed.
            tokio::task::yield_now().await;
            self.switch.reset();
            return Some((Err(io::ErrorKind::ConnectionReset.into()), self));
        }
        if reached(self.behaviour.silence_after_chunks) {
            std::future::pending::<Infallible>().await;
        }
        if reached(self.behaviour.close_after_chunks) {
            self.flight.is_finished = true;
            return None;
        }
        if reached(self.behaviour.error_after_chunks) {
            self.flight.is_finished = true;
            self.is_over = true;
            let error = json!({ "error": {
                "message": failure_text(&self.behaviour, &self.flight.shared), "type": "server_error", "param": null, "code": "ordered_failure",
            }});
            return Some((Ok(event(&error)), self));
        }
        if reached(self.behaviour.hold_after_chunks) && !self.is_held {
            self.is_held = true;
            self.flight.park().await;
        }
        let piece = self.pieces.pop_front()?;
        pause(self.behaviour.chunk_ms).await;
        let prompt = self.prompt.take();
        self.flight.shared.counters.change(|stats| {
            if let Some((input, cached)) = prompt {
                stats.prompt_tokens_sent += input;
                stats.cached_tokens_sent += cached;
            }
            stats.completion_tokens_sent += piece.completion_tokens;
            stats.reasoning_tokens_sent += piece.reasoning_tokens;
        });
        self.chunks += u64::from(piece.is_chunk);
        if self.pieces.is_empty() {
            self.flight.is_finished = true;
        }
        Some((Ok(piece.data), self))
    }
}

fn event(data: &Value) -> Bytes {
    Bytes::from(format!("data: {data}\n\n"))
}

/// Every event of the stream, `[DONE]` at its end.
fn pieces(request: &ChatRequest, answer: &Answer, behaviour: &Behaviour) -> Vec<Piece> {
    let mut writer = Writer {
        request,
        answer,
        behaviour,
        sent: domain::usage::TokenUsage {
            output_tokens: 0,
            reasoning_tokens: 0,
            ..answer.usage
        },
        pieces: Vec::new(),
    };
    for (index, choice) in answer.choices.iter().enumerate() {
        writer.choice(index, choice);
    }
    if request.includes_usage() && !behaviour.hides_usage {
        let mut data = writer.chunk(json!([]));
        data["usage"] = usage_json(&answer.usage, behaviour);
        writer.push(event(&data), 0, 0, false);
    }
    writer.push(Bytes::from_static(b"data: [DONE]\n\n"), 0, 0, false);
    writer.pieces
}

struct Writer<'a> {
    request: &'a ChatRequest,
    answer: &'a Answer,
    behaviour: &'a Behaviour,
    /// The running usage.
    sent: domain::usage::TokenUsage,
    pieces: Vec<Piece>,
}

impl Writer<'_> {
    fn choice(&mut self, index: usize, choice: &Choice) {
        self.delta(
            index,
            json!({ "role": "assistant", "content": "" }),
            Value::Null,
            0,
            0,
            false,
        );
        if self.behaviour.shows_reasoning {
            for (nth, word) in choice.reasoning.iter().enumerate() {
                self.delta(
                    index,
                    json!({ "reasoning_content": spaced(nth, word) }),
                    Value::Null,
                    1,
                    1,
                    true,
                );
            }
        } else if !choice.reasoning.is_empty() {
            // Thinking that is not shown costs all the same; it goes with an event that shows nothing.
            let hidden = choice.reasoning.len() as u64;
            self.delta(index, json!({}), Value::Null, hidden, hidden, false);
        }
        if self.behaviour.calls_tool {
            self.tool_call(index, choice);
        } else {
            for (nth, word) in choice.words.iter().enumerate() {
                self.delta(index, json!({ "content": spaced(nth, word) }), Value::Null, 1, 0, true);
            }
        }
        self.delta(index, json!({}), choice.finish_reason.into(), 0, 0, false);
    }

    fn tool_call(&mut self, index: usize, choice: &Choice) {
        let id = self.answer.id.replace("chatcmpl-", "call_");
        let head = json!({ "tool_calls": [{
            "index": 0, "id": id, "type": "function", "function": { "name": "speak", "arguments": "" },
        }]});
        self.delta(index, head, Value::Null, 0, 0, false);
        let arguments: Vec<char> = choice.arguments().chars().collect();
        let words = choice.words.len();
        let pieces: Vec<&[char]> = arguments
            .chunks(arguments.len().div_ceil(words.max(1)).max(1))
            .collect();
        let count = pieces.len();
        for (nth, piece) in pieces.into_iter().enumerate() {
            let text: String = piece.iter().collect();
            let delta = json!({ "tool_calls": [{ "index": 0, "function": { "arguments": text } }] });
            let tokens = words * (nth + 1) / count - words * nth / count;
            self.delta(index, delta, Value::Null, tokens as u64, 0, true);
        }
    }

    fn delta(&mut self, index: usize, delta: Value, finish_reason: Value, tokens: u64, reasoning: u64, is_chunk: bool) {
        self.sent.output_tokens += tokens;
        self.sent.reasoning_tokens += reasoning;
        let choices = json!([{ "index": index, "delta": delta, "logprobs": null, "finish_reason": finish_reason }]);
        let mut data = self.chunk(choices);
        if self.behaviour.has_usage_each_chunk {
            data["usage"] = usage_json(&self.sent, self.behaviour);
        } else if self.request.includes_usage() && !self.behaviour.hides_usage {
            data["usage"] = Value::Null;
        }
        let bytes = if self.behaviour.is_malformed {
            Bytes::from_static(b"data: {\"choices\": [oops\n\n")
        } else {
            event(&data)
        };
        self.push(bytes, tokens, reasoning, is_chunk);
    }

    fn chunk(&self, choices: Value) -> Value {
        json!({
            "id": self.answer.id,
            "object": "chat.completion.chunk",
            "created": 0,
            "model": self.request.model(),
            "choices": choices,
        })
    }

    fn push(&mut self, data: Bytes, completion_tokens: u64, reasoning_tokens: u64, is_chunk: bool) {
        self.pieces.push(Piece {
            data,
            completion_tokens,
            reasoning_tokens,
            is_chunk,
        });
    }
}

fn spaced(nth: usize, word: &str) -> String {
    if nth == 0 { word.to_owned() } else { format!(" {word}") }
}

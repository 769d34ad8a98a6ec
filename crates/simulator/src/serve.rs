//! What happens to a request between its dialect's reading and writing: orders, the account, waits, failures.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::Shared;
use crate::account::LimitReached;
use crate::answer::Answer;
use crate::asked::Asked;
use crate::behaviour::Behaviour;
use crate::cache::CacheUse;
use crate::connection::ResetSwitch;
use crate::dialect::{Dialect, Exchange};
use crate::failure::Failure;
use crate::flight::Flight;
use crate::latency::latency_ms;
use crate::provider::Provider;
use crate::sending::{Sending, pause};
use crate::traffic::Arrival;

/// Answers one request in one dialect.
pub(crate) async fn serve<D: Dialect>(
    State(shared): State<Arc<Shared>>,
    Extension(switch): Extension<ResetSwitch>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let flight = Flight::begin(&shared);
    match answer::<D>(&shared, &switch, &headers, body, &flight).await {
        Ok(exchange) if exchange.asked.is_streamed => streamed::<D>(flight, switch, *exchange),
        Ok(exchange) => whole::<D>(flight, &exchange),
        Err(failure) => {
            let response = D::PROVIDER.failed(&failure, &flight.request_id());
            if !switch.is_on() {
                flight.fail();
            }
            response
        }
    }
}

/// Decides what is answered, and waits as long as ordered before the first byte of it.
async fn answer<D: Dialect>(
    shared: &Arc<Shared>,
    switch: &ResetSwitch,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
    flight: &Flight,
) -> Result<Box<Exchange>, Failure> {
    let mut behaviour = shared
        .script
        .lock()
        .pop_front()
        .unwrap_or_else(|| shared.config.behaviour.clone());

    D::PROVIDER.admit(headers, shared.config.credential.as_deref())?;
    let asked = read::<D>(body)?;
    let (model, suffix) = asked.model.split_once('@').unwrap_or((&asked.model, ""));
    let known = &shared.config.models;
    if !known.is_empty() && !known.iter().any(|name| name == model) {
        let message = "The model does not exist.";
        return Err(Failure::refused(StatusCode::NOT_FOUND, message, "model_not_found"));
    }
    order(&mut behaviour, headers, suffix, &asked)
        .map_err(|error| Failure::refused(StatusCode::BAD_REQUEST, error.to_string(), "unknown_order"))?;

    if let Some(permille) = behaviour.fail_permille
        && shared.failures.lock().below(1_000) >= u64::from(permille)
    {
        behaviour = behaviour.without_failures();
    }

    let outcome = decide(shared, &behaviour, &asked);
    if behaviour.holds || shared.gate.is_closed() {
        flight.park().await;
    }
    // A provider without room says so at once.
    if !matches!(outcome, Outcome::Limited(_)) {
        let latency_ms = latency_ms(&behaviour, asked.input.seed());
        pause(behaviour.first_byte_ms.saturating_add(latency_ms)).await;
    }
    match outcome {
        Outcome::Answer(answer) => Ok(Box::new(Exchange {
            asked,
            answer: *answer,
            behaviour,
        })),
        Outcome::Limited(reached) => Err(limited(shared, &behaviour, D::PROVIDER, &reached)),
        Outcome::Silence => std::future::pending().await,
        Outcome::Reset => {
            switch.reset();
            Err(ordered_failure(500, &behaviour, shared))
        }
        Outcome::Failure(status) => Err(ordered_failure(status, &behaviour, shared)),
        Outcome::UnknownOption => {
            let message = "Unrecognized request argument supplied: stream_options";
            Err(Failure::refused(StatusCode::BAD_REQUEST, message, "unknown_parameter"))
        }
    }
}

fn read<D: Dialect>(body: Result<Bytes, BytesRejection>) -> Result<Asked, Failure> {
    let body = body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let message = "The body is larger than is read.";
            Failure::refused(StatusCode::PAYLOAD_TOO_LARGE, message, "request_too_large")
        }
        _ => Failure::unreadable("The body did not arrive."),
    })?;
    let body = serde_json::from_slice(&body)
        .map_err(|error| Failure::unreadable(format!("We could not parse the JSON body of your request: {error}")))?;
    D::read(body)
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
fn decide(shared: &Shared, behaviour: &Behaviour, asked: &Asked) -> Outcome {
    if behaviour.is_silent {
        return Outcome::Silence;
    }
    if behaviour.resets {
        return Outcome::Reset;
    }
    if let Some(status) = behaviour.status {
        return Outcome::Failure(status);
    }
    if behaviour.rejects_stream_options && asked.has_stream_options() {
        return Outcome::UnknownOption;
    }
    if asked.is_free {
        return Outcome::Answer(Box::new(Answer::to(asked, behaviour, CacheUse::default())));
    }
    let met = shared.prompts.lock().meet(asked);
    let has_cache = shared.config.caches_prompts || behaviour.caches_prompts;
    let cache = if has_cache { met } else { CacheUse::default() };
    let answer = Answer::to(asked, behaviour, cache);
    let tokens = answer.usage.total_tokens();
    // Before the account is asked, so that arrivals are kept in the order in which it met them.
    let mut traffic = shared.traffic.lock();
    let taken = shared.account.lock().take(tokens);
    let arrival = Arrival {
        at_ms: shared.started.elapsed().as_millis() as u64,
        user: asked.user.as_deref().map(Into::into),
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

fn limited(shared: &Shared, behaviour: &Behaviour, provider: Provider, reached: &LimitReached) -> Failure {
    let mut headers = provider.account_headers(&mut shared.account.lock(), behaviour);
    if let Ok(value) = HeaderValue::try_from(reached.retry_after_seconds.to_string()) {
        headers.insert(header::RETRY_AFTER, value);
    }
    Failure {
        status: StatusCode::TOO_MANY_REQUESTS,
        message: format!("Rate limit reached for {} per minute on this account.", reached.name),
        kind: reached.name,
        code: "rate_limit_exceeded",
        headers: Box::new(headers),
    }
}

fn order(
    behaviour: &mut Behaviour,
    headers: &HeaderMap,
    suffix: &str,
    asked: &Asked,
) -> Result<(), crate::UnknownOrder> {
    behaviour.apply(suffix)?;
    for value in headers.get_all("x-simulator") {
        behaviour.apply(value.to_str().unwrap_or("unreadable"))?;
    }
    for text in asked.input.orders() {
        behaviour.apply_text(text)?;
    }
    Ok(())
}

/// What ordered failures say.
pub(crate) fn failure_text(behaviour: &Behaviour, shared: &Shared) -> String {
    let mut text = "The simulator was ordered to fail.".to_owned();
    if behaviour.quotes_credential {
        let credential = shared.config.credential.as_deref().unwrap_or_default();
        text.push_str(&format!(" It was given {credential} for org-SimulatedAccount1."));
    }
    text
}

fn ordered_failure(status: u16, behaviour: &Behaviour, shared: &Shared) -> Failure {
    let mut failure = Failure::ordered(status, failure_text(behaviour, shared));
    let retry_after = behaviour.retry_after.as_deref().map(HeaderValue::from_str);
    if let Some(Ok(value)) = retry_after {
        failure.headers.insert(header::RETRY_AFTER, value);
    }
    failure
}

fn whole<D: Dialect>(flight: Flight, exchange: &Exchange) -> Response {
    let shared = Arc::clone(&flight.shared);
    let text = if exchange.behaviour.is_malformed {
        "<html>not what you asked for".into()
    } else {
        D::whole(exchange).to_string()
    };
    let length = text.len();
    let usage = exchange.answer.usage;
    let body = stream::once(async move {
        flight.shared.counters.change(|stats| {
            stats.add_input(&usage);
            stats.completion_tokens_sent += usage.output_tokens;
            stats.reasoning_tokens_sent += usage.reasoning_tokens;
        });
        flight.finish();
        Ok::<_, Infallible>(text)
    });
    let mut headers = headers::<D>(&shared, exchange, "application/json");
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    let mut response = Response::new(Body::from_stream(body));
    *response.headers_mut() = headers;
    response
}

fn streamed<D: Dialect>(flight: Flight, switch: ResetSwitch, exchange: Exchange) -> Response {
    let mut headers = headers::<D>(&flight.shared, &exchange, "text/event-stream");
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    let mut response = Response::new(Body::from_stream(Sending::<D>::body(flight, switch, exchange)));
    *response.headers_mut() = headers;
    response
}

fn headers<D: Dialect>(shared: &Shared, exchange: &Exchange, content_type: &str) -> HeaderMap {
    let behaviour = &exchange.behaviour;
    let mut headers = HeaderMap::new();
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
    if let Ok(id) = HeaderValue::try_from(exchange.answer.id("req_")) {
        headers.insert(D::PROVIDER.request_id_header(), id);
    }
    headers.extend(D::PROVIDER.account_headers(&mut shared.account.lock(), behaviour));
    headers
}

//! Passes a request on and its answer back, on a task of its own that outlives the caller.

mod stream;
mod whole;

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use domain::error_chain::chain;
use domain::ledger::{Attempt, Outcome};
use domain::usage::{TokenUsage, UsageSource};
use http::header::CONTENT_TYPE;
use http::{Method, StatusCode};
use protocol::errors::{ErrorBody, UpstreamError};
use protocol::headers;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use upstream::{ResponseBody, SendError};

use crate::clock::between_ms;
use crate::flight::{Ending, Flight};
use crate::pipeline::Outgoing;
use crate::{error, metrics};

/// How long an answer is still followed after its caller left, in milliseconds: the provider bills it anyway, and its
/// own figures are better than an estimate.
pub const DRAIN_MS: u64 = 10_000;
/// How much of it is followed, in bytes.
pub const DRAIN_BYTES_MAX: usize = 1024 * 1024;
/// The longest answer that is not a stream, in bytes.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Pieces of a stream that wait for a slow caller.
const PIECES_MAX: usize = 16;
/// A caller that takes nothing for so long has left, in milliseconds.
const CALLER_STALL_MS: u64 = 60_000;
/// How often a running request's lease is extended, in milliseconds.
const RENEW_INTERVAL_MS: u64 = 20_000;

/// The way back to the caller.
type Head = oneshot::Sender<Response>;

/// Sends the request and answers with what comes back.
pub(crate) async fn answer(flight: Flight, outgoing: Outgoing) -> Response {
    let id = flight.id();
    let (head, answered) = oneshot::channel();
    let gateway = std::sync::Arc::clone(&flight.gateway);
    gateway.tasks.spawn(relay(flight, outgoing, head));
    // The task drops its end without an answer only when it panicked; its flight has booked that.
    answered.await.unwrap_or_else(|_| error::gateway(id))
}

async fn relay(mut flight: Flight, outgoing: Outgoing, mut head: Head) {
    flight.mark_sent();
    let sent = flight.gateway.clock.now();
    metrics::added(flight.began.elapsed());
    let client = flight.gateway.client.clone();
    let request = upstream::Request {
        method: Method::POST,
        base_url: &outgoing.upstream.upstream.base_url,
        endpoint: outgoing.endpoint,
        credential: outgoing.upstream.credential.as_deref(),
        headers: outgoing.headers.clone(),
        body: outgoing.body.clone(),
    };
    let answer = while_wanted(&flight, &mut head, client.send(request, outgoing.total_ms)).await;
    let now = flight.gateway.clock.now();
    let mut attempt = Attempt {
        upstream_id: outgoing.upstream.upstream.id,
        upstream_model: outgoing.upstream_model.clone(),
        status: None,
        error: None,
        first_byte_ms: between_ms(sent, now),
    };
    match answer {
        Err(CallerGone) => {
            attempt.error = Some("caller_gone".to_owned());
            flight.note_attempt(attempt);
            let ending = expected(&flight, Outcome::ClientClosed);
            flight.settle(ending).await;
        }
        Ok(Err(error)) => {
            attempt.error = Some(error.as_str().to_owned());
            flight.note_attempt(attempt);
            fail(flight, head, error).await;
        }
        Ok(Ok(response)) => {
            let status = response.status();
            attempt.status = Some(status.as_u16());
            flight.note_attempt(attempt);
            if !status.is_success() {
                pass_error(flight, head, response).await;
            } else if is_event_stream(&response) {
                stream::relay(flight, &outgoing, head, response).await;
            } else {
                whole::relay(flight, head, response).await;
            }
        }
    }
}

/// The caller left, and the time it is still waited for is over.
struct CallerGone;

/// Runs `work` as long as the caller waits and [`DRAIN_MS`] longer, extending the hold's lease meanwhile.
async fn while_wanted<T>(flight: &Flight, head: &mut Head, work: impl Future<Output = T>) -> Result<T, CallerGone> {
    let mut work = pin!(work);
    let mut renewal = tokio::time::interval(Duration::from_millis(RENEW_INTERVAL_MS));
    renewal.reset();
    loop {
        tokio::select! {
            biased;
            done = &mut work => return Ok(done),
            () = head.closed() => break,
            _ = renewal.tick() => flight.renew().await,
        }
    }
    timeout(Duration::from_millis(DRAIN_MS), work)
        .await
        .map_err(|_| CallerGone)
}

/// The provider gave no answer.
async fn fail(mut flight: Flight, head: Head, failure: SendError) {
    let (status, code, message, outcome) = match &failure {
        SendError::TimedOut(_) => (
            StatusCode::GATEWAY_TIMEOUT,
            "upstream_timeout",
            "The model's provider did not answer in time. Retry, or ask for less output.",
            Outcome::TimedOut,
        ),
        SendError::Broken(_) => (
            StatusCode::BAD_GATEWAY,
            "upstream_error",
            "The connection to the model's provider broke before it answered. Retry.",
            Outcome::UpstreamError,
        ),
        SendError::Address | SendError::Connect(_) | SendError::Unconnected(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "upstream_unavailable",
            "The model's provider cannot be reached. Retry shortly.",
            Outcome::UpstreamError,
        ),
    };
    tracing::warn!(request_id = %flight.id(), error = chain(&failure), "the upstream gave no answer");
    let retry_after = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(1);
    let body = ErrorBody {
        message: message.to_owned(),
        kind: "upstream_error".into(),
        param: None,
        code: Some(code.into()),
        retry_after,
        scope: None,
    };
    let response = error::upstream(flight.id(), status.as_u16(), &body, retry_after);
    let now = flight.gateway.clock.now();
    flight.note_head(None, status.as_u16(), now);
    let ending = if failure.may_have_been_sent() {
        expected(&flight, outcome)
    } else {
        Ending::unused(outcome)
    };
    deliver(flight, head, response, ending).await;
}

/// The provider refused or failed, and said so.
async fn pass_error(mut flight: Flight, mut head: Head, response: http::Response<ResponseBody>) {
    let (parts, mut body) = response.into_parts();
    let read = while_wanted(
        &flight,
        &mut head,
        read_up_to(&mut body, protocol::errors::UPSTREAM_ERROR_BYTES_MAX),
    )
    .await;
    let told = UpstreamError::read(&read.unwrap_or_default());
    let now = flight.gateway.clock.now();
    let (status, mut body) = match parts.status {
        // The provider talks of our credential, which is none of the caller's business.
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            tracing::error!(request_id = %flight.id(), status = parts.status.as_u16(), "the upstream refused our credential");
            let message = Some(
                "The model's provider does not accept the gateway's credential. Tell your platform operator."
                    .to_owned(),
            );
            (
                StatusCode::BAD_GATEWAY,
                ErrorBody::upstream(UpstreamError {
                    message,
                    ..UpstreamError::default()
                }),
            )
        }
        status if status.is_redirection() || status.is_informational() => {
            (StatusCode::BAD_GATEWAY, ErrorBody::upstream(UpstreamError::default()))
        }
        status => (status, ErrorBody::upstream(told)),
    };
    let is_retryable = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let retry_after = headers::retry_after(&parts.headers, now.wall)
        .map(|wait| wait.as_millis().div_ceil(1_000).try_into().unwrap_or(u64::MAX).max(1))
        .or_else(|| is_retryable.then_some(1));
    body.retry_after = retry_after;
    let mut answer = error::upstream(flight.id(), status.as_u16(), &body, retry_after);
    if let Some(id) = parts.headers.get(headers::X_REQUEST_ID) {
        answer.headers_mut().insert(headers::X_REQUEST_ID, id.clone());
    }
    flight.note_head(headers::upstream_request_id(&parts.headers), status.as_u16(), now);
    deliver(flight, head, answer, Ending::unused(Outcome::UpstreamError)).await;
}

/// Settles, then answers: the caller's next request finds the room. A caller that is gone is booked as such.
async fn deliver(mut flight: Flight, head: Head, response: Response, mut ending: Ending) {
    if head.is_closed() {
        flight.note_caller_gone_before_answer();
        ending.outcome = Outcome::ClientClosed;
    }
    flight.settle(ending).await;
    // Should the caller leave in this very moment, the answer was ready and is charged all the same.
    let _ = head.send(response);
}

/// The head of a successful answer.
fn success(flight: &Flight, upstream: &http::response::Parts, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = upstream.status;
    *response.headers_mut() = headers::caller_response_headers(&upstream.headers);
    error::set_id(response.headers_mut(), flight.id());
    error::set_tightest(response.headers_mut(), &flight.tightest());
    response
}

/// A body fed through a bounded channel.
fn channel() -> (mpsc::Sender<Bytes>, Body) {
    let (sender, mut receiver) = mpsc::channel::<Bytes>(PIECES_MAX);
    let pieces = futures_util::stream::poll_fn(move |context| {
        receiver.poll_recv(context).map(|piece| piece.map(Ok::<_, Infallible>))
    });
    (sender, Body::from_stream(pieces))
}

/// An ending charged at the expected use, for want of anything better.
fn expected(flight: &Flight, outcome: Outcome) -> Ending {
    let expected = flight.estimate.expected;
    let usage = TokenUsage {
        input_fresh_tokens: expected.input_tokens,
        output_tokens: expected.output_tokens,
        ..TokenUsage::default()
    };
    Ending {
        outcome,
        usage,
        usage_source: UsageSource::Estimated,
    }
}

async fn read_up_to(body: &mut ResponseBody, bytes_max: usize) -> Vec<u8> {
    let mut read = Vec::new();
    while let Ok(Some(chunk)) = body.next_chunk().await {
        let room = bytes_max.saturating_sub(read.len());
        read.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() >= room {
            break;
        }
    }
    read
}

fn is_event_stream(response: &http::Response<ResponseBody>) -> bool {
    response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.trim_start().to_ascii_lowercase().starts_with("text/event-stream"))
}

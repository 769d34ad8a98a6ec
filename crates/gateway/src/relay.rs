//! Passes a request on and its answer back, on a task of its own that outlives the caller.

mod stream;
mod tries;
mod whole;

use std::borrow::Cow;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use domain::error_chain::chain;
use domain::ledger::Outcome;
use domain::usage::{TokenUsage, UsageSource};
use http::StatusCode;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use protocol::errors::{ErrorBody, UpstreamError, redacted};
use protocol::{account_headers, headers};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use upstream::breaker::FailureKind;
use upstream::{BodyError, ResponseBody, SendError};

use crate::error;
use crate::flight::{Ending, Flight};
use crate::outgoing::Outgoing;
use crate::refusal::{Refusal, Unavailable};
use tries::{Failed, Tried, until_answered};

pub use tries::ATTEMPTS_MAX;

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
/// How long a caller may take the last words of an answer that the process's stop has ended, in milliseconds.
const LAST_WORDS_MS: u64 = 1_000;

/// The way back to the caller.
type Head = oneshot::Sender<Response>;

/// Sends the request and answers with what comes back.
pub(crate) async fn answer(flight: Flight, outgoing: Outgoing) -> Response {
    let (id, dialect) = (flight.id(), flight.dialect());
    let (head, answered) = oneshot::channel();
    let gateway = Arc::clone(&flight.gateway);
    gateway.tasks.spawn(relay(flight, outgoing, head));
    // The task drops its end without an answer only when it panicked; its flight has booked that.
    answered.await.unwrap_or_else(|_| error::gateway(dialect, id))
}

async fn relay(mut flight: Flight, mut outgoing: Outgoing, mut head: Head) {
    let (response, mut watch) = match until_answered(&mut flight, &mut outgoing, &mut head).await {
        Tried::Answered(answered) => *answered,
        Tried::Unwanted(reason) => return give_up(flight, head, reason).await,
        Tried::NotSent(wait_ms) => return unavailable(flight, &outgoing, head, wait_ms).await,
        Tried::Failed(Failed::NoAnswer(error)) => return fail(flight, head, error).await,
        Tried::Failed(Failed::Error(parts, told)) => {
            let secrets = Secrets(outgoing.upstream().credential.clone());
            let (gateway, tenant) = (&flight.gateway, flight.identity.tenant_id);
            let first_back = outgoing.case.first_back(gateway, tenant, gateway.clock.now());
            let shut_ms = first_back.map_or(0, |first_back| first_back.retry_after_ms);
            return pass_error(flight, head, &parts, secrets.cleared(told), shut_ms).await;
        }
    };
    let (endpoint, shows_usage) = (outgoing.request.endpoint(), outgoing.shows_usage);
    let secrets = Secrets(outgoing.upstream().credential.clone());
    // The body and its room are not needed any more.
    drop(outgoing);
    if is_encoded(&response) {
        watch.broke_off(FailureKind::ErrorInAnswer);
        refuse_encoded(flight, head, &response).await;
    } else if is_to_be_streamed(&response, flight.identity.is_streamed) {
        stream::relay(flight, (endpoint, shows_usage), &secrets, head, (response, watch)).await;
    } else {
        whole::relay(flight, endpoint, &secrets, head, (response, watch)).await;
    }
}

/// Our own credential, which a provider may quote.
struct Secrets(Option<Arc<str>>);

impl Secrets {
    fn cleared(&self, told: UpstreamError) -> UpstreamError {
        told.without_secrets(self.0.as_deref())
    }

    /// The bytes of an error, without what is secret of ours.
    fn cleared_bytes(&self, raw: Bytes) -> Bytes {
        match std::str::from_utf8(&raw).map(|text| redacted(text, self.0.as_deref())) {
            Ok(Cow::Owned(text)) => text.into(),
            _ => raw,
        }
    }
}

/// Why nobody waits for the provider any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unwanted {
    /// The caller left, and the time it is still waited for is over.
    CallerGone,
    /// The process stops, and its grace is over.
    Stopping,
}

impl Unwanted {
    /// The word kept on the attempt in the ledger.
    fn as_str(self) -> &'static str {
        match self {
            Self::CallerGone => "caller_gone",
            Self::Stopping => "gateway_stopping",
        }
    }
}

/// Runs `work` as long as the caller waits and [`DRAIN_MS`] longer, extending the hold's lease meanwhile; to its end, if its
/// outcome may be asked for again.
async fn while_wanted<T>(flight: &Flight, head: &mut Head, work: impl Future<Output = T>) -> Result<T, Unwanted> {
    let mut work = pin!(work);
    let mut lease = Lease::of(flight);
    let stopping = flight.gateway.ending.cancelled();
    let mut stopping = pin!(stopping);
    let mut orphan = None;
    loop {
        tokio::select! {
            biased;
            done = &mut work => return Ok(done),
            () = &mut stopping => return Err(Unwanted::Stopping),
            () = head.closed(), if orphan.is_none() => {
                orphan = flight.orphan();
                if orphan.is_none() {
                    break;
                }
            }
            () = lease.due() => lease.renew_if_due(flight).await,
        }
    }
    tokio::select! {
        biased;
        done = &mut work => Ok(done),
        () = &mut stopping => Err(Unwanted::Stopping),
        () = tokio::time::sleep(Duration::from_millis(DRAIN_MS)) => Err(Unwanted::CallerGone),
    }
}

/// When the hold's lease wants to be extended: a third of it before, at the latest.
struct Lease {
    interval: Duration,
    due: Instant,
}

impl Lease {
    fn of(flight: &Flight) -> Self {
        let interval = Duration::from_millis(flight.gateway.limits.lease_ms() / 3);
        Self {
            interval,
            due: Instant::now() + interval,
        }
    }

    /// Waits until it does.
    async fn due(&self) {
        tokio::time::sleep_until(self.due).await;
    }

    async fn renew_if_due(&mut self, flight: &Flight) {
        if Instant::now() >= self.due {
            flight.renew().await;
            self.due = Instant::now() + self.interval;
        }
    }
}

/// Ends what nobody waits for: the provider may have worked, and is charged as expected.
async fn give_up(mut flight: Flight, head: Head, reason: Unwanted) {
    match reason {
        Unwanted::CallerGone => {
            flight.note_caller_gone_before_answer();
            let ending = expected(&flight, Outcome::ClientClosed);
            flight.settle(ending).await;
        }
        Unwanted::Stopping => {
            let status = StatusCode::SERVICE_UNAVAILABLE.as_u16();
            let response = error::upstream(flight.dialect(), flight.id(), status, &stopping(), Some(1));
            let now = flight.gateway.clock.now();
            flight.note_head(None, status, now);
            let ending = expected(&flight, Outcome::GatewayError);
            deliver(flight, head, response, ending).await;
        }
    }
}

/// What callers are told whose answers end with the process.
fn stopping() -> ErrorBody {
    ErrorBody {
        message: "The gateway is stopping and could not wait for the end of this answer. Retry.".to_owned(),
        kind: "service_unavailable".into(),
        param: None,
        code: Some("gateway_error".into()),
        retry_after: Some(1),
        scope: None,
    }
}

/// An answer whose usage cannot be read, because the provider compressed it although it was asked not to.
async fn refuse_encoded(mut flight: Flight, head: Head, response: &http::Response<ResponseBody>) {
    tracing::error!(request_id = %flight.id(), "the upstream compressed its answer although it was asked not to");
    let status = StatusCode::BAD_GATEWAY.as_u16();
    let body = ErrorBody::upstream(UpstreamError {
        message: Some("The model's provider sent its answer in an encoding that it was asked not to use.".to_owned()),
        ..UpstreamError::default()
    });
    let mut answer = error::upstream(flight.dialect(), flight.id(), status, &body, None);
    // It would be the same again, and be charged again.
    error::set_no_retry(answer.headers_mut());
    let now = flight.gateway.clock.now();
    flight.note_head(headers::upstream_request_id(response.headers()), status, now);
    let ending = expected(&flight, Outcome::UpstreamError);
    deliver(flight, head, answer, ending).await;
}

/// Since admission, every upstream that could take it has come to be left alone.
async fn unavailable(mut flight: Flight, outgoing: &Outgoing, head: Head, wait_ms: u64) {
    let unavailable = Unavailable {
        scope: outgoing.upstream().scope.scope.clone(),
        retry_after_ms: wait_ms,
    };
    let refusal = Refusal::unavailable(unavailable, flight.gateway.random_unit());
    let answer = error::refused(flight.dialect(), flight.id(), &refusal);
    let now = flight.gateway.clock.now();
    flight.note_head(None, answer.status().as_u16(), now);
    deliver(flight, head, answer, Ending::unused(Outcome::UpstreamError)).await;
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
    let response = error::upstream(flight.dialect(), flight.id(), status.as_u16(), &body, retry_after);
    let now = flight.gateway.clock.now();
    flight.note_head(None, status.as_u16(), now);
    let ending = if failure.may_have_been_sent() {
        expected(&flight, outcome)
    } else {
        Ending::unused(outcome)
    };
    deliver(flight, head, response, ending).await;
}

/// The provider refused or failed, and said so. The breakers of every route are shut for `shut_ms`.
async fn pass_error(mut flight: Flight, head: Head, parts: &http::response::Parts, told: UpstreamError, shut_ms: u64) {
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
    let told_ms = match status {
        StatusCode::TOO_MANY_REQUESTS => account_headers::cooling(&parts.headers, now.wall),
        _ => headers::retry_after(&parts.headers, now.wall),
    };
    let told_ms = told_ms.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    // Whoever comes back sooner than the breakers open is refused.
    let wait_ms = if is_retryable {
        Some(told_ms.unwrap_or(0).max(shut_ms))
    } else {
        told_ms
    };
    let retry_after = wait_ms.map(|wait_ms| wait_ms.div_ceil(1_000).max(1));
    body.retry_after = retry_after;
    let mut answer = error::upstream(flight.dialect(), flight.id(), status.as_u16(), &body, retry_after);
    for name in [headers::X_REQUEST_ID, headers::REQUEST_ID] {
        if let Some(id) = parts.headers.get(&name) {
            answer.headers_mut().insert(name, id.clone());
        }
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
    let response = match flight.recording() {
        Some(recording) => recording.take_whole(response).await,
        None => response,
    };
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

/// The stream's end was not told.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the answer broke off")]
struct BrokeOff;

/// Raised when a stream's last word has been said.
#[derive(Clone, Debug, Default)]
struct Said(Arc<AtomicBool>);

impl Said {
    fn all(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_all(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A body fed through a bounded channel. When its feeding ends before all was said, by a panic say, the body ends in an
/// error, and the caller's connection with it: an answer that ends in good order would pass for a whole one.
fn channel() -> (mpsc::Sender<Bytes>, Said, Body) {
    let (sender, mut receiver) = mpsc::channel::<Bytes>(PIECES_MAX);
    let said = Said::default();
    let heard = said.clone();
    let mut is_over = false;
    let pieces = futures_util::stream::poll_fn(move |context| {
        if is_over {
            return Poll::Ready(None);
        }
        receiver.poll_recv(context).map(|piece| match piece {
            Some(piece) => Some(Ok(piece)),
            None => {
                is_over = true;
                (!heard.is_all()).then_some(Err(BrokeOff))
            }
        })
    });
    (sender, said, Body::from_stream(pieces))
}

/// In what way the upstream has failed whose answer ends so; `None` where our time for the request was over.
fn failure_in_answer(error: &BodyError) -> Option<FailureKind> {
    match error {
        BodyError::Broken(_) => Some(FailureKind::Broken),
        BodyError::Silent(_) => Some(FailureKind::Silent),
        BodyError::TookTooLong(_) => None,
    }
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

/// Whether the answer is passed on as it comes. What was asked for as a stream is one, whatever it is called, unless it
/// says that it is JSON.
fn is_to_be_streamed(response: &http::Response<ResponseBody>, is_asked_for: bool) -> bool {
    let content_type = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .map(|value| value.trim_start().to_ascii_lowercase())
        .unwrap_or_default();
    content_type.starts_with("text/event-stream") || (is_asked_for && !content_type.starts_with("application/json"))
}

/// Whether the answer is compressed.
fn is_encoded(response: &http::Response<ResponseBody>) -> bool {
    response
        .headers()
        .get_all(CONTENT_ENCODING)
        .iter()
        .any(|value| !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity"))
}

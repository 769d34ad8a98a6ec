//! Requests that say by what name they are known: run once, however often they are sent, and answered again from the
//! record. Who runs is decided by [`limits`], for all gateways that share counters; what was answered is sealed here.
//!
//! What used nothing (a refusal, a provider that could not be reached) leaves its key free. What may have cost something
//! does not, whatever became of it: an error is given again as an answer is, and says that trying again is of no use.
//!
//! Recordings and what is given again take room among the bodies in memory; where there is none, an answer is not kept.

mod bounds;
mod recording;

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use domain::ids::RequestId;
use domain::refusals::{RefusalCode, retry_after_seconds};
use http::StatusCode;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use limits::{IdempotencyKey, SealedAnswer, Unclaimed};
use protocol::headers;
use sha2::{Digest as _, Sha256};
use store::sealing::Purpose;

use crate::asked::Asked;
use crate::flight::Flight;
use crate::jobs::blocking;
use crate::kept::Kept;
use crate::refusal::Refusal;
use crate::room::Taken;
use crate::{Gateway, body, error};
use bounds::SENDINGS_PER_MINUTE_MAX;

pub(crate) use bounds::{Orphan, Orphans, Sendings};
pub(crate) use recording::Recording;

/// How often a recorded answer is in memory: as it grows, and when it is sealed.
const COPIES_PER_RECORDING: usize = 2;
/// The longest time after which those are told to come back who ask for what still runs, in milliseconds.
const STILL_RUNNING_MS_MAX: u64 = 5_000;
/// After how long those are told to come back whose answer was not read in time, in milliseconds.
const UNREAD_MS: u64 = 1_000;
/// Says that an answer was given before.
const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// The status of a recorded answer, before everything else.
const STATUS_BYTES: usize = 2;

/// What becomes of a request that may have been sent before.
pub(crate) enum Begun {
    /// It runs: it was not sent before, or does not say.
    Runs,
    /// It does not run.
    Refused(Box<Refusal>),
    /// It has run, and this is its answer.
    Answered(Box<Recorded>),
}

/// An answer that is given again.
pub(crate) struct Recorded {
    request: RequestId,
    status: StatusCode,
    kept: Kept,
}

impl Recorded {
    /// The same, keeping the room for as long as its body lives.
    fn guarded(mut self, room: Taken) -> Self {
        self.kept.body = room.guard(self.kept.body);
        self
    }
}

/// Claims the request's idempotency key, if it has one.
pub(crate) async fn begin(flight: &mut Flight, asked: &Asked) -> Begun {
    let name = match headers::idempotency_key(&asked.headers) {
        Ok(None) => return Begun::Runs,
        Ok(Some(name)) => Sha256::digest(name),
        Err(error) => {
            let refusal = Refusal::plain(RefusalCode::InvalidRequest, error.to_string());
            return Begun::Refused(Box::new(refusal));
        }
    };
    let gateway = Arc::clone(&flight.gateway);
    let now = gateway.clock.now();
    let key = IdempotencyKey {
        tenant: flight.identity.tenant_id,
        key: flight.identity.key_id,
        hash: name.into(),
    };
    if let Err(wait_ms) = gateway.sendings.count(key, now) {
        return Begun::Refused(Box::new(too_often(wait_ms, gateway.random_unit())));
    }
    let body = asked.request.body().clone();
    let endpoint = asked.request.endpoint();
    let body_hash = move || -> [u8; 32] {
        let mut hasher = Sha256::new();
        hasher.update(endpoint.path());
        hasher.update([0]);
        hasher.update(&body);
        hasher.finalize().into()
    };
    let body_hash = if asked.request.body().len() < tokens::OFFLOAD_BYTES_MIN as usize {
        body_hash()
    } else {
        blocking(body_hash).await
    };
    let now = gateway.clock.now();
    match gateway.limits.claim(&key, body_hash, flight.id(), now).await {
        Ok(claim) => {
            flight.record(Recording::of(claim, gateway.room.take_none()));
            Begun::Runs
        }
        Err(Unclaimed::Answered { request, answer }) => {
            let mut room = gateway.room.take_none();
            let bytes = answer.len() * COPIES_PER_RECORDING;
            if room.grow(bytes).is_err() {
                return Begun::Refused(Box::new(body::no_room()));
            }
            match open(&gateway, request, answer).await {
                Some(recorded) => Begun::Answered(Box::new(recorded.guarded(room))),
                None => Begun::Refused(Box::new(lost(request))),
            }
        }
        Err(Unclaimed::AnswerUnread { request }) => Begun::Refused(Box::new(unread(request, gateway.random_unit()))),
        Err(Unclaimed::AnswerLost { request }) => Begun::Refused(Box::new(lost(request))),
        Err(Unclaimed::Running { request, lease_left_ms }) => {
            Begun::Refused(Box::new(running(request, lease_left_ms, gateway.random_unit())))
        }
        Err(Unclaimed::OtherBody { request }) => Begun::Refused(Box::new(Refusal::plain(
            RefusalCode::IdempotencyKeyReused,
            format!(
                "This idempotency key belongs to request {request}, which had another body. \
                 Send another key, or the same body."
            ),
        ))),
        Err(Unclaimed::NoRoom) => Begun::Refused(Box::new(Refusal::plain(
            RefusalCode::Overloaded,
            "Too many requests with idempotency keys are under way here. Retry shortly.",
        ))),
    }
}

/// Gives the recorded answer again. The row names the request that ran.
pub(crate) fn replay(flight: Flight, recorded: Recorded) -> Response {
    let Recorded { request, status, kept } = recorded;
    let mut response = Response::new(Body::from(kept.body));
    *response.status_mut() = status;
    *response.headers_mut() = kept.headers;
    response
        .headers_mut()
        .insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    if !status.is_success() {
        // It would be the same again.
        response.headers_mut().remove(RETRY_AFTER);
        error::set_no_retry(response.headers_mut());
    }
    let message = format!("The answer of request {request} was given again.");
    flight.replay(&Refusal::plain(RefusalCode::Replayed, message), status.as_u16());
    response
}

fn lost(request: RequestId) -> Refusal {
    Refusal::plain(
        RefusalCode::IdempotencyAnswerLost,
        format!(
            "This idempotency key belongs to request {request}, which has run, and its answer is not kept. \
             Send another key to run it again."
        ),
    )
}

/// What is kept was not read in time.
fn unread(request: RequestId, random: f64) -> Refusal {
    let mut refusal = Refusal::plain(
        RefusalCode::IdempotencyInProgress,
        format!("Request {request} with this idempotency key has run; its answer cannot be read at the moment. Retry."),
    );
    refusal.retry_after_seconds = Some(retry_after_seconds(UNREAD_MS, random));
    refusal
}

fn too_often(wait_ms: u64, random: f64) -> Refusal {
    let mut refusal = Refusal::plain(
        RefusalCode::RateLimitExceeded,
        format!(
            "One idempotency key may be sent {SENDINGS_PER_MINUTE_MAX} times a minute. Keep the answer that you were given."
        ),
    );
    refusal.retry_after_seconds = Some(retry_after_seconds(wait_ms, random));
    refusal
}

fn running(request: RequestId, lease_left_ms: u64, random: f64) -> Refusal {
    let wait_ms = lease_left_ms.min(STILL_RUNNING_MS_MAX);
    let mut refusal = Refusal::plain(
        RefusalCode::IdempotencyInProgress,
        format!("Request {request} with this idempotency key is still running. Retry to get its answer."),
    );
    refusal.retry_after_seconds = Some(retry_after_seconds(wait_ms, random));
    refusal
}

async fn open(gateway: &Gateway, request: RequestId, answer: SealedAnswer) -> Option<Recorded> {
    let key = Arc::clone(&gateway.secret_key);
    let sealed = answer.into_bytes();
    let opened = blocking(move || key.open(Purpose::IdempotentAnswer, &request.to_string(), &sealed)).await;
    let plain = opened
        .inspect_err(|error| tracing::error!(%error, request_id = %request, "a recorded answer cannot be opened"))
        .ok()?;
    let status = u16::from_be_bytes(*plain.first_chunk::<STATUS_BYTES>()?);
    Some(Recorded {
        request,
        status: StatusCode::from_u16(status).ok()?,
        kept: Kept::from_bytes(plain.get(STATUS_BYTES..)?.to_vec())?,
    })
}

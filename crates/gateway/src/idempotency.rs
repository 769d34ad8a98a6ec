//! Requests that say by what name they are known: run once, however often they are sent, and answered again from the
//! record. Who runs is decided by [`limits`], for all gateways that share counters; what was answered is sealed here.
//!
//! What used nothing (a refusal, a provider that could not be reached) leaves its key free. What may have cost something
//! does not, whatever became of it: an error is given again as an answer is, and says that trying again is of no use.
//!
//! Recordings and what is given again take room among the bodies in memory; where there is none, an answer is not kept.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use domain::ids::{RequestId, TenantId};
use domain::refusals::{RefusalCode, retry_after_seconds};
use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use limits::{Claim, IdempotencyKey, Now, SealedAnswer, Unclaimed};
use parking_lot::Mutex;
use protocol::headers;
use sha2::{Digest as _, Sha256};
use store::sealing::Purpose;

use crate::asked::Asked;
use crate::flight::Flight;
use crate::jobs::blocking;
use crate::kept::Kept;
use crate::refusal::Refusal;
use crate::relay::ANSWER_BYTES_MAX;
use crate::room::Taken;
use crate::{Gateway, body, error};

/// The longest answer that is recorded, in bytes of its body.
const RECORDED_BYTES_MAX: usize = 1 << 20;
/// How often one idempotency key may be sent within a minute: its answer is read whole each time from where it is kept.
const SENDINGS_PER_MINUTE_MAX: u32 = 30;
/// Idempotency keys that are counted at once.
const COUNTED_KEYS_MAX: usize = 10_000;
/// Requests that are followed to their end at once although their callers have left.
const ORPHANS_MAX: usize = 256;
/// The same of one tenant.
const TENANT_ORPHANS_MAX: usize = 32;
/// How often a recorded answer is in memory: as it grows, and when it is sealed.
const COPIES_PER_RECORDING: usize = 2;
/// The longest time after which those are told to come back who ask for what still runs, in milliseconds.
const STILL_RUNNING_MS_MAX: u64 = 5_000;
/// After how long those are told to come back whose answer was not read in time, in milliseconds.
const UNREAD_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60_000;
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

/// How often idempotency keys were sent within this minute.
#[derive(Debug, Default)]
pub(crate) struct Sendings(Mutex<CountedMinute>);

#[derive(Debug, Default)]
struct CountedMinute {
    minute: u64,
    by_key: HashMap<IdempotencyKey, u32>,
}

impl Sendings {
    /// Counts one more.
    ///
    /// # Errors
    /// With the time until the next minute, in milliseconds, when there were as many as may be.
    fn count(&self, key: IdempotencyKey, now: Now) -> Result<(), u64> {
        let mut counted = self.0.lock();
        let minute = now.monotonic_ms / MINUTE_MS;
        if counted.minute != minute {
            counted.minute = minute;
            counted.by_key.clear();
        }
        if counted.by_key.len() >= COUNTED_KEYS_MAX && !counted.by_key.contains_key(&key) {
            return Ok(());
        }
        let count = counted.by_key.entry(key).or_default();
        if *count >= SENDINGS_PER_MINUTE_MAX {
            return Err(MINUTE_MS - now.monotonic_ms % MINUTE_MS);
        }
        *count += 1;
        Ok(())
    }
}

/// Requests that are followed to their end although their callers have left.
#[derive(Debug, Default)]
pub(crate) struct Orphans(Arc<Mutex<HashMap<TenantId, usize>>>);

/// A place among them; given back when dropped.
#[derive(Debug)]
pub(crate) struct Orphan {
    orphans: Orphans,
    tenant: TenantId,
}

impl Orphans {
    /// A place for one more of this tenant.
    pub(crate) fn take(&self, tenant: TenantId) -> Option<Orphan> {
        let mut by_tenant = self.0.lock();
        let total: usize = by_tenant.values().sum();
        let of_tenant = by_tenant.get(&tenant).copied().unwrap_or(0);
        if total >= ORPHANS_MAX || of_tenant >= TENANT_ORPHANS_MAX {
            return None;
        }
        by_tenant.insert(tenant, of_tenant + 1);
        Some(Orphan {
            orphans: Self(Arc::clone(&self.0)),
            tenant,
        })
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        let mut by_tenant = self.orphans.0.lock();
        if let Some(count) = by_tenant.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                by_tenant.remove(&self.tenant);
            }
        }
    }
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

/// What the caller of a request is answered, and the claim on its idempotency key. Ended with its flight; dropped, it ends
/// as its claim does.
pub(crate) struct Recording {
    claim: Claim,
    head: Option<(StatusCode, HeaderMap)>,
    body: BytesMut,
    room: Taken,
    is_too_long: bool,
    is_over: bool,
}

impl Recording {
    fn of(claim: Claim, room: Taken) -> Self {
        Self {
            claim,
            head: None,
            body: BytesMut::new(),
            room,
            is_too_long: false,
            is_over: false,
        }
    }

    /// Bytes are about to go upstream.
    pub(crate) fn mark_sent(&mut self) {
        self.claim.mark_sent();
    }

    /// Extends the claim.
    pub(crate) async fn renew(&self, now: Now) {
        self.claim.renew(now).await;
    }

    /// Whether the answer can be kept, as far as is known.
    pub(crate) fn may_be_kept(&self) -> bool {
        !self.is_too_long
    }

    /// An answer begins, whose body comes in pieces.
    pub(crate) fn begin(&mut self, answer: &Response) {
        self.head = Some((answer.status(), answer.headers().clone()));
    }

    /// The next piece of it.
    pub(crate) fn add(&mut self, piece: Option<&Bytes>) {
        let Some(piece) = piece else { return };
        let fits = !self.is_too_long
            && self.body.len() + piece.len() <= RECORDED_BYTES_MAX
            && self.room.grow(piece.len() * COPIES_PER_RECORDING).is_ok();
        if !fits {
            self.is_too_long = true;
            self.body = BytesMut::new();
            self.room = self.room.none_of_it();
        } else {
            self.body.extend_from_slice(piece);
        }
    }

    /// That was all of it.
    pub(crate) fn is_over(&mut self) {
        self.is_over = true;
    }

    /// Records an answer that is in memory already.
    pub(crate) async fn take_whole(&mut self, answer: Response) -> Response {
        self.begin(&answer);
        let (parts, body) = answer.into_parts();
        match axum::body::to_bytes(body, ANSWER_BYTES_MAX).await {
            Ok(body) => {
                self.add(Some(&body));
                self.is_over = true;
                Response::from_parts(parts, Body::from(body))
            }
            // It cannot fail: it is in memory, and not longer than may be.
            Err(error) => Response::from_parts(
                parts,
                Body::from_stream(futures_util::stream::iter([Err::<Bytes, _>(error)])),
            ),
        }
    }

    /// The request has run: its answer is kept, or is lost where it was too long or nobody knows its end.
    pub(crate) async fn finish(self, gateway: &Gateway) {
        let sealed = match self.head {
            Some((status, headers)) if self.is_over && !self.is_too_long => {
                let (key, random) = (Arc::clone(&gateway.secret_key), Arc::clone(&gateway.random));
                let (request, body) = (self.claim.request(), self.body.freeze());
                blocking(move || {
                    let mut plain = status.as_u16().to_be_bytes().to_vec();
                    plain.extend(Kept::answer(&headers, body).into_bytes());
                    key.seal(Purpose::IdempotentAnswer, &request.to_string(), &plain, &*random)
                })
                .await
                .into()
            }
            _ => None,
        };
        let answer = sealed.and_then(|sealed: Vec<u8>| SealedAnswer::new(sealed.into()));
        self.claim.finish(answer, gateway.clock.now()).await;
    }

    /// It did not run, or used nothing: the key is free again.
    pub(crate) async fn release(self, now: Now) {
        self.claim.release(now).await;
    }
}

#[cfg(test)]
mod tests;

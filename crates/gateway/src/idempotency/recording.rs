//! What a caller is answered, recorded beside being sent.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use limits::{Claim, Now, SealedAnswer};
use store::sealing::Purpose;

use super::COPIES_PER_RECORDING;
use crate::Gateway;
use crate::jobs::blocking;
use crate::kept::Kept;
use crate::relay::ANSWER_BYTES_MAX;
use crate::room::Taken;

/// The longest answer that is recorded, in bytes of its body.
const RECORDED_BYTES_MAX: usize = 1 << 20;

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
    pub(super) fn of(claim: Claim, room: Taken) -> Self {
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

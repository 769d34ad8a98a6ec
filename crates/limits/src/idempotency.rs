//! One run and one settlement for each idempotency key: who may run, and what others with the same key are told.
//!
//! [`Limits::claim`](crate::Limits::claim) gives the key to one request, as a [`Claim`] that ends once, or says what became
//! of the request that has it.
//!
//! # What is promised
//!
//! - Of requests with one key, one is run, from the moment it claims until [`IDEMPOTENCY_KEPT_MS`] after it has ended. The
//!   others are told that it runs, its answer, or that it has run and its answer is lost. Another body is told so, and
//!   never an answer.
//! - A request that did not run gives its key back.
//! - A lease that ends without an ending means that the gateway died while the request ran, which may have cost money: the
//!   answer is lost then, for as long as it would have been kept, and the key is not free before. A gateway that only
//!   stood still takes its claim up again with the next renewal, and its answer is kept when it has one.
//!
//! All gateways that share counters in Redis share claims, too, by the server's time.
//!
//! # What is not
//!
//! - While Redis does not answer, or answers one call too late, this gateway alone decides: it knows what runs here, and
//!   what has ended here and Redis has not heard of. The same key may run at another gateway meanwhile, once at each. What
//!   is claimed so is told when Redis is back: of two runs, everybody is told of the first that it hears of.
//! - A Redis that is emptied forgets what has ended. What runs is put back by its renewal, within a third of the lease, and
//!   never run twice at one gateway.
//! - A gateway keeps `CLAIMS_MAX` claims in its memory. Beyond that the oldest that have ended are
//!   forgotten before their time; those that run never are, and a claim for which there is no room is refused.
//! - Answers may be lost before their time: the oldest of more than `ANSWER_BYTES_MAX` in
//!   memory, and those that Redis did not take. A gateway gives Redis as many bytes of them in ten minutes, so that answers
//!   do not take the room of counters; what is beyond that, it answers alone and for other gateways is lost.

mod calls;
mod endings;
pub(crate) mod memory;
mod shared;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use domain::ids::{KeyId, RequestId, TenantId};

use crate::Now;
use memory::MemoryClaims;
pub(crate) use shared::SharedClaims;

/// How long an answer is kept after its request has ended, in milliseconds; as long, that it is lost.
pub const IDEMPOTENCY_KEPT_MS: u64 = 600_000;
/// The largest answer that is kept: 1 MiB, and what sealing adds to it.
pub const IDEMPOTENT_ANSWER_BYTES_MAX: usize = (1 << 20) + SEALING_BYTES;
/// Room for status, headers, nonce and tag.
const SEALING_BYTES: usize = 4 << 10;

/// What a caller calls a request, however often it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    /// Whose API key it is: its claims stand with the tenant's counters.
    pub tenant: TenantId,
    /// The API key. Another one's idempotency keys are others.
    pub key: KeyId,
    /// A hash of the caller's words.
    pub hash: [u8; 32],
}

/// Who claims a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claimant {
    pub(crate) key: IdempotencyKey,
    pub(crate) body_hash: [u8; 32],
    pub(crate) request: RequestId,
}

/// An answer that only the caller of this crate can read, of at most [`IDEMPOTENT_ANSWER_BYTES_MAX`]. Clones share it.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedAnswer(Bytes);

impl SealedAnswer {
    /// `None` where it is larger than is kept.
    pub fn new(sealed: Bytes) -> Option<Self> {
        (sealed.len() <= IDEMPOTENT_ANSWER_BYTES_MAX).then_some(Self(sealed))
    }

    /// How many bytes it has.
    #[expect(clippy::len_without_is_empty, reason = "a sealed answer is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// As it was sealed.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Without its bytes, of which there may be many.
impl fmt::Debug for SealedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedAnswer({} bytes)", self.0.len())
    }
}

/// Why a key is not given to a request, which is not to run then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unclaimed {
    /// Another request has it and runs.
    Running {
        /// Which.
        request: RequestId,
        /// When it will have ended or is given up, unless its gateway says that it still runs.
        lease_left_ms: u64,
    },
    /// It has run.
    Answered {
        /// Which request that was.
        request: RequestId,
        /// What it was answered.
        answer: SealedAnswer,
    },
    /// It has run, and its answer is kept but was not read in time: another try may read it.
    AnswerUnread {
        /// Which request that was.
        request: RequestId,
    },
    /// It has run, or may have, and there is no answer any more.
    AnswerLost {
        /// Which request that was.
        request: RequestId,
    },
    /// The key was claimed with another body, whatever became of that.
    OtherBody {
        /// By which request.
        request: RequestId,
    },
    /// This gateway has as many requests with such keys under way as it keeps.
    NoRoom,
}

/// Where claims are kept. Clones share them.
#[derive(Clone)]
pub(crate) enum Claims {
    Memory(Arc<MemoryClaims>),
    Shared(Arc<SharedClaims>),
}

impl Claims {
    pub(crate) async fn claim(&self, claimant: Claimant, now: Now) -> Result<Claim, Unclaimed> {
        match self {
            Self::Memory(claims) => claims.claim(&claimant, now)?,
            Self::Shared(claims) => claims.claim(&claimant, now).await?,
        }
        Ok(Claim {
            claims: self.clone(),
            claimant,
            is_sent: false,
            is_open: true,
        })
    }

    pub(crate) fn sweep(&self, now: Now) {
        match self {
            Self::Memory(claims) => claims.sweep(now),
            Self::Shared(claims) => claims.sweep(now),
        }
    }

    /// Without waiting for anybody; at the last time that was heard of where there is none.
    fn finish_later(&self, claimant: &Claimant, answer: Option<SealedAnswer>, now: Option<Now>) {
        match self {
            Self::Memory(claims) => {
                claims.finish(claimant, answer, now);
            }
            Self::Shared(claims) => claims.finish_later(claimant, answer, now),
        }
    }
}

/// A request's claim on its idempotency key. Ends exactly once: [`Claim::finish`], [`Claim::release`], or by being dropped,
/// which gives the key back if the request was not sent, and loses its answer if it was.
#[must_use = "dropping a claim ends it"]
pub struct Claim {
    claims: Claims,
    claimant: Claimant,
    is_sent: bool,
    is_open: bool,
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("claimant", &self.claimant)
            .field("is_sent", &self.is_sent)
            .finish_non_exhaustive()
    }
}

impl Claim {
    /// The request.
    pub fn request(&self) -> RequestId {
        self.claimant.request
    }

    /// Bytes are about to go upstream, or money may be spent otherwise: from now on dropping it does not free the key.
    pub fn mark_sent(&mut self) {
        self.is_sent = true;
    }

    /// Extends the lease. Due well before [`Settings::lease_ms`](crate::Settings::lease_ms) has passed. In a shared store
    /// [`Limits::keep`](crate::Limits::keep) renews all claims together.
    pub async fn renew(&self, now: Now) {
        match &self.claims {
            Claims::Memory(claims) => claims.renew(&self.claimant, now),
            Claims::Shared(claims) => claims.renew(&self.claimant, now),
        };
    }

    /// The request has run: its answer is kept for [`IDEMPOTENCY_KEPT_MS`], or without one that it is lost.
    ///
    /// Whether or not this is waited for, it happens; a shared store that does not answer hears of it later. Nothing happens
    /// where another request has claimed the key, long after the lease has ended.
    pub async fn finish(mut self, answer: Option<SealedAnswer>, now: Now) {
        self.is_open = false;
        match &self.claims {
            Claims::Memory(claims) => {
                claims.finish(&self.claimant, answer, Some(now));
            }
            Claims::Shared(claims) => claims.finish(&self.claimant, answer, now).await,
        }
    }

    /// The same where nobody can wait: a shared store hears of it soon.
    pub fn finish_later(mut self, answer: Option<SealedAnswer>, now: Now) {
        self.is_open = false;
        self.claims.finish_later(&self.claimant, answer, Some(now));
    }

    /// The request did not run, or used nothing: the key is free again.
    ///
    /// Whether or not this is waited for, it happens; a shared store that does not answer hears of it later.
    pub async fn release(mut self, now: Now) {
        self.is_open = false;
        match &self.claims {
            Claims::Memory(claims) => claims.release(&self.claimant),
            Claims::Shared(claims) => claims.release(&self.claimant, now).await,
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !std::mem::replace(&mut self.is_open, false) {
            return;
        }
        match (self.is_sent, &self.claims) {
            (true, claims) => claims.finish_later(&self.claimant, None, None),
            (false, Claims::Memory(claims)) => claims.release(&self.claimant),
            (false, Claims::Shared(claims)) => claims.release_later(&self.claimant),
        }
    }
}

//! What is asked of Redis about claims.

use std::str::FromStr;

use bytes::Bytes;
use domain::ids::RequestId;
use redis::Value;

use super::{Claimant, IDEMPOTENCY_KEPT_MS, SealedAnswer, Unclaimed};
use crate::redis::{CallFailed, Shared, scripts, word};
use crate::{Now, names};

/// How long the server remembers that a request did not run, in milliseconds: a claim or a renewal of it that comes late
/// changes nothing. None comes later than its time-out.
const FREED_MS: u64 = 10_000;

/// What the server says of a key.
#[derive(Debug)]
pub(super) enum Said {
    /// It is the request's.
    Claimed,
    /// Another request has it.
    Taken(Unclaimed),
    /// Another request has it, and has left an answer.
    Answered(RequestId),
}

/// What becomes of a key.
#[derive(Debug)]
pub(super) enum End<'a> {
    Answered(&'a SealedAnswer),
    Lost,
    Freed,
}

impl Claimant {
    fn record(&self) -> String {
        let key = &self.key;
        names::claim_key(key.tenant, key.key, &key.hash)
    }
}

impl Shared {
    /// Asks for the key.
    pub(super) async fn claim(&self, claimant: &Claimant, now: Now) -> Result<Said, CallFailed> {
        let reply = self
            .timely(&scripts::CLAIM, now, |keys, args| {
                keys.push(claimant.record());
                args.push(claimant.request);
                args.push_bytes(&claimant.body_hash);
                args.push(self.settings.lease_ms);
                args.push(IDEMPOTENCY_KEPT_MS);
            })
            .await?;
        let said = match word(reply.first()) {
            Some(b"yes") => return Ok(Said::Claimed),
            Some(b"ended") => return Err(CallFailed::Ended),
            said => said,
        };
        let [_, _, request, Value::Int(lease_left_ms)] = &reply[..] else {
            return Err(CallFailed::Unexpected);
        };
        let request = word(Some(request)).and_then(|text| RequestId::from_str(str::from_utf8(text).ok()?).ok());
        let request = request.ok_or(CallFailed::Unexpected)?;
        let lease_left_ms = lease_left_ms.unsigned_abs();
        match said {
            Some(b"answered") => Ok(Said::Answered(request)),
            Some(b"running") => Ok(Said::Taken(Unclaimed::Running { request, lease_left_ms })),
            Some(b"lost") => Ok(Said::Taken(Unclaimed::AnswerLost { request })),
            Some(b"other") => Ok(Said::Taken(Unclaimed::OtherBody { request })),
            _ => Err(CallFailed::Unexpected),
        }
    }

    /// The answer that this request has left under the claimant's key. It is not in the reply of [`Shared::claim`], which
    /// decides whether anything runs: a large one may come too late where a word does not.
    pub(super) async fn read_answer(
        &self,
        claimant: &Claimant,
        request: RequestId,
        now: Now,
    ) -> Result<Option<SealedAnswer>, CallFailed> {
        let reply = self
            .timely(&scripts::READ_ANSWER, now, |keys, args| {
                keys.push(claimant.record());
                args.push(request);
            })
            .await?;
        Ok(match reply.into_iter().nth(2) {
            Some(Value::BulkString(bytes)) => SealedAnswer::new(Bytes::from(bytes)),
            _ => None,
        })
    }

    /// Extends the leases of these, which stand together.
    pub(crate) async fn renew_claims(&self, claimants: &[Claimant], now: Now) -> Result<(), CallFailed> {
        self.timely(&scripts::RENEW_CLAIMS, now, |keys, args| {
            args.push(self.settings.lease_ms);
            args.push(IDEMPOTENCY_KEPT_MS);
            for claimant in claimants {
                keys.push(claimant.record());
                args.push(claimant.request);
                args.push_bytes(&claimant.body_hash);
            }
        })
        .await?;
        Ok(())
    }

    /// Says what becomes of the key; false where it is another request's.
    pub(super) async fn end_claim(&self, claimant: &Claimant, end: End<'_>, now: Now) -> Result<bool, CallFailed> {
        let reply = self
            .timely(&scripts::END_CLAIM, now, |keys, args| {
                keys.push(claimant.record());
                args.push(claimant.request);
                args.push_bytes(&claimant.body_hash);
                args.push(match end {
                    End::Answered(_) => "answered",
                    End::Lost => "lost",
                    End::Freed => "free",
                });
                args.push(IDEMPOTENCY_KEPT_MS);
                args.push(FREED_MS);
                if let End::Answered(answer) = end {
                    args.push_bytes(answer.bytes());
                }
            })
            .await?;
        match word(reply.first()) {
            Some(b"yes") => Ok(true),
            Some(b"no") => Ok(false),
            _ => Err(CallFailed::Unexpected),
        }
    }
}

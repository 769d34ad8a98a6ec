//! Claims in Redis as one gateway uses them: what runs here is known here, too, and decides while Redis does not answer.
//!
//! A key is given to a request only by this gateway's own memory, which Redis is asked before: nothing runs twice here,
//! whatever becomes of Redis meanwhile. What Redis has heard the end of, it alone keeps.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use domain::error_chain::chain;
use domain::ids::RequestId;
use futures_util::future::join_all;
use parking_lot::Mutex;

use super::calls::{End, Said};
use super::endings::{Ending, Endings, How};
use super::memory::{ANSWER_BYTES_MAX, MemoryClaims};
use super::{Claimant, IDEMPOTENCY_KEPT_MS, IDEMPOTENT_ANSWER_BYTES_MAX, SealedAnswer, Unclaimed};
use crate::Now;
use crate::redis::{CallFailed, LifeSigns, Shared};
use crate::window::Window;

/// Claims renewed by one call.
const RENEWED_MAX: usize = 50;
/// Endings told at once, with no more bytes of answers than the largest has.
const ENDINGS_AT_ONCE: usize = 64;
/// The pause after an ending that the server did not take, in milliseconds.
const ENDINGS_PAUSE_MS: u64 = 200;
/// What a claim takes in Redis beside its answer, in bytes, or a little more.
const CLAIM_BYTES: u64 = 512;
/// Bytes of claims with answers that this gateway gives to Redis in the time for which one is kept.
const GIVEN_BYTES_MAX: u64 = ANSWER_BYTES_MAX as u64;

pub(crate) struct SharedClaims {
    shared: Arc<Shared>,
    /// What runs here, and has ended here and is not known to Redis.
    local: MemoryClaims,
    /// What runs here.
    open: Mutex<HashMap<RequestId, Open>>,
    endings: Endings,
    /// Bytes of answers given to Redis lately.
    given: Mutex<Window>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    claimant: Claimant,
    /// Whether Redis may know of it.
    is_shared: bool,
}

/// Frees what a call may have claimed when nobody waits for its answer any more.
struct Pending<'a> {
    claims: &'a SharedClaims,
    claimant: Claimant,
    may_be_shared: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.may_be_shared {
            self.claims.endings.push(Ending::new(self.claimant, How::Released));
        }
    }
}

impl SharedClaims {
    pub(crate) fn new(shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self {
            local: MemoryClaims::new(shared.settings.lease_ms),
            shared,
            open: Mutex::default(),
            endings: Endings::default(),
            given: Mutex::new(Window::new((IDEMPOTENCY_KEPT_MS / 1_000) as u32, 0)),
        })
    }

    pub(super) async fn claim(&self, claimant: &Claimant, now: Now) -> Result<(), Unclaimed> {
        self.local.look(claimant, now)?;
        let mut pending = Pending {
            claims: self,
            claimant: *claimant,
            may_be_shared: false,
        };
        if !self.shared.health.is_degraded() {
            pending.may_be_shared = true;
            match self.shared.claim(claimant, now).await {
                Ok(Said::Claimed) => self.shared.health.succeeded(),
                Ok(Said::Taken(unclaimed)) => {
                    self.shared.health.succeeded();
                    pending.may_be_shared = false;
                    return Err(unclaimed);
                }
                Ok(Said::Answered(request)) => {
                    self.shared.health.succeeded();
                    pending.may_be_shared = false;
                    return Err(self.answered(claimant, request, now).await);
                }
                Err(failed) => {
                    self.shared.note_failure(&failed, now);
                    pending.may_be_shared = failed.may_have_run();
                }
            }
        }
        self.local.claim(claimant, now)?;
        let open = Open {
            claimant: *claimant,
            is_shared: std::mem::take(&mut pending.may_be_shared),
        };
        self.open.lock().insert(claimant.request, open);
        Ok(())
    }

    async fn answered(&self, claimant: &Claimant, request: RequestId, now: Now) -> Unclaimed {
        match self.shared.read_answer(claimant, request, now).await {
            Ok(Some(answer)) => Unclaimed::Answered { request, answer },
            Ok(None) => Unclaimed::AnswerLost { request },
            Err(failed) => {
                self.note_slow(&failed, now);
                Unclaimed::AnswerUnread { request }
            }
        }
    }

    /// Here alone: Redis hears of it with all others.
    pub(super) fn renew(&self, claimant: &Claimant, now: Now) -> bool {
        self.local.renew(claimant, now)
    }

    pub(super) async fn finish(&self, claimant: &Claimant, answer: Option<SealedAnswer>, now: Now) {
        self.close(claimant);
        self.local.finish(claimant, answer, Some(now));
        self.end(Ending::new(*claimant, How::Finished), now).await;
    }

    pub(super) fn finish_later(&self, claimant: &Claimant, answer: Option<SealedAnswer>, now: Option<Now>) {
        self.close(claimant);
        self.local.finish(claimant, answer, now);
        self.endings.push(Ending::new(*claimant, How::Finished));
    }

    pub(super) async fn release(&self, claimant: &Claimant, now: Now) {
        if self.release_here(claimant) {
            self.end(Ending::new(*claimant, How::Released), now).await;
        }
    }

    pub(super) fn release_later(&self, claimant: &Claimant) {
        if self.release_here(claimant) {
            self.endings.push(Ending::new(*claimant, How::Released));
        }
    }

    /// Whether Redis has to hear of it.
    fn release_here(&self, claimant: &Claimant) -> bool {
        let is_shared = self.close(claimant);
        self.local.release(claimant);
        is_shared
    }

    /// It runs no more; whether Redis may know of it.
    fn close(&self, claimant: &Claimant) -> bool {
        let open = self.open.lock().remove(&claimant.request);
        open.is_some_and(|open| open.is_shared)
    }

    /// Tells Redis; what it does not hear is told later, as it is when this is dropped before the answer.
    async fn end(&self, ending: Arc<Ending>, now: Now) {
        let mut untold = self.endings.guard(ending);
        if !self.shared.health.is_degraded() {
            untold.is_heard = self.tell(&untold.ending, now).await;
        }
    }

    /// Whether Redis has heard.
    async fn tell(&self, ending: &Ending, now: Now) -> bool {
        let claimant = &ending.claimant;
        let kept = match ending.how {
            How::Finished => self.local.answer_of(claimant),
            How::Released => None,
        };
        let answer = kept
            .as_ref()
            .filter(|answer| ending.tells_answer() && self.may_give(answer, now));
        let end = match (ending.how, answer) {
            (How::Finished, Some(answer)) => End::Answered(answer),
            (How::Finished, None) => End::Lost,
            (How::Released, _) => End::Freed,
        };
        match self.shared.end_claim(claimant, end, now).await {
            Ok(is_own) => {
                self.shared.health.succeeded();
                // What only this gateway can answer stays here. Of two runs everybody tells of the same.
                if !is_own || answer.is_some() == kept.is_some() {
                    self.local.forget(claimant);
                }
                true
            }
            Err(failed) if answer.is_some() => {
                if failed.may_have_run() {
                    ending.count_try();
                }
                self.note_slow(&failed, now);
                false
            }
            Err(failed) => {
                self.shared.note_failure(&failed, now);
                false
            }
        }
    }

    /// Whether Redis may have this answer; counts it then.
    fn may_give(&self, answer: &SealedAnswer, now: Now) -> bool {
        let bytes = answer.bytes().len() as u64 + CLAIM_BYTES;
        let mut given = self.given.lock();
        given.advance(now.monotonic_ms);
        let has_room = given.total() + u128::from(bytes) <= u128::from(GIVEN_BYTES_MAX);
        if has_room {
            given.add(bytes);
        }
        has_room
    }

    /// A call that carries an answer was of no use. That it took long says little about the server: there are many bytes.
    fn note_slow(&self, failed: &CallFailed, now: Now) {
        match failed.is_silence() {
            true => tracing::debug!(error = chain(failed), "an answer did not pass in time"),
            false => self.shared.note_failure(failed, now),
        }
    }

    pub(crate) fn sweep(&self, now: Now) {
        self.local.sweep(now);
    }

    /// What Redis has not heard of.
    pub(crate) fn untold(&self) -> usize {
        self.endings.len()
    }

    /// Extends the leases of everything that runs here, whether or not Redis answers.
    pub(crate) fn renew_here(&self, now: Now) {
        for claimant in self.claimants_here() {
            self.local.renew(&claimant, now);
        }
    }

    /// The same in Redis, which gets to know what it has not heard of. What has ended here and is still to be told runs on
    /// as far as others know: nobody else runs it before.
    pub(crate) async fn renew_there(&self, now: Now) -> Result<(), CallFailed> {
        for claimants in self.together(self.endings.finished()) {
            self.shared.renew_claims(&claimants, now).await?;
        }
        self.renew_open(self.claimants_here(), now).await
    }

    async fn renew_open(&self, claimants: Vec<Claimant>, now: Now) -> Result<(), CallFailed> {
        for mut claimants in self.together(claimants) {
            claimants.retain(|claimant| self.shares(claimant, now));
            if !claimants.is_empty() {
                self.shared.renew_claims(&claimants, now).await?;
            }
        }
        Ok(())
    }

    /// What one call may say: in a cluster of one tenant.
    fn together(&self, mut claimants: Vec<Claimant>) -> Vec<Vec<Claimant>> {
        let is_cluster = self.shared.is_cluster;
        if is_cluster {
            claimants.sort_by_key(|claimant| claimant.key.tenant);
        }
        let of_tenants = claimants.chunk_by(|one, other| !is_cluster || one.key.tenant == other.key.tenant);
        let calls = of_tenants.flat_map(|claimants| claimants.chunks(RENEWED_MAX));
        calls.map(<[Claimant]>::to_vec).collect()
    }

    /// Whether it runs still, here too; Redis is told so now, and has to hear of its end.
    fn shares(&self, claimant: &Claimant, now: Now) -> bool {
        let mut open = self.open.lock();
        let Some(open) = open.get_mut(&claimant.request) else {
            return false;
        };
        let is_kept = self.local.renew(claimant, now);
        open.is_shared |= is_kept;
        is_kept
    }

    /// What runs here.
    pub(crate) fn claimants_here(&self) -> Vec<Claimant> {
        self.open.lock().values().map(|open| open.claimant).collect()
    }

    /// Renews one at once.
    #[cfg(test)]
    pub(crate) async fn renew_now(&self, request: RequestId, now: Now) {
        let mut claimants = self.claimants_here();
        claimants.retain(|claimant| claimant.request == request);
        self.renew_open(claimants, now).await.expect("the server answers");
    }

    /// Tells Redis what it has not heard of, until this is dropped.
    pub(crate) async fn keep_telling(&self, signs: &dyn LifeSigns) {
        loop {
            self.endings.has_more().await;
            if self.shared.health.is_degraded() || !self.tell_some(signs.now()).await {
                tokio::time::sleep(Duration::from_millis(ENDINGS_PAUSE_MS)).await;
            }
        }
    }

    /// Tells all of it; false where Redis did not listen.
    pub(crate) async fn tell_all(&self, signs: &dyn LifeSigns) -> bool {
        while self.endings.len() > 0 {
            if !self.tell_some(signs.now()).await {
                return false;
            }
        }
        true
    }

    /// Redis is back: answers that were not heard before may be by now.
    pub(crate) fn try_answers_again(&self) {
        self.endings.try_answers_again();
    }

    async fn tell_some(&self, now: Now) -> bool {
        let mut bytes = 0;
        let mut endings = self.endings.first(ENDINGS_AT_ONCE);
        let fits = |ending: &Arc<Ending>| {
            let answer = self.local.answer_of(&ending.claimant);
            bytes += answer.map_or(0, |answer| answer.bytes().len());
            bytes <= IDEMPOTENT_ANSWER_BYTES_MAX
        };
        let fitting = endings.iter().map(fits).take_while(|fits| *fits).count();
        endings.truncate(fitting);
        let told = join_all(endings.iter().map(|ending| self.tell(ending, now))).await;
        for (ending, _) in endings.iter().zip(&told).filter(|(_, is_heard)| **is_heard) {
            self.endings.heard(ending);
        }
        told.iter().all(|is_heard| *is_heard)
    }
}

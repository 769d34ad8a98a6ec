//! Claims in this process's memory, with a bound on their number and one on the bytes of their answers.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use domain::ids::RequestId;
use foldhash::quality::RandomState;
use parking_lot::{Mutex, MutexGuard};

use super::{Claimant, IDEMPOTENCY_KEPT_MS, IdempotencyKey, SealedAnswer, Unclaimed};
use crate::Now;

/// Claims kept at most, running or ended.
pub(crate) const CLAIMS_MAX: usize = 10_000;
/// Bytes of answers kept at most.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 20;

pub(crate) struct MemoryClaims {
    lease_ms: u64,
    kept: Mutex<Kept>,
}

struct Kept {
    claims_max: usize,
    answer_bytes_max: usize,
    by_key: HashMap<IdempotencyKey, Record, RandomState>,
    order: BTreeMap<Place, IdempotencyKey>,
    /// Those of them that have an answer.
    answered: BTreeSet<Place>,
    answer_bytes: usize,
    next_number: u64,
    /// The last time that was heard of.
    now_ms: u64,
}

struct Record {
    request: RequestId,
    body_hash: [u8; 32],
    state: State,
    place: Place,
}

enum State {
    Running,
    Answered(SealedAnswer),
    Lost,
}

/// The order in which claims are forgotten: when, and a number of its own.
///
/// One that runs has its lease before it, and then the time for which its answer is said to be lost. So whatever has ended,
/// by its lease or otherwise, is forgotten within [`IDEMPOTENCY_KEPT_MS`], and nothing that runs is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    forgotten_ms: u64,
    number: u64,
}

impl MemoryClaims {
    pub(crate) fn new(lease_ms: u64) -> Self {
        Self::bounded(lease_ms, CLAIMS_MAX, ANSWER_BYTES_MAX)
    }

    fn bounded(lease_ms: u64, claims_max: usize, answer_bytes_max: usize) -> Self {
        Self {
            lease_ms,
            kept: Mutex::new(Kept {
                claims_max,
                answer_bytes_max,
                by_key: HashMap::default(),
                order: BTreeMap::new(),
                answered: BTreeSet::new(),
                answer_bytes: 0,
                next_number: 0,
                now_ms: 0,
            }),
        }
    }

    /// Gives the key to the claimant, who may claim it again while it runs, or says why not.
    pub(crate) fn claim(&self, claimant: &Claimant, now: Now) -> Result<(), Unclaimed> {
        let mut kept = self.kept_at(now);
        kept.look(claimant)?;
        match kept.run(claimant, self.lease_ms) {
            true => Ok(()),
            false => Err(Unclaimed::NoRoom),
        }
    }

    /// The same without giving it.
    pub(crate) fn look(&self, claimant: &Claimant, now: Now) -> Result<(), Unclaimed> {
        self.kept_at(now).look(claimant)
    }

    /// Extends the lease of a claim that is this request's and has not ended, but maybe its lease; false where it is not.
    pub(crate) fn renew(&self, claimant: &Claimant, now: Now) -> bool {
        let mut kept = self.kept_at(now);
        kept.find(claimant).is_some() && kept.may_end(claimant) && kept.run(claimant, self.lease_ms)
    }

    /// Keeps what became of a claim that is this request's, or of nobody; the first ending stands. Without a time, at the
    /// last that was heard of.
    pub(crate) fn finish(&self, claimant: &Claimant, answer: Option<SealedAnswer>, now: Option<Now>) {
        let mut kept = match now {
            Some(now) => self.kept_at(now),
            None => self.kept.lock(),
        };
        if kept.may_end(claimant) {
            let forgotten_ms = kept.now_ms.saturating_add(IDEMPOTENCY_KEPT_MS);
            kept.put(claimant, answer.map_or(State::Lost, State::Answered), forgotten_ms);
        }
    }

    /// Frees the key where it is this request's and has not ended.
    pub(crate) fn release(&self, claimant: &Claimant) {
        let mut kept = self.kept.lock();
        if kept.may_end(claimant) {
            kept.remove(&claimant.key);
        }
    }

    /// Frees the key where it is this request's: another place keeps what became of it.
    pub(super) fn forget(&self, claimant: &Claimant) {
        let mut kept = self.kept.lock();
        if kept.find(claimant).is_some() {
            kept.remove(&claimant.key);
        }
    }

    /// The answer of this request.
    pub(super) fn answer_of(&self, claimant: &Claimant) -> Option<SealedAnswer> {
        match &self.kept.lock().find(claimant)?.state {
            State::Answered(answer) => Some(answer.clone()),
            State::Running | State::Lost => None,
        }
    }

    /// Forgets what is over.
    pub(crate) fn sweep(&self, now: Now) {
        drop(self.kept_at(now));
    }

    /// What is kept at this time, or at a later one that was heard of.
    fn kept_at(&self, now: Now) -> MutexGuard<'_, Kept> {
        let mut kept = self.kept.lock();
        kept.now_ms = kept.now_ms.max(now.monotonic_ms);
        while let Some(key) = kept.find_forgotten_by(kept.now_ms) {
            kept.remove(&key);
        }
        kept
    }
}

impl Kept {
    /// Whether the key is free for this request.
    fn look(&self, claimant: &Claimant) -> Result<(), Unclaimed> {
        let Some(record) = self.by_key.get(&claimant.key) else {
            return Ok(());
        };
        let request = record.request;
        let lease_ends_ms = record.place.forgotten_ms.saturating_sub(IDEMPOTENCY_KEPT_MS);
        let lease_left_ms = lease_ends_ms.saturating_sub(self.now_ms);
        Err(match &record.state {
            State::Running if request == claimant.request && lease_left_ms > 0 => return Ok(()),
            _ if record.body_hash != claimant.body_hash => Unclaimed::OtherBody { request },
            State::Running if lease_left_ms > 0 => Unclaimed::Running { request, lease_left_ms },
            State::Answered(answer) => Unclaimed::Answered {
                request,
                answer: answer.clone(),
            },
            State::Running | State::Lost => Unclaimed::AnswerLost { request },
        })
    }

    /// Whether this request may say what becomes of the key: it is its own and has not ended, or nobody's.
    fn may_end(&self, claimant: &Claimant) -> bool {
        let record = self.by_key.get(&claimant.key);
        record.is_none_or(|record| record.request == claimant.request && matches!(record.state, State::Running))
    }

    fn find(&self, claimant: &Claimant) -> Option<&Record> {
        let record = self.by_key.get(&claimant.key);
        record.filter(|record| record.request == claimant.request)
    }

    /// From now on the request runs; false where there is no room.
    fn run(&mut self, claimant: &Claimant, lease_ms: u64) -> bool {
        let lease_ends_ms = self.now_ms.saturating_add(lease_ms);
        self.put(
            claimant,
            State::Running,
            lease_ends_ms.saturating_add(IDEMPOTENCY_KEPT_MS),
        )
    }

    /// Puts this in the place of what there was; false where there is no room.
    fn put(&mut self, claimant: &Claimant, state: State, forgotten_ms: u64) -> bool {
        self.remove(&claimant.key);
        while self.by_key.len() >= self.claims_max {
            // What runs is forgotten later.
            let Some(key) = self.find_forgotten_by(self.now_ms.saturating_add(IDEMPOTENCY_KEPT_MS)) else {
                return false;
            };
            self.remove(&key);
        }
        let place = Place {
            forgotten_ms,
            number: self.next_number,
        };
        self.next_number += 1;
        if let State::Answered(answer) = &state {
            self.answer_bytes += answer.bytes().len();
            self.answered.insert(place);
        }
        let record = Record {
            request: claimant.request,
            body_hash: claimant.body_hash,
            state,
            place,
        };
        self.by_key.insert(claimant.key, record);
        self.order.insert(place, claimant.key);
        self.lose_answers();
        true
    }

    /// Loses the oldest answers while there are too many bytes of them.
    fn lose_answers(&mut self) {
        while self.answer_bytes > self.answer_bytes_max
            && let Some(place) = self.answered.pop_first()
        {
            let key = self.order.get(&place);
            if let Some(record) = key.and_then(|key| self.by_key.get_mut(key))
                && let State::Answered(answer) = std::mem::replace(&mut record.state, State::Lost)
            {
                self.answer_bytes -= answer.bytes().len();
            }
        }
    }

    fn remove(&mut self, key: &IdempotencyKey) {
        let Some(record) = self.by_key.remove(key) else {
            return;
        };
        self.order.remove(&record.place);
        if let State::Answered(answer) = &record.state {
            self.answer_bytes -= answer.bytes().len();
            self.answered.remove(&record.place);
        }
    }

    /// The first that is forgotten, if that is by then.
    fn find_forgotten_by(&self, until_ms: u64) -> Option<IdempotencyKey> {
        let (place, key) = self.order.first_key_value()?;
        (place.forgotten_ms <= until_ms).then_some(*key)
    }
}

#[cfg(test)]
mod tests;

//! Ends of claims that Redis has not heard of yet: it did not answer, or nobody waited for its answer. Told until it has;
//! an ending that it hears twice does nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Claimant;
use super::memory::CLAIMS_MAX;

/// Endings kept at most. Beyond it the oldest is dropped: its lease ends by itself, and its answer is lost for others.
const ENDINGS_MAX: usize = CLAIMS_MAX;
/// How often an answer is told without being heard, until it is told that it is lost: where large ones never arrive in
/// time, they would be sent for ever.
const ANSWER_TRIES_MAX: u32 = 3;

/// How a claim ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// With an answer, if this gateway's memory keeps one.
    Finished,
    /// The key is free again.
    Released,
}

/// The end of one claim.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) claimant: Claimant,
    pub(super) how: How,
    /// How often its answer was told without being heard.
    answer_tries: AtomicU32,
}

impl Ending {
    pub(super) fn new(claimant: Claimant, how: How) -> Arc<Self> {
        Arc::new(Self {
            claimant,
            how,
            answer_tries: AtomicU32::new(0),
        })
    }

    /// Whether its answer is worth another try.
    pub(super) fn tells_answer(&self) -> bool {
        self.answer_tries.load(Ordering::Relaxed) < ANSWER_TRIES_MAX
    }

    /// Its answer was told and not heard.
    pub(super) fn count_try(&self) {
        self.answer_tries.fetch_add(1, Ordering::Relaxed);
    }
}

/// What is still to be told, in order.
#[derive(Debug, Default)]
pub(super) struct Endings {
    untold: Mutex<VecDeque<Arc<Ending>>>,
    has_more: Notify,
}

/// An ending that is told later unless it was heard before this is dropped.
pub(super) struct Untold<'a> {
    endings: &'a Endings,
    pub(super) ending: Arc<Ending>,
    pub(super) is_heard: bool,
}

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        if !self.is_heard {
            self.endings.push(Arc::clone(&self.ending));
        }
    }
}

impl Endings {
    pub(super) fn push(&self, ending: Arc<Ending>) {
        let mut untold = self.untold.lock();
        if untold.len() >= ENDINGS_MAX {
            untold.pop_front();
        }
        untold.push_back(ending);
        drop(untold);
        self.has_more.notify_one();
    }

    pub(super) fn guard(&self, ending: Arc<Ending>) -> Untold<'_> {
        Untold {
            endings: self,
            ending,
            is_heard: false,
        }
    }

    /// The oldest, which stay until [`Endings::heard`].
    pub(super) fn first(&self, count: usize) -> Vec<Arc<Ending>> {
        self.untold.lock().iter().take(count).cloned().collect()
    }

    /// Redis has heard of it.
    pub(super) fn heard(&self, ending: &Arc<Ending>) {
        let mut untold = self.untold.lock();
        if let Some(place) = untold.iter().position(|kept| Arc::ptr_eq(kept, ending)) {
            untold.remove(place);
        }
    }

    /// Those that have finished.
    pub(super) fn finished(&self) -> Vec<Claimant> {
        let untold = self.untold.lock();
        let finished = untold.iter().filter(|ending| ending.how == How::Finished);
        finished.map(|ending| ending.claimant).collect()
    }

    /// Every answer is worth one more try. Not three: one that never arrives would have Redis given up again.
    pub(super) fn try_answers_again(&self) {
        for ending in self.untold.lock().iter() {
            ending.answer_tries.fetch_min(ANSWER_TRIES_MAX - 1, Ordering::Relaxed);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.untold.lock().len()
    }

    /// Waits until something is to be told.
    pub(super) async fn has_more(&self) {
        if self.len() == 0 {
            self.has_more.notified().await;
        }
    }
}

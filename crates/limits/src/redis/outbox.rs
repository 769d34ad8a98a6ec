//! Endings that the server has not heard of yet: it did not answer, or nobody waited for its answer. Told until it has;
//! an ending that it hears twice does nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use domain::estimate::Amounts;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::group::Group;

/// Endings kept at most. Beyond it the oldest is dropped: its lease ends by itself, and what it spent is in the ledger,
/// from which budgets are read again.
pub(crate) const ENDINGS_MAX: usize = 100_000;

/// How a part ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Actual use replaces the estimate.
    Settle,
    /// Everything is given back but the count of a request that was sent.
    Refund,
    /// Everything is given back.
    Cancel,
    /// The same, and the request may be admitted anew.
    Undo,
}

impl How {
    /// The script's word.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Settle => "settle",
            Self::Refund => "refund",
            Self::Cancel => "cancel",
            Self::Undo => "undo",
        }
    }
}

/// The end of one part of a request.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    pub(crate) group: Arc<Group>,
    pub(crate) how: How,
    pub(crate) actual: Amounts,
    pub(crate) seq: Option<u64>,
    pub(crate) at: DateTime<Utc>,
}

impl Ending {
    pub(crate) fn new(group: Arc<Group>, how: How, at: DateTime<Utc>) -> Self {
        Self {
            group,
            how,
            actual: Amounts::default(),
            seq: None,
            at,
        }
    }
}

/// What is still to be told, in order.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    endings: Mutex<VecDeque<Ending>>,
    has_more: Notify,
}

/// Endings that go to the outbox unless they are taken out before.
pub(crate) struct Unheard<'a> {
    outbox: &'a Outbox,
    pub(crate) endings: Vec<Ending>,
}

impl Drop for Unheard<'_> {
    fn drop(&mut self) {
        for ending in self.endings.drain(..) {
            self.outbox.push(ending);
        }
    }
}

impl Outbox {
    pub(crate) fn push(&self, ending: Ending) {
        let mut endings = self.endings.lock();
        if endings.len() >= ENDINGS_MAX {
            endings.pop_front();
        }
        endings.push_back(ending);
        drop(endings);
        self.has_more.notify_one();
    }

    pub(crate) fn guard(&self, endings: Vec<Ending>) -> Unheard<'_> {
        Unheard { outbox: self, endings }
    }

    /// The oldest, which stay until [`Outbox::heard`].
    pub(crate) fn first(&self, count: usize) -> Vec<Ending> {
        self.endings.lock().iter().take(count).cloned().collect()
    }

    /// The server has heard of it.
    pub(crate) fn heard(&self, ending: &Ending) {
        let mut endings = self.endings.lock();
        if let Some(place) = endings.iter().position(|kept| Arc::ptr_eq(&kept.group, &ending.group)) {
            endings.remove(place);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.endings.lock().len()
    }

    /// Waits until something is to be told.
    pub(crate) async fn has_more(&self) {
        if self.len() == 0 {
            self.has_more.notified().await;
        }
    }
}

//! The queue: requests that found no room and wait for it instead of failing.
//!
//! [`line`] decides who waits and whose turn it is; here waiters sleep until they are called up. A waiter that is dropped,
//! because its caller left, gives its place away at once.

mod line;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use domain::ids::UpstreamId;
use domain::instances::QueueStatus;
use domain::limits::Scope;
use domain::priority::Priority;
use limits::Now;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc};

pub use line::QueueSettings;
pub(crate) use line::{Arrival, Blocked, Full, Lane, LaneOf, Turn};

use crate::clock::Clock;
use line::{Line, Ticket};

/// Above so many percent of its places the queue is called nearly full.
const NEARLY_FULL_PERCENT: usize = 80;
/// The longest sleep of whoever calls waiters up, in milliseconds: time may be moved, and classes rise while nothing else
/// happens. Looking at the line asks nobody anything.
const LOOK_INTERVAL_MS: u64 = 250;

/// Who waits for admission at this gateway.
pub(crate) struct Queue {
    settings: QueueSettings,
    inner: Mutex<Inner>,
    /// How many wait: read by every request, also while nobody does.
    depth: AtomicUsize,
    /// How many requests have ended: tells who was refused whether one did before it took its place.
    ends: AtomicU64,
    changed: Notify,
}

struct Inner {
    line: Line,
    doors: HashMap<Ticket, mpsc::Sender<Turn>>,
    /// The latest time that was told: for whoever leaves without knowing it.
    now_ms: u64,
}

/// A place in the queue; given away when dropped.
pub(crate) struct Place {
    queue: Arc<Queue>,
    ticket: Ticket,
    turns: mpsc::Receiver<Turn>,
}

impl Queue {
    pub(crate) fn new(settings: QueueSettings) -> Arc<Self> {
        Arc::new(Self {
            settings,
            inner: Mutex::new(Inner {
                line: Line::new(settings),
                doors: HashMap::new(),
                now_ms: 0,
            }),
            depth: AtomicUsize::new(0),
            ends: AtomicU64::new(0),
            changed: Notify::new(),
        })
    }

    /// Its bounds.
    pub(crate) fn settings(&self) -> &QueueSettings {
        &self.settings
    }

    /// How many wait.
    pub(crate) fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed)
    }

    /// Whether hardly any place is left.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.depth() * 100 > self.settings.places * NEARLY_FULL_PERCENT
    }

    /// What a new request has to wait for because others of its class and above wait for it; see [`Line::ahead`].
    pub(crate) fn ahead(&self, priority: Priority, counts_in: impl Fn(&LaneOf) -> bool, now: Now) -> Option<Blocked> {
        if self.depth() == 0 {
            return None;
        }
        let inner = self.inner.lock();
        inner.line.ahead(priority, counts_in, now.monotonic_ms).cloned()
    }

    /// How many requests have ended until now. To be read before the limits are asked.
    pub(crate) fn ends(&self) -> u64 {
        self.ends.load(Ordering::SeqCst)
    }

    /// Takes a place; `ends` is what [`Queue::ends`] said before the limits refused.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn join(
        self: &Arc<Self>,
        arrival: Arrival,
        blocked: Blocked,
        ends: u64,
        now: Now,
    ) -> Result<Place, Full> {
        // At most one turn is under way, and the last one.
        let (door, turns) = mpsc::channel(2);
        let mut inner = self.inner.lock();
        let ticket = inner.line.join(arrival, blocked, now.monotonic_ms)?;
        inner.doors.insert(ticket, door);
        // What ended between the refusal and now has found nobody to call up.
        if self.ends() != ends {
            inner.line.stir_lane_of(ticket);
        }
        let place = Place {
            queue: Arc::clone(self),
            ticket,
            turns,
        };
        self.changed(inner, now.monotonic_ms);
        Ok(place)
    }

    /// A request has ended that counted in these nodes and went to these upstreams.
    pub(crate) fn release(&self, counted_in: impl Fn(&Scope) -> bool, upstreams: &[UpstreamId], now: Now) {
        self.ends.fetch_add(1, Ordering::SeqCst);
        if self.depth() > 0 {
            let mut inner = self.inner.lock();
            inner.line.release(counted_in, upstreams);
            self.changed(inner, now.monotonic_ms);
        }
    }

    /// The policy or the counters have changed: whoever is first asks again.
    pub(crate) fn stir_all(&self, now: Now) {
        let mut inner = self.inner.lock();
        inner.line.stir_all();
        self.changed(inner, now.monotonic_ms);
    }

    /// For the console.
    pub(crate) fn status(&self, now: Now) -> QueueStatus {
        self.inner.lock().line.status(now.monotonic_ms)
    }

    /// Calls up those whose turn has come by time, for ever.
    pub(crate) async fn keep(&self, clock: &dyn Clock) {
        loop {
            let now_ms = clock.now().monotonic_ms;
            let next_ms = {
                let mut inner = self.inner.lock();
                inner.call_up(now_ms);
                inner.line.next_ms(now_ms)
            };
            let changed = self.changed.notified();
            match next_ms {
                None => changed.await,
                Some(next_ms) => {
                    let wait_ms = next_ms.saturating_sub(now_ms).clamp(1, LOOK_INTERVAL_MS);
                    let _ = tokio::time::timeout(Duration::from_millis(wait_ms), changed).await;
                }
            }
        }
    }

    /// Calls up whose turn it is after a change, and lets whoever keeps the queue look when the next one's is.
    fn changed(&self, mut inner: MutexGuard<'_, Inner>, now_ms: u64) {
        inner.call_up(now_ms);
        self.depth.store(inner.line.depth(), Ordering::Relaxed);
        drop(inner);
        self.changed.notify_one();
    }
}

impl Inner {
    fn call_up(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        for (ticket, turn) in self.line.turns(self.now_ms) {
            if let Some(door) = self.doors.get(&ticket) {
                // Whoever is gone leaves by itself, in this very moment.
                let _ = door.try_send(turn);
            }
        }
    }
}

impl Place {
    /// Waits for its turn.
    pub(crate) async fn turn(&mut self) -> Turn {
        match self.turns.recv().await {
            Some(turn) => turn,
            // Its door is in the queue for as long as it is.
            None => std::future::pending().await,
        }
    }

    /// It asked in vain, and waits on.
    ///
    /// What ended meanwhile is not missed where it waits for the same as before: its lane was stirred. Elsewhere it may be,
    /// as in [`Queue::join`].
    pub(crate) fn block(&self, blocked: Blocked, ends: u64, now: Now) {
        let mut inner = self.queue.inner.lock();
        let has_moved = inner.line.block(self.ticket, blocked, now.monotonic_ms);
        if has_moved && self.queue.ends() != ends {
            inner.line.stir_lane_of(self.ticket);
        }
        self.queue.changed(inner, now.monotonic_ms);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.queue.inner.lock();
        inner.doors.remove(&self.ticket);
        inner.line.leave(self.ticket);
        let now_ms = inner.now_ms;
        self.queue.changed(inner, now_ms);
    }
}

#[cfg(test)]
mod tests;

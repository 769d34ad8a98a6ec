//! What operators should hear of: told by whoever sees it without waiting, kept here, written to Postgres and sent to the
//! webhook by tasks of their own.
//!
//! There is no queue that could overflow: only how things stand, for a bounded number of subjects. While Postgres is away
//! that goes on changing, and is written when Postgres is back.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use domain::alerts::{AlertKind, AlertSubject, Episode, Moment, Watch, cut_message};
use domain::ids::UpstreamId;
use domain::instances::{BreakerState, BreakerStatus, Degraded};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Clock;

/// Kinds and subjects that are watched at once, at most. What is beyond is left out, and the log says so.
const WATCHED_MAX: usize = 1_000;

/// What a status says of the gateway itself, by being in its list or not.
const OF_THE_STATUS: [AlertKind; 6] = [
    AlertKind::Counters,
    AlertKind::Budgets,
    AlertKind::JournalLag,
    AlertKind::JournalFull,
    AlertKind::JournalError,
    AlertKind::Policy,
];

/// What is not as it should be, as this gateway sees it.
#[derive(Clone)]
pub struct Alerts {
    clock: Arc<dyn Clock>,
    book: Arc<Mutex<Book>>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct Book {
    watched: HashMap<(AlertKind, AlertSubject), Watched>,
    /// Whether the log has been told that there are too many.
    has_overflowed: bool,
}

struct Watched {
    watch: Watch,
    message: String,
}

impl Alerts {
    /// Nothing was seen yet.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            book: Arc::default(),
            changed: Arc::default(),
        }
    }

    /// Something happened that is over by itself, and is called over when it has not happened for a while: a request
    /// without a price. Each call counts. Never waits.
    pub fn raise(&self, kind: AlertKind, subject: AlertSubject, message: impl FnOnce() -> String) {
        self.look(kind, subject, message, |watch, now| watch.happened(now));
    }

    /// Something is so until [`Alerts::clear`] says otherwise. Calling it again changes nothing. Never waits.
    pub fn hold(&self, kind: AlertKind, subject: AlertSubject, message: impl FnOnce() -> String) {
        self.look(kind, subject, message, |watch, now| watch.holds(None, now));
    }

    /// It is not so any more. Never waits.
    pub fn clear(&self, kind: AlertKind, subject: &AlertSubject) {
        let now = self.now();
        let mut book = self.book.lock();
        if let Some(watched) = book.watched.get_mut(&(kind, subject.clone())) {
            watched.watch.over(now);
        }
    }

    /// A request for a model that has no price: refused, or charged at the fallback.
    pub(crate) fn unpriced(&self, model: &str, is_refused: bool) {
        self.raise(AlertKind::Unpriced, AlertSubject::model(model), || {
            if is_refused {
                format!("{model} has no price: its requests are refused")
            } else {
                format!("{model} has no price: its requests are charged at the fallback price")
            }
        });
    }

    /// A breaker's state, told at each of its changes; the same may be told twice. `upstream` is the upstream's name. One
    /// that only cools down raises nothing: the provider's own limit is respected, and heals by itself.
    pub fn breaker(&self, upstream: &str, breaker: &BreakerStatus) {
        let model = breaker.upstream_model.as_deref();
        let subject = AlertSubject::upstream(breaker.upstream_id, model);
        let began_at = match breaker.state {
            BreakerState::Open => Some(breaker.since),
            BreakerState::HalfOpen => None,
            BreakerState::Closed | BreakerState::Cooling => return self.clear(AlertKind::Breaker, &subject),
        };
        let message = || match model {
            Some(model) => format!("{upstream} takes no requests for {model}: {}", breaker.reason),
            None => format!("{upstream} takes no requests: {}", breaker.reason),
        };
        self.look(AlertKind::Breaker, subject, message, |watch, now| {
            watch.holds(began_at, now);
        });
    }

    /// What the gateway says about itself: everything degraded holds, and the rest does not. A breaker that its list leaves
    /// out is closed.
    pub(crate) fn observe(
        &self,
        degraded: &[Degraded],
        breakers: &[BreakerStatus],
        name_of: impl Fn(UpstreamId) -> Option<String>,
    ) {
        for kind in OF_THE_STATUS {
            match degraded.iter().find(|degraded| degraded.kind == kind) {
                Some(degraded) => self.hold(kind, AlertSubject::Gateway, || degraded.text.clone()),
                None => self.clear(kind, &AlertSubject::Gateway),
            }
        }
        let mut told = HashSet::new();
        for breaker in breakers {
            let name = name_of(breaker.upstream_id);
            self.breaker(name.as_deref().unwrap_or("An upstream that is gone"), breaker);
            told.insert(AlertSubject::upstream(
                breaker.upstream_id,
                breaker.upstream_model.as_deref(),
            ));
        }
        let now = self.now();
        let mut book = self.book.lock();
        for ((kind, subject), watched) in &mut book.watched {
            if *kind == AlertKind::Breaker && !told.contains(subject) {
                watched.watch.over(now);
            }
        }
    }

    fn look(
        &self,
        kind: AlertKind,
        subject: AlertSubject,
        message: impl FnOnce() -> String,
        look: impl FnOnce(&mut Watch, Moment),
    ) {
        let now = self.now();
        let mut book = self.book.lock();
        let Some(watched) = book.watched(kind, subject) else {
            return;
        };
        let before = watched.watch.episode();
        look(&mut watched.watch, now);
        watched.watch.turn(now);
        let after = watched.watch.episode();
        // What it was when it began, or began again: a figure that grows meanwhile is nobody's news.
        let count = |episode: Option<Episode>| episode.map_or(0, |episode| episode.count);
        if before.is_none() || count(before) != count(after) {
            watched.message = cut_message(message());
        }
        if before.is_some() != after.is_some() {
            self.changed.notify_one();
        }
    }

    fn now(&self) -> Moment {
        let now = self.clock.now();
        Moment {
            wall: now.wall,
            monotonic_ms: now.monotonic_ms,
        }
    }
}

impl Book {
    fn watched(&mut self, kind: AlertKind, subject: AlertSubject) -> Option<&mut Watched> {
        let is_full = self.watched.len() >= WATCHED_MAX;
        match self.watched.entry((kind, subject)) {
            Entry::Occupied(entry) => Some(entry.into_mut()),
            Entry::Vacant(_) if is_full => {
                if !self.has_overflowed {
                    self.has_overflowed = true;
                    tracing::warn!(
                        most = WATCHED_MAX,
                        "too much is wrong at once; further alerts are left out"
                    );
                }
                None
            }
            Entry::Vacant(entry) => Some(entry.insert(Watched {
                watch: Watch::new(kind.rule()),
                message: String::new(),
            })),
        }
    }
}

//! What operators should hear of: told by whoever sees it without waiting, kept here, written to Postgres and sent to the
//! webhook by tasks of their own.
//!
//! There is no queue that could overflow: only how things stand, for a bounded number of subjects. While Postgres is away
//! that goes on changing, and is written when Postgres is back.

mod keeping;
mod webhook;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use domain::alerts::{Alert, AlertKind, AlertSubject, Episode, Moment, Watch, cut_message};
use domain::ids::UpstreamId;
use domain::instances::{BreakerState, BreakerStatus, Degraded};
use parking_lot::Mutex;
use store::random::{self, Random};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::clock::Clock;

pub(crate) use keeping::keep_alerts;
pub use webhook::SIGNATURE_HEADER;
pub(crate) use webhook::deliver_alerts;

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
    random: Arc<dyn Random>,
    book: Arc<Mutex<Book>>,
    /// Something was raised or cleared.
    changed: Arc<Notify>,
    /// Something may be on its way to the webhook.
    written: Arc<Notify>,
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
    row: Option<Row>,
}

/// The alert as Postgres is to know it.
#[derive(Clone, Copy)]
struct Row {
    id: Uuid,
    raised_at: DateTime<Utc>,
    /// What it counted before the watch began with it: of an earlier run, or before it was over and soon was not.
    earlier_count: u64,
    /// What it was, and when it was over, where that is to be written yet.
    over: Option<(Episode, DateTime<Utc>)>,
    /// When it was written last, by the monotonic clock.
    written_ms: Option<u64>,
}

impl Alerts {
    /// Nothing was seen yet.
    pub(crate) fn new(clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        Self {
            clock,
            random,
            book: Arc::default(),
            changed: Arc::default(),
            written: Arc::default(),
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

    /// Something may be on its way to the webhook.
    pub(crate) fn wake_webhook(&self) {
        self.written.notify_one();
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
        let counted = |watched: &Watched| watched.watch.episode().map(|episode| episode.count);
        let before = counted(watched);
        look(&mut watched.watch, now);
        let has_changed = watched.turn(now, || self.new_id(now));
        // What it was when it began, or began again: a figure that grows meanwhile is nobody's news.
        if before.is_none() || before != counted(watched) {
            watched.message = cut_message(message());
        }
        if has_changed {
            self.changed.notify_one();
        }
    }

    fn new_id(&self, now: Moment) -> Uuid {
        let ms = u64::try_from(now.wall.timestamp_millis()).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(ms, &random::bytes(&*self.random)).into_uuid()
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
                row: None,
            })),
        }
    }
}

impl Watched {
    /// Lets time go by. Whether it was raised or cleared with it.
    fn turn(&mut self, now: Moment, new_id: impl FnOnce() -> Uuid) -> bool {
        if let Some(episode) = self.watch.turn(now) {
            if let Some(row) = &mut self.row {
                row.over = Some((episode, now.wall));
            }
            return true;
        }
        let Some(episode) = self.watch.episode() else {
            return false;
        };
        match &mut self.row {
            None => {
                self.row = Some(Row::new(new_id(), episode));
                true
            }
            // It is so again before anybody was told that it was over: it goes on.
            Some(row) => match row.over.take() {
                Some((over, _)) => {
                    row.earlier_count = row.earlier_count.saturating_add(over.count);
                    true
                }
                None => false,
            },
        }
    }

    /// The alert, open or just over; `None` where there is none.
    fn alert(&self, kind: AlertKind, subject: &AlertSubject, instance: &str) -> Option<Alert> {
        let row = self.row?;
        let (episode, cleared_at) = match row.over {
            Some((episode, cleared_at)) => (episode, Some(cleared_at)),
            None => (self.watch.episode()?, None),
        };
        Some(Alert {
            id: row.id,
            kind,
            subject: subject.clone(),
            instance: instance.to_owned(),
            message: self.message.clone(),
            raised_at: row.raised_at,
            last_seen_at: episode.last_seen_at,
            cleared_at,
            count: row.earlier_count.saturating_add(episode.count),
        })
    }
}

impl Row {
    fn new(id: Uuid, episode: Episode) -> Self {
        Self {
            id,
            raised_at: episode.raised_at,
            earlier_count: 0,
            over: None,
            written_ms: None,
        }
    }
}

#[cfg(test)]
mod tests;

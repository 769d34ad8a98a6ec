//! Whether the shared counters can be relied on, decided from how calls went.

use std::time::{Duration, Instant};

use domain::limits::{Dimension, Limit};
use parking_lot::Mutex;

use crate::{Admission, ScopeLimits, UpstreamCandidate};

/// Calls that fail or come too late in a row until the gateway goes by its own counters.
pub(crate) const FAILURES_MAX: u32 = 3;
/// How long the share of every rate rises after the shared counters are back, in milliseconds.
pub(crate) const RISE_MS: u64 = 30_000;
/// The most that one gateway admits by its own counters, in percent of every rate.
const SHARE_PERCENT_MAX: u64 = 45;
/// The most that all gateways together admit so.
const SHARES_PERCENT: u64 = 90;

/// By which counters requests are admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By the shared ones, or by the only ones there are.
    Normal,
    /// By this gateway's own, at a part of every limit, because the shared ones do not answer.
    Degraded {
        /// Of every rate, in percent.
        share_percent: u8,
    },
    /// By the shared ones again, at a part of every rate that is rising to the whole.
    Returning {
        /// Of every rate, in percent.
        share_percent: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Normal,
    Degraded,
    Returning { since_ms: u64, from_percent: u64 },
}

/// How calls went.
#[derive(Debug)]
pub(crate) struct Health {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: State,
    failures: u32,
    /// When the last silence was counted.
    silent_at: Option<Instant>,
    /// Beats ask all servers of a cluster: calls to some may be answered all the time.
    missed_beats: u32,
    gateways: u64,
}

impl Health {
    /// Degraded until the first answer.
    pub(crate) fn new() -> Self {
        Self {
            inner: Mutex::new(Inner {
                state: State::Degraded,
                failures: 0,
                silent_at: None,
                missed_beats: 0,
                gateways: 1,
            }),
        }
    }

    pub(crate) fn mode(&self, now_ms: u64) -> Mode {
        let mut inner = self.inner.lock();
        let share = share_percent(inner.gateways);
        match inner.state {
            State::Normal => Mode::Normal,
            State::Degraded => Mode::Degraded {
                share_percent: share as u8,
            },
            State::Returning { since_ms, from_percent } => {
                let risen_ms = now_ms.saturating_sub(since_ms);
                if risen_ms >= RISE_MS {
                    inner.state = State::Normal;
                    return Mode::Normal;
                }
                let percent = from_percent + (100 - from_percent) * risen_ms / RISE_MS;
                Mode::Returning {
                    share_percent: percent as u8,
                }
            }
        }
    }

    /// Whether calls are made at all.
    pub(crate) fn is_degraded(&self) -> bool {
        self.inner.lock().state == State::Degraded
    }

    /// A call was answered in time.
    pub(crate) fn succeeded(&self) {
        self.inner.lock().failures = 0;
    }

    /// The same of a beat.
    pub(crate) fn heard_beat(&self) {
        let mut inner = self.inner.lock();
        inner.failures = 0;
        inner.missed_beats = 0;
    }

    /// A call failed, or came too late. True where the gateway goes by its own counters from now on.
    pub(crate) fn failed(&self) -> bool {
        let mut inner = self.inner.lock();
        inner.failures = inner.failures.saturating_add(1);
        inner.gives_up()
    }

    /// The same of a call that waited so long for nothing. Calls side by side are one silence: a server that stood still
    /// for a moment is not gone, however many were waiting for it.
    pub(crate) fn was_silent(&self, waited: Duration) -> bool {
        let mut inner = self.inner.lock();
        if inner.silent_at.is_some_and(|at| at.elapsed() < waited) {
            return false;
        }
        inner.silent_at = Some(Instant::now());
        inner.failures = inner.failures.saturating_add(1);
        inner.gives_up()
    }

    /// The same of a beat, beside its call.
    pub(crate) fn missed_beat(&self) -> bool {
        let mut inner = self.inner.lock();
        inner.missed_beats = inner.missed_beats.saturating_add(1);
        inner.gives_up()
    }

    /// The shared counters answer again and know everything that happened here; `has_served` if anything did.
    pub(crate) fn came_back(&self, has_served: bool, now_ms: u64) {
        let mut inner = self.inner.lock();
        inner.failures = 0;
        inner.missed_beats = 0;
        inner.state = match has_served {
            true => State::Returning {
                since_ms: now_ms,
                from_percent: share_percent(inner.gateways),
            },
            false => State::Normal,
        };
    }

    /// So many gateways were heard of lately, this one among them.
    pub(crate) fn saw_gateways(&self, count: u64) {
        self.inner.lock().gateways = count.max(1);
    }

    pub(crate) fn gateways(&self) -> u64 {
        self.inner.lock().gateways
    }

    /// What one gateway admits by its own counters, in percent of every rate.
    pub(crate) fn share_percent(&self) -> u8 {
        share_percent(self.gateways()) as u8
    }
}

impl Inner {
    fn gives_up(&mut self) -> bool {
        if self.failures.max(self.missed_beats) < FAILURES_MAX || self.state == State::Degraded {
            return false;
        }
        self.state = State::Degraded;
        true
    }
}

/// `min(45 %, 90 % / number of gateways)`, at least 1.
fn share_percent(gateways: u64) -> u64 {
    (SHARES_PERCENT / gateways.max(1)).clamp(1, SHARE_PERCENT_MAX)
}

/// Scopes and upstreams whose rates and concurrency are at a share of their value.
pub(crate) struct Scaled {
    scopes: Vec<ScopeLimits>,
    upstreams: Vec<UpstreamCandidate>,
}

impl Scaled {
    pub(crate) fn of(admission: &Admission<'_>, percent: u8) -> Self {
        Self {
            scopes: admission.scopes.iter().map(|of| scaled(of, percent)).collect(),
            upstreams: admission
                .upstreams
                .iter()
                .map(|candidate| UpstreamCandidate {
                    scope: scaled(&candidate.scope, percent),
                    index: candidate.index,
                })
                .collect(),
        }
    }

    pub(crate) fn admission<'a>(&'a self, admission: &Admission<'a>) -> Admission<'a> {
        Admission {
            scopes: &self.scopes,
            upstreams: &self.upstreams,
            ..*admission
        }
    }
}

pub(crate) fn scaled(of: &ScopeLimits, percent: u8) -> ScopeLimits {
    ScopeLimits {
        scope: of.scope.clone(),
        limits: of.limits.iter().map(|limit| scaled_limit(limit, percent)).collect(),
        tenant: of.tenant,
    }
}

/// Rounded down, but what admits something still does. Budgets and caps on single requests stay.
fn scaled_limit(limit: &Limit, percent: u8) -> Limit {
    if !limit.dimension.is_rate() && limit.dimension != Dimension::Concurrency {
        return limit.clone();
    }
    let share = |value: u64| {
        let share = u128::from(value) * u128::from(percent) / 100;
        u64::try_from(share).unwrap_or(u64::MAX).max(value.min(1))
    };
    Limit {
        value: share(limit.value),
        burst: limit.burst.map(share),
        ..limit.clone()
    }
}

#[cfg(test)]
mod tests;

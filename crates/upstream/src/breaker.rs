//! Breakers: a provider that fails is left alone for a while, and then tried with a few requests.
//!
//! There is one for each upstream and model, and one for each upstream's credential. A breaker *opens* after
//! [`FAILURES_IN_ROW`] failures, or when [`FAILED_PERCENT_MIN`] percent of at least [`OUTCOMES_MIN`] requests have failed. After
//! [`OPEN_MS`], or what the provider asked for, it is *half-open*: at most [`PROBES_MAX`] requests at once are let through.
//! [`SUCCESSES_TO_CLOSE`] that succeed close it, one that fails opens it again. A provider that answers 429 *cools*
//! until it says that there is room again.
//!
//! One tenant's requests never shut the door on the others. Its failures count only where others fail, too, or where no
//! other has succeeded; and a breaker that only one tenant's requests have opened lets the others try at once.
//!
//! Time is passed in, in milliseconds of a clock that never steps back. What changes is returned, for logs and alerts.

mod door;
mod recent;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use domain::ids::{TenantId, UpstreamId};
use domain::instances::BreakerState;
use parking_lot::Mutex;

use door::{Changed, Door, Passage};
pub use recent::Measure;
pub use recent::{FAILED_PERCENT_MIN, FAILURES_IN_ROW, OUTCOMES_MAX, OUTCOMES_MIN, WINDOW_MS};

/// How long a breaker is open when the provider does not say, in milliseconds.
pub const OPEN_MS: u64 = 60_000;
/// How long a provider that answers 429 is left alone when it does not say, in milliseconds.
pub const COOLING_DEFAULT_MS: u64 = 1_000;
/// What a provider may ask for at least, in milliseconds.
pub const HELD_BACK_MS_MIN: u64 = 1_000;
/// What it may ask for at most, in milliseconds: then a few requests see whether it is true.
pub const HELD_BACK_MS_MAX: u64 = 600_000;
/// Requests let through at once while it is half-open.
pub const PROBES_MAX: u32 = 3;
/// How many of them must succeed for a model to be used again.
pub const SUCCESSES_TO_CLOSE: u32 = 2;
/// How long to wait for the place of a probe, in milliseconds: nobody knows how long they take.
pub const PROBE_WAIT_MS: u64 = 1_000;
/// Upstreams whose breakers are remembered.
pub const UPSTREAMS_MAX: usize = 1_024;
/// Models of one upstream whose breakers are remembered.
pub const MODELS_MAX: usize = 1_024;

/// An accepted credential is an accepted credential.
const ACCEPTED_TO_CLOSE: u32 = 1;

/// All breakers of one gateway. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Breakers(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    upstreams: HashMap<UpstreamId, Upstream>,
    last_serial: u64,
}

#[derive(Debug)]
struct Upstream {
    credential: Door,
    models: HashMap<Arc<str>, Door>,
}

/// Leave to send one request. Dropped without a report, it says nothing and frees its place.
#[derive(Debug)]
#[must_use = "what becomes of the request is to be reported"]
pub struct Permit {
    breakers: Breakers,
    upstream: UpstreamId,
    model: Arc<str>,
    to_upstream: Passage,
    to_model: Passage,
    is_reported: bool,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The provider has begun a proper answer.
    Answered,
    /// It refused the request for what the request is.
    Declined,
    /// It failed.
    Failed(Failure),
}

/// How a provider failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// In what way.
    pub kind: FailureKind,
    /// How long the provider asks to be left alone, in milliseconds.
    pub retry_after_ms: Option<u64>,
}

/// In what way a provider failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// There was no connection.
    Unreached,
    /// The connection broke before the answer, or within it.
    Broken,
    /// It did not begin to answer in time, or fell silent.
    Silent,
    /// It answered 429.
    RateLimited,
    /// It answered with this status.
    Status(u16),
    /// It sent an error within its answer.
    ErrorInAnswer,
    /// It does not accept the credential: 401.
    Unauthorized,
    /// It accepts the credential for nothing like this: 403.
    Forbidden,
}

/// Why a breaker is as it is. Its text is for operators, and holds nothing that a provider or a caller said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nothing is wrong any more.
    Recovered,
    /// The provider's own limit has room again.
    Cooled,
    /// The provider's own limit is reached.
    Cooling,
    /// Too many failures, the last of them this one.
    Failures(Measure, FailureKind),
    /// A request that was to find out failed.
    ProbeFailed(FailureKind),
    /// The provider does not accept the credential.
    Refused(FailureKind),
}

/// A breaker has become another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Of which upstream.
    pub upstream: UpstreamId,
    /// The model's name there; absent where all of its models are meant.
    pub model: Option<Arc<str>>,
    /// What it was.
    pub from: BreakerState,
    /// What it is.
    pub to: BreakerState,
    /// Until when, in milliseconds of the caller's clock; absent where nobody knows.
    pub until_ms: Option<u64>,
    /// Why.
    pub reason: Reason,
}

/// A breaker that does not simply let everybody through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBack {
    /// Of which upstream.
    pub upstream: UpstreamId,
    /// The model's name there; absent where all of its models are meant.
    pub model: Option<Arc<str>>,
    /// What it does.
    pub state: BreakerState,
    /// Since when, in milliseconds of the caller's clock.
    pub since_ms: u64,
    /// Until when, in milliseconds of the caller's clock; absent while it is tried.
    pub until_ms: Option<u64>,
    /// Why.
    pub reason: Reason,
}

impl Breakers {
    /// When a request of this tenant may be sent, in milliseconds of the caller's clock; now, where absent. Takes nothing.
    pub fn wait_until(&self, upstream: UpstreamId, model: &str, tenant: TenantId, now_ms: u64) -> Option<u64> {
        self.0.lock().wait_until(upstream, model, tenant, now_ms)
    }

    /// Leave to send a request of this tenant now.
    ///
    /// # Errors
    /// With the time when it may be sent.
    pub fn pass(
        &self,
        upstream: UpstreamId,
        model: &str,
        tenant: TenantId,
        now_ms: u64,
    ) -> Result<(Permit, Vec<Transition>), u64> {
        let mut inner = self.0.lock();
        if let Some(until_ms) = inner.wait_until(upstream, model, tenant, now_ms) {
            return Err(until_ms);
        }
        let (of_credential, of_model) = (inner.next_serial(), inner.next_serial());
        let (doors, model) = inner.doors(upstream, model, now_ms);
        let mut changes = Vec::new();
        let to_upstream = doors.credential.pass(tenant, of_credential, now_ms, &mut changes);
        let mut transitions = named(upstream, None, changes);
        let mut changes = Vec::new();
        let door = doors
            .models
            .get_mut(&model)
            .unwrap_or_else(|| unreachable!("made above"));
        let to_model = door.pass(tenant, of_model, now_ms, &mut changes);
        transitions.extend(named(upstream, Some(&model), changes));
        let permit = Permit {
            breakers: self.clone(),
            upstream,
            model,
            to_upstream,
            to_model,
            is_reported: false,
        };
        Ok((permit, transitions))
    }

    /// Those that do not simply let everybody through, in the order of their names.
    pub fn held_back(&self, now_ms: u64) -> Vec<HeldBack> {
        let inner = self.0.lock();
        let mut held_back: Vec<HeldBack> = inner
            .upstreams
            .iter()
            .flat_map(|(id, upstream)| {
                let models = upstream.models.iter().map(|(model, door)| (Some(model), door));
                std::iter::once((None, &upstream.credential))
                    .chain(models)
                    .map(|(model, door)| (*id, model, door))
            })
            .filter(|(_, _, door)| door.state_at(now_ms) != BreakerState::Closed)
            .map(|(upstream, model, door)| HeldBack {
                upstream,
                model: model.cloned(),
                state: door.state_at(now_ms),
                since_ms: door.since_ms(),
                until_ms: door.until_ms(now_ms),
                reason: door.reason(),
            })
            .collect();
        held_back.sort_by(|left, right| (left.upstream, &left.model).cmp(&(right.upstream, &right.model)));
        held_back
    }

    /// Forgets what is known of an upstream: it is gone, or another by now.
    pub fn forget(&self, upstream: UpstreamId) {
        self.0.lock().upstreams.remove(&upstream);
    }
}

impl Inner {
    fn wait_until(&self, upstream: UpstreamId, model: &str, tenant: TenantId, now_ms: u64) -> Option<u64> {
        let doors = self.upstreams.get(&upstream)?;
        let of_credential = doors.credential.wait_until(tenant, now_ms);
        let of_model = doors.models.get(model).and_then(|door| door.wait_until(tenant, now_ms));
        of_credential.max(of_model)
    }

    /// The doors to this upstream and model, made where there are none.
    fn doors(&mut self, upstream: UpstreamId, model: &str, now_ms: u64) -> (&mut Upstream, Arc<str>) {
        if !self.upstreams.contains_key(&upstream) {
            let credential = Door::new(self.next_serial(), ACCEPTED_TO_CLOSE, now_ms);
            make_room(&mut self.upstreams, UPSTREAMS_MAX, |upstream| upstream.worth());
            let models = HashMap::new();
            self.upstreams.insert(upstream, Upstream { credential, models });
        }
        let serial = self.next_serial();
        let doors = self
            .upstreams
            .get_mut(&upstream)
            .unwrap_or_else(|| unreachable!("made above"));
        if let Some((name, _)) = doors.models.get_key_value(model) {
            let name = Arc::clone(name);
            return (doors, name);
        }
        let name: Arc<str> = model.into();
        make_room(&mut doors.models, MODELS_MAX, Door::worth);
        doors
            .models
            .insert(Arc::clone(&name), Door::new(serial, SUCCESSES_TO_CLOSE, now_ms));
        (doors, name)
    }

    fn next_serial(&mut self) -> u64 {
        self.last_serial += 1;
        self.last_serial
    }
}

impl Upstream {
    fn worth(&self) -> (bool, u64) {
        let models = self.models.values().map(Door::worth);
        models.fold(self.credential.worth(), Ord::max)
    }
}

/// Drops the least worthy entry of a full map.
fn make_room<K: Clone + Eq + std::hash::Hash, V>(
    map: &mut HashMap<K, V>,
    max: usize,
    worth: impl Fn(&V) -> (bool, u64),
) {
    if map.len() < max {
        return;
    }
    let least = map.iter().min_by_key(|(_, value)| worth(value));
    if let Some(key) = least.map(|(key, _)| key.clone()) {
        map.remove(&key);
    }
}

impl Permit {
    /// Says what became of the request; whoever says it twice is not heard. A probe's place is free then.
    pub fn report(&mut self, report: Report, now_ms: u64) -> Vec<Transition> {
        if std::mem::replace(&mut self.is_reported, true) {
            return Vec::new();
        }
        let mut transitions = self.at_credential(|door, passage, serial| {
            door.leave(passage);
            match report {
                Report::Answered => door.succeeded(passage, serial, now_ms),
                // Whoever looks into a request has accepted its credential. Of the model it says nothing.
                Report::Declined => door.accepted(passage, serial, now_ms),
                Report::Failed(failure) if failure.kind.is_of_the_credential() => {
                    door.refused(passage, &failure, serial, now_ms)
                }
                Report::Failed(_) => None,
            }
        });
        transitions.extend(self.at_model(|door, passage, serial| {
            door.leave(passage);
            match report {
                Report::Answered => door.succeeded(passage, serial, now_ms),
                Report::Failed(failure) if !failure.kind.is_of_the_credential() => {
                    door.failed(passage, &failure, serial, now_ms)
                }
                Report::Declined | Report::Failed(_) => None,
            }
        }));
        transitions
    }

    /// Says that an answer which had begun well broke off: its success is a failure after all.
    pub fn broke_off(&mut self, kind: FailureKind, now_ms: u64) -> Vec<Transition> {
        let failure = Failure {
            kind,
            retry_after_ms: None,
        };
        self.at_model(|door, passage, serial| door.broke(passage, &failure, serial, now_ms))
    }

    fn at_credential(&self, act: impl FnOnce(&mut Door, &Passage, u64) -> Option<Changed>) -> Vec<Transition> {
        let mut inner = self.breakers.0.lock();
        let serial = inner.next_serial();
        let door = inner
            .upstreams
            .get_mut(&self.upstream)
            .map(|upstream| &mut upstream.credential);
        let changed = door.and_then(|door| act(door, &self.to_upstream, serial));
        named(self.upstream, None, changed)
    }

    fn at_model(&self, act: impl FnOnce(&mut Door, &Passage, u64) -> Option<Changed>) -> Vec<Transition> {
        let mut inner = self.breakers.0.lock();
        let serial = inner.next_serial();
        let door = inner
            .upstreams
            .get_mut(&self.upstream)
            .and_then(|upstream| upstream.models.get_mut(&self.model));
        let changed = door.and_then(|door| act(door, &self.to_model, serial));
        named(self.upstream, Some(&self.model), changed)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.is_reported {
            return;
        }
        self.at_credential(|door, passage, _| {
            door.leave(passage);
            None
        });
        self.at_model(|door, passage, _| {
            door.leave(passage);
            None
        });
    }
}

fn named(
    upstream: UpstreamId,
    model: Option<&Arc<str>>,
    changes: impl IntoIterator<Item = Changed>,
) -> Vec<Transition> {
    let transition = |changed: Changed| Transition {
        upstream,
        model: model.cloned(),
        from: changed.from,
        to: changed.to,
        until_ms: changed.until_ms,
        reason: changed.reason,
    };
    changes.into_iter().map(transition).collect()
}

impl FailureKind {
    /// Whether the request itself may have caused it, so that other requests may fare better.
    fn may_be_of_the_request(self) -> bool {
        !matches!(self, Self::Unreached | Self::Unauthorized)
    }

    fn is_of_the_credential(self) -> bool {
        matches!(self, Self::Unauthorized | Self::Forbidden)
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreached => f.write_str("no connection"),
            Self::Broken => f.write_str("the connection broke"),
            Self::Silent => f.write_str("it was silent for too long"),
            Self::RateLimited => f.write_str("status 429"),
            Self::Status(status) => write!(f, "status {status}"),
            Self::ErrorInAnswer => f.write_str("an error within an answer"),
            Self::Unauthorized => f.write_str("status 401"),
            Self::Forbidden => f.write_str("status 403"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recovered => f.write_str("requests succeed again"),
            Self::Cooled => f.write_str("the provider's own limit has room again"),
            Self::Cooling => f.write_str("the provider's own limit is reached: status 429"),
            Self::Failures(Measure::InRow(count), last) => {
                write!(f, "{count} failures in a row, the last: {last}")
            }
            Self::Failures(Measure::Share { failed, of }, last) => {
                write!(f, "{failed} of {of} requests failed, the last: {last}")
            }
            Self::ProbeFailed(kind) => write!(f, "a request that was let through to try failed: {kind}"),
            Self::Refused(kind) => write!(f, "the provider does not accept the credential: {kind}"),
        }
    }
}

#[cfg(test)]
mod tests;

//! The door to one model of one upstream, or to all of them: open to all, cooling, shut, or ajar for a few probes.
//!
//! The words are those of electricians: a *closed* breaker lets everybody through.

use domain::ids::TenantId;
use domain::instances::BreakerState;

use super::recent::Recent;
use super::{
    COOLING_DEFAULT_MS, Failure, FailureKind, HELD_BACK_MS_MAX, HELD_BACK_MS_MIN, OPEN_MS, PROBE_WAIT_MS, PROBES_MAX,
    Reason,
};

/// One door.
#[derive(Debug)]
pub(super) struct Door {
    /// Tells it from a later one of the same name.
    id: u64,
    state: State,
    since_ms: u64,
    reason: Reason,
    /// Changes whenever it opens, is ajar or closes: whoever passed before says nothing of now.
    epoch: u64,
    /// Probes under way, whenever they passed.
    probes: u32,
    cooling: Option<Cooling>,
    recent: Recent,
    touched_ms: u64,
    successes_to_close: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Closed,
    Open {
        until_ms: u64,
        /// The tenant whose requests alone say so. Those of another may try.
        blamed: Option<TenantId>,
    },
    HalfOpen {
        successes: u32,
        /// The tenant whose requests alone had opened it, and until when it stays outside.
        blamed: Option<(TenantId, u64)>,
    },
}

#[derive(Clone, Copy, Debug)]
struct Cooling {
    since_ms: u64,
    until_ms: u64,
}

/// What a door has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) from: BreakerState,
    pub(super) to: BreakerState,
    pub(super) until_ms: Option<u64>,
    pub(super) reason: Reason,
}

/// One request's passage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passage {
    door: u64,
    epoch: u64,
    serial: u64,
    passed_ms: u64,
    tenant: TenantId,
    is_probe: bool,
}

impl Door {
    pub(super) fn new(id: u64, successes_to_close: u32, now_ms: u64) -> Self {
        Self {
            id,
            state: State::Closed,
            since_ms: now_ms,
            reason: Reason::Recovered,
            epoch: id,
            probes: 0,
            cooling: None,
            recent: Recent::default(),
            touched_ms: now_ms,
            successes_to_close,
        }
    }

    /// When a request of this tenant may pass: now, where absent.
    pub(super) fn wait_until(&self, tenant: TenantId, now_ms: u64) -> Option<u64> {
        let until_ms = match self.state {
            State::Closed => 0,
            State::Open { until_ms, blamed } if blamed.is_none_or(|blamed| blamed == tenant) => until_ms,
            State::HalfOpen {
                blamed: Some((blamed, until_ms)),
                ..
            } if blamed == tenant => until_ms,
            State::Open { .. } | State::HalfOpen { .. } => 0,
        };
        let cooled_ms = self.cooling.map_or(0, |cooling| cooling.until_ms);
        let is_full = !matches!(self.state, State::Closed) && self.probes >= PROBES_MAX;
        let place_ms = if is_full { now_ms + PROBE_WAIT_MS } else { 0 };
        let until_ms = until_ms.max(cooled_ms).max(place_ms);
        (until_ms > now_ms).then_some(until_ms)
    }

    /// Lets a request through that need not wait. `serial` is a number that nothing else has.
    pub(super) fn pass(&mut self, tenant: TenantId, serial: u64, now_ms: u64, changes: &mut Vec<Changed>) -> Passage {
        self.touched_ms = now_ms;
        if self.cooling.take().is_some() && matches!(self.state, State::Closed) {
            self.since_ms = now_ms;
            self.reason = Reason::Cooled;
            changes.push(self.changed(BreakerState::Cooling));
        }
        if let State::Open { until_ms, blamed } = self.state {
            let blamed = blamed.map(|blamed| (blamed, until_ms));
            self.turn(State::HalfOpen { successes: 0, blamed }, serial, now_ms);
            changes.push(self.changed(BreakerState::Open));
        }
        let is_probe = matches!(self.state, State::HalfOpen { .. });
        self.probes += u32::from(is_probe);
        Passage {
            door: self.id,
            epoch: self.epoch,
            serial,
            passed_ms: now_ms,
            tenant,
            is_probe,
        }
    }

    /// A probe is over, whatever it found.
    pub(super) fn leave(&mut self, passage: &Passage) {
        if passage.is_probe && passage.door == self.id {
            self.probes -= 1;
        }
    }

    pub(super) fn succeeded(&mut self, passage: &Passage, serial: u64, now_ms: u64) -> Option<Changed> {
        if passage.epoch != self.epoch {
            return None;
        }
        self.touched_ms = now_ms;
        self.recent.note(passage.serial, Some(passage.tenant), false, now_ms);
        let State::HalfOpen { successes, .. } = &mut self.state else {
            return None;
        };
        *successes += 1;
        if *successes < self.successes_to_close {
            return None;
        }
        self.reason = Reason::Recovered;
        self.turn(State::Closed, serial, now_ms);
        Some(self.changed(BreakerState::HalfOpen))
    }

    /// A failure that says something about all requests, or would if others failed, too.
    pub(super) fn failed(&mut self, passage: &Passage, failure: &Failure, serial: u64, now_ms: u64) -> Option<Changed> {
        self.believe(passage.tenant, failure);
        if passage.epoch != self.epoch {
            return None;
        }
        self.touched_ms = now_ms;
        match self.state {
            State::Closed => {
                let was = self.state_at(now_ms);
                if failure.kind == FailureKind::RateLimited {
                    let is_of_the_same_burst = self
                        .cooling
                        .is_some_and(|cooling| passage.passed_ms <= cooling.since_ms);
                    self.cool(failure, now_ms);
                    if is_of_the_same_burst {
                        return None;
                    }
                }
                let tenant = failure.kind.may_be_of_the_request().then_some(passage.tenant);
                self.recent.note(passage.serial, tenant, true, now_ms);
                let opened = self.open_if_due(failure, serial, now_ms);
                opened.or_else(|| {
                    let is_new = was == BreakerState::Closed && self.state_at(now_ms) == BreakerState::Cooling;
                    is_new.then(|| self.changed(BreakerState::Closed))
                })
            }
            State::HalfOpen { blamed, .. } => Some(self.reopen(blamed, passage.tenant, failure, serial, now_ms)),
            State::Open { .. } => None,
        }
    }

    /// An answer that had begun well did not end so.
    pub(super) fn broke(&mut self, passage: &Passage, failure: &Failure, serial: u64, now_ms: u64) -> Option<Changed> {
        self.believe(passage.tenant, failure);
        if !self.recent.turn_to_failure(passage.serial) {
            return None;
        }
        self.touched_ms = now_ms;
        match self.state {
            State::Closed => self.open_if_due(failure, serial, now_ms),
            State::HalfOpen { blamed, .. } => Some(self.reopen(blamed, passage.tenant, failure, serial, now_ms)),
            State::Open { .. } => None,
        }
    }

    /// The provider has looked into a request: its credential is accepted.
    pub(super) fn accepted(&mut self, passage: &Passage, serial: u64, now_ms: u64) -> Option<Changed> {
        let is_asked = matches!(self.state, State::HalfOpen { .. });
        is_asked.then(|| self.succeeded(passage, serial, now_ms)).flatten()
    }

    /// The credential was refused: at once, unless only one tenant's requests are refused so.
    pub(super) fn refused(
        &mut self,
        passage: &Passage,
        failure: &Failure,
        serial: u64,
        now_ms: u64,
    ) -> Option<Changed> {
        if matches!(self.state, State::Closed)
            && failure.kind.may_be_of_the_request()
            && self.recent.has_success_of_another(passage.tenant, now_ms)
        {
            return None;
        }
        if !matches!(self.state, State::Closed) {
            return self.failed(passage, failure, serial, now_ms);
        }
        if passage.epoch != self.epoch {
            return None;
        }
        let blamed = failure.kind.may_be_of_the_request().then_some(passage.tenant);
        Some(self.open(Reason::Refused(failure.kind), blamed, failure, serial, now_ms))
    }

    /// What it is now. One that is due to be tried counts as ajar although nobody came yet.
    pub(super) fn state_at(&self, now_ms: u64) -> BreakerState {
        match self.state {
            State::Closed if self.cooling.is_some_and(|cooling| cooling.until_ms > now_ms) => BreakerState::Cooling,
            State::Closed => BreakerState::Closed,
            State::Open { until_ms, .. } if until_ms > now_ms => BreakerState::Open,
            State::Open { .. } | State::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    pub(super) fn since_ms(&self) -> u64 {
        match (self.state, self.cooling) {
            (State::Closed, Some(cooling)) => cooling.since_ms,
            _ => self.since_ms,
        }
    }

    /// When everybody's requests are tried again, where that is certain.
    pub(super) fn until_ms(&self, now_ms: u64) -> Option<u64> {
        let until_ms = match (self.state, self.cooling) {
            (State::Closed, Some(cooling)) => cooling.until_ms,
            (State::Open { until_ms, .. }, _) => until_ms,
            _ => 0,
        };
        (until_ms > now_ms).then_some(until_ms)
    }

    pub(super) fn reason(&self) -> Reason {
        match (self.state, self.cooling) {
            (State::Closed, Some(_)) => Reason::Cooling,
            _ => self.reason,
        }
    }

    /// What makes room for a new door goes first: the one that says least, and the one longest untouched.
    pub(super) fn worth(&self) -> (bool, u64) {
        (!matches!(self.state, State::Closed), self.touched_ms)
    }

    /// A second tenant's failure, or one that is nobody's, means everybody.
    fn believe(&mut self, tenant: TenantId, failure: &Failure) {
        if let State::Open { blamed, .. } = &mut self.state
            && (!failure.kind.may_be_of_the_request() || *blamed != Some(tenant))
        {
            *blamed = None;
        }
    }

    fn cool(&mut self, failure: &Failure, now_ms: u64) {
        let cooling_ms = failure
            .retry_after_ms
            .unwrap_or(COOLING_DEFAULT_MS)
            .clamp(HELD_BACK_MS_MIN, HELD_BACK_MS_MAX);
        let until_ms = now_ms.saturating_add(cooling_ms);
        let cooling = self.cooling.get_or_insert(Cooling {
            since_ms: now_ms,
            until_ms,
        });
        if cooling.until_ms <= now_ms {
            cooling.since_ms = now_ms;
        }
        cooling.until_ms = cooling.until_ms.max(until_ms);
    }

    fn open_if_due(&mut self, failure: &Failure, serial: u64, now_ms: u64) -> Option<Changed> {
        let grounds = self.recent.grounds(now_ms)?;
        let reason = Reason::Failures(grounds.measure, failure.kind);
        Some(self.open(reason, grounds.alone, failure, serial, now_ms))
    }

    /// A probe has failed. Where another tenant's had, too, everybody believes it.
    fn reopen(
        &mut self,
        blamed: Option<(TenantId, u64)>,
        tenant: TenantId,
        failure: &Failure,
        serial: u64,
        now_ms: u64,
    ) -> Changed {
        let is_believed = !failure.kind.may_be_of_the_request() || blamed.is_some_and(|(blamed, _)| blamed != tenant);
        let blamed = (!is_believed).then_some(tenant);
        self.open(Reason::ProbeFailed(failure.kind), blamed, failure, serial, now_ms)
    }

    fn open(
        &mut self,
        reason: Reason,
        blamed: Option<TenantId>,
        failure: &Failure,
        serial: u64,
        now_ms: u64,
    ) -> Changed {
        let from = match self.state_at(now_ms) {
            // One that cools is closed.
            BreakerState::Cooling => BreakerState::Closed,
            from => from,
        };
        let open_ms = failure
            .retry_after_ms
            .unwrap_or(OPEN_MS)
            .clamp(HELD_BACK_MS_MIN, HELD_BACK_MS_MAX);
        let until_ms = now_ms.saturating_add(open_ms);
        self.reason = reason;
        self.cooling = None;
        self.recent.clear();
        self.turn(State::Open { until_ms, blamed }, serial, now_ms);
        self.changed(from)
    }

    fn turn(&mut self, state: State, epoch: u64, now_ms: u64) {
        self.state = state;
        self.since_ms = now_ms;
        self.epoch = epoch;
        self.touched_ms = now_ms;
    }

    fn changed(&self, from: BreakerState) -> Changed {
        let to = match self.state {
            State::Closed if self.cooling.is_some() => BreakerState::Cooling,
            State::Closed => BreakerState::Closed,
            State::Open { .. } => BreakerState::Open,
            State::HalfOpen { .. } => BreakerState::HalfOpen,
        };
        let until_ms = match (self.state, self.cooling) {
            (State::Closed, Some(cooling)) => Some(cooling.until_ms),
            (State::Open { until_ms, .. }, _) => Some(until_ms),
            _ => None,
        };
        Changed {
            from,
            to,
            until_ms,
            reason: self.reason(),
        }
    }
}

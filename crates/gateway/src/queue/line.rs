//! Who waits, in which order, and whose turn it is. Decided without clock, input or output.
//!
//! A request that was refused stands in the lane of the limit that refused it. Each lane is served from its front: the
//! highest class first, and within a class whoever came first. Only the front asks the limits again, when room came back or
//! is due, so that a full limit costs one question at a time, however many wait for it. Lanes do not wait for each other:
//! whoever is held up by its own key holds up nobody else.
//!
//! Nobody starves. With half of the longest wait over, a waiter counts one class higher, with three quarters two, with
//! seven eighths three: then only those who came before it are served before it. At gates it counts one class higher at
//! most.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use domain::ids::{LimitId, TenantId, UpstreamId};
use domain::instances::{QUEUE_REASONS_MAX, QueueReason, QueueStatus};
use domain::limits::{Dimension, Scope};
use domain::priority::Priority;
use domain::refusals::RefusalCode;

/// Of all places, what one tenant may take, in percent.
pub(crate) const TENANT_PLACES_PERCENT: usize = 75;

/// Bounds of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// How many requests may wait. None where this is 0: then whoever finds no room is refused at once.
    pub places: usize,
    /// What those that wait may be expected to use together, in tokens. One that is larger may wait alone.
    pub waiting_tokens_max: u64,
    /// How long a request may wait, in milliseconds.
    pub timeout_ms: u64,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            places: 64,
            waiting_tokens_max: 2_000_000,
            timeout_ms: 10_000,
        }
    }
}

/// Names a waiter; later ones are higher.
pub(crate) type Ticket = u64;

/// What requests wait for together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lane {
    /// What has no room.
    pub(crate) of: LaneOf,
    /// Whether there is room, but not for this priority.
    pub(crate) is_gate: bool,
}

/// What has no room.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LaneOf {
    /// One limit of one node of the tree.
    Limit(Scope, LimitId),
    /// A limit of the account at each of these upstreams, which are all there are for the request; this one has room first.
    /// In ascending order.
    Accounts(Box<[UpstreamId]>, LimitId),
    /// An upstream that is left alone, for this model as far as this tenant goes.
    LeftAlone(UpstreamId, Arc<str>, TenantId),
}

/// Why a request was not admitted, and what would change that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blocked {
    pub(crate) lane: Lane,
    pub(crate) scope: Scope,
    pub(crate) dimension: Dimension,
    pub(crate) code: RefusalCode,
    /// When the limits may be asked again, in milliseconds of the monotonic clock.
    pub(crate) due_ms: u64,
}

impl Blocked {
    /// Whether the end of another request can make room: it gives back tokens, money and its place, but was a request all
    /// the same. Of several accounts any may be the one.
    fn heals_by_release(&self) -> bool {
        match self.lane.of {
            LaneOf::Limit(..) => self.dimension != Dimension::Requests,
            LaneOf::Accounts(..) => true,
            LaneOf::LeftAlone(..) => false,
        }
    }
}

/// Who wants to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) tenant: TenantId,
    pub(crate) priority: Priority,
    /// What it is expected to use.
    pub(crate) tokens: u64,
    /// How long it wants to wait at most, in milliseconds.
    pub(crate) patience_ms: u64,
}

/// No more may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// All places are taken, or the tokens are.
    Places,
    /// The tenant has as many places as one tenant may have.
    Tenant,
}

/// What a waiter is called up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// To ask the limits again; gates judge it by this priority.
    Try(Priority),
    /// The same for the last time: its wait is over.
    Last(Priority),
}

#[derive(Debug)]
struct Waiter {
    arrival: Arrival,
    joined_ms: u64,
    ends_ms: u64,
    blocked: Blocked,
    turn: Option<Turn>,
}

/// The queue of one gateway.
#[derive(Debug)]
pub(crate) struct Line {
    settings: QueueSettings,
    waiters: BTreeMap<Ticket, Waiter>,
    /// Lanes in which room may have come back since their front asked last.
    stirred: HashSet<Lane>,
    tokens: u64,
    next_ticket: Ticket,
}

impl Line {
    pub(crate) fn new(settings: QueueSettings) -> Self {
        Self {
            settings,
            waiters: BTreeMap::new(),
            stirred: HashSet::new(),
            tokens: 0,
            next_ticket: 0,
        }
    }

    /// What a new request has to wait for because others wait for it: those of its class and above who came before it.
    /// `counts_in` says whether it needs what a lane waits for.
    pub(crate) fn ahead(
        &self,
        priority: Priority,
        counts_in: impl Fn(&LaneOf) -> bool,
        now_ms: u64,
    ) -> Option<&Blocked> {
        let mut asked: HashMap<&LaneOf, bool> = HashMap::new();
        let ahead = self.waiters.values().find(|waiter| {
            let class = if waiter.blocked.lane.is_gate {
                self.gate_priority(waiter, now_ms)
            } else {
                self.class(waiter, now_ms)
            };
            let of = &waiter.blocked.lane.of;
            class >= priority && *asked.entry(of).or_insert_with(|| counts_in(of))
        });
        ahead.map(|waiter| &waiter.blocked)
    }

    /// Takes a place in the lane of what it is blocked by.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn join(&mut self, arrival: Arrival, blocked: Blocked, now_ms: u64) -> Result<Ticket, Full> {
        let tokens = self.tokens.saturating_add(arrival.tokens);
        let has_tokens = self.waiters.is_empty() || tokens <= self.settings.waiting_tokens_max;
        if self.waiters.len() >= self.settings.places || !has_tokens {
            return Err(Full::Places);
        }
        let own = self
            .waiters
            .values()
            .filter(|waiter| waiter.arrival.tenant == arrival.tenant);
        if own.count() >= (self.settings.places * TENANT_PLACES_PERCENT).div_ceil(100) {
            return Err(Full::Tenant);
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.tokens = tokens;
        let mut waiter = Waiter {
            arrival,
            joined_ms: now_ms,
            ends_ms: now_ms.saturating_add(arrival.patience_ms.min(self.settings.timeout_ms)),
            blocked,
            turn: None,
        };
        self.wake_at_the_next_class(&mut waiter, now_ms);
        self.waiters.insert(ticket, waiter);
        Ok(ticket)
    }

    /// A waiter asked in vain, and waits on; whether for something else than before.
    pub(crate) fn block(&mut self, ticket: Ticket, blocked: Blocked, now_ms: u64) -> bool {
        let Some(mut waiter) = self.waiters.remove(&ticket) else {
            return false;
        };
        let has_moved = waiter.blocked.lane != blocked.lane;
        if has_moved {
            // What it waited for before is there: for whoever comes next.
            self.stir(waiter.blocked.lane.clone());
        }
        waiter.blocked = blocked;
        waiter.turn = None;
        self.wake_at_the_next_class(&mut waiter, now_ms);
        self.waiters.insert(ticket, waiter);
        has_moved
    }

    /// A waiter is gone: it was admitted or refused, or its caller left.
    pub(crate) fn leave(&mut self, ticket: Ticket) {
        let Some(waiter) = self.waiters.remove(&ticket) else {
            return;
        };
        self.tokens = self.tokens.saturating_sub(waiter.arrival.tokens);
        // Where there was room for one there may be room for the next; a turn that was not used is the next one's; and who
        // stood behind one that needed more has not been asked for itself.
        self.stir(waiter.blocked.lane);
    }

    /// A request has ended that counted in these nodes and went to these upstreams.
    pub(crate) fn release(&mut self, counted_in: impl Fn(&Scope) -> bool, upstreams: &[UpstreamId]) {
        let lanes: Vec<Lane> = self
            .waiters
            .values()
            .filter(|waiter| waiter.blocked.heals_by_release() && !self.stirred.contains(&waiter.blocked.lane))
            .filter(|waiter| match &waiter.blocked.lane.of {
                LaneOf::Limit(scope, _) => counted_in(scope),
                LaneOf::Accounts(of, _) => upstreams.iter().any(|upstream| of.contains(upstream)),
                LaneOf::LeftAlone(..) => false,
            })
            .map(|waiter| waiter.blocked.lane.clone())
            .collect();
        self.stirred.extend(lanes);
    }

    /// Somebody who was just told that there is no room may have been told too late: the lane's front asks again.
    pub(crate) fn stir_lane_of(&mut self, ticket: Ticket) {
        if let Some(waiter) = self.waiters.get(&ticket)
            && waiter.blocked.heals_by_release()
        {
            self.stirred.insert(waiter.blocked.lane.clone());
        }
    }

    /// Everything may be different: every lane's front asks again.
    pub(crate) fn stir_all(&mut self) {
        let lanes = self.waiters.values().map(|waiter| waiter.blocked.lane.clone());
        self.stirred.extend(lanes);
    }

    fn stir(&mut self, lane: Lane) {
        if self.waiters.values().any(|waiter| waiter.blocked.lane == lane) {
            self.stirred.insert(lane);
        } else {
            self.stirred.remove(&lane);
        }
    }

    /// Whose turn it is now. They have it until they are blocked again or leave.
    pub(crate) fn turns(&mut self, now_ms: u64) -> Vec<(Ticket, Turn)> {
        let expired = self
            .waiters
            .iter()
            .filter(|(_, waiter)| waiter.turn.is_none() && waiter.ends_ms <= now_ms)
            .map(|(ticket, waiter)| (*ticket, Turn::Last(self.gate_priority(waiter, now_ms))));
        let fronts = self
            .fronts(now_ms)
            .filter(|(_, waiter)| waiter.blocked.due_ms <= now_ms || self.stirred.contains(&waiter.blocked.lane))
            .map(|(ticket, waiter)| (ticket, Turn::Try(self.gate_priority(waiter, now_ms))));
        let turns: Vec<(Ticket, Turn)> = expired.chain(fronts).collect();
        for (ticket, turn) in &turns {
            if let Some(waiter) = self.waiters.get_mut(ticket) {
                waiter.turn = Some(*turn);
                if let Turn::Try(_) = turn {
                    self.stirred.remove(&waiter.blocked.lane);
                }
            }
        }
        turns
    }

    /// When somebody's turn comes by time alone; `None` where nobody's does.
    pub(crate) fn next_ms(&self, now_ms: u64) -> Option<u64> {
        let ends = self.waiters.values().filter(|waiter| waiter.turn.is_none());
        let ends = ends.map(|waiter| waiter.ends_ms);
        let dues = self.fronts(now_ms).map(|(_, waiter)| waiter.blocked.due_ms);
        ends.chain(dues).min()
    }

    /// Who is next in each lane whose front is not asking already. Those whose wait is over are none.
    fn fronts(&self, now_ms: u64) -> impl Iterator<Item = (Ticket, &Waiter)> {
        let mut fronts: HashMap<&Lane, Option<(Priority, Ticket, &Waiter)>> = HashMap::new();
        for (ticket, waiter) in &self.waiters {
            let lane = &waiter.blocked.lane;
            match waiter.turn {
                Some(Turn::Try(_)) => {
                    fronts.insert(lane, None);
                }
                None if waiter.ends_ms > now_ms => {
                    let class = self.class(waiter, now_ms);
                    let front = fronts.entry(lane).or_insert(Some((class, *ticket, waiter)));
                    // Of one class whoever came first, and tickets come in that order.
                    if let Some((before, ..)) = front
                        && class > *before
                    {
                        *front = Some((class, *ticket, waiter));
                    }
                }
                Some(Turn::Last(_)) | None => {}
            }
        }
        fronts
            .into_values()
            .flatten()
            .map(|(_, ticket, waiter)| (ticket, waiter))
    }

    /// How many wait.
    pub(crate) fn depth(&self) -> usize {
        self.waiters.len()
    }

    /// For the console.
    pub(crate) fn status(&self, now_ms: u64) -> QueueStatus {
        let mut reasons: Vec<QueueReason> = Vec::new();
        for Waiter { blocked, .. } in self.waiters.values() {
            let known = reasons.iter_mut().find(|reason| {
                (&reason.scope, reason.dimension, reason.code) == (&blocked.scope, blocked.dimension, blocked.code)
            });
            match known {
                Some(reason) => reason.count += 1,
                None => reasons.push(QueueReason {
                    scope: blocked.scope.clone(),
                    dimension: blocked.dimension,
                    code: blocked.code,
                    count: 1,
                }),
            }
        }
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.count));
        reasons.truncate(QUEUE_REASONS_MAX);
        let joined_first = self.waiters.values().map(|waiter| waiter.joined_ms).min();
        QueueStatus {
            depth: self.waiters.len() as u64,
            places: self.settings.places as u64,
            waiting_tokens: self.tokens,
            waiting_tokens_max: self.settings.waiting_tokens_max,
            longest_ms: joined_first.map_or(0, |joined_ms| now_ms.saturating_sub(joined_ms)),
            timeout_ms: self.settings.timeout_ms,
            reasons,
        }
    }

    /// Where it stands: its priority, and more the longer it has waited.
    fn class(&self, waiter: &Waiter, now_ms: u64) -> Priority {
        let timeout_ms = self.settings.timeout_ms;
        let left_ms = timeout_ms.saturating_sub(now_ms.saturating_sub(waiter.joined_ms));
        let mut class = waiter.arrival.priority;
        for part in [2, 4, 8] {
            if left_ms <= timeout_ms / part {
                class = class.next_higher();
            }
        }
        class
    }

    fn gate_priority(&self, waiter: &Waiter, now_ms: u64) -> Priority {
        if now_ms >= self.half_ms(waiter) {
            waiter.arrival.priority.next_higher()
        } else {
            waiter.arrival.priority
        }
    }

    /// When half of the longest wait is over.
    fn half_ms(&self, waiter: &Waiter) -> u64 {
        waiter.joined_ms.saturating_add(self.settings.timeout_ms.div_ceil(2))
    }

    /// A gate may let it through as soon as it counts a class higher.
    fn wake_at_the_next_class(&self, waiter: &mut Waiter, now_ms: u64) {
        let half_ms = self.half_ms(waiter);
        if waiter.blocked.lane.is_gate && now_ms < half_ms {
            waiter.blocked.due_ms = waiter.blocked.due_ms.min(half_ms);
        }
    }
}

#[cfg(test)]
mod tests;

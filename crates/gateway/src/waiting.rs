//! The way to admission: at once, or by a place in the queue.

use std::sync::Arc;
use std::time::Instant;

use domain::limits::{Dimension, Scope};
use domain::priority::Priority;
use domain::refusals::RefusalCode;
use limits::{Denial, Hold, Now};

use crate::asked::{Asked, Judged};
use crate::case;
use crate::clock::between_ms;
use crate::flight::Flight;
use crate::metrics::{self, QueueResult};
use crate::pipeline;
use crate::queue::{Arrival, Blocked, Lane, LaneOf, Place, Turn};
use crate::refusal::Refusal;

/// When a limit is asked again that does not say when it will have room, in milliseconds.
const UNPREDICTED_MS: u64 = 1_000;
/// Where several gateways share the counters, by how much later than predicted each of them asks at most, in percent of the
/// wait and in milliseconds: so that they do not all ask at once.
const JITTER_PERCENT: u64 = 10;
const JITTER_MS_MAX: u64 = 250;

/// A request that was admitted.
pub(crate) struct Admitted {
    pub(crate) judged: Judged,
    pub(crate) hold: Hold,
    pub(crate) at: Now,
}

/// What became of the first try.
pub(crate) enum First {
    Admitted(Box<Admitted>),
    Waits(Waiting),
}

/// A request that waits for room.
pub(crate) struct Waiting {
    place: Place,
    joined: Now,
    record: Record,
}

/// Judges a request and asks the limits, or takes a place behind those who came first.
///
/// # Errors
/// When waiting does not help, or not in time, or there is no place.
pub(crate) async fn first(flight: &mut Flight, asked: &mut Asked) -> Result<First, Refusal> {
    let gateway = Arc::clone(&flight.gateway);
    let now = gateway.clock.now();
    flight.is_ready(now);
    let settings = gateway.queue.settings();
    let patience_ms = asked.patience_ms(settings.timeout_ms);
    let ends = gateway.queue.ends();
    let (blocked, refusal) = match asked.judge(flight, now).await {
        Err(refusal) => (left_alone(flight, &refusal, now), refusal),
        Ok(judged) => {
            let counts_in = |of: &_| judged.case.counts_in(of);
            match gateway.queue.ahead(flight.identity.priority, counts_in, now) {
                Some(blocked) => {
                    let retry_ms = blocked.due_ms.saturating_sub(now.monotonic_ms);
                    let refusal = Refusal::behind(&blocked, retry_ms, gateway.random_unit());
                    (Some(blocked), refusal)
                }
                None => match pipeline::admit(flight, &judged, now).await {
                    Err(refusal) => (denied(flight, &judged, &refusal, now), refusal),
                    Ok(hold) => {
                        let admitted = Admitted { judged, hold, at: now };
                        return Ok(First::Admitted(Box::new(admitted)));
                    }
                },
            }
        }
    };
    let (Some(blocked), true) = (blocked, settings.places > 0 && heals_within(&refusal, patience_ms)) else {
        return Err(refusal);
    };
    let arrival = Arrival {
        tenant: flight.identity.tenant_id,
        priority: flight.identity.priority,
        tokens: flight.estimate.expected.total_tokens(),
        patience_ms,
    };
    let mut record = Record::of(&blocked);
    match gateway.queue.join(arrival, blocked, ends, now) {
        Ok(place) => Ok(First::Waits(Waiting {
            place,
            joined: now,
            record,
        })),
        Err(full) => {
            record.result = QueueResult::Full;
            Err(refusal.queue_full(full))
        }
    }
}

impl Waiting {
    /// Waits until there is room.
    ///
    /// # Errors
    /// When the wait is over, or the request is refused for another reason meanwhile.
    pub(crate) async fn admitted(mut self, flight: &mut Flight, asked: &mut Asked) -> Result<Admitted, Refusal> {
        let gateway = Arc::clone(&flight.gateway);
        loop {
            let turn = tokio::select! {
                biased;
                () = gateway.ending.cancelled() => return Err(self.refused(case::stopping())),
                turn = self.place.turn() => turn,
            };
            flight.renew().await;
            let now = gateway.clock.now();
            let (Turn::Try(gate_priority) | Turn::Last(gate_priority)) = turn;
            let ends = gateway.queue.ends();
            let (blocked, refusal) = match self.try_again(flight, asked, gate_priority, now).await {
                Ok(admitted) => {
                    self.record.result = QueueResult::Admitted;
                    return Ok(admitted);
                }
                Err(tried) => tried,
            };
            match (blocked, turn) {
                (Some(blocked), Turn::Try(_)) => {
                    self.record.note(&blocked);
                    self.place.block(blocked, ends, now);
                }
                (Some(_), Turn::Last(_)) => {
                    self.record.result = QueueResult::TimedOut;
                    let waited_ms = between_ms(self.joined, now).unsigned_abs();
                    return Err(refusal.queue_timeout(waited_ms));
                }
                (None, _) => return Err(self.refused(refusal)),
            }
        }
    }

    async fn try_again(
        &self,
        flight: &mut Flight,
        asked: &mut Asked,
        gate_priority: Priority,
        now: Now,
    ) -> Result<Admitted, (Option<Blocked>, Refusal)> {
        let mut judged = match asked.judge(flight, now).await {
            Ok(judged) => judged,
            Err(refusal) => return Err((left_alone(flight, &refusal, now), refusal)),
        };
        judged.case.gate_priority = gate_priority.max(flight.identity.priority);
        match pipeline::admit(flight, &judged, now).await {
            Ok(hold) => Ok(Admitted { judged, hold, at: now }),
            Err(refusal) => Err((denied(flight, &judged, &refusal, now), refusal)),
        }
    }

    fn refused(&mut self, refusal: Refusal) -> Refusal {
        self.record.result = QueueResult::Refused;
        refusal
    }
}

/// What a request would wait for that no upstream takes for now; `None` where it was refused for another reason.
fn left_alone(flight: &Flight, refusal: &Refusal, now: Now) -> Option<Blocked> {
    let unavailable = refusal.unavailable.as_ref()?;
    let Scope::Upstream(id) = unavailable.scope else {
        return None;
    };
    Some(Blocked {
        lane: Lane {
            of: LaneOf::LeftAlone(
                id,
                flight.identity.model.clone().unwrap_or_default(),
                flight.identity.tenant_id,
            ),
            is_gate: false,
        },
        scope: unavailable.scope.clone(),
        dimension: Dimension::Requests,
        code: refusal.code,
        due_ms: now.monotonic_ms.saturating_add(unavailable.retry_after_ms.max(1)),
    })
}

/// What a request that the limits refused would wait for; `None` where waiting does not help.
fn denied(flight: &Flight, judged: &Judged, refusal: &Refusal, now: Now) -> Option<Blocked> {
    let Some(denial) = refusal.denial.as_deref() else {
        return left_alone(flight, refusal, now);
    };
    if !denial.may_wait() {
        return None;
    }
    let gateway = &flight.gateway;
    let wait_ms = denial.retry_after_ms.unwrap_or(UNPREDICTED_MS).max(1);
    let jitter_ms = if gateway.limits.gateways() > 1 {
        let most_ms = (wait_ms / (100 / JITTER_PERCENT)).min(JITTER_MS_MAX);
        (gateway.random_unit() * most_ms as f64) as u64
    } else {
        0
    };
    Some(Blocked {
        lane: judged.case.lane(denial),
        scope: denial.scope.clone(),
        dimension: denial.dimension,
        code: denial.code,
        due_ms: now.monotonic_ms.saturating_add(wait_ms).saturating_add(jitter_ms),
    })
}

/// Whether there may be room before the wait is over. Of rates and of upstreams that are left alone it is known when; places
/// and budgets are given back at any time, and a gate may open because the request has waited.
fn heals_within(refusal: &Refusal, patience_ms: u64) -> bool {
    let is_predicted = |denial: &&Denial| denial.code == RefusalCode::RateLimitExceeded;
    let denial = refusal.denial.as_deref().filter(is_predicted);
    let of_limit = denial.and_then(|denial| denial.retry_after_ms);
    let of_upstream = refusal
        .unavailable
        .as_ref()
        .map(|unavailable| unavailable.retry_after_ms);
    patience_ms > 0 && of_limit.or(of_upstream).is_none_or(|wait_ms| wait_ms <= patience_ms)
}

/// What metrics are told of a wait when it is over, however that comes about.
struct Record {
    began: Instant,
    kind: &'static str,
    dimension: Dimension,
    result: QueueResult,
}

impl Record {
    fn of(blocked: &Blocked) -> Self {
        Self {
            began: Instant::now(),
            kind: blocked.scope.kind(),
            dimension: blocked.dimension,
            result: QueueResult::Left,
        }
    }

    fn note(&mut self, blocked: &Blocked) {
        (self.kind, self.dimension) = (blocked.scope.kind(), blocked.dimension);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        metrics::queued(self.kind, self.dimension, self.result, self.began.elapsed());
    }
}

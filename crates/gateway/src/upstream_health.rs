//! How upstreams do, as this gateway sees it: who is let through to them, and who hears of it when that changes.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use domain::ids::{TenantId, UpstreamId};
use domain::instances::{BreakerState, BreakerStatus};
use limits::Now;
use upstream::breaker::{Failure, FailureKind, Permit, Report, Transition};

use crate::policy::PolicySnapshot;
use crate::{Gateway, metrics};

/// One try under way. What becomes of it is told to the upstream's breakers; dropped, it tells them nothing.
pub(crate) struct Watch {
    gateway: Arc<Gateway>,
    permit: Permit,
}

impl Watch {
    /// The provider has begun a proper answer.
    pub(crate) fn answered(&mut self) {
        self.report(Report::Answered);
    }

    /// The provider found fault with the request.
    pub(crate) fn declined(&mut self) {
        self.report(Report::Declined);
    }

    /// The provider failed.
    pub(crate) fn failed(&mut self, failure: Failure) {
        self.report(Report::Failed(failure));
    }

    /// The answer had begun well and did not end so.
    pub(crate) fn broke_off(&mut self, kind: FailureKind) {
        let now = self.gateway.clock.now();
        let transitions = self.permit.broke_off(kind, now.monotonic_ms);
        self.gateway.tell(transitions, now);
    }

    fn report(&mut self, report: Report) {
        let now = self.gateway.clock.now();
        let transitions = self.permit.report(report, now.monotonic_ms);
        self.gateway.tell(transitions, now);
    }
}

impl Gateway {
    /// Leave to send a request of this tenant to this upstream and model.
    ///
    /// # Errors
    /// With the time when it may be sent, in milliseconds of the monotonic clock.
    pub(crate) fn watch_upstream(
        self: &Arc<Self>,
        upstream: UpstreamId,
        model: &str,
        tenant: TenantId,
    ) -> Result<Watch, u64> {
        let now = self.clock.now();
        let (permit, transitions) = self.breakers.pass(upstream, model, tenant, now.monotonic_ms)?;
        self.tell(transitions, now);
        Ok(Watch {
            gateway: Arc::clone(self),
            permit,
        })
    }

    /// What breakers do, but for those that let everybody through.
    pub(crate) fn breaker_statuses(&self, now: Now) -> Vec<BreakerStatus> {
        let held_back = self.breakers.held_back(now.monotonic_ms);
        held_back
            .into_iter()
            .map(|held| BreakerStatus {
                upstream_id: held.upstream,
                upstream_model: held.model.map(|model| model.to_string()),
                state: held.state,
                since: wall_of(held.since_ms, now),
                until: held.until_ms.map(|until_ms| wall_of(until_ms, now)),
                reason: held.reason.to_string(),
            })
            .collect()
    }

    /// Forgets what is known of upstreams that are gone or others by now: a new credential is tried at once.
    pub(crate) fn forget_changed_upstreams(&self, before: &PolicySnapshot, after: &PolicySnapshot) {
        for was in before.upstreams() {
            let is = after.find_upstream(was.upstream.id);
            if is.is_none_or(|is| is.upstream != was.upstream) {
                self.breakers.forget(was.upstream.id);
            }
        }
    }

    /// The one place where a breaker's change is told: log, metric, alert, and whoever waits for the upstream.
    fn tell(&self, transitions: Vec<Transition>, now: Now) {
        for transition in transitions {
            let policy = self.keeper.current();
            let upstream = policy
                .as_ref()
                .and_then(|policy| Some(policy.find_upstream(transition.upstream)?.upstream.name.clone()))
                .unwrap_or_else(|| transition.upstream.to_string());
            let status = BreakerStatus {
                upstream_id: transition.upstream,
                upstream_model: transition.model.map(|model| model.to_string()),
                state: transition.to,
                since: now.wall,
                until: transition.until_ms.map(|until_ms| wall_of(until_ms, now)),
                reason: transition.reason.to_string(),
            };
            log(&upstream, transition.from, &status);
            metrics::breaker_turned(&upstream, status.state);
            self.alerts.breaker(&upstream, &status);
            if status.state == BreakerState::Closed {
                self.queue.stir_all(now);
            }
        }
    }
}

fn log(upstream: &str, from: BreakerState, status: &BreakerStatus) {
    macro_rules! say {
        ($level:ident, $text:literal) => {
            tracing::$level!(
                upstream,
                model = status.upstream_model,
                from = from.as_str(),
                to = status.state.as_str(),
                until = status.until.map(|until| until.to_rfc3339()),
                reason = status.reason,
                $text
            )
        };
    }
    match status.state {
        BreakerState::Open => say!(warn, "an upstream is left alone"),
        BreakerState::Cooling => say!(info, "an upstream has reached its own limit"),
        BreakerState::HalfOpen => say!(info, "an upstream is tried again"),
        BreakerState::Closed => say!(info, "an upstream is in use again"),
    }
}

/// The instant of a reading of the monotonic clock.
fn wall_of(monotonic_ms: u64, now: Now) -> DateTime<Utc> {
    let ahead_ms = i128::from(monotonic_ms) - i128::from(now.monotonic_ms);
    let ahead = i64::try_from(ahead_ms).ok().and_then(TimeDelta::try_milliseconds);
    ahead
        .and_then(|ahead| now.wall.checked_add_signed(ahead))
        .unwrap_or(now.wall)
}

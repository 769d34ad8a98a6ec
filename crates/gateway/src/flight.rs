//! One authenticated request, from its arrival to its one ledger row.
//!
//! A flight ends exactly once: refused, settled, or by being dropped, which is how a caller that leaves early and a
//! panic end it. Whatever happens, one row is journalled and the hold is given back or settled.

use std::sync::Arc;
use std::time::Instant;

use chrono::{DateTime, Utc};
use domain::estimate::{Amounts, Estimate};
use domain::ids::{RequestId, UpstreamId};
use domain::ledger::{
    Attempt, HoldRecord, Identity, JournalRecord, Outcome, Rejection, Settlement, USER_AGENT_CHARS_MAX,
};
use domain::money::Nanos;
use domain::policy::Dialect;
use domain::refusals::RefusalCode;
use domain::usage::{TokenUsage, UsageSource};
use http::HeaderMap;
use limits::{Hold, Now, ScopeLimits, Tightest};
use protocol::headers;

use crate::Gateway;
use crate::authenticate::Caller;
use crate::case::Case;
use crate::clock::between_ms;
use crate::idempotency::{Orphan, Recording};
use crate::metrics;
use crate::pricing::Pricing;
use crate::refusal::Refusal;
use crate::upstream_health::Watch;

/// The receipt of one request. Not ending it is a bug that its drop makes good.
#[must_use = "a flight must be refused or settled"]
pub(crate) struct Flight {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) caller: Caller,
    pub(crate) identity: Identity,
    pub(crate) arrived: Now,
    /// The same moment, finer than the clock tells it: for the latency that is added.
    pub(crate) began: Instant,
    pub(crate) estimate: Estimate,
    /// What the estimate can be learned from later: the unlearned guess of the input, and the choices asked for.
    pub(crate) learning: (u64, u32),
    /// When it was read, and there was nothing left to wait for but room.
    ready: Now,
    caller_retries: Option<i32>,
    /// Leave of the breakers for the first try.
    watch: Option<Watch>,
    /// What its caller is answered, if it may ask for that again.
    recording: Option<Recording>,
    admitted: Option<Admitted>,
    has_ended: bool,
}

/// What a flight carries once it is admitted.
struct Admitted {
    hold: Hold,
    /// The nodes it counts in.
    scopes: Arc<[ScopeLimits]>,
    at: Now,
    pricing: Pricing,
    queue_ms: i64,
    upstream_id: Option<UpstreamId>,
    upstream_model: Option<String>,
    upstream_request_id: Option<String>,
    attempts: Vec<Attempt>,
    first_byte_ms: Option<i64>,
    status: Option<u16>,
    /// What is known of the usage so far, for an ending nobody planned.
    usage_so_far: Option<TokenUsage>,
    is_sent: bool,
    /// Tries that may have cost something and were followed by another: the provider never said what.
    lost_tries: u64,
}

/// How a request that ran has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) outcome: Outcome,
    pub(crate) usage: TokenUsage,
    pub(crate) usage_source: UsageSource,
}

impl Ending {
    /// Nothing was used.
    pub(crate) fn unused(outcome: Outcome) -> Self {
        Self {
            outcome,
            usage: TokenUsage::default(),
            usage_source: UsageSource::None,
        }
    }

    /// The same, and so many tries that used what was expected, as far as anybody knows.
    fn and_lost(self, tries: u64, expected: &Amounts) -> Self {
        if tries == 0 {
            return self;
        }
        let usage = TokenUsage {
            input_fresh_tokens: self
                .usage
                .input_fresh_tokens
                .saturating_add(expected.input_tokens.saturating_mul(tries)),
            output_tokens: self
                .usage
                .output_tokens
                .saturating_add(expected.output_tokens.saturating_mul(tries)),
            ..self.usage
        };
        Self {
            usage,
            usage_source: UsageSource::Estimated,
            ..self
        }
    }
}

impl Flight {
    /// Takes off: from here on, one row will be written.
    pub(crate) fn new(
        gateway: Arc<Gateway>,
        caller: Caller,
        (dialect, endpoint): (Dialect, &str),
        headers: &HeaderMap,
        arrived: Now,
    ) -> Self {
        let id = RequestId::new(arrived.wall, gateway.random());
        let user_agent = headers
            .get(http::header::USER_AGENT)
            .and_then(|value| value.to_str().ok());
        let identity = Identity {
            id,
            tenant_id: caller.key.tenant_id,
            user_id: caller.key.owner_id.map(|owner| owner.to_string()),
            key_id: caller.key.id,
            model: None,
            dialect,
            endpoint: endpoint.to_owned(),
            priority: caller.key.priority.min(caller.priority_ceiling()),
            is_streamed: false,
            tags: std::collections::BTreeMap::new(),
            instance: gateway.instance.clone(),
            user_agent: user_agent.map(|text| text.chars().take(USER_AGENT_CHARS_MAX).collect()),
            job_id: None,
        };
        let caller_retries = headers::caller_retries(headers);
        gateway.flights.started();
        Self {
            gateway,
            caller,
            identity,
            arrived,
            began: Instant::now(),
            estimate: Estimate::default(),
            learning: (0, 1),
            ready: arrived,
            caller_retries,
            watch: None,
            recording: None,
            admitted: None,
            has_ended: false,
        }
    }

    /// The request.
    pub(crate) fn id(&self) -> RequestId {
        self.identity.id
    }

    /// What its caller speaks.
    pub(crate) fn dialect(&self) -> Dialect {
        self.identity.dialect
    }

    /// It is read: what it waits for from now on is room.
    pub(crate) fn is_ready(&mut self, now: Now) {
        self.ready = now;
    }

    /// Takes leave of the breakers on the case's route `way`. Where that is shut since and another is not, the tries find it.
    ///
    /// # Errors
    /// When all are shut.
    pub(crate) fn pass_breakers(&mut self, case: &Case, way: usize, now: Now) -> Result<(), Refusal> {
        let (route, upstream) = &case.routes[way.min(case.routes.len() - 1)];
        let tenant = self.identity.tenant_id;
        let watch = self
            .gateway
            .watch_upstream(upstream.upstream.id, &route.upstream_model, tenant);
        self.watch = watch.ok();
        if self.watch.is_none()
            && let Some(first_back) = case.first_back(&self.gateway, tenant, now)
        {
            return Err(Refusal::unavailable(first_back, self.gateway.random_unit()));
        }
        Ok(())
    }

    /// The leave that was taken at admission, once.
    pub(crate) fn take_watch(&mut self) -> Option<Watch> {
        self.watch.take()
    }

    /// The tightest limits, for response headers; empty before admission.
    pub(crate) fn tightest(&self) -> Tightest {
        self.admitted
            .as_ref()
            .map(|admitted| admitted.hold.tightest().clone())
            .unwrap_or_default()
    }

    /// Journals the hold, and boards the request with it. From here on it is settled, not refused.
    ///
    /// # Errors
    /// When the journal does not take the hold; then everything is given back.
    pub(crate) fn board(
        &mut self,
        hold: Hold,
        scopes: Arc<[ScopeLimits]>,
        pricing: Pricing,
        upstream: (UpstreamId, String),
        at: Now,
    ) -> Result<(), ledger::AppendError> {
        let queue_ms = between_ms(self.ready, at);
        let record = HoldRecord {
            identity: self.identity.clone(),
            admitted_at: at.wall,
            upstream_id: Some(upstream.0),
            estimate: self.estimate,
            price_id: pricing.price_id(),
            is_unpriced: pricing.is_unpriced,
            queue_ms,
        };
        self.gateway.journal.append(&JournalRecord::Hold(Box::new(record)))?;
        self.admitted = Some(Admitted {
            hold,
            scopes,
            at,
            pricing,
            queue_ms,
            upstream_id: Some(upstream.0),
            upstream_model: Some(upstream.1),
            upstream_request_id: None,
            attempts: Vec::new(),
            first_byte_ms: None,
            status: None,
            usage_so_far: None,
            is_sent: false,
            lost_tries: 0,
        });
        Ok(())
    }

    /// Takes the part of the upstream on the case's route `way`, and gives back that of the upstream before; false where
    /// the other has no room. The request's count stays where it was sent.
    pub(crate) async fn switch_upstream(&mut self, case: &Case, way: usize, now: Now) -> bool {
        let admission = case.admission_by(self.id(), way);
        let Some(admitted) = &mut self.admitted else {
            return false;
        };
        let limits = &self.gateway.limits;
        if limits
            .switch_upstream(&mut admitted.hold, &admission, now)
            .await
            .is_err()
        {
            return false;
        }
        let (route, upstream) = &case.routes[way];
        let before = admitted.upstream_id.replace(upstream.upstream.id);
        admitted.upstream_model = Some(route.upstream_model.clone());
        admitted.is_sent = false;
        self.gateway.budgets.want(admitted.hold.unknown_budgets());
        self.gateway.queue.release(|_| false, before.as_slice(), now);
        true
    }

    /// The last try may have cost something, and another follows: it is charged as expected.
    pub(crate) fn charge_lost_try(&mut self) {
        if let Some(admitted) = &mut self.admitted {
            admitted.lost_tries += 1;
        }
    }

    /// What its caller is answered is recorded from now on.
    pub(crate) fn record(&mut self, recording: Recording) {
        self.recording = Some(recording);
    }

    /// A place among those that are followed to their end although their callers have left, because what they are answered
    /// may be asked for again; `None` where it cannot be kept, or too many are.
    pub(crate) fn orphan(&self) -> Option<Orphan> {
        let is_kept = self.recording.as_ref().is_some_and(Recording::may_be_kept);
        is_kept
            .then(|| self.gateway.orphans.take(self.identity.tenant_id))
            .flatten()
    }

    /// The recording, if there is one.
    pub(crate) fn recording(&mut self) -> Option<&mut Recording> {
        self.recording.as_mut()
    }

    /// The same, to be ended apart from the flight.
    pub(crate) fn take_recording(&mut self) -> Option<Recording> {
        self.recording.take()
    }

    /// Bytes are about to go upstream.
    pub(crate) fn mark_sent(&mut self) {
        if let Some(recording) = &mut self.recording {
            recording.mark_sent();
        }
        if let Some(admitted) = &mut self.admitted {
            admitted.hold.mark_sent();
            admitted.is_sent = true;
        }
    }

    /// Notes one try.
    pub(crate) fn note_attempt(&mut self, attempt: Attempt) {
        if let Some(admitted) = &mut self.admitted {
            admitted.attempts.push(attempt);
        }
    }

    /// Says in a word what was wrong with the last try.
    pub(crate) fn blame_attempt(&mut self, error: &str) {
        if let Some(attempt) = self.admitted.as_mut().and_then(|admitted| admitted.attempts.last_mut()) {
            attempt.error = Some(error.to_owned());
        }
    }

    /// Notes the head of the answer: the provider's id of the request and the status the caller is given.
    pub(crate) fn note_head(&mut self, upstream_request_id: Option<String>, status: u16, now: Now) {
        let first_byte_ms = between_ms(self.arrived, now);
        if let Some(admitted) = &mut self.admitted {
            admitted.upstream_request_id = upstream_request_id;
            admitted.status = Some(status);
            admitted.first_byte_ms = Some(first_byte_ms);
        }
    }

    /// The caller was not there any more to be told.
    pub(crate) fn note_caller_gone_before_answer(&mut self) {
        if let Some(admitted) = &mut self.admitted {
            admitted.status = None;
            admitted.first_byte_ms = None;
        }
    }

    /// Notes what is known of the usage, should the ending come unplanned.
    pub(crate) fn note_usage(&mut self, usage: TokenUsage) {
        if let Some(admitted) = &mut self.admitted {
            admitted.usage_so_far = Some(usage);
        }
    }

    /// Extends the leases of the hold and of the idempotency key.
    pub(crate) async fn renew(&self) {
        let now = self.gateway.clock.now();
        if let Some(admitted) = &self.admitted {
            admitted.hold.renew(now).await;
        }
        if let Some(recording) = &self.recording {
            recording.renew(now).await;
        }
    }

    /// Ends it without having run; the row says why. Its idempotency key is free before the caller hears of it.
    pub(crate) async fn refuse(mut self, refusal: &Refusal) {
        self.book_refusal(refusal, refusal.code.status());
        let now = self.gateway.clock.now();
        if let Some(recording) = self.recording.take() {
            recording.release(now).await;
        }
    }

    /// Ends it with an answer that an earlier request was given.
    pub(crate) fn replay(mut self, refusal: &Refusal, status: u16) {
        self.book_refusal(refusal, status);
    }

    fn book_refusal(&mut self, refusal: &Refusal, status: u16) {
        self.has_ended = true;
        let now = self.gateway.clock.now();
        let (denial, place) = (refusal.denial.as_deref(), refusal.place());
        let rejection = Rejection {
            identity: self.identity.clone(),
            refused_at: now.wall,
            code: refusal.code,
            status,
            scope: place.map(|(scope, _)| scope.clone()),
            dimension: place.map(|(_, dimension)| dimension),
            limit_id: denial.map(|denial| denial.limit_id),
            limit_key: denial.map(|denial| denial.limit_key.clone()),
            chain: denial.map(|denial| denial.chain.clone()).unwrap_or_default(),
            message: refusal.message.clone(),
            retry_after_seconds: refusal
                .retry_after_seconds
                .and_then(|seconds| i64::try_from(seconds).ok()),
            caller_retries: self.caller_retries,
            refusal_count: 1,
            early_count: 0,
            expected_input_tokens: self.estimate.expected.input_tokens,
            expected_output_tokens: self.estimate.expected.output_tokens,
            expected_cost_nanos: self.estimate.expected.cost,
            queue_ms: between_ms(self.ready, now),
        };
        metrics::refused(&rejection);
        if rejection.code == RefusalCode::ModelUnpriced
            && let Some(model) = &rejection.identity.model
        {
            self.gateway.alerts.unpriced(model, true);
        }
        self.gateway.rejections.book(&self.gateway.journal, rejection);
    }

    /// Ends it without a row, before it was admitted: a job answers for the request, and has rows of its own.
    pub(crate) fn hand_over(mut self) {
        self.has_ended = true;
    }

    /// Ends it with what it used: counters, budgets and journal. Done before the caller sees the end of the answer, so
    /// that its next request finds the room.
    pub(crate) async fn settle(mut self, ending: Ending) {
        let lost_tries = self.admitted.as_ref().map_or(0, |admitted| admitted.lost_tries);
        if let Some(booked) = self.book(ending) {
            let Booked {
                hold, actual, seq, now, ..
            } = booked;
            hold.settle(actual, seq, now).await;
            booked.freed.tell(&self.gateway, now);
        }
        if let Some(recording) = self.recording.take() {
            // What used nothing may be tried again under the same key.
            if ending.usage_source == UsageSource::None && lost_tries == 0 {
                recording.release(self.gateway.clock.now()).await;
            } else {
                recording.finish(&self.gateway).await;
            }
        }
    }

    /// Writes the row; hands out the hold that is to be settled.
    fn book(&mut self, ending: Ending) -> Option<Booked> {
        self.has_ended = true;
        let now = self.gateway.clock.now();
        let admitted = self.admitted.take();
        let Estimate { expected, ceiling } = self.estimate;
        let lost_tries = admitted.as_ref().map_or(0, |admitted| admitted.lost_tries);
        // Each by itself: a price that rises with the size of a request knows nothing of the sum.
        let lost_cost = expected
            .cost
            .0
            .saturating_mul(i64::try_from(lost_tries).unwrap_or(i64::MAX));
        let cost = admitted
            .as_ref()
            .map_or(Nanos::ZERO, |admitted| admitted.pricing.cost(&ending.usage));
        let cost = Nanos(cost.0.saturating_add(lost_cost));
        let ending = ending.and_lost(lost_tries, &expected);
        let settlement = Settlement {
            identity: self.identity.clone(),
            admitted_at: admitted.as_ref().map_or(self.arrived.wall, |admitted| admitted.at.wall),
            settled_at: now.wall,
            upstream_id: admitted.as_ref().and_then(|admitted| admitted.upstream_id),
            upstream_model: admitted.as_ref().and_then(|admitted| admitted.upstream_model.clone()),
            upstream_request_id: admitted
                .as_ref()
                .and_then(|admitted| admitted.upstream_request_id.clone()),
            outcome: ending.outcome,
            status: admitted.as_ref().and_then(|admitted| admitted.status),
            attempts: admitted
                .as_ref()
                .map(|admitted| admitted.attempts.clone())
                .unwrap_or_default(),
            usage: ending.usage,
            usage_source: ending.usage_source,
            expected_input_tokens: expected.input_tokens,
            expected_output_tokens: expected.output_tokens,
            expected_cost_nanos: expected.cost,
            ceiling_input_tokens: ceiling.input_tokens,
            ceiling_output_tokens: ceiling.output_tokens,
            ceiling_cost_nanos: ceiling.cost,
            cost_nanos: cost,
            overrun_nanos: if admitted.is_some() {
                (cost - ceiling.cost).max(Nanos::ZERO)
            } else {
                Nanos::ZERO
            },
            price_id: admitted.as_ref().and_then(|admitted| admitted.pricing.price_id()),
            is_unpriced: admitted.as_ref().is_some_and(|admitted| admitted.pricing.is_unpriced),
            queue_ms: admitted.as_ref().map_or(0, |admitted| admitted.queue_ms),
            first_byte_ms: admitted.as_ref().and_then(|admitted| admitted.first_byte_ms),
            total_ms: between_ms(self.arrived, now),
            rehearsed: admitted
                .as_ref()
                .map(|admitted| admitted.hold.rehearsed().to_vec())
                .unwrap_or_default(),
        };
        // The row first: nothing that is only told may come between a request and its row.
        let record = JournalRecord::Settlement(Box::new(settlement));
        let seq = crate::rejections::append_or_log(&self.gateway.journal, &record);
        if let JournalRecord::Settlement(settlement) = &record {
            metrics::settled(settlement);
            if settlement.is_unpriced
                && let Some(model) = &settlement.identity.model
            {
                self.gateway.alerts.unpriced(model, false);
            }
            self.gateway
                .estimates
                .learn(settlement, self.learning.0, self.learning.1);
            log_settlement(settlement, &self.caller.key.public_id);
        }
        let actual = Amounts {
            input_tokens: ending.usage.input_tokens(),
            output_tokens: ending.usage.output_tokens,
            cost,
        };
        admitted.map(|admitted| Booked {
            hold: admitted.hold,
            actual,
            seq,
            now,
            freed: Freed {
                scopes: admitted.scopes,
                upstream_id: admitted.upstream_id,
                admitted_at: admitted.at.wall,
            },
        })
    }
}

/// A request whose row is written, and whose hold is to be settled.
struct Booked {
    hold: Hold,
    actual: Amounts,
    seq: Option<u64>,
    now: Now,
    freed: Freed,
}

/// Where a request that has ended gave something back.
struct Freed {
    scopes: Arc<[ScopeLimits]>,
    upstream_id: Option<UpstreamId>,
    admitted_at: DateTime<Utc>,
}

impl Freed {
    /// Whoever waits there may try again, and what was spent is looked at.
    fn tell(&self, gateway: &Gateway, now: Now) {
        gateway.touch_budgets(&self.scopes, self.upstream_id, self.admitted_at);
        let counted_in = |scope: &_| self.scopes.iter().any(|node| node.scope == *scope);
        gateway.queue.release(counted_in, self.upstream_id.as_slice(), now);
    }
}

impl Drop for Flight {
    /// The unplanned endings: a panic, or a handler dropped because its caller left or the process stops.
    fn drop(&mut self) {
        if !self.has_ended {
            let outcome = if std::thread::panicking() || self.gateway.ending.is_cancelled() {
                Outcome::GatewayError
            } else {
                Outcome::ClientClosed
            };
            let (is_sent, so_far) = self
                .admitted
                .as_ref()
                .map_or((false, None), |admitted| (admitted.is_sent, admitted.usage_so_far));
            let expected = self.estimate.expected;
            let ending = if is_sent {
                // The provider may have worked: what was seen of it, or else what was expected.
                let usage = so_far.unwrap_or(TokenUsage {
                    input_fresh_tokens: expected.input_tokens,
                    output_tokens: expected.output_tokens,
                    ..TokenUsage::default()
                });
                Ending {
                    outcome,
                    usage,
                    usage_source: UsageSource::Estimated,
                }
            } else {
                Ending::unused(outcome)
            };
            if let Some(booked) = self.book(ending) {
                let Booked {
                    hold, actual, seq, now, ..
                } = booked;
                hold.settle_later(actual, seq, now);
                booked.freed.tell(&self.gateway, now);
            }
        }
        self.gateway.flights.ended();
    }
}

pub(crate) fn log_settlement(settlement: &Settlement, key: &str) {
    tracing::info!(
        target: "tollgate::ledger",
        request_id = %settlement.identity.id,
        tenant_id = %settlement.identity.tenant_id,
        key,
        user_id = settlement.identity.user_id.as_deref(),
        model = settlement.identity.model.as_deref(),
        priority = settlement.identity.priority.as_str(),
        outcome = settlement.outcome.as_str(),
        status = settlement.status,
        input_tokens = settlement.usage.input_tokens(),
        output_tokens = settlement.usage.output_tokens,
        usage_source = settlement.usage_source.as_str(),
        cost_nanos = settlement.cost_nanos.0,
        queue_ms = settlement.queue_ms,
        first_byte_ms = settlement.first_byte_ms,
        total_ms = settlement.total_ms,
        "settled"
    );
}

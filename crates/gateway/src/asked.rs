//! A request as it was read: understood once, and judged as often as it must be.
//!
//! A request that waits is judged again at every try: its key may have been revoked meanwhile, its limits raised, its
//! model's price changed.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use domain::ids::KeyId;
use domain::priority::Priority;
use domain::refusals::RefusalCode;
use http::HeaderMap;
use limits::Now;
use protocol::endpoint::Endpoint;
use protocol::headers;
use protocol::request::InferenceRequest;

use crate::authenticate::{Caller, Unauthenticated};
use crate::case::{self, Case};
use crate::estimates::RequestEstimate;
use crate::flight::Flight;
use crate::policy::{ModelPolicy, RequestUser};
use crate::pricing::Pricing;
use crate::refusal::Refusal;
use crate::room::Taken;
use crate::{Gateway, body};

/// A request that was understood.
pub(crate) struct Asked {
    pub(crate) request: Arc<InferenceRequest>,
    /// As the caller sent them.
    pub(crate) headers: HeaderMap,
    /// The bytes in memory that the body stands for.
    pub(crate) room: Taken,
    presented: Presented,
    estimate: Option<(Arc<ModelPolicy>, RequestEstimate)>,
}

/// How the caller is known.
enum Presented {
    /// By the key in the headers.
    Key,
    /// By the key that it was accepted with before; what it runs at is at most this.
    Before(KeyId, Priority),
}

/// What is made of a request under the policy in force. The flight knows the rest: caller, user, priority, estimate.
pub(crate) struct Judged {
    pub(crate) case: Case,
    pub(crate) user: RequestUser,
    pub(crate) model: Arc<ModelPolicy>,
    pub(crate) pricing: Pricing,
    /// The output cap per choice, in tokens.
    pub(crate) output_cap_tokens: u64,
}

impl Asked {
    /// Reads and inspects a body. Notes the caller's tags and priority on the flight.
    pub(crate) async fn read(
        flight: &mut Flight,
        headers: HeaderMap,
        endpoint: Endpoint,
        body: Body,
    ) -> Result<Self, Refusal> {
        flight.identity.tags = headers::tags(&headers).map_err(invalid)?;
        flight.identity.priority = case::priority(&flight.caller, headers::priority(&headers).map_err(invalid)?);
        let (body, room) = body::read(&flight.gateway.room, body).await?;
        Self::inspect(flight, headers, endpoint, &body, room, Presented::Key)
    }

    /// The same of a request that was accepted before, with this key, to be run at `priority_max` or below.
    pub(crate) fn read_again(
        flight: &mut Flight,
        (key, priority_max): (KeyId, Priority),
        headers: HeaderMap,
        endpoint: Endpoint,
        body: &Bytes,
    ) -> Result<Self, Refusal> {
        flight.identity.tags = headers::tags(&headers).map_err(invalid)?;
        let mut room = flight.gateway.room.take_none();
        room.grow(body.len() * body::COPIES_PER_BODY)
            .map_err(|_| body::no_room())?;
        let presented = Presented::Before(key, priority_max);
        Self::inspect(flight, headers, endpoint, body, room, presented)
    }

    fn inspect(
        flight: &mut Flight,
        headers: HeaderMap,
        endpoint: Endpoint,
        body: &Bytes,
        room: Taken,
        presented: Presented,
    ) -> Result<Self, Refusal> {
        let request = InferenceRequest::inspect(endpoint, body).map_err(|error| Refusal {
            param: error.param(),
            ..invalid(error)
        })?;
        flight.identity.is_streamed = request.is_streamed();
        Ok(Self {
            request: Arc::new(request),
            headers,
            room,
            presented,
            estimate: None,
        })
    }

    /// Whether the caller wants to hear from its stream while it waits for room.
    pub(crate) fn wants_comments(&self) -> bool {
        self.request.is_streamed() && headers::wants_queue_comments(&self.headers)
    }

    /// How long it wants to wait for room, in milliseconds, where the longest wait is `timeout_ms`. Who would rather have an
    /// answer later than wait for it does not wait, unless it says how long; but a stream cannot come later.
    pub(crate) fn patience_ms(&self, timeout_ms: u64) -> u64 {
        let preferences = headers::preferences(&self.headers);
        match preferences.wait {
            Some(wait) => u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).min(timeout_ms),
            None if preferences.responds_async && !self.request.is_streamed() => 0,
            None => timeout_ms,
        }
    }

    /// Judges the request by the policy in force at `now`.
    pub(crate) async fn judge(&mut self, flight: &mut Flight, now: Now) -> Result<Judged, Refusal> {
        let gateway = Arc::clone(&flight.gateway);
        flight.caller = self
            .caller(&gateway, now)
            .map_err(|reason| Refusal::plain(reason.code(), reason.to_string()))?;
        if let Some((code, message)) = flight.caller.refusal_at(now.wall) {
            return Err(Refusal::plain(code, message));
        }
        let asked = headers::priority(&self.headers).map_err(invalid)?;
        let priority = case::priority(&flight.caller, asked);
        flight.identity.priority = match self.presented {
            Presented::Key => priority,
            Presented::Before(_, priority_max) => priority.min(priority_max),
        };
        let in_header = headers::user(&self.headers).map_err(invalid)?;
        let user = case::user(&flight.caller, in_header, self.request.user())?;
        flight.identity.user_id = user.id().map(ToString::to_string);
        let model = case::model(&flight.caller, self.request.model())?;
        flight.identity.model = Some(model.model.name.as_str().into());

        let pricing = Pricing::choose(&model, &flight.caller.policy.settings, now.wall)?;
        let estimate = self.estimate(flight, &model).await?;
        flight.learning = (estimate.guess_tokens, self.request.choices());
        flight.estimate = pricing.estimate(estimate.expected, estimate.ceiling);
        let wanted = (flight.identity.priority, flight.estimate);
        let dialect = self.request.endpoint().dialect();
        let case = Case::new(&gateway, &flight.caller, &user, &model, dialect, wanted, now)?;
        Ok(Judged {
            case,
            user,
            model,
            pricing,
            output_cap_tokens: estimate.output_cap_tokens,
        })
    }

    fn caller(&self, gateway: &Gateway, now: Now) -> Result<Caller, Unauthenticated> {
        match self.presented {
            Presented::Key => gateway.authenticate(&self.headers, now.wall),
            Presented::Before(key, _) => gateway.caller_of(key).ok_or(Unauthenticated::Unknown),
        }
    }

    /// Counted once, unless the model has changed since.
    async fn estimate(&mut self, flight: &Flight, model: &Arc<ModelPolicy>) -> Result<RequestEstimate, Refusal> {
        if let Some((of, estimate)) = &self.estimate
            && Arc::ptr_eq(of, model)
        {
            return Ok(*estimate);
        }
        let estimates = &flight.gateway.estimates;
        let estimate = estimates
            .estimate(&self.request, &model.model, &flight.caller.key)
            .await?;
        self.estimate = Some((Arc::clone(model), estimate));
        Ok(estimate)
    }
}

fn invalid(error: impl std::fmt::Display) -> Refusal {
    Refusal::plain(RefusalCode::InvalidRequest, error.to_string())
}

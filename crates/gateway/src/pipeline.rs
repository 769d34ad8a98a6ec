//! A request, from the door to the provider: authenticate, inspect, estimate, admit, journal, relay. Read this first.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use domain::limits::Dimension;
use domain::priority::Priority;
use domain::refusals::RefusalCode;
use http::HeaderMap;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use limits::{Now, ScopeLimits};
use protocol::headers;
use protocol::openai_chat::ChatRequest;

use crate::authenticate::Caller;
use crate::case::{self, Case};
use crate::flight::Flight;
use crate::outgoing::Outgoing;
use crate::policy::RequestUser;
use crate::pricing::Pricing;
use crate::refusal::Refusal;
use crate::{Gateway, Step, error, metrics, relay, room};

/// The longest body that is read, in bytes. Images travel inside it.
pub const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;
/// How long a caller may take to send its body, in milliseconds.
pub const BODY_READ_MS: u64 = 60_000;
/// How often a body is in memory until its provider answers: as it came, and as it goes up.
const COPIES_PER_BODY: usize = 2;

/// `POST /v1/chat/completions`.
pub(crate) async fn chat_completions(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let mut flight = match take_off(&gateway, &parts.headers, "chat/completions") {
        Ok(flight) => flight,
        Err(response) => return *response,
    };
    match prepare(&mut flight, &parts.headers, body).await {
        Ok(outgoing) => relay::answer(flight, outgoing).await,
        Err(refusal) => refuse(flight, &refusal),
    }
}

/// Any path that is not served: closed, so that nothing goes to a provider unmetered.
pub(crate) async fn unknown_route(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let path = request
        .uri()
        .path()
        .trim_start_matches("/v1/")
        .chars()
        .take(100)
        .collect::<String>();
    let flight = match take_off(&gateway, request.headers(), &path) {
        Ok(flight) => flight,
        Err(response) => return *response,
    };
    let served = "POST /v1/chat/completions, GET /v1/models";
    let message = format!(
        "{} /v1/{path} is not served here. Served are: {served}.",
        request.method()
    );
    refuse(flight, &Refusal::plain(RefusalCode::RouteNotFound, message))
}

/// Finds out who is calling. From here on the request will leave a row.
fn take_off(gateway: &Arc<Gateway>, headers: &HeaderMap, endpoint: &str) -> Result<Flight, Box<Response>> {
    let arrived = gateway.clock.now();
    match gateway.authenticate(headers, arrived.wall) {
        Ok(caller) => Ok(Flight::new(Arc::clone(gateway), caller, endpoint, headers, arrived)),
        Err(reason) => {
            metrics::unauthenticated(reason);
            Err(Box::new(error::unauthenticated(reason)))
        }
    }
}

fn refuse(flight: Flight, refusal: &Refusal) -> Response {
    let response = error::refused(flight.id(), refusal);
    flight.refuse(refusal);
    response
}

/// Everything before the first byte goes upstream.
async fn prepare(flight: &mut Flight, headers: &HeaderMap, body: Body) -> Result<Outgoing, Refusal> {
    let gateway = Arc::clone(&flight.gateway);
    if let Some((code, message)) = flight.caller.refusal_at(flight.arrived.wall) {
        return Err(Refusal::plain(code, message));
    }

    // Inspect.
    flight.identity.tags = headers::tags(headers).map_err(invalid)?;
    flight.identity.priority = priority(&flight.caller, headers)?;
    let (body, room) = read_body(&gateway, body).await?;
    let request = ChatRequest::inspect(&body).map_err(|error| Refusal {
        param: error.param(),
        ..invalid(error)
    })?;
    drop(body);

    // A body may take a minute. Key, limits, prices and period are those of the moment it is there.
    let now = gateway.clock.now();
    flight.caller = gateway
        .authenticate(headers, now.wall)
        .map_err(|reason| Refusal::plain(reason.code(), reason.to_string()))?;
    if let Some((code, message)) = flight.caller.refusal_at(now.wall) {
        return Err(Refusal::plain(code, message));
    }
    flight.identity.priority = priority(&flight.caller, headers)?;
    flight.identity.is_streamed = request.is_streamed();
    let in_header = headers::user(headers).map_err(invalid)?;
    let user = case::user(&flight.caller, in_header, request.user())?;
    flight.identity.user_id = user.id().map(ToString::to_string);
    let model = case::model(&flight.caller, request.model())?;
    flight.identity.model = Some(model.model.name.as_str().into());

    // Estimate.
    let pricing = Pricing::choose(&model, &flight.caller.policy.settings, now.wall)?;
    let request = Arc::new(request);
    let estimate = gateway
        .estimates
        .estimate(&request, &model.model, &flight.caller.key)
        .await?;
    flight.learning = (estimate.guess_tokens, request.choices());
    flight.estimate = pricing.estimate(estimate.expected, estimate.ceiling);

    // Admit.
    let asked = (flight.identity.priority, flight.estimate);
    let case = Case::new(&flight.caller, &user, &model, asked, gateway.random_u64())?;
    note_end_user(&gateway, &user, &case.scopes, now)?;
    let hold = gateway
        .admit(&case.admission(flight.id()), now)
        .await
        .map_err(|denial| Refusal::from_denial(denial, gateway.random_unit()))?;
    gateway.after_admission(flight.id(), Step::Admitted);

    // Journal.
    let (route, upstream) = &case.routes[hold.upstream().unwrap_or(0).min(case.routes.len() - 1)];
    let taken = (upstream.upstream.id, route.upstream_model.clone());
    flight.board(hold, pricing, taken, now).map_err(|error| {
        tracing::error!(%error, "the journal takes no more entries; requests are refused");
        case::ledger_full()
    })?;

    let has_strict_budgets = flight.caller.tenant.tenant.has_strict_budgets;
    let mut outgoing = Outgoing {
        upstream: Arc::clone(upstream),
        upstream_model: route.upstream_model.clone(),
        endpoint: "chat/completions",
        headers: headers::upstream_request_headers(headers),
        body: Bytes::new(),
        shows_usage: request.includes_usage(),
        total_ms: seconds_cap(&case.scopes, &model.model.name, flight.identity.priority).map(|seconds| seconds * 1_000),
        asks_for_usage: gateway.quirks.can_ask_for_usage(upstream.upstream.id, now.monotonic_ms),
        output_cap_tokens: has_strict_budgets.then_some(estimate.output_cap_tokens),
        request,
        _room: room,
    };
    outgoing.write_body();
    Ok(outgoing)
}

fn invalid(error: impl std::fmt::Display) -> Refusal {
    Refusal::plain(RefusalCode::InvalidRequest, error.to_string())
}

/// What it runs at; the header may lower it.
fn priority(caller: &Caller, headers: &HeaderMap) -> Result<Priority, Refusal> {
    let asked = headers::priority(headers).map_err(invalid)?;
    Ok(case::priority(caller, asked))
}

/// The whole body, with the room that it takes until the provider has it.
async fn read_body(gateway: &Gateway, body: Body) -> Result<(Bytes, room::Taken), Refusal> {
    let mut body = Limited::new(body, BODY_BYTES_MAX);
    let mut room = gateway.room.take_none();
    let whole = async {
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(Unread::Broken)?.into_data() else {
                continue;
            };
            room.grow(data.len() * COPIES_PER_BODY).map_err(|_| Unread::NoRoom)?;
            whole.extend_from_slice(&data);
        }
        Ok(whole.freeze())
    };
    let read = tokio::time::timeout(Duration::from_millis(BODY_READ_MS), whole).await;
    match read {
        Ok(Ok(body)) => Ok((body, room)),
        Ok(Err(Unread::NoRoom)) => Err(Refusal::plain(
            RefusalCode::Overloaded,
            "The gateway carries as many bytes at once as it can. Retry shortly.",
        )),
        Ok(Err(Unread::Broken(error))) if error.is::<LengthLimitError>() => Err(Refusal::plain(
            RefusalCode::BodyTooLarge,
            format!(
                "The body is larger than {} MiB. Make the prompt or its images smaller.",
                BODY_BYTES_MAX >> 20
            ),
        )),
        Ok(Err(Unread::Broken(_))) => Err(Refusal::plain(
            RefusalCode::InvalidRequest,
            "The body ended before its announced length.",
        )),
        Err(_) => Err(Refusal::plain(
            RefusalCode::InvalidRequest,
            format!("The body did not arrive within {} s.", BODY_READ_MS / 1_000),
        )),
    }
}

/// Why there is no whole body.
enum Unread {
    Broken(axum::BoxError),
    NoRoom,
}

/// An end user whose use is limited has counters of its own, and there is room for so many of them.
fn note_end_user(gateway: &Gateway, user: &RequestUser, scopes: &[ScopeLimits], now: Now) -> Result<(), Refusal> {
    let Some((tenant, name)) = case::limited_end_user(user, scopes) else {
        return Ok(());
    };
    let counted = |scope: &_| gateway.limits.has_counters(scope, now);
    gateway
        .end_users
        .note(tenant, &name, now.monotonic_ms, counted)
        .map_err(|_| case::too_many_end_users())
}

/// The shortest limit on a request's duration, in seconds.
fn seconds_cap(scopes: &[ScopeLimits], model: &str, priority: Priority) -> Option<u64> {
    scopes
        .iter()
        .flat_map(|scope| scope.limits.iter())
        .filter(|limit| limit.dimension == Dimension::RequestSeconds && limit.applies_to(model, priority))
        .map(|limit| limit.value)
        .min()
}

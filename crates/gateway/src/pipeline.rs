//! A request, from the door to the provider: authenticate, read, judge, admit or wait, journal, relay. Read this first.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use domain::limits::Dimension;
use domain::policy::Dialect;
use domain::priority::Priority;
use domain::refusals::RefusalCode;
use http::{HeaderMap, Method};
use limits::{Hold, Now, ScopeLimits};
use protocol::endpoint::Endpoint;
use protocol::headers;

use crate::asked::{Asked, Judged};
use crate::case;
use crate::flight::Flight;
use crate::idempotency::{self, Begun};
use crate::outgoing::Outgoing;
use crate::policy::RequestUser;
use crate::refusal::Refusal;
use crate::waiting::{self, Admitted, First, Waiting};
use crate::{Gateway, Step, comments, error, jobs, metrics, relay};

/// A call of a provider's API that is served.
pub(crate) async fn infer(endpoint: Endpoint, gateway: Arc<Gateway>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let called = (endpoint.dialect(), endpoint.path());
    let flight = match take_off(&gateway, &parts.headers, called) {
        Ok(flight) => flight,
        Err(response) => return *response,
    };
    let ends_at = flight.caller.ends_soon_at(flight.arrived.wall);
    let mut response = fly(flight, endpoint, parts.headers, body).await;
    error::set_key_expires(response.headers_mut(), ends_at);
    response
}

async fn fly(mut flight: Flight, endpoint: Endpoint, headers: HeaderMap, body: Body) -> Response {
    let mut asked = match read(&mut flight, headers, endpoint, body).await {
        Ok(asked) => asked,
        Err(refusal) => return refuse(flight, &refusal).await,
    };
    match idempotency::begin(&mut flight, &asked).await {
        Begun::Runs => {}
        Begun::Refused(refusal) => return refuse(flight, &refusal).await,
        Begun::Answered(answer) => return idempotency::replay(flight, *answer),
    }
    match waiting::first(&mut flight, &mut asked).await {
        Ok(First::Admitted(admitted)) => run(flight, asked, *admitted).await,
        Ok(First::Waits(waiting)) if asked.wants_comments() => comments::answer(flight, asked, waiting),
        Ok(First::Waits(waiting)) => wait(flight, asked, waiting).await,
        Err(refusal) => degrade_or_refuse(flight, &asked, &refusal).await,
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
    let dialect = headers::dialect(request.headers());
    let flight = match take_off(&gateway, request.headers(), (dialect, &path)) {
        Ok(flight) => flight,
        Err(response) => return *response,
    };
    let served: Vec<String> = Endpoint::ALL
        .iter()
        .map(|endpoint| format!("POST /v1/{endpoint}"))
        .collect();
    let served = served.join(", ");
    let method = request.method();
    let (code, why) = if Endpoint::find(&path).is_some() || method != Method::POST {
        (RefusalCode::RouteNotFound, "is not served here")
    } else {
        // It may well be a provider's: but what cannot be metered is closed.
        (RefusalCode::UnmeteredRoute, "is not metered here, and therefore closed")
    };
    let message =
        format!("{method} /v1/{path} {why}. Served are: {served}, GET /v1/models, GET /v1/jobs, GET /v1/key.");
    refuse(flight, &Refusal::plain(code, message)).await
}

/// Finds out who is calling. From here on the request will leave a row.
fn take_off(gateway: &Arc<Gateway>, headers: &HeaderMap, called: (Dialect, &str)) -> Result<Flight, Box<Response>> {
    let arrived = gateway.clock.now();
    match gateway.authenticate(headers, arrived.wall) {
        Ok(caller) => Ok(Flight::new(Arc::clone(gateway), caller, called, headers, arrived)),
        Err(reason) => {
            metrics::unauthenticated(reason);
            Err(Box::new(error::unauthenticated(called.0, reason)))
        }
    }
}

async fn refuse(flight: Flight, refusal: &Refusal) -> Response {
    let response = error::refused(flight.dialect(), flight.id(), refusal);
    flight.refuse(refusal).await;
    response
}

/// Gives the caller a job, if it agrees, and refuses otherwise.
async fn degrade_or_refuse(flight: Flight, asked: &Asked, refusal: &Refusal) -> Response {
    match jobs::degrade(flight, asked, refusal).await {
        Ok(response) => response,
        Err(flight) => refuse(*flight, refusal).await,
    }
}

/// The request, as far as it can be read without asking anybody.
async fn read(flight: &mut Flight, headers: HeaderMap, endpoint: Endpoint, body: Body) -> Result<Asked, Refusal> {
    match flight.caller.refusal_at(flight.arrived.wall) {
        Some((code, message)) => Err(Refusal::plain(code, message)),
        // A body may take a minute. Key, limits, prices and period are those of the moment it is there.
        None => Asked::read(flight, headers, endpoint, body).await,
    }
}

/// Waits for room, and runs then.
pub(crate) async fn wait(mut flight: Flight, mut asked: Asked, waiting: Waiting) -> Response {
    match waiting.admitted(&mut flight, &mut asked).await {
        Ok(admitted) => run(flight, asked, admitted).await,
        Err(refusal) => degrade_or_refuse(flight, &asked, &refusal).await,
    }
}

/// Sends what was admitted to its provider, and answers with what comes back.
async fn run(mut flight: Flight, asked: Asked, admitted: Admitted) -> Response {
    match board(&mut flight, asked, admitted) {
        Ok(outgoing) => relay::answer(flight, outgoing).await,
        Err((asked, refusal)) => degrade_or_refuse(flight, &asked, &refusal).await,
    }
}

/// Asks the limits, once, and then the breakers of the upstream that they chose: of those who find one half-open at the same
/// time, only a few may pass.
pub(crate) async fn admit(flight: &mut Flight, judged: &Judged, now: Now) -> Result<Hold, Refusal> {
    let gateway = Arc::clone(&flight.gateway);
    note_end_user(&gateway, &judged.user, &judged.case.scopes, now)?;
    let hold = gateway
        .admit(&judged.case.admission(flight.id()), now)
        .await
        .map_err(|denial| Refusal::from_denial(denial, gateway.random_unit()))?;
    gateway.after_admission(flight.id(), Step::Admitted);
    if let Err(refusal) = flight.pass_breakers(&judged.case, hold.upstream().unwrap_or(0), now) {
        hold.refund(now).await;
        return Err(refusal);
    }
    Ok(hold)
}

/// Journals the hold of a request that was admitted, and makes of it what goes to the provider.
///
/// # Errors
/// With the request, when the journal does not take the hold.
pub(crate) fn board(
    flight: &mut Flight,
    asked: Asked,
    admitted: Admitted,
) -> Result<Outgoing, (Box<Asked>, Box<Refusal>)> {
    let Admitted { judged, hold, at } = admitted;
    let Judged { case, model, .. } = judged;
    let way = hold.upstream().unwrap_or(0).min(case.routes.len() - 1);
    let (route, upstream) = &case.routes[way];
    let (upstream, upstream_model) = (upstream.upstream.id, route.upstream_model.clone());
    let total_ms =
        seconds_cap(&case.scopes, &model.model.name, flight.identity.priority, at.wall).map(|seconds| seconds * 1_000);
    let boarded = flight.board(
        hold,
        Arc::clone(&case.scopes),
        judged.pricing,
        (upstream, upstream_model),
        at,
    );
    if let Err(error) = boarded {
        tracing::error!(%error, "the journal takes no more entries; requests are refused");
        return Err((Box::new(asked), Box::new(case::ledger_full())));
    }

    let has_strict_budgets = flight.caller.tenant.tenant.has_strict_budgets;
    let quirks = &flight.gateway.quirks;
    let mut outgoing = Outgoing {
        asks_for_usage: quirks.can_ask_for_usage(upstream, at.monotonic_ms),
        case,
        way,
        headers: headers::upstream_request_headers(flight.dialect(), &asked.headers),
        body: Bytes::new(),
        shows_usage: asked.request.includes_usage(),
        total_ms,
        output_cap_tokens: has_strict_budgets.then_some(judged.output_cap_tokens),
        request: asked.request,
        _room: asked.room,
    };
    outgoing.write_body();
    Ok(outgoing)
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

/// The shortest limit on a request's duration that is in force at `at`, in seconds.
fn seconds_cap(scopes: &[ScopeLimits], model: &str, priority: Priority, at: DateTime<Utc>) -> Option<u64> {
    scopes
        .iter()
        .flat_map(|scope| scope.limits.iter())
        .filter(|limit| limit.dimension == Dimension::RequestSeconds && limit.applies_to(model, priority))
        .map(|limit| limit.value_at(at))
        .min()
}

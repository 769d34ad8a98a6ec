//! Tries at upstreams, one after the other until one answers: all of them before the caller has seen a byte.
//!
//! A failed try is followed by another where that may help, at an upstream that was not tried yet, else at the same one
//! after a pause; as long as there are tries, time and a retry in the budget of all requests left. Each try holds its
//! upstream's part alone, and passes that upstream's breakers.

use std::time::Duration;

use domain::ledger::Attempt;
use http::{Method, StatusCode};
use limits::{RoomLeft, UpstreamRoom};
use protocol::account_headers::{self, AccountRoom, Left};
use protocol::errors::{UPSTREAM_ERROR_BYTES_MAX, UpstreamError};
use protocol::headers;
use tokio::time::{Instant, timeout};
use upstream::breaker::{Failure, FailureKind};
use upstream::{BACKOFF_MAX_MS, ResponseBody, SendError, backoff_ms};

use super::{Head, Unwanted, read_up_to, while_wanted};
use crate::case;
use crate::clock::between_ms;
use crate::flight::Flight;
use crate::metrics::{self, Again};
use crate::outgoing::Outgoing;
use crate::upstream_health::Watch;
use crate::{Gateway, Step};

/// How often a request is sent at most. That a provider does not know an option and is asked without it is not counted.
pub const ATTEMPTS_MAX: u32 = 3;
/// How long a request waits at most for the only account that serves it to have room again, in milliseconds.
const ACCOUNT_WAIT_MS_MAX: u64 = 10_000;
/// By how much later those who wait for an account come back at most, in milliseconds.
const ACCOUNT_JITTER_MS_MAX: u64 = 1_000;

/// How long what a provider says is left of an account stands without a newer word, in milliseconds. An account that is
/// truly empty says so again, with 429 and until when.
const ACCOUNT_WORD_MS_MAX: u64 = 2_000;
/// How long the text of an error is waited for, in milliseconds: its status has said what matters.
const ERROR_READ_MS: u64 = 2_000;

/// What came of all tries.
pub(super) enum Tried {
    /// A proper answer has begun.
    Answered(Box<(http::Response<ResponseBody>, Watch)>),
    /// The last one failed.
    Failed(Failed),
    /// Nobody waits any more.
    Unwanted(Unwanted),
    /// There was none: since admission, breakers have opened. One may be tried in so many milliseconds.
    NotSent(u64),
}

/// How a try failed.
pub(super) enum Failed {
    /// No answer.
    NoAnswer(SendError),
    /// An error, and what it says.
    Error(Box<http::response::Parts>, UpstreamError),
}

struct Tries {
    began: Instant,
    /// What all of them together may take, in milliseconds.
    total_ms: u64,
    sent: u32,
    /// By the numbers of the case's routes.
    has_tried: Vec<bool>,
}

/// Sends the request until somebody answers or it is of no use.
pub(super) async fn until_answered(flight: &mut Flight, outgoing: &mut Outgoing, head: &mut Head) -> Tried {
    let client_ms = flight.gateway.client.timeouts().total_ms;
    let mut tries = Tries {
        began: Instant::now(),
        total_ms: outgoing.total_ms.unwrap_or(u64::MAX).min(client_ms),
        sent: 0,
        has_tried: vec![false; outgoing.case.routes.len()],
    };
    let mut watch = match tries.first(flight, outgoing).await {
        Ok(watch) => watch,
        Err(wait_ms) => return Tried::NotSent(wait_ms),
    };
    flight.gateway.retries.deposit(flight.identity.tenant_id);
    loop {
        tries.has_tried[outgoing.way] = true;
        tries.sent += 1;
        flight.mark_sent();
        if tries.sent == 1 {
            metrics::added(flight.began.elapsed());
            flight.gateway.after_admission(flight.id(), Step::Sending);
        }
        let failed = match tries.send(flight, outgoing, head, &mut watch).await {
            Ok(response) => return Tried::Answered(Box::new((response, watch))),
            Err(NoResponse::Unwanted(reason)) => return Tried::Unwanted(reason),
            Err(NoResponse::Failed(failed)) => failed,
        };
        match tries.again(flight, outgoing, head, &failed).await {
            Some(next) => watch = next,
            None => return Tried::Failed(failed),
        }
    }
}

/// Why a try brought no response.
enum NoResponse {
    Unwanted(Unwanted),
    Failed(Failed),
}

impl Tries {
    /// Leave for the first try: where admission sent it, or elsewhere if that was shut since.
    async fn first(&self, flight: &mut Flight, outgoing: &mut Outgoing) -> Result<Watch, u64> {
        if let Some(watch) = flight.take_watch() {
            return Ok(watch);
        }
        let until_ms = match pass(flight, outgoing, outgoing.way) {
            Ok(watch) => return Ok(watch),
            Err(until_ms) => until_ms,
        };
        let taken = outgoing.way;
        for way in (0..outgoing.case.routes.len()).filter(|way| *way != taken) {
            if let Some(watch) = go(flight, outgoing, way).await {
                return Ok(watch);
            }
        }
        let now = flight.gateway.clock.now();
        Err(until_ms.saturating_sub(now.monotonic_ms))
    }

    /// One try, told to the breakers, and what its answer says of the account.
    async fn send(
        &self,
        flight: &mut Flight,
        outgoing: &mut Outgoing,
        head: &mut Head,
        watch: &mut Watch,
    ) -> Result<http::Response<ResponseBody>, NoResponse> {
        loop {
            let sent_ms = flight.gateway.clock.now().monotonic_ms;
            let response = match self.exchange(flight, outgoing, head).await {
                Ok(Ok(response)) => response,
                Ok(Err(error)) => {
                    if let Some(kind) = self.failure_of(&error, &flight.gateway) {
                        watch.failed(Failure {
                            kind,
                            retry_after_ms: None,
                        });
                    }
                    return Err(NoResponse::Failed(Failed::NoAnswer(error)));
                }
                Err(reason) => return Err(NoResponse::Unwanted(reason)),
            };
            hear_of_account(flight, outgoing, response.headers(), sent_ms).await;
            if response.status().is_success() {
                watch.answered();
                return Ok(response);
            }

            let (parts, mut body) = response.into_parts();
            let may_be_about_usage = matches!(parts.status, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY);
            if !may_be_about_usage {
                tell_status(watch, &parts, flight);
            }
            let reading = timeout(
                Duration::from_millis(ERROR_READ_MS),
                read_up_to(&mut body, UPSTREAM_ERROR_BYTES_MAX),
            );
            // An error costs nothing, so it is all the same whether its text is still waited for.
            let read = while_wanted(flight, head, reading).await;
            let told = UpstreamError::read(&read.ok().and_then(Result::ok).unwrap_or_default());
            let is_about_usage = may_be_about_usage && outgoing.asks_for_usage() && told.is_about_stream_options();
            if !is_about_usage {
                if may_be_about_usage {
                    tell_status(watch, &parts, flight);
                }
                return Err(NoResponse::Failed(Failed::Error(Box::new(parts), told)));
            }
            // Once: the next request does not ask, so its refusal cannot be about that.
            flight.blame_attempt("stream_options");
            let now_ms = flight.gateway.clock.now().monotonic_ms;
            flight
                .gateway
                .quirks
                .refused_usage(outgoing.upstream().upstream.id, now_ms);
            outgoing.ask_without_usage();
        }
    }

    /// One exchange, noted on the row.
    async fn exchange(
        &self,
        flight: &mut Flight,
        outgoing: &Outgoing,
        head: &mut Head,
    ) -> Result<Result<http::Response<ResponseBody>, SendError>, Unwanted> {
        let sent = flight.gateway.clock.now();
        let client = flight.gateway.client.clone();
        let upstream = outgoing.upstream();
        let request = upstream::Request {
            method: Method::POST,
            base_url: &upstream.upstream.base_url,
            endpoint: outgoing.request.endpoint().path(),
            dialect: upstream.upstream.dialect,
            credential: upstream.credential.as_deref(),
            headers: outgoing.headers.clone(),
            body: outgoing.body.clone(),
        };
        let answer = while_wanted(flight, head, client.send(request, Some(self.left_ms()))).await;
        let now = flight.gateway.clock.now();
        let (status, error) = match &answer {
            Ok(Ok(response)) => (Some(response.status().as_u16()), None),
            Ok(Err(error)) => (None, Some(error.as_str())),
            Err(reason) => (None, Some(reason.as_str())),
        };
        flight.note_attempt(Attempt {
            upstream_id: upstream.upstream.id,
            upstream_model: outgoing.upstream_model().to_owned(),
            status,
            error: error.map(str::to_owned),
            first_byte_ms: between_ms(sent, now),
        });
        answer
    }

    /// Leave for another try after one that failed, with everything made ready for it; `None` where there is none to be.
    async fn again(
        &self,
        flight: &mut Flight,
        outgoing: &mut Outgoing,
        head: &mut Head,
        failed: &Failed,
    ) -> Option<Watch> {
        let is_over = self.sent >= ATTEMPTS_MAX || self.left_ms() == 0 || is_unwanted(flight, head);
        if is_over || !self.is_worth_another(failed, flight) {
            return None;
        }
        let others: Vec<usize> = (0..outgoing.case.routes.len())
            .filter(|way| !self.has_tried[*way] && may_pass(flight, outgoing, *way))
            .collect();
        let pause_ms = repeats_in_ms(failed, flight, outgoing, self.sent - 1);
        if (others.is_empty() && pause_ms.is_none()) || !flight.gateway.retries.take(flight.identity.tenant_id) {
            return None;
        }
        let may_have_cost = matches!(failed, Failed::NoAnswer(error) if error.may_have_been_sent());
        for way in others {
            let Some(watch) = go(flight, outgoing, way).await else {
                continue;
            };
            return Some(tried_again(flight, outgoing, watch, Again::Other, may_have_cost));
        }
        let pause_ms = pause_ms?;
        if pause_ms >= self.left_ms() || !pause(flight, head, pause_ms).await {
            return None;
        }
        let watch = go(flight, outgoing, outgoing.way).await?;
        Some(tried_again(flight, outgoing, watch, Again::Same, may_have_cost))
    }

    /// What is left of the time for all tries, in milliseconds.
    fn left_ms(&self) -> u64 {
        let spent_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.total_ms.saturating_sub(spent_ms)
    }

    /// In what way the upstream has failed; `None` where the time for the request was too short.
    fn failure_of(&self, error: &SendError, gateway: &Gateway) -> Option<FailureKind> {
        let is_too_short = |waited_ms: u64| waited_ms < gateway.client.timeouts().first_byte_ms;
        match error {
            SendError::Unconnected(ms) | SendError::TimedOut(ms) if is_too_short(*ms) => None,
            SendError::Address | SendError::Connect(_) | SendError::Unconnected(_) => Some(FailureKind::Unreached),
            SendError::Broken(_) => Some(FailureKind::Broken),
            SendError::TimedOut(_) => Some(FailureKind::Silent),
        }
    }

    /// Whether another upstream may do better.
    fn is_worth_another(&self, failed: &Failed, flight: &Flight) -> bool {
        match failed {
            Failed::NoAnswer(error) => self.failure_of(error, &flight.gateway).is_some(),
            Failed::Error(parts, _) => {
                let status = parts.status;
                status.is_server_error()
                    || matches!(
                        status,
                        StatusCode::UNAUTHORIZED
                            | StatusCode::FORBIDDEN
                            | StatusCode::REQUEST_TIMEOUT
                            | StatusCode::TOO_MANY_REQUESTS
                    )
            }
        }
    }
}

/// After how long the same upstream may do better, in milliseconds, with jitter; `None` where that is not worth waiting for.
/// `retry` counts from 0.
fn repeats_in_ms(failed: &Failed, flight: &Flight, outgoing: &Outgoing, retry: u32) -> Option<u64> {
    let (gateway, now) = (&flight.gateway, flight.gateway.clock.now());
    let shut_ms = wait_ms(flight, outgoing, outgoing.way);
    let random = gateway.random_unit();
    match failed {
        // Its limit has room again when it says so: those who were told so together come back apart.
        Failed::Error(parts, _) if parts.status == StatusCode::TOO_MANY_REQUESTS => {
            let jitter_ms = (shut_ms / 4).min(ACCOUNT_JITTER_MS_MAX);
            let pause_ms = shut_ms + (random * jitter_ms as f64) as u64;
            (shut_ms <= ACCOUNT_WAIT_MS_MAX).then_some(pause_ms.max(1))
        }
        // One that names a longer time is taken at its word.
        Failed::Error(parts, _) => {
            let asked = headers::retry_after(&parts.headers, now.wall);
            let is_soon = asked.is_none_or(|asked| asked <= Duration::from_millis(BACKOFF_MAX_MS));
            (parts.status.is_server_error() && is_soon && shut_ms == 0).then(|| backoff_ms(retry, random))
        }
        Failed::NoAnswer(SendError::Connect(_) | SendError::Broken(_)) if shut_ms == 0 => {
            Some(backoff_ms(retry, random))
        }
        Failed::NoAnswer(_) => None,
    }
}

/// Leave of the breakers of the upstream on this route.
fn pass(flight: &Flight, outgoing: &Outgoing, way: usize) -> Result<Watch, u64> {
    let (route, upstream) = &outgoing.case.routes[way];
    let tenant = flight.identity.tenant_id;
    flight
        .gateway
        .watch_upstream(upstream.upstream.id, &route.upstream_model, tenant)
}

fn may_pass(flight: &Flight, outgoing: &Outgoing, way: usize) -> bool {
    wait_ms(flight, outgoing, way) == 0
}

/// For how long the breakers let nobody of the tenant through on this route, in milliseconds.
fn wait_ms(flight: &Flight, outgoing: &Outgoing, way: usize) -> u64 {
    let (gateway, tenant) = (&flight.gateway, flight.identity.tenant_id);
    case::shut_ms(gateway, tenant, &outgoing.case.routes[way], gateway.clock.now())
}

/// Makes the request go this way, if the breakers let it and the account has room.
async fn go(flight: &mut Flight, outgoing: &mut Outgoing, way: usize) -> Option<Watch> {
    let watch = pass(flight, outgoing, way).ok()?;
    // Tries and the pauses between them may take longer than a lease.
    flight.renew().await;
    let now = flight.gateway.clock.now();
    if !flight.switch_upstream(&outgoing.case, way, now).await {
        return None;
    }
    if way != outgoing.way {
        let upstream = outgoing.case.routes[way].1.upstream.id;
        let asks_for_usage = flight.gateway.quirks.can_ask_for_usage(upstream, now.monotonic_ms);
        outgoing.go(way, asks_for_usage);
    }
    Some(watch)
}

fn tried_again(flight: &mut Flight, outgoing: &Outgoing, watch: Watch, again: Again, may_have_cost: bool) -> Watch {
    if may_have_cost {
        flight.charge_lost_try();
    }
    let upstream = &outgoing.upstream().upstream.name;
    metrics::tried_again(upstream, again);
    tracing::info!(request_id = %flight.id(), upstream, "a try failed; the request is sent once more");
    watch
}

/// Waits; false as soon as nobody waits with us.
async fn pause(flight: &Flight, head: &mut Head, pause_ms: u64) -> bool {
    tokio::select! {
        biased;
        () = flight.gateway.ending.cancelled() => false,
        () = head.closed() => false,
        () = tokio::time::sleep(Duration::from_millis(pause_ms)) => true,
    }
}

fn is_unwanted(flight: &Flight, head: &Head) -> bool {
    head.is_closed() || flight.gateway.ending.is_cancelled()
}

/// Tells the breakers of an error.
fn tell_status(watch: &mut Watch, parts: &http::response::Parts, flight: &Flight) {
    let now = flight.gateway.clock.now().wall;
    let asked = headers::retry_after(&parts.headers, now);
    let (kind, asked) = match parts.status {
        StatusCode::UNAUTHORIZED => (FailureKind::Unauthorized, None),
        StatusCode::FORBIDDEN => (FailureKind::Forbidden, None),
        StatusCode::TOO_MANY_REQUESTS => (FailureKind::RateLimited, account_headers::cooling(&parts.headers, now)),
        status if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT => {
            (FailureKind::Status(status.as_u16()), asked)
        }
        status if status.is_client_error() => return watch.declined(),
        // A redirection says nothing of the model.
        _ => return,
    };
    watch.failed(Failure {
        kind,
        retry_after_ms: asked.map(millis),
    });
}

/// Lowers our counters of the account to what the provider says is left.
async fn hear_of_account(flight: &Flight, outgoing: &Outgoing, headers: &http::HeaderMap, sent_ms: u64) {
    let upstream = outgoing.upstream();
    if upstream.scope.limits.is_empty() {
        return;
    }
    let now = flight.gateway.clock.now();
    let said = AccountRoom::read(headers, now.wall);
    if said.is_silent() {
        return;
    }
    let told = UpstreamRoom {
        sent_ms_ago: now.monotonic_ms.saturating_sub(sent_ms),
        requests: said.requests.map(room_left),
        input_tokens: said.input_tokens.map(room_left),
        output_tokens: said.output_tokens.map(room_left),
        total_tokens: said.total_tokens.map(room_left),
    };
    let (gateway, scope) = (std::sync::Arc::clone(&flight.gateway), upstream.scope.clone());
    let model = flight.identity.model.clone().unwrap_or_default();
    let mut hearing = Box::pin(async move { gateway.limits.correct_upstream(&scope, &model, &told, now).await });
    // Counters in memory have heard at once; nobody waits for others.
    if futures_util::poll!(&mut hearing).is_pending() {
        flight.gateway.tasks.spawn(hearing);
    }
}

/// Providers say when all of it is back, not when some is. Believed until then, a word of nothing left would stop us for a
/// minute although the account has room all the while, and with nothing sent no better word would come.
fn room_left(left: Left) -> RoomLeft {
    RoomLeft {
        remaining: left.remaining,
        reset_ms: left.reset.map(|reset| millis(reset).min(ACCOUNT_WORD_MS_MAX)),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

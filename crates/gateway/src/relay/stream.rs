//! A stream: framed on bytes, passed on as it comes, metered on the side, settled before its last event goes out.

use std::time::Duration;

use bytes::Bytes;
use domain::ledger::Outcome;
use domain::usage::{TokenUsage, UsageSource};
use http::header::{CACHE_CONTROL, HeaderName, HeaderValue};
use protocol::endpoint::Endpoint;
use protocol::errors::{ErrorBody, UpstreamError};
use protocol::headers;
use protocol::sse::{SseEvent, SseFramer};
use protocol::usage::{EventKind, StreamUsage};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use upstream::ResponseBody;
use upstream::breaker::FailureKind;

use super::{
    CALLER_STALL_MS, DRAIN_BYTES_MAX, DRAIN_MS, Head, LAST_WORDS_MS, Lease, Said, Secrets, channel, failure_in_answer,
    stopping, success,
};
use crate::Step;
use crate::flight::{Ending, Flight};
use crate::idempotency::Orphan;
use crate::upstream_health::Watch;

/// How long a stream may be silent before its caller hears a comment, in milliseconds: proxies and callers take a connection
/// that says nothing for dead, many of them after a minute or half of one. A quarter of the longest silence that a provider is
/// allowed, where that is shorter.
const KEEP_ALIVE_MS_MAX: u64 = 15_000;
const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// The caller's end of the stream.
struct Listener {
    pieces: mpsc::Sender<Bytes>,
    said: Said,
    shows_usage: bool,
    is_gone: bool,
    /// When the whole exchange is to be over, whoever of the two is slow.
    deadline: Instant,
    /// Kept alive while the provider is silent and while the caller is slow.
    lease: Lease,
    /// Hears of an answer that breaks off.
    watch: Watch,
}

/// What is still read for a caller that left.
struct Drain {
    until: Instant,
    bytes_left: usize,
    _orphan: Option<Orphan>,
}

/// How the provider's side ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// `[DONE]`, or the connection's end after a finish reason.
    Finished,
    /// An error event; it has been passed on.
    Failed,
    /// The connection ended, broke, or sent what cannot be framed.
    Cut,
    /// One of our time-outs.
    TimedOut,
    /// The caller left, and what we were willing to read for it is read.
    Left,
    /// The process stops, and its grace is over.
    Stopped,
}

pub(super) async fn relay(
    mut flight: Flight,
    (endpoint, shows_usage): (Endpoint, bool),
    secrets: &Secrets,
    head: Head,
    (response, watch): (http::Response<ResponseBody>, Watch),
) {
    let (parts, mut body) = response.into_parts();
    let (pieces, said, answer) = channel();
    let mut answer = success(&flight, &parts, answer);
    answer
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Reverse proxies in front of us must not collect the stream.
    answer.headers_mut().insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    let now = flight.gateway.clock.now();
    flight.note_head(headers::upstream_request_id(&parts.headers), parts.status.as_u16(), now);
    if let Some(recording) = flight.recording() {
        recording.begin(&answer);
    }
    let is_gone = head.send(answer).is_err();
    if is_gone {
        flight.note_caller_gone_before_answer();
    }
    let mut listener = Listener {
        pieces,
        said,
        shows_usage,
        is_gone,
        deadline: body.deadline(),
        lease: Lease::of(&flight),
        watch,
    };
    let mut usage = StreamUsage::of(endpoint);
    let (end, last) = follow(&mut flight, &mut listener, &mut usage, &mut body).await;

    let outcome = match end {
        _ if listener.is_gone => Outcome::ClientClosed,
        End::Finished => Outcome::Completed,
        End::Failed | End::Cut => Outcome::UpstreamError,
        End::TimedOut => Outcome::TimedOut,
        End::Left => Outcome::ClientClosed,
        End::Stopped => Outcome::GatewayError,
    };
    let (used, usage_source) = usage_of(&flight, &usage, Some(end));
    let ending = flight.gateway.ending.clone();
    let farewell = match end {
        End::Failed => last.map(|event| secrets.cleared_bytes(event)),
        End::Cut => Some(cut_short(
            endpoint,
            "The connection to the model's provider broke inside its answer.",
        )),
        End::TimedOut => Some(cut_short(endpoint, "The answer took longer than it may.")),
        End::Stopped => Some(stopping().to_sse_event(endpoint)),
        End::Finished | End::Left => last,
    };
    if let Some(recording) = flight.recording()
        && end != End::Left
    {
        recording.add(farewell.as_ref());
        recording.is_over();
    }
    flight
        .settle(Ending {
            outcome,
            usage: used,
            usage_source,
        })
        .await;
    // Dropping the body closes the connection of a stream that was not read to its end, so the provider stops.
    drop(body);
    listener.end_with(farewell, &ending).await;
}

/// Passes events on until the provider's side ends. The last event is held back and returned, so that the request can be
/// settled before the caller sees its end.
async fn follow(
    flight: &mut Flight,
    listener: &mut Listener,
    usage: &mut StreamUsage,
    body: &mut ResponseBody,
) -> (End, Option<Bytes>) {
    let mut framer = SseFramer::new();
    let mut drain: Option<Drain> = None;
    let mut silent_since = Instant::now();
    let keep_alive_ms = KEEP_ALIVE_MS_MAX.min(flight.gateway.client.timeouts().chunk_ms / 4);
    let ending = flight.gateway.ending.clone();
    loop {
        if listener.is_gone && drain.is_none() {
            let drain_until = Instant::now() + Duration::from_millis(DRAIN_MS);
            let orphan = flight.orphan();
            drain = Some(Drain {
                // Whoever comes back for the answer finds all of it.
                until: orphan.as_ref().map_or(drain_until, |_| listener.deadline),
                bytes_left: DRAIN_BYTES_MAX,
                _orphan: orphan,
            });
        }
        // Looked at here too: beside a provider that always has something ready, no timer is ever heard.
        listener.lease.renew_if_due(flight).await;
        if drain.as_ref().is_some_and(|drain| Instant::now() >= drain.until) {
            return (End::Left, None);
        }
        let drained = async {
            match &drain {
                Some(drain) => sleep_until(drain.until).await,
                None => std::future::pending().await,
            }
        };
        let next = tokio::select! {
            biased;
            () = listener.lease.due() => continue,
            () = ending.cancelled() => return (End::Stopped, None),
            () = drained => return (End::Left, None),
            () = listener.pieces.closed(), if !listener.is_gone => {
                listener.is_gone = true;
                continue;
            }
            next = body.next_chunk() => next,
            // What has been passed on so far are whole events, so a comment may stand here.
            () = sleep_until(silent_since + Duration::from_millis(keep_alive_ms)), if !listener.is_gone => {
                silent_since = Instant::now();
                match listener.pass(flight, Bytes::from_static(KEEP_ALIVE)).await {
                    Ok(()) => continue,
                    Err(end) => return (end, None),
                }
            }
        };
        silent_since = Instant::now();
        let chunk = match next {
            Ok(Some(chunk)) => chunk,
            // What is left without its blank line is an event too, and may be the one with the usage.
            Ok(None) => {
                let rest = framer.finish().filter(|rest| !rest.raw.is_empty());
                let kind = rest
                    .as_ref()
                    .and_then(|rest| rest.data.as_ref())
                    .map(|data| usage.observe(data).kind);
                let is_shown = kind != Some(EventKind::UsageOnly) || listener.shows_usage;
                let last = rest.map(|rest| rest.raw).filter(|_| is_shown);
                return match kind {
                    Some(EventKind::Error) => {
                        listener.watch.broke_off(FailureKind::ErrorInAnswer);
                        (End::Failed, last)
                    }
                    _ if usage.is_finished() => (End::Finished, last),
                    _ => {
                        listener.watch.broke_off(FailureKind::Broken);
                        (End::Cut, None)
                    }
                };
            }
            Err(error) => {
                tracing::warn!(request_id = %flight.id(), %error, "a stream was cut short");
                if let Some(kind) = failure_in_answer(&error) {
                    listener.watch.broke_off(kind);
                }
                return (if error.is_timeout() { End::TimedOut } else { End::Cut }, None);
            }
        };
        if let Some(drain) = &mut drain {
            drain.bytes_left = drain.bytes_left.saturating_sub(chunk.len());
            if drain.bytes_left == 0 {
                return (End::Left, None);
            }
        }
        framer.push(chunk);
        loop {
            let event = match framer.next_event() {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(request_id = %flight.id(), %error, "a stream cannot be framed");
                    listener.watch.broke_off(FailureKind::ErrorInAnswer);
                    return (End::Cut, None);
                }
            };
            let sent = match event.data.as_ref().map(|data| usage.observe(data)) {
                None => listener.send(flight, event.raw).await,
                Some(observed) => match observed.kind {
                    // With whatever came behind it: some say `[DONE]` after the last event as well.
                    EventKind::Done => return (End::Finished, Some(with_rest(event.raw, framer))),
                    EventKind::Error => {
                        listener.watch.broke_off(FailureKind::ErrorInAnswer);
                        return (End::Failed, Some(event.raw));
                    }
                    EventKind::UsageOnly if !listener.shows_usage => Ok(()),
                    _ => listener.send_event(flight, event, observed.null_usage).await,
                },
            };
            if let Err(end) = sent {
                return (end, None);
            }
            flight.gateway.after_admission(flight.id(), Step::Streaming);
        }
        let (so_far, _) = usage_of(flight, usage, None);
        flight.note_usage(so_far);
    }
}

impl Listener {
    /// Passes an event on, without the empty usage that is there only because we asked for it.
    async fn send_event(
        &mut self,
        flight: &mut Flight,
        event: SseEvent,
        null_usage: Option<std::ops::Range<usize>>,
    ) -> Result<(), End> {
        let cut = null_usage
            .filter(|_| !self.shows_usage)
            .and_then(|range| event.without(&range));
        match cut {
            None => self.send(flight, event.raw).await,
            Some((before, after)) => {
                let mut joined = Vec::with_capacity(before.len() + after.len());
                joined.extend_from_slice(&before);
                joined.extend_from_slice(&after);
                self.send(flight, joined.into()).await
            }
        }
    }

    /// Passes a piece of the answer on, and records it where it may be asked for again.
    async fn send(&mut self, flight: &mut Flight, piece: Bytes) -> Result<(), End> {
        if let Some(recording) = flight.recording() {
            recording.add(Some(&piece));
        }
        self.pass(flight, piece).await
    }

    /// Hands a piece to the caller, waiting for a slow one within bounds; one that takes nothing for too long is gone.
    ///
    /// # Errors
    /// With the end of it all, when that comes first.
    async fn pass(&mut self, flight: &Flight, piece: Bytes) -> Result<(), End> {
        if self.is_gone {
            return Ok(());
        }
        // One chunk may hold thousands of events.
        self.lease.renew_if_due(flight).await;
        let piece = match self.pieces.try_send(piece) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Closed(_)) => {
                self.is_gone = true;
                return Ok(());
            }
            Err(TrySendError::Full(piece)) => piece,
        };
        let stalled = Instant::now() + Duration::from_millis(CALLER_STALL_MS);
        loop {
            tokio::select! {
                biased;
                () = self.lease.due() => self.lease.renew_if_due(flight).await,
                () = flight.gateway.ending.cancelled() => return Err(End::Stopped),
                place = self.pieces.reserve() => {
                    match place {
                        Ok(place) => place.send(piece),
                        Err(_) => self.is_gone = true,
                    }
                    return Ok(());
                }
                () = sleep_until(self.deadline.min(stalled)) => {
                    if self.deadline <= stalled {
                        return Err(End::TimedOut);
                    }
                    self.is_gone = true;
                    return Ok(());
                }
            }
        }
    }

    /// Says the last word, if there is one, and ends the answer in good order. An answer whose caller does not take it in
    /// time breaks off.
    async fn end_with(self, last: Option<Bytes>, ending: &CancellationToken) {
        let Some(last) = last else {
            self.said.all();
            return;
        };
        let stopped = async {
            ending.cancelled().await;
            sleep(Duration::from_millis(LAST_WORDS_MS)).await;
        };
        tokio::select! {
            biased;
            sent = self.pieces.send(last) => {
                if sent.is_ok() {
                    self.said.all();
                }
            }
            () = stopped => {}
            () = sleep(Duration::from_millis(CALLER_STALL_MS)) => {}
        }
    }
}

/// What the provider reported, or what was counted of its output. A figure that came before the end of the stream is not
/// the last one, so more may have been seen since.
fn usage_of(flight: &Flight, seen: &StreamUsage, end: Option<End>) -> (TokenUsage, UsageSource) {
    let is_finished = end == Some(End::Finished);
    let expected = flight.estimate.expected;
    let counted = flight.gateway.estimates.count_output(&seen.output);
    // A model that has shown nothing may have thought all the while. One that failed has said so.
    let may_have_thought = seen.output.pieces == 0 && end != Some(End::Failed);
    let output_tokens = if seen.is_understood() && !may_have_thought {
        counted
    } else {
        counted.max(expected.output_tokens)
    };
    let (mut usage, source) = seen
        .reported
        .plausible(&seen.output)
        .or_estimate(expected.input_tokens, output_tokens);
    if is_finished {
        return (usage, source);
    }
    usage.output_tokens = usage.output_tokens.max(counted);
    (usage, UsageSource::Estimated)
}

/// The last event, with what was received behind it.
fn with_rest(last: Bytes, framer: SseFramer) -> Bytes {
    match framer.finish() {
        None => last,
        Some(rest) => [last, rest.raw].concat().into(),
    }
}

fn cut_short(endpoint: Endpoint, message: &str) -> Bytes {
    let error = UpstreamError {
        message: Some(message.to_owned()),
        ..UpstreamError::default()
    };
    ErrorBody::upstream(error).to_sse_event(endpoint)
}

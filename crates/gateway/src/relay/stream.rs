//! A stream: framed on bytes, passed on as it comes, metered on the side, settled before its last event goes out.

use std::time::Duration;

use bytes::Bytes;
use domain::ledger::Outcome;
use domain::usage::UsageSource;
use http::header::{CACHE_CONTROL, HeaderName, HeaderValue};
use protocol::errors::{ErrorBody, UpstreamError};
use protocol::headers;
use protocol::openai_chat::{EventKind, StreamUsage};
use protocol::sse::{SseEvent, SseFramer};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use upstream::ResponseBody;

use super::{CALLER_STALL_MS, DRAIN_BYTES_MAX, DRAIN_MS, Head, RENEW_INTERVAL_MS, channel, success};
use crate::flight::{Ending, Flight};
use crate::pipeline::Outgoing;

/// The caller's end of the stream.
struct Listener {
    pieces: mpsc::Sender<Bytes>,
    shows_usage: bool,
    is_gone: bool,
}

/// What is still read for a caller that left.
struct Drain {
    until: Instant,
    bytes_left: usize,
}

/// How the provider's side ended.
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
}

pub(super) async fn relay(mut flight: Flight, outgoing: &Outgoing, head: Head, response: http::Response<ResponseBody>) {
    let (parts, mut body) = response.into_parts();
    let (pieces, answer) = channel();
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
    let is_gone = head.send(answer).is_err();
    if is_gone {
        flight.note_caller_gone_before_answer();
    }
    let mut listener = Listener {
        pieces,
        shows_usage: outgoing.shows_usage,
        is_gone,
    };
    let mut usage = StreamUsage::new();
    let (end, last) = follow(&mut flight, &mut listener, &mut usage, &mut body).await;

    let outcome = match end {
        _ if listener.is_gone => Outcome::ClientClosed,
        End::Finished => Outcome::Completed,
        End::Failed | End::Cut => Outcome::UpstreamError,
        End::TimedOut => Outcome::TimedOut,
        End::Left => Outcome::ClientClosed,
    };
    let (used, usage_source) = usage_of(&flight, &usage);
    flight
        .settle(Ending {
            outcome,
            usage: used,
            usage_source,
        })
        .await;
    // Dropping the body closes the connection of a stream that was not read to its end, so the provider stops.
    drop(body);
    let farewell = last.or_else(|| match end {
        End::Cut => Some(cut_short(
            "The connection to the model's provider broke inside its answer.",
        )),
        End::TimedOut => Some(cut_short("The model's provider took too long to go on.")),
        End::Finished | End::Failed | End::Left => None,
    });
    if let Some(farewell) = farewell {
        listener.send(farewell).await;
    }
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
    let mut renewed = Instant::now();
    loop {
        if listener.is_gone && drain.is_none() {
            let until = Instant::now() + Duration::from_millis(DRAIN_MS);
            drain = Some(Drain {
                until,
                bytes_left: DRAIN_BYTES_MAX,
            });
        }
        let next = tokio::select! {
            biased;
            next = body.next_chunk() => next,
            () = listener.pieces.closed(), if !listener.is_gone => {
                listener.is_gone = true;
                continue;
            }
            () = sleep_until(drain.as_ref().map(|drain| drain.until)), if drain.is_some() => return (End::Left, None),
            () = tokio::time::sleep_until(renewed + Duration::from_millis(RENEW_INTERVAL_MS)) => {
                flight.renew().await;
                renewed = Instant::now();
                continue;
            }
        };
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
                    Some(EventKind::Error) => (End::Failed, last),
                    _ if usage.is_finished() => (End::Finished, last),
                    _ => (End::Cut, None),
                };
            }
            Err(error) => {
                tracing::warn!(request_id = %flight.id(), %error, "a stream was cut short");
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
                    return (End::Cut, None);
                }
            };
            let Some(data) = &event.data else {
                listener.send(event.raw).await;
                continue;
            };
            let observed = usage.observe(data);
            match observed.kind {
                EventKind::Done => return (End::Finished, Some(event.raw)),
                EventKind::Error => return (End::Failed, Some(event.raw)),
                EventKind::UsageOnly if !listener.shows_usage => {}
                _ => listener.send_event(event, observed.null_usage).await,
            }
        }
        let (so_far, _) = usage_of(flight, usage);
        flight.note_usage(so_far);
    }
}

impl Listener {
    /// Passes an event on, without the empty usage that is there only because we asked for it.
    async fn send_event(&mut self, event: SseEvent, null_usage: Option<std::ops::Range<usize>>) {
        let cut = null_usage
            .filter(|_| !self.shows_usage)
            .and_then(|range| event.without(&range));
        match cut {
            None => self.send(event.raw).await,
            Some((before, after)) => {
                let mut joined = Vec::with_capacity(before.len() + after.len());
                joined.extend_from_slice(&before);
                joined.extend_from_slice(&after);
                self.send(joined.into()).await;
            }
        }
    }

    /// Hands a piece to the caller, waiting for a slow one within bounds.
    async fn send(&mut self, piece: Bytes) {
        if self.is_gone {
            return;
        }
        let sent = timeout(Duration::from_millis(CALLER_STALL_MS), self.pieces.send(piece)).await;
        self.is_gone = !matches!(sent, Ok(Ok(())));
    }
}

/// What the provider reported, or what was counted of its output.
fn usage_of(flight: &Flight, usage: &StreamUsage) -> (domain::usage::TokenUsage, UsageSource) {
    if let Some(reported) = usage.reported.to_usage() {
        return (reported, UsageSource::Reported);
    }
    let output_tokens = flight.gateway.estimates.count_output(&usage.output);
    usage
        .reported
        .or_estimate(flight.estimate.expected.input_tokens, output_tokens)
}

fn cut_short(message: &str) -> Bytes {
    let error = UpstreamError {
        message: Some(message.to_owned()),
        ..UpstreamError::default()
    };
    ErrorBody::upstream(error).to_sse_event()
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

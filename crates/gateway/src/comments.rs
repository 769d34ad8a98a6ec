//! An answer that begins before the request is admitted: a stream of comments, and then the provider's.
//!
//! Comments keep the connection busy and tell the caller how long the queue is. Their price is the status: a refusal comes
//! as an event of a stream that has begun with 200. So they are for callers who ask for them.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use protocol::errors::UPSTREAM_ERROR_BYTES_MAX;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::asked::Asked;
use crate::flight::Flight;
use crate::waiting::Waiting;
use crate::{error, pipeline};

/// How often a waiting caller hears how many wait, in milliseconds. The first time at once.
const COMMENT_INTERVAL_MS: u64 = 1_000;

type Work = Pin<Box<dyn Future<Output = Response> + Send>>;
type Depth = Box<dyn Fn() -> usize + Send + Sync>;

/// Where such an answer stands.
enum Stage {
    Waiting(Work, Depth, Interval),
    Passing(BodyDataStream),
    Over,
}

/// Begins the answer; it goes on as the caller reads it, and all ends when the caller leaves.
pub(crate) fn answer(flight: Flight, asked: Asked, waiting: Waiting) -> Response {
    let id = flight.id();
    let depth = waiting.depth_later();
    let work = Box::pin(pipeline::wait(flight, asked, waiting));
    let mut response = Response::new(body(work, depth));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    error::set_id(headers, id);
    response
}

fn body(work: Work, depth: Depth) -> Body {
    let mut ticks = interval(Duration::from_millis(COMMENT_INTERVAL_MS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    Body::from_stream(stream::unfold(Stage::Waiting(work, depth, ticks), next))
}

type Piece = Result<Bytes, axum::Error>;

async fn next(stage: Stage) -> Option<(Piece, Stage)> {
    let mut passing = match stage {
        Stage::Over => return None,
        Stage::Passing(passing) => passing,
        Stage::Waiting(mut work, depth, mut ticks) => {
            let response = tokio::select! {
                biased;
                response = &mut work => response,
                _ = ticks.tick() => {
                    let comment = format!(": queued {}\n\n", depth());
                    return Some((Ok(comment.into()), Stage::Waiting(work, depth, ticks)));
                }
            };
            if response.status() != StatusCode::OK {
                let event = error_event(response).await;
                return Some((Ok(event), Stage::Over));
            }
            response.into_body().into_data_stream()
        }
    };
    let piece = passing.next().await?;
    Some((piece, Stage::Passing(passing)))
}

/// The error that would have been the answer, as an event.
async fn error_event(response: Response) -> Bytes {
    let json = axum::body::to_bytes(response.into_body(), UPSTREAM_ERROR_BYTES_MAX).await;
    let json = json.unwrap_or_default();
    let mut event = BytesMut::with_capacity(json.len() + 8);
    event.extend_from_slice(b"data: ");
    event.extend_from_slice(&json);
    event.extend_from_slice(b"\n\n");
    event.freeze()
}

//! An answer that begins before the request is admitted: a stream of comments, and then the provider's.
//!
//! Comments keep the connection busy and tell the caller how long the queue is. Their price is the status: a refusal comes
//! as an event of a stream that has begun with 200. So they are for callers who ask for them.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::response::Response;
use bytes::Bytes;
use domain::ids::RequestId;
use futures_util::StreamExt as _;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use protocol::endpoint::Endpoint;
use protocol::sse::{data_event, named_event};
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::asked::Asked;
use crate::flight::Flight;
use crate::relay::ANSWER_BYTES_MAX;
use crate::waiting::Waiting;
use crate::{Gateway, error, pipeline};

/// How often a waiting caller hears how many wait, in milliseconds. The first time at once.
const COMMENT_INTERVAL_MS: u64 = 1_000;

/// A request on a task of its own, which ends with whoever waits for it. Were it driven by the answer's body, a caller that
/// reads nothing would keep its turn in the queue for ever.
struct Work(JoinHandle<Response>);

impl Drop for Work {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Which request, and what it called.
type Called = (RequestId, Endpoint);

/// Where such an answer stands.
enum Stage {
    Waiting(Called, Work, Arc<Gateway>, Interval),
    Passing(BodyDataStream),
    Over,
}

/// Begins the answer; it goes on as the caller reads it, and all ends when the caller leaves.
pub(crate) fn answer(flight: Flight, asked: Asked, waiting: Waiting) -> Response {
    let called = (flight.id(), asked.request.endpoint());
    let gateway = Arc::clone(&flight.gateway);
    let work = Work(gateway.tasks.spawn(pipeline::wait(flight, asked, waiting)));
    let mut response = Response::new(body(called, work, gateway));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    error::set_id(headers, called.0);
    response
}

fn body(called: Called, work: Work, gateway: Arc<Gateway>) -> Body {
    let mut ticks = interval(Duration::from_millis(COMMENT_INTERVAL_MS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    Body::from_stream(stream::unfold(Stage::Waiting(called, work, gateway, ticks), next))
}

type Piece = Result<Bytes, axum::Error>;

async fn next(stage: Stage) -> Option<(Piece, Stage)> {
    let mut passing = match stage {
        Stage::Over => return None,
        Stage::Passing(passing) => passing,
        Stage::Waiting(called, mut work, gateway, mut ticks) => {
            let response = tokio::select! {
                biased;
                // It panicked; its flight has booked that.
                response = &mut work.0 => response.unwrap_or_else(|_| error::gateway(called.1.dialect(), called.0)),
                _ = ticks.tick() => {
                    let comment = format!(": queued {}\n\n", gateway.queue.depth());
                    return Some((Ok(comment.into()), Stage::Waiting(called, work, gateway, ticks)));
                }
            };
            // What is no stream is one event: an error, or the answer of a provider that does not stream.
            if !is_stream(&response) {
                return Some((event(called.1, response).await, Stage::Over));
            }
            response.into_body().into_data_stream()
        }
    };
    let piece = passing.next().await?;
    Some((piece, Stage::Passing(passing)))
}

fn is_stream(response: &Response) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE);
    let is_json = content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/json"));
    response.status().is_success() && !is_json
}

/// What would have been the answer, as an event.
async fn event(endpoint: Endpoint, response: Response) -> Piece {
    let is_error = !response.status().is_success();
    let json = axum::body::to_bytes(response.into_body(), ANSWER_BYTES_MAX).await?;
    Ok(match endpoint {
        // Readers of this dialect go by the name.
        Endpoint::Messages if is_error => named_event("error", &json),
        _ => data_event(&json),
    })
}

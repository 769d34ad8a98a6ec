//! An answer in one piece: read whole, metered, settled, then passed on.

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use domain::ledger::Outcome;
use domain::usage::{TokenUsage, UsageSource};
use http::header::{CONTENT_LENGTH, HeaderValue};
use protocol::endpoint::Endpoint;
use protocol::errors::{ErrorBody, UpstreamError};
use protocol::headers;
use protocol::usage::AnswerUsage;
use upstream::{BodyError, ResponseBody};

use super::{ANSWER_BYTES_MAX, Head, Secrets, deliver, expected, failure_in_answer, give_up, success, while_wanted};
use crate::error;
use crate::flight::{Ending, Flight};
use crate::room::Taken;
use crate::upstream_health::Watch;

/// Why there is no whole answer.
enum Cut {
    Body(BodyError),
    TooLong,
    NoRoom,
}

pub(super) async fn relay(
    mut flight: Flight,
    endpoint: Endpoint,
    secrets: &Secrets,
    mut head: Head,
    (response, mut watch): (http::Response<ResponseBody>, Watch),
) {
    let (parts, mut body) = response.into_parts();
    let room = flight.gateway.room.take_none();
    let read = while_wanted(&flight, &mut head, read_whole(&mut body, room)).await;
    let now = flight.gateway.clock.now();
    flight.note_head(headers::upstream_request_id(&parts.headers), parts.status.as_u16(), now);
    let mut answer = match read {
        Ok(Ok(answer)) => answer,
        Ok(Err(cut)) => {
            if let Cut::Body(error) = &cut
                && let Some(kind) = failure_in_answer(error)
            {
                watch.broke_off(kind);
            }
            return fail(flight, head, &cut).await;
        }
        Err(reason) => return give_up(flight, head, reason).await,
    };
    // An error in a whole answer may be about the request, and says nothing of the upstream.
    let read = AnswerUsage::read(endpoint, &answer);
    let (usage, usage_source) = usage_of(&flight, endpoint, &read);
    let outcome = if read.error.is_some() {
        answer = secrets.cleared_bytes(answer);
        Outcome::UpstreamError
    } else {
        Outcome::Completed
    };
    let length = HeaderValue::from(answer.len());
    let mut response = success(&flight, &parts, Body::from(answer));
    response.headers_mut().insert(CONTENT_LENGTH, length);
    deliver(
        flight,
        head,
        response,
        Ending {
            outcome,
            usage,
            usage_source,
        },
    )
    .await;
}

/// What the provider reported, or what can be seen of its work. An answer in which nothing can be seen was not for
/// nothing, unless it says itself that it is an error.
fn usage_of(flight: &Flight, endpoint: Endpoint, read: &AnswerUsage) -> (TokenUsage, UsageSource) {
    if endpoint.is_free() {
        return (TokenUsage::default(), UsageSource::Reported);
    }
    let expected = flight.estimate.expected;
    let is_opaque = read.output.pieces == 0 && read.error.is_none();
    let output_tokens = if is_opaque {
        expected.output_tokens
    } else {
        flight.gateway.estimates.count_output(&read.output)
    };
    read.reported
        .plausible(&read.output)
        .or_estimate(expected.input_tokens, output_tokens)
}

async fn read_whole(body: &mut ResponseBody, mut room: Taken) -> Result<Bytes, Cut> {
    let mut whole = BytesMut::new();
    while let Some(chunk) = body.next_chunk().await.map_err(Cut::Body)? {
        if whole.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err(Cut::TooLong);
        }
        room.grow(chunk.len()).map_err(|_| Cut::NoRoom)?;
        whole.extend_from_slice(&chunk);
    }
    Ok(room.guard(whole.freeze()))
}

/// The provider worked and its answer is lost: it is charged as expected.
async fn fail(mut flight: Flight, head: Head, cut: &Cut) {
    let (status, outcome, message) = match cut {
        Cut::Body(error) if error.is_timeout() => {
            (504, Outcome::TimedOut, "The model's provider took too long to answer.")
        }
        Cut::Body(_) => (
            502,
            Outcome::UpstreamError,
            "The connection to the model's provider broke inside its answer.",
        ),
        Cut::TooLong => (
            502,
            Outcome::UpstreamError,
            "The answer of the model's provider is too long to pass on.",
        ),
        Cut::NoRoom => (
            503,
            Outcome::GatewayError,
            "The gateway carries as many bytes at once as it can, and had to drop this answer. Retry shortly.",
        ),
    };
    let body = ErrorBody::upstream(UpstreamError {
        message: Some(message.to_owned()),
        ..UpstreamError::default()
    });
    let retry_after = (status == 503).then_some(1);
    let body = body.with_retry_after(retry_after);
    let mut response = error::upstream(flight.dialect(), flight.id(), status, &body, retry_after);
    if let Cut::TooLong = cut {
        // It would be as long again, and be charged again.
        error::set_no_retry(response.headers_mut());
    }
    let now = flight.gateway.clock.now();
    flight.note_head(None, status, now);
    let ending = expected(&flight, outcome);
    deliver(flight, head, response, ending).await;
}

//! An answer in one piece: read whole, metered, settled, then passed on.

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use domain::ledger::Outcome;
use domain::usage::UsageSource;
use http::header::{CONTENT_LENGTH, HeaderValue};
use protocol::errors::{ErrorBody, UpstreamError};
use protocol::headers;
use protocol::openai_chat::ChatResponse;
use upstream::{BodyError, ResponseBody};

use super::{ANSWER_BYTES_MAX, CallerGone, Head, deliver, expected, success, while_wanted};
use crate::error;
use crate::flight::{Ending, Flight};

/// Why there is no whole answer.
enum Cut {
    Body(BodyError),
    TooLong,
}

pub(super) async fn relay(mut flight: Flight, mut head: Head, response: http::Response<ResponseBody>) {
    let (parts, mut body) = response.into_parts();
    let read = while_wanted(&flight, &mut head, read_whole(&mut body)).await;
    let now = flight.gateway.clock.now();
    flight.note_head(headers::upstream_request_id(&parts.headers), parts.status.as_u16(), now);
    let answer = match read {
        Ok(Ok(answer)) => answer,
        Ok(Err(cut)) => return fail(flight, head, &cut).await,
        Err(CallerGone) => {
            flight.note_caller_gone_before_answer();
            let ending = expected(&flight, Outcome::ClientClosed);
            return flight.settle(ending).await;
        }
    };
    let read = ChatResponse::read(&answer);
    let output_tokens = flight.gateway.estimates.count_output(&read.output);
    let (usage, usage_source) = read
        .reported
        .or_estimate(flight.estimate.expected.input_tokens, output_tokens);
    let length = HeaderValue::from(answer.len());
    let mut response = success(&flight, &parts, Body::from(answer));
    response.headers_mut().insert(CONTENT_LENGTH, length);
    deliver(
        flight,
        head,
        response,
        Ending {
            outcome: Outcome::Completed,
            usage,
            usage_source,
        },
    )
    .await;
}

async fn read_whole(body: &mut ResponseBody) -> Result<Bytes, Cut> {
    let mut whole = BytesMut::new();
    while let Some(chunk) = body.next_chunk().await.map_err(Cut::Body)? {
        if whole.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err(Cut::TooLong);
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole.freeze())
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
    };
    let body = ErrorBody::upstream(UpstreamError {
        message: Some(message.to_owned()),
        ..UpstreamError::default()
    });
    let response = error::upstream(flight.id(), status, &body, None);
    let now = flight.gateway.clock.now();
    flight.note_head(None, status, now);
    let mut ending = expected(&flight, outcome);
    ending.usage_source = UsageSource::Estimated;
    deliver(flight, head, response, ending).await;
}

//! Reads a caller's body, within bounds of size, time and memory.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use domain::refusals::RefusalCode;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::refusal::Refusal;
use crate::room::{Room, Taken};

/// The longest body that is read, in bytes. Images travel inside it.
pub const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;
/// How long a caller may take to send its body, in milliseconds.
pub const BODY_READ_MS: u64 = 60_000;
/// How often a body is in memory until its provider answers: as it came, and as it goes up.
pub(crate) const COPIES_PER_BODY: usize = 2;

/// The whole body, with the room that it takes until the provider has it.
pub(crate) async fn read(room: &Room, body: Body) -> Result<(Bytes, Taken), Refusal> {
    let mut body = Limited::new(body, BODY_BYTES_MAX);
    let mut room = room.take_none();
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
        Ok(Err(Unread::NoRoom)) => Err(no_room()),
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

/// What a caller is told for whose body there is no memory.
pub(crate) fn no_room() -> Refusal {
    Refusal::plain(
        RefusalCode::Overloaded,
        "The gateway carries as many bytes at once as it can. Retry shortly.",
    )
}

/// Why there is no whole body.
enum Unread {
    Broken(axum::BoxError),
    NoRoom,
}

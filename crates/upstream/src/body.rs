//! A response's body, piece by piece, with time-outs between the pieces and for the whole.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use crate::BodyError;

/// The body of a provider's response. Dropping it before its end closes the connection, which tells the provider to stop.
#[derive(Debug)]
pub struct ResponseBody {
    incoming: Incoming,
    chunk_ms: u64,
    total: (Instant, u64),
    /// When somebody began to wait for the next piece: whoever stops and asks again has waited all the same.
    waited_since: Option<Instant>,
}

impl ResponseBody {
    pub(crate) fn new(incoming: Incoming, chunk_ms: u64, total: (Instant, u64)) -> Self {
        Self {
            incoming,
            chunk_ms,
            total,
            waited_since: None,
        }
    }

    /// When the whole exchange is to be over.
    pub fn deadline(&self) -> Instant {
        self.total.0
    }

    /// The next piece; `None` at the end. Dropping the future loses nothing, and gives the provider no more time.
    pub async fn next_chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        let waited_since = *self.waited_since.get_or_insert_with(Instant::now);
        let chunk_deadline = waited_since + Duration::from_millis(self.chunk_ms);
        let (total_deadline, total_ms) = self.total;
        loop {
            // A time-out only fires while nothing is ready, and a provider in full flow always is.
            if Instant::now() >= total_deadline {
                return Err(BodyError::TookTooLong(total_ms));
            }
            let frame = timeout_at(chunk_deadline.min(total_deadline), self.incoming.frame())
                .await
                .map_err(|_| {
                    if total_deadline <= chunk_deadline {
                        BodyError::TookTooLong(total_ms)
                    } else {
                        BodyError::Silent(self.chunk_ms)
                    }
                })?;
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(BodyError::Broken(error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data()
                        && !data.is_empty()
                    {
                        self.waited_since = None;
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

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
}

impl ResponseBody {
    pub(crate) fn new(incoming: Incoming, chunk_ms: u64, total: (Instant, u64)) -> Self {
        Self {
            incoming,
            chunk_ms,
            total,
        }
    }

    /// When the whole exchange is to be over.
    pub fn deadline(&self) -> Instant {
        self.total.0
    }

    /// The next piece; `None` at the end. Dropping the future loses nothing.
    pub async fn next_chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        let chunk_deadline = Instant::now() + Duration::from_millis(self.chunk_ms);
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
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

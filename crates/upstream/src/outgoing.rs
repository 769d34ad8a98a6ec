//! A request's body that knows whether anybody began to send it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

/// Raised when a connection takes the body: until then, nothing has gone to the provider that it could work on.
#[derive(Clone, Debug)]
pub(crate) struct Taken(Arc<AtomicBool>);

impl Taken {
    pub(crate) fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The body.
#[derive(Debug)]
pub(crate) struct OutgoingBody {
    whole: Full<Bytes>,
    taken: Taken,
}

impl OutgoingBody {
    pub(crate) fn new(whole: Bytes) -> (Self, Taken) {
        // Nobody asks an empty body for its pieces.
        let taken = Taken(Arc::new(AtomicBool::new(whole.is_empty())));
        let body = Self {
            whole: Full::new(whole),
            taken: taken.clone(),
        };
        (body, taken)
    }
}

impl Body for OutgoingBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.taken.0.store(true, Ordering::Release);
        Pin::new(&mut self.whole).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.whole.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.whole.size_hint()
    }
}

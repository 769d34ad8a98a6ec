//! Connects within a bound: look-up, TCP and TLS together. The layers beneath bound TCP alone.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use tower::{BoxError, Service};

/// A connector whose every connection is there within a time, or fails.
#[derive(Clone, Debug)]
pub(crate) struct BoundedConnector<C> {
    inner: C,
    connect_ms: u64,
}

/// Name look-up, TCP and TLS took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no connection within {0} ms")]
struct ConnectTimedOut(u64);

impl<C> BoundedConnector<C> {
    pub(crate) fn new(inner: C, connect_ms: u64) -> Self {
        Self { inner, connect_ms }
    }
}

impl<C> Service<Uri> for BoundedConnector<C>
where
    C: Service<Uri>,
    C::Future: Send + 'static,
    C::Response: Send,
    C::Error: Into<BoxError>,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.inner.call(uri);
        let connect_ms = self.connect_ms;
        Box::pin(async move {
            tokio::time::timeout(Duration::from_millis(connect_ms), connecting)
                .await
                .map_err(|_| BoxError::from(ConnectTimedOut(connect_ms)))?
                .map_err(Into::into)
        })
    }
}

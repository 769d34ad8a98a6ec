//! One try: sends a request, reads the answer or what it was refused with.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use protocol::errors::UPSTREAM_ERROR_BYTES_MAX;
use tokio::time::{Instant, timeout_at};

use crate::errors::{CallError, Failure, Refusal, Step};
use crate::settings::{Timeouts, deadline};

/// Idle connections kept.
const IDLE_CONNECTIONS_MAX: usize = 32;
/// How long an idle connection is kept, in milliseconds; below the time after which the gateway closes it.
const IDLE_MS: u64 = 50_000;

/// A request ready to be sent, as often as it takes.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Whether sending it twice does no more than sending it once, so that a lost connection may be tried again.
    pub(crate) is_repeatable: bool,
}

/// Connections to one gateway, and how long to wait on them.
#[derive(Debug)]
pub(crate) struct Exchange {
    pool: Pool<HttpsConnector<HttpConnector>, OutgoingBody>,
    timeouts: Timeouts,
}

impl Exchange {
    pub(crate) fn new(mut timeouts: Timeouts) -> Self {
        // An answer begins after its connection.
        timeouts.connect_ms = timeouts.connect_ms.min(timeouts.first_byte_ms);
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        // Shared among a name's addresses, so that a dead one leaves time for the next.
        http.set_connect_timeout(Some(Duration::from_millis(timeouts.connect_ms)));
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(rustls::crypto::ring::default_provider())
            .unwrap_or_else(|error| panic!("ring supports the default protocol versions: {error}"))
            .https_or_http()
            .enable_http1()
            .enable_http2()
            .wrap_connector(http);
        let pool = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .pool_idle_timeout(Duration::from_millis(IDLE_MS))
            .build(connector);
        Self { pool, timeouts }
    }

    /// Sends once and waits for the head of the answer, which is a success. `retry` says how many tries went before.
    pub(crate) async fn try_once(
        &self,
        outgoing: &Outgoing,
        retry: u32,
        total: Instant,
    ) -> Result<Response<Incoming>, Failure> {
        let response = self.head(outgoing, retry, total).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (status, headers) = (response.status(), response.headers().clone());
        // A refusal whose body does not come is one all the same.
        let body = self
            .read(response.into_body(), UPSTREAM_ERROR_BYTES_MAX, total)
            .await
            .unwrap_or_default();
        let refusal = Refusal::read(status, &headers, &body, chrono::Utc::now());
        Err(CallError::refused(refusal).into())
    }

    async fn head(&self, outgoing: &Outgoing, retry: u32, total: Instant) -> Result<Response<Incoming>, Failure> {
        let now = Instant::now();
        let connected_by = deadline(now, self.timeouts.connect_ms).min(total);
        let begun_by = deadline(now, self.timeouts.first_byte_ms).min(total);
        let is_taken = Arc::new(AtomicBool::new(false));
        let mut request = Request::new(OutgoingBody {
            whole: Full::new(outgoing.body.clone()),
            is_taken: Arc::clone(&is_taken),
        });
        *request.method_mut() = outgoing.method.clone();
        *request.uri_mut() = outgoing.uri.clone();
        *request.headers_mut() = outgoing.headers.clone();
        let headers = request.headers_mut();
        headers.insert("x-stainless-retry-count", HeaderValue::from(retry));
        headers.insert(
            header::USER_AGENT,
            HeaderValue::from_static(concat!("tollgate-client/", env!("CARGO_PKG_VERSION"))),
        );

        let mut sending = pin!(self.pool.request(request));
        let sent = match timeout_at(connected_by, &mut sending).await {
            // Nobody asks an empty body for its pieces.
            Err(_) if !outgoing.body.is_empty() && !is_taken.load(Ordering::Acquire) => {
                return Err(self.timed_out(Step::Connect, connected_by, total).into());
            }
            Err(_) => timeout_at(begun_by, sending).await,
            sent => sent,
        };
        match sent {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) if error.is_connect() || outgoing.is_repeatable => {
                Err(Failure::Passing(CallError::Connection(error.into())))
            }
            Ok(Err(error)) => Err(Failure::Final(CallError::Connection(error.into()))),
            Err(_) => Err(self.timed_out(Step::FirstByte, begun_by, total).into()),
        }
    }

    /// The whole of a body.
    pub(crate) async fn read(&self, mut body: Incoming, bytes_max: usize, total: Instant) -> Result<Bytes, CallError> {
        let mut read = Vec::new();
        loop {
            let until = deadline(Instant::now(), self.timeouts.chunk_ms).min(total);
            match timeout_at(until, body.frame()).await {
                Err(_) => return Err(self.timed_out(Step::Chunk, until, total)),
                Ok(None) => return Ok(read.into()),
                Ok(Some(Err(error))) => return Err(CallError::Connection(error.into())),
                Ok(Some(Ok(frame))) => {
                    let data = frame.into_data().unwrap_or_default();
                    if read.len() + data.len() > bytes_max {
                        return Err(CallError::unreadable("it is longer than is read"));
                    }
                    read.extend_from_slice(&data);
                }
            }
        }
    }

    /// The error of a wait that ended at `until`: the step's own time-out, or the whole call's.
    pub(crate) fn timed_out(&self, step: Step, until: Instant, total: Instant) -> CallError {
        let step = if until == total { Step::Total } else { step };
        let after_ms = match step {
            Step::Connect => self.timeouts.connect_ms,
            Step::FirstByte => self.timeouts.first_byte_ms,
            Step::Chunk => self.timeouts.chunk_ms,
            Step::Total => self.timeouts.total_ms,
        };
        CallError::TimedOut { step, after_ms }
    }
}

/// A body that knows whether a connection took it: until then, nothing has been sent that could be charged.
#[derive(Debug)]
struct OutgoingBody {
    whole: Full<Bytes>,
    is_taken: Arc<AtomicBool>,
}

impl Body for OutgoingBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.is_taken.store(true, Ordering::Release);
        Pin::new(&mut self.whole).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.whole.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.whole.size_hint()
    }
}

#[cfg(test)]
mod tests;

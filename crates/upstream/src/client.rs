//! The HTTP client: pooled connections, TLS by rustls, no Nagle delay.

use std::time::Duration;

use bytes::Bytes;
use domain::policy::Dialect;
use http::header::{AUTHORIZATION, HeaderValue};
use http::{HeaderMap, Method};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use protocol::headers::X_API_KEY;
use tokio::time::{Instant, timeout_at};

use crate::connector::BoundedConnector;
use crate::outgoing::{OutgoingBody, Taken};
use crate::{ResponseBody, SendError, Timeouts};

/// Idle connections kept per provider.
const IDLE_CONNECTIONS_MAX: usize = 128;
/// How long an idle connection is kept, in milliseconds; below the minute after which many servers close theirs.
const IDLE_MS: u64 = 50_000;

/// What is sent to a provider.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: Method,
    /// The upstream's base URL, without a slash at the end.
    pub base_url: &'a str,
    /// The path below it, without a slash at the start.
    pub endpoint: &'a str,
    /// What the provider speaks: says in which header it wants the credential.
    pub dialect: Dialect,
    /// The credential in clear; absent when the upstream wants none.
    pub credential: Option<&'a str>,
    /// The headers to send, already filtered.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// Sends requests to providers. Cheap to clone; clones share connections.
#[derive(Clone, Debug)]
pub struct Client {
    pool: Pool<BoundedConnector<HttpsConnector<HttpConnector>>, OutgoingBody>,
    timeouts: Timeouts,
}

impl Client {
    /// A client with these time-outs. Trusts the system's certificates, and Mozilla's where the system has none.
    pub fn new(timeouts: Timeouts) -> Self {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        // Shared among a name's addresses, so that a dead one leaves time for the next.
        http.set_connect_timeout(Some(Duration::from_millis(timeouts.connect_ms)));
        let provider = rustls::crypto::ring::default_provider;
        let builder = HttpsConnectorBuilder::new();
        let builder = match builder.with_provider_and_native_roots(provider()) {
            Ok(builder) => builder,
            Err(error) => {
                tracing::warn!(%error, "the system has no usable certificates; trusting Mozilla's list");
                HttpsConnectorBuilder::new()
                    .with_provider_and_webpki_roots(provider())
                    .unwrap_or_else(|error| panic!("ring supports the default protocol versions: {error}"))
            }
        };
        let connector = builder
            .https_or_http()
            .enable_http1()
            .enable_http2()
            .wrap_connector(http);
        let pool = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .pool_idle_timeout(Duration::from_millis(IDLE_MS))
            .build(BoundedConnector::new(connector, timeouts.connect_ms));
        Self { pool, timeouts }
    }

    /// The time-outs in force.
    pub fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// Sends one request and waits for the response's head. `total_ms` caps the whole exchange below the client's own
    /// time-out.
    pub async fn send(
        &self,
        request: Request<'_>,
        total_ms: Option<u64>,
    ) -> Result<http::Response<ResponseBody>, SendError> {
        let total_ms = total_ms.unwrap_or(u64::MAX).min(self.timeouts.total_ms);
        let started = Instant::now();
        let total = (started + Duration::from_millis(total_ms), total_ms);
        let first_byte_ms = self.timeouts.first_byte_ms.min(total_ms);
        let (outgoing, taken) = outgoing(request)?;
        match timeout_at(
            started + Duration::from_millis(first_byte_ms),
            self.pool.request(outgoing),
        )
        .await
        {
            Err(_) if !taken.is_taken() => Err(SendError::Unconnected(first_byte_ms)),
            Err(_) => Err(SendError::TimedOut(first_byte_ms)),
            Ok(Err(error)) if error.is_connect() => Err(SendError::Connect(error)),
            Ok(Err(error)) => Err(SendError::Broken(error)),
            Ok(Ok(response)) => Ok(response.map(|body| ResponseBody::new(body, self.timeouts.chunk_ms, total))),
        }
    }
}

fn outgoing(request: Request<'_>) -> Result<(http::Request<OutgoingBody>, Taken), SendError> {
    let (body, taken) = OutgoingBody::new(request.body);
    let mut outgoing = http::Request::builder()
        .method(request.method)
        .uri(format!("{}/{}", request.base_url, request.endpoint))
        .body(body)
        .map_err(|_| SendError::Address)?;
    *outgoing.headers_mut() = request.headers;
    if let Some(credential) = request.credential {
        let (name, value) = match request.dialect {
            Dialect::Openai => (AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {credential}"))),
            Dialect::Anthropic => (X_API_KEY, HeaderValue::from_str(credential)),
        };
        let mut value = value.map_err(|_| SendError::Address)?;
        value.set_sensitive(true);
        outgoing.headers_mut().insert(name, value);
    }
    Ok((outgoing, taken))
}

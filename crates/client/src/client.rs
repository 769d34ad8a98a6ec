//! Sends requests, waits out refusals, reads answers.

use std::time::Duration;

use bytes::Bytes;
use domain::usage::TokenUsage;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use protocol::errors::{UPSTREAM_ERROR_BYTES_MAX, UpstreamError};
use protocol::headers;
use protocol::openai_chat::ChatResponse;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::errors::{CallError, Refusal, SettingsError};
use crate::request::ChatRequest;
use crate::retries::Retries;
use crate::stream::ChatStream;

/// The longest answer that is read whole, in bytes.
pub const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;

/// How a client behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// From a call's start to the end of its answer, all tries and waits included.
    pub timeout: Duration,
    /// How refusals are waited for.
    pub retries: Retries,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(600),
            retries: Retries::default(),
        }
    }
}

/// A caller of one gateway with one key. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    pool: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
    chat_url: http::Uri,
    authorization: HeaderValue,
    settings: Settings,
}

impl std::fmt::Debug for Client {
    /// Never shows the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("chat_url", &self.chat_url)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatAnswer {
    /// The text of the first choice; empty when it calls a tool instead.
    pub text: String,
    /// Why it ended.
    pub finish_reason: Option<String>,
    /// What it used, if the provider said so.
    pub usage: Option<TokenUsage>,
    /// The provider's id of the request.
    pub request_id: Option<String>,
    /// The whole body.
    pub body: Value,
}

impl Client {
    /// A client with the default settings. `base_url` goes up to and including the version: `https://gateway.example/v1`.
    ///
    /// # Errors
    /// When the URL or the key cannot be one.
    pub fn new(base_url: &str, key: &str) -> Result<Self, SettingsError> {
        Self::with_settings(base_url, key, Settings::default())
    }

    /// A client with settings of its own.
    ///
    /// # Errors
    /// When the URL or the key cannot be one.
    pub fn with_settings(base_url: &str, key: &str, settings: Settings) -> Result<Self, SettingsError> {
        let url = url::Url::parse(base_url).map_err(|_| SettingsError::BaseUrl)?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(SettingsError::BaseUrl);
        }
        let chat_url = format!("{}/chat/completions", url.as_str().trim_end_matches('/'))
            .parse()
            .map_err(|_| SettingsError::BaseUrl)?;
        let mut authorization = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| SettingsError::Key)?;
        authorization.set_sensitive(true);

        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(rustls::crypto::ring::default_provider())
            .unwrap_or_else(|error| panic!("ring supports the default protocol versions: {error}"))
            .https_or_http()
            .enable_http1()
            .enable_http2()
            .wrap_connector(http);
        Ok(Self {
            pool: Pool::builder(TokioExecutor::new()).build(connector),
            chat_url,
            authorization,
            settings,
        })
    }

    /// Asks and waits for the whole answer.
    ///
    /// # Errors
    /// When there is none; see [`CallError`].
    pub async fn chat(&self, request: &ChatRequest) -> Result<ChatAnswer, CallError> {
        let deadline = Instant::now() + self.settings.timeout;
        let response = self.send(request, false, deadline).await?;
        let request_id = headers::upstream_request_id(response.headers());
        let bytes = self.read(response, ANSWER_BYTES_MAX, deadline).await?;
        let body: Value = serde_json::from_slice(&bytes).map_err(|error| CallError::Unreadable(error.into()))?;
        let choice = &body["choices"][0];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Ok(ChatAnswer {
            text: text(&choice["message"]["content"]).unwrap_or_default(),
            finish_reason: text(&choice["finish_reason"]),
            usage: ChatResponse::read(&bytes).reported.to_usage(),
            request_id,
            body,
        })
    }

    /// Asks and returns the stream of the answer once it begins.
    ///
    /// # Errors
    /// When it does not begin; see [`CallError`].
    pub async fn chat_stream(&self, request: &ChatRequest) -> Result<ChatStream, CallError> {
        let deadline = Instant::now() + self.settings.timeout;
        let response = self.send(request, true, deadline).await?;
        let request_id = headers::upstream_request_id(response.headers());
        Ok(ChatStream::new(
            response.into_body(),
            request_id,
            deadline,
            self.settings.timeout,
        ))
    }

    /// Sends until a try succeeds, fails for good, or there is no time for another.
    async fn send(
        &self,
        request: &ChatRequest,
        is_streamed: bool,
        deadline: Instant,
    ) -> Result<Response<Incoming>, CallError> {
        let body = request
            .body(is_streamed)
            .map(Bytes::from)
            .map_err(|error| CallError::Unreadable(error.into()))?;
        let Retries { retries_max, .. } = self.settings.retries;
        let mut retry = 0;
        loop {
            let error = match self.try_once(body.clone(), retry, deadline).await {
                Ok(response) => return Ok(response),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Passing(error)) if retry >= retries_max => return Err(error),
                Err(Failure::Passing(error)) => error,
            };
            let told = error.refusal().and_then(|refusal| refusal.retry_after);
            let wait = self.settings.retries.wait(retry, told, random_share());
            // Waiting beyond the time-out helps nobody: the caller learns at once what is wrong and until when.
            if Instant::now() + wait >= deadline {
                return Err(error);
            }
            tokio::time::sleep(wait).await;
            retry += 1;
        }
    }

    async fn try_once(&self, body: Bytes, retry: u32, deadline: Instant) -> Result<Response<Incoming>, Failure> {
        let request = Request::post(self.chat_url.clone())
            .header(header::AUTHORIZATION, self.authorization.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header(
                header::USER_AGENT,
                concat!("tollgate-client/", env!("CARGO_PKG_VERSION")),
            )
            .header("x-stainless-retry-count", retry)
            .body(Full::new(body))
            .map_err(|error| Failure::Final(CallError::Connection(error.into())))?;
        let sent = timeout_at(deadline, self.pool.request(request)).await;
        let response = sent.map_err(|_| Failure::Final(self.timed_out()))?.map_err(|error| {
            let is_unsent = error.is_connect();
            let error = CallError::Connection(error.into());
            if is_unsent {
                Failure::Passing(error)
            } else {
                Failure::Final(error)
            }
        })?;
        if response.status() == StatusCode::OK {
            return Ok(response);
        }

        let (status, headers) = (response.status(), response.headers().clone());
        let body = self
            .read(response, UPSTREAM_ERROR_BYTES_MAX, deadline)
            .await
            .unwrap_or_default();
        let error = CallError::refused(refusal(status, &headers, &body));
        Err(if error.is_worth_retrying() {
            Failure::Passing(error)
        } else {
            Failure::Final(error)
        })
    }

    async fn read(
        &self,
        response: Response<Incoming>,
        bytes_max: usize,
        deadline: Instant,
    ) -> Result<Bytes, CallError> {
        let body = Limited::new(response.into_body(), bytes_max);
        match timeout_at(deadline, body.collect()).await {
            Err(_) => Err(self.timed_out()),
            Ok(Ok(collected)) => Ok(collected.to_bytes()),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(CallError::Unreadable(error)),
            Ok(Err(error)) => Err(CallError::Connection(error)),
        }
    }

    fn timed_out(&self) -> CallError {
        CallError::TimedOut(self.settings.timeout)
    }
}

/// Whether another try may help.
enum Failure {
    Passing(CallError),
    Final(CallError),
}

fn refusal(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Refusal {
    let error = UpstreamError::read(body);
    let scope = serde_json::from_slice::<Value>(body)
        .ok()
        .and_then(|body| body["error"]["scope"].as_str().map(str::to_owned));
    Refusal {
        status: status.as_u16(),
        code: error.code,
        message: error
            .message
            .unwrap_or_else(|| status.canonical_reason().unwrap_or("no reason given").to_owned()),
        scope,
        retry_after: headers::retry_after(headers, chrono::Utc::now()),
        request_id: headers::upstream_request_id(headers),
    }
}

/// In 0..=1; the middle where the system has no randomness, which costs nothing but the jitter.
fn random_share() -> f64 {
    getrandom::u32().map_or(0.5, |random| f64::from(random) / f64::from(u32::MAX))
}

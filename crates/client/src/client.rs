//! A caller of one gateway with one key: connections, settings, and the loop of tries.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, header};
use hyper::body::Incoming;
use tokio::time::Instant;
use url::Url;

use crate::errors::{CallError, SettingsError};
use crate::exchange::{Exchange, Outgoing};
use crate::retry_budget::RetryAccount;
use crate::settings::{Settings, deadline};
use crate::tries::Tries;

/// A caller of one gateway with one key. Cheap to clone; clones share their connections and their retry budget.
#[derive(Clone)]
pub struct Client(Arc<Shared>);

/// What clones share.
struct Shared {
    exchange: Exchange,
    base_url: Url,
    authorization: HeaderValue,
    settings: Settings,
    account: Arc<RetryAccount>,
}

impl std::fmt::Debug for Client {
    /// Never shows the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("base_url", &self.0.base_url.as_str())
            .field("settings", &self.0.settings)
            .finish_non_exhaustive()
    }
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
        let url = Url::parse(base_url).map_err(|_| SettingsError::BaseUrl)?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(SettingsError::BaseUrl);
        }
        let mut authorization = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| SettingsError::Key)?;
        authorization.set_sensitive(true);
        Ok(Self(Arc::new(Shared {
            exchange: Exchange::new(settings.timeouts),
            base_url: url,
            authorization,
            account: Arc::new(RetryAccount::new(settings.retry_budget, Instant::now())),
            settings,
        })))
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(crate) fn exchange(&self) -> &Exchange {
        &self.0.exchange
    }

    /// The end of a call that begins now.
    pub(crate) fn total_deadline(&self) -> Instant {
        deadline(Instant::now(), self.0.settings.timeouts.total_ms)
    }

    pub(crate) fn tries(&self, deadline: Instant) -> Tries {
        Tries::begin(self.0.settings.retries, Arc::clone(&self.0.account), deadline)
    }

    /// The URL of a path below the base, each segment escaped.
    pub(crate) fn url(&self, path: &[&str]) -> Url {
        let mut url = self.0.base_url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    /// A JSON request that must not be sent twice.
    pub(crate) fn post(&self, path: &[&str], headers: HeaderMap, body: Vec<u8>) -> Result<Outgoing, CallError> {
        let mut outgoing = self.outgoing(Method::POST, &self.url(path), headers)?;
        outgoing
            .headers
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        outgoing.body = Bytes::from(body);
        Ok(outgoing)
    }

    /// A request without a body that may be sent twice.
    pub(crate) fn repeatable(&self, method: Method, url: &Url) -> Result<Outgoing, CallError> {
        let outgoing = self.outgoing(method, url, HeaderMap::new())?;
        Ok(Outgoing {
            is_repeatable: true,
            ..outgoing
        })
    }

    fn outgoing(&self, method: Method, url: &Url, mut headers: HeaderMap) -> Result<Outgoing, CallError> {
        headers.insert(header::AUTHORIZATION, self.0.authorization.clone());
        Ok(Outgoing {
            method,
            uri: url
                .as_str()
                .parse()
                .map_err(|error: http::uri::InvalidUri| CallError::Unsendable(error.into()))?,
            headers,
            body: Bytes::new(),
            is_repeatable: false,
        })
    }

    /// Sends until a try succeeds, fails for good, or there is to be no other.
    pub(crate) async fn send(&self, outgoing: &Outgoing, tries: &mut Tries) -> Result<Response<Incoming>, CallError> {
        loop {
            let tried = self.0.exchange.try_once(outgoing, tries.count(), tries.deadline());
            match tried.await {
                Ok(response) => return Ok(response),
                Err(failure) => tries.wait_after(failure).await?,
            }
        }
    }
}

//! Who calls: as official SDKs do, or by our own.

use std::time::Duration;

use bytes::Bytes;
use domain::error_chain::chain;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};
use tollgate_client::{ChatRequest, Client, Retries, RetryBudget, Settings, Timeouts};

use crate::demand::Random;

/// A caller of either sort.
#[derive(Clone, Debug)]
pub(crate) enum Callers {
    Usual(Box<Usual>),
    Sdk(Sdk),
}

/// A call with all its attempts, as the user sees it.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) took: Duration,
    /// Why there was no answer, if there was none.
    pub(crate) failure: Option<String>,
}

impl Callers {
    pub(crate) async fn call(&self, body: &Value) -> Call {
        let started = Instant::now();
        let outcome = match self {
            Self::Usual(usual) => usual.call(body).await,
            Self::Sdk(sdk) => sdk.call(body).await,
        };
        Call {
            took: started.elapsed(),
            failure: outcome.err(),
        }
    }
}

/// As the official SDKs behave: each attempt has 30 s, and two more are made after refusals, failures and time-outs,
/// after as long as `Retry-After` says if that is at most a minute, else after half a second, doubled each time.
#[derive(Clone, Debug)]
pub(crate) struct Usual {
    pool: Pool<HttpConnector, Full<Bytes>>,
    url: String,
    key: String,
}

impl Usual {
    const TIMEOUT: Duration = Duration::from_secs(30);
    const RETRIES_MAX: u32 = 2;
    const RETRY_AFTER_SECONDS_MAX: f64 = 60.0;
    const BACK_OFF_SECONDS: f64 = 0.5;
    const BACK_OFF_SECONDS_MAX: f64 = 8.0;
    /// By how much of itself a back-off is shortened at random.
    const JITTER: f64 = 0.25;

    pub(crate) fn new(base_url: &str, key: &str) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self {
            pool: Pool::builder(TokioExecutor::new()).build(connector),
            url: format!("{base_url}/chat/completions"),
            key: key.to_owned(),
        }
    }

    async fn call(&self, body: &Value) -> Result<(), String> {
        let body = Bytes::from(body.to_string());
        let mut random = Random(body.len() as u64);
        let mut retry = 0;
        loop {
            let attempt = timeout(Self::TIMEOUT, self.attempt(body.clone(), retry)).await;
            let (failure, headers) = match attempt {
                Ok(Ok((200, _))) => return Ok(()),
                Ok(Ok((status, headers))) => (format!("status {status}"), headers),
                Ok(Err(error)) => (error, HeaderMap::new()),
                Err(_) => ("timed out".to_owned(), HeaderMap::new()),
            };
            if retry == Self::RETRIES_MAX {
                return Err(failure);
            }
            sleep(Duration::from_secs_f64(Self::wait_seconds(
                &headers,
                retry,
                &mut random,
            )))
            .await;
            retry += 1;
        }
    }

    /// The status and what came with it. Only statuses that SDKs retry occur here.
    async fn attempt(&self, body: Bytes, retry: u32) -> Result<(u16, HeaderMap), String> {
        let request = Request::post(&self.url)
            .header(AUTHORIZATION, format!("Bearer {}", self.key))
            .header(CONTENT_TYPE, "application/json")
            .header("x-stainless-retry-count", retry)
            .body(Full::new(body))
            .map_err(|error| error.to_string())?;
        let response = self.pool.request(request).await.map_err(|error| chain(&error))?;
        let (parts, body) = response.into_parts();
        body.collect().await.map_err(|error| chain(&error))?;
        Ok((parts.status.as_u16(), parts.headers))
    }

    fn wait_seconds(headers: &HeaderMap, retry: u32, random: &mut Random) -> f64 {
        let told = headers
            .get("retry-after")
            .and_then(|value| value.to_str().ok()?.parse().ok());
        match told.filter(|seconds| (0.0..=Self::RETRY_AFTER_SECONDS_MAX).contains(seconds)) {
            Some(seconds) => seconds,
            None => {
                let doubled = Self::BACK_OFF_SECONDS * f64::from(1_u32 << retry);
                doubled.min(Self::BACK_OFF_SECONDS_MAX) * (1.0 - Self::JITTER * random.share())
            }
        }
    }
}

/// By `tollgate-client`, told to want every request answered in the end.
#[derive(Clone, Debug)]
pub(crate) struct Sdk {
    client: Client,
}

impl Sdk {
    /// Longer than any run.
    const TOTAL_MS: u64 = 1_800_000;

    pub(crate) fn new(base_url: &str, key: &str) -> anyhow::Result<Self> {
        let settings = Settings {
            timeouts: Timeouts {
                total_ms: Self::TOTAL_MS,
                ..Timeouts::default()
            },
            retries: Retries {
                retries_max: u32::MAX,
                ..Retries::default()
            },
            retry_budget: RetryBudget::Unlimited,
            ..Settings::default()
        };
        Ok(Self {
            client: Client::with_settings(base_url, key, settings)?,
        })
    }

    async fn call(&self, body: &Value) -> Result<(), String> {
        let mut request = ChatRequest::new(body["model"].as_str().unwrap_or_default());
        for (name, value) in body.as_object().into_iter().flatten() {
            request = match name.as_str() {
                "model" => request,
                "messages" => request.message(value[0].clone()),
                _ => request.field(name, value.clone()),
            };
        }
        self.client
            .chat(&request)
            .await
            .map(|_| ())
            .map_err(|error| chain(&error))
    }
}

//! A caller that reads answers as plainly as it can: no dialect's own reader stands between.

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use crate::{Simulator, SimulatorConfig};

/// A provider with nothing special about it.
pub(crate) async fn plain() -> Result<Simulator> {
    Ok(Simulator::start(SimulatorConfig::default()).await?)
}

/// One that uses its cache.
pub(crate) async fn caching() -> Result<Simulator> {
    let config = SimulatorConfig {
        caches_prompts: true,
        ..SimulatorConfig::default()
    };
    Ok(Simulator::start(config).await?)
}

/// An answer that was read to its end.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answered {
    pub(crate) fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.text).with_context(|| self.text.clone())
    }

    /// The `event` of each event, and its data; data that is no JSON as a string.
    pub(crate) fn events(&self) -> Vec<(String, Value)> {
        let events = self.text.split_terminator("\n\n");
        events
            .map(|event| {
                let (mut name, mut data) = (String::new(), String::new());
                for line in event.lines() {
                    match line.split_once(": ") {
                        Some(("event", value)) => name = value.to_owned(),
                        Some(("data", value)) => data = value.to_owned(),
                        _ => panic!("{line} is no line of an event"),
                    }
                }
                (name, serde_json::from_str(&data).unwrap_or(Value::String(data)))
            })
            .collect()
    }

    /// The data of each event.
    pub(crate) fn data(&self) -> Vec<Value> {
        self.events().into_iter().map(|(_, data)| data).collect()
    }

    /// The name of each event, each only once where it comes several times in a row.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.events().into_iter().map(|(name, _)| name).collect();
        names.dedup();
        names
    }
}

/// Posts as a caller of either provider, with their headers and one more.
pub(crate) async fn post_with(
    simulator: &Simulator,
    path: &str,
    body: &Value,
    more: Option<(&str, &str)>,
) -> Result<Answered> {
    let mut request = Request::post(format!("{}{path}", simulator.base_url()))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::AUTHORIZATION, "Bearer sk-upstream")
        .header("x-api-key", "sk-upstream")
        .header("anthropic-version", "2023-06-01");
    if let Some((name, value)) = more {
        request = request.header(name, value);
    }
    send(request.body(Full::from(body.to_string()))?).await
}

pub(crate) async fn post(simulator: &Simulator, path: &str, body: &Value) -> Result<Answered> {
    post_with(simulator, path, body, None).await
}

/// The same body as a stream.
pub(crate) async fn stream(simulator: &Simulator, path: &str, body: &Value) -> Result<Answered> {
    let mut body = body.clone();
    body["stream"] = true.into();
    post(simulator, path, &body).await
}

pub(crate) async fn send(request: Request<Full<Bytes>>) -> Result<Answered> {
    let caller: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let response = caller.request(request).await?;
    let (status, headers) = (response.status(), response.headers().clone());
    let body = response.into_body().collect().await?.to_bytes();
    Ok(Answered {
        status,
        headers,
        text: String::from_utf8(body.to_vec())?,
    })
}

/// The texts under a field of each event, one after the other.
pub(crate) fn joined<'a>(events: impl IntoIterator<Item = &'a Value>, pointer: &str) -> String {
    let texts = events.into_iter().filter_map(|event| event.pointer(pointer)?.as_str());
    texts.collect()
}

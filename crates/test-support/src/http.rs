//! A small HTTP client for tests: JSON, forms with cookies, streams read piece by piece.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, LOCATION, ORIGIN, SET_COOKIE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {}", self.text()))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A header's text, empty where it is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    /// The error code of an OpenAI error body.
    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// An answer that is read piece by piece.
#[derive(Debug)]
pub struct Stream {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    body: Incoming,
}

impl Stream {
    /// The next piece; `None` at the end or when the connection breaks.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            let frame = self.body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                return Some(data);
            }
        }
    }

    /// All that is left, as text, and whether it came to its proper end.
    pub async fn to_end(mut self) -> (String, bool) {
        let mut text = Vec::new();
        while let Some(frame) = self.body.frame().await {
            match frame {
                Ok(frame) => text.extend_from_slice(frame.data_ref().map(AsRef::as_ref).unwrap_or_default()),
                Err(_) => return (String::from_utf8_lossy(&text).into_owned(), false),
            }
        }
        (String::from_utf8_lossy(&text).into_owned(), true)
    }

    /// All that is left, as text.
    pub async fn rest(mut self) -> String {
        let mut text = Vec::new();
        while let Some(piece) = self.next().await {
            text.extend_from_slice(&piece);
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// A caller or a browser without JavaScript: keeps cookies, follows no redirects by itself.
#[derive(Clone, Debug)]
pub struct Browser {
    base: String,
    client: Client<HttpConnector, Full<Bytes>>,
    cookies: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
}

impl Browser {
    /// For the server at `base`, such as `http://127.0.0.1:1234`.
    pub fn new(base: &str) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self {
            base: base.trim_end_matches('/').to_owned(),
            client: Client::builder(TokioExecutor::new()).build(connector),
            cookies: BTreeMap::new(),
            headers: BTreeMap::new(),
        }
    }

    /// Sends this header with every request from now on.
    pub fn always(&mut self, name: &str, value: &str) {
        self.headers.insert(name.to_owned(), value.to_owned());
    }

    /// What it holds as a cookie of this name; empty without one.
    pub fn cookie(&self, name: &str) -> &str {
        self.cookies.get(name).map_or("", String::as_str)
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Panics
    /// When there is none.
    pub async fn send(&mut self, method: Method, path: &str, headers: &[(&str, &str)], body: Bytes) -> Answer {
        let response = self.request(method, path, headers, body).await;
        self.keep_cookies(&response);
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("a whole body").to_bytes();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body,
        }
    }

    /// `GET`.
    pub async fn get(&mut self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], Bytes::new()).await
    }

    /// `GET`, following redirects as a browser does, up to five.
    pub async fn visit(&mut self, path: &str) -> Answer {
        let mut answer = self.get(path).await;
        for _ in 0..5 {
            if !answer.status.is_redirection() {
                break;
            }
            let to = answer.header(LOCATION.as_str()).to_owned();
            answer = self.get(&to).await;
        }
        answer
    }

    /// Posts a form as a page of the same origin does.
    pub async fn post_form(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let body = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(fields)
            .finish();
        let origin = self.base.clone();
        let headers = [
            (CONTENT_TYPE.as_str(), "application/x-www-form-urlencoded"),
            (ORIGIN.as_str(), origin.as_str()),
        ];
        self.send(Method::POST, path, &headers, body.into()).await
    }

    /// Posts JSON with a key.
    pub async fn post_json(&self, path: &str, key: &str, body: &Value) -> Answer {
        let stream = self.stream_json(path, key, body).await;
        let (status, headers) = (stream.status, stream.headers.clone());
        let body = stream
            .body
            .collect()
            .await
            .map(|body| body.to_bytes())
            .unwrap_or_default();
        Answer { status, headers, body }
    }

    /// `GET`, and leaves the answer to be read.
    pub async fn follow(&self, path: &str) -> Stream {
        let response = self.request(Method::GET, path, &[], Bytes::new()).await;
        let (parts, body) = response.into_parts();
        Stream {
            status: parts.status,
            headers: parts.headers,
            body,
        }
    }

    /// Posts JSON with a key, and leaves the answer to be read.
    pub async fn stream_json(&self, path: &str, key: &str, body: &Value) -> Stream {
        self.stream_json_with(path, key, &[], body).await
    }

    /// The same with more headers.
    pub async fn stream_json_with(&self, path: &str, key: &str, more: &[(&str, &str)], body: &Value) -> Stream {
        let bearer = format!("Bearer {key}");
        let mut headers = vec![
            (CONTENT_TYPE.as_str(), "application/json"),
            (AUTHORIZATION.as_str(), bearer.as_str()),
        ];
        headers.extend(more);
        let response = self
            .request(Method::POST, path, &headers, body.to_string().into())
            .await;
        let (parts, body) = response.into_parts();
        Stream {
            status: parts.status,
            headers: parts.headers,
            body,
        }
    }

    async fn request(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Bytes) -> Response<Incoming> {
        let uri = if path.starts_with("http") {
            path.to_owned()
        } else {
            format!("{}{path}", self.base)
        };
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if !self.cookies.is_empty() {
            let cookies: Vec<String> = self
                .cookies
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            request = request.header(COOKIE, cookies.join("; "));
        }
        let request = request.body(Full::new(body)).expect("a request");
        self.client.request(request).await.expect("an answer")
    }

    fn keep_cookies(&mut self, response: &Response<Incoming>) {
        for cookie in response.headers().get_all(SET_COOKIE) {
            let pair = cookie
                .to_str()
                .unwrap_or_default()
                .split(';')
                .next()
                .unwrap_or_default();
            if let Some((name, value)) = pair.split_once('=') {
                if value.is_empty() {
                    self.cookies.remove(name);
                } else {
                    self.cookies.insert(name.to_owned(), value.to_owned());
                }
            }
        }
    }
}

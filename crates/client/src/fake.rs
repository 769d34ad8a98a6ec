//! A gateway for tests: answers what it was told to, in that order, and remembers what it was asked.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::retries::Retries;
use crate::retry_budget::RetryBudget;
use crate::settings::Settings;

/// What it was asked.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    /// With its query.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Asked {
    /// A header's text, empty if there is none.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| std::str::from_utf8(value.as_bytes()).ok())
            .unwrap_or_default()
    }
}

/// What it answers.
pub(crate) struct Answer {
    response: Response<Pieces>,
    has_head: bool,
}

impl Answer {
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::new(status, [body.to_string()])
    }

    /// An error body with a code.
    pub(crate) fn refusal(status: u16, code: &str) -> Self {
        Self::json(
            status,
            &serde_json::json!({ "error": { "message": "no", "code": code } }),
        )
    }

    /// A stream of these pieces.
    pub(crate) fn stream<const N: usize>(pieces: [&str; N]) -> Self {
        Self::new(200, pieces.map(str::to_owned))
    }

    /// Never a byte.
    pub(crate) fn silence() -> Self {
        Self {
            has_head: false,
            ..Self::new(200, [])
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        let value = value.parse().expect("a header");
        self.response.headers_mut().insert(name, value);
        self
    }

    /// Falls silent after its pieces instead of ending.
    pub(crate) fn then_silence(mut self) -> Self {
        self.response.body_mut().ends = false;
        self
    }

    fn new<const N: usize>(status: u16, pieces: [String; N]) -> Self {
        let mut response = Response::new(Pieces {
            left: pieces.into_iter().map(Bytes::from).collect(),
            ends: true,
        });
        *response.status_mut() = StatusCode::from_u16(status).expect("a status");
        Self {
            response,
            has_head: true,
        }
    }
}

/// A body in pieces.
struct Pieces {
    left: VecDeque<Bytes>,
    ends: bool,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.left.pop_front() {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            None if self.ends => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

#[derive(Default)]
struct Played {
    script: VecDeque<Answer>,
    asked: Vec<Asked>,
}

/// The gateway.
pub(crate) struct Fake {
    base_url: String,
    played: Arc<Mutex<Played>>,
    // Aborted when dropped.
    _server: JoinSet<()>,
}

impl Fake {
    /// Starts one that answers with these; with 500 when there are none left.
    pub(crate) async fn start(script: impl IntoIterator<Item = Answer>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let base_url = format!("http://{}/v1", listener.local_addr()?);
        let played = Arc::new(Mutex::new(Played {
            script: script.into_iter().collect(),
            asked: Vec::new(),
        }));
        let mut server = JoinSet::new();
        let shared = Arc::clone(&played);
        server.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let played = Arc::clone(&shared);
                let service = service_fn(move |request| answer(Arc::clone(&played), request));
                connections.spawn(async move {
                    let connection = hyper::server::conn::http1::Builder::new();
                    // A client that leaves in the middle is part of the tests.
                    connection.serve_connection(TokioIo::new(stream), service).await.ok();
                });
            }
        });
        Ok(Self {
            base_url,
            played,
            _server: server,
        })
    }

    /// A client that retries twice and after a millisecond, so that no test waits.
    pub(crate) fn client(&self) -> Client {
        self.client_with(quick())
    }

    pub(crate) fn client_with(&self, settings: Settings) -> Client {
        Client::with_settings(&self.base_url, "sk-tg-test", settings).expect("settings that work")
    }

    /// What it was asked until now.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        lock(&self.played).asked.clone()
    }
}

/// Settings under which no test waits.
pub(crate) fn quick() -> Settings {
    let mut settings = Settings {
        retries: Retries {
            retries_max: 2,
            first_ms: 1,
            longest_ms: 1,
        },
        retry_budget: RetryBudget::Unlimited,
        ..Settings::default()
    };
    settings.timeouts.total_ms = 20_000;
    settings
}

async fn answer(played: Arc<Mutex<Played>>, request: Request<Incoming>) -> Result<Response<Pieces>, hyper::Error> {
    let (head, body) = request.into_parts();
    let asked = Asked {
        method: head.method,
        path: head.uri.to_string(),
        headers: head.headers,
        body: body.collect().await?.to_bytes(),
    };
    let answer = {
        let mut played = lock(&played);
        played.asked.push(asked);
        played.script.pop_front()
    };
    let answer = answer.unwrap_or_else(|| Answer::refusal(500, "no_answer_left"));
    if !answer.has_head {
        std::future::pending::<()>().await;
    }
    Ok(answer.response)
}

fn lock(played: &Mutex<Played>) -> MutexGuard<'_, Played> {
    played.lock().unwrap_or_else(PoisonError::into_inner)
}

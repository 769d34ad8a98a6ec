//! Load on a gateway by callers that keep books of their own: which request was answered how, and what the answer said it
//! used. It goes on while the gateway is killed and started again, as callers do.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

/// Callers that wait for an answer at once, at most; who comes then comes in vain. An unoptimised gateway that gets a part of
/// one processor does nothing else any more with hundreds.
const IN_FLIGHT_MAX: usize = 40;
/// How long a caller waits for anything.
const CALLER_WAIT: Duration = Duration::from_secs(60);
/// How many requests there are until the kinds of them repeat.
const KINDS: u64 = 20;

/// Whom the load is from, and what is asked for.
#[derive(Clone, Debug)]
pub struct Callers {
    /// Keys of tenants without limits.
    pub keys: Vec<String>,
    /// A key that may ask twice a minute: most of its requests are refused and folded. No such requests, if absent.
    pub tight_key: Option<String>,
    /// Models in OpenAI's dialect.
    pub models: Vec<String>,
    /// A model in Anthropic's dialect.
    pub anthropic_model: String,
    /// A model whose provider fails every time; no such requests, if absent.
    pub failing_model: Option<String>,
}

/// What one caller knows of its request in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The status.
    pub status: u16,
    /// The code of a refusal or error, if there was one.
    pub code: String,
    /// Input and output, as the answer said.
    pub usage: Option<(u64, u64)>,
    /// Whether the answer was read to its proper end.
    pub is_whole: bool,
    /// Whether the caller left on purpose.
    pub has_left: bool,
}

/// What all callers know.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// What was asked.
    pub sent: u64,
    /// Answers, whole or begun, by the request's id.
    pub seen: HashMap<Uuid, Seen>,
    /// Answers whose id was seen twice.
    pub repeated: u64,
    /// Requests that were not answered: nobody was there, or it was killed meanwhile.
    pub unanswered: u64,
    /// Those that were not even sent, as too many waited.
    pub held_back: u64,
}

impl Tally {
    /// Answers that came to their proper end with this status.
    pub fn whole(&self, status: u16) -> impl Iterator<Item = (&Uuid, &Seen)> {
        self.seen
            .iter()
            .filter(move |(_, seen)| seen.is_whole && seen.status == status)
    }

    /// Answers that broke off.
    pub fn broken(&self) -> usize {
        self.seen
            .values()
            .filter(|seen| !seen.is_whole && !seen.has_left)
            .count()
    }
}

/// Callers at work.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    target: watch::Sender<Vec<String>>,
    stop: CancellationToken,
    pacing: JoinHandle<()>,
    begun: Instant,
}

#[derive(Debug)]
struct Shared {
    callers: Callers,
    client: Client<HttpConnector, Full<Bytes>>,
    tally: Mutex<Tally>,
    answered: AtomicU64,
    places: Semaphore,
    tasks: TaskTracker,
}

/// One request and how its caller behaves.
struct Asked {
    path: &'static str,
    key: String,
    body: Value,
    leaves: bool,
}

impl Load {
    /// Starts so many requests a second at these gateways in turn, whether or not earlier ones are answered.
    pub fn start(urls: &[String], callers: Callers, per_second: u32) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let shared = Arc::new(Shared {
            callers,
            client: Client::builder(TokioExecutor::new()).build(connector),
            tally: Mutex::default(),
            answered: AtomicU64::new(0),
            places: Semaphore::new(IN_FLIGHT_MAX),
            tasks: TaskTracker::new(),
        });
        let (target, at) = watch::channel(urls.to_vec());
        let stop = CancellationToken::new();
        let pacing = tokio::spawn(pace(Arc::clone(&shared), at, per_second, stop.clone()));
        Self {
            shared,
            target,
            stop,
            pacing,
            begun: Instant::now(),
        }
    }

    /// From now on requests go here; nowhere, if there are none.
    pub fn turn_to(&self, urls: &[String]) {
        self.target.send_replace(urls.to_vec());
    }

    /// How many requests were answered so far, and for how long it runs.
    pub fn so_far(&self) -> (u64, Duration) {
        (self.shared.answered.load(Ordering::Relaxed), self.begun.elapsed())
    }

    /// Requests whose callers wait for an answer.
    pub fn under_way(&self) -> u64 {
        (IN_FLIGHT_MAX - self.shared.places.available_permits()) as u64
    }

    /// How many were answered with this code so far.
    pub async fn codes(&self, code: &str) -> usize {
        let tally = self.shared.tally.lock().await;
        tally.seen.values().filter(|seen| seen.code == code).count()
    }

    /// How many were answered as they should be.
    pub async fn served(&self) -> usize {
        self.shared.tally.lock().await.whole(200).count()
    }

    /// Waits until so many more requests are answered.
    ///
    /// # Panics
    /// When they are not within a minute.
    pub async fn answered(&self, more: u64) {
        let wanted = self.shared.answered.load(Ordering::Relaxed) + more;
        let deadline = Instant::now() + CALLER_WAIT;
        while self.shared.answered.load(Ordering::Relaxed) < wanted {
            assert!(Instant::now() < deadline, "{more} more requests are not answered");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Stops asking, waits until every caller knows what it will ever know, and tells it.
    pub async fn stop(self) -> Tally {
        self.stop.cancel();
        let _ = self.pacing.await;
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        self.shared.tally.lock().await.clone()
    }
}

async fn pace(shared: Arc<Shared>, at: watch::Receiver<Vec<String>>, per_second: u32, stop: CancellationToken) {
    let mut ticks = interval(Duration::from_secs(1) / per_second);
    // Late ones are made up for: the load does not follow the gateway.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut number = 0;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let urls = at.borrow().clone();
        if urls.is_empty() {
            continue;
        }
        let url = urls[number as usize % urls.len()].clone();
        let asked = shared.callers.ask(number);
        number += 1;
        let shared = Arc::clone(&shared);
        shared
            .tasks
            .clone()
            .spawn(async move { shared.call(&url, asked).await });
    }
}

impl Callers {
    /// Request number so-and-so. The texts differ, so that each has figures of its own.
    fn ask(&self, number: u64) -> Asked {
        let key = self.keys[number as usize % self.keys.len()].clone();
        let model = &self.models[number as usize % self.models.len()];
        let tokens = 5 + number % 40;
        let text = format!(
            "Request {number}: {}. [[sim: tokens={tokens}]]",
            "x".repeat((number % 300) as usize)
        );
        let chat =
            |model: &str, text: &str| json!({ "model": model, "messages": [{ "role": "user", "content": text }] });
        let mut body = chat(model, &text);
        let mut asked = Asked {
            path: "/v1/chat/completions",
            key,
            body: Value::Null,
            leaves: false,
        };
        match number % KINDS {
            0..=5 => {
                body["user"] = json!(format!("user-{}", number % 7));
            }
            6..=9 => {
                body["stream"] = json!(true);
                body["stream_options"] = json!({ "include_usage": true });
            }
            kind @ 10..=12 => {
                asked.path = "/v1/messages";
                body = chat(&self.anthropic_model, &text);
                body["max_tokens"] = json!(100);
                body["stream"] = json!(kind == 12);
            }
            13 => body = chat(model, "Bad. [[sim: status=400]]"),
            14 => {
                let failing = self.failing_model.as_ref().unwrap_or(model);
                body = chat(failing, "Worse. [[sim: status=422]]");
            }
            // A name of its own for each: equal refusals are folded, and what is folded is in memory for a minute.
            15 => body = chat(&format!("no-such-model-{number}"), "Hello."),
            16 => match &self.tight_key {
                Some(key) => asked.key.clone_from(key),
                None => body["user"] = json!("nobody"),
            },
            17 | 18 => {
                body = chat(model, &format!("Long {number}. [[sim: tokens=30 chunk-ms=10]]"));
                body["stream"] = json!(true);
                asked.leaves = true;
            }
            _ => {
                body["stream"] = json!(true);
                body["stream_options"] = json!({ "include_usage": true });
                body["messages"][0]["content"] = json!(format!("{text} [[sim: chunk-ms=5]]"));
            }
        }
        asked.body = body;
        asked
    }
}

impl Shared {
    async fn call(&self, url: &str, asked: Asked) {
        let Ok(_place) = self.places.try_acquire() else {
            self.tally.lock().await.held_back += 1;
            return;
        };
        let outcome = timeout(CALLER_WAIT, self.exchange(url, &asked)).await.ok().flatten();
        let mut tally = self.tally.lock().await;
        tally.sent += 1;
        match outcome {
            None => tally.unanswered += 1,
            Some((id, seen)) => {
                self.answered.fetch_add(1, Ordering::Relaxed);
                if tally.seen.insert(id, seen).is_some() {
                    tally.repeated += 1;
                }
            }
        }
    }

    /// The id of the request and what became of it; `None` without an answer.
    async fn exchange(&self, url: &str, asked: &Asked) -> Option<(Uuid, Seen)> {
        let request = Request::post(format!("{url}{}", asked.path))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::AUTHORIZATION, format!("Bearer {}", asked.key))
            .body(Full::new(Bytes::from(asked.body.to_string())))
            .expect("a request");
        let response = self.client.request(request).await.ok()?;
        let (parts, body) = response.into_parts();
        let id = parts
            .headers
            .get("x-tollgate-request-id")?
            .to_str()
            .ok()?
            .parse()
            .ok()?;
        let mut seen = Seen {
            status: parts.status.as_u16(),
            code: String::new(),
            usage: None,
            is_whole: false,
            has_left: false,
        };
        if asked.leaves && parts.status.is_success() {
            let mut body = body;
            let _ = body.frame().await;
            seen.has_left = true;
            return Some((id, seen));
        }
        let (text, is_whole) = read(body).await;
        let is_streamed = asked.body["stream"] == json!(true) && parts.status.is_success();
        let events: Vec<Value> = if is_streamed {
            let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
            lines.filter_map(|data| serde_json::from_str(data).ok()).collect()
        } else {
            serde_json::from_str(&text).into_iter().collect()
        };
        seen.usage = usage(&events);
        let error = events.iter().find(|event| event["error"].is_object());
        seen.code = error
            .and_then(|event| event["error"]["code"].as_str().or(event["error"]["type"].as_str()))
            .unwrap_or_default()
            .to_owned();
        let has_end = !is_streamed || text.contains("[DONE]") || text.contains("message_stop");
        seen.is_whole = is_whole && has_end;
        Some((id, seen))
    }
}

/// The last figures that were told of input and output, in either dialect.
fn usage(events: &[Value]) -> Option<(u64, u64)> {
    let mut told = None;
    for event in events {
        for usage in [&event["usage"], &event["message"]["usage"]] {
            let figure = |names: [&str; 2]| names.iter().find_map(|name| usage[*name].as_u64());
            let (input, output) = told.unwrap_or((0, 0));
            if usage.is_object() {
                told = Some((
                    figure(["prompt_tokens", "input_tokens"]).unwrap_or(input),
                    figure(["completion_tokens", "output_tokens"]).unwrap_or(output),
                ));
            }
        }
    }
    told
}

async fn read(mut body: Incoming) -> (String, bool) {
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => text.extend_from_slice(frame.data_ref().map(AsRef::as_ref).unwrap_or_default()),
            Err(_) => return (String::from_utf8_lossy(&text).into_owned(), false),
        }
    }
    (String::from_utf8_lossy(&text).into_owned(), true)
}

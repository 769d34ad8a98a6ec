//! A provider made of nothing: answers, latency, failures and account limits for demo, tests and benchmarks.
//!
//! It speaks, written from the providers' references and sharing no code with the readers that are tested against it:
//!
//! | path | dialect |
//! |---|---|
//! | `POST /v1/chat/completions` | OpenAI's chat, whole and streamed |
//! | `POST /v1/completions` | OpenAI's completions, whole and streamed |
//! | `POST /v1/responses` | OpenAI's responses, whole and streamed; nothing is kept to refer to |
//! | `POST /v1/embeddings` | OpenAI's embeddings |
//! | `POST /v1/messages` | Anthropic's messages, whole and streamed |
//! | `POST /v1/messages/count_tokens` | what a message's input would be |
//! | `GET /v1/models` | Anthropic's list where `anthropic-version` came, else OpenAI's |
//!
//! The answer follows from model and prompt alone, so the same question is answered the same way, in a stream or not. What
//! it shall do instead can be ordered, in every dialect: for all requests by [`SimulatorConfig::behaviour`], for the next
//! ones by [`Simulator::script`], for one by a header `X-Simulator: status=429 retry-after=7`, by a suffix of the model's
//! name (`gpt-sim@status=500`), or in any text of the prompt, which also passes through a gateway:
//! `[[sim: tokens=40 chunk-ms=5]]`. [`behaviour`] lists the orders.
//!
//! # How tokens are counted
//!
//! Input, in all dialects: 3, and 4 for each message, and one for every five bytes of text, rounded up; an image is 85, any
//! other medium 250; a list of tokens is as many as it has. A message is also: each item of a response's input and its
//! `instructions`, each prompt that is completed, each text that is embedded, and Anthropic's `system`. Definitions of
//! tools and formats, and whatever is not known, count as the text of their JSON.
//!
//! Output: one for each word that is generated, reasoning included, shown or not (`best_of`). Embeddings have none.
//!
//! # The cache
//!
//! Where [`SimulatorConfig::caches_prompts`] is set, or an order says so. With OpenAI a request whose input was seen before
//! reads it from the cache, but for what does not fill 16 tokens. With Anthropic what ends at a `cache_control` is written,
//! for five minutes or an hour, and read by a later request that begins the same way and has a mark there or up to 20
//! blocks further on. Nothing is too short to be written, and nothing expires.
//!
//! # The account
//!
//! Requests and tokens a minute, counted as [`Counting`] says. A request is counted when it arrives, with the tokens that
//! its answer will have, and refused at once where there is no room: 429 with `Retry-After`. Every answer tells what is
//! left. What is ordered to fail is not counted. [`Simulator::traffic`] shows what came, for benchmarks.

mod account;
mod answer;
mod asked;
pub mod behaviour;
mod cache;
mod connection;
mod dialect;
mod failure;
mod flight;
mod gate;
mod input;
mod latency;
mod models;
mod provider;
mod random;
mod sending;
mod serve;
mod stats;
mod traffic;

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use account::Counting;
pub use behaviour::{Behaviour, UnknownOrder};
pub use stats::Stats;
pub use traffic::{Arrival, Traffic};

use account::Account;
use cache::SeenPrompts;
use dialect::chat::Chat;
use dialect::completions::Completions;
use dialect::embeddings::Embeddings;
use dialect::messages::{CountTokens, Messages};
use dialect::responses::Responses;
use failure::Failure;
use gate::Gate;
use provider::Provider;
use random::Random;
use serve::serve;
use stats::Counters;

/// The longest body that is read, in bytes.
pub const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The most behaviours that can wait for their requests.
pub const SCRIPT_MAX: usize = 10_000;

/// What kind of provider it is.
#[derive(Clone, Debug)]
pub struct SimulatorConfig {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The key it wants, as a bearer's or in `x-api-key`; any when absent.
    pub credential: Option<String>,
    /// The models it has; any when empty.
    pub models: Vec<String>,
    /// What it does unless a request says otherwise.
    pub behaviour: Behaviour,
    /// Requests a minute of the account; unlimited when absent.
    pub requests_per_minute: Option<u64>,
    /// Input and output tokens a minute of the account; unlimited when absent.
    pub tokens_per_minute: Option<u64>,
    /// How the account's minute is counted.
    pub counting: Counting,
    /// How many arrivals are kept for [`Simulator::traffic`].
    pub arrivals_kept: usize,
    /// Whether its cache is used.
    pub caches_prompts: bool,
    /// Decides which requests fail where a share of them shall.
    pub seed: u64,
}

impl Default for SimulatorConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            credential: None,
            models: Vec::new(),
            behaviour: Behaviour::default(),
            requests_per_minute: None,
            tokens_per_minute: None,
            counting: Counting::default(),
            arrivals_kept: 0,
            caches_prompts: false,
            seed: 0,
        }
    }
}

struct Shared {
    config: SimulatorConfig,
    counters: Counters,
    gate: Gate,
    account: Mutex<Account>,
    traffic: Mutex<Traffic>,
    failures: Mutex<Random>,
    started: Instant,
    script: Mutex<VecDeque<Behaviour>>,
    prompts: Mutex<SeenPrompts>,
}

/// A running provider. Dropping it stops it; [`Self::stop`] also waits for its end.
pub struct Simulator {
    address: SocketAddr,
    shared: Arc<Shared>,
    stopping: CancellationToken,
    tasks: TaskTracker,
}

impl Simulator {
    /// Starts listening.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub async fn start(config: SimulatorConfig) -> io::Result<Self> {
        let listener = TcpListener::bind(config.listen).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            account: Mutex::new(Account::new(
                config.counting,
                config.requests_per_minute,
                config.tokens_per_minute,
            )),
            traffic: Mutex::default(),
            failures: Mutex::new(Random::of(config.seed)),
            started: Instant::now(),
            config,
            counters: Counters::default(),
            gate: Gate::default(),
            script: Mutex::default(),
            prompts: Mutex::default(),
        });
        let stopping = CancellationToken::new();
        let tasks = TaskTracker::new();
        tasks.spawn(connection::accept(
            listener,
            router(Arc::clone(&shared)),
            stopping.clone(),
            tasks.clone(),
        ));
        tasks.close();
        Ok(Self {
            address,
            shared,
            stopping,
            tasks,
        })
    }

    /// Up to and including the version: `http://127.0.0.1:1234/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has seen and sent so far.
    pub fn stats(&self) -> Stats {
        self.shared.counters.read()
    }

    /// The last requests as they met the account's limits, [`SimulatorConfig::arrivals_kept`] at most.
    pub fn traffic(&self) -> Traffic {
        self.shared.traffic.lock().clone()
    }

    /// Waits until the counters are as wanted; for ever, if they never are.
    pub async fn wait_until(&self, is_reached: impl FnMut(&Stats) -> bool) -> Stats {
        self.shared.counters.wait_until(is_reached).await
    }

    /// Behaviours for the next requests, one each, in the order of their arrival. A request's own orders come on top.
    ///
    /// # Errors
    /// When an order is unknown. What is beyond [`SCRIPT_MAX`] is dropped.
    pub fn script<'a>(&self, orders: impl IntoIterator<Item = &'a str>) -> Result<(), UnknownOrder> {
        let behaviours = orders
            .into_iter()
            .map(|text| {
                let mut behaviour = self.shared.config.behaviour.clone();
                behaviour.apply(text).map(|()| behaviour)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let mut script = self.shared.script.lock();
        script.extend(behaviours);
        script.truncate(SCRIPT_MAX);
        Ok(())
    }

    /// From now on every request is parked before its first byte, as if it were ordered to `hold`.
    pub fn hold(&self) {
        self.shared.gate.close();
    }

    /// Lets all parked requests go on, and ends [`Self::hold`].
    pub fn release_all(&self) {
        self.shared.gate.open();
    }

    /// Waits until at least `count` requests are parked.
    pub async fn wait_parked(&self, count: u64) {
        self.wait_until(|stats| stats.requests_parked >= count).await;
    }

    /// Stops listening, cuts what is in flight and waits for the end of it.
    pub async fn stop(self) {
        self.stopping.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        self.stopping.cancel();
    }
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(serve::<Chat>))
        .route("/v1/completions", post(serve::<Completions>))
        .route("/v1/responses", post(serve::<Responses>))
        .route("/v1/embeddings", post(serve::<Embeddings>))
        .route("/v1/messages", post(serve::<Messages>))
        .route("/v1/messages/count_tokens", post(serve::<CountTokens>))
        .route("/v1/models", get(models::list))
        .route("/simulator/stats", get(stats))
        .fallback(not_found)
        .layer(axum::extract::DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(shared)
}

async fn stats(State(shared): State<Arc<Shared>>) -> Json<Stats> {
    Json(shared.counters.read())
}

async fn not_found(headers: HeaderMap) -> Response {
    let message = "Nothing is served under this path.";
    let failure = Failure::refused(StatusCode::NOT_FOUND, message, "unknown_url");
    Provider::of(&headers).failed(&failure, "req_unknown_path")
}

#[cfg(test)]
mod tests;

//! Callers that ask as fast as they are answered, each on a connection of its own, and measure every request.
//!
//! They write bytes that were made before and read no more of an answer than shows that it is as it should be: on one
//! processor with the upstream, what they use is not there for it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use bytes::Buf;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::message::Message;

/// Stands in a question's body for the request's number, so that no two bodies are the same.
pub const NUMBER: &str = "00000000000000000000";
/// What is read at once.
const READ_BYTES: usize = 64 * 1024;
/// How long an answer may take, where everything is on one machine.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// How long who is refused because something is not open yet waits until it asks again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Counts all requests of this process.
static REQUESTS: AtomicU64 = AtomicU64::new(0);

/// Who asks.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The API key.
    pub key: String,
    /// For whom.
    pub user: String,
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// Where.
    pub path: &'static str,
    body: Vec<u8>,
    /// Where the number is in the body.
    number_at: usize,
    /// How many events the answer has, if it is streamed.
    pub events: Option<u64>,
}

impl Question {
    /// With a body that holds [`NUMBER`].
    ///
    /// # Errors
    /// When it does not.
    pub fn new(path: &'static str, body: String, events: Option<u64>) -> anyhow::Result<Self> {
        let number_at = body.find(NUMBER).context("the body has no place for a number")?;
        Ok(Self {
            path,
            body: body.into_bytes(),
            number_at,
            events,
        })
    }

    /// How long the body is.
    pub fn body_bytes(&self) -> usize {
        self.body.len()
    }

    /// What stands before the body.
    pub(super) fn head(&self, to: SocketAddr, identity: &Identity) -> Vec<u8> {
        let Self { path, body, .. } = self;
        let Identity { key, user } = identity;
        let length = body.len();
        format!(
            "POST {path} HTTP/1.1\r\nhost: {to}\r\naccept: application/json\r\nuser-agent: tollgate-bench\r\n\
             content-type: application/json\r\nauthorization: Bearer {key}\r\nx-tollgate-user: {user}\r\n\
             content-length: {length}\r\n\r\n"
        )
        .into_bytes()
    }

    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }
}

/// What all callers have measured.
#[derive(Clone, Debug)]
pub struct Calls {
    /// From the first request to the last answer.
    pub elapsed: Duration,
    /// From a request's first byte to its answer's last.
    pub whole: Latencies,
    /// From a request's first byte to the first of its answer's body.
    pub first: Latencies,
}

impl Calls {
    /// How many were answered.
    pub fn count(&self) -> u64 {
        self.whole.0.len() as u64
    }

    /// How many in a second.
    pub fn per_second(&self) -> f64 {
        self.count() as f64 / self.elapsed.as_secs_f64()
    }
}

/// Times in ascending order, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latencies(Vec<u64>);

impl Latencies {
    fn of(times: impl Iterator<Item = Duration>) -> Self {
        let mut nanos: Vec<u64> = times.map(|time| time.as_nanos() as u64).collect();
        nanos.sort_unstable();
        Self(nanos)
    }

    /// The smallest that so many percent do not exceed; none of none.
    pub fn percentile(&self, percent: f64) -> Duration {
        let rank = (self.0.len() as f64 * percent / 100.0).ceil() as usize;
        Duration::from_nanos(self.0.get(rank.saturating_sub(1)).copied().unwrap_or(0))
    }
}

/// Has so many callers ask this, as one identity after the other, for so long.
///
/// # Errors
/// When anything is answered that is no whole answer with status 200: the first such answer.
pub async fn call(
    to: SocketAddr,
    identities: &[Identity],
    question: &Question,
    concurrency: usize,
    duration: Duration,
) -> anyhow::Result<Calls> {
    let heads: Arc<[Vec<u8>]> = identities.iter().map(|identity| question.head(to, identity)).collect();
    let mut connected = Vec::new();
    for _ in 0..concurrency {
        connected.push(Caller::connect(to, &heads, question).await?);
    }
    let begun = Instant::now();
    let until = begun + duration;
    let mut callers = JoinSet::new();
    for caller in connected {
        callers.spawn(caller.call_until(until));
    }
    let mut timings = Vec::new();
    let collecting = async {
        while let Some(ended) = callers.join_next().await {
            timings.extend(ended.context("a caller")??);
        }
        anyhow::Ok(())
    };
    let collected = timeout(duration + ANSWER_WAIT, collecting).await;
    collected.with_context(|| format!("an answer took longer than {ANSWER_WAIT:?}"))??;
    Ok(Calls {
        elapsed: begun.elapsed(),
        whole: Latencies::of(timings.iter().map(|timing| timing.whole)),
        first: Latencies::of(timings.iter().map(|timing| timing.first)),
    })
}

/// Asks once as each identity, again while it is told that something is not open yet (503); answers how many were answered,
/// which is all of them.
///
/// # Errors
/// When one is not answered within `patience`, or otherwise.
pub async fn introduce(
    to: SocketAddr,
    identities: &[Identity],
    question: &Question,
    patience: Duration,
) -> anyhow::Result<u64> {
    let heads: Arc<[Vec<u8>]> = identities.iter().map(|identity| question.head(to, identity)).collect();
    let mut caller = Caller::connect(to, &heads, question).await?;
    for identity in 0..heads.len() {
        let deadline = Instant::now() + patience;
        loop {
            let asked = timeout(ANSWER_WAIT, caller.ask(identity)).await;
            asked.with_context(|| format!("an answer took longer than {ANSWER_WAIT:?}"))??;
            if caller.message.status() != 503 || Instant::now() >= deadline {
                break;
            }
            sleep(RETRY_PAUSE).await;
            caller = Caller::connect(to, &heads, question).await?;
        }
        caller.check()?;
    }
    Ok(heads.len() as u64)
}

/// How long one request took.
#[derive(Clone, Copy, Debug)]
struct Timing {
    first: Duration,
    whole: Duration,
}

/// One connection.
struct Caller {
    stream: TcpStream,
    heads: Arc<[Vec<u8>]>,
    body: Vec<u8>,
    number_at: usize,
    events: Option<u64>,
    message: Message,
    buffer: Vec<u8>,
}

impl Caller {
    async fn connect(to: SocketAddr, heads: &Arc<[Vec<u8>]>, question: &Question) -> anyhow::Result<Self> {
        let connected = timeout(ANSWER_WAIT, TcpStream::connect(to)).await;
        let stream = connected
            .context("it takes too long")
            .and_then(|stream| Ok(stream?))
            .with_context(|| format!("a connection to {to}"))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            heads: Arc::clone(heads),
            body: question.body.clone(),
            number_at: question.number_at,
            events: question.events,
            message: Message::default(),
            buffer: vec![0; READ_BYTES],
        })
    }

    async fn call_until(mut self, until: Instant) -> anyhow::Result<Vec<Timing>> {
        let mut timings = Vec::new();
        while Instant::now() < until {
            let identity = REQUESTS.load(Ordering::Relaxed) as usize % self.heads.len();
            timings.push(self.ask(identity).await?);
            self.check()?;
        }
        Ok(timings)
    }

    /// One request and its answer, whatever that is.
    async fn ask(&mut self, identity: usize) -> anyhow::Result<Timing> {
        let number = REQUESTS.fetch_add(1, Ordering::Relaxed);
        write_number(&mut self.body[self.number_at..][..NUMBER.len()], number);
        self.message.reset();
        let mut request = Buf::chain(self.heads[identity].as_slice(), self.body.as_slice());
        let begun = Instant::now();
        self.stream.write_all_buf(&mut request).await.context("a request")?;
        let mut first = None;
        loop {
            let count = self.stream.read(&mut self.buffer).await.context("an answer")?;
            if count == 0 {
                let bytes = self.message.body_bytes();
                bail!("a connection was closed before the end of an answer, after {bytes} bytes of its body");
            }
            let is_whole = self.message.feed(&self.buffer[..count])?;
            if first.is_none() && self.message.body_bytes() > 0 {
                first = Some(begun.elapsed());
            }
            if is_whole {
                break;
            }
        }
        let whole = begun.elapsed();
        Ok(Timing {
            first: first.unwrap_or(whole),
            whole,
        })
    }

    /// Whether the last answer is as it should be.
    fn check(&self) -> anyhow::Result<()> {
        let message = &self.message;
        let status = message.status();
        ensure!(
            status == 200,
            "status {status}: {}",
            String::from_utf8_lossy(message.kept())
        );
        if let Some(wanted) = self.events {
            let events = message.events();
            ensure!(events == wanted, "a stream of {wanted} events had {events}");
            ensure!(message.ends_with_last_event(), "a stream ended without its last event");
        }
        Ok(())
    }
}

fn write_number(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

//! An upstream that says again what another one has said, to every request the same, for as little as that can cost.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::callers::{Identity, Question};
use super::message::Message;

#[cfg(test)]
mod tests;

/// What is read at once.
const READ_BYTES: usize = 64 * 1024;
/// How long an answer that is recorded may take.
const RECORDING_WAIT: Duration = Duration::from_secs(30);

/// What an upstream has answered.
#[derive(Clone, Debug)]
pub struct Recorded {
    head: Vec<u8>,
    body: Vec<u8>,
}

impl Recorded {
    /// Asks an upstream, and keeps its answer.
    ///
    /// # Errors
    /// When it has none with status 200.
    pub async fn of(upstream: SocketAddr, identity: &Identity, question: &Question) -> anyhow::Result<Self> {
        let recording = timeout(RECORDING_WAIT, Self::record(upstream, identity, question));
        recording
            .await
            .context("an upstream that is recorded does not answer")?
    }

    async fn record(upstream: SocketAddr, identity: &Identity, question: &Question) -> anyhow::Result<Self> {
        let mut stream = TcpStream::connect(upstream).await?;
        stream.write_all(&question.head(upstream, identity)).await?;
        stream.write_all(question.body()).await?;
        let mut message = Message::keeping();
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let count = stream.read(&mut buffer).await?;
            ensure!(count > 0, "an answer that is recorded breaks off");
            if message.feed(&buffer[..count])? {
                break;
            }
        }
        let status = message.status();
        let text = String::from_utf8_lossy(message.kept());
        ensure!(status == 200, "an answer that is recorded has status {status}: {text}");
        Ok(Self {
            head: message.head().to_vec(),
            body: message.kept().to_vec(),
        })
    }

    /// How long its body is.
    pub fn body_bytes(&self) -> usize {
        self.body.len()
    }
}

/// What is written, one piece after the other.
#[derive(Clone, Debug)]
pub struct Script {
    writes: Vec<Vec<u8>>,
    pause: Duration,
}

impl Script {
    /// The whole answer in one piece.
    pub fn whole(recorded: &Recorded) -> Self {
        Self {
            writes: vec![[recorded.head.as_slice(), &recorded.body].concat()],
            pause: Duration::ZERO,
        }
    }

    /// A chunked stream, each event in a piece of its own and about so long after the one before: half of it to one and a
    /// half, so that streams that began together do not go on together. Without a pause, streams take turns.
    pub fn streamed(recorded: &Recorded, pause: Duration) -> Self {
        let mut writes: Vec<Vec<u8>> = events(&recorded.body)
            .map(|event| {
                let size = format!("{:x}\r\n", event.len());
                [size.as_bytes(), event, b"\r\n"].concat()
            })
            .collect();
        if let Some(first) = writes.first_mut() {
            first.splice(..0, recorded.head.iter().copied());
        }
        if let Some(last) = writes.last_mut() {
            last.extend_from_slice(b"0\r\n\r\n");
        }
        Self { writes, pause }
    }

    /// How many pieces there are.
    pub fn pieces(&self) -> usize {
        self.writes.len()
    }
}

/// Each with the blank line that ends it.
fn events(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = body;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.windows(2).position(|window| window == b"\n\n");
        let (event, behind) = rest.split_at(end.map_or(rest.len(), |end| end + 2));
        rest = behind;
        Some(event)
    })
}

/// A running upstream, on a thread of its own. It ends when dropped.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    script: Arc<Mutex<Arc<Script>>>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Upstream {
    /// Starts one that answers this, until it is told otherwise.
    ///
    /// # Errors
    /// When it cannot listen.
    pub fn start(script: Script) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let script = Arc::new(Mutex::new(Arc::new(script)));
        let stop = CancellationToken::new();
        let accepting = {
            let (script, stop) = (Arc::clone(&script), stop.clone());
            move || runtime.block_on(stop.run_until_cancelled(accept(listener, script)))
        };
        let thread = thread::Builder::new().name("upstream".into()).spawn(move || {
            if let Some(Err(error)) = accepting() {
                eprintln!("the upstream accepts no more: {error}");
            }
        })?;
        Ok(Self {
            address,
            script,
            stop,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on it answers this.
    pub fn answer(&self, script: Script) {
        *self.script.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(script);
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // Why it ended, it has said.
            let _ = thread.join();
        }
    }
}

async fn accept(listener: std::net::TcpListener, script: Arc<Mutex<Arc<Script>>>) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let script = Arc::clone(&script);
        tokio::spawn(async move {
            // The peer says what went wrong: it gets no answer.
            let _ = serve(stream, &script).await;
        });
    }
}

/// Answers one request after the other.
async fn serve(mut stream: TcpStream, script: &Mutex<Arc<Script>>) -> anyhow::Result<()> {
    let mut message = Message::default();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        if message.feed(&buffer[..count])? {
            message.reset();
            let script = Arc::clone(&script.lock().unwrap_or_else(PoisonError::into_inner));
            say(&mut stream, &script).await?;
        }
    }
}

async fn say(stream: &mut TcpStream, script: &Script) -> io::Result<()> {
    let mut at = Instant::now();
    for (place, piece) in script.writes.iter().enumerate() {
        if place > 0 {
            match script.pause.is_zero() {
                true => yield_now().await,
                false => {
                    at += uneven(script.pause);
                    sleep_until(at).await;
                }
            }
        }
        stream.write_all(piece).await?;
    }
    Ok(())
}

/// From half of it to one and a half, and in the long run as much as it.
fn uneven(pause: Duration) -> Duration {
    static PAUSES: AtomicU64 = AtomicU64::new(0);
    let number = PAUSES.fetch_add(1, Ordering::Relaxed);
    // The golden ratio's digits: what follows each other differs, and all of it is spread evenly.
    let part = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as u32;
    pause / 2 + pause * part / 1_024
}

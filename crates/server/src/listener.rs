//! A door: accepts connections within bounds, serves them, and closes in good order.

use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use bytes::Bytes;
use http::Request;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::trusted_proxies::TrustedProxies;

/// Connections at once, where the system allows so many. Beyond it they wait in the system's backlog.
pub const CONNECTIONS_MAX: usize = 16_384;
/// Of them, those of a console that has an address of its own.
pub const ADMIN_CONNECTIONS_MAX: usize = 256;
/// File descriptors that are not for connections: journal, database, log, console files.
const DESCRIPTORS_RESERVED: usize = 128;
/// What a connection may need: its own descriptor, and one towards a provider.
const DESCRIPTORS_PER_CONNECTION: usize = 2;
/// The fewest connections, however little the system allows.
const CONNECTIONS_MIN: usize = 64;
/// The descriptors assumed where the system does not tell.
const DESCRIPTORS_ASSUMED: usize = 1_024;
/// How long a caller may take to send the head of a request, in milliseconds; also how long a connection may stand
/// open with no request under way.
pub const IDLE_MS: u64 = 75_000;
/// How long a connection that is told to close may take, in milliseconds.
const CLOSE_WAIT_MS: u64 = 5_000;
/// The pause after the system refused to accept, for want of file descriptors most likely, in milliseconds.
const ACCEPT_PAUSE_MS: u64 = 100;

/// How a door is kept.
#[derive(Clone, Debug)]
pub struct DoorSettings {
    /// Connections at once.
    pub connections_max: usize,
    /// How long a connection may stand open with no request under way.
    pub idle: Duration,
    /// Whose word about the caller's address is taken.
    pub trusted_proxies: TrustedProxies,
}

/// When a door closes.
#[derive(Clone, Debug, Default)]
pub struct Closing {
    /// No new connections; those open end after the answers under way.
    pub stop: CancellationToken,
    /// What is still open is broken off.
    pub end: CancellationToken,
}

/// How many connections this process can hold, by the file descriptors that the system grants it.
pub fn connections_max() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    connections_for(descriptors(&limits).unwrap_or(DESCRIPTORS_ASSUMED))
}

fn connections_for(descriptors: usize) -> usize {
    (descriptors.saturating_sub(DESCRIPTORS_RESERVED) / DESCRIPTORS_PER_CONNECTION)
        .clamp(CONNECTIONS_MIN, CONNECTIONS_MAX)
}

/// The soft limit in the text of `/proc/self/limits`.
fn descriptors(limits: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(usize::MAX),
        soft => soft.parse().ok(),
    }
}

/// Opens the door at `address`.
pub async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}; is another program using it? Choose another with --listen")
    })
}

/// Serves `router` until told to stop, then waits for the answers under way.
pub async fn serve(listener: TcpListener, router: Router, settings: DoorSettings, closing: Closing) {
    let places = Arc::new(Semaphore::new(settings.connections_max));
    let open = TaskTracker::new();
    let builder = builder(settings.idle);
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, stream, peer) = tokio::select! {
            () = closing.stop.cancelled() => break,
            (place, accepted) = accepted => match accepted {
                Ok((stream, peer)) => (place, stream, peer),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
                    continue;
                }
            },
        };
        let serving = connection(
            stream,
            peer,
            builder.clone(),
            router.clone(),
            settings.clone(),
            closing.stop.clone(),
        );
        let serving = closing.end.clone().run_until_cancelled_owned(serving);
        open.spawn(async move {
            serving.await;
            drop(place);
        });
    }
    drop(listener);
    open.close();
    open.wait().await;
}

fn builder(idle: Duration) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(idle);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(idle);
    builder
}

/// Serves one connection to its end.
///
/// hyper waits without end for the first bytes of a connection, and for the next request of a peer that answers pings: so
/// whoever has no request under way for too long is told to close here.
async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    builder: Builder<TokioExecutor>,
    router: Router,
    settings: DoorSettings,
    stop: CancellationToken,
) {
    let DoorSettings {
        idle, trusted_proxies, ..
    } = settings;
    let under_way = UnderWay::default();
    let mut serving = pin!(
        builder
            .serve_connection_with_upgrades(TokioIo::new(without_delay(stream)), {
                let under_way = under_way.clone();
                service_fn(move |request: Request<Incoming>| {
                    let caller = trusted_proxies.caller(peer, request.headers());
                    answer(router.clone(), request, caller, under_way.began())
                })
            })
            .into_owned()
    );
    // A connection that breaks is its peer's business; the request on it has been booked.
    tokio::select! {
        _ = &mut serving => return,
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            let _ = serving.await;
            return;
        }
        () = under_way.idle_for(idle) => {}
    }
    serving.as_mut().graceful_shutdown();
    let _ = timeout(Duration::from_millis(CLOSE_WAIT_MS), serving).await;
}

async fn answer(
    router: Router,
    request: Request<Incoming>,
    caller: SocketAddr,
    began: Began,
) -> Result<http::Response<Body>, Infallible> {
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(ConnectInfo(caller));
    let response = router.oneshot(request).await?;
    Ok(response.map(|body| Body::new(Counted { body, _began: began })))
}

/// A peer that waits to fill its packets answers 40 ms late.
fn without_delay(stream: TcpStream) -> TcpStream {
    let _ = stream.set_nodelay(true);
    stream
}

/// The requests under way on one connection.
#[derive(Clone, Default)]
struct UnderWay(watch::Sender<usize>);

impl UnderWay {
    fn began(&self) -> Began {
        self.0.send_modify(|count| *count += 1);
        Began(self.clone())
    }

    /// Waits until there has been none for so long.
    async fn idle_for(&self, idle: Duration) {
        let mut counts = self.0.subscribe();
        loop {
            // The sender is ours, so it does not go away.
            let _ = counts.wait_for(|count| *count == 0).await;
            if timeout(idle, counts.changed()).await.is_err() {
                return;
            }
        }
    }
}

/// One request, from its head to the end of its answer.
struct Began(UnderWay);

impl Drop for Began {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

/// An answer that is under way until it is dropped.
struct Counted {
    body: Body,
    _began: Began,
}

impl hyper::body::Body for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;

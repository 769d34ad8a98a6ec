//! A door: accepts connections within bounds, serves them, and closes in good order.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// Connections at once. Beyond it they wait in the system's backlog.
pub const CONNECTIONS_MAX: usize = 16_384;
/// How long a caller may take to send the head of a request, in milliseconds; also how long a connection may idle.
pub const HEAD_READ_MS: u64 = 75_000;
/// The pause after the system refused to accept, for want of file descriptors most likely, in milliseconds.
const ACCEPT_PAUSE_MS: u64 = 100;

/// Opens the door at `address`.
pub async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}; is another program using it? Choose another with --listen")
    })
}

/// Serves `router` until `stop`, then waits for the answers under way.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let open = GracefulShutdown::new();
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(HEAD_READ_MS));
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_millis(HEAD_READ_MS));
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, stream, peer) = tokio::select! {
            () = stop.cancelled() => break,
            (place, accepted) = accepted => match accepted {
                Ok((stream, peer)) => (place, stream, peer),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
                    continue;
                }
            },
        };
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(without_delay(stream)), {
            let router = router.clone();
            service_fn(move |request| answer(router.clone(), request, peer))
        });
        let connection = open.watch(connection.into_owned());
        tokio::spawn(async move {
            // A connection that breaks is its peer's business; the request on it has been booked.
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    open.shutdown().await;
}

async fn answer(
    router: Router,
    request: Request<Incoming>,
    peer: SocketAddr,
) -> Result<http::Response<Body>, Infallible> {
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(ConnectInfo(peer));
    router.oneshot(request).await
}

/// A peer that waits to fill its packets answers 40 ms late.
fn without_delay(stream: TcpStream) -> TcpStream {
    let _ = stream.set_nodelay(true);
    stream
}

//! Accepts connections, and can reset them: a failure that a handler alone cannot produce.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Ends the connection it belongs to with a reset instead of an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResetSwitch(Arc<AtomicBool>);

impl ResetSwitch {
    pub(crate) fn reset(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

pub(crate) async fn accept(listener: TcpListener, router: Router, stopping: CancellationToken, tasks: TaskTracker) {
    loop {
        let accepted = tokio::select! {
            () = stopping.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, or a peer that left at once; the next may succeed.
                tracing::warn!(%error, "the simulator could not accept a connection");
                tokio::task::yield_now().await;
                continue;
            }
        };
        let router = router.clone();
        let stopping = stopping.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = stopping.cancelled() => {}
                () = serve(stream, router) => {}
            }
        });
    }
}

async fn serve(stream: TcpStream, router: Router) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "the peer left before it could ask");
        return;
    }
    let switch = ResetSwitch::default();
    let service = TowerToHyperService::new(router.layer(Extension(switch.clone())));
    let connection = Connection { stream, switch };
    if let Err(error) = http1::Builder::new()
        .serve_connection(TokioIo::new(connection), service)
        .await
    {
        tracing::debug!(%error, "a connection to the simulator ended early");
    }
}

/// A socket that nothing can be written to, and that is reset when dropped, once the switch is on.
struct Connection {
    stream: TcpStream,
    switch: ResetSwitch,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.switch.is_on()
            && let Err(error) = self.stream.set_zero_linger()
        {
            tracing::debug!(%error, "the connection could not be reset");
        }
    }
}

impl Connection {
    fn check(&self) -> io::Result<()> {
        if self.switch.is_on() {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.switch.is_on() {
            // A proper end would be no reset.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

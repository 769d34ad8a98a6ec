//! A wire that can be cut: stands between a process and a server, to make the server go away and come back.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Forwards connections while it is not cut.
#[derive(Debug)]
pub struct Wire {
    address: SocketAddr,
    is_cut: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Wire {
    /// Forwards to `server`.
    ///
    /// # Panics
    /// When nothing can listen on loopback.
    pub async fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (is_cut, seen) = watch::channel(false);
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(forward(near, server.clone(), seen.clone()));
            }
        });
        Self { address, is_cut, task }
    }

    /// Where to connect instead.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks every connection and answers no other.
    pub fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    /// Forwards again.
    pub fn mend(&self) {
        self.is_cut.send_replace(false);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(mut near: TcpStream, server: String, mut is_cut: watch::Receiver<bool>) {
    if *is_cut.borrow() {
        return;
    }
    let Ok(mut far) = TcpStream::connect(server).await else {
        return;
    };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
        _ = is_cut.wait_for(|is_cut| *is_cut) => {}
    }
}

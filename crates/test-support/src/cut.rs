//! A wire that can be cut or fall silent: stands between a process and a server, to make the server go away and come back.

use std::net::SocketAddr;

use tokio::io::{copy, copy_bidirectional, sink};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What becomes of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// They arrive.
    Whole,
    /// Connections break, and no other is answered.
    Cut,
    /// They are swallowed, and nobody is told.
    Silent,
}

/// Forwards connections while it is whole.
#[derive(Debug)]
pub struct Wire {
    address: SocketAddr,
    state: watch::Sender<State>,
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
        let (state, seen) = watch::channel(State::Whole);
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(forward(near, server.clone(), seen.clone()));
            }
        });
        Self { address, state, task }
    }

    /// Where to connect instead.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks every connection and answers no other.
    pub fn cut(&self) {
        self.state.send_replace(State::Cut);
    }

    /// Swallows what is sent from now on, as a stopped server or a lost network does: connections stay open and can be
    /// made, and nothing comes back.
    pub fn silence(&self) {
        self.state.send_replace(State::Silent);
    }

    /// Forwards again. Connections that were silent stay so: what was swallowed does not come back.
    pub fn mend(&self) {
        self.state.send_replace(State::Whole);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(mut near: TcpStream, server: String, mut state: watch::Receiver<State>) {
    let begun_in = *state.borrow();
    if begun_in == State::Cut {
        return;
    }
    // Kept open while the wire is silent, as the server would.
    let mut far = None;
    if begun_in == State::Whole {
        let Ok(connected) = TcpStream::connect(server).await else {
            return;
        };
        let far = far.insert(connected);
        tokio::select! {
            _ = copy_bidirectional(&mut near, far) => return,
            _ = state.wait_for(|state| *state != State::Whole) => {}
        }
    }
    let mut nowhere = sink();
    tokio::select! {
        _ = copy(&mut near, &mut nowhere) => {}
        _ = state.wait_for(|state| *state == State::Cut) => {}
    }
}

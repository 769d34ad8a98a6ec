//! Ports that nobody uses.

use std::net::{Ipv4Addr, TcpListener};

/// The first port tried, and how many from there on. They and their companions lie below the ports that systems give to
/// outgoing connections, so that a server that was killed finds its port free when it starts again.
const FIRST: u16 = 10_000;
const COUNT: u16 = 12_000;
/// Where a cluster node listens for the others, counted from its own port.
const BUS_OFFSET: u16 = 10_000;
const TRIES_MAX: usize = 1_000;

/// A port that was free a moment ago together with the one that a cluster node would use beside it.
pub(crate) fn free() -> u16 {
    let mut tried = 0;
    while tried < TRIES_MAX {
        let mut bytes = [0; 2];
        getrandom::fill(&mut bytes).expect("the system has random bytes");
        let port = FIRST + u16::from_le_bytes(bytes) % COUNT;
        if is_free(port) && is_free(port + BUS_OFFSET) {
            return port;
        }
        tried += 1;
    }
    panic!("no free port among {TRIES_MAX} tried");
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

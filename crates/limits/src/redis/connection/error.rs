//! Why a call or a connection failed.

use std::io;
use std::sync::Arc;

use redis::{ErrorKind, RedisError};

use super::settings::Address;

/// Why a call brought no result. Nothing is tried again by itself.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// There is no connection: nothing was sent.
    #[error("Redis at {address} is out of reach")]
    Unreachable {
        /// The server.
        address: Address,
        /// Why the last attempt failed.
        source: Arc<ConnectError>,
    },
    /// No answer came in time. The call may have run, and may still run later: a server that was stopped runs what it
    /// was sent when it goes on.
    #[error("Redis at {address} did not answer in time")]
    TimedOut {
        /// The server.
        address: Address,
    },
    /// The connection broke before the answer came. The call may have run.
    #[error("the connection to Redis at {address} broke before the answer came")]
    Broken {
        /// The server.
        address: Address,
    },
    /// The server answered that it will not: out of memory, a replica, no permission, a cluster in parts. A script that
    /// failed half way keeps what it wrote before.
    #[error("Redis refuses: {answer}")]
    Refused {
        /// Its words, the first of which is a code such as `OOM`, `READONLY`, `NOPERM` or `CLUSTERDOWN`.
        answer: String,
    },
    /// The answer is none to this call.
    #[error("Redis answered something else than was asked")]
    UnexpectedReply,
}

impl CallError {
    /// Whether the call may have changed something, or may still do so.
    pub(crate) fn may_have_run(&self) -> bool {
        !matches!(self, Self::Unreachable { .. })
    }

    /// Of an answer that did not arrive.
    pub(super) fn from_exchange(error: &RedisError, address: &Address) -> Self {
        match error.kind() {
            ErrorKind::Server(_) | ErrorKind::Extension => Self::Refused { answer: words(error) },
            ErrorKind::Io => Self::Broken {
                address: address.clone(),
            },
            _ => Self::UnexpectedReply,
        }
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The name means nothing here.
    #[error("its name cannot be resolved")]
    Unresolved(#[source] io::Error),
    /// Nobody listens, or the network is in the way.
    #[error("it takes no connection")]
    NotTaken(#[source] io::Error),
    /// Its certificate is not trusted, or it does not speak TLS.
    #[error(
        "no agreement on TLS (a server without TLS wants redis:// in its URL; a certificate of one's own authority wants \
         that authority's certificate named in the settings)"
    )]
    Tls(#[source] io::Error),
    /// User or password are wrong or missing.
    #[error("it refuses the user or password in the URL: {0}")]
    SignIn(String),
    /// It is there and cannot be used now.
    #[error("it is not ready: {0}")]
    NotReady(String),
    /// It hung up.
    #[error("it closed the connection (a server with TLS wants rediss:// in its URL)")]
    Closed,
    /// It takes longer than the time-out.
    #[error("it gave no answer within {0} ms")]
    Slow(u128),
    /// It was connected and went silent.
    #[error("it left {0} calls in a row without an answer")]
    Silent(u32),
    /// It was connected and turned out to be of no use, for example a replica.
    #[error("it refused to be used: {0}")]
    Disowned(String),
    /// The connection broke soon after it was made.
    #[error("the connection broke")]
    Broken,
    /// No node of the cluster could say where the slots are.
    #[error("no node says where the slots of the cluster are: {0}")]
    NoSlots(String),
    /// A slot of the cluster is nobody's.
    #[error("slot {0} of the cluster belongs to no node")]
    SlotWithoutNode(u16),
}

/// An error's words as the server sent them.
pub(super) fn words(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        (None, _) => error.to_string(),
    }
}

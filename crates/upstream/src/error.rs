//! Why a provider gave no answer, or only a part of one.

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The upstream's address is not usable. Nothing was sent.
    #[error("the upstream's address is not a valid URL")]
    Address,
    /// No connection could be made. Nothing was sent.
    #[error("no connection to the upstream")]
    Connect(#[source] hyper_util::client::legacy::Error),
    /// The time for the whole request was over before there was a connection. Nothing was sent.
    #[error("no connection to the upstream within {0} ms")]
    Unconnected(u64),
    /// The connection broke before the response's head. The provider may have worked on the request.
    #[error("the upstream closed the connection before it answered")]
    Broken(#[source] hyper_util::client::legacy::Error),
    /// No response's head in time. The provider may have worked on the request.
    #[error("the upstream did not begin to answer within {0} ms")]
    TimedOut(u64),
}

impl SendError {
    /// Whether the request may have reached the provider, so that it may cost something.
    pub fn may_have_been_sent(&self) -> bool {
        matches!(self, Self::Broken(_) | Self::TimedOut(_))
    }

    /// The word kept on the attempt in the ledger.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Address => "bad_address",
            Self::Connect(_) | Self::Unconnected(_) => "connect",
            Self::Broken(_) => "connection_broken",
            Self::TimedOut(_) => "first_byte_timeout",
        }
    }
}

/// Why a response's body ended early.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The connection broke.
    #[error("the upstream closed the connection inside its answer")]
    Broken(#[source] hyper::Error),
    /// Silence for too long.
    #[error("the upstream was silent for {0} ms")]
    Silent(u64),
    /// The whole request took too long.
    #[error("the request took longer than {0} ms")]
    TookTooLong(u64),
}

impl BodyError {
    /// Whether one of our own time-outs ended it.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Silent(_) | Self::TookTooLong(_))
    }

    /// The word kept on the attempt in the ledger.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Broken(_) => "connection_broken",
            Self::Silent(_) => "chunk_timeout",
            Self::TookTooLong(_) => "total_timeout",
        }
    }
}

//! The door to what is counted now. The process that serves requests opens it; operations know gateways by nothing else.

use std::fmt;

use domain::key_text::SecretHash;
use domain::limits::Scope;
use domain::questions::{Answer, Question};
use domain::readings::Readings;
use domain::text;
use domain::text::Text;
use futures_util::FutureExt as _;
use futures_util::future::{self, BoxFuture};

/// Nodes that are read at once, at most.
pub const SCOPES_READ_MAX: usize = 1_000;

/// What is counted now, which secrets are known, and what would become of a request. None of it takes anything.
pub trait LiveCounters: fmt::Debug + Send + Sync {
    /// What the limits in force on these nodes say, at most [`SCOPES_READ_MAX`] of them.
    fn readings(&self, scopes: Vec<Scope>) -> BoxFuture<'_, Result<Readings, LiveError>>;

    /// Whether a request that shows this secret would be known now.
    fn knows_secret(&self, secret: SecretHash) -> BoxFuture<'_, Result<bool, LiveError>>;

    /// What would become of this request now.
    fn answer(&self, question: Question) -> BoxFuture<'_, Result<Answer, LiveError>>;
}

/// Why there are no live figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub enum LiveError {
    /// This process serves no requests.
    NoGateway,
    /// The gateway has just started.
    NotReady,
    /// Issued just now, or its tenant is gone.
    UnknownKey,
}

impl LiveError {
    /// What to do about it.
    pub fn text(&self) -> Text {
        match self {
            Self::NoGateway => text!("this process serves no requests; ask one that does"),
            Self::NotReady => text!("the gateway has not read its policy yet; try again in a second"),
            Self::UnknownKey => text!("the gateway does not know this key; a new one is in force within a second"),
        }
    }
}

/// For processes that only configure.
#[derive(Debug)]
pub(crate) struct NoGateway;

impl LiveCounters for NoGateway {
    fn readings(&self, _: Vec<Scope>) -> BoxFuture<'_, Result<Readings, LiveError>> {
        future::ready(Err(LiveError::NoGateway)).boxed()
    }

    fn knows_secret(&self, _: SecretHash) -> BoxFuture<'_, Result<bool, LiveError>> {
        future::ready(Err(LiveError::NoGateway)).boxed()
    }

    fn answer(&self, _: Question) -> BoxFuture<'_, Result<Answer, LiveError>> {
        future::ready(Err(LiveError::NoGateway)).boxed()
    }
}

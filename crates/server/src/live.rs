//! Live figures for the console: the gateway of this process, asked in the words of `control`.

use std::sync::Arc;

use control::live::{LiveCounters, LiveError};
use domain::key_text::SecretHash;
use domain::limits::Scope;
use domain::questions::{Answer, Question};
use domain::readings::Readings;
use futures_util::FutureExt as _;
use futures_util::future::{self, BoxFuture};
use gateway::Gateway;
use gateway::explain::Unanswered;

/// The gateway, as the console may ask it.
#[derive(Debug)]
pub(crate) struct GatewayFigures(pub(crate) Arc<Gateway>);

impl LiveCounters for GatewayFigures {
    fn readings(&self, scopes: Vec<Scope>) -> BoxFuture<'_, Result<Readings, LiveError>> {
        async move { self.0.readings(&scopes).await.map_err(reason) }.boxed()
    }

    fn knows_secret(&self, secret: SecretHash) -> BoxFuture<'_, Result<bool, LiveError>> {
        future::ready(self.0.knows_secret(&secret).map_err(reason)).boxed()
    }

    fn answer(&self, question: Question) -> BoxFuture<'_, Result<Answer, LiveError>> {
        async move { self.0.explain(&question).await.map_err(reason) }.boxed()
    }
}

fn reason(unanswered: Unanswered) -> LiveError {
    match unanswered {
        Unanswered::NoPolicy => LiveError::NotReady,
        Unanswered::UnknownKey => LiveError::UnknownKey,
    }
}

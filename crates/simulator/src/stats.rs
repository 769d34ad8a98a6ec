//! What the provider has seen and sent, for comparing with a ledger.

use domain::usage::TokenUsage;
use serde::Serialize;
use tokio::sync::watch;

/// Counters since the start; `requests_in_flight` and `requests_parked` are of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Requests that arrived, whatever the dialect.
    pub requests_received: u64,
    /// Those that were answered to the end as meant, errors included.
    pub requests_finished: u64,
    /// Those being answered.
    pub requests_in_flight: u64,
    /// Those that ended in between: the caller left, or a reset was ordered.
    pub requests_aborted: u64,
    /// Those parked at the gate.
    pub requests_parked: u64,
    /// Those answered with an error status.
    pub requests_failed: u64,
    /// Those of them that the account had no room for.
    pub requests_limited: u64,
    /// Input of all requests that were answered with at least one byte of an answer.
    pub prompt_tokens_sent: u64,
    /// The part of it that was read from the cache.
    pub cached_tokens_sent: u64,
    /// The part of it that was written to the cache.
    pub cache_written_tokens_sent: u64,
    /// Words generated and sent, reasoning included.
    pub completion_tokens_sent: u64,
    /// The part of them that was reasoning.
    pub reasoning_tokens_sent: u64,
}

impl Stats {
    /// Counts the input of an answer.
    pub(crate) fn add_input(&mut self, usage: &TokenUsage) {
        self.prompt_tokens_sent += usage.input_tokens();
        self.cached_tokens_sent += usage.cache_read_tokens;
        self.cache_written_tokens_sent += usage.cache_write_5m_tokens + usage.cache_write_1h_tokens;
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters(watch::Sender<Stats>);

impl Counters {
    pub(crate) fn read(&self) -> Stats {
        *self.0.borrow()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Stats)) {
        self.0.send_modify(change);
    }

    pub(crate) async fn wait_until(&self, is_reached: impl FnMut(&Stats) -> bool) -> Stats {
        let mut stats = self.0.subscribe();
        // The sender lives as long as `self`.
        stats
            .wait_for(is_reached)
            .await
            .map_or_else(|_| self.read(), |stats| *stats)
    }
}

//! What upstreams turned out not to understand. Remembered in this gateway's memory, and for a day only: providers learn.

use std::collections::HashMap;

use domain::ids::UpstreamId;
use parking_lot::Mutex;

/// How long it is remembered, in milliseconds.
const REMEMBERED_MS: u64 = 24 * 60 * 60 * 1_000;

/// As many as there are upstreams, at most.
#[derive(Debug, Default)]
pub(crate) struct Quirks {
    refused_usage_ms: Mutex<HashMap<UpstreamId, u64>>,
}

impl Quirks {
    /// Whether a stream of this upstream can be asked for its usage.
    pub(crate) fn can_ask_for_usage(&self, upstream: UpstreamId, now_ms: u64) -> bool {
        self.refused_usage_ms
            .lock()
            .get(&upstream)
            .is_none_or(|refused_ms| now_ms.saturating_sub(*refused_ms) >= REMEMBERED_MS)
    }

    /// It refused a stream for being asked.
    pub(crate) fn refused_usage(&self, upstream: UpstreamId, now_ms: u64) {
        self.refused_usage_ms.lock().insert(upstream, now_ms);
    }
}

#[cfg(test)]
mod tests;

//! What goes to a provider, and how its body is written from the caller's.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use protocol::request::{InferenceRequest, Rewrite};

use crate::case::Case;
use crate::policy::UpstreamPolicy;
use crate::room;

/// What goes to the provider.
pub(crate) struct Outgoing {
    pub(crate) case: Case,
    /// Which of the case's routes is taken.
    pub(crate) way: usize,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Whether the caller wants to see the usage at the end of a stream.
    pub(crate) shows_usage: bool,
    /// The caller's limit on how long a request may take, in milliseconds.
    pub(crate) total_ms: Option<u64>,
    pub(crate) request: Arc<InferenceRequest>,
    pub(crate) asks_for_usage: bool,
    pub(crate) output_cap_tokens: Option<u64>,
    pub(crate) _room: room::Taken,
}

impl Outgoing {
    /// Writes the body anew, as the fields say.
    pub(crate) fn write_body(&mut self) {
        // The former body goes before the next one comes.
        self.body = Bytes::new();
        self.body = self.request.rewrite(&Rewrite {
            model: &self.case.routes[self.way].0.upstream_model,
            asks_for_usage: self.asks_for_usage,
            output_cap_tokens: self.output_cap_tokens,
        });
    }

    /// The upstream it goes to.
    pub(crate) fn upstream(&self) -> &Arc<UpstreamPolicy> {
        &self.case.routes[self.way].1
    }

    /// The model's name there.
    pub(crate) fn upstream_model(&self) -> &str {
        &self.case.routes[self.way].0.upstream_model
    }

    /// Makes it go another way. `asks_for_usage` says whether a stream's usage may be asked for there.
    pub(crate) fn go(&mut self, way: usize, asks_for_usage: bool) {
        self.way = way;
        self.asks_for_usage = asks_for_usage;
        self.write_body();
    }

    /// Whether the body asks for a stream's usage without the caller having done so.
    pub(crate) fn asks_for_usage(&self) -> bool {
        self.asks_for_usage && self.request.is_streamed() && !self.request.includes_usage()
    }

    /// Makes the body one that does not ask.
    pub(crate) fn ask_without_usage(&mut self) {
        self.asks_for_usage = false;
        self.write_body();
    }
}

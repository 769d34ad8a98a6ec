//! What goes to a provider, and how its body is written from the caller's.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use protocol::openai_chat::{ChatRequest, Rewrite};

use crate::policy::UpstreamPolicy;
use crate::room;

/// What goes to the provider.
pub(crate) struct Outgoing {
    pub(crate) upstream: Arc<UpstreamPolicy>,
    pub(crate) upstream_model: String,
    pub(crate) endpoint: &'static str,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Whether the caller wants to see the usage at the end of a stream.
    pub(crate) shows_usage: bool,
    /// The caller's limit on how long a request may take, in milliseconds.
    pub(crate) total_ms: Option<u64>,
    pub(crate) request: Arc<ChatRequest>,
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
            model: &self.upstream_model,
            asks_for_usage: self.asks_for_usage,
            output_cap_tokens: self.output_cap_tokens,
        });
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

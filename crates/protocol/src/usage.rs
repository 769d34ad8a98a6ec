//! What an answer used: from a whole response, or from the events of a stream as they pass.
//!
//! Events are read without building a tree: an ordinary one costs one pass over its bytes and no allocation. What has an
//! unexpected shape is skipped, never an error: an answer is passed on whether or not we understand it.

mod chat_completions;
mod json;
mod messages;
mod responses;

use std::ops::Range;

use domain::parts::TextSize;
use domain::usage::{TokenUsage, UsageSource};
use serde_json::value::RawValue;

use crate::endpoint::Endpoint;
use crate::errors::UpstreamError;

/// The most tokens that a provider is believed to have counted, of any kind. No model reads or writes near so many in one
/// request; a figure above it is an accident, and counts as not said.
pub const COUNTED_TOKENS_MAX: u64 = 1 << 40;

/// What the provider said was used. Each figure is the latest it gave, never a sum; absent is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportedUsage {
    /// Input as the provider counts it: see `counts_cache_apart`.
    pub input_tokens: Option<u64>,
    /// Output as the provider counts it.
    pub output_tokens: Option<u64>,
    /// Input and output.
    pub total_tokens: Option<u64>,
    /// Input that a cache answered.
    pub cached_tokens: Option<u64>,
    /// Input that was written to a cache, for whatever time.
    pub cache_write_tokens: Option<u64>,
    /// The part of that which was written for an hour.
    pub cache_write_1h_tokens: Option<u64>,
    /// Output that was not shown.
    pub reasoning_tokens: Option<u64>,
    /// Whether input read from or written to a cache is beside `input_tokens`, as with Anthropic, and not part of it.
    pub counts_cache_apart: bool,
}

impl ReportedUsage {
    /// Whether input and output are both known.
    pub fn is_complete(&self) -> bool {
        self.input_tokens.is_some() && self.output_tokens.is_some()
    }

    /// Whether the provider said nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The usage in classes that do not overlap, if input and output were both said.
    pub fn to_usage(&self) -> Option<TokenUsage> {
        let said_prompt = self.input_tokens?;
        let said_completion = self.output_tokens?;
        let cached = self.cached_tokens.unwrap_or(0);
        if self.counts_cache_apart {
            return Some(self.disjoint(said_prompt, cached, said_completion));
        }
        let written = self.cache_write_tokens.unwrap_or(0);
        let reasoning = self.reasoning_tokens.unwrap_or(0);

        // Some providers have more in the total than in its two parts: cached input beside the prompt, or reasoning
        // beside the completion, sometimes without naming it.
        let beside = self.total_tokens.map_or(0, |total| {
            total.saturating_sub(said_prompt).saturating_sub(said_completion)
        });
        let is_cache = beside > 0 && beside == cached.saturating_add(written) && beside != reasoning;
        let (prompt, output_tokens) = if is_cache {
            (said_prompt.saturating_add(beside), said_completion)
        } else {
            (said_prompt, said_completion.saturating_add(beside))
        };

        let cached = cached.min(prompt);
        let written = written.min(prompt - cached);
        let output_of = Self {
            cache_write_tokens: Some(written),
            reasoning_tokens: Some(reasoning.max(output_tokens - said_completion)),
            ..*self
        };
        Some(output_of.disjoint(prompt - cached - written, cached, output_tokens))
    }

    /// The classes, with so much fresh input, input from a cache and output.
    fn disjoint(&self, input_fresh_tokens: u64, cache_read_tokens: u64, output_tokens: u64) -> TokenUsage {
        let written = self.cache_write_tokens.unwrap_or(0);
        let cache_write_1h_tokens = self.cache_write_1h_tokens.unwrap_or(0).min(written);
        TokenUsage {
            input_fresh_tokens,
            cache_read_tokens,
            cache_write_5m_tokens: written - cache_write_1h_tokens,
            cache_write_1h_tokens,
            output_tokens,
            reasoning_tokens: self.reasoning_tokens.unwrap_or(0).min(output_tokens),
        }
    }

    /// Input that a cache answered or took, where it is told apart.
    fn cache_tokens_apart(&self) -> u64 {
        let of_cache = self
            .cached_tokens
            .unwrap_or(0)
            .saturating_add(self.cache_write_tokens.unwrap_or(0));
        if self.counts_cache_apart { of_cache } else { 0 }
    }

    /// Without the figures that cannot be right: no request has an empty prompt, and what was `seen` of the answer was not
    /// made of nothing.
    #[must_use]
    pub fn plausible(self, seen: &OutputSizes) -> Self {
        let has_output = seen.pieces > 0;
        Self {
            input_tokens: self
                .input_tokens
                .filter(|tokens| *tokens > 0 || self.cache_tokens_apart() > 0),
            output_tokens: self.output_tokens.filter(|tokens| *tokens > 0 || !has_output),
            ..self
        }
    }

    /// The usage with what the provider left out taken from an estimate, and where it comes from.
    pub fn or_estimate(&self, input_tokens: u64, output_tokens: u64) -> (TokenUsage, UsageSource) {
        let source = if self.is_complete() {
            UsageSource::Reported
        } else {
            UsageSource::Estimated
        };
        let filled = Self {
            input_tokens: self
                .input_tokens
                .or_else(|| Some(input_tokens.saturating_sub(self.cache_tokens_apart()))),
            output_tokens: self
                .output_tokens
                .or_else(|| Some(output_tokens.max(self.reasoning_tokens.unwrap_or(0)))),
            // What a total has beside its parts says something only where the parts are the provider's own.
            total_tokens: self.total_tokens.filter(|_| self.is_complete()),
            ..*self
        };
        (filled.to_usage().unwrap_or_default(), source)
    }

    /// Takes what is newer. Figures count up, so a zero after another figure is no news: some providers fill in what they
    /// do not say.
    fn update(&mut self, newer: Self) {
        let latest = |old: &mut Option<u64>, new: Option<u64>| *old = new.filter(|tokens| *tokens > 0).or(*old).or(new);
        latest(&mut self.input_tokens, newer.input_tokens);
        latest(&mut self.output_tokens, newer.output_tokens);
        latest(&mut self.total_tokens, newer.total_tokens);
        latest(&mut self.cached_tokens, newer.cached_tokens);
        latest(&mut self.cache_write_tokens, newer.cache_write_tokens);
        latest(&mut self.cache_write_1h_tokens, newer.cache_write_1h_tokens);
        self.counts_cache_apart |= newer.counts_cache_apart;
        latest(&mut self.reasoning_tokens, newer.reasoning_tokens);
    }
}

/// Sizes of what was generated, for estimating when there is no usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputSizes {
    /// Text that is shown, refusals included.
    pub content: TextSize,
    /// Reasoning text.
    pub reasoning: TextSize,
    /// Names and arguments of tool calls.
    pub tool_calls: TextSize,
    /// Pieces that carried any of these; each is at least one token.
    pub pieces: u64,
}

impl std::ops::AddAssign for OutputSizes {
    fn add_assign(&mut self, more: Self) {
        self.content += more.content;
        self.reasoning += more.reasoning;
        self.tool_calls += more.tool_calls;
        self.pieces = self.pieces.saturating_add(more.pieces);
    }
}

impl OutputSizes {
    /// One piece of these sizes; none, if there is nothing in it.
    fn piece(content: TextSize, reasoning: TextSize, tool_calls: TextSize) -> Self {
        let mut sizes = Self {
            content,
            reasoning,
            tool_calls,
            pieces: 0,
        };
        sizes.pieces = u64::from(sizes.text().bytes() > 0);
        sizes
    }

    /// All of it.
    pub fn text(&self) -> TextSize {
        self.content + self.reasoning + self.tool_calls
    }
}

/// What an event of a stream is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventKind {
    /// A piece of the answer, or an event of a kind that is only passed on.
    #[default]
    Delta,
    /// The extra chunk that has usage and no choices: not for callers who did not ask for it.
    UsageOnly,
    /// The last event there is: `[DONE]`, `message_stop`, `response.completed` or `response.incomplete`.
    Done,
    /// An error inside the stream.
    Error,
    /// No chunk that can be read.
    Unreadable,
}

/// What was seen in one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// What it is.
    pub kind: EventKind,
    /// Where `"usage":null` stands in the data, with the comma that goes with it. Providers that were asked for usage put
    /// it into every chunk; for a caller who did not ask it is cut out (see [`crate::sse::SseEvent::without`]).
    pub null_usage: Option<Range<usize>>,
}

/// What one event or a whole answer says.
#[derive(Default)]
struct Event {
    kind: EventKind,
    output: OutputSizes,
    reported: ReportedUsage,
    has_finish_reason: bool,
    null_usage: Option<Range<usize>>,
    error: Option<UpstreamError>,
}

impl Event {
    /// A whole answer, of these pieces; or the error that it is instead.
    fn whole(
        body: &[u8],
        error: Option<&RawValue>,
        reported: ReportedUsage,
        pieces: impl Iterator<Item = OutputSizes>,
    ) -> Self {
        let is_error = error.is_some_and(|error| error.get() != "null");
        let mut output = OutputSizes::default();
        pieces.for_each(|piece| output += piece);
        Self {
            kind: if is_error { EventKind::Error } else { EventKind::Delta },
            output,
            reported,
            error: is_error.then(|| UpstreamError::read(body)),
            ..Self::default()
        }
    }
}

/// Follows a stream and keeps what it says about usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamUsage {
    endpoint: Endpoint,
    /// What the provider said so far.
    pub reported: ReportedUsage,
    /// What it generated so far.
    pub output: OutputSizes,
    /// Events that could be read.
    pub events_read: u64,
    /// Events that could not: what they carried is not in `output`.
    pub events_unreadable: u64,
    /// Whether a choice told why it ended.
    pub has_finish_reason: bool,
    /// Whether the last event was seen.
    pub is_done: bool,
    /// The error the stream brought, if it did.
    pub error: Option<UpstreamError>,
}

impl StreamUsage {
    /// Nothing seen yet of a stream of this endpoint.
    pub fn of(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            reported: ReportedUsage::default(),
            output: OutputSizes::default(),
            events_read: 0,
            events_unreadable: 0,
            has_finish_reason: false,
            is_done: false,
            error: None,
        }
    }

    /// Takes note of one event's data.
    pub fn observe(&mut self, data: &[u8]) -> Observed {
        if data.trim_ascii() == b"[DONE]" {
            self.is_done = true;
            return Observed {
                kind: EventKind::Done,
                null_usage: None,
            };
        }
        let event = match self.endpoint {
            Endpoint::Responses => responses::read_event(data),
            Endpoint::Messages => messages::read_event(data),
            Endpoint::ChatCompletions | Endpoint::Completions | Endpoint::Embeddings | Endpoint::CountTokens => {
                chat_completions::read(data)
            }
        };
        let Some(event) = event else {
            self.events_unreadable = self.events_unreadable.saturating_add(1);
            return Observed {
                kind: EventKind::Unreadable,
                null_usage: None,
            };
        };
        self.events_read = self.events_read.saturating_add(1);
        self.output += event.output;
        self.has_finish_reason |= event.has_finish_reason;
        self.is_done |= event.kind == EventKind::Done;
        self.reported.update(event.reported);
        if self.error.is_none() {
            self.error = event.error;
        }
        Observed {
            kind: event.kind,
            null_usage: event.null_usage,
        }
    }

    /// Whether all of it could be read, so that `output` is all there was.
    pub fn is_understood(&self) -> bool {
        self.events_read > 0 && self.events_unreadable == 0
    }

    /// Whether the stream came to its proper end.
    pub fn is_finished(&self) -> bool {
        self.is_done || self.has_finish_reason
    }
}

/// What a whole answer says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerUsage {
    /// What the provider said was used.
    pub reported: ReportedUsage,
    /// What it generated.
    pub output: OutputSizes,
    /// The error it is instead of an answer, whatever its status says.
    pub error: Option<UpstreamError>,
}

impl AnswerUsage {
    /// Reads the body of an answer of this endpoint; nothing is known of a body that is none.
    pub fn read(endpoint: Endpoint, body: &[u8]) -> Self {
        let answer = match endpoint {
            Endpoint::Responses => responses::read_answer(body),
            Endpoint::Messages => messages::read_answer(body),
            Endpoint::ChatCompletions | Endpoint::Completions => chat_completions::read(body),
            // The figure it answers with is no usage.
            Endpoint::CountTokens => None,
            Endpoint::Embeddings => chat_completions::read(body).map(|answer| Event {
                reported: ReportedUsage {
                    // There is no output, and nobody says so.
                    output_tokens: answer.reported.output_tokens.or(Some(0)),
                    input_tokens: answer.reported.input_tokens.or(answer.reported.total_tokens),
                    ..answer.reported
                },
                ..answer
            }),
        }
        .unwrap_or_default();
        Self {
            reported: answer.reported,
            output: answer.output,
            error: answer.error,
        }
    }
}

#[cfg(test)]
mod tests;

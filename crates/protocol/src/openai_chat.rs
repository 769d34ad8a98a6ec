//! OpenAI's `chat/completions`, as callers send it and as OpenAI-compatible providers answer it.

mod inspect;
mod rewrite;
mod usage;

pub use inspect::{CHOICES_MAX, ChatRequest, InspectError, MESSAGES_MAX, MODEL_CHARS_MAX, PARTS_MAX, USER_BYTES_MAX};
pub use rewrite::Rewrite;
pub use usage::{COUNTED_TOKENS_MAX, ChatResponse, EventKind, Observed, OutputSizes, ReportedUsage, StreamUsage};

#[cfg(test)]
mod golden_tests;

//! Wire dialects of providers: request inspection, SSE framing, usage extraction, error bodies, headers.
//!
//! Pure: bytes in, values out; nothing here reads a clock, a socket or a file.
//!
//! To add a dialect, put a module beside [`openai_chat`] with the same three questions answered: what does a request
//! ask for (`inspect`), how is it rewritten for the upstream (`rewrite`), what did the answer use (`usage`); then add a
//! folder with its cases under `golden/`.

pub mod account_headers;
pub mod errors;
pub mod headers;
pub mod jobs;
pub mod models;
pub mod openai_chat;
pub mod sse;

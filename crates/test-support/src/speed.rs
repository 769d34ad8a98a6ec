//! What measures a proxy: callers and an upstream that cost next to nothing, what processes have used, and a table of it.

pub mod callers;
pub mod message;
pub mod processes;
pub mod rounds;
pub mod upstream;

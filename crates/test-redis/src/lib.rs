//! Real Redis servers and clusters for tests, from the `redis-server` (or `valkey-server`) installed on this machine.
//!
//! Each test starts its own, which takes about fifty milliseconds, and may stop, kill or flush it without disturbing
//! another. Nothing is kept on disk. Whatever was started ends with its value, and also when the test's process is
//! killed.
//!
//! Everything panics with a text that says what failed: a test could do nothing else with an error.

mod certificate;
mod cluster;
mod options;
mod poll;
mod port;
mod process;
mod resp;
mod server;
#[cfg(test)]
mod tests;

pub use cluster::RedisCluster;
pub use options::Options;
pub use server::RedisServer;

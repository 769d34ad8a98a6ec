//! Counters in Redis, shared by all gateways.

#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the store that calls through it comes with the scripts")
)]
mod connection;

pub use connection::{RedisSettings, RedisSettingsError};

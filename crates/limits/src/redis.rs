//! Counters in Redis, shared by all gateways.
//!
//! [`store`] is what a gateway uses: the counters of [`shared`] while they answer, its own while they do not. What the
//! scripts decide by is made in [`asked`]; what they answer is read in [`states`] and judged in [`verdict`].

mod allowances;
mod asked;
mod connection;
mod gateways;
mod group;
mod health;
mod known_budgets;
mod open_holds;
mod outbox;
pub(crate) mod scripts;
mod server_clock;
mod shared;
mod shared_hold;
mod states;
mod store;
mod verdict;
mod words;

#[cfg(test)]
mod tests;

pub(crate) use connection::Connection;
pub use connection::{RedisSettings, RedisSettingsError};
pub use gateways::LifeSigns;
pub use health::Mode;
pub(crate) use shared::{CallFailed, Shared, TimeOf, word};
pub(crate) use shared_hold::SharedHold;
pub(crate) use store::RedisStore;

//! The ledger's way to Postgres: a local journal, shipped in batches, exactly once.
//!
//! [`Journal::append`] writes a record to a file before the caller goes on; [`Shipper`] brings what was written to
//! Postgres, however long that was away. Postgres's mark, moved in the transaction of each batch, decides what is
//! contained; everything here may lag behind it.

mod directory;
#[cfg(test)]
mod examples;
mod frame;
mod journal;
mod segment;
mod settings;
mod shipper;
mod shipping_rate;
mod state;

pub use directory::OpenError;
pub use journal::{AppendError, Journal, JournalStatus, Recovered};
pub use settings::{FsyncPolicy, JournalSettings, ShipperSettings, UnknownFsyncPolicy};
pub use shipper::{DrainError, Shipper};

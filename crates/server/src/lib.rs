//! The binary: configuration, wiring, background tasks, lifecycle, embedded Postgres.
//!
//! [`wiring`] is the whole process in one readable function.

mod command_line;
pub mod config;
pub mod data_dir;
pub mod demo;
pub mod doctor;
pub mod embedded_postgres;
pub mod health;
pub mod ledger;
pub mod ledger_export;
pub mod listener;
mod live;
pub mod logging;
pub mod operator;
pub mod serve;
pub mod site;
pub mod token;
pub mod trusted_proxies;
pub mod wiring;

//! The shared counters against real servers.

mod accounts;
mod alike;
mod budgets;
mod claims;
mod cluster;
mod fixture;
mod flushed;
mod increases;
mod keys;
mod lost;
mod outage;
mod rates;
mod resets;

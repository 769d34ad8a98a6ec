//! The shared counters against real servers.

mod alike;
mod budgets;
mod fixture;
mod flushed;
mod keys;
mod lost;
mod outage;
mod rates;

//! The shared counters against real servers.

mod alike;
mod fixture;
mod flushed;
mod outage;

//! Everything that crosses crates, in one binary: one link for all.

mod admission;
mod chain;
mod console;
mod control;
mod endings;
mod errors;
mod explain;
mod full;
mod ledger;
mod lifecycle;
mod outage;
mod plans;
mod policy;
mod priorities;
mod process;
mod quota_tree;
mod rehearsal;
mod secrets;
mod sessions;
mod tidy;

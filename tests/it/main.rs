//! Everything that crosses crates, in one binary: one link for all.

mod admission;
mod chain;
mod console;
mod control;
mod crash;
mod endings;
mod errors;
mod explain;
mod fleet;
mod flush;
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
mod spending;
mod tidy;
mod troubleshooting;

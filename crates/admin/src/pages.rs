//! The pages. Each file holds a noun's pages and, below them, the server functions that its forms call.
#![expect(
    missing_docs,
    reason = "the server macro makes each function's arguments into public fields"
)]

pub mod account;
pub mod adjustments;
pub mod alerts;
pub mod audit;
pub mod budget_events;
pub mod catalogue;
pub mod connect;
pub mod early_retries;
pub mod estimates;
pub mod explain;
pub mod invitation;
pub mod keys;
pub mod ledger;
pub mod limits;
pub mod management_tokens;
pub mod models;
pub mod not_found;
pub mod overview;
pub mod people;
pub mod plans;
pub mod priorities;
pub mod quarantine;
pub mod queue;
pub mod quota_tree;
pub mod rehearsal;
pub mod reports;
pub mod sessions;
pub mod settings;
pub mod setup;
pub mod sign_in;
pub mod status;
pub mod tenants;
pub mod upstreams;
pub mod webhook;

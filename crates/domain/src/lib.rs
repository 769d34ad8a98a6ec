//! The rules of the house without any input or output: what the words mean, what things cost, what is allowed.
//!
//! # Words
//!
//! | word | where |
//! |---|---|
//! | tenant, plan, person, key, model, route, upstream | [`policy`] |
//! | scope (a node of the quota tree), limit, dimension, gate, class | [`limits`] |
//! | estimate (expected and ceiling) | [`estimate`] |
//! | token classes | [`usage`] |
//! | part (what a request is made of) | [`parts`] |
//! | price, cost | [`prices`], [`money`] |
//! | period, bucket | [`periods`] |
//! | role (operator, auditor, manager, member) | [`people`] |
//! | settlement, rejection, adjustment, hold record | [`ledger`] |
//! | correction (of one request, by an adjustment), figures | [`adjustments`] |
//! | totals, completeness of a month | [`reports`] |
//! | reading (a limit at one moment), explanation | [`readings`] |
//! | question (a request that nobody sends), answer | [`questions`] |
//! | job (a request whose caller comes back for the answer), its status | [`jobs`] |
//! | tag (a caller's label on a request, a name with a value) | [`ledger`], [`reports`] |
//! | refusal, its code and what follows from it | [`refusals`] |
//! | priority, traffic (what happened at each) | [`priority`] |
//! | alert (what operators should hear of), its kind and subject, watch, delivery (to the webhook) | [`alerts`] |
//! | key text, public id, secret hash | [`key_text`] |
//! | rotation (a key gets another secret), overlap (both work) | [`key_rotation`] |
//! | key rules (what people's own keys may be), bounds (of one key) | [`key_rules`] |
//! | own limits (of a key, by its owner) | [`own_limits`] |
//! | text (what people read, with gaps), language | [`mod@text`], [`language`] |
//! | management token (what a program shows at the JSON API), permission | [`management_tokens`] |
//!
//! Nothing here reads a clock, draws a random number or does input or output: time and randomness are arguments.

pub mod adjustments;
pub mod alerts;
pub mod budget_events;
pub mod checklist;
pub mod error_chain;
pub mod estimate;
pub mod ids;
pub mod instances;
pub mod jobs;
pub mod key_rotation;
pub mod key_rules;
pub mod key_text;
pub mod key_warnings;
pub mod language;
pub mod ledger;
pub mod limits;
pub mod management_tokens;
pub mod money;
pub mod own_limits;
pub mod parts;
pub mod people;
pub mod periods;
pub mod policy;
pub mod prices;
pub mod priority;
pub mod questions;
pub mod readings;
pub mod refusals;
pub mod reports;
pub mod retention;
mod secret_text;
pub mod text;
pub mod usage;

//! The console: pages and forms rendered on the server. [`router`] is all of it; [`AdminState`](state::AdminState) is
//! what it is given.
//!
//! A request passes [`protection`], [`session`] and [`visit`], and ends in a page (a component in [`pages`], loaded by
//! [`page`]) or in a form's server function (through [`submit`]). Errors become texts in [`error`], values in [`format`].
//! Texts are told by [`language`], words of the code by [`terms`]. To add a text: inside `t!`, `tn!` or `tv!`, then
//! `cargo xtask texts`. To add a page: a function in its noun's file under `pages/`, a route in [`app`], a place in [`shell`] if the
//! navigation should lead there.

#[macro_use]
pub mod language;
pub mod app;
pub mod breakers;
pub mod chart;
pub mod copy;
pub mod error;
pub mod form;
pub mod format;
pub mod limit_names;
pub mod live;
pub mod lookbacks;
pub mod page;
pub mod pages;
pub mod protection;
pub mod reading;
pub mod router;
pub mod session;
pub mod shell;
pub mod state;
pub mod submit;
pub mod table;
pub mod tables;
pub mod terms;
pub mod user_agents;
pub mod visit;

pub use router::router;
pub use state::AdminState;

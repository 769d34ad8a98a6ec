//! Builders and real servers for tests.

pub mod clock;
pub mod console;
pub mod cut;
pub mod html;
pub mod http;
pub mod postgres;
pub mod tollgate;

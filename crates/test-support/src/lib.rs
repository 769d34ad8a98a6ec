//! Builders and real servers for tests.

pub mod clock;
pub mod cut;
pub mod http;
pub mod postgres;
pub mod tollgate;

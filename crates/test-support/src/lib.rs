//! Builders and real servers for tests.

pub mod postgres;

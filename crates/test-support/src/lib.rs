//! Builders and real servers for tests.

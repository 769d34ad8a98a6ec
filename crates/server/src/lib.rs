//! The binary: configuration, wiring, background tasks, lifecycle, embedded Postgres.

pub mod embedded_postgres;

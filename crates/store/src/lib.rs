//! The only door to Postgres: one module per noun.

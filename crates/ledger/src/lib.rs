//! The ledger's way to Postgres: a local journal, shipped in batches, exactly once.

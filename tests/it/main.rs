//! Everything that crosses crates, in one binary: one link for all.

mod tidy;

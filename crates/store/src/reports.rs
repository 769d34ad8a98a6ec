//! Reports from the roll-ups.

//! Token counting and estimating: exact encodings, learned ratios, per-part estimates.

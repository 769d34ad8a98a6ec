//! The monthly report as CSV.

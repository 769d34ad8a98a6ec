//! Admission: what every scope of the quota tree still has room for.

//! Overview and monthly reports.

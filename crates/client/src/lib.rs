//! A small SDK for callers of the gateway.

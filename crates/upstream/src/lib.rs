//! The only door to providers: HTTP client, credentials, time-outs.

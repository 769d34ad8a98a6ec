//! The reading and rewriting of requests, for bytes that libFuzzer makes up.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| protocol::invariants::check_request(data));

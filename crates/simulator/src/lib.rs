//! A provider made of nothing: answers, latency, failures and account limits for demo, tests and benchmarks.

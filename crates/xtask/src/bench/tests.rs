//! What is understood of cargo, and what is passed on.

use std::path::PathBuf;

use super::{ProxyOptions, find_executable};

#[test]
fn the_executable_is_the_one_of_the_target() {
    let messages = r#"{"reason":"compiler-artifact","target":{"name":"serde"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"tollgate"},"executable":"/target/release/tollgate"}
not a message
{"reason":"compiler-artifact","target":{"name":"proxy"},"executable":"/target/release/deps/proxy-1a2b"}
{"reason":"build-finished","success":true}"#;
    let found = find_executable(messages, "proxy");
    assert_eq!(found, Some(PathBuf::from("/target/release/deps/proxy-1a2b")));
    assert_eq!(find_executable(messages, "serde"), None);
}

#[test]
fn only_what_was_said_is_passed_on() {
    let said = ProxyOptions {
        rounds: Some(1),
        seconds: None,
        only: Some("nginx,memory".to_owned()),
        loads: None,
        keys: None,
        exact: true,
        skip_build: true,
    };
    assert_eq!(said.passed_on(), ["--rounds=1", "--only=nginx,memory", "--exact"]);
}

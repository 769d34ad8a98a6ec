use redis::Value;

use super::{Redirection, SLOTS, ranges, redirection, slot_of};
use crate::redis::connection::settings::Address;

#[test]
fn slots_are_those_that_redis_computes() {
    for (key, slot) in [
        ("", 0),
        ("123456789", 0x31c3),
        ("foo", 12_182),
        ("{foo}:bar", 12_182),
        ("before{foo}after{bar}", 12_182),
        // An empty tag is none, and the first closing brace ends a tag.
        ("foo{}{bar}", 8_363),
        ("foo{{bar}}zap", 4_015),
        ("foo{bar", 15_278),
    ] {
        assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
    }
    assert!(slot_of(&[0xff; 40]) < SLOTS);
}

#[test]
fn maps_are_read_and_nameless_nodes_are_where_they_were_asked() {
    let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), text("an id"), Value::Array(vec![])]);
    let answer = Value::Array(vec![
        Value::Array(vec![
            Value::Int(8_192),
            Value::Int(16_383),
            node(text("10.0.0.2"), 7_001),
            node(text("10.0.0.3"), 7_002),
        ]),
        Value::Array(vec![Value::Int(0), Value::Int(8_191), node(Value::Nil, 7_000)]),
    ]);
    let read: Vec<String> = ranges(answer, &address("asked", 1))
        .expect("a map")
        .iter()
        .map(|range| format!("{}-{} {}", range.first, range.last, range.owner))
        .collect();
    assert_eq!(read, ["0-8191 asked:7000", "8192-16383 10.0.0.2:7001"]);

    for other in [
        Value::Nil,
        Value::Array(vec![]),
        Value::Array(vec![Value::Int(1)]),
        Value::Array(vec![Value::Array(vec![
            Value::Int(0),
            Value::Int(99_999),
            node(text("a"), 1),
        ])]),
        Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(1)])]),
    ] {
        assert_eq!(ranges(other, &address("asked", 1)), None);
    }
}

#[test]
fn redirections_are_read() {
    let asked = address("asked", 1);
    for (answer, expected) in [
        (
            "MOVED 3999 10.0.0.2:6381",
            Some((Redirection::Moved, address("10.0.0.2", 6_381))),
        ),
        (
            "ASK 3999 node.example:6381",
            Some((Redirection::Ask, address("node.example", 6_381))),
        ),
        (
            "MOVED 3999 2001:db8::1:6381",
            Some((Redirection::Moved, address("2001:db8::1", 6_381))),
        ),
        ("MOVED 3999 :6381", Some((Redirection::Moved, address("asked", 6_381)))),
        ("MOVED 3999", None),
        ("MOVED 3999 host:port", None),
        ("OOM command not allowed", None),
        ("", None),
    ] {
        assert_eq!(redirection(answer, &asked), expected, "{answer}");
    }
}

fn address(host: &str, port: u16) -> Address {
    Address {
        host: host.to_owned(),
        port,
    }
}

fn text(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

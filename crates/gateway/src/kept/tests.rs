//! What is kept reads back, and holds no key.

use bytes::Bytes;
use domain::policy::Dialect;
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::Kept;

#[test]
fn a_request_reads_back_without_its_key() {
    let mut caller = HeaderMap::new();
    for (name, value) in [
        ("authorization", "Bearer sk-tg-secret"),
        ("x-api-key", "sk-tg-secret"),
        ("cookie", "secret"),
        ("prefer", "respond-async"),
        ("user-agent", "sdk/1"),
        ("x-tollgate-tags", "team=search"),
        ("x-tollgate-user", "Zoë \"the\" user"),
        ("x-tollgate-priority", "low"),
    ] {
        let value = HeaderValue::from_bytes(value.as_bytes()).expect("a value");
        caller.append(HeaderName::from_static(name), value);
    }
    let kept = Kept::request(Dialect::Openai, &caller, Bytes::from_static(b"{\"model\": 1}"));
    let bytes = kept.clone().into_bytes();
    assert!(!String::from_utf8_lossy(&bytes).contains("secret"));
    let read = Kept::from_bytes(bytes).expect("it reads back");
    assert_eq!(read, kept);
    assert_eq!(read.headers["user-agent"], "sdk/1");
    assert_eq!(
        read.headers["x-tollgate-user"].as_bytes(),
        "Zoë \"the\" user".as_bytes()
    );
    assert_eq!(read.headers["x-tollgate-tags"], "team=search");
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = Kept::from_bytes(bytes);
    }

    #[test]
    fn any_body_reads_back(body in proptest::collection::vec(any::<u8>(), 0..64)) {
        let kept = Kept::request(Dialect::Openai, &HeaderMap::new(), Bytes::from(body));
        prop_assert_eq!(Kept::from_bytes(kept.clone().into_bytes()), Some(kept));
    }
}

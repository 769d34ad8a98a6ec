//! Where a key may stand, and what is said of one that is not known.

use domain::key_text::{KEY_RANDOM_BYTES, KeyText};
use domain::refusals::RefusalCode;
use http::HeaderMap;
use protocol::headers::key_text;

use super::{Unauthenticated, authenticate};

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().expect("a value")))
        .collect()
}

#[test]
fn a_key_may_stand_in_either_header() {
    assert_eq!(key_text(&headers(&[("authorization", "Bearer a")])), Some("a"));
    assert_eq!(key_text(&headers(&[("authorization", "bearer  a ")])), Some("a"));
    assert_eq!(key_text(&headers(&[("x-api-key", "b")])), Some("b"));
    assert_eq!(
        key_text(&headers(&[("authorization", "Basic xyz"), ("x-api-key", "b")])),
        Some("b")
    );
    assert_eq!(key_text(&headers(&[("authorization", "Bearer ")])), None);
    assert_eq!(key_text(&headers(&[])), None);
}

#[test]
fn an_unknown_key_is_only_called_unknown_when_the_database_was_asked() {
    let key = KeyText::generate(&[5; KEY_RANDOM_BYTES]);
    let headers = headers(&[("x-api-key", key.reveal())]);
    let code = |can_tell| {
        authenticate(&headers, None, can_tell, chrono::Utc::now())
            .err()
            .map(Unauthenticated::code)
    };
    assert_eq!(code(true), Some(RefusalCode::InvalidKey));
    assert_eq!(code(false), Some(RefusalCode::KeyUnverifiable));
}

#[test]
fn a_mistyped_key_is_wrong_whether_or_not_the_database_answers() {
    let headers = headers(&[("x-api-key", "sk-tg-wrong")]);
    let code = authenticate(&headers, None, false, chrono::Utc::now())
        .err()
        .map(Unauthenticated::code);
    assert_eq!(code, Some(RefusalCode::InvalidKey));
}

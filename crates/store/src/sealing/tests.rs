use super::*;
use crate::random::SystemRandom;

fn key() -> SecretKey {
    SecretKey::from_bytes([7; SECRET_KEY_BYTES])
}

#[test]
fn a_sealed_value_opens_only_for_its_key_purpose_and_row() {
    let sealed = key().seal(Purpose::UpstreamCredential, "one", b"sk-provider", &SystemRandom);

    assert_eq!(
        key().open(Purpose::UpstreamCredential, "one", &sealed),
        Ok(b"sk-provider".to_vec())
    );
    assert_eq!(key().open(Purpose::UpstreamCredential, "two", &sealed), Err(CannotOpen));
    assert_eq!(key().open(Purpose::Session, "one", &sealed), Err(CannotOpen));
    let other = SecretKey::from_bytes([8; SECRET_KEY_BYTES]);
    assert_eq!(other.open(Purpose::UpstreamCredential, "one", &sealed), Err(CannotOpen));
}

#[test]
fn a_damaged_or_short_value_does_not_open() {
    let mut sealed = key().seal(Purpose::Session, "one", b"data", &SystemRandom);
    *sealed.last_mut().expect("not empty") ^= 1;
    assert_eq!(key().open(Purpose::Session, "one", &sealed), Err(CannotOpen));
    assert_eq!(key().open(Purpose::Session, "one", &[0; 10]), Err(CannotOpen));
    assert_eq!(key().open(Purpose::Session, "one", &[]), Err(CannotOpen));
}

#[test]
fn the_same_text_is_never_sealed_to_the_same_bytes_and_not_readable_in_them() {
    let one = key().seal(Purpose::Session, "", b"same text", &SystemRandom);
    let two = key().seal(Purpose::Session, "", b"same text", &SystemRandom);
    assert_ne!(one, two);
    assert!(!one.windows(9).any(|window| window == b"same text"));
}

#[test]
fn a_key_is_read_from_hexadecimal_and_from_base64() {
    let hexadecimal = "07".repeat(SECRET_KEY_BYTES);
    let revealed = key().reveal();
    for text in [
        hexadecimal.as_str(),
        &revealed,
        revealed.trim_end_matches('='),
        &format!(" {revealed}\n"),
    ] {
        let read = SecretKey::parse(text).expect(text);
        assert_eq!(read.reveal(), revealed, "{text}");
    }
    for text in [
        "",
        "secret",
        &"0".repeat(63),
        &"g".repeat(64),
        &STANDARD.encode([1; 31]),
    ] {
        assert!(SecretKey::parse(text).is_err(), "{text}");
    }
}

#[test]
fn the_check_tells_one_key_from_another() {
    let check = key().make_check(&SystemRandom);
    assert!(key().matches_check(&check));
    assert!(!SecretKey::from_bytes([8; SECRET_KEY_BYTES]).matches_check(&check));
    assert!(!key().matches_check(b""));
}

#[test]
fn a_key_is_not_shown_by_its_debug_form() {
    assert_eq!(format!("{:?}", key()), "SecretKey(..)");
}

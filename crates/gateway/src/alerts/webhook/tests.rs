//! The signature is the one that receivers compute.

use chrono::DateTime;

use super::signature;

/// As computed by `printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac secret`.
#[test]
fn a_body_is_signed_together_with_its_time() {
    let now = DateTime::from_timestamp(1_700_000_000, 999_000_000).expect("a time");
    assert_eq!(
        signature(b"secret", now, br#"{"a":1}"#),
        "t=1700000000,v1=49f24e537407743fa4a0242bb63b94b9a47ee99cbbe071ccd8a22550ae411686"
    );
}

//! Cursors read back, and nothing else is one.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn cursors_read_back(micros in 0_i64..4_000_000_000_000_000, id: u128) {
        let (at, id) = (DateTime::from_timestamp_micros(micros).unwrap(), Uuid::from_u128(id));
        let text = cursor_text(at, id);
        prop_assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'));
        prop_assert_eq!(read_cursor(&text), Some((at, id)));
    }

    #[test]
    fn any_text_is_read_without_panic(text in ".{0,60}") {
        let _ = read_cursor(&text);
    }
}

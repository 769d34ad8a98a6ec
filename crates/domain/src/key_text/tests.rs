//! Keys read back, typing errors are noticed, secrets are not shown by accident.

use proptest::prelude::*;

use super::{KEY_RANDOM_BYTES, KeyText, MalformedKey, PREFIX, masked, shown_public_id};

fn key(seed: u8) -> KeyText {
    KeyText::generate(&std::array::from_fn::<u8, KEY_RANDOM_BYTES, _>(|i| {
        seed.wrapping_mul(31).wrapping_add((i * 7) as u8)
    }))
}

#[test]
fn debug_output_has_no_secret() {
    let key = key(3);
    let secret = key.reveal().rsplit('-').next().expect("a secret").to_owned();
    assert!(!format!("{key:?}").contains(&secret[..8]));
    assert!(!format!("{:?}", key.hash()).contains(&hex::encode(key.hash().0)[..8]));
}

#[test]
fn foreign_keys_are_told_from_mistyped_ones() {
    assert_eq!(KeyText::parse("sk-proj-abc"), Err(MalformedKey::Shape));
    assert_eq!(KeyText::parse(""), Err(MalformedKey::Shape));
    let text = key(1).reveal().to_owned();
    let last = if text.ends_with('0') { "1" } else { "0" };
    assert_eq!(
        KeyText::parse(&format!("{}{last}", &text[..text.len() - 1])),
        Err(MalformedKey::Checksum)
    );
}

proptest! {
    #[test]
    fn generated_keys_read_back(random in prop::collection::vec(any::<u8>(), KEY_RANDOM_BYTES)) {
        let random: [u8; KEY_RANDOM_BYTES] = random.try_into().expect("the length asked for");
        let key = KeyText::generate(&random);
        prop_assert_eq!(KeyText::parse(key.reveal()), Ok(key));
    }

    #[test]
    fn a_renewed_key_keeps_its_public_id_and_nothing_else(random in prop::collection::vec(any::<u8>(), KEY_RANDOM_BYTES)) {
        let random: [u8; KEY_RANDOM_BYTES] = random.try_into().expect("the length asked for");
        let before = key(5);
        let renewed = KeyText::renew(before.public_id(), &random);
        prop_assert_eq!(renewed.public_id(), before.public_id());
        prop_assert_ne!(renewed.hash(), before.hash());
        prop_assert_eq!(KeyText::parse(renewed.reveal()), Ok(renewed));
    }

    #[test]
    fn any_text_is_parsed_without_panic(text in ".{0,90}") {
        let _ = KeyText::parse(&text);
    }
}

#[test]
fn the_public_id_is_found_however_a_key_is_shown() {
    let key = key(7);
    for text in [key.reveal(), &masked(key.public_id()), &masked(key.public_id())[..14]] {
        let found = shown_public_id(text).expect("a public id");
        assert!(key.public_id().starts_with(found), "{found} in {text}");
    }
    assert_eq!(shown_public_id("search-frontend"), None);
    assert_eq!(shown_public_id(PREFIX), None);
}

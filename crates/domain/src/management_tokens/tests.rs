//! Tokens read back and are told from keys; permissions are words that read back.

use proptest::prelude::*;

use super::*;
use crate::key_text::KeyText;

#[test]
fn a_key_is_no_token_and_a_token_no_key() {
    let random = [7; TOKEN_RANDOM_BYTES];
    let (key, token) = (KeyText::generate(&random), TokenText::generate(&random));
    assert_eq!(TokenText::parse(key.reveal()), Err(MalformedToken::Shape));
    assert!(KeyText::parse(token.reveal()).is_err());
    let secret = token.reveal().rsplit('-').next().expect("a secret");
    assert!(!format!("{token:?}").contains(&secret[..8]));
}

#[test]
fn permissions_read_back_in_text_and_json() {
    for permission in Permission::ALL {
        assert_eq!(permission.as_str().parse(), Ok(permission));
        assert_eq!(serde_json::to_value(permission).unwrap(), permission.as_str());
        assert!(UnknownPermission.to_string().contains(permission.as_str()));
    }
    assert_eq!("ledger:write".parse::<Permission>(), Err(UnknownPermission));
}

proptest! {
    #[test]
    fn generated_tokens_read_back(random in prop::collection::vec(any::<u8>(), TOKEN_RANDOM_BYTES)) {
        let random: [u8; TOKEN_RANDOM_BYTES] = random.try_into().expect("the length asked for");
        let token = TokenText::generate(&random);
        prop_assert_eq!(TokenText::parse(token.reveal()), Ok(token));
    }

    #[test]
    fn any_text_is_parsed_without_panic(text in ".{0,90}") {
        let _ = TokenText::parse(&text);
    }
}

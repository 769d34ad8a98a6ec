use store::random::SystemRandom;

use super::*;

fn refusal(password: &str) -> Option<String> {
    let mut fields = Fields::default();
    check_new(&mut fields, password, "ada@example.com");
    let error = fields.check().err()?;
    assert_eq!(error.fields()[0].field, "password");
    Some(error.fields()[0].message.to_string())
}

#[test]
fn short_long_and_obvious_passwords_are_refused() {
    assert_eq!(refusal("twelve chars"), None);
    assert_eq!(refusal(&"ab".repeat(PASSWORD_CHARS_MAX / 2)), None);
    assert_eq!(refusal("eleven char").as_deref(), Some("at least 12 characters"));
    assert_eq!(refusal("").as_deref(), Some("at least 12 characters"));
    assert!(refusal(&"ab".repeat(PASSWORD_CHARS_MAX)).is_some());
    assert!(refusal("Ada@Example.com").is_some());
    assert!(refusal("aaaaaaaaaaaaaaaa").is_some());
}

#[test]
fn length_is_counted_in_characters() {
    assert_eq!(refusal("äöüßéèêçñøåæ"), None);
    assert!(refusal("äöüßéè").is_some());
}

#[tokio::test]
async fn a_hash_is_argon2id_with_its_own_salt_and_verifies_only_its_password() {
    let passwords = Passwords::default();
    let one = passwords.hash("correct horse battery", &SystemRandom).await.unwrap();
    let two = passwords.hash("correct horse battery", &SystemRandom).await.unwrap();
    assert!(one.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{one}");
    assert_ne!(one, two);
    assert!(
        passwords
            .verify("correct horse battery", Some(one.clone()))
            .await
            .unwrap()
    );
    assert!(!passwords.verify("correct horse batterx", Some(one)).await.unwrap());
    assert!(!passwords.verify("correct horse battery", None).await.unwrap());
}

use super::*;

fn address(text: &str) -> Result<String, String> {
    let mut fields = Fields::default();
    let url = check_base_url(&mut fields, text);
    match fields.check() {
        Ok(()) => Ok(url),
        Err(error) => Err(error.fields()[0].message.to_string()),
    }
}

#[test]
fn addresses_are_absolute_and_lose_their_last_slash() {
    assert_eq!(
        address("https://api.example.com/v1/").as_deref(),
        Ok("https://api.example.com/v1")
    );
    assert_eq!(
        address(" http://127.0.0.1:9000 ").as_deref(),
        Ok("http://127.0.0.1:9000")
    );
    for text in [
        "",
        "api.example.com",
        "/v1",
        "ftp://example.com",
        "file:///etc/passwd",
        "https://",
        "https://ada:secret@example.com/v1",
        "https://ada@example.com/v1",
        "https://example.com/v1?key=1",
        "https://example.com/v1#top",
    ] {
        assert!(address(text).is_err(), "{text}");
    }
}

#[test]
fn a_refused_address_does_not_repeat_a_password_in_its_message() {
    let message = address("https://ada:secret@example.com/v1").unwrap_err();
    assert!(!message.contains("secret"), "{message}");
}

#[test]
fn a_blank_credential_keeps_what_there_is_and_none_is_shown() {
    assert_eq!(CredentialChange::from_text("  "), CredentialChange::Keep);
    assert_eq!(
        CredentialChange::from_text(" sk-1 "),
        CredentialChange::Replace("sk-1".to_owned())
    );
    assert_eq!(format!("{:?}", CredentialChange::from_text("sk-1")), "Replace(..)");
}

#[test]
fn another_path_on_the_same_host_is_the_same_place() {
    assert_eq!(origin("https://example.com/v1"), origin("https://example.com:443/v2"));
    assert_ne!(origin("https://example.com/v1"), origin("https://example.com:8443/v1"));
    assert_ne!(origin("https://example.com/v1"), origin("http://example.com/v1"));
    assert_ne!(origin("https://example.com/v1"), origin("https://evil.example/v1"));
}

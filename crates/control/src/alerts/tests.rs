//! Where alerts may be sent.

use super::*;

fn problem(text: &str) -> Option<String> {
    let mut fields = Fields::default();
    check_url(&mut fields, text);
    let error = fields.check().err()?;
    Some(error.fields()[0].message.to_string())
}

#[test]
fn alerts_go_to_https_or_to_this_machine() {
    for good in [
        "https://hooks.example.com/tollgate?token=1",
        " https://10.0.0.5:8443/ ",
        "http://localhost:9000/hook",
        "http://127.0.0.9/hook",
        "http://[::1]:9000/",
    ] {
        assert_eq!(problem(good), None, "{good}");
    }
    for (bad, why) in [
        ("", "whole address"),
        ("hooks.example.com", "whole address"),
        ("ftp://hooks.example.com/", "whole address"),
        ("http://hooks.example.com/", "https"),
        ("http://localhost.example.com/", "https"),
        ("http://10.0.0.5/", "https"),
        ("https://me:secret@hooks.example.com/", "password"),
        ("https://hooks.example.com/#part", "#"),
    ] {
        let problem = problem(bad).unwrap_or_default();
        assert!(problem.contains(why), "{bad}: {problem}");
    }
}

#[test]
fn nothing_of_a_secret_is_printed() {
    let secret = WebhookSecret("whsec_something".into());
    let view = WebhookView {
        origin: "https://hooks.example.com".into(),
        url: Some("https://hooks.example.com/token".into()),
        version: 1,
    };
    assert!(!format!("{secret:?} {view:?}").contains("something"));
    assert!(!format!("{secret:?} {view:?}").contains("token"));
}

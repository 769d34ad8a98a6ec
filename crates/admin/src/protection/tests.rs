use super::*;

fn check(headers: &[(&str, &str)]) -> bool {
    let headers = headers
        .iter()
        .map(|(name, value)| {
            (
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            )
        })
        .collect();
    is_same_origin(&headers, &Uri::from_static("/console/keys/issue"))
}

#[test]
fn a_form_of_ours_may_write() {
    assert!(check(&[("host", "gate.example"), ("sec-fetch-site", "same-origin")]));
    assert!(check(&[
        ("host", "gate.example:8443"),
        ("origin", "https://gate.example:8443")
    ]));
    assert!(check(&[("host", "Gate.example"), ("origin", "http://gate.example")]));
}

#[test]
fn a_form_of_another_site_may_not() {
    for site in ["cross-site", "same-site", "none"] {
        assert!(!check(&[
            ("host", "gate.example"),
            ("sec-fetch-site", site),
            ("origin", "https://gate.example")
        ]));
    }
    assert!(!check(&[("host", "gate.example"), ("origin", "https://evil.example")]));
    assert!(!check(&[
        ("host", "gate.example"),
        ("origin", "https://gate.example.evil.example")
    ]));
    assert!(!check(&[
        ("host", "gate.example:80"),
        ("origin", "http://gate.example:8080")
    ]));
    assert!(!check(&[("host", "gate.example"), ("origin", "null")]));
}

#[test]
fn a_write_that_does_not_say_where_it_comes_from_is_refused() {
    assert!(!check(&[("host", "gate.example")]));
}

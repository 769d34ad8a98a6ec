//! Labels become the headers that the gateway reads, and a request's go before the client's.

use std::collections::BTreeMap;

use domain::priority::Priority;
use protocol::headers::{self, HeaderError};

use super::Labels;

fn tags<const N: usize>(tags: [(&str, &str); N]) -> BTreeMap<String, String> {
    tags.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

#[test]
fn what_the_gateway_reads_is_what_was_said() {
    let labels = Labels {
        user: Some("Zoë".into()),
        priority: Some(Priority::Low),
        tags: tags([("project", "search"), ("note", "a=b; ü")]),
    };
    let map = labels.headers().expect("headers");
    assert_eq!(headers::user(&map), Ok(Some("Zoë")));
    assert_eq!(headers::priority(&map), Ok(Some(Priority::Low)));
    assert_eq!(headers::tags(&map), Ok(labels.tags));
    assert!(Labels::default().headers().expect("headers").is_empty());
}

#[test]
fn what_the_gateway_would_understand_otherwise_is_not_sent() {
    for user in ["", " padded", "two\nlines", &"x".repeat(129)] {
        let labels = Labels {
            user: Some(user.to_owned()),
            ..Labels::default()
        };
        assert_eq!(labels.headers().err(), Some(HeaderError::User), "{user:?}");
    }
    for tags in [
        tags([("a", "1,b=2")]),
        tags([("a=b", "1")]),
        tags([("", "1")]),
        tags([("a", " 1")]),
        tags([("a", "\n")]),
        (0..17).map(|tag| (tag.to_string(), String::new())).collect(),
    ] {
        let labels = Labels {
            tags,
            ..Labels::default()
        };
        assert_eq!(labels.headers().err(), Some(HeaderError::Tags), "{:?}", labels.tags);
    }
}

#[test]
fn a_request_says_more_than_its_client() {
    let client = Labels {
        user: Some("batch".into()),
        priority: Some(Priority::High),
        tags: tags([("team", "web"), ("project", "search")]),
    };
    let request = Labels {
        user: Some("ann".into()),
        priority: None,
        tags: tags([("project", "mail")]),
    };
    let expected = Labels {
        user: Some("ann".into()),
        priority: Some(Priority::High),
        tags: tags([("team", "web"), ("project", "mail")]),
    };
    assert_eq!(request.or(&client), expected);
}

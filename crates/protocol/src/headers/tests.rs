//! Nothing of ours or of one connection is passed on, and what is said in headers is read.

use std::time::Duration;

use chrono::{DateTime, TimeZone, Utc};
use domain::policy::Dialect;
use domain::priority::Priority;
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::{
    HeaderError, PREFERRED_WAIT_MAX, Preferences, RETRY_AFTER_MAX, TAGS_MAX, caller_response_headers, caller_retries,
    key_text, preferences, priority, retry_after, tags, upstream_request_headers, upstream_request_id, user,
};

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| {
            let name: HeaderName = name.parse().expect("a name");
            (name, HeaderValue::from_bytes(value.as_bytes()).expect("a value"))
        })
        .collect()
}

fn names(headers: &HeaderMap) -> Vec<&str> {
    let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    names
}

#[test]
fn only_what_a_provider_may_know_goes_upstream() {
    let caller = headers(&[
        ("accept", "text/event-stream"),
        ("content-type", "text/plain"),
        ("idempotency-key", "1"),
        ("user-agent", "sdk/1"),
        ("openai-beta", "a"),
        ("openai-beta", "b"),
        ("traceparent", "00-1"),
        ("authorization", "Bearer sk-tg-secret"),
        ("x-api-key", "sk-tg-secret"),
        ("api-key", "secret"),
        ("cookie", "session=secret"),
        ("cf-access-jwt-assertion", "secret"),
        ("proxy-authorization", "secret"),
        ("openai-organization", "org"),
        ("host", "gateway"),
        ("content-length", "7"),
        ("accept-encoding", "gzip"),
        ("connection", "keep-alive, TraceParent"),
        ("keep-alive", "1"),
        ("te", "trailers"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "websocket"),
        ("expect", "100-continue"),
        ("x-tollgate-tags", "a=b"),
        ("x-tollgate-user", "u"),
        ("x-forwarded-for", "10.0.0.1"),
        ("forwarded", "for=10.0.0.1"),
        ("via", "1.1 proxy"),
        ("x-stainless-os", "Linux"),
    ]);
    let upstream = upstream_request_headers(Dialect::Openai, &caller);
    assert_eq!(
        names(&upstream),
        ["accept", "accept-encoding", "content-type", "openai-beta", "user-agent"]
    );
    assert_eq!(upstream["accept-encoding"], "identity");
    assert_eq!(upstream["content-type"], "application/json");
    assert_eq!(upstream.get_all("openai-beta").iter().count(), 2);
}

#[test]
fn what_a_provider_says_to_us_alone_stays_here() {
    let upstream = headers(&[
        ("content-type", "application/json"),
        ("x-request-id", "req_1"),
        ("openai-processing-ms", "12"),
        ("openai-version", "2020-10-01"),
        ("x-custom", "kept"),
        ("connection", "close, X-Hop"),
        ("x-hop", "1"),
        ("keep-alive", "1"),
        ("transfer-encoding", "chunked"),
        ("trailer", "x"),
        ("content-length", "7"),
        ("set-cookie", "a=b"),
        ("server", "cloud"),
        ("date", "now"),
        ("openai-organization", "our-org"),
        ("openai-project", "our-project"),
        ("anthropic-organization-id", "our-org"),
        ("x-ratelimit-remaining-tokens", "5"),
        ("anthropic-ratelimit-requests-limit", "5"),
        ("retry-after", "7"),
        ("retry-after-ms", "7000"),
        ("cf-ray", "x"),
        ("alt-svc", "h3"),
        ("strict-transport-security", "x"),
        ("access-control-expose-headers", "x"),
        ("x-tollgate-anything", "forged"),
    ]);
    assert_eq!(
        names(&caller_response_headers(&upstream)),
        [
            "content-type",
            "openai-processing-ms",
            "openai-version",
            "x-custom",
            "x-request-id"
        ]
    );
}

#[test]
fn the_key_is_found_in_both_places() {
    for (pairs, key) in [
        (vec![("authorization", "Bearer sk-tg-1")], Some("sk-tg-1")),
        (vec![("authorization", "bearer   sk-tg-1 ")], Some("sk-tg-1")),
        (vec![("x-api-key", " sk-tg-2 ")], Some("sk-tg-2")),
        (
            vec![("authorization", "Bearer sk-tg-1"), ("x-api-key", "sk-tg-2")],
            Some("sk-tg-1"),
        ),
        (
            vec![("authorization", "Basic abc"), ("x-api-key", "sk-tg-2")],
            Some("sk-tg-2"),
        ),
        (vec![("authorization", "Basic abc")], None),
        (vec![("authorization", "Bearer ")], None),
        (vec![("authorization", "sk-tg-1")], None),
        (vec![("x-api-key", "")], None),
        (vec![], None),
    ] {
        assert_eq!(key_text(&headers(&pairs)), key, "{pairs:?}");
    }
}

fn now() -> DateTime<Utc> {
    Utc.with_ymd_and_hms(1994, 11, 6, 8, 49, 30)
        .single()
        .expect("an instant")
}

#[test]
fn retry_after_is_read_in_all_its_forms() {
    for (name, value, wait_ms) in [
        ("retry-after", "7", Some(7_000)),
        ("retry-after", " 0 ", Some(0)),
        ("retry-after", "1.5", Some(1_500)),
        ("retry-after-ms", "250", Some(250)),
        ("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT", Some(7_000)),
        ("retry-after", "Sunday, 06-Nov-94 08:49:37 GMT", Some(7_000)),
        ("retry-after", "Sun Nov  6 08:49:37 1994", Some(7_000)),
        ("retry-after", "Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
        ("retry-after", "99999999999999999999999", Some(86_400_000)),
        ("retry-after", "inf", Some(86_400_000)),
        ("retry-after", "-1", None),
        ("retry-after", "NaN", None),
        ("retry-after", "soon", None),
        ("retry-after", "", None),
    ] {
        let wait = retry_after(&headers(&[(name, value)]), now());
        assert_eq!(wait, wait_ms.map(Duration::from_millis), "{name}: {value}");
    }
    let both = headers(&[("retry-after", "7"), ("retry-after-ms", "6500")]);
    assert_eq!(retry_after(&both, now()), Some(Duration::from_millis(6_500)));
    assert_eq!(retry_after(&HeaderMap::new(), now()), None);
}

#[test]
fn tags_are_pairs_within_bounds() {
    let read = |value: &str| tags(&headers(&[("x-tollgate-tags", value)]));
    let pairs = |value: &str| {
        let tags = read(value).unwrap_or_else(|error| panic!("{value}: {error}"));
        tags.into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(pairs("team=search, experiment = 7 ,"), ["experiment=7", "team=search"]);
    assert_eq!(pairs("a=1,a=2,b=x=y,empty="), ["a=2", "b=x=y", "empty="]);
    assert_eq!(pairs("städte=münchen"), ["städte=münchen"]);
    assert_eq!(pairs(""), [""; 0]);
    let many: Vec<String> = (0..=TAGS_MAX).map(|number| format!("t{number}=1")).collect();
    assert_eq!(pairs(&many[..TAGS_MAX].join(",")).len(), TAGS_MAX);
    for wrong in [
        many.join(","),
        "a".into(),
        "=b".into(),
        format!("{}=1", "n".repeat(65)),
        format!("a={}", "v".repeat(257)),
    ] {
        assert_eq!(read(&wrong), Err(HeaderError::Tags), "{wrong}");
    }
    assert_eq!(tags(&HeaderMap::new()).map(|tags| tags.len()), Ok(0));
}

#[test]
fn priority_user_and_retries_are_read_or_refused() {
    let one = |name: &str, value: &str| headers(&[(name, value)]);
    assert_eq!(priority(&one("x-tollgate-priority", " Low ")), Ok(Some(Priority::Low)));
    assert_eq!(
        priority(&one("x-tollgate-priority", "urgent")),
        Err(HeaderError::Priority)
    );
    assert_eq!(priority(&HeaderMap::new()), Ok(None));
    assert_eq!(user(&one("x-tollgate-user", " jürgen ")), Ok(Some("jürgen")));
    for wrong in ["", " ", "a\tb", "a\u{85}b", &"u".repeat(129)] {
        assert_eq!(user(&one("x-tollgate-user", wrong)), Err(HeaderError::User));
    }
    assert_eq!(caller_retries(&one("x-stainless-retry-count", "2")), Some(2));
    for wrong in ["-1", "two", "99999999999"] {
        assert_eq!(caller_retries(&one("x-stainless-retry-count", wrong)), None);
    }
}

#[test]
fn the_providers_id_of_a_request_is_found_and_cut() {
    assert_eq!(
        upstream_request_id(&headers(&[("x-request-id", "req_1")])).as_deref(),
        Some("req_1")
    );
    assert_eq!(
        upstream_request_id(&headers(&[("request-id", "req_2")])).as_deref(),
        Some("req_2")
    );
    let long = "r".repeat(1_000);
    assert_eq!(
        upstream_request_id(&headers(&[("x-request-id", &long)])).map(|id| id.len()),
        Some(200)
    );
}

proptest! {
    #[test]
    fn any_value_is_read_or_refused(value in prop::collection::vec(0x20_u8..=255, 0..80)) {
        prop_assume!(!value.contains(&127));
        let mut all = HeaderMap::new();
        for name in ["x-tollgate-tags", "x-tollgate-priority", "x-tollgate-user", "retry-after", "retry-after-ms", "authorization", "connection"] {
            all.insert(name, HeaderValue::from_bytes(&value).expect("a value"));
        }
        let _ = (tags(&all), priority(&all), user(&all), key_text(&all), caller_retries(&all));
        prop_assert!(retry_after(&all, now()).is_none_or(|wait| wait <= RETRY_AFTER_MAX));
        upstream_request_headers(Dialect::Openai, &all);
        caller_response_headers(&all);
    }
}

#[test]
fn a_caller_may_prefer_an_answer_later() {
    let read = |values: &[&str]| {
        let pairs: Vec<(&str, &str)> = values.iter().map(|value| ("prefer", *value)).collect();
        preferences(&headers(&pairs))
    };
    let later = |wait: Option<u64>| Preferences {
        responds_async: true,
        wait: wait.map(Duration::from_secs),
    };
    assert_eq!(read(&[]), Preferences::default());
    assert_eq!(read(&["return=minimal, handling=lenient"]), Preferences::default());
    assert_eq!(read(&["respond-async"]), later(None));
    assert_eq!(read(&["Respond-Async , WAIT = 10"]), later(Some(10)));
    assert_eq!(read(&["wait=5", "respond-async"]), later(Some(5)));
    assert_eq!(read(&["respond-async; foo=\"a, wait=3\", wait=\"7\""]), later(Some(7)));
    assert_eq!(read(&["respond-async=\"\""]), later(None));
    // The first counts, and what is not understood is none.
    assert_eq!(read(&["wait=1, wait=2, respond-async"]), later(Some(1)));
    assert_eq!(read(&["wait=-1, respond-async"]), later(None));
    assert_eq!(read(&["wait=soon, wait=2, respond-async"]), later(None));
    assert_eq!(
        read(&["respond-asynchronously, xrespond-async"]),
        Preferences::default()
    );
    assert_eq!(read(&["foo=\"respond-async\""]), Preferences::default());
    assert_eq!(read(&["foo=\"a\\\", respond-async\""]), Preferences::default());
    assert_eq!(
        read(&["respond-async, wait=99999999999999999999"]),
        later(Some(PREFERRED_WAIT_MAX.as_secs()))
    );
}

proptest! {
    #[test]
    fn no_preference_is_read_wrong_way_round(text in "[ -~]{0,60}") {
        let read = preferences(&headers(&[("prefer", &text)]));
        prop_assert!(!read.responds_async || text.to_ascii_lowercase().contains("respond-async"));
        prop_assert!(read.wait.is_none_or(|wait| wait <= PREFERRED_WAIT_MAX));
    }
}

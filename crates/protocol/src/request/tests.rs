//! What is read of a request, and what is refused because it could be read in two ways.

use bytes::Bytes;
use domain::parts::{Part, PartKind};
use proptest::prelude::*;
use serde_json::json;

use super::{InferenceRequest, InspectError, MESSAGES_MAX, NESTING_MAX, PARTS_MAX};
use crate::endpoint::Endpoint;

fn inspect(body: &str) -> Result<InferenceRequest, InspectError> {
    InferenceRequest::inspect(Endpoint::ChatCompletions, &Bytes::copy_from_slice(body.as_bytes()))
}

fn parts(request: &InferenceRequest) -> Vec<(PartKind, String)> {
    request
        .parts()
        .map(|part| (part.kind, part.text.into_owned()))
        .collect()
}

fn with(field: &str) -> String {
    format!(r#"{{"model":"m","messages":[],{field}}}"#)
}

#[test]
fn absent_and_null_fields_have_their_defaults() {
    for body in [
        r#"{"model":"m","messages":[]}"#.to_owned(),
        with(
            r#""stream":null,"stream_options":null,"max_tokens":null,"max_completion_tokens":null,"n":null,"user":null"#,
        ),
        with(r#""metadata":null,"tools":null,"functions":null,"response_format":null,"prediction":null"#),
    ] {
        let request = inspect(&body).expect(&body);
        assert_eq!(request.model(), "m");
        assert!(!request.is_streamed() && !request.includes_usage());
        assert_eq!(
            (request.output_cap_tokens(), request.choices(), request.user()),
            (None, 1, None)
        );
        assert_eq!(
            (request.messages(), request.parts().count(), request.part_bytes()),
            (0, 0, 0)
        );
    }
}

#[test]
fn keys_and_values_with_escapes_are_understood() {
    let request = inspect(
        r#" { "mod\u0065l" : "caf\u00e9" , "messages" : [ {"content":"a\n\ud83d\ude42"} ] , "stre\u0061m":true } "#,
    )
    .expect("a request");
    assert_eq!(request.model(), "café");
    assert!(request.is_streamed());
    assert_eq!(parts(&request), [(PartKind::Text, "a\n🙂".to_owned())]);
}

#[test]
fn a_text_without_escapes_is_not_copied() {
    let request = inspect(r#"{"model":"m","messages":[{"content":"plain 数据"}]}"#).expect("a request");
    let Part { text, bytes, .. } = request.parts().next().expect("a part");
    assert!(matches!(text, std::borrow::Cow::Borrowed("plain 数据")));
    assert_eq!(bytes, 12);
}

#[test]
fn a_text_that_is_no_valid_unicode_counts_as_it_is_written() {
    let request = inspect(r#"{"model":"m","messages":[{"content":"\ud800 lone"}]}"#).expect("a request");
    assert_eq!(parts(&request), [(PartKind::Text, r#""\ud800 lone""#.to_owned())]);
    assert_eq!(
        inspect(r#"{"model":"\ud800","messages":[]}"#)
            .err()
            .and_then(|error| error.param()),
        Some("model")
    );
}

#[test]
fn the_larger_of_two_output_caps_counts() {
    let cap = |fields: &str| inspect(&with(fields)).expect(fields).output_cap_tokens();
    assert_eq!(cap(r#""max_tokens":5"#), Some(5));
    assert_eq!(cap(r#""max_completion_tokens":7"#), Some(7));
    assert_eq!(cap(r#""max_completion_tokens":7,"max_tokens":500"#), Some(500));
    assert_eq!(cap(r#""max_completion_tokens":null,"max_tokens":5"#), Some(5));
}

#[test]
fn the_end_user_is_user_or_else_in_the_metadata() {
    let user = |fields: &str| inspect(&with(fields)).expect(fields).user().map(str::to_owned);
    assert_eq!(user(r#""user":"a","metadata":{"user_id":"b"}"#).as_deref(), Some("a"));
    assert_eq!(user(r#""metadata":{"x":"y","user_id":"b"}"#).as_deref(), Some("b"));
    assert_eq!(user(r#""user":"","metadata":{"x":1}"#), None);
}

#[test]
fn what_is_wrong_is_said_with_the_field() {
    let lone = |name: &str| format!(r#"{{"{name}":1}}"#);
    for (body, param) in [
        (r#"{"messages":[]}"#.to_owned(), Some("model")),
        (r#"{"model":"m"}"#.to_owned(), Some("messages")),
        (r#"{"model":null,"messages":[]}"#.to_owned(), Some("model")),
        (r#"{"model":"","messages":[]}"#.to_owned(), Some("model")),
        (
            format!(r#"{{"model":"{}","messages":[]}}"#, "m".repeat(300)),
            Some("model"),
        ),
        (lone("model"), Some("model")),
        (lone("messages"), Some("messages")),
        (r#"{"model":"m","messages":["text"]}"#.to_owned(), Some("messages")),
        (
            r#"{"model":"m","messages":[{"content":[],"tool_calls":7}]}"#.to_owned(),
            Some("messages"),
        ),
        (with(r#""stream":"yes""#), Some("stream")),
        (with(r#""stream_options":true"#), Some("stream_options")),
        (
            with(r#""stream_options":{"include_usage":1}"#),
            Some("stream_options.include_usage"),
        ),
        (with(r#""max_tokens":0"#), Some("max_tokens")),
        (with(r#""max_tokens":-1"#), Some("max_tokens")),
        (with(r#""max_completion_tokens":1.5"#), Some("max_completion_tokens")),
        (with(r#""n":0"#), Some("n")),
        (with(r#""n":129"#), Some("n")),
        (with(r#""user":7"#), Some("user")),
        (with(&format!(r#""user":"{}""#, "u".repeat(2_000))), Some("user")),
        (with(r#""metadata":{"user_id":7}"#), Some("metadata.user_id")),
        (with(r#""tools":{}"#), Some("tools")),
        ("[]".to_owned(), None),
        ("7".to_owned(), None),
        (String::new(), None),
        ("{".to_owned(), None),
        (r#"{"model":"m","messages":[]} x"#.to_owned(), None),
        (r#"{"model":"m","messages":[],}"#.to_owned(), None),
        ("\u{feff}{}".to_owned(), None),
    ] {
        let error = inspect(&body).err().unwrap_or_else(|| panic!("{body} is refused"));
        assert_eq!(error.param(), param, "{body}: {error}");
    }
    assert_eq!(
        InferenceRequest::inspect(Endpoint::ChatCompletions, &Bytes::from_static(b"{\"model\":\"\xff\"}")).err(),
        Some(InspectError::NotUtf8)
    );
}

#[test]
fn what_would_be_billed_by_other_prices_is_refused_with_the_field() {
    for (fields, param) in [
        (r#""service_tier":"priority""#, "service_tier"),
        (r#""service_tier":"flex""#, "service_tier"),
        (r#""service_tier":7"#, "service_tier"),
        (r#""modalities":["text","audio"]"#, "modalities"),
        (r#""modalities":"audio""#, "modalities"),
        (r#""audio":{"voice":"alloy","format":"wav"}"#, "audio"),
        (r#""web_search_options":{}"#, "web_search_options"),
        (r#""search_parameters":{"mode":"on"}"#, "search_parameters"),
        (r#""plugins":[{"id":"web"}]"#, "plugins"),
        (r#""models":["a","b"]"#, "models"),
        (r#""route":"fallback""#, "route"),
        (r#""provider":{"order":["x"]}"#, "provider"),
        (r#""fallbacks":[]"#, "fallbacks"),
        (r#""Service_Tier":"priority""#, "service_tier"),
        (r#""service_tier":"auto","service_tier":"priority""#, "service_tier"),
    ] {
        let error = inspect(&with(fields)).err();
        assert_eq!(
            error.as_ref().and_then(InspectError::param),
            Some(param),
            "{fields}: {error:?}"
        );
    }
    for fields in [
        r#""service_tier":"auto""#,
        r#""service_tier":"default""#,
        r#""service_tier":null,"modalities":null,"audio":null,"models":null,"web_search_options":null,"provider":null"#,
        r#""modalities":["text"]"#,
    ] {
        assert!(inspect(&with(fields)).is_ok(), "{fields}");
    }
}

#[test]
fn users_with_control_characters_are_refused() {
    for (fields, param) in [
        (r#""user":"a\u0000b""#, "user"),
        (r#""user":"a\nb""#, "user"),
        (r#""user":"a\u0085b""#, "user"),
        (r#""metadata":{"user_id":"\u0000"}"#, "metadata.user_id"),
    ] {
        let error = inspect(&with(fields)).err();
        assert_eq!(error.as_ref().and_then(InspectError::param), Some(param), "{fields}");
    }
    assert!(inspect(&with(r#""user":"Jürgen 数据 \u200d""#)).is_ok());
}

#[test]
fn a_body_that_can_be_read_in_two_ways_is_refused() {
    for (field, param) in [
        (r#""model":"other""#, "model"),
        (r#""mod\u0065l":"other""#, "model"),
        (r#""messages":[]"#, "messages"),
        (r#""Model":"other""#, "model"),
        (r#""MAX_TOKENS":9"#, "max_tokens"),
        (r#""me\u017fsages":[]"#, "messages"),
        (r#""max_to\u212aens":9"#, "max_tokens"),
        (r#""stream":true,"stream":true"#, "stream"),
        (
            r#""stream_options":{"include_usage":true,"include_usage":false}"#,
            "include_usage",
        ),
        (r#""metadata":{"user_id":"a","user_id":"b"}"#, "metadata.user_id"),
        (r#""stream_options":{"Include_Usage":true}"#, "include_usage"),
    ] {
        let error = inspect(&with(field)).err();
        assert_eq!(
            error.as_ref().and_then(InspectError::param),
            Some(param),
            "{field}: {error:?}"
        );
    }
    assert!(
        inspect(&with(r#""seed":1,"seed":2,"Other":3"#)).is_ok(),
        "what is not read does not matter"
    );
}

#[test]
fn messages_never_repeat_the_content() {
    for body in [
        with(r#""stream":"SECRET""#),
        r#"{"model":"m","messages":[{"content": SECRET }]}"#.to_owned(),
        with(r#""n":"SECRET""#),
        r#"{"SECRET":1,"messages":"SECRET"}"#.to_owned(),
    ] {
        let error = inspect(&body).err().unwrap_or_else(|| panic!("{body} is refused"));
        assert!(!error.to_string().contains("SECRET"), "{error}");
    }
}

#[test]
fn messages_and_parts_are_bounded() {
    let body = |messages: usize| json!({ "model": "m", "messages": vec![json!({}); messages] }).to_string();
    assert!(inspect(&body(MESSAGES_MAX)).is_ok());
    assert!(matches!(
        inspect(&body(MESSAGES_MAX + 1)),
        Err(InspectError::TooLong { field: "messages", .. })
    ));
    let many = vec![json!({ "type": "text", "text": "" }); PARTS_MAX + 1];
    let body = json!({ "model": "m", "messages": [{ "content": many }] }).to_string();
    assert!(matches!(
        inspect(&body),
        Err(InspectError::TooLong { unit: "parts", .. })
    ));
    let body = json!({ "model": "m", "messages": [], "tools": vec![0; PARTS_MAX + 1] }).to_string();
    assert_eq!(
        inspect(&body).err().and_then(|error| error.param()),
        Some("tools"),
        "the field at fault"
    );
}

#[test]
fn deep_nesting_ends_in_an_answer() {
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    for body in [
        with(&format!(r#""unknown":{deep}"#)),
        with(&format!(r#""tools":{deep}"#)),
        with(&format!(r#""response_format":{{"a":{deep}}}"#)),
        format!(r#"{{"model":"m","messages":[{{"content":{deep}}}]}}"#),
    ] {
        let request = inspect(&body);
        assert!(request.is_ok() || request.is_err());
    }
}

#[test]
fn nothing_that_a_caller_sends_is_shown_by_debug() {
    let request = inspect(r#"{"model":"m","messages":[{"content":"SECRET"}]}"#).expect("a request");
    assert!(!format!("{request:?}").contains("SECRET"));
}

proptest! {
    #[test]
    fn any_bytes_end_in_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = InferenceRequest::inspect(Endpoint::ChatCompletions, &Bytes::from(bytes));
    }

    #[test]
    fn anything_like_json_ends_in_an_answer(
        words in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"model\"", "\"messages\"", "\"content\"", "\"type\"", "\"text\"", "null",
            "\"stream_options\"", "\"include_usage\"", "true", "1", "-0.5e9", "\"\\ud800\"", " ", "\"tool_calls\"", "\"image_url\"",
        ]), 0..40),
    ) {
        if let Ok(request) = inspect(&words.concat()) {
            for part in request.parts() {
                prop_assert!(part.bytes <= request.part_bytes());
            }
        }
    }

    #[test]
    fn every_text_is_found_whatever_its_letters(texts in prop::collection::vec(any::<String>(), 0..6)) {
        let messages: Vec<_> = texts.iter().map(|text| json!({ "role": "user", "content": text })).collect();
        let request = inspect(&json!({ "model": "m", "messages": messages }).to_string()).expect("a request");
        let found: Vec<String> = request.parts().map(|part| part.text.into_owned()).collect();
        prop_assert_eq!(found, texts);
    }
}

fn refused(endpoint: Endpoint, body: &str) -> Option<InspectError> {
    InferenceRequest::inspect(endpoint, &Bytes::copy_from_slice(body.as_bytes())).err()
}

#[test]
fn contents_within_contents_end_somewhere() {
    let nested = |levels: usize| {
        let open = r#"[{"type":"tool_result","content":"#.repeat(levels);
        let close = "}]".repeat(levels);
        format!(r#"{{"model":"m","messages":[{{"role":"user","content":{open}"x"{close}}}]}}"#)
    };
    assert_eq!(refused(Endpoint::Messages, &nested(NESTING_MAX)), None);
    let too_deep = refused(Endpoint::Messages, &nested(NESTING_MAX + 1));
    assert!(
        matches!(too_deep, Some(InspectError::TooLong { max: NESTING_MAX, .. })),
        "{too_deep:?}"
    );
    // As deep as a body may be long.
    let too_deep = refused(Endpoint::CountTokens, &nested(100_000));
    assert!(matches!(too_deep, Some(InspectError::TooLong { .. })), "{too_deep:?}");
}

#[test]
fn what_makes_another_model_run_is_refused_wherever_it_is_asked_for() {
    for (endpoint, about) in [
        (Endpoint::ChatCompletions, r#""messages":[]"#),
        (Endpoint::Completions, r#""prompt":"x""#),
        (Endpoint::Responses, r#""input":"x""#),
        (Endpoint::Embeddings, r#""input":"x""#),
        (Endpoint::Messages, r#""messages":[]"#),
    ] {
        for field in [
            "models",
            "route",
            "provider",
            "fallbacks",
            "plugins",
            "web_search_options",
            "mcp_servers",
        ] {
            let body = |value: &str| format!(r#"{{"model":"m",{about},"{field}":{value}}}"#);
            assert_eq!(refused(endpoint, &body("null")), None, "{endpoint} {field}");
            let error = refused(endpoint, &body(r#"["other"]"#));
            assert!(
                matches!(error, Some(InspectError::Refused { .. })),
                "{endpoint} {field}: {error:?}"
            );
            let shouted = body("1").replace(field, &field.to_uppercase());
            assert!(
                matches!(refused(endpoint, &shouted), Some(InspectError::AlmostSpelt(_))),
                "{shouted}"
            );
        }
    }
}

#[test]
fn a_context_is_shortened_for_nothing_or_not_at_all() {
    let body =
        |kind: &str| format!(r#"{{"model":"m","messages":[],"context_management":{{"edits":[{{"type":"{kind}"}}]}}}}"#);
    assert_eq!(refused(Endpoint::Messages, &body("clear_tool_uses_20250919")), None);
    for kind in ["compact_20260112", "c\\u006fmpact_20260112"] {
        let error = refused(Endpoint::Messages, &body(kind));
        assert!(matches!(error, Some(InspectError::Refused { .. })), "{kind}: {error:?}");
    }
}

#[test]
fn what_decides_within_a_list_is_there_once() {
    for (endpoint, body) in [
        (
            Endpoint::Messages,
            r#"{"model":"m","messages":[],"tools":[{"type":"custom","type":"web_search_20250305"}]}"#,
        ),
        (
            Endpoint::Messages,
            r#"{"model":"m","messages":[],"tools":[{"type":["web_search_20250305"]}]}"#,
        ),
        (
            Endpoint::Messages,
            r#"{"model":"m","messages":[{"content":[{"type":"document","source":{"type":"text","data":"x","data":"much"}}]}]}"#,
        ),
        (
            Endpoint::Messages,
            r#"{"model":"m","messages":[{"content":[{"type":"text","text":"x","text":"much"}]}]}"#,
        ),
        (
            Endpoint::Responses,
            r#"{"model":"m","input":"x","tools":[{"type":"function","type":"web_search"}]}"#,
        ),
        (
            Endpoint::Responses,
            r#"{"model":"m","input":[{"type":"message","type":"item_reference","id":"msg_1"}]}"#,
        ),
        (
            Endpoint::ChatCompletions,
            r#"{"model":"m","messages":[],"tools":[{"type":"function","type":"browser_search"}]}"#,
        ),
    ] {
        let error = refused(endpoint, body);
        let is_named = matches!(error, Some(InspectError::Duplicate(_) | InspectError::WrongType { .. }));
        assert!(is_named, "{body}: {error:?}");
    }
}

#[test]
fn what_decides_within_a_list_is_spelt_as_it_should_be() {
    let error = refused(
        Endpoint::ChatCompletions,
        r#"{"model":"m","messages":[],"tools":[{"Type":"browser_search"}]}"#,
    );
    assert_eq!(error, Some(InspectError::AlmostSpelt("tools")));
}

#[test]
fn a_completion_has_a_default_of_its_own_and_can_be_capped_all_the_same() {
    let body = Bytes::from_static(br#"{"model":"m","prompt":"x"}"#);
    let request = InferenceRequest::inspect(Endpoint::Completions, &body).expect("a request");
    assert_eq!(
        (request.output_cap_tokens(), request.output_default_tokens()),
        (None, Some(16))
    );
}

#[test]
fn what_the_provider_keeps_is_not_referred_to() {
    for (endpoint, body) in [
        (Endpoint::Responses, r#"{"model":"m","input":[{"id":"msg_1"}]}"#),
        (
            Endpoint::Responses,
            r#"{"model":"m","input":[{"type":"item_reference","id":"msg_1"}]}"#,
        ),
        (
            Endpoint::Responses,
            r#"{"model":"m","input":[{"role":"user","content":[{"type":"input_file","file_id":"f"}]}]}"#,
        ),
        (
            Endpoint::Responses,
            r#"{"model":"m","input":"x","conversation":"conv_1"}"#,
        ),
        (
            Endpoint::Responses,
            r#"{"model":"m","input":"x","prompt":{"id":"pmpt_1"}}"#,
        ),
        (
            Endpoint::Messages,
            r#"{"model":"m","messages":[{"content":[{"type":"document","source":{"type":"file","file_id":"f"}}]}]}"#,
        ),
        (
            Endpoint::ChatCompletions,
            r#"{"model":"m","messages":[{"content":[{"type":"file","file":{"file_id":"f"}}]}]}"#,
        ),
        (
            Endpoint::ChatCompletions,
            r#"{"model":"m","messages":[{"role":"assistant","audio":{"id":"audio_1"}}]}"#,
        ),
    ] {
        let error = refused(endpoint, body);
        assert!(
            matches!(error, Some(InspectError::KeptByProvider(_))),
            "{body}: {error:?}"
        );
    }
}

#[test]
fn tools_that_a_provider_runs_are_refused() {
    for (endpoint, body) in [
        (
            Endpoint::ChatCompletions,
            r#"{"model":"m","messages":[],"tools":[{"type":"browser_search"}]}"#,
        ),
        (
            Endpoint::Responses,
            r#"{"model":"m","input":"x","tools":[{"type":"mcp","server_url":"https://a.example"}]}"#,
        ),
        (
            Endpoint::Messages,
            r#"{"model":"m","messages":[],"tools":[{"type":"code_execution_20250825","name":"x"}]}"#,
        ),
    ] {
        let error = refused(endpoint, body);
        assert!(
            matches!(error, Some(InspectError::Refused { field: "tools", .. })),
            "{body}: {error:?}"
        );
    }
}

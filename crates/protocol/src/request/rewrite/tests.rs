//! A rewritten body is the caller's but for the fields that must change.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::Rewrite;
use crate::endpoint::Endpoint;
use crate::request::InferenceRequest;

fn rewrite(body: &str, rewrite: &Rewrite<'_>) -> String {
    let request =
        InferenceRequest::inspect(Endpoint::ChatCompletions, &Bytes::copy_from_slice(body.as_bytes())).expect(body);
    String::from_utf8(request.rewrite(rewrite).to_vec()).expect("UTF-8")
}

const ALL: Rewrite<'static> = Rewrite {
    model: "up\"stream",
    asks_for_usage: true,
    output_cap_tokens: Some(64),
};

#[test]
fn nothing_to_change_leaves_the_very_bytes() {
    let body = Bytes::from_static(br#" {"model" : "m", "stream":false, "messages":[], "max_tokens":9 }"#);
    let request = InferenceRequest::inspect(Endpoint::ChatCompletions, &body).expect("a request");
    let rewritten = request.rewrite(&Rewrite { model: "m", ..ALL });
    assert_eq!(rewritten.as_ptr(), body.as_ptr());
    assert_eq!(rewritten, body);
}

#[test]
fn only_the_bytes_that_must_change_do() {
    for (body, expected) in [
        (
            r#"{ "messages":[],"model" : "m" }"#,
            r#"{"max_completion_tokens":64, "messages":[],"model" : "up\"stream" }"#,
        ),
        (
            r#"{"model":"m","messages":[],"stream":true}"#,
            r#"{"stream_options":{"include_usage":true},"max_completion_tokens":64,"model":"up\"stream","messages":[],"stream":true}"#,
        ),
        (
            r#"{"stream_options":null,"model":"m","messages":[],"stream":true,"max_completion_tokens":null}"#,
            r#"{"stream_options":{"include_usage":true},"model":"up\"stream","messages":[],"stream":true,"max_completion_tokens":64}"#,
        ),
        (
            r#"{"model":"m","messages":[],"stream":true,"stream_options":{ },"max_tokens":5}"#,
            r#"{"model":"up\"stream","messages":[],"stream":true,"stream_options":{"include_usage":true },"max_tokens":5}"#,
        ),
        (
            r#"{"model":"m","messages":[],"stream":true,"stream_options":{"x":[1]},"max_tokens":5}"#,
            r#"{"model":"up\"stream","messages":[],"stream":true,"stream_options":{"include_usage":true,"x":[1]},"max_tokens":5}"#,
        ),
        (
            r#"{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage": false },"max_tokens":5}"#,
            r#"{"model":"up\"stream","messages":[],"stream":true,"stream_options":{"include_usage": true },"max_tokens":5}"#,
        ),
        (
            r#"{"model":"m","messages":[],"max_tokens": 65 ,"max_completion_tokens":9}"#,
            r#"{"model":"up\"stream","messages":[],"max_tokens": 64 ,"max_completion_tokens":9}"#,
        ),
        (
            r#"{"model":"m","messages":[],"max_tokens":64,"max_completion_tokens":9000}"#,
            r#"{"model":"up\"stream","messages":[],"max_tokens":64,"max_completion_tokens":64}"#,
        ),
    ] {
        assert_eq!(rewrite(body, &ALL), expected, "{body}");
    }
}

/// Any JSON, three levels deep.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|fields| Value::from(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// One way of many to write the same JSON: other whitespace, other escapes.
fn write(value: &Value, has_escapes: bool, blank: &str, to: &mut String) {
    let quote = |text: &str, to: &mut String| {
        if !has_escapes {
            to.push_str(&Value::from(text).to_string());
            return;
        }
        to.push('"');
        for unit in text.encode_utf16() {
            to.push_str(&format!("\\u{unit:04x}"));
        }
        to.push('"');
    };
    to.push_str(blank);
    match value {
        Value::Object(fields) => {
            to.push('{');
            for (index, (key, value)) in fields.iter().enumerate() {
                to.push_str(if index > 0 { "," } else { "" });
                to.push_str(blank);
                quote(key, to);
                to.push_str(blank);
                to.push(':');
                write(value, has_escapes, blank, to);
            }
            to.push_str(blank);
            to.push('}');
        }
        Value::Array(elements) => {
            to.push('[');
            for (index, value) in elements.iter().enumerate() {
                to.push_str(if index > 0 { "," } else { "" });
                write(value, has_escapes, blank, to);
            }
            to.push_str(blank);
            to.push(']');
        }
        Value::String(text) => quote(text, to),
        other => to.push_str(&other.to_string()),
    }
    to.push_str(blank);
}

proptest! {
    #[test]
    fn the_result_means_the_same_but_for_what_must_change(
        extra in prop::collection::btree_map("[xyz]\\PC{0,6}", any_json(), 0..5),
        contents in prop::collection::vec(any_json(), 0..4),
        model in "[^\\p{C}]{1,12}",
        upstream_model in any::<String>(),
        is_streamed in any::<bool>(),
        options in prop::sample::select(vec![
            None, Some(json!(null)), Some(json!({})), Some(json!({"include_usage": false})), Some(json!({"include_usage": null, "z": 1})),
            Some(json!({"include_usage": true})), Some(json!({"a": {"include_usage": 7}})),
        ]),
        caps in (prop::option::of(1_u64..99), prop::sample::select(vec![None, Some(json!(null)), Some(json!(12))])),
        (asks_for_usage, output_cap_tokens) in (any::<bool>(), prop::option::of(prop_oneof![1_u64..40, any::<u64>()])),
        has_escapes in any::<bool>(),
        blank in prop::sample::select(vec!["", " ", "\r\n\t"]),
    ) {
        let mut body: Map<String, Value> = extra.into_iter().collect();
        body.insert("model".into(), model.clone().into());
        body.insert("messages".into(), contents.into_iter().map(|content| json!({ "content": content })).collect());
        body.insert("stream".into(), is_streamed.into());
        if let Some(options) = &options {
            body.insert("stream_options".into(), options.clone());
        }
        if let Some(cap) = caps.0 {
            body.insert("max_tokens".into(), cap.into());
        }
        if let Some(cap) = &caps.1 {
            body.insert("max_completion_tokens".into(), cap.clone());
        }
        let body = Value::from(body);
        let mut text = String::new();
        write(&body, has_escapes, blank, &mut text);
        prop_assume!(serde_json::from_str::<Value>(&text).ok().as_ref() == Some(&body));

        let rewritten = rewrite(&text, &Rewrite { model: &upstream_model, asks_for_usage, output_cap_tokens });

        let mut expected = body.clone();
        expected["model"] = upstream_model.clone().into();
        let asked = options.as_ref().is_some_and(|options| options["include_usage"] == true);
        if is_streamed && asks_for_usage && !asked {
            if !expected["stream_options"].is_object() {
                expected["stream_options"] = json!({});
            }
            expected["stream_options"]["include_usage"] = true.into();
        }
        let is_capped = caps.0.is_some() || caps.1.as_ref().is_some_and(|cap| !cap.is_null());
        match (output_cap_tokens, is_capped) {
            (Some(cap), false) => expected["max_completion_tokens"] = cap.into(),
            (Some(cap), true) => {
                for field in ["max_tokens", "max_completion_tokens"] {
                    if body[field].as_u64().is_some_and(|stated| stated > cap) {
                        expected[field] = cap.into();
                    }
                }
            }
            (None, _) => {}
        }
        prop_assert_eq!(serde_json::from_str::<Value>(&rewritten).expect("JSON"), expected);
    }
}

//! Of the reading and rewriting of requests.

use std::borrow::Cow;

use bytes::Bytes;
use domain::parts::PartKind;
use serde::de::IgnoredAny;

use super::fields;
use crate::endpoint::Endpoint;
use crate::request::{InferenceRequest, Rewrite};

/// The fields of any endpoint that cap its output.
const CAPS: [&str; 3] = ["max_tokens", "max_completion_tokens", "max_output_tokens"];

/// With needs of every kind: a name that must be escaped, caps above and below what is usual, none.
const REWRITES: [Rewrite<'static>; 4] = [
    Rewrite {
        model: "up\"stream\\ñ/1",
        asks_for_usage: true,
        output_cap_tokens: Some(64),
    },
    Rewrite {
        model: "m",
        asks_for_usage: false,
        output_cap_tokens: Some(u64::MAX),
    },
    Rewrite {
        model: "upstream",
        asks_for_usage: true,
        output_cap_tokens: None,
    },
    Rewrite {
        model: "m",
        asks_for_usage: false,
        output_cap_tokens: None,
    },
];

/// Whatever the endpoint: a body that is taken for a request is JSON, its parts are no larger than said, and rewritten it is
/// the same request but for what was to change.
pub fn check_request(body: &[u8]) {
    let body = Bytes::copy_from_slice(body);
    for endpoint in Endpoint::ALL {
        match InferenceRequest::inspect(endpoint, &body) {
            Ok(request) => check_accepted(&request),
            Err(error) => assert!(!error.to_string().is_empty(), "a refusal says why"),
        }
    }
}

/// Whether there is an output to cap.
fn generates(endpoint: Endpoint) -> bool {
    !matches!(endpoint, Endpoint::Embeddings | Endpoint::CountTokens)
}

fn check_accepted(request: &InferenceRequest) {
    let json = serde_json::from_slice::<IgnoredAny>(request.body());
    assert!(json.is_ok(), "what is accepted is JSON: {json:?}");
    assert!(!request.model().is_empty(), "a model is named");
    if generates(request.endpoint()) {
        assert!(request.choices() >= 1, "something is generated");
    }

    let mut bytes = 0;
    for part in request.parts() {
        if matches!(part.kind, PartKind::Text | PartKind::Definition) {
            assert_eq!(part.bytes, part.text.len() as u64, "a text is as long as it is");
        }
        bytes += part.bytes;
    }
    assert!(
        bytes <= request.part_bytes(),
        "{bytes} bytes in parts, {} said",
        request.part_bytes()
    );

    for rewrite in &REWRITES {
        check_rewritten(request, rewrite);
    }
    let same = Rewrite {
        model: request.model(),
        asks_for_usage: false,
        output_cap_tokens: None,
    };
    assert_eq!(request.rewrite(&same), request.body(), "nothing was to change");
}

fn check_rewritten(request: &InferenceRequest, rewrite: &Rewrite<'_>) {
    let body = request.rewrite(rewrite);
    let again = InferenceRequest::inspect(request.endpoint(), &body).expect("a rewritten request is one");
    assert_eq!(again.rewrite(rewrite), body, "nothing is left to change");

    assert_eq!(again.model(), rewrite.model, "the model is the upstream's");
    check_cap(request, &again, rewrite);
    let is_asked = rewrite.asks_for_usage && request.is_streamed();
    assert_eq!(again.includes_usage(), is_asked || request.includes_usage(), "usage");

    assert_eq!(again.is_streamed(), request.is_streamed(), "streaming");
    assert_eq!(again.choices(), request.choices(), "choices");
    assert_eq!(again.user(), request.user(), "the user");
    assert_eq!(again.messages(), request.messages(), "messages");
    assert_eq!(again.preamble_tokens(), request.preamble_tokens(), "preamble");
    assert_eq!(again.part_bytes(), request.part_bytes(), "bytes of parts");
    assert!(parts(&again).eq(parts(request)), "parts");

    // Keys that are no text cannot be listed; what is read of them was compared above.
    if let (Some(old), Some(new)) = (fields(request.body()), fields(&body)) {
        check_fields(&old, &new);
    }
}

/// A stated cap is lowered to the one to hold to, never raised; one is stated wherever something is generated.
fn check_cap(request: &InferenceRequest, again: &InferenceRequest, rewrite: &Rewrite<'_>) {
    let expected = match (request.output_cap_tokens(), rewrite.output_cap_tokens) {
        (Some(stated), Some(cap)) => Some(stated.min(cap)),
        (None, Some(cap)) => generates(request.endpoint()).then_some(cap),
        (stated, None) => stated,
    };
    // What counts tokens states a cap only if its caller did, and then it is held to as well.
    assert_eq!(again.output_cap_tokens(), expected, "the cap");
}

fn parts(request: &InferenceRequest) -> impl Iterator<Item = (PartKind, u64, Cow<'_, str>)> {
    request.parts().map(|part| (part.kind, part.bytes, part.text))
}

/// All fields but the model, the caps and `stream_options` are where they were and written as they were; of the latter only
/// `include_usage` may differ.
fn check_fields(old: &[(String, &str)], new: &[(String, &str)]) {
    let is_kept = |name: &str| name != "model" && name != "stream_options" && !CAPS.contains(&name);
    let kept = |fields: &[(String, &str)]| -> Vec<(String, String)> {
        let kept = fields.iter().filter(|(name, _)| is_kept(name));
        kept.map(|(name, value)| (name.clone(), (*value).to_owned())).collect()
    };
    assert_eq!(kept(new), kept(old), "other fields");

    let options = |fields: &[(String, &str)]| -> Vec<(String, String)> {
        let options = fields.iter().find(|(name, _)| name == "stream_options");
        let inner = options
            .and_then(|(_, value)| super::fields(value.as_bytes()))
            .unwrap_or_default();
        let inner = inner.into_iter().filter(|(name, _)| name != "include_usage");
        inner.map(|(name, value)| (name, value.to_owned())).collect()
    };
    assert_eq!(options(new), options(old), "other options of streams");
}

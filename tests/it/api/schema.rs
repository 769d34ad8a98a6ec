//! Whether an answer is what the description says: every field in it is described, and every field that is always there is.

use http::Method;
use serde_json::{Map, Value};
use test_support::http::Answer;

/// Fails unless the answer to this call is one that the description has.
pub(super) fn assert_described(document: &Value, method: &Method, path: &str, answer: &Answer) {
    let place = format!("{method} {path} {}", answer.status);
    let (_, methods) = find_path(document, path).unwrap_or_else(|| panic!("{place}: no such path"));
    let responses = &methods[method.as_str().to_lowercase()]["responses"];
    let response = resolved(document, &responses[answer.status.as_str()]);
    assert!(response.is_object(), "{place}: no such answer is described");
    let Some(content) = response["content"].as_object() else {
        assert!(answer.body.is_empty(), "{place}: a body that is not described");
        return;
    };
    let media_type = answer.header("content-type");
    let media_type = media_type.split(';').next().unwrap_or_default();
    let described = content
        .get(media_type)
        .unwrap_or_else(|| panic!("{place}: {media_type} is not described"));
    if media_type.ends_with("json") {
        let mut wrong = Vec::new();
        check(document, &described["schema"], &answer.json(), "", &mut wrong);
        assert_eq!(wrong, Vec::<String>::new(), "{place}: {}", answer.text());
    }
}

/// The path of the description that a path of a call is meant by: the one with the fewest open parts.
fn find_path<'a>(document: &'a Value, path: &str) -> Option<(&'a String, &'a Value)> {
    let path: Vec<&str> = path.split('?').next().unwrap_or_default().split('/').collect();
    let is_meant = |described: &str| {
        let described: Vec<&str> = described.split('/').collect();
        described.len() == path.len()
            && described
                .iter()
                .zip(&path)
                .all(|(described, part)| described.starts_with('{') || described == part)
    };
    let paths = document["paths"].as_object().expect("paths");
    paths
        .iter()
        .filter(|(described, _)| is_meant(described))
        .min_by_key(|(described, _)| described.matches('{').count())
}

fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        Some(reference) => document
            .pointer(&reference[1..])
            .expect("a reference that leads somewhere"),
        None => value,
    }
}

fn check(document: &Value, schema: &Value, value: &Value, at: &str, wrong: &mut Vec<String>) {
    let schema = resolved(document, schema);
    if let Some(alternatives) = schema["oneOf"].as_array() {
        let fits = alternatives.iter().any(|alternative| {
            let mut own = Vec::new();
            check(document, alternative, value, at, &mut own);
            own.is_empty()
        });
        if !fits {
            wrong.push(format!("{at}: {value} is none of {alternatives:?}"));
        }
        return;
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let is_of = |name: &&str| match *name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        _ => value.is_null(),
    };
    if !types.is_empty() && !types.iter().any(is_of) {
        wrong.push(format!("{at}: {value} is no {types:?}"));
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        wrong.push(format!("{at}: {value} is none of {words:?}"));
    }
    match value {
        Value::Object(object) => check_object(document, schema, object, at, wrong),
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                check(document, &schema["items"], item, &format!("{at}.{place}"), wrong);
            }
        }
        _ => {}
    }
}

fn check_object(document: &Value, schema: &Value, object: &Map<String, Value>, at: &str, wrong: &mut Vec<String>) {
    let mut parts = vec![schema];
    parts.extend(
        schema["allOf"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|part| resolved(document, part)),
    );
    // A part may itself be made of parts.
    let deeper: Vec<&Value> = parts[1..]
        .iter()
        .flat_map(|part| part["allOf"].as_array().into_iter().flatten())
        .map(|part| resolved(document, part))
        .collect();
    parts.extend(deeper);
    for part in &parts {
        for name in part["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            if !object.contains_key(name) {
                wrong.push(format!("{at}: {name} is missing"));
            }
        }
    }
    if parts
        .iter()
        .all(|part| part["properties"].is_null() && part["additionalProperties"].is_null())
    {
        // Any object at all, such as what a change was.
        return;
    }
    for (name, value) in object {
        let at = format!("{at}.{name}");
        let own = parts
            .iter()
            .map(|part| &part["properties"][name])
            .find(|own| !own.is_null());
        let others = parts
            .iter()
            .map(|part| &part["additionalProperties"])
            .find(|others| others.is_object());
        match own.or(others) {
            Some(schema) => check(document, schema, value, &at, wrong),
            None => wrong.push(format!("{at} is not described")),
        }
    }
}

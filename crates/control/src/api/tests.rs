//! The description and the routes say the same.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::*;

fn described() -> Value {
    serde_json::from_str(openapi::DOCUMENT).expect("JSON")
}

/// What is asked of a call: permission and parameters.
type Asked = (Option<String>, BTreeSet<String>);

#[test]
fn the_description_has_every_route_and_no_other() {
    let ours: BTreeMap<(String, String), Asked> = routes()
        .into_iter()
        .map(|route| {
            let parameters = route.parameters.iter().map(|name| (*name).to_owned()).collect();
            let permission = route.permission.map(|permission| permission.to_string());
            let call = (route.method.as_str().to_lowercase(), route.path.to_owned());
            (call, (permission, parameters))
        })
        .collect();
    let mut theirs = BTreeMap::new();
    for (path, methods) in described()["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let in_query = |parameter: &&Value| parameter["in"] == "query";
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let parameters = parameters
                .filter(in_query)
                .map(|parameter| parameter["name"].as_str().expect("a name").to_owned())
                .collect();
            let is_open = operation["security"].as_array().expect("who may").is_empty();
            let description = operation["description"].as_str().expect("a description");
            let permission = description
                .split_once("Permission: `")
                .and_then(|(_, rest)| rest.split_once('`'))
                .map(|(permission, _)| permission.to_owned());
            assert_eq!(is_open, permission.is_none(), "{method} {path}");
            theirs.insert((method.clone(), path.clone()), (permission, parameters));
        }
    }
    assert_eq!(theirs, ours);
}

#[test]
fn every_reference_leads_somewhere() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                found.extend(object.get("$ref").and_then(Value::as_str).map(str::to_owned));
                object.values().for_each(|value| references(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let described = described();
    let mut found = Vec::new();
    references(&described, &mut found);
    assert!(found.len() > 20, "{found:?}");
    for reference in found {
        let pointer = reference.strip_prefix('#').expect("within the document");
        assert!(described.pointer(pointer).is_some(), "{reference}");
    }
}

//! The description is of the routes, and what it says of bodies is what is held to them.

use std::collections::{BTreeMap, BTreeSet};

use domain::management_tokens::Permission;
use serde_json::{Map, Value, json};

use super::route::Asked;
use super::*;
use crate::fields::Fields;

fn described() -> &'static Value {
    openapi::document()
}

/// Everything below, with the words that lead there.
fn walk<'a>(value: &'a Value, path: &mut Vec<String>, visit: &mut impl FnMut(&[String], &'a Value)) {
    visit(path, value);
    let mut below = |name: String, value: &'a Value| {
        path.push(name);
        walk(value, path, visit);
        path.pop();
    };
    match value {
        Value::Object(object) => object.iter().for_each(|(name, value)| below(name.clone(), value)),
        Value::Array(values) => values
            .iter()
            .enumerate()
            .for_each(|(place, value)| below(place.to_string(), value)),
        _ => {}
    }
}

#[test]
fn every_route_is_described_with_its_permission_and_a_few_words() {
    let mut operations = BTreeSet::new();
    for route in routes() {
        let method = route.method.as_str().to_lowercase();
        let operation = &described()["paths"][route.path][&method];
        let place = format!("{method} {}", route.path);
        assert!(!operation["summary"].as_str().unwrap_or_default().is_empty(), "{place}");
        let is_open = operation["security"].as_array().expect("who may").is_empty();
        assert_eq!(is_open, route.permission.is_none(), "{place}");
        if let Some(permission) = route.permission {
            let description = operation["description"].as_str().expect("a description");
            assert!(description.contains(&format!("`{permission}`")), "{place}");
        }
        let names: BTreeSet<&str> = operation["parameters"]
            .as_array()
            .expect("parameters")
            .iter()
            .map(|parameter| parameter["name"].as_str().expect("a name"))
            .collect();
        for name in route.parameters {
            assert!(names.contains(name), "{place} {name}");
        }
        for parameter in operation["parameters"].as_array().expect("parameters") {
            assert!(parameter["description"].is_string(), "{place} {parameter}");
            assert!(parameter["schema"].is_object(), "{place} {parameter}");
        }
        assert!(operations.insert(operation["operationId"].to_string()), "{place}");
    }
}

#[test]
fn reading_asks_for_no_permission_to_write_and_writing_for_no_other() {
    let mut used = BTreeMap::new();
    for route in routes() {
        let Some(permission) = route.permission else { continue };
        used.insert(permission, route.path);
        let reads = route.method == http::Method::GET || permission == Permission::ExplainRead;
        assert_eq!(
            permission.as_str().ends_with(":read"),
            reads,
            "{} {permission}",
            route.path
        );
    }
    for permission in Permission::ALL {
        assert!(used.contains_key(&permission), "{permission} is for nothing");
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let mut found = 0;
    walk(described(), &mut Vec::new(), &mut |path, value| {
        if path.last().is_some_and(|name| name == "$ref") {
            let reference = value.as_str().expect("a text");
            let pointer = reference.strip_prefix('#').expect("within the document");
            assert!(described().pointer(pointer).is_some(), "{reference}");
            found += 1;
        }
    });
    assert!(found > 100, "{found}");
}

#[test]
fn schemas_of_bodies_say_nothing_that_is_not_looked_at() {
    let schemas = described()["components"]["schemas"].as_object().expect("schemas");
    let asked: BTreeSet<&str> = routes()
        .iter()
        .filter_map(|route| match route.asked {
            Asked::Shape(name) => Some(name),
            Asked::Fields(_) | Asked::Nothing => None,
        })
        .collect();
    assert!(asked.len() > 15, "{asked:?}");
    for name in asked {
        let mut wrong = Vec::new();
        check_words(&schemas[name], name, &mut wrong);
        assert_eq!(wrong, Vec::<String>::new());
        assert_eq!(schemas[name]["additionalProperties"], false, "{name}");
        assert!(schemas[name]["example"].is_object(), "{name} has no example");
    }
}

/// Notes words that are not known, and patterns and objects that are not held to what they say.
fn check_words(schema: &Value, at: &str, wrong: &mut Vec<String>) {
    for (word, value) in schema.as_object().expect("a schema") {
        if !shape::WORDS.contains(&word.as_str()) {
            wrong.push(format!("{at}: {word}"));
        }
        match word.as_str() {
            "properties" => {
                for (name, schema) in value.as_object().expect("properties") {
                    check_words(schema, &format!("{at}.{name}"), wrong);
                }
                if schema["additionalProperties"] != false {
                    wrong.push(format!("{at}: other fields would be let through"));
                }
            }
            "items" => check_words(value, &format!("{at}[]"), wrong),
            "pattern" if schema["format"] == "amount" => assert_eq!(value, shape::AMOUNT_PATTERN, "{at}"),
            "pattern" => assert_eq!(value, shape::NAME_PATTERN, "{at}"),
            _ => {}
        }
    }
}

/// The fields that are refused in a body.
fn refused(schema: &str, body: &Value) -> BTreeMap<String, String> {
    let Value::Object(body) = body else {
        panic!("{body} is no object");
    };
    match body::shaped(body.clone(), schema) {
        Ok(_) => BTreeMap::new(),
        Err(problem) => problem
            .errors()
            .iter()
            .map(|error| (error.field.to_string(), error.message.to_string()))
            .collect(),
    }
}

#[test]
fn every_example_fits_its_schema() {
    let schemas = described()["components"]["schemas"].as_object().expect("schemas");
    for (name, schema) in schemas {
        let Some(example) = schema.get("example").and_then(Value::as_object) else {
            continue;
        };
        let mut fields = Fields::default();
        shape::check_object(described(), schema, example, &mut fields);
        assert!(fields.check().is_ok(), "{name}: {example:?}");
    }
}

#[test]
fn what_does_not_fit_is_named_by_its_field_all_at_once() {
    let errors = refused(
        "NewTenant",
        &json!({ "nmae": "Acme", "plan_id": "first", "priority_ceiling": "urgent", "has_strict_budgets": "yes" }),
    );
    let names: Vec<&str> = errors.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["has_strict_budgets", "name", "nmae", "plan_id", "priority_ceiling"]
    );
    assert!(errors["nmae"].contains("there are "), "{errors:?}");
    assert!(errors["priority_ceiling"].contains("low, default, high"), "{errors:?}");

    let price = |rates: Value| json!({ "model": "m", "rates": rates });
    for (rates, field) in [
        (json!({ "input": "1", "output": 2 }), "rates.output"),
        (json!({ "input": "1" }), "rates.output"),
        (json!({ "input": "-1", "output": "1" }), "rates.input"),
        (
            json!({ "input": "1", "output": "1", "reasoning": "1" }),
            "rates.reasoning",
        ),
        (json!({ "input": " 1", "output": "1" }), "rates.input"),
    ] {
        let errors = refused("NewPrice", &price(rates));
        assert_eq!(errors.keys().collect::<Vec<_>>(), [field], "{errors:?}");
    }
    let tier = json!({
        "model": "m", "rates": { "input": "1", "output": "1" },
        "tiers": [{ "above_input_tokens": 0, "rates": { "input": "1", "output": "1" } }, 5],
    });
    let errors = refused("NewPrice", &tier);
    assert_eq!(
        errors.keys().collect::<Vec<_>>(),
        ["tiers.0.above_input_tokens", "tiers.1"]
    );
}

#[test]
fn texts_and_numbers_have_their_bounds() {
    let named = |name: Value| refused("NewPlan", &json!({ "name": name, "priority_ceiling": "low" }));
    assert!(named(json!("x".repeat(100))).is_empty());
    for name in [
        json!(""),
        json!("x".repeat(101)),
        json!("a\nb"),
        json!("a\u{0}b"),
        json!(null),
        json!(5),
    ] {
        assert_eq!(named(name.clone()).keys().collect::<Vec<_>>(), ["name"], "{name}");
    }
    let version = |version: Value| refused("VersionRead", &json!({ "version": version }));
    assert!(version(json!(0)).is_empty());
    for wrong in [json!(-1), json!("1"), json!(1.5), json!(null), json!(u64::MAX)] {
        assert_eq!(
            version(wrong.clone()).keys().collect::<Vec<_>>(),
            ["version"],
            "{wrong}"
        );
    }
    // Nothing to change is no change.
    assert!(!refused("PlanChange", &json!({ "version": 1 })).is_empty());
}

#[tokio::test]
async fn a_field_that_stands_twice_is_refused() {
    let read = async |text: &str| body::read(text.to_owned().into()).await;
    assert_eq!(
        read(r#"{ "a": [1, { "b": null }] }"#).await.ok(),
        json!({ "a": [1, { "b": null }] }).as_object().cloned()
    );
    for text in [
        r#"{ "a": 1, "a": 1 }"#,
        r#"{ "a": { "b": 1, "b": 2 } }"#,
        r#"{ "a": "\u0000" }"#,
        "[]",
        "",
        "5",
        "{",
    ] {
        assert!(read(text).await.is_err(), "{text}");
    }
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    assert!(read(&format!(r#"{{ "a": {deep} }}"#)).await.is_err());
    let long = format!(r#"{{ "a": "{}" }}"#, "x".repeat(body::BODY_BYTES_MAX));
    assert!(read(&long).await.is_err());
    assert_eq!(read("{}").await.ok(), Some(Map::new()));
}

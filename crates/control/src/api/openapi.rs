//! The description of the API, for programs and their makers, made of the rows of routes and of the schemas in `openapi/`.
//! Open to everybody: it holds nothing of the installation.
//!
//! Bodies are held to the very schemas that are shown ([`super::shape`]), and tests hold answers to them.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use http::{Method, header};
use serde_json::{Map, Value, json};

use super::body::BODY_BYTES_MAX;
use super::made::IDEMPOTENCY_KEY_CHARS_MAX;
use super::route::{Answered, Asked, Route};

/// Title, ways to show a token, problems, and what many schemas use.
const BASE: &str = include_str!("openapi/base.json");
/// Fields of queries; `<noun>.<field>` where one noun's is another one.
const PARAMETERS: &str = include_str!("openapi/parameters.json");
/// Schemas that were written in full.
const LEDGER: &str = include_str!("openapi/ledger.json");
/// Schemas in which an object without `required` always has all of its fields.
const NOUNS: [&str; 10] = [
    include_str!("openapi/tenants.json"),
    include_str!("openapi/plans.json"),
    include_str!("openapi/people.json"),
    include_str!("openapi/keys.json"),
    include_str!("openapi/limits.json"),
    include_str!("openapi/models.json"),
    include_str!("openapi/upstreams.json"),
    include_str!("openapi/jobs.json"),
    include_str!("openapi/explain.json"),
    include_str!("openapi/audit.json"),
];

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| described(&super::routes()));
static TEXT: LazyLock<String> = LazyLock::new(|| DOCUMENT.to_string());

/// The description.
pub(super) async fn show() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str()).into_response()
}

/// The same as a value.
pub(super) fn document() -> &'static Value {
    &DOCUMENT
}

/// The route of the description itself.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::open("/api/openapi.json", Answered::Description, show)
            .says("This description", "For programs and their makers."),
    ]
}

fn described(routes: &[Route]) -> Value {
    let mut document = read(BASE);
    let mut schemas = Map::new();
    add(&mut schemas, read(LEDGER));
    for noun in NOUNS {
        let mut noun = read(noun);
        require_all(&mut noun);
        add(&mut schemas, noun);
    }
    let parameters = read(PARAMETERS);
    let mut paths = Map::new();
    for route in routes {
        if let Answered::Page(name) = route.answered {
            schemas.entry(page_name(name)).or_insert_with(|| page(name));
        }
        let methods = paths.entry(route.path).or_insert_with(|| json!({}));
        methods[route.method.as_str().to_lowercase()] = operation(route, &parameters);
    }
    if let Some(all) = document["components"]["schemas"].as_object_mut() {
        all.extend(schemas);
    }
    document["paths"] = Value::Object(paths);
    document
}

/// Our own text: a test reads it, too.
fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

fn add(schemas: &mut Map<String, Value>, more: Value) {
    if let Value::Object(more) = more {
        schemas.extend(more);
    }
}

/// Every object that does not say which fields it always has, has all of them.
fn require_all(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if !object.contains_key("required")
                && let Some(Value::Object(properties)) = object.get("properties")
            {
                let names: Vec<Value> = properties.keys().map(|name| json!(name)).collect();
                object.insert("required".to_owned(), Value::Array(names));
            }
            object
                .iter_mut()
                .filter(|(name, _)| *name != "example")
                .for_each(|(_, value)| require_all(value));
        }
        Value::Array(values) => values.iter_mut().for_each(require_all),
        _ => {}
    }
}

fn page_name(entry: &str) -> String {
    format!("{entry}Page")
}

fn page(entry: &str) -> Value {
    json!({
        "type": "object",
        "properties": {
            "entries": { "type": "array", "items": reference(entry) },
            "next_cursor": {
                "type": ["string", "null"],
                "description": "Where the next page starts; null on the last one.",
            },
        },
        "required": ["entries", "next_cursor"],
    })
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

/// `tenants` of `/api/v1/tenants/{id}`.
fn noun(path: &str) -> &str {
    path.split('/').nth(3).unwrap_or_default()
}

fn operation(route: &Route, parameters: &Value) -> Value {
    let mut about = route.about.to_owned();
    if let Some(permission) = route.permission {
        about = format!("{about} Permission: `{permission}`.").trim_start().to_owned();
    }
    let mut operation = json!({
        "operationId": operation_id(route),
        "tags": [noun(route.path)],
        "summary": route.summary,
        "description": about,
        "parameters": parameters_of(route, parameters),
        "security": match route.permission {
            Some(_) => json!([{ "managementToken": [] }]),
            None => json!([]),
        },
        "responses": responses(route),
    });
    if let Asked::Shape(schema) | Asked::Fields(schema) = route.asked {
        operation["requestBody"] = json!({
            "required": true,
            "description": format!("At most {} KiB. Other fields are refused.", BODY_BYTES_MAX / 1024),
            "content": { "application/json": { "schema": reference(schema) } },
        });
    }
    operation
}

/// `getTenants`, `getTenantsById`, `postJobsByIdCancel`.
fn operation_id(route: &Route) -> String {
    let mut id = route.method.as_str().to_lowercase();
    let words = route
        .path
        .split(['/', '.'])
        .filter(|word| !matches!(*word, "" | "api" | "v1"));
    for word in words {
        let name = word.trim_matches(['{', '}']);
        if name.len() < word.len() {
            id.push_str("By");
        }
        for part in name.split(['_', '-']) {
            let mut letters = part.chars();
            id.extend(letters.next().map(|first| first.to_ascii_uppercase()));
            id.push_str(letters.as_str());
        }
    }
    id
}

fn parameters_of(route: &Route, parameters: &Value) -> Value {
    let known = |name: &str| {
        let own = &parameters[format!("{}.{name}", noun(route.path))];
        if own.is_null() {
            parameters[name].clone()
        } else {
            own.clone()
        }
    };
    let mut all = Vec::new();
    let in_path = route
        .path
        .split('/')
        .filter_map(|word| word.strip_prefix('{')?.strip_suffix('}'));
    for name in in_path {
        let mut parameter = known(&format!("{{{name}}}"));
        parameter["name"] = json!(name);
        parameter["in"] = json!("path");
        parameter["required"] = json!(true);
        all.push(parameter);
    }
    for name in route.parameters {
        let mut parameter = known(name);
        parameter["name"] = json!(name);
        parameter["in"] = json!("query");
        all.push(parameter);
    }
    if route.has_idempotency_key {
        all.push(json!({
            "name": "Idempotency-Key",
            "in": "header",
            "description": "A text that the caller makes for this one thing; needed without an `id`. The same text shown with \
                            another token means another thing.",
            "schema": { "type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_CHARS_MAX, "pattern": "^[ -~]*[!-~][ -~]*$" },
        }));
    }
    Value::Array(all)
}

fn responses(route: &Route) -> Value {
    let json = |schema: Value| json!({ "application/json": { "schema": schema } });
    let (status, good) = match route.answered {
        Answered::One(schema) => (
            "200",
            json!({ "description": "It.", "content": json(reference(schema)) }),
        ),
        Answered::Page(entry) => (
            "200",
            json!({ "description": "A page.", "content": json(reference(&page_name(entry))) }),
        ),
        Answered::Created(schema) => (
            "201",
            json!({ "description": "What was made.", "content": json(reference(schema)) }),
        ),
        Answered::Nothing => ("204", json!({ "description": "It is gone." })),
        Answered::Report(schema) => {
            let mut content = json(reference(schema));
            content["text/csv"] = json!({ "schema": { "type": "string" } });
            ("200", json!({ "description": "The report.", "content": content }))
        }
        Answered::Description => (
            "200",
            json!({ "description": "The description.", "content": json(json!({ "type": "object" })) }),
        ),
    };
    let mut all = json!({ status: good });
    if route.permission.is_none() {
        return all;
    }
    let mut problems = vec![
        ("401", "Unauthorized"),
        ("403", "Forbidden"),
        ("422", "Unprocessable"),
        ("503", "Unavailable"),
    ];
    let is_writing = route.method != Method::GET;
    if is_writing || route.path.contains('{') {
        problems.push(("404", "NotFound"));
    }
    if is_writing {
        problems.push(("409", "Conflict"));
    }
    if route.asked != Asked::Nothing {
        problems.extend([("408", "RequestTimeout"), ("413", "TooLarge")]);
    }
    for (status, name) in problems {
        all[status] = json!({ "$ref": format!("#/components/responses/{name}") });
    }
    all
}

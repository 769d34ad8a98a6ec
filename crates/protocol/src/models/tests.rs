//! Lists have the shape of their dialect.

use domain::policy::Dialect;
use serde_json::{Value, json};

use super::{ListedModel, models_body};

#[test]
fn the_list_has_openais_shape() {
    let models = ["a", "b"].map(|name| ListedModel {
        name,
        created_seconds: 7,
    });
    let body: Value = serde_json::from_slice(&models_body(Dialect::Openai, models)).expect("JSON");
    assert_eq!(
        body,
        json!({ "object": "list", "data": [
            { "id": "a", "object": "model", "created": 7, "owned_by": "tollgate" },
            { "id": "b", "object": "model", "created": 7, "owned_by": "tollgate" },
        ]})
    );
    assert_eq!(&models_body(Dialect::Openai, [])[..], br#"{"object":"list","data":[]}"#);
}

#[test]
fn anthropics_list_says_where_it_begins_and_ends() {
    let models = ["a", "b"].map(|name| ListedModel {
        name,
        created_seconds: 0,
    });
    let body: Value = serde_json::from_slice(&models_body(Dialect::Anthropic, models)).expect("JSON");
    assert_eq!(
        body,
        json!({
            "data": [
                { "type": "model", "id": "a", "display_name": "a", "created_at": "1970-01-01T00:00:00Z", "lifecycle": "active" },
                { "type": "model", "id": "b", "display_name": "b", "created_at": "1970-01-01T00:00:00Z", "lifecycle": "active" },
            ],
            "has_more": false, "first_id": "a", "last_id": "b",
        })
    );
}

//! The list has OpenAI's shape.

use serde_json::{Value, json};

use super::{ListedModel, models_body};

#[test]
fn the_list_has_openais_shape() {
    let models = ["a", "b"].map(|name| ListedModel {
        name,
        created_seconds: 7,
    });
    let body: Value = serde_json::from_slice(&models_body(models)).expect("JSON");
    assert_eq!(
        body,
        json!({ "object": "list", "data": [
            { "id": "a", "object": "model", "created": 7, "owned_by": "tollgate" },
            { "id": "b", "object": "model", "created": 7, "owned_by": "tollgate" },
        ]})
    );
    assert_eq!(&models_body([])[..], br#"{"object":"list","data":[]}"#);
}

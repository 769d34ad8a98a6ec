use serde_json::{Value, json};

use super::{Difference, FIELDS_MAX, Fate, VALUE_CHARS_MAX, difference, value_text};

fn fates(difference: &Difference) -> Vec<(&str, &Fate)> {
    difference
        .fields
        .iter()
        .map(|field| (field.name.as_str(), &field.fate))
        .collect()
}

#[test]
fn what_differs_comes_first_and_null_is_no_value() {
    let before = json!({ "name": "Research", "plan": null, "gone": 3, "strict": false });
    let after = json!({ "name": "Research", "plan": "paid", "gone": null, "strict": true });
    let found = difference(Some(&before), Some(&after));
    assert_eq!(
        fates(&found),
        vec![
            ("gone", &Fate::Removed(json!(3))),
            ("plan", &Fate::Set(json!("paid"))),
            (
                "strict",
                &Fate::Changed {
                    before: json!(false),
                    after: json!(true)
                }
            ),
            ("name", &Fate::Same(json!("Research"))),
        ]
    );
    assert_eq!(found.left_out, 0);
}

#[test]
fn fields_within_fields_and_lists_are_told_apart() {
    let before = json!({ "routes": [{ "upstream": "a", "weight": 1 }], "models": ["x", "y"] });
    let after =
        json!({ "routes": [{ "upstream": "a", "weight": 2 }, { "upstream": "b", "weight": 1 }], "models": ["x"] });
    let found = difference(Some(&before), Some(&after));
    let names: Vec<&str> = fates(&found).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "models",
            "routes.0.weight",
            "routes.1.upstream",
            "routes.1.weight",
            "routes.0.upstream"
        ]
    );
    assert_eq!(value_text(found.fields[0].fate.before().unwrap()).to_string(), "x, y");
}

#[test]
fn one_side_alone_is_all_set_or_all_removed() {
    let side = json!({ "name": "ci", "degrades": false });
    let made = difference(None, Some(&side));
    assert!(made.fields.iter().all(|field| matches!(field.fate, Fate::Set(_))));
    let ended = difference(Some(&side), None);
    assert!(ended.fields.iter().all(|field| matches!(field.fate, Fate::Removed(_))));
    assert_eq!(difference(None, None), Difference::default());
    // A side that is no object is one value.
    assert_eq!(
        fates(&difference(None, Some(&json!(7)))),
        vec![("value", &Fate::Set(json!(7)))]
    );
}

#[test]
fn a_difference_is_bounded() {
    let many: Value = (0..FIELDS_MAX + 7)
        .map(|number| (format!("field_{number:04}"), json!(number)))
        .collect::<serde_json::Map<String, Value>>()
        .into();
    let found = difference(None, Some(&many));
    assert_eq!((found.fields.len(), found.left_out), (FIELDS_MAX, 7));

    let long = Value::String("é".repeat(VALUE_CHARS_MAX + 1));
    let long = value_text(&long).to_string();
    assert_eq!(long.chars().count(), VALUE_CHARS_MAX + 1);
    assert!(long.ends_with('…'));

    let mut deep = json!("bottom");
    for _ in 0..100 {
        deep = json!({ "in": deep });
    }
    let found = difference(None, Some(&deep));
    assert_eq!(found.fields.len(), 1);
    assert_eq!(found.fields[0].name, "in.in.in.in.in");
}

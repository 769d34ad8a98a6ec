//! What is wrong with a form is read in its place, or on top where it has none.

use control::FieldError;
use domain::text;
use leptos::prelude::*;

use super::{Field, Filled};

/// A form with one field, `name`, below its summary.
fn written(errors: &[FieldError]) -> String {
    Owner::new().with(|| {
        let form = Filled::refused((), errors);
        view! { <form>{form.summary()} {form.text(Field::new("name", "Name"), "")}</form> }.to_html()
    })
}

/// The text of the element with this attribute.
fn text<'a>(html: &'a str, attribute: &str) -> &'a str {
    let at = html
        .find(attribute)
        .unwrap_or_else(|| panic!("no {attribute} in {html}"));
    let (_, rest) = html[at..].split_once('>').expect("a tag");
    rest.split('<').next().unwrap_or_default()
}

#[test]
fn an_error_of_a_field_is_beside_it_and_the_summary_points_there() {
    let html = written(&[FieldError::new("name", text!("write a name"))]);
    assert!(
        text(&html, r#"role="alert""#).contains("one of the fields below"),
        "{html}"
    );
    assert_eq!(text(&html, r#"id="name-error""#), "write a name");
}

#[test]
fn an_error_without_a_field_on_the_page_is_on_top() {
    let errors = [
        FieldError::new("name", text!("write a name")),
        FieldError::new("key", text!("this key is revoked")),
    ];
    let html = written(&errors);
    assert_eq!(text(&html, r#"role="alert""#), "this key is revoked");
    assert_eq!(text(&html, r#"id="name-error""#), "write a name");
}

#[test]
fn a_form_without_errors_says_nothing_on_top() {
    assert!(!written(&[]).contains("alert"));
}

use domain::text::Text;

use super::*;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn what_was_loaded_is_told_by_name() {
    let loaded = CatalogueLoaded {
        created: names(&["gpt-4o", "gpt-4.1"]),
        priced: names(&["gpt-5.1"]),
        unchanged: names(&["gpt-5.2"]),
    };
    assert_eq!(
        done(&loaded, true),
        "Added 2 models: gpt-4o, gpt-4.1. Those without a route are refused until they have one. Gave the catalogue's \
         price to 1 model: gpt-5.1. Had that price already: gpt-5.2."
    );
    let unchanged = CatalogueLoaded {
        unchanged: names(&["gpt-5.2"]),
        ..CatalogueLoaded::default()
    };
    assert_eq!(done(&unchanged, false), "Had that price already: gpt-5.2.");
}

#[test]
fn an_error_of_a_field_that_the_form_lacks_is_said_on_top() {
    let lacking = ControlError::field("valid_from", Text::word("a model has at most 200 prices"));
    assert!(
        matches!(on_top(lacking), Refused::Form(told) if told == "Nothing was loaded: a model has at most 200 prices.")
    );
    let own = ControlError::field("models", Text::word("choose at least one model"));
    assert!(matches!(on_top(own), Refused::Fields(_)));
}

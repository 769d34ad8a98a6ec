use domain::limits::{Class, Scope, Target};

use super::AuditSubject;

const ID: &str = "0192f0c1-2345-7000-8000-000000000001";

#[test]
fn every_subject_is_read_back_as_it_was_written() {
    for text in [
        "global".to_owned(),
        "settings".to_owned(),
        "webhook".to_owned(),
        "model:openai/gpt-4o".to_owned(),
        "models:small".to_owned(),
        format!("tenant:{ID}"),
        format!("tenant:{ID}/every key"),
        format!("plan:{ID}"),
        format!("plan:{ID}/every tenant"),
        format!("key:{ID}"),
        format!("upstream:{ID}"),
        format!("user:{ID}/an end user"),
        format!("person:{ID}"),
        format!("management_token:{ID}"),
        format!("request:{ID}"),
    ] {
        let subject = AuditSubject::read(&text);
        assert!(!matches!(subject, AuditSubject::Other(_)), "{text} is not understood");
        assert_eq!(subject.text(), text);
    }
    for text in ["quarantine:here/7", "tenant:nobody", "plan:x/every key", "something"] {
        assert_eq!(AuditSubject::read(text), AuditSubject::Other(text.to_owned()));
    }
}

#[test]
fn a_tenants_history_is_also_that_of_each_class_below_it() {
    let tenant = AuditSubject::read(&format!("tenant:{ID}"));
    let history = tenant.history();
    assert_eq!(history.len(), 1 + Class::ALL.len());
    assert!(history.contains(&format!("tenant:{ID}/every user")));
    let model = AuditSubject::Target(Target::Node(Scope::Model("gpt-4o".into())));
    assert_eq!(model.history(), ["model:gpt-4o"]);
}

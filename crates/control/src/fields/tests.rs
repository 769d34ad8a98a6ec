use chrono_tz::Europe::Berlin;

use super::*;

fn errors_of(read: impl FnOnce(&mut Fields)) -> Vec<FieldError> {
    let mut fields = Fields::default();
    read(&mut fields);
    match fields.check() {
        Ok(()) => Vec::new(),
        Err(error) => error.fields().to_vec(),
    }
}

#[test]
fn counts_are_read_with_the_marks_people_write() {
    let mut fields = Fields::default();
    assert_eq!(fields.count("n", " 200,000 "), Some(200_000));
    assert_eq!(fields.count("n", "200 000"), Some(200_000));
    assert_eq!(fields.count("n", "0"), Some(0));
    assert_eq!(fields.count("n", "  "), None);
    assert!(fields.check().is_ok());
}

#[test]
fn what_is_no_count_is_refused_and_never_taken_for_blank() {
    for text in [
        "-1",
        "+1",
        "1.5",
        "1,5",
        "1000,000",
        "1,,000",
        ",100",
        ",",
        "many",
        "99999999999999999999",
        "1e3",
    ] {
        let errors = errors_of(|fields| assert_eq!(fields.count("n", text), None));
        assert_eq!(errors.len(), 1, "{text}");
        assert_eq!(errors[0].field, "n");
    }
}

#[test]
fn signed_figures_are_read_as_pages_and_people_write_them() {
    let mut fields = Fields::default();
    assert_eq!(fields.signed_count("n", "-1,200"), Some(-1_200));
    assert_eq!(fields.signed_count("n", "\u{2212}7"), Some(-7));
    assert_eq!(fields.signed_count("n", "+ 7"), Some(7));
    assert_eq!(fields.signed_amount("a", "-0.25"), Some(Nanos(-250_000_000)));
    assert_eq!(fields.signed_amount("a", "12"), Some(Nanos::from_units(12)));
    assert_eq!(
        (fields.signed_count("n", " "), fields.signed_amount("a", "")),
        (None, None)
    );
    assert!(fields.check().is_ok());
    for text in ["-", "--1", "-+1", "+-1", "- x", "1-"] {
        let errors = errors_of(|fields| assert_eq!(fields.signed_count("n", text), None));
        assert_eq!(errors.len(), 1, "{text}");
        let errors = errors_of(|fields| assert_eq!(fields.signed_amount("a", text), None));
        assert_eq!(errors.len(), 1, "{text}");
    }
}

#[test]
fn amounts_are_exact_and_not_below_zero() {
    let mut fields = Fields::default();
    assert_eq!(fields.amount("a", "12.50"), Some(Nanos(12_500_000_000)));
    assert_eq!(fields.amount("a", "0"), Some(Nanos::ZERO));
    assert_eq!(fields.amount("a", ""), None);
    assert!(fields.check().is_ok());
    for text in ["-1", "-0", "1,5", "$3", "0.0000000001"] {
        let errors = errors_of(|fields| assert_eq!(fields.amount("a", text), None));
        assert_eq!(errors.len(), 1, "{text}");
    }
}

#[test]
fn local_times_are_read_in_the_billing_zone() {
    let mut fields = Fields::default();
    let at = fields.local_time("t", "2026-11-30T18:00", Berlin);
    assert_eq!(
        at.map(|at| at.to_rfc3339()).as_deref(),
        Some("2026-11-30T17:00:00+00:00")
    );
    let at = fields.local_time("t", "2026-07-01", Berlin);
    assert_eq!(
        at.map(|at| at.to_rfc3339()).as_deref(),
        Some("2026-06-30T22:00:00+00:00")
    );
    assert!(fields.check().is_ok());
    for text in [
        "tomorrow",
        "2026-13-01",
        "2026-03-29T02:30",
        "-5000-01-01",
        "+262142-12-31",
    ] {
        assert_eq!(
            errors_of(|fields| assert_eq!(fields.local_time("t", text, Berlin), None)).len(),
            1,
            "{text}"
        );
    }
}

#[test]
fn names_and_addresses_are_checked() {
    let mut fields = Fields::default();
    assert_eq!(fields.name("name", "  Acme  "), "Acme");
    assert_eq!(fields.email("email", " ada@example.com "), "ada@example.com");
    assert!(fields.check().is_ok());
    for text in ["", "  ", "a\nb", &"x".repeat(NAME_CHARS_MAX + 1)] {
        assert_eq!(errors_of(|fields| drop(fields.name("name", text))).len(), 1, "{text}");
    }
    for text in [
        "",
        "ada",
        "@example.com",
        "ada@",
        "a da@example.com",
        "a@b@c",
        "ada@.com",
    ] {
        assert_eq!(errors_of(|fields| drop(fields.email("email", text))).len(), 1, "{text}");
    }
}

//! Queries: what is known is read, what is not is named.

use domain::ids::TenantId;

use super::*;

const KNOWN: &[&str] = &["tenant", "from", "limit", "by"];

fn refused(query: &str) -> Vec<(String, String)> {
    let ControlError::Invalid(errors) = Query::read(query, KNOWN).expect_err("it is refused") else {
        panic!("another error");
    };
    errors
        .into_iter()
        .map(|error| (error.field.into_owned(), error.message.to_string()))
        .collect()
}

#[test]
fn unknown_parameters_are_named_all_at_once() {
    let errors = refused("tenat=1&by=model&Limit=5");
    let names: Vec<&str> = errors.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["tenat", "Limit"]);
    assert!(errors[0].1.contains("tenant, from, limit, by"), "{errors:?}");
    assert_eq!(refused("from=%00")[0].0, "from");
    assert_eq!(refused("tenant=&limit=5")[0].0, "tenant", "empty is not absent");
    assert_eq!(refused(&format!("by={}", "x".repeat(501)))[0].0, "by");
}

#[test]
fn a_parameter_that_stands_twice_is_refused_where_one_is_meant() {
    let query = Query::read("tenant=a&tenant=b&by=x&by=y", KNOWN).unwrap();
    assert_eq!(query.all("by").collect::<Vec<_>>(), ["x", "y"]);
    let mut fields = Fields::default();
    query.text(&mut fields, "tenant");
    assert!(fields.check().is_err());
}

#[test]
fn instants_have_an_offset_or_are_local() {
    let zone = chrono_tz::Europe::Berlin;
    for (text, instant) in [
        ("from=2026-11-01T00:00:00Z", "2026-11-01T00:00:00Z"),
        ("from=2026-11-01T00:00:00%2B01:00", "2026-10-31T23:00:00Z"),
        ("from=2026-11-01T00:00:00+01:00", "2026-10-31T23:00:00Z"),
        ("from=2026-11-01", "2026-10-31T23:00:00Z"),
        ("from=2026-11-01T12:30", "2026-11-01T11:30:00Z"),
    ] {
        let query = Query::read(text, KNOWN).unwrap();
        let mut fields = Fields::default();
        let read = query.instant(&mut fields, "from", zone);
        assert_eq!(read, Some(instant.parse().unwrap()), "{text}: {fields:?}");
    }
}

#[test]
fn limits_have_bounds() {
    for (text, limit) in [("", Some(50)), ("limit=1", Some(1)), ("limit=200", Some(200))]
        .into_iter()
        .chain(["limit=0", "limit=201", "limit=-1", "limit=all"].map(|text| (text, None)))
    {
        let query = Query::read(text, KNOWN).unwrap();
        let mut fields = Fields::default();
        let read = query.limit(&mut fields, 200);
        assert_eq!(fields.check().is_ok().then_some(read), limit, "{text}");
    }
}

#[test]
fn an_id_is_a_whole_one() {
    let query = Query::read("tenant=0198c5e2", KNOWN).unwrap();
    let mut fields = Fields::default();
    assert_eq!(query.id::<TenantId>(&mut fields, "tenant"), None);
    assert!(fields.check().is_err());
}

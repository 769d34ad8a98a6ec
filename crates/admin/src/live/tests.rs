use super::*;

#[test]
fn only_pages_of_this_console_that_have_live_figures_are_followed() {
    let followed = |query: &str| page_of(query).map(|(page, _)| page.to_string());
    assert_eq!(followed("page=%2Fstatus"), Some("/status".to_owned()));
    assert_eq!(
        followed("page=%2Fquota-tree%3Fopen%3Dtenant%253A1"),
        Some("/quota-tree?open=tenant%3A1".to_owned())
    );
    for other in [
        "",
        "page=",
        "page=%2Fkeys",
        "page=%2Fconsole%2Flive",
        "page=status",
        "page=%2F%2Fexample.com%2Fstatus",
        "page=https%3A%2F%2Fexample.com%2Fstatus",
    ] {
        assert_eq!(followed(other), None, "{other}");
    }
}

#[test]
fn the_main_part_is_found() {
    let document = "<html><body><nav>a</nav><main class=\"content\"><p>b</p></main></body></html>";
    assert_eq!(content_of(document), Some("<main class=\"content\"><p>b</p></main>"));
    assert_eq!(content_of("<html></html>"), None);
}

#[test]
fn a_person_has_so_many_seats_and_gets_them_back() {
    let of_people = Arc::default();
    let person = PersonId(uuid::Uuid::from_u128(1));
    let mut seats: Vec<Seat> = (0..STREAMS_PER_PERSON_MAX)
        .filter_map(|_| Seat::take(&of_people, person))
        .collect();
    assert_eq!(seats.len(), STREAMS_PER_PERSON_MAX);
    assert!(Seat::take(&of_people, person).is_none());
    assert!(Seat::take(&of_people, PersonId(uuid::Uuid::from_u128(2))).is_some());
    seats.pop();
    assert!(Seat::take(&of_people, person).is_some());
    drop(seats);
    assert!(of_people.lock().unwrap().is_empty());
}

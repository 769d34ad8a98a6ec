use chrono::{TimeZone as _, Utc};
use domain::ids::KeyId;
use uuid::Uuid;

use super::*;

#[test]
fn a_place_is_read_back_from_its_address_in_its_own_order_alone() {
    let id = KeyId(Uuid::from_u128(7));
    let at = Utc.timestamp_micros(1_764_500_000_000_001).unwrap();
    let marks = [
        (KeyOrder::Newest, KeyMark::Issued(at)),
        (KeyOrder::Name, KeyMark::Name("a_b & c_".to_owned())),
        (KeyOrder::NameBackwards, KeyMark::Name("never-1".to_owned())),
        (KeyOrder::Used, KeyMark::Used(at)),
        (KeyOrder::Used, KeyMark::Unused(at)),
        (KeyOrder::Unused, KeyMark::Used(at)),
        (KeyOrder::Unused, KeyMark::Unused(at)),
    ];
    for (order, mark) in marks {
        let there = KeyPlace { mark, id };
        assert_eq!(place(order, &place_text(&there)), Some(there), "{order:?}");
    }
    for (order, text) in [
        (KeyOrder::Newest, "1"),
        (KeyOrder::Newest, "1_2"),
        (KeyOrder::Newest, "never-1_00000000-0000-0000-0000-000000000007"),
        (KeyOrder::Used, "soon_00000000-0000-0000-0000-000000000007"),
        (KeyOrder::Unused, "never-_00000000-0000-0000-0000-000000000007"),
    ] {
        assert_eq!(place(order, text), None, "{order:?} {text}");
    }
}

#[test]
fn every_order_has_an_address_of_its_own() {
    for order in [
        KeyOrder::Newest,
        KeyOrder::Name,
        KeyOrder::NameBackwards,
        KeyOrder::Unused,
        KeyOrder::Used,
    ] {
        let (sort, direction) = fields(order);
        let direction = Direction::read(direction).unwrap_or(Direction::Ascending);
        let read = Sort::read(sort).map_or(KeyOrder::Newest, |sort| sort.order(direction));
        assert_eq!(read, order);
    }
}

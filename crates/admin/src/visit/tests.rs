use super::*;

#[test]
fn the_way_back_from_the_sign_in_stays_in_the_console() {
    assert_eq!(local_address(Some("/ledger?kind=rejection")), "/ledger?kind=rejection");
    for foreign in [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example",
        "evil",
        "/\t/evil.example",
        "",
    ] {
        assert_eq!(local_address(Some(foreign)), "/", "{foreign:?}");
    }
    assert_eq!(local_address(None), "/");
}

#[test]
fn an_address_leaves_out_empty_fields_and_encodes_the_others() {
    assert_eq!(
        address("/ledger", &[("model", "a/b c&d"), ("key", ""), ("kind", "rejection")]),
        "/ledger?model=a/b%20c%26d&kind=rejection"
    );
    assert_eq!(address("/ledger", &[]), "/ledger");
}

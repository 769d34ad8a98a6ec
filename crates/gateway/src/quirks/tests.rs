//! Each upstream for itself, and not for ever.

use domain::ids::UpstreamId;
use uuid::Uuid;

use super::{Quirks, REMEMBERED_MS};

#[test]
fn an_upstream_that_refused_is_asked_again_after_a_day() {
    let quirks = Quirks::default();
    let (one, other) = (UpstreamId(Uuid::from_u128(1)), UpstreamId(Uuid::from_u128(2)));
    assert!(quirks.can_ask_for_usage(one, 0));
    quirks.refused_usage(one, 5);
    assert!(!quirks.can_ask_for_usage(one, REMEMBERED_MS));
    assert!(quirks.can_ask_for_usage(other, 6));
    assert!(quirks.can_ask_for_usage(one, REMEMBERED_MS + 5));
}

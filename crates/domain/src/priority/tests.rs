//! When everything is urgent, nothing is.

use super::{Priority, Traffic};

/// Requests at `low`, `default`, `high` and `critical`.
fn traffic(requests: [u64; 4]) -> Traffic {
    let mut traffic = Traffic::default();
    for (priority, requests) in Priority::ALL.into_iter().zip(requests) {
        traffic.at_mut(priority).requests = requests;
    }
    traffic
}

#[test]
fn more_than_half_at_high_or_critical_is_mostly_urgent() {
    for (requests, is_mostly_urgent) in [
        ([0, 0, 0, 0], false),
        ([0, 10, 0, 0], false),
        ([2, 3, 4, 1], false),
        ([2, 2, 4, 1], true),
        ([0, 1, 1, 0], false),
        ([1, 0, 0, 2], true),
        ([0, 0, 0, 1], true),
        ([0, 0, 1, 0], true),
    ] {
        assert_eq!(traffic(requests).is_mostly_urgent(), is_mostly_urgent, "{requests:?}");
    }
}

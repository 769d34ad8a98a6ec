//! Sums over any second and any minute.

use super::{Arrival, Traffic};

fn traffic(arrivals: &[(u64, &str, u64, bool)]) -> Traffic {
    let mut traffic = Traffic::default();
    for (at_ms, user, tokens, is_admitted) in arrivals {
        let arrival = Arrival {
            at_ms: *at_ms,
            user: Some((*user).into()),
            tokens: *tokens,
            is_admitted: *is_admitted,
        };
        traffic.note(arrival, 100);
    }
    traffic
}

#[test]
fn a_second_may_begin_anywhere() {
    let traffic = traffic(&[
        (5_100, "a", 1, true),
        (5_900, "a", 1, false),
        (6_050, "a", 1, true),
        (6_100, "a", 1, true),
    ]);
    // The fourth comes a whole second after the first.
    assert_eq!(traffic.peak_per_second(), 3);
    assert_eq!(traffic.per_second(), [(3, 1), (1, 0)]);
}

#[test]
fn a_minute_counts_what_was_admitted_by_user() {
    let traffic = traffic(&[
        (0, "a", 10, true),
        (30_000, "a", 10, false),
        (40_000, "b", 25, true),
        (59_999, "a", 10, true),
        (60_000, "a", 7, true),
    ]);
    assert_eq!(traffic.peak_requests_per_minute(), 3);
    assert_eq!(traffic.peak_tokens_per_minute(), 45);
    assert_eq!(traffic.peak_user_tokens_per_minute(), 25);
    assert_eq!(traffic.arrivals().len(), 5);
}

#[test]
fn no_more_are_kept_than_wanted() {
    let mut traffic = Traffic::default();
    for at_ms in 0..10 {
        let arrival = Arrival {
            at_ms,
            user: None,
            tokens: 1,
            is_admitted: true,
        };
        traffic.note(arrival, 3);
    }
    assert_eq!(
        traffic.arrivals().map(|arrival| arrival.at_ms).collect::<Vec<_>>(),
        [7, 8, 9]
    );
}

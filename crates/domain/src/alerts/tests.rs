//! When alerts are raised, kept and cleared, and how often an event is sent.

use proptest::prelude::*;

use super::*;

fn at(ms: u64) -> Moment {
    Moment {
        wall: DateTime::from_timestamp_millis(1_700_000_000_000 + ms as i64).expect("a time"),
        monotonic_ms: ms,
    }
}

const RULE: Rule = Rule {
    raise_after_ms: 10_000,
    clear_after_ms: 30_000,
};

/// One look at one moment.
#[derive(Clone, Copy, Debug)]
enum Look {
    Holds,
    Over,
    Happened,
    Nothing,
}

fn histories() -> impl Strategy<Value = Vec<(u64, Look)>> {
    let look = prop_oneof![
        3 => Just(Look::Holds),
        2 => Just(Look::Over),
        1 => Just(Look::Happened),
        2 => Just(Look::Nothing),
    ];
    prop::collection::vec((0_u64..25_000, look), 1..60)
}

proptest! {
    /// Told in other words: what the rule says of a whole history, looked up in it, and not kept along the way.
    #[test]
    fn it_is_raised_and_cleared_as_the_rule_says(
        raise_after_ms in 0_u64..40_000,
        clear_after_ms in 0_u64..40_000,
        history in histories(),
    ) {
        let mut watch = Watch::new(Rule { raise_after_ms, clear_after_ms });
        let mut now_ms = 0;
        let mut is_open = false;
        // When the look began that goes on, and when it was last so.
        let (mut holds_since, mut last_so, mut over_since) = (None::<u64>, 0, None::<u64>);
        let mut happened = 0_u64;
        for (pause_ms, look) in history {
            now_ms += pause_ms;
            match look {
                Look::Holds => {
                    watch.holds(None, at(now_ms));
                    if holds_since.is_none() {
                        happened += 1;
                    }
                    holds_since.get_or_insert(now_ms);
                    last_so = now_ms;
                    over_since = None;
                }
                Look::Over => {
                    watch.over(at(now_ms));
                    holds_since = None;
                    if is_open {
                        over_since.get_or_insert(now_ms);
                    }
                }
                Look::Happened => {
                    watch.happened(at(now_ms));
                    happened += 1;
                    last_so = now_ms;
                    over_since = Some(now_ms);
                    is_open = true;
                }
                Look::Nothing => {}
            }
            let cleared = watch.turn(at(now_ms));
            if let Some(episode) = cleared {
                prop_assert!(is_open, "only what is open is cleared");
                prop_assert!(holds_since.is_none(), "what holds is not cleared");
                prop_assert!(now_ms - over_since.expect("it is over") >= clear_after_ms);
                prop_assert_eq!(episode.last_seen_at, at(last_so).wall);
                prop_assert!(episode.raised_at <= now(now_ms) && episode.count >= 1 && episode.count <= happened);
                (is_open, happened, over_since) = (false, 0, None);
            } else if is_open && holds_since.is_none() {
                prop_assert!(over_since.is_none_or(|since| now_ms - since < clear_after_ms), "it is cleared in time");
            }
            if !is_open && holds_since.is_none() {
                happened = 0;
            }
            if cleared.is_none() && holds_since.is_some_and(|since| now_ms - since >= raise_after_ms) {
                is_open = true;
            }
            prop_assert_eq!(watch.episode().is_some(), is_open);
        }
    }

    #[test]
    fn what_flaps_faster_than_the_rule_is_one_alert(flaps in prop::collection::vec(0_u64..30_000, 1..50)) {
        let mut watch = Watch::new(Rule { raise_after_ms: 0, ..RULE });
        let mut now_ms = 0;
        watch.holds(None, at(now_ms));
        prop_assert_eq!(watch.turn(at(now_ms)), None);
        let raised_at = watch.episode().expect("raised").raised_at;
        for pause_ms in &flaps {
            watch.over(at(now_ms));
            now_ms += pause_ms;
            prop_assert_eq!(watch.turn(at(now_ms)), None);
            watch.holds(None, at(now_ms));
            prop_assert_eq!(watch.turn(at(now_ms)), None);
        }
        let episode = watch.episode().expect("still open");
        prop_assert_eq!((episode.raised_at, episode.count), (raised_at, 1 + flaps.len() as u64));
    }

    #[test]
    fn pauses_grow_to_their_bound_and_end(attempts in 1_u32..100) {
        match delivery_pause_ms(attempts) {
            Some(pause_ms) => {
                prop_assert!(attempts < DELIVERY_ATTEMPTS_MAX);
                prop_assert!((DELIVERY_PAUSE_MS..=DELIVERY_PAUSE_MS_MAX).contains(&pause_ms));
                prop_assert!(attempts == 1 || Some(pause_ms) >= delivery_pause_ms(attempts - 1));
            }
            None => prop_assert!(attempts >= DELIVERY_ATTEMPTS_MAX),
        }
    }
}

fn now(ms: u64) -> DateTime<Utc> {
    at(ms).wall
}

#[test]
fn what_goes_away_before_it_counts_is_never_raised() {
    let mut watch = Watch::new(RULE);
    for second in 0..100 {
        let moment = at(second * 5_000);
        if second % 2 == 0 {
            watch.holds(None, moment);
        } else {
            watch.over(moment);
        }
        assert_eq!(watch.turn(moment), None);
        assert_eq!(watch.episode(), None);
    }
    assert!(watch.is_idle());
}

#[test]
fn a_breaker_that_opens_again_between_two_looks_counts_twice() {
    let mut watch = Watch::new(AlertKind::Breaker.rule());
    for (look_ms, began_ms) in [(2_000, 1_000), (4_000, 1_002), (70_000, 62_000)] {
        watch.holds(Some(now(began_ms)), at(look_ms));
        assert_eq!(watch.turn(at(look_ms)), None);
    }
    assert_eq!(watch.episode().map(|episode| episode.count), Some(2));
}

#[test]
fn an_alert_of_an_earlier_run_goes_on_or_is_over() {
    let episode = Episode {
        raised_at: now(0),
        last_seen_at: now(50_000),
        count: 3,
    };
    let mut again = Watch::new(RULE);
    again.resume(episode, at(60_000));
    again.holds(None, at(62_000));
    assert_eq!(again.turn(at(200_000)), None);
    assert_eq!(
        again.episode().map(|episode| (episode.raised_at, episode.count)),
        Some((now(0), 4))
    );
    let mut early = Watch::new(RULE);
    early.holds(None, at(55_000));
    early.resume(episode, at(60_000));
    assert_eq!(early.turn(at(200_000)), None);
    let mut over = Watch::new(RULE);
    over.resume(episode, at(60_000));
    over.over(at(62_000));
    assert_eq!(over.turn(at(89_999)), None);
    assert_eq!(over.turn(at(90_000)), Some(episode));
    assert!(over.is_idle());
}

#[test]
fn kinds_and_subjects_are_read_as_they_are_written() {
    for kind in AlertKind::ALL {
        assert_eq!(kind.as_str().parse(), Ok(kind));
        assert_eq!(
            serde_json::to_value(kind).ok(),
            Some(serde_json::Value::from(kind.as_str()))
        );
    }
    let upstream = UpstreamId(uuid::Uuid::from_u128(7));
    for subject in [
        AlertSubject::Gateway,
        AlertSubject::model("a/b: c"),
        AlertSubject::upstream(upstream, None),
        AlertSubject::upstream(upstream, Some("org/model:free")),
    ] {
        assert_eq!(subject.to_string().parse::<AlertSubject>(), Ok(subject));
    }
    assert!("nothing".parse::<AlertSubject>().is_err());
}

#[test]
fn a_long_message_is_cut_between_characters() {
    let long = "ä".repeat(MESSAGE_CHARS_MAX + 1);
    assert_eq!(cut_message(long).chars().count(), MESSAGE_CHARS_MAX);
    assert_eq!(cut_message("short".to_owned()), "short");
}

use super::*;

fn telling(remaining: u64, stands_ms: u64, per_window: u64) -> Telling {
    Telling {
        remaining,
        stands_ms,
        per_window,
    }
}

#[test]
fn it_stands_until_it_is_over() {
    let mut told = Told::new(telling(3, 2_000, 0), 60, 10_000);
    told.take(1);
    assert_eq!(
        (told.room(10_000), told.room(11_999), told.room(12_000)),
        (Some(2), Some(2), None)
    );
    assert_eq!((told.wait_ms(2, 11_000), told.wait_ms(3, 11_000)), (0, 1_000));
    assert_eq!(told.wait_ms(3, 12_000), 0);
}

#[test]
fn the_wait_for_what_comes_back_is_exact() {
    for per_window in [1, 7, 450, 60_000, 100_000_000_000] {
        for taken in [0, 1, 13] {
            let mut told = Told::new(telling(5, 60_000, per_window), 60, 10_000);
            told.take(taken);
            for now_ms in [10_000, 10_001, 17_333, 69_999] {
                for least in [1, 5, 6, 40] {
                    let wait_ms = told.wait_ms(least, now_ms);
                    let has_room = |at_ms| told.room(at_ms).is_none_or(|room| room >= least);
                    assert!(has_room(now_ms + wait_ms));
                    assert!(wait_ms == 0 || !has_room(now_ms + wait_ms - 1));
                }
            }
        }
    }
}

#[test]
fn a_step_back_in_time_takes_nothing_away() {
    let told = Told::new(telling(5, 60_000, 600), 60, 10_000);
    assert_eq!((told.room(9_000), told.room(11_000)), (Some(5), Some(15)));
}

#[test]
fn an_answer_that_was_overtaken_raises_nothing() {
    let told = Told::new(telling(5, 60_000, 0), 60, 10_000);
    // Less is always heard.
    assert!(told.yields_to(4, 5_000, 11_000));
    // More of a request that was sent before, or after.
    assert!(!told.yields_to(6, 1_001, 11_000));
    assert!(told.yields_to(6, 1_000, 11_000));
    // Over.
    assert!(told.yields_to(6, 100_000, 70_000));
}

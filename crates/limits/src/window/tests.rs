use proptest::prelude::*;

use super::*;

const WINDOW_MS: u64 = 60_000;
const CELL_MS: u64 = WINDOW_MS / CELLS;

/// What a patient observer would have counted after `since_ms`, up to now.
fn counted(history: &[(u64, u64)], since_ms: i64) -> u128 {
    let is_recent = |at_ms: u64| i64::try_from(at_ms).unwrap() > since_ms;
    history
        .iter()
        .filter(|(at_ms, _)| is_recent(*at_ms))
        .map(|(_, amount)| u128::from(*amount))
        .sum()
}

fn history() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((0_u64..20_000, 0_u64..50), 1..60).prop_map(|steps| {
        let mut at_ms = 0;
        steps
            .into_iter()
            .map(|(step_ms, amount)| {
                at_ms += step_ms;
                (at_ms, amount)
            })
            .collect()
    })
}

fn replay(history: &[(u64, u64)]) -> Window {
    let mut window = Window::new(60, 0);
    for (at_ms, amount) in history {
        window.advance(*at_ms);
        window.add(*amount);
    }
    window
}

proptest! {
    #[test]
    fn never_below_the_true_use_and_at_most_one_cell_late(history in history(), later_ms in 0_u64..90_000) {
        let mut window = replay(&history);
        let now_ms = history.last().unwrap().0 + later_ms;
        window.advance(now_ms);
        let now = i64::try_from(now_ms).unwrap();
        let (window_ms, cell_ms) = (WINDOW_MS.cast_signed(), CELL_MS.cast_signed());
        prop_assert!(window.total() >= counted(&history, now - window_ms));
        prop_assert!(window.total() <= counted(&history, now - window_ms - cell_ms));
    }

    #[test]
    fn the_wait_is_exact(history in history(), target in 0_u128..400) {
        let window = replay(&history);
        let now_ms = history.last().unwrap().0;
        let wait_ms = window.wait_ms(target, now_ms);
        let total_after = |wait_ms: u64| {
            let mut later = window.clone();
            later.advance(now_ms + wait_ms);
            later.total()
        };
        prop_assert!(total_after(wait_ms) <= target);
        prop_assert!(wait_ms == 0 || total_after(wait_ms - 1) > target);
    }
}

#[test]
fn a_correction_lands_where_the_amount_was_counted() {
    let mut window = Window::new(60, 0);
    let cell = window.add(100);
    window.advance(30_000);
    window.add(7);
    window.replace(cell, 100, 40);
    assert_eq!(window.total(), 47);
    window.advance(63_000);
    assert_eq!(window.total(), 7);
    window.replace(cell, 40, 900);
    assert_eq!(window.total(), 7, "its cell has left the window");
}

#[test]
fn a_clock_that_steps_back_changes_nothing() {
    let mut window = Window::new(60, 100_000);
    window.add(3);
    window.advance(10);
    assert_eq!(window.total(), 3);
    window.add(1);
    assert_eq!(window.total(), 4);
}

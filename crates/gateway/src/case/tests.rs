//! Routes are tried in their order, and drawn by their shares at every place.

use domain::ids::UpstreamId;
use domain::policy::Route;
use uuid::Uuid;

use super::put_in_order;

const DRAWS: usize = 20_000;

/// Routes of these positions and weights, with their numbers.
fn routes(of: &[(i32, i32)]) -> Vec<(Route, usize)> {
    of.iter()
        .enumerate()
        .map(|(number, (position, weight))| {
            let route = Route {
                upstream_id: UpstreamId(Uuid::from_u128(number as u128)),
                upstream_model: "model".to_owned(),
                position: *position,
                weight: *weight,
            };
            (route, number)
        })
        .collect()
}

fn ordered(of: &[(i32, i32)], random: u64) -> Vec<usize> {
    let mut routes = routes(of);
    put_in_order(&mut routes, random);
    routes.into_iter().map(|(_, number)| number).collect()
}

/// How often each route stands at this place, in percent.
fn shares(of: &[(i32, i32)], place: usize) -> Vec<f64> {
    let mut counts = vec![0_u32; of.len()];
    for random in 0..DRAWS {
        counts[ordered(of, random as u64)[place]] += 1;
    }
    let percent = |count: u32| f64::from(count) * 100.0 / DRAWS as f64;
    counts.into_iter().map(percent).collect()
}

fn assert_near(shares: &[f64], expected: &[f64]) {
    let is_near = |(share, expected): (&f64, &f64)| (share - expected).abs() < 1.5;
    assert!(
        shares.iter().zip(expected).all(is_near),
        "{shares:?} instead of {expected:?}"
    );
}

#[test]
fn the_first_place_is_drawn_by_weight() {
    assert_near(&shares(&[(0, 3), (0, 1)], 0), &[75.0, 25.0]);
    assert_near(&shares(&[(0, 0), (0, -4), (0, 1)], 0), &[33.3, 33.3, 33.3]);
}

#[test]
fn the_places_behind_it_are_drawn_by_weight_too() {
    // The share with which another is first, times its share of what is left then.
    let second = [
        0.3 * 0.5 / 0.7 + 0.2 * 0.5 / 0.8,
        0.5 * 0.3 / 0.5 + 0.2 * 0.3 / 0.8,
        0.5 * 0.2 / 0.5 + 0.3 * 0.2 / 0.7,
    ];
    let second: Vec<f64> = second.iter().map(|share| share * 100.0).collect();
    assert_near(&shares(&[(0, 5), (0, 3), (0, 2)], 1), &second);
}

#[test]
fn a_later_position_waits_whatever_its_weight_and_is_drawn_as_well() {
    let of = [(7, 100), (0, 1), (3, 3), (3, 1)];
    for random in 0..100 {
        let order = ordered(&of, random);
        assert_eq!((order[0], order[3]), (1, 0));
    }
    assert_near(&shares(&of, 1), &[0.0, 0.0, 75.0, 25.0]);
}

#[test]
fn every_route_stays_once() {
    let of: Vec<(i32, i32)> = (0..9).map(|number| (number % 3, number)).collect();
    for random in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
        let mut order = ordered(&of, random);
        order.sort_unstable();
        assert_eq!(order, (0..9).collect::<Vec<_>>());
    }
    assert!(ordered(&[], 1).is_empty());
}

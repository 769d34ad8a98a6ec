//! What several gateways say is one line where they agree.

use domain::instances::InstanceStatus;
use uuid::Uuid;

use super::*;

fn at(second: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_000_000 + second, 0).expect("a time")
}

fn breaker(model: &str, state: BreakerState, since: i64, until: Option<i64>) -> BreakerStatus {
    BreakerStatus {
        upstream_id: UpstreamId(Uuid::from_u128(1)),
        upstream_model: Some(model.to_owned()),
        state,
        since: at(since),
        until: until.map(at),
        reason: "5 failures in a row".to_owned(),
    }
}

fn instance(name: &str, seen_at: i64, breakers: Vec<BreakerStatus>) -> Instance {
    Instance {
        instance: name.to_owned(),
        seen_at: at(seen_at),
        status: InstanceStatus {
            breakers,
            ..InstanceStatus::default()
        },
    }
}

#[test]
fn gateways_that_agree_share_a_line_and_those_that_are_gone_have_none() {
    let open = |since, until| breaker("model", BreakerState::Open, since, Some(until));
    let instances = [
        instance("b", 0, vec![open(-5, 55)]),
        instance(
            "a",
            0,
            vec![open(-9, 51), breaker("other", BreakerState::Cooling, -1, Some(3))],
        ),
        instance("c", 0, vec![breaker("model", BreakerState::HalfOpen, -2, None)]),
        instance("gone", -60, vec![open(-70, -10)]),
    ];
    let (seen, live) = seen(&instances, at(0));
    assert_eq!(live, 3);
    let lines: Vec<(&str, BreakerState, Vec<&str>)> = seen
        .iter()
        .map(|seen| {
            let gateways = seen.gateways.iter().map(String::as_str).collect();
            (seen.upstream_model.as_deref().unwrap_or_default(), seen.state, gateways)
        })
        .collect();
    assert_eq!(
        lines,
        [
            ("model", BreakerState::Open, vec!["a", "b"]),
            ("model", BreakerState::HalfOpen, vec!["c"]),
            ("other", BreakerState::Cooling, vec!["a"]),
        ]
    );
    assert_eq!((seen[0].since, seen[0].until), (at(-9), Some(at(55))));
}

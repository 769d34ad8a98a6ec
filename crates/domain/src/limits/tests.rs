//! Scopes read back, and narrower limits replace wider ones slot by slot.

use chrono::{DateTime, Duration, Utc};
use proptest::prelude::*;
use uuid::Uuid;

use super::{Class, DEFAULT_WINDOW_SECONDS, Dimension, Increase, Limit, Mode, Scope, Target, effective};
use crate::budget_events::Thresholds;
use crate::ids::{KeyId, LimitId, TenantId, UpstreamId};
use crate::periods::Period;

fn limit(dimension: Dimension, value: u64) -> Limit {
    Limit {
        id: LimitId(Uuid::nil()),
        target: Target::OfTenant(TenantId(Uuid::nil()), Class::User),
        dimension,
        value,
        increase: None,
        window_seconds: DEFAULT_WINDOW_SECONDS,
        burst: None,
        period: Period::Month,
        model: None,
        priority: None,
        mode: Mode::Enforce,
        gates: None,
        thresholds: Thresholds::default(),
    }
}

#[test]
fn scopes_read_back() {
    let tenant = TenantId(Uuid::from_u128(7));
    for scope in [
        Scope::Global,
        Scope::ModelGroup("gpt-4 class".into()),
        Scope::Model("a:b/c".into()),
        Scope::Tenant(tenant),
        Scope::User(tenant, "someone/else:x".into()),
        Scope::Key(KeyId(Uuid::from_u128(8))),
        Scope::Upstream(UpstreamId(Uuid::from_u128(9))),
    ] {
        assert_eq!(scope.to_string().parse(), Ok(scope));
    }
    assert!("tenant:x".parse::<Scope>().is_err());
    assert!("nothing".parse::<Scope>().is_err());
}

#[test]
fn a_narrower_limit_replaces_the_wider_one_of_its_slot_only() {
    let own = [limit(Dimension::Requests, 5)];
    let class = [limit(Dimension::Requests, 20), limit(Dimension::TotalTokens, 1_000)];
    let values: Vec<u64> = effective([&own[..], &class[..]])
        .iter()
        .map(|limit| limit.value)
        .collect();
    assert_eq!(values, [5, 1_000]);
}

#[test]
fn two_limits_of_one_source_both_stay() {
    let mut hourly = limit(Dimension::BudgetCost, 1);
    hourly.period = Period::Hour;
    assert_eq!(effective([&[hourly, limit(Dimension::BudgetCost, 2)][..]]).len(), 2);
}

#[test]
fn the_default_burst_is_five_seconds_of_refill() {
    assert_eq!(limit(Dimension::TotalTokens, 120_000).burst_tokens(), 10_000);
    assert_eq!(limit(Dimension::TotalTokens, 6).burst_tokens(), 1);
    assert_eq!(limit(Dimension::TotalTokens, 0).burst_tokens(), 0);
}

fn at(text: &str) -> DateTime<Utc> {
    text.parse().expect("an instant")
}

#[test]
fn an_increase_that_is_not_above_the_value_is_none() {
    let until = at("2026-12-16T00:00:00Z");
    let raised = Limit {
        increase: Some(Increase { value: 300, until }),
        ..limit(Dimension::BudgetCost, 400)
    };
    assert_eq!(raised.increase_at(at("2026-12-01T00:00:00Z")), None);
    assert_eq!(raised.value_at(at("2026-12-01T00:00:00Z")), 400);
}

proptest! {
    #[test]
    fn an_increase_is_in_force_strictly_before_its_end_and_never_lowers(
        value in any::<u64>(),
        increased in any::<u64>(),
        end in 0_i64..4_000_000_000,
        offset in -1_000_000_i64..1_000_000,
    ) {
        let until = DateTime::from_timestamp(end, 0).expect("an instant");
        let now = until + Duration::microseconds(offset);
        let limit = Limit {
            increase: Some(Increase { value: increased, until }),
            ..limit(Dimension::BudgetCost, value)
        };
        let expected = if offset < 0 { value.max(increased) } else { value };
        prop_assert_eq!(limit.value_at(now), expected);
        prop_assert_eq!(limit.at(now).value, expected);
        prop_assert_eq!(limit.at(now).value_at(now), expected);
    }
}

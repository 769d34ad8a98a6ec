//! Thresholds are few, different, and reached when so much is spent.

use proptest::prelude::*;
use uuid::Uuid;

use super::*;

#[test]
fn thresholds_are_few_different_percentages() {
    let texts = |percents: &[u8]| Thresholds::new(percents).map(|thresholds| thresholds.to_string());
    assert_eq!(texts(&[80, 50, 100]), Ok("50, 80, 100".to_owned()));
    assert_eq!(texts(&[]), Ok(String::new()));
    assert_eq!(Thresholds::default().to_string(), "50, 80, 100");
    for bad in [&[0][..], &[101], &[50, 50], &[1, 2, 3, 4, 5, 6]] {
        assert_eq!(texts(bad), Err(NoThresholds), "{bad:?}");
    }
}

#[test]
fn they_are_kept_as_a_list() {
    let json = serde_json::to_string(&Thresholds::default()).expect("JSON");
    assert_eq!(json, "[50,80,100]");
    assert_eq!(
        serde_json::from_str::<Thresholds>(&json).ok(),
        Some(Thresholds::default())
    );
    assert!(serde_json::from_str::<Thresholds>("[0]").is_err());
}

#[test]
fn a_jump_reaches_all_of_them_and_a_budget_of_nothing_none() {
    let reached = |spent, value| Thresholds::default().reached(spent, value).collect::<Vec<u8>>();
    assert_eq!(reached(49_999, 100_000), [0_u8; 0]);
    assert_eq!(reached(50_000, 100_000), [50]);
    assert_eq!(reached(100_000, 100_000), [50, 80, 100]);
    assert_eq!(reached(1, 0), [0_u8; 0]);
    assert_eq!(reached(-5, 10), [0_u8; 0]);
    assert_eq!(reached(i128::MAX, u64::MAX), [50, 80, 100]);
}

#[test]
fn the_webhook_hears_exact_amounts() {
    let at: DateTime<Utc> = "2026-11-20T12:00:00Z".parse().expect("an instant");
    let tenant = TenantId(Uuid::from_u128(7));
    let event = BudgetEvent {
        id: Uuid::from_u128(1),
        scope: Scope::Tenant(tenant),
        tenant_id: Some(tenant),
        limit_id: LimitId(Uuid::from_u128(2)),
        dimension: Dimension::BudgetCost,
        period: Period::Month,
        model: None,
        priority: None,
        span: Period::Month.span(at, chrono_tz::Asia::Tokyo),
        percent: 80,
        value: 300_000_000_000,
        spent: 240_000_000_001,
        at,
    };
    let body: serde_json::Value = serde_json::from_str(&event.body(Some("Research"), "EUR")).expect("JSON");
    assert_eq!(
        body,
        json!({
            "id": "00000000-0000-0000-0000-000000000001",
            "event": "budget.threshold",
            "at": "2026-11-20T12:00:00Z",
            "budget": {
                "scope": "tenant:00000000-0000-0000-0000-000000000007",
                "tenant_id": "00000000-0000-0000-0000-000000000007",
                "tenant": "Research",
                "limit_id": "00000000-0000-0000-0000-000000000002",
                "dimension": "budget_cost",
                "model": null,
                "priority": null,
                "period": "month",
                "period_start": "2026-10-31T15:00:00Z",
                "period_end": "2026-11-30T15:00:00Z",
                "threshold_percent": 80,
                "value": "300.00",
                "spent": "240.000000001",
                "currency": "EUR",
            },
        })
    );
    let tokens = BudgetEvent {
        dimension: Dimension::BudgetTokens,
        spent: -4,
        ..event
    };
    let body: serde_json::Value = serde_json::from_str(&tokens.body(None, "EUR")).expect("JSON");
    assert_eq!(body["budget"]["spent"], "-4");
    assert_eq!(body["budget"]["value"], "300000000000");
    assert!(body["budget"]["currency"].is_null());
}

proptest! {
    #[test]
    fn a_threshold_is_reached_when_its_part_is_spent(
        spent in 0_i64..1_000_000,
        value in 1_u64..1_000_000,
        percent in 1_u8..=100,
    ) {
        let thresholds = Thresholds::new(&[percent]).expect("a percentage");
        let is_reached = thresholds.reached(i128::from(spent), value).next().is_some();
        let least = (value * u64::from(percent)).div_ceil(100);
        prop_assert_eq!(is_reached, spent.unsigned_abs() >= least);
    }
}

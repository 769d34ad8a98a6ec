use domain::ids::TenantId;
use domain::limits::{Dimension, Gates, Mode};
use domain::money::Nanos;
use domain::periods::Period;
use domain::priority::Priority;
use uuid::Uuid;

use super::*;
use crate::fields::COUNT_MAX;

fn draft(dimension: Dimension, value: u64) -> LimitDraft {
    plain(dimension, value)
}

fn limit(draft: &LimitDraft) -> Limit {
    Limit {
        id: LimitId(Uuid::nil()),
        target: Target::Node(Scope::Tenant(TenantId(Uuid::nil()))),
        dimension: draft.dimension,
        value: draft.value,
        increase: None,
        window_seconds: draft.window_seconds,
        burst: draft.burst,
        period: draft.period,
        model: draft.model.clone(),
        priority: draft.priority,
        mode: draft.mode,
        gates: draft.gates,
        thresholds: draft.thresholds,
    }
}

fn refused_fields(draft: &LimitDraft) -> Vec<String> {
    match check_draft(draft) {
        Ok(()) => Vec::new(),
        Err(error) => error.fields().iter().map(|error| error.field.to_string()).collect(),
    }
}

#[test]
fn a_blank_is_no_limit_and_zero_is_one() {
    let mut fields = Fields::default();
    let text = NodeLimitsText {
        concurrency: "0".to_owned(),
        monthly_cost: "12.5".to_owned(),
        ..NodeLimitsText::default()
    };
    let limits = text.parse(&mut fields);
    assert!(fields.check().is_ok());
    assert_eq!(limits.concurrency, Some(0));
    assert_eq!(limits.monthly_cost, Some(Nanos(12_500_000_000)));
    assert_eq!(limits.requests_per_minute, None);
    assert_eq!(NodeLimitsText::from(&limits).monthly_cost, "12.50");
    assert_eq!(NodeLimitsText::from(&limits).parse(&mut Fields::default()), limits);
}

#[test]
fn the_most_that_a_limit_takes_is_written_in_its_unit() {
    let told = |dimension| match check_draft(&draft(dimension, u64::MAX)) {
        Ok(()) => String::new(),
        Err(error) => error.fields()[0].message.to_string(),
    };
    assert_eq!(told(Dimension::BudgetCost), "at most 9223372036.854775807");
    assert_eq!(told(Dimension::RequestSeconds), "at most 3600");
}

#[test]
fn only_plain_slots_are_shown_in_the_form() {
    let plain_one = limit(&draft(Dimension::Requests, 60));
    let mut by_hour = limit(&draft(Dimension::Requests, 7));
    by_hour.window_seconds = 3_600;
    let mut weekly = limit(&draft(Dimension::BudgetCost, 8));
    weekly.period = Period::Week;
    let mut of_model = limit(&draft(Dimension::Concurrency, 9));
    of_model.model = Some("gpt".into());
    let shown = NodeLimits::of(&[by_hour, weekly, of_model, plain_one]);
    assert_eq!(
        shown,
        NodeLimits {
            requests_per_minute: Some(60),
            ..NodeLimits::default()
        }
    );
}

#[test]
fn values_out_of_range_are_named_by_their_field() {
    let limits = NodeLimits {
        request_seconds: Some(0),
        concurrency: Some(CONCURRENCY_MAX + 1),
        monthly_tokens: Some(COUNT_MAX + 1),
        requests_per_minute: Some(0),
        ..NodeLimits::default()
    };
    let mut fields = Fields::default();
    limits.validate(&mut fields);
    let error = fields.check().unwrap_err();
    let named: Vec<_> = error.fields().iter().map(|error| error.field.as_ref()).collect();
    assert_eq!(named, ["monthly_tokens", "concurrency", "request_seconds"]);
}

#[test]
fn windows_bursts_and_gates_are_checked() {
    assert!(refused_fields(&draft(Dimension::InputTokens, 1)).is_empty());
    let window = LimitDraft {
        window_seconds: 0,
        ..draft(Dimension::Requests, 1)
    };
    assert_eq!(refused_fields(&window), ["window_seconds"]);
    let burst = LimitDraft {
        burst: Some(5),
        ..draft(Dimension::Concurrency, 1)
    };
    assert_eq!(refused_fields(&burst), ["burst"]);
    let gates = |lower_percent, upper_percent| LimitDraft {
        gates: Some(Gates {
            lower_percent,
            upper_percent,
            upper_waits: false,
        }),
        ..draft(Dimension::Requests, 1)
    };
    assert!(refused_fields(&gates(70, 90)).is_empty());
    for (lower, upper) in [(0, 90), (91, 90), (70, 101)] {
        assert_eq!(refused_fields(&gates(lower, upper)), ["gates"]);
    }
}

fn wrong_fields(dimension: Dimension, text: &LimitText) -> Vec<String> {
    let mut fields = Fields::default();
    text.parse(dimension, &mut fields);
    let error = fields.check().err();
    error
        .iter()
        .flat_map(|error| error.fields())
        .map(|error| error.field.to_string())
        .collect()
}

#[test]
fn a_limits_texts_read_back_as_the_same_limit() {
    let mut every = Vec::new();
    for dimension in Dimension::ALL {
        every.push(draft(dimension, 1_234));
    }
    every.push(LimitDraft {
        burst: Some(5_000),
        window_seconds: 3_600,
        model: Some("gpt".into()),
        priority: Some(Priority::Low),
        ..draft(Dimension::OutputTokens, 0)
    });
    every.push(LimitDraft {
        period: Period::Hour,
        mode: Mode::Rehearse,
        gates: Some(Gates {
            lower_percent: 70,
            upper_percent: 90,
            upper_waits: true,
        }),
        ..draft(Dimension::BudgetCost, 1_500_000_000)
    });
    for draft in every {
        let mut fields = Fields::default();
        let text = LimitText::from(&limit(&draft));
        assert_eq!(text.parse(draft.dimension, &mut fields), draft);
        assert!(fields.check().is_ok());
    }
}

#[test]
fn what_is_wrong_with_a_limits_texts_is_named_by_its_field() {
    let text = LimitText {
        value: "60".to_owned(),
        ..LimitText::default()
    };
    assert_eq!(wrong_fields(Dimension::Requests, &text), Vec::<String>::new());
    assert_eq!(wrong_fields(Dimension::Requests, &LimitText::default()), ["value"]);
    let wrong = LimitText {
        value: "many".to_owned(),
        window_seconds: "a day".to_owned(),
        burst: "-1".to_owned(),
        period: "year".to_owned(),
        priority: "urgent".to_owned(),
        mode: "maybe".to_owned(),
        gate_lower_percent: "70".to_owned(),
        ..LimitText::default()
    };
    assert_eq!(
        wrong_fields(Dimension::Requests, &wrong),
        [
            "value",
            "window_seconds",
            "mode",
            "burst",
            "period",
            "priority",
            "gate_upper_percent"
        ]
    );
    let too_much = LimitText {
        gate_lower_percent: "70".to_owned(),
        gate_upper_percent: "900".to_owned(),
        window_seconds: "99999999999".to_owned(),
        ..text
    };
    let draft = too_much.parse(Dimension::Requests, &mut Fields::default());
    assert_eq!(refused_fields(&draft), ["window_seconds", "gates"]);
}

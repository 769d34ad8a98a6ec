//! What a limit says in words: how full, until when, and that a budget may not be known yet.

use chrono::{DateTime, Utc};
use domain::budget_events::Thresholds;
use domain::ids::{LimitId, TenantId};
use domain::limits::{Class, Dimension, Gates, Limit, Mode, Scope, Target};
use domain::periods::Period;
use domain::policy::Settings;
use domain::prices::Unpriced;
use domain::readings::{LiveLimit, Reading};
use leptos::prelude::*;
use uuid::Uuid;

use super::gauge;
use crate::format::Format;

fn live(dimension: Dimension, value: u64) -> LiveLimit {
    let limit = Limit {
        id: LimitId(Uuid::nil()),
        target: Target::Node(Scope::Global),
        dimension,
        value,
        increase: None,
        window_seconds: 60,
        burst: None,
        period: Period::Month,
        model: None,
        priority: None,
        mode: Mode::Enforce,
        gates: None,
        thresholds: Thresholds::default(),
    };
    let slot = limit.slot();
    LiveLimit {
        reading: Reading {
            scope: Scope::Global,
            limit_id: limit.id,
            dimension,
            window_seconds: slot.window_seconds,
            period: slot.period,
            model: None,
            priority: None,
            mode: limit.mode,
            limit_value: value,
            used: 0,
            held: 0,
            remaining: value,
            utilisation_percent: 0.0,
            reset_ms: None,
            is_known: true,
        },
        limit,
    }
}

/// The text of the gauge, without its tags.
fn text(live: &LiveLimit) -> String {
    let html = html(live);
    let mut text = String::new();
    for piece in html.replace("<!--<() />-->", "").split('<') {
        text.push_str(piece.split_once('>').map_or("", |(_, text)| text));
        text.push(' ');
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn html(live: &LiveLimit) -> String {
    let format = Format::new(&Settings {
        time_zone: chrono_tz::UTC,
        currency: "EUR".into(),
        unpriced: Unpriced::Refuse,
        rehearsal_percent: None,
    });
    let at: DateTime<Utc> = "2026-11-29T12:03:05Z".parse().expect("an instant");
    Owner::new().with(|| gauge(live, None, false, at, &format).to_html())
}

#[test]
fn a_rate_says_what_is_used_what_is_left_and_when_it_is_as_new() {
    let mut rate = live(Dimension::Requests, 300);
    rate.reading.used = 120;
    rate.reading.remaining = 180;
    rate.reading.utilisation_percent = 40.0;
    rate.reading.reset_ms = Some(42_500);
    assert_eq!(
        text(&rate),
        "Requests per minute 120 of 300 40 % 180 left; unused again in 42.5 s"
    );
}

#[test]
fn a_gateway_on_its_own_shows_its_share() {
    let mut rate = live(Dimension::Requests, 300);
    rate.reading.limit_value = 75;
    rate.reading.used = 75;
    rate.reading.utilisation_percent = 100.0;
    let text = text(&rate);
    assert!(text.contains("75 of 75 100 % this gateway's share of 300"), "{text}");
}

#[test]
fn a_budget_says_what_is_held_and_when_it_starts_again() {
    let mut budget = live(Dimension::BudgetCost, 60_000_000_000);
    budget.reading.used = 1_500_000_000;
    budget.reading.held = 250_000_000;
    budget.reading.remaining = 58_250_000_000;
    budget.reading.utilisation_percent = 2.9;
    budget.reading.reset_ms = Some(43_015_000);
    let text = text(&budget).replace('\u{a0}', " ");
    assert!(text.contains("EUR 1.75 of EUR 60"), "{text}");
    assert!(
        text.contains("2 %") && text.contains("EUR 0.250000 of it held"),
        "{text}"
    );
    assert!(text.contains("EUR 58.25 left until 30 Nov 2026, 00:00 UTC"), "{text}");
}

#[test]
fn a_budget_without_a_base_is_being_read_and_claims_no_figures() {
    let mut budget = live(Dimension::BudgetTokens, 1_000);
    budget.reading.is_known = false;
    let html = html(&budget);
    assert!(html.contains("being read") && html.contains("of 1,000"), "{html}");
    assert!(!html.contains("progress") && !html.contains("left"), "{html}");
}

#[test]
fn gates_are_marked_and_whom_they_hold_back_is_said() {
    let mut gated = live(Dimension::Requests, 100);
    gated.limit.gates = Some(Gates {
        lower_percent: 70,
        upper_percent: 90,
        upper_waits: false,
    });
    for (percent, said) in [
        (69.9, None),
        (70.0, Some("low is held back")),
        (90.0, Some("only high and critical pass")),
    ] {
        gated.reading.utilisation_percent = percent;
        let html = html(&gated);
        assert!(html.contains(r#"x1="70""#) && html.contains(r#"x1="90""#), "{html}");
        assert!(html.contains("Gates at 70 % and 90 %."), "{html}");
        for words in ["low is held back", "only high and critical pass"] {
            assert_eq!(html.contains(words), said == Some(words), "{percent}: {html}");
        }
    }
}

#[test]
fn rehearsal_a_class_and_a_cap_are_told_apart() {
    let mut cap = live(Dimension::RequestOutputTokens, 4_096);
    cap.limit.target = Target::OfTenant(TenantId(Uuid::nil()), Class::Key);
    cap.limit.mode = Mode::Rehearse;
    assert_eq!(
        text(&cap),
        "Output tokens of a request as for each here rehearsed at most 4,096"
    );
}

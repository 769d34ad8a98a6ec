//! How limits are called and written, the same on every page that shows them.

use chrono::{DateTime, Utc};
use control::limits::last_day;
use domain::limits::{Class, Dimension, Limit, Scope, Slot, Target};
use domain::money::Nanos;
use leptos::prelude::*;

use crate::format::{self, Format};
use crate::table::{Tone, badge, meter};

/// What a dimension is called.
pub fn dimension_name(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Requests => "Requests",
        Dimension::InputTokens => "Input tokens",
        Dimension::OutputTokens => "Output tokens",
        Dimension::TotalTokens => "All tokens",
        Dimension::Concurrency => "Requests at once",
        Dimension::BudgetTokens => "Token budget",
        Dimension::BudgetCost => "Budget",
        Dimension::RequestInputTokens => "Input tokens of a request",
        Dimension::RequestOutputTokens => "Output tokens of a request",
        Dimension::RequestSeconds => "Seconds of a request",
    }
}

/// A limit's value, with the currency where it is money.
pub fn value_text(dimension: Dimension, value: u64, format: &Format) -> String {
    match dimension {
        Dimension::BudgetCost => format.exact(Nanos(i64::try_from(value).unwrap_or(i64::MAX))),
        _ => format::count(value),
    }
}

/// A limit's value at `at`, and where that is an increase until when, and what it is otherwise.
pub fn value_in_force(limit: &Limit, at: DateTime<Utc>, format: &Format) -> AnyView {
    let until = increase_note(limit, at, format).map(|note| view! { <div><small>{note}</small></div> });
    view! { {value_text(limit.dimension, limit.value_at(at), format)} {until} }.into_any()
}

/// Until when a limit is increased, and what it is otherwise; nothing where it is not.
pub fn increase_note(limit: &Limit, at: DateTime<Utc>, format: &Format) -> Option<String> {
    let increase = limit.increase_at(at)?;
    let until = format::date(last_day(increase, format.zone()));
    let ordinary = value_text(limit.dimension, limit.value, format);
    Some(format!("until {until}, then {ordinary} again"))
}

/// How much of a budget is spent: percent, a meter with this label, and what it has reached.
pub fn used(limit: &Limit, spent: i64, label: &str, at: DateTime<Utc>) -> AnyView {
    let value = i64::try_from(limit.value_at(at)).unwrap_or(i64::MAX);
    let Some(percent) = format::percent(spent, value) else {
        return ().into_any();
    };
    view! { {format!("{percent} %")} {meter(percent, label)} {reached(limit, spent, at)} }.into_any()
}

/// The same under a figure, with what the budget is.
pub fn used_of(limit: &Limit, spent: i64, label: &str, at: DateTime<Utc>, format: &Format) -> AnyView {
    let value = limit.value_at(at);
    let Some(percent) = format::percent(spent, i64::try_from(value).unwrap_or(i64::MAX)) else {
        return ().into_any();
    };
    let of = match limit.dimension {
        Dimension::BudgetCost => format.money(Nanos(i64::try_from(value).unwrap_or(i64::MAX))),
        _ => format::count(value),
    };
    let until = increase_note(limit, at, format).map(|note| format!(" {note}"));
    view! {
        {meter(percent, label)}
        <small>{format!("{percent} % of {of}")} {until}</small>
        " "
        {reached(limit, spent, at)}
    }
    .into_any()
}

/// The highest threshold that a budget has reached with `spent`, as a badge.
pub fn reached(limit: &Limit, spent: i64, at: DateTime<Utc>) -> AnyView {
    if !limit.dimension.is_budget() {
        return ().into_any();
    }
    let highest = limit.thresholds.reached(i128::from(spent), limit.value_at(at)).last();
    match highest {
        Some(100) => badge("100 % reached", Tone::Bad),
        Some(percent) => badge(format!("{percent} % reached"), Tone::Warning),
        None => ().into_any(),
    }
}

/// What a slot's value is spread over: `minute`, `90 s`, `month`; empty where it is not.
pub fn per(slot: &Slot) -> String {
    match (slot.window_seconds, slot.period) {
        (Some(60), _) => "minute".to_owned(),
        (Some(3_600), _) => "hour".to_owned(),
        (Some(86_400), _) => "day".to_owned(),
        (Some(seconds), _) => format!("{} s", format::count(u64::from(seconds))),
        (None, Some(period)) => match period {
            domain::periods::Period::Hour | domain::periods::Period::Day => format!("calendar {}", period.as_str()),
            domain::periods::Period::Week | domain::periods::Period::Month => period.as_str().to_owned(),
        },
        (None, None) => String::new(),
    }
}

/// A slot in words: `Requests per minute of the model gpt-4o at low`.
pub fn slot_name(slot: &Slot) -> String {
    let mut name = dimension_name(slot.dimension).to_owned();
    let per = per(slot);
    if !per.is_empty() {
        name.push_str(&format!(" per {per}"));
    }
    if let Some(model) = &slot.model {
        name.push_str(&format!(" of the model {model}"));
    }
    if let Some(priority) = slot.priority {
        name.push_str(&format!(" at {priority}"));
    }
    name
}

/// So many nodes of a class.
pub(super) fn children(each: Class, count: u64) -> String {
    let (one, many) = match each {
        Class::Tenant => ("tenant", "tenants"),
        Class::User => ("user", "users"),
        Class::EndUser => ("end user", "end users"),
        Class::Key => ("key", "keys"),
    };
    format::counted(count, one, many)
}

/// What holds once a limit is gone.
pub(super) fn after_removal(target: &Target, dimension: Dimension) -> String {
    let then = match target {
        Target::Node(Scope::Key(_) | Scope::User(..)) => {
            "Then the limit that its tenant sets for each applies, if any."
        }
        Target::Node(Scope::Tenant(_)) => "Then its plan's limit applies, if any.",
        Target::Node(_) => "Then this is not limited here any more.",
        Target::OfTenant(..) => "Then the plan's applies, if any. One that has its own keeps it.",
        Target::OfPlan(..) => "Tenants on this plan lose it. One that has its own keeps it.",
    };
    if dimension.is_budget() {
        format!("{then} What was spent stays in the ledger.")
    } else {
        then.to_owned()
    }
}

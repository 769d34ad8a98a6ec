//! How limits are called and written, the same on every page that shows them.

use std::fmt::Display;

use chrono::{DateTime, Utc};
use control::limits::last_day;
use domain::limits::{Class, Dimension, Gates, Limit, Scope, Slot, Target};
use domain::money::Nanos;
use domain::periods::Period;
use leptos::prelude::*;

use crate::format::{self, Format};
use crate::language;
use crate::table::{Tone, badge, meter};
use crate::terms;

/// What a dimension is called.
pub fn dimension_name(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Requests => t!("Requests"),
        Dimension::InputTokens => t!("Input tokens"),
        Dimension::OutputTokens => t!("Output tokens"),
        Dimension::TotalTokens => t!("All tokens"),
        Dimension::Concurrency => t!("Requests at once"),
        Dimension::BudgetTokens => t!("Token budget"),
        Dimension::BudgetCost => t!("Budget"),
        Dimension::RequestInputTokens => t!("Input tokens of a request"),
        Dimension::RequestOutputTokens => t!("Output tokens of a request"),
        Dimension::RequestSeconds => t!("Seconds of a request"),
    }
}

/// The same within a sentence.
pub(super) fn dimension_within(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Requests => t!("requests"),
        Dimension::InputTokens => t!("input tokens"),
        Dimension::OutputTokens => t!("output tokens"),
        Dimension::TotalTokens => t!("all tokens"),
        Dimension::Concurrency => t!("requests at once"),
        Dimension::BudgetTokens => t!("token budget"),
        Dimension::BudgetCost => t!("budget"),
        Dimension::RequestInputTokens => t!("input tokens of a request"),
        Dimension::RequestOutputTokens => t!("output tokens of a request"),
        Dimension::RequestSeconds => t!("seconds of a request"),
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
    Some(t!("until {until}, then {ordinary} again", until, ordinary))
}

/// How much of a budget is spent: percent, a meter with this label, and what it has reached.
pub fn used(limit: &Limit, spent: i64, label: &str, at: DateTime<Utc>) -> AnyView {
    let value = i64::try_from(limit.value_at(at)).unwrap_or(i64::MAX);
    let Some(percent) = format::percent(spent, value) else {
        return ().into_any();
    };
    view! { {t!("{percent} %", percent)} {meter(percent, label)} {reached(limit, spent, at)} }.into_any()
}

/// The same under a figure, with what the budget is.
pub fn used_of(limit: &Limit, spent: i64, label: &str, at: DateTime<Utc>, format: &Format) -> AnyView {
    let value = limit.value_at(at);
    let Some(percent) = format::percent(spent, i64::try_from(value).unwrap_or(i64::MAX)) else {
        return ().into_any();
    };
    let budget = match limit.dimension {
        Dimension::BudgetCost => format.money(Nanos(i64::try_from(value).unwrap_or(i64::MAX))),
        _ => format::count(value),
    };
    let share = match increase_note(limit, at, format) {
        Some(note) => t!("{percent} % of {budget} {note}", percent, budget, note),
        None => t!("{percent} % of {budget}", percent, budget),
    };
    view! {
        {meter(percent, label)}
        <small>{share}</small>
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
        Some(100) => badge(t!("{percent} % reached", percent = 100), Tone::Bad),
        Some(percent) => badge(t!("{percent} % reached", percent), Tone::Warning),
        None => ().into_any(),
    }
}

/// What a slot's value is spread over: `minute`, `90 s`, `month`; empty where it is not.
pub fn per(slot: &Slot) -> String {
    match (slot.window_seconds, slot.period) {
        (Some(60), _) => t!("minute", in "limit per").to_owned(),
        (Some(3_600), _) => t!("hour", in "limit per").to_owned(),
        (Some(86_400), _) => t!("day", in "limit per").to_owned(),
        (Some(seconds), _) => t!("{window} s", window = format::count(u64::from(seconds))),
        (None, Some(Period::Hour)) => t!("calendar hour", in "limit per").to_owned(),
        (None, Some(Period::Day)) => t!("calendar day", in "limit per").to_owned(),
        (None, Some(Period::Week)) => t!("week", in "limit per").to_owned(),
        (None, Some(Period::Month)) => t!("month", in "limit per").to_owned(),
        (None, None) => String::new(),
    }
}

/// A slot in words: `Requests per minute of the model gpt-4o at low`.
pub fn slot_name(slot: &Slot) -> String {
    let mut name = dimension_per(slot);
    if let Some(model) = &slot.model {
        name = t!("{limit} of the model {model}", limit = name, model);
    }
    if let Some(priority) = slot.priority {
        name = t!(
            "{limit} at {priority}",
            limit = name,
            priority = terms::priority(priority)
        );
    }
    name
}

/// A slot's dimension and what its value is spread over: `Requests per minute`.
fn dimension_per(slot: &Slot) -> String {
    let what = dimension_name(slot.dimension);
    match (slot.window_seconds, slot.period) {
        (Some(60), _) => t!("{what} per minute", what),
        (Some(3_600), _) => t!("{what} per hour", what),
        (Some(86_400), _) => t!("{what} per day", what),
        (Some(seconds), _) => t!(
            "{what} per {window} s",
            what,
            window = format::count(u64::from(seconds))
        ),
        (None, Some(period)) if slot.dimension == Dimension::BudgetTokens => token_budget_per(period).to_owned(),
        (None, Some(Period::Hour)) => t!("{what} per calendar hour", what),
        (None, Some(Period::Day)) => t!("{what} per calendar day", what),
        (None, Some(Period::Week)) => t!("{what} per week", what),
        (None, Some(Period::Month)) => t!("{what} per month", what),
        (None, None) => what.to_owned(),
    }
}

/// Texts of their own: what is counted is a word that Chinese writes in Latin letters, with a blank before it.
fn token_budget_per(period: Period) -> &'static str {
    match period {
        Period::Hour => t!("Token budget per calendar hour"),
        Period::Day => t!("Token budget per calendar day"),
        Period::Week => t!("Token budget per week"),
        Period::Month => t!("Token budget per month"),
    }
}

/// Gates: from where on who waits or is refused.
pub(super) fn gates(gates: Gates) -> String {
    let (lower, upper) = (gates.lower_percent, gates.upper_percent);
    if gates.upper_waits {
        t!("{lower} % and {upper} %, waits", lower, upper)
    } else {
        t!("{lower} % and {upper} %", lower, upper)
    }
}

/// So many nodes of a class.
pub fn children(each: Class, count: u64) -> String {
    match each {
        Class::Tenant => tn!(count, "{n} tenant", "{n} tenants"),
        Class::User => tn!(count, "{n} user", "{n} users"),
        Class::EndUser => tn!(count, "{n} end user", "{n} end users"),
        Class::Key => tn!(count, "{n} key", "{n} keys"),
    }
}

/// What holds once a limit is gone.
pub(super) fn after_removal(target: &Target, dimension: Dimension) -> String {
    let then = match target {
        Target::Node(Scope::Key(_) | Scope::User(..)) => {
            t!("Then the limit that its tenant sets for each applies, if any.")
        }
        Target::Node(Scope::Tenant(_)) => t!("Then its plan's limit applies, if any."),
        Target::Node(_) => t!("Then this is not limited here any more."),
        Target::OfTenant(..) => t!("Then the plan's applies, if any. One that has its own keeps it."),
        Target::OfPlan(..) => t!("Tenants on this plan lose it. One that has its own keeps it."),
    };
    if dimension.is_budget() {
        sentences(then, t!("What was spent stays in the ledger."))
    } else {
        then.to_owned()
    }
}

/// One sentence after another.
pub(super) fn sentences(first: impl Display, second: impl Display) -> String {
    language::sentences(&[first.to_string(), second.to_string()])
}

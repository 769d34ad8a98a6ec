//! How limits are called and written, the same on every page that shows them.

use domain::limits::{Class, Dimension, Scope, Slot, Target};
use domain::money::Nanos;

use crate::format::{self, Format};

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

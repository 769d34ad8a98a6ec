//! The choice of how far back a page looks.

use control::lookback::Lookback;
use domain::periods::Span;
use leptos::prelude::*;

use crate::format::Format;
use crate::visit::{Visit, address};

/// The field of the address.
const FIELD: &str = "back";

/// What the address asks for; a day unless it asks for something there is.
pub fn chosen(visit: &Visit) -> Lookback {
    let asked = visit.query(FIELD).and_then(|text| text.parse().ok());
    asked.unwrap_or_default()
}

/// The same page, looking back as far: `path` with these fields.
pub fn address_of(path: &str, lookback: Lookback, fields: &[(&str, &str)]) -> String {
    let is_default = lookback == Lookback::default();
    let back = (FIELD, if is_default { "" } else { lookback.as_str() });
    let fields: Vec<(&str, &str)> = fields.iter().copied().chain([back]).collect();
    address(path, &fields)
}

/// Links to the page at each of these distances.
pub fn links(path: &str, offered: [Lookback; 3], lookback: Lookback, fields: &[(&str, &str)]) -> AnyView {
    let links = offered
        .into_iter()
        .map(|other| {
            let href = address_of(path, other, fields);
            let current = (other == lookback).then_some("true");
            view! { <a class="button" href=href aria-current=current>{name(other)}</a> }
        })
        .collect_view();
    view! { <nav class="actions" aria-label=t!("How far back")>{links}</nav> }.into_any()
}

/// What the sums cover, in a sentence; they are kept by 15 minutes.
pub fn covered(span: Span, complete_until: chrono::DateTime<chrono::Utc>, format: &Format) -> AnyView {
    let text = t!(
        "From {start}, complete up to {end}.",
        start = format.minute(span.start),
        end = format.time(complete_until)
    );
    view! { <p class="quiet">{text}</p> }.into_any()
}

/// How a distance is called.
pub fn name(lookback: Lookback) -> &'static str {
    match lookback {
        Lookback::Hour => t!("Last hour"),
        Lookback::Day => t!("Last 24 hours"),
        Lookback::Week => t!("Last 7 days"),
        Lookback::ThirtyDays => t!("Last 30 days"),
        Lookback::Month => t!("This month"),
    }
}

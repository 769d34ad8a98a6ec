//! How a limit and its counter are written: what is used of how much, a meter with its gates, when it starts again.

use chrono::{DateTime, Duration, Utc};
use domain::limits::{Dimension, Gates, Mode, Target};
use domain::money::Nanos;
use domain::readings::{CounterStore, LiveLimit, Reading};
use leptos::prelude::*;

use crate::format::{self, Format};
use crate::pages::limits::{increase_note, reached, slot_name, value_text};
use crate::table::{Tone, badge, meter};

/// One limit in a list of them; `subject` goes before its name where the list is of several nodes.
pub fn gauge(
    live: &LiveLimit,
    subject: Option<AnyView>,
    is_tightest: bool,
    at: DateTime<Utc>,
    format: &Format,
) -> AnyView {
    let name = slot_name(&live.limit.slot());
    let class = if is_tightest { "gauge gauge-tightest" } else { "gauge" };
    let rehearsed = (live.limit.mode == Mode::Rehearse).then(|| badge(t!("rehearsed"), Tone::Warning));
    let (figure, level, note) = if live.limit.dimension.is_request_cap() {
        let figure = t!(
            "at most {value}",
            value = value_text(live.limit.dimension, live.limit.value_at(at), format)
        );
        (figure.into_any(), ().into_any(), String::new())
    } else if live.reading.is_known {
        (
            used(live, at, format),
            level(live, &name),
            note(&live.reading, at, format),
        )
    } else {
        let value = value_text(live.limit.dimension, live.limit.value_at(at), format);
        let note = t!("What is spent is being read; until then nothing is admitted.").to_owned();
        let state = badge(t!("being read"), Tone::Warning);
        let figure = view! { {state} " " {t!("of {value}", value)} };
        (figure.into_any(), ().into_any(), note)
    };
    let name = match subject {
        Some(subject) => tv!("{node}: {limit}", node = subject, limit = name),
        None => name.into_any(),
    };
    view! {
        <li class=class>
            <p class="gauge-name">{name} " " <small>{source(&live.limit.target)}</small> " " {rehearsed}</p>
            <p class="gauge-figure">{figure}</p>
            <div class="gauge-level">{level}</div>
            {increase_note(&live.limit, at, format)
                .map(|note| view! { <p class="gauge-note">{t!("Increased {note}.", note)}</p> })}
            {(!note.is_empty()).then(|| view! { <p class="gauge-note">{note}</p> })}
        </li>
    }
    .into_any()
}

/// An amount of a dimension, to the last digit where it is small.
pub fn amount(dimension: Dimension, amount: i128, format: &Format) -> String {
    let amount = i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX });
    match dimension {
        Dimension::BudgetCost => format.cost(Nanos(amount)),
        _ => format::signed_count(amount),
    }
}

/// Used and held together.
pub fn taken(reading: &Reading) -> i128 {
    i128::from(reading.used) + i128::from(reading.held)
}

/// Who counted, in a sentence; a warning where that is not as it should be.
pub fn counted_by(store: CounterStore) -> AnyView {
    match store {
        CounterStore::Memory => {
            view! { <p class="quiet">{t!("Counted in the memory of this gateway.")}</p> }.into_any()
        }
        CounterStore::Redis => {
            view! { <p class="quiet">{t!("Counted in Redis, by all gateways together.")}</p> }.into_any()
        }
        CounterStore::Degraded => view! {
            <p class="notice notice-warning" role="status">
                {t!("Redis cannot be reached. These are the counters of this gateway alone, whose share of each limit is lower \
                     until Redis is back.")}
            </p>
        }
        .into_any(),
    }
}

/// Where a limit comes from that is not the node's own.
fn source(target: &Target) -> &'static str {
    match target {
        Target::Node(_) => "",
        Target::OfTenant(..) => t!("as for each here"),
        Target::OfPlan(..) => t!("from the plan"),
    }
}

fn used(live: &LiveLimit, at: DateTime<Utc>, format: &Format) -> AnyView {
    let dimension = live.limit.dimension;
    let value = value_text(dimension, live.reading.limit_value, format);
    // A gateway on its own admits a share of the limit.
    let share = (live.reading.limit_value != live.limit.value_at(at)).then(|| {
        let whole = value_text(dimension, live.limit.value_at(at), format);
        view! { " " <small>{t!("this gateway's share of {whole}", whole)}</small> }
    });
    let reached = reached(&live.limit, live.reading.used, at);
    let taken = amount(dimension, taken(&live.reading), format);
    let percent = format!("{} %", whole_percent(&live.reading));
    let held = (dimension.is_budget() && live.reading.held > 0).then(|| {
        let held = amount(dimension, i128::from(live.reading.held), format);
        view! { " " <small>{t!("{held} of it held", held)}</small> }
    });
    let taken = tv!("{taken} of {value}", taken = view! { <strong>{taken}</strong> }, value);
    view! { {taken} " " <small>{percent}</small> {held} {share} " " {reached} }.into_any()
}

fn level(live: &LiveLimit, name: &str) -> AnyView {
    let percent = whole_percent(&live.reading);
    let bar = meter(percent, name);
    let Some(gates) = live.limit.gates else {
        return bar;
    };
    let marks = [gates.lower_percent, gates.upper_percent]
        .map(|percent| view! { <line class="gate" x1=percent x2=percent y1="0" y2="8" vector-effect="non-scaling-stroke" /> })
        .collect_view();
    view! {
        <div class="gated">
            {bar} <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" focusable="false">
                {marks}
            </svg>
        </div>
        <small>{gates_text(gates)}</small>
        " "
        {held_back(gates, &live.reading)}
    }
    .into_any()
}

fn gates_text(gates: Gates) -> String {
    t!(
        "Gates at {lower} % and {upper} %.",
        lower = gates.lower_percent,
        upper = gates.upper_percent,
    )
}

/// Whom the gates hold back now.
fn held_back(gates: Gates, reading: &Reading) -> AnyView {
    if reading.utilisation_percent >= f64::from(gates.upper_percent) {
        badge(t!("only high and critical pass"), Tone::Bad)
    } else if reading.utilisation_percent >= f64::from(gates.lower_percent) {
        badge(t!("low is held back"), Tone::Warning)
    } else {
        ().into_any()
    }
}

/// Rounded down, so that 100 % means full.
fn whole_percent(reading: &Reading) -> i64 {
    reading.utilisation_percent.clamp(0.0, 1_000_000.0) as i64
}

fn note(reading: &Reading, at: DateTime<Utc>, format: &Format) -> String {
    let left = amount(reading.dimension, i128::from(reading.remaining), format);
    let reset = reading.reset_ms.filter(|ms| *ms > 0);
    match (reading.dimension, reset) {
        (dimension, Some(ms)) if dimension.is_budget() => {
            let then = i64::try_from(ms).ok().and_then(Duration::try_milliseconds);
            let then = then.and_then(|wait| at.checked_add_signed(wait));
            match then {
                Some(then) => t!("{left} left until {time}", left, time = format.minute(then)),
                None => t!("{left} left", left),
            }
        }
        (dimension, Some(ms)) if dimension.is_rate() => {
            let wait = format::duration_ms(i64::try_from(ms).unwrap_or(i64::MAX));
            t!("{left} left; unused again in {wait}", left, wait)
        }
        _ => t!("{left} left", left),
    }
}

#[cfg(test)]
mod tests;

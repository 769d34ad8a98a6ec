//! What saving limits would change, shown before it is done: slot by slot, for whom, and where children could then use more
//! than their parent.

use control::limits::{LimitChange, LimitsPreview, is_plain};
use control::rows::Spent;
use domain::limits::{Class, Limit, Mode, Scope, Target};
use leptos::prelude::*;
use serde::Serialize;

use super::words::{dimension_name, slot_name, value_text};
use crate::form::{BACK, CONFIRMED, Filled, STEP};
use crate::format::{self, Format};
use crate::submit::Refused;
use crate::table::{self, Tone, badge, words as texts};

/// What is to be confirmed.
pub(in crate::pages) struct Confirm<'a> {
    /// Whose limits they are.
    pub(in crate::pages) target: &'a Target,
    /// What the target is called, in a sentence.
    pub(in crate::pages) name: &'a str,
    /// What would change of the limits.
    pub(in crate::pages) preview: &'a LimitsPreview,
    /// What else the form changes: a name, what it is, what it would be.
    pub(in crate::pages) others: Vec<(&'static str, String, String)>,
    /// What was spent this month, where that is known.
    pub(in crate::pages) spent: Option<Spent>,
}

/// Which step of two a form is sent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pages) enum Step {
    /// The first: it is to be shown what would change.
    Ask,
    /// The second: it is to be done.
    Confirmed,
}

impl Step {
    /// Reads the field; whoever wants the form again gets it.
    pub(in crate::pages) fn read(text: &str) -> Result<Self, Refused> {
        match text {
            BACK => Err(Refused::Back),
            CONFIRMED => Ok(Self::Confirmed),
            _ => Ok(Self::Ask),
        }
    }
}

/// The card that shows and asks. Both of its forms send everything that was entered once more to `action`.
pub(in crate::pages) fn card<F: Serialize>(
    form: &Filled<F>,
    action: &'static str,
    confirm: &Confirm<'_>,
    format: &Format,
) -> AnyView {
    let preview = confirm.preview;
    let limits = preview.changes.iter().flat_map(|change| rows(change, format));
    let others = confirm
        .others
        .iter()
        .map(|(name, before, after)| row((*name).to_owned(), before.clone(), after.clone(), ().into_any()));
    let send = |step: &'static str, class: &'static str, text: &'static str| {
        view! {
            <form method="post" action=action>
                {form.hidden()}
                <input type="hidden" name=STEP value=step />
                <button class=class type="submit">{text}</button>
            </form>
        }
    };
    let concerned = (!preview.changes.is_empty()).then(|| view! { <p>{concerned(confirm)}</p> });
    let spent = preview
        .changes
        .iter()
        .filter_map(|change| spent_already(change, confirm, format));
    let sums = preview
        .oversubscriptions
        .iter()
        .map(|one| super::warning(one, *confirm.target == Target::Node(one.parent.clone()), format));
    view! {
        <section class="card" id="confirm">
            <h2>"What changes"</h2>
            {table::table(
                "Nothing is saved yet.",
                &[texts("Limit"), texts("Now"), texts("Then"), texts("That is")],
                others.chain(limits).collect(),
            )}
            {concerned}
            {spent.collect_view()}
            {sums.collect_view()}
            <div class="actions">
                {send(CONFIRMED, "button button-primary", "Save these changes")}
                {send(BACK, "button", "Back to the form")}
            </div>
            <p class="quiet">"Saved, they are in force on every gateway within a second."</p>
        </section>
    }
    .into_any()
}

fn row(name: String, before: String, after: String, mark: AnyView) -> AnyView {
    view! {
        <tr>
            <th scope="row">{name}</th>
            <td>{before}</td>
            <td><strong>{after}</strong></td>
            <td class="nowrap">{mark}</td>
        </tr>
    }
    .into_any()
}

fn rows(change: &LimitChange, format: &Format) -> Vec<AnyView> {
    let name = slot_name(&change.slot);
    let value = |limit: &Option<Limit>| match limit {
        Some(limit) if limit.value == 0 && !limit.dimension.is_request_cap() => "0: admits nothing".to_owned(),
        Some(limit) => value_text(limit.dimension, limit.value, format),
        None => "no limit".to_owned(),
    };
    let mut rows = Vec::new();
    let is_value = change.before.as_ref().map(|limit| limit.value) != change.after.as_ref().map(|limit| limit.value);
    if is_value {
        rows.push(row(
            name.clone(),
            value(&change.before),
            value(&change.after),
            mark(change),
        ));
    }
    let (Some(before), Some(after)) = (&change.before, &change.after) else {
        let rehearsed = change.after.as_ref().filter(|limit| limit.mode == Mode::Rehearse);
        rows.extend(rehearsed.map(|_| {
            row(
                format!("{name}: mode"),
                String::new(),
                mode(Mode::Rehearse),
                ().into_any(),
            )
        }));
        return rows;
    };
    let mut further = |what: &str, before: String, after: String| {
        if before != after {
            rows.push(row(format!("{name}: {what}"), before, after, ().into_any()));
        }
    };
    further("mode", mode(before.mode), mode(after.mode));
    further("burst", burst(before, format), burst(after, format));
    further("gates", gates(before), gates(after));
    further("tells at", thresholds(before), thresholds(after));
    further("increase", increase(before, format), increase(after, format));
    rows
}

fn mark(change: &LimitChange) -> AnyView {
    match (&change.before, &change.after) {
        (Some(before), Some(after)) if after.value < before.value => badge("↓ less", Tone::Warning),
        (Some(_), Some(_)) => badge("↑ more", Tone::Quiet),
        (None, Some(_)) => badge("+ new limit", Tone::Warning),
        (Some(_), None) => badge("− limit goes", Tone::Warning),
        (None, None) => ().into_any(),
    }
}

fn mode(mode: Mode) -> String {
    match mode {
        Mode::Enforce => "enforced",
        Mode::Rehearse => "rehearsed: refuses nothing",
    }
    .to_owned()
}

fn burst(limit: &Limit, format: &Format) -> String {
    limit.burst.map_or("as usual".to_owned(), |burst| {
        value_text(limit.dimension, burst, format)
    })
}

fn gates(limit: &Limit) -> String {
    limit.gates.map_or("none".to_owned(), |gates| {
        let waits = if gates.upper_waits { ", waits" } else { "" };
        format!("{} % and {} %{waits}", gates.lower_percent, gates.upper_percent)
    })
}

fn thresholds(limit: &Limit) -> String {
    match limit.thresholds.to_string() {
        percents if percents.is_empty() => "nothing".to_owned(),
        percents => format!("{percents} %"),
    }
}

fn increase(limit: &Limit, format: &Format) -> String {
    limit.increase.map_or("none".to_owned(), |increase| {
        format!(
            "{} until {}",
            value_text(limit.dimension, increase.value, format),
            format.minute(increase.until)
        )
    })
}

/// Whom it concerns, in a sentence.
fn concerned(confirm: &Confirm<'_>) -> String {
    let affected = confirm.preview.affected;
    let tenants = format::counted(affected.tenants, "tenant", "tenants");
    let keeping = |of: &str| match affected.keeping {
        0 => String::new(),
        1 => format!(" One {of} has a limit of its own here and keeps it."),
        keeping => format!(
            " {} of them have a limit of their own here and keep it.",
            format::count(keeping)
        ),
    };
    let name = confirm.name;
    match confirm.target {
        Target::Node(Scope::Global) => {
            format!("It concerns {tenants}: all requests count here, beside their own limits.")
        }
        Target::Node(Scope::Model(_) | Scope::ModelGroup(_)) => {
            format!("It concerns everybody who asks for {name}, beside their own limits.")
        }
        Target::Node(Scope::Upstream(_)) => {
            format!("It concerns every request that goes to {name}, whoever sends it.")
        }
        Target::Node(Scope::Tenant(_)) => format!(
            "It concerns {name} as a whole, with {}.",
            format::counted(affected.keys, "working key", "working keys")
        ),
        Target::Node(Scope::User(..) | Scope::Key(_)) => format!("It concerns {name} alone."),
        Target::OfTenant(_, class) => {
            format!(
                "It concerns {name}, on its own.{}",
                keeping(&format::words(class.as_str()))
            )
        }
        Target::OfPlan(_, Class::Tenant) => {
            format!("It concerns {tenants} on the plan.{}", keeping("tenant"))
        }
        Target::OfPlan(_, class) => {
            let class = format::words(class.as_str());
            format!(
                "It concerns each {class} of {tenants} on the plan. What a tenant sets for each {class} itself stays."
            )
        }
    }
}

/// That a budget is spent as soon as it is saved.
fn spent_already(change: &LimitChange, confirm: &Confirm<'_>, format: &Format) -> Option<AnyView> {
    let limit = change.after.as_ref()?;
    if !limit.dimension.is_budget() || !is_plain(limit, limit.dimension) {
        return None;
    }
    let spent = confirm.spent?;
    let spent = match limit.dimension {
        domain::limits::Dimension::BudgetCost => spent.cost.0,
        _ => spent.tokens,
    };
    let spent = u64::try_from(spent)
        .ok()
        .filter(|spent| *spent >= limit.value && *spent > 0)?;
    let text = format!(
        "{}: {} is spent this month already, so its requests are refused until the next one.",
        dimension_name(limit.dimension),
        value_text(limit.dimension, spent, format)
    );
    Some(view! { <p class="notice notice-warning">{text}</p> }.into_any())
}

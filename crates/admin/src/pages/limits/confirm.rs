//! What saving limits would change, shown before it is done: slot by slot, for whom, and where children could then use more
//! than their parent.

use chrono::{DateTime, Utc};
use control::limits::{LimitChange, LimitsPreview, is_plain};
use control::rows::Spent;
use domain::budget_events::Thresholds;
use domain::limits::{Class, Limit, Mode, Scope, Target};
use leptos::prelude::*;
use serde::Serialize;

use super::words::{self, dimension_name, slot_name, value_text};
use crate::form::{BACK, CONFIRMED, Filled, STEP};
use crate::format::{self, Format};
use crate::submit::Refused;
use crate::table::{self, Tone, badge, words as texts};
use crate::terms;
use terms::class as class_name;

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
    /// When it is looked at: increases that are over are none.
    pub(in crate::pages) at: DateTime<Utc>,
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
    let limits = preview.changes.iter().flat_map(|change| rows(change, confirm, format));
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
            <h2>{t!("What changes")}</h2>
            {table::table(
                t!("Nothing is saved yet."),
                &[
                    texts(t!("Limit")),
                    texts(t!("Now")),
                    texts(t!("Then")),
                    texts(t!("That is")),
                ],
                others.chain(limits).collect(),
            )}
            {concerned}
            {spent.collect_view()}
            {sums.collect_view()}
            <div class="actions">
                {send(CONFIRMED, "button button-primary", t!("Save these changes"))}
                {send(BACK, "button", t!("Back to the form"))}
            </div>
            <p class="quiet">{t!("Saved, they are in force on every gateway within a second.")}</p>
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

fn rows(change: &LimitChange, confirm: &Confirm<'_>, format: &Format) -> Vec<AnyView> {
    let name = slot_name(&change.slot);
    let (before, after) = (change.before.as_ref(), change.after.as_ref());
    let value = |limit: Option<&Limit>| match limit {
        Some(limit) => value_and_source(limit, confirm.target, format),
        None => t!("no limit").to_owned(),
    };
    let mut rows = Vec::new();
    if before.map(|limit| limit.value) != after.map(|limit| limit.value) {
        let mark = mark(before.map(|limit| limit.value), after.map(|limit| limit.value));
        rows.push(row(name.clone(), value(before), value(after), mark));
    }
    let Some(after) = after else { return rows };
    let at = confirm.at;
    let were = before.map(|before| beside(before, &name, format));
    for (place, part) in beside(after, &name, format).into_iter().enumerate() {
        let was = were.as_ref().map(|were| were[place].text.clone());
        let is_told = was.as_ref().map_or(!part.is_usual, |was| *was != part.text);
        if is_told {
            rows.push(row(part.name, was.unwrap_or_default(), part.text, ().into_any()));
        }
    }
    if let Some(before) = before {
        let (was, then) = (increase(before, at, format), increase(after, at, format));
        if was != then {
            let mark = mark(Some(before.value_at(at)), Some(after.value_at(at)));
            rows.push(row(t!("{limit}: increase", limit = name), was, then, mark));
        }
    }
    rows
}

/// The value, and whose it is where that is not the target itself.
fn value_and_source(limit: &Limit, target: &Target, format: &Format) -> String {
    let value = match limit.value {
        0 if !limit.dimension.is_request_cap() => t!("0: admits nothing").to_owned(),
        value => value_text(limit.dimension, value, format),
    };
    match &limit.target {
        Target::OfPlan(..) if limit.target != *target => t!("{value}, from the plan", value),
        Target::OfTenant(_, class) if limit.target != *target => {
            t!("{value}, set for each {class}", value, class = class_name(*class))
        }
        _ => value,
    }
}

/// A part of what a limit has beside its value.
struct Part {
    name: String,
    text: String,
    /// Whether plain limits have it like this: of a new one nothing needs to be said then.
    is_usual: bool,
}

fn beside(limit: &Limit, name: &str, format: &Format) -> [Part; 4] {
    let part = |name: String, text: String, is_usual: bool| Part { name, text, is_usual };
    let tells_as_usual = !limit.dimension.is_budget() || limit.thresholds == Thresholds::default();
    let is_enforced = limit.mode == Mode::Enforce;
    [
        part(
            t!("{limit}: mode", limit = name),
            mode(limit.mode).to_owned(),
            is_enforced,
        ),
        part(
            t!("{limit}: burst", limit = name),
            burst(limit, format),
            limit.burst.is_none(),
        ),
        part(t!("{limit}: gates", limit = name), gates(limit), limit.gates.is_none()),
        part(t!("{limit}: tells at", limit = name), thresholds(limit), tells_as_usual),
    ]
}

fn mark(before: Option<u64>, after: Option<u64>) -> AnyView {
    match (before, after) {
        (Some(before), Some(after)) if after < before => badge(t!("↓ less"), Tone::Warning),
        (Some(before), Some(after)) if after == before => ().into_any(),
        (Some(_), Some(_)) => badge(t!("↑ more"), Tone::Quiet),
        (None, Some(_)) => badge(t!("+ new limit"), Tone::Warning),
        (Some(_), None) => badge(t!("− limit goes"), Tone::Warning),
        (None, None) => ().into_any(),
    }
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => t!("enforced"),
        Mode::Rehearse => t!("rehearsed: refuses nothing"),
    }
}

fn burst(limit: &Limit, format: &Format) -> String {
    limit.burst.map_or(t!("as usual").to_owned(), |burst| {
        value_text(limit.dimension, burst, format)
    })
}

fn gates(limit: &Limit) -> String {
    limit.gates.map_or(t!("none").to_owned(), words::gates)
}

fn thresholds(limit: &Limit) -> String {
    match limit.thresholds.to_string() {
        percents if percents.is_empty() => t!("nothing", in "thresholds of a budget").to_owned(),
        percents => t!("{percents} %", percents),
    }
}

fn increase(limit: &Limit, at: DateTime<Utc>, format: &Format) -> String {
    limit.increase_at(at).map_or(t!("none").to_owned(), |increase| {
        t!(
            "{value} until {time}",
            value = value_text(limit.dimension, increase.value, format),
            time = format.minute(increase.until)
        )
    })
}

/// Whom it concerns, in a sentence.
fn concerned(confirm: &Confirm<'_>) -> String {
    let affected = confirm.preview.affected;
    let tenants = affected.tenants;
    let name = confirm.name;
    match confirm.target {
        Target::Node(Scope::Global) => {
            tn!(
                tenants,
                "It concerns {n} tenant: all requests count here, beside their own limits.",
                "It concerns {n} tenants: all requests count here, beside their own limits."
            )
        }
        Target::Node(Scope::Model(_) | Scope::ModelGroup(_)) => {
            t!(
                "It concerns everybody who asks for {name}, beside their own limits.",
                name
            )
        }
        Target::Node(Scope::Upstream(_)) => {
            t!("It concerns every request that goes to {name}, whoever sends it.", name)
        }
        Target::Node(Scope::Tenant(_)) => tn!(
            affected.keys,
            "It concerns {name} as a whole, with {n} working key.",
            "It concerns {name} as a whole, with {n} working keys.",
            name
        ),
        Target::Node(Scope::User(..) | Scope::Key(_)) => t!("It concerns {name} alone.", name),
        Target::OfTenant(_, class) => {
            with_keeping(t!("It concerns {name}, on its own.", name), *class, affected.keeping)
        }
        Target::OfPlan(_, Class::Tenant) => with_keeping(
            tn!(
                tenants,
                "It concerns {n} tenant on the plan.",
                "It concerns {n} tenants on the plan."
            ),
            Class::Tenant,
            affected.keeping,
        ),
        Target::OfPlan(_, class) => tn!(
            tenants,
            "It concerns each {class} of {n} tenant on the plan. What a tenant sets for each {class} itself stays.",
            "It concerns each {class} of {n} tenants on the plan. What a tenant sets for each {class} itself stays.",
            class = class_name(*class)
        ),
    }
}

/// The sentence, and behind it how many of the class have a limit of their own.
fn with_keeping(concerned: String, class: Class, keeping: u64) -> String {
    let keeping = match keeping {
        0 => return concerned,
        1 => t!(
            "One {class} has a limit of its own here and keeps it.",
            class = class_name(class)
        ),
        keeping => t!(
            "{count} of them have a limit of their own here and keep it.",
            count = format::count(keeping)
        ),
    };
    words::sentences(concerned, keeping)
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
        .filter(|spent| *spent >= limit.value_at(confirm.at) && *spent > 0)?;
    let text = t!(
        "{limit}: {spent} is spent this month already, so its requests are refused until the next one.",
        limit = dimension_name(limit.dimension),
        spent = value_text(limit.dimension, spent, format)
    );
    Some(view! { <p class="notice notice-warning">{text}</p> }.into_any())
}

//! What saving limits would change, shown before it is done: slot by slot, for whom, and where children could then use more
//! than their parent.

use control::limits::{LimitChange, LimitsPreview, is_plain};
use control::rows::Spent;
use domain::limits::{Class, Limit, Mode, Scope, Target};
use leptos::prelude::*;
use serde::Serialize;

use super::words::{self, dimension_name, slot_name, value_text};
use crate::form::{BACK, CONFIRMED, Filled, STEP};
use crate::format::{self, Format};
use crate::submit::Refused;
use crate::table::{self, Tone, badge, words as texts};
use crate::words::class as class_name;

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

fn rows(change: &LimitChange, format: &Format) -> Vec<AnyView> {
    let name = slot_name(&change.slot);
    let value = |limit: &Option<Limit>| match limit {
        Some(limit) if limit.value == 0 && !limit.dimension.is_request_cap() => t!("0: admits nothing").to_owned(),
        Some(limit) => value_text(limit.dimension, limit.value, format),
        None => t!("no limit").to_owned(),
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
                t!("{limit}: mode", limit = name),
                String::new(),
                mode(Mode::Rehearse).to_owned(),
                ().into_any(),
            )
        }));
        return rows;
    };
    let limit = name.as_str();
    let further = [
        (
            t!("{limit}: mode", limit),
            mode(before.mode).to_owned(),
            mode(after.mode).to_owned(),
        ),
        (t!("{limit}: burst", limit), burst(before, format), burst(after, format)),
        (t!("{limit}: gates", limit), gates(before), gates(after)),
        (t!("{limit}: tells at", limit), thresholds(before), thresholds(after)),
        (
            t!("{limit}: increase", limit),
            increase(before, format),
            increase(after, format),
        ),
    ];
    rows.extend(
        further
            .into_iter()
            .filter(|(_, before, after)| before != after)
            .map(|(name, before, after)| row(name, before, after, ().into_any())),
    );
    rows
}

fn mark(change: &LimitChange) -> AnyView {
    match (&change.before, &change.after) {
        (Some(before), Some(after)) if after.value < before.value => badge(t!("↓ less"), Tone::Warning),
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

fn increase(limit: &Limit, format: &Format) -> String {
    limit.increase.map_or(t!("none").to_owned(), |increase| {
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
        .filter(|spent| *spent >= limit.value && *spent > 0)?;
    let text = t!(
        "{limit}: {spent} is spent this month already, so its requests are refused until the next one.",
        limit = dimension_name(limit.dimension),
        spent = value_text(limit.dimension, spent, format)
    );
    Some(view! { <p class="notice notice-warning">{text}</p> }.into_any())
}

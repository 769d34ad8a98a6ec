//! What the console proposes where limits are made, and why. A proposal is a link to the form of one limit, filled in; it
//! sets nothing by itself.

use control::limits::{NodeLimitsView, is_plain};
use domain::limits::{Class, Dimension, Gates, Scope, Target};
use leptos::prelude::*;

use super::words::dimension_name;
use super::{address_of_new, is_shared, place_of};
use crate::form::{Field, Filled};
use crate::format;
use crate::table::{self, figures, words as texts};

/// Gates of limits that many tenants share.
pub(super) const GATES: Gates = Gates {
    lower_percent: 70,
    upper_percent: 90,
    upper_waits: false,
};
/// Asks a limit's form, in its address, to propose gates.
pub(super) const PROPOSED: &str = "proposed";
/// What the whole installation may use of its providers' capacity: the rest is for retries and for other programs.
const GLOBAL_PERCENT: u64 = 80;
/// What a model may use of its capacity: the rest is head-room for the few requests that take very long.
const MODEL_PERCENT: u64 = 75;
/// What a provider's account may use of its own limit, so that the gateway refuses before the provider does.
const UPSTREAM_PERCENT: u64 = 90;
/// Requests a minute of one user.
const USER_REQUESTS: u64 = 20;
/// Requests at once of one key.
const KEY_CONCURRENCY: u64 = 5;
/// What providers commonly allow an account per minute: a name, requests, input tokens, output tokens.
const ACCOUNTS: [(&str, u64, u64, u64); 3] = [
    ("Small", 500, 200_000, 100_000),
    ("Medium", 1_000, 500_000, 250_000),
    ("Large", 2_000, 1_000_000, 500_000),
];

/// Whether limits of this dimension are proposed with gates, where they are shared. Budgets have gates only when set.
pub(super) fn has_gates(dimension: Dimension) -> bool {
    dimension.is_rate() || dimension == Dimension::Concurrency
}

/// The share of a stated capacity that a limit there is proposed at, in percent.
fn share_percent(target: &Target) -> Option<u64> {
    match target {
        Target::Node(Scope::Global) => Some(GLOBAL_PERCENT),
        Target::Node(Scope::ModelGroup(_) | Scope::Model(_)) => Some(MODEL_PERCENT),
        Target::Node(Scope::Upstream(_)) => Some(UPSTREAM_PERCENT),
        Target::Node(_) | Target::OfTenant(..) | Target::OfPlan(..) => None,
    }
}

/// The share of a stated capacity, rounded down.
pub(super) fn of_capacity(target: &Target, capacity: u64) -> Option<u64> {
    let percent = share_percent(target)?;
    u64::try_from(u128::from(capacity) * u128::from(percent) / 100).ok()
}

/// What a limit's form says about a value that came from a stated capacity.
pub(super) fn explained(target: &Target, capacity: u64) -> Option<String> {
    let percent = share_percent(target)?;
    Some(format!(
        "{percent} % of {}. Change it as you like.",
        format::count(capacity)
    ))
}

/// The card of proposals for this target; nothing where there are none.
pub(super) fn card(target: &Target, view: &NodeLimitsView) -> AnyView {
    let content = match target {
        Target::Node(Scope::Global) => view! {
            <p>
                {format!("Limit the installation to {GLOBAL_PERCENT} % of what its providers can carry together: the rest is room for retries, and for other programs that use the same accounts.")}
            </p>
            {capacity(target)}
        }
        .into_any(),
        Target::Node(Scope::ModelGroup(_) | Scope::Model(_)) => view! {
            <p>
                {format!("Limit a model to {MODEL_PERCENT} % of its capacity: the few requests that take very long need the head-room.")}
            </p>
            {capacity(target)}
        }
        .into_any(),
        Target::Node(Scope::Upstream(_)) => view! {
            <p>
                {format!("Stay at {UPSTREAM_PERCENT} % of what the provider allows the account, so that requests wait here instead of being refused there. What providers commonly allow:")}
            </p>
            {accounts(target)}
            <p>"Or state what this account may do:"</p>
            {capacity(target)}
        }
        .into_any(),
        Target::Node(Scope::User(..)) | Target::OfTenant(_, Class::User | Class::EndUser)
        | Target::OfPlan(_, Class::User | Class::EndUser) => single(
            target,
            view,
            Dimension::Requests,
            USER_REQUESTS,
            "requests a minute for a user: enough for a person at work, and one script in a loop does not take everything.",
        ),
        Target::Node(Scope::Key(_)) | Target::OfTenant(_, Class::Key) | Target::OfPlan(_, Class::Key) => single(
            target,
            view,
            Dimension::Concurrency,
            KEY_CONCURRENCY,
            "requests at once for a key: long answers then do not hold all the places.",
        ),
        Target::Node(Scope::Tenant(_)) | Target::OfTenant(_, Class::Tenant) | Target::OfPlan(_, Class::Tenant) => {
            return ().into_any();
        }
    };
    let gates = is_shared(target).then(|| {
        format!(
            "Proposals for what many tenants share come with gates: from {} % of the limit on low waits, from {} % on only \
             high and critical pass.",
            GATES.lower_percent, GATES.upper_percent
        )
    });
    view! {
        <section class="card">
            <h2>"Proposals"</h2>
            {content}
            <p class="quiet">{gates} " A proposal opens a form; nothing is set before you save it."</p>
        </section>
    }
    .into_any()
}

fn single(target: &Target, view: &NodeLimitsView, dimension: Dimension, value: u64, why: &'static str) -> AnyView {
    let action = if view.limits.iter().any(|limit| is_plain(limit, dimension)) {
        "There is such a limit already."
    } else {
        ""
    };
    let href = proposal(target, dimension, value);
    view! {
        <p>{format!("{value} {why} {action}")}</p>
        <p class="actions">
            <a class="button" href=href>{format!("Propose {value}")}</a>
        </p>
    }
    .into_any()
}

fn proposal(target: &Target, dimension: Dimension, value: u64) -> String {
    address_of_new(
        target,
        &[("dimension", dimension.as_str()), ("value", &value.to_string())],
    )
}

fn accounts(target: &Target) -> AnyView {
    let cell = |name: &str, dimension: Dimension, capacity: u64| {
        let value = of_capacity(target, capacity).unwrap_or(capacity);
        let label = format!(
            "{} {}: propose for a {} account",
            format::count(value),
            dimension_name(dimension).to_lowercase(),
            name.to_lowercase()
        );
        view! {
            <td class="number">
                <a href=proposal(target, dimension, value) aria-label=label>{format::count(value)}</a>
                " of "
                {format::count(capacity)}
            </td>
        }
    };
    let rows = ACCOUNTS
        .iter()
        .map(|(name, requests, input, output)| {
            view! {
                <tr>
                    <th scope="row">{*name}</th>
                    {cell(name, Dimension::Requests, *requests)}
                    {cell(name, Dimension::InputTokens, *input)}
                    {cell(name, Dimension::OutputTokens, *output)}
                </tr>
            }
            .into_any()
        })
        .collect();
    table::table(
        "Per minute; each figure is a proposal.",
        &[
            texts("Account"),
            figures("Requests"),
            figures("Input tokens"),
            figures("Output tokens"),
        ],
        rows,
    )
}

/// A form that asks for the capacity and leads to the limit's own form.
fn capacity(target: &Target) -> AnyView {
    let form = Filled::<()>::blank(());
    let (of, _) = place_of(target);
    let dimensions = Dimension::ALL
        .into_iter()
        .filter(|dimension| has_gates(*dimension))
        .map(|dimension| {
            let per = if dimension.is_rate() { " per minute" } else { "" };
            let name = format!("{}{per}", dimension_name(dimension));
            (dimension.as_str().to_owned(), name)
        })
        .collect();
    view! {
        <form class="filters" method="get" action="/limits/edit">
            <input type="hidden" name="of" value=of />
            {form.select(Field::new("dimension", "Limit"), "", dimensions)}
            {form.text(Field::new("capacity", "Stated capacity").whole().required(), "")}
            <div class="actions">
                <button class="button" type="submit">"Propose"</button>
            </div>
        </form>
    }
    .into_any()
}

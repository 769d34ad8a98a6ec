//! What the console proposes where limits are made, and why. A proposal is a link to the form of one limit, filled in; it
//! sets nothing by itself.

use control::limits::{NodeLimitsView, is_plain};
use domain::limits::{Class, Dimension, Gates, Scope, Target};
use leptos::prelude::*;

use super::words::{dimension_name, dimension_within, sentences};
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
/// What providers commonly allow an account per minute: its size, requests, input tokens, output tokens.
const ACCOUNTS: [(Size, u64, u64, u64); 3] = [
    (Size::Small, 500, 200_000, 100_000),
    (Size::Medium, 1_000, 500_000, 250_000),
    (Size::Large, 2_000, 1_000_000, 500_000),
];

/// How large an account at a provider is.
#[derive(Clone, Copy)]
enum Size {
    Small,
    Medium,
    Large,
}

impl Size {
    fn name(self) -> &'static str {
        match self {
            Self::Small => t!("Small", in "size of an account"),
            Self::Medium => t!("Medium", in "size of an account"),
            Self::Large => t!("Large", in "size of an account"),
        }
    }
}

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
    Some(t!(
        "{percent} % of {capacity}. Change it as you like.",
        percent,
        capacity = format::count(capacity)
    ))
}

/// The card of proposals for this target; nothing where there are none.
pub(super) fn card(target: &Target, view: &NodeLimitsView) -> AnyView {
    let content = match target {
        Target::Node(Scope::Global) => view! {
            <p>
                {t!(
                    "Limit the installation to {percent} % of what its providers can carry together: the rest is room \
                     for retries, and for other programs that use the same accounts.",
                    percent = GLOBAL_PERCENT
                )}
            </p>
            {capacity(target)}
        }
        .into_any(),
        Target::Node(Scope::ModelGroup(_) | Scope::Model(_)) => view! {
            <p>
                {t!(
                    "Limit a model to {percent} % of its capacity: the few requests that take very long need the \
                     head-room.",
                    percent = MODEL_PERCENT
                )}
            </p>
            {capacity(target)}
        }
        .into_any(),
        Target::Node(Scope::Upstream(_)) => view! {
            <p>
                {t!(
                    "Stay at {percent} % of what the provider allows the account, so that requests wait here instead \
                     of being refused there. What providers commonly allow:",
                    percent = UPSTREAM_PERCENT
                )}
            </p>
            {accounts(target)}
            <p>{t!("Or state what this account may do:")}</p>
            {capacity(target)}
        }
        .into_any(),
        Target::Node(Scope::User(..))
        | Target::OfTenant(_, Class::User | Class::EndUser)
        | Target::OfPlan(_, Class::User | Class::EndUser) => single(
            target,
            view,
            Dimension::Requests,
            USER_REQUESTS,
            t!(
                "{value} requests a minute for a user: enough for a person at work, and one script in a loop does not \
                 take everything.",
                value = USER_REQUESTS
            ),
        ),
        Target::Node(Scope::Key(_)) | Target::OfTenant(_, Class::Key) | Target::OfPlan(_, Class::Key) => single(
            target,
            view,
            Dimension::Concurrency,
            KEY_CONCURRENCY,
            t!(
                "{value} requests at once for a key: long answers then do not hold all the places.",
                value = KEY_CONCURRENCY
            ),
        ),
        Target::Node(Scope::Tenant(_)) | Target::OfTenant(_, Class::Tenant) | Target::OfPlan(_, Class::Tenant) => {
            return ().into_any();
        }
    };
    let form = t!("A proposal opens a form; nothing is set before you save it.");
    let explained = if is_shared(target) {
        let gates = t!(
            "Proposals for what many tenants share come with gates: from {lower} % of the limit on low waits, from \
             {upper} % on only high and critical pass.",
            lower = GATES.lower_percent,
            upper = GATES.upper_percent
        );
        sentences(gates, form)
    } else {
        form.to_owned()
    };
    view! {
        <section class="card">
            <h2>{t!("Proposals")}</h2>
            {content}
            <p class="quiet">{explained}</p>
        </section>
    }
    .into_any()
}

fn single(target: &Target, view: &NodeLimitsView, dimension: Dimension, value: u64, why: String) -> AnyView {
    let text = if view.limits.iter().any(|limit| is_plain(limit, dimension)) {
        sentences(why, t!("There is such a limit already."))
    } else {
        why
    };
    let href = proposal(target, dimension, value);
    view! {
        <p>{text}</p>
        <p class="actions">
            <a class="button" href=href>{t!("Propose {value}", value)}</a>
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
    let cell = |size: Size, dimension: Dimension, capacity: u64| {
        let value = of_capacity(target, capacity).unwrap_or(capacity);
        let label = t!(
            "{value} {limit}: propose for a {size} account",
            value = format::count(value),
            limit = dimension_within(dimension),
            size = size.name().to_lowercase()
        );
        let link = view! { <a href=proposal(target, dimension, value) aria-label=label>{format::count(value)}</a> };
        view! {
            <td class="number">
                {tv!("{value} of {capacity}", value = link, capacity = format::count(capacity))}
            </td>
        }
    };
    let rows = ACCOUNTS
        .iter()
        .map(|(size, requests, input, output)| {
            view! {
                <tr>
                    <th scope="row">{size.name()}</th>
                    {cell(*size, Dimension::Requests, *requests)}
                    {cell(*size, Dimension::InputTokens, *input)}
                    {cell(*size, Dimension::OutputTokens, *output)}
                </tr>
            }
            .into_any()
        })
        .collect();
    table::table(
        t!("Per minute; each figure is a proposal."),
        &[
            texts(t!("Account", in "at a provider")),
            figures(t!("Requests")),
            figures(t!("Input tokens")),
            figures(t!("Output tokens")),
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
            let what = dimension_name(dimension);
            let name = if dimension.is_rate() {
                t!("{what} per minute", what)
            } else {
                what.to_owned()
            };
            (dimension.as_str().to_owned(), name)
        })
        .collect();
    view! {
        <form class="filters" method="get" action="/limits/edit">
            <input type="hidden" name="of" value=of />
            {form.select(Field::new("dimension", t!("Limit")), "", dimensions)}
            {form.text(Field::new("capacity", t!("Stated capacity")).whole().required(), "")}
            <div class="actions">
                <button class="button" type="submit">{t!("Propose")}</button>
            </div>
        </form>
    }
    .into_any()
}

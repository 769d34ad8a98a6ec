//! The limits of a node or class: the plain ones in one form, all of them in a table, and proposals for those that are
//! missing.

pub(in crate::pages) mod confirm;
pub mod increase;
pub mod one;
mod proposals;
mod subject;
mod words;

use control::fields::Fields;
use control::limits::{NodeLimitsText, NodeLimitsView, field_of};
use control::oversubscription::Oversubscription;
use control::rows::Spent;
use domain::limits::{Class, Dimension, Limit, Scope, Target};
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::format::Format;
use crate::page::{self, Page};
use crate::pages::audit;
use crate::shell;
use crate::submit::{Done, Refused, parsed_id, press, submit};
use crate::table::{self, Tone, badge, figures, words as texts};
use crate::terms;
use crate::visit::{Visit, Visitor, address};

pub use words::{
    children, dimension_name, increase_note, per, reached, slot_name, used, used_of, value_in_force, value_text,
};

use confirm::{Confirm, Step};
use subject::{Subject, subject};

/// The fields, in three groups. `is_fixed` shows them to somebody who may only look.
pub fn fields<F>(form: &Filled<F>, values: &NodeLimitsText, format: &Format, is_fixed: bool) -> AnyView {
    let whole = |dimension, label: &str, value: &str| {
        let field = Field::new(field_of(dimension), label).whole();
        form.text(if is_fixed { field.fixed() } else { field }, value)
    };
    let cost = Field::new(
        field_of(Dimension::BudgetCost),
        t!("Budget per month ({currency})", currency = format.currency()),
    )
    .amount()
    .hint(t!(
        "Starts again on the first of each month, {zone} time.",
        zone = format.zone()
    ));
    view! {
        <fieldset>
            <legend>{t!("Budgets")}</legend>
            <p class="quiet">{t!("An empty field is no limit of its own. 0 admits nothing.")}</p>
            <div class="field-row">
                {form.text(if is_fixed { cost.fixed() } else { cost }, &values.monthly_cost)}
                {whole(Dimension::BudgetTokens, t!("Tokens per month"), &values.monthly_tokens)}
            </div>
        </fieldset>
        <fieldset>
            <legend>{t!("Limits per minute, and at once")}</legend>
            <div class="field-row">
                {whole(Dimension::Requests, t!("Requests / min"), &values.requests_per_minute)}
                {whole(Dimension::Concurrency, t!("Requests at once"), &values.concurrency)}
                {whole(Dimension::InputTokens, t!("Input tokens / min"), &values.input_tokens_per_minute)}
                {whole(Dimension::OutputTokens, t!("Output tokens / min"), &values.output_tokens_per_minute)}
                {whole(Dimension::TotalTokens, t!("All tokens / min"), &values.total_tokens_per_minute)}
            </div>
        </fieldset>
        <fieldset>
            <legend>{t!("Limits of a single request")}</legend>
            <div class="field-row">
                {whole(Dimension::RequestInputTokens, t!("Input tokens"), &values.request_input_tokens)}
                {whole(Dimension::RequestOutputTokens, t!("Output tokens"), &values.request_output_tokens)}
                {whole(Dimension::RequestSeconds, t!("Seconds", in "limit of a request"), &values.request_seconds)}
            </div>
        </fieldset>
    }
    .into_any()
}

/// The limits of one node, or of every node of a class: `of` is a scope as the ledger writes it or `plan:<id>`, `each` a
/// class within a tenant or plan.
pub fn edit() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let target = target_of(&visit)?;
        let view = visit.state.control.limits_of(&visitor.actor, &target).await?;
        let subject = subject(&visit, visitor, &target).await?;
        let (of, each) = place_of(&target);
        let form = Filled::new(visit.draft.clone(), SetLimits::PATH, || LimitsForm {
            of: of.clone(),
            each: each.to_owned(),
            version: view.version.to_string(),
            step: String::new(),
            limits: NodeLimitsText::from(&view.plain),
        });
        let title = t!("Limits of {name}", name = subject.name);
        if visitor.is_operator() && form.is_preview() {
            let card = preview(&visit, &target, &subject, &view, &form).await?;
            let content = view! { {shell::page_head(title.clone(), "", ().into_any())} {card} };
            return Ok(Page::new(title, content.into_any()));
        }
        let body = if visitor.is_operator() {
            let version = form.version(&form.values.version, &view.version.to_string()).to_owned();
            view! {
                {form.summary()}
                <form class="form" method="post" action=SetLimits::PATH>
                    <input type="hidden" name="of" value=of />
                    <input type="hidden" name="each" value=each />
                    <input type="hidden" name="version" value=version />
                    {fields(&form, &form.values.limits, &visit.format, false)}
                    <div class="actions">
                        <button class="button button-primary" type="submit">{t!("Show what changes")}</button>
                        <a class="button" href=subject.href.clone()>{t!("Back")}</a>
                    </div>
                    <p class="quiet">{t!("Changes are in force on every gateway within a second.")}</p>
                </form>
            }
            .into_any()
        } else {
            view! {
                <div class="form">{fields(&form, &form.values.limits, &visit.format, true)}</div>
                <p class="quiet">{t!("Only operators change these.")}</p>
            }
            .into_any()
        };
        let add = visitor
            .is_operator()
            .then(|| view! { <a class="button" href=address_of_new(&target, &[])>{t!("Add a limit")}</a> });
        let content = view! {
            {shell::page_head(
                title.clone(),
                subject.explanation,
                view! { {audit::history_of_target(visitor, &target)} {add} }.into_any(),
            )}
            {warnings(&visit, visitor, &target, &subject, &view).await?}
            <section class="card">{body}</section>
            {every(&visit, visitor, &target, &view)}
            {visitor.is_operator().then(|| proposals::card(&target, &view))}
        };
        Ok(Page::new(title, content.into_any()))
    })
}

/// What the form would change, as it was sent.
async fn preview(
    visit: &Visit,
    target: &Target,
    subject: &Subject,
    view: &NodeLimitsView,
    form: &Filled<LimitsForm>,
) -> Result<AnyView, PageError> {
    let mut fields = Fields::default();
    let wanted = form.values.limits.parse(&mut fields);
    fields.check()?;
    let control = &visit.state.control;
    let preview = control
        .preview_limits(visit.actor()?, target, view.version, &wanted, visit.now())
        .await?;
    let confirm = Confirm {
        target,
        name: &subject.name,
        preview: &preview,
        others: Vec::new(),
        spent: spent_of(visit, target).await?,
        at: visit.now(),
    };
    Ok(confirm::card(form, SetLimits::PATH, &confirm, &visit.format))
}

/// What a tenant has spent this month.
async fn spent_of(visit: &Visit, target: &Target) -> Result<Option<Spent>, PageError> {
    let Target::Node(Scope::Tenant(id)) = target else {
        return Ok(None);
    };
    let tenant = visit.state.control.tenant(visit.actor()?, *id, visit.now()).await?;
    Ok(Some(tenant.spent))
}

/// The page of a node's or class's limits.
pub fn address_of(target: &Target) -> String {
    let (of, each) = place_of(target);
    address("/limits", &[("of", &of), ("each", each)])
}

/// The page that adds a limit to it. With a dimension among `more`, its form.
fn address_of_new(target: &Target, more: &[(&str, &str)]) -> String {
    let (of, each) = place_of(target);
    let mut query = vec![("of", of.as_str()), ("each", each)];
    query.extend_from_slice(more);
    address("/limits/edit", &query)
}

/// How addresses and forms name a target: a scope or plan, and a class.
fn place_of(target: &Target) -> (String, &'static str) {
    match target {
        Target::Node(scope) => (scope.to_string(), ""),
        Target::OfTenant(tenant, class) => (Scope::Tenant(*tenant).to_string(), class.as_str()),
        Target::OfPlan(plan, class) => (format!("{PLAN}{plan}"), class.as_str()),
    }
}

/// What plans begin with, where others are scopes.
const PLAN: &str = "plan:";

fn parsed_target(of: &str, each: &str) -> Option<Target> {
    if let Some(plan) = of.strip_prefix(PLAN) {
        return Some(Target::OfPlan(plan.parse().ok()?, each.parse::<Class>().ok()?));
    }
    let scope: Scope = of.parse().ok()?;
    match (scope, each) {
        (scope, "") => Some(Target::Node(scope)),
        (Scope::Tenant(tenant), each) => Some(Target::OfTenant(tenant, each.parse::<Class>().ok()?)),
        _ => None,
    }
}

fn target_of(visit: &Visit) -> Result<Target, PageError> {
    let (of, each) = (
        visit.query("of").unwrap_or_default(),
        visit.query("each").unwrap_or_default(),
    );
    parsed_target(&of, &each).ok_or(PageError::NotFound)
}

/// Whether many tenants share it, so that priorities matter there.
fn is_shared(target: &Target) -> bool {
    matches!(target, Target::Node(scope) if !scope.is_own())
}

/// Where children may together use more than their parent: the node is the parent, or one of the children.
async fn warnings(
    visit: &Visit,
    visitor: &Visitor,
    target: &Target,
    subject: &Subject,
    view: &NodeLimitsView,
) -> Result<AnyView, PageError> {
    let can_be_parent = matches!(target, Target::Node(Scope::Global | Scope::Tenant(_)));
    if visitor.is_member() || !(can_be_parent || subject.parent.is_some()) {
        return Ok(().into_any());
    }
    let found = visit
        .state
        .control
        .oversubscriptions(&visitor.actor, visit.now())
        .await?;
    let concerns = |one: &&Oversubscription| {
        let is_parent = *target == Target::Node(one.parent.clone());
        let is_child = subject.parent.as_ref() == Some(&(one.parent.clone(), one.each))
            && view.limits.iter().any(|limit| limit.slot() == one.slot);
        is_parent || is_child
    };
    Ok(found
        .iter()
        .filter(concerns)
        .map(|one| warning(one, *target == Target::Node(one.parent.clone()), &visit.format))
        .collect_view()
        .into_any())
}

fn warning(one: &Oversubscription, is_parent: bool, format: &Format) -> AnyView {
    let dimension = one.slot.dimension;
    let children = children(one.each, one.children_count);
    let limit = slot_name(&one.slot);
    let sum = value_text(dimension, one.children_sum, format);
    let value = value_text(dimension, one.parent_value, format);
    let sums = match (is_parent, &one.parent) {
        (true, _) => t!(
            "{limit}: {children} may use {sum} together, and there are only {value}.",
            limit,
            children,
            sum,
            value
        ),
        (false, Scope::Global) => t!(
            "{limit}: {children} may use {sum} together, and the whole installation has only {value}.",
            limit,
            children,
            sum,
            value
        ),
        (false, _) => t!(
            "{limit}: {children} may use {sum} together, and their tenant has only {value}.",
            limit,
            children,
            sum,
            value
        ),
    };
    let text = words::sentences(
        sums,
        t!("When all of them are busy, some are refused although their own limit has room."),
    );
    view! { <p class="notice notice-warning">{text}</p> }.into_any()
}

/// Every limit that sits here, the plain ones and those that the form has no field for.
fn every(visit: &Visit, visitor: &Visitor, target: &Target, view: &NodeLimitsView) -> AnyView {
    let operator = visitor.is_operator();
    if view.limits.is_empty() {
        let add =
            operator.then(|| view! { <a class="button" href=address_of_new(target, &[])>{t!("Add a limit")}</a> });
        return view! {
            <section class="card">
                <h2>{t!("All limits here")}</h2>
                {table::empty(
                    t!(
                        "None yet. The form above makes the common ones; adding one by one gives you other windows and \
                         periods, limits of one model or priority, gates and rehearsal."
                    ),
                    add.into_any(),
                )}
            </section>
        }
        .into_any();
    }
    let rows = view
        .limits
        .iter()
        .map(|limit| row(limit, operator.then_some(view.version), target, visit))
        .collect();
    view! {
        <section class="card">
            <h2>{t!("All limits here")}</h2>
            {table::table(
                t!(
                    "The form above shows the plain ones: enforced or rehearsed, per minute or month, for all models \
                     and priorities."
                ),
                &[
                    texts(t!("Limit")),
                    figures(t!("Value")),
                    texts(t!("Per", in "limit")),
                    texts(t!("Model")),
                    texts(t!("Priority")),
                    texts(t!("Mode")),
                    texts(t!("Gates")),
                    texts(t!("Actions")),
                ],
                rows,
            )}
        </section>
    }
    .into_any()
}

fn row(limit: &Limit, version: Option<i64>, target: &Target, visit: &Visit) -> AnyView {
    let format = &visit.format;
    let burst = limit.burst.map(|burst| {
        let burst = value_text(limit.dimension, burst, format);
        view! { " " <small>{t!("burst {burst}", burst)}</small> }
    });
    let mode = match limit.mode {
        domain::limits::Mode::Enforce => badge(t!("enforced"), Tone::Good),
        domain::limits::Mode::Rehearse => badge(t!("rehearsed"), Tone::Warning),
    };
    view! {
        <tr>
            <th scope="row">{dimension_name(limit.dimension)}</th>
            <td class="number">{value_in_force(limit, visit.now(), format)}</td>
            <td>{per(&limit.slot())} {burst}</td>
            <td>{limit.model.as_ref().map_or(t!("all").to_owned(), |model| model.to_string())}</td>
            <td>{limit.priority.map_or(t!("all"), terms::priority)}</td>
            <td>{mode}</td>
            <td class="nowrap">{gates(limit, version.is_some(), target)}</td>
            <td class="row-actions">{version.map(|version| row_actions(limit, version, target))}</td>
        </tr>
    }
    .into_any()
}

fn gates(limit: &Limit, can_edit: bool, target: &Target) -> AnyView {
    if let Some(gates) = limit.gates {
        return words::gates(gates).into_any();
    }
    if !can_edit || !is_shared(target) || !proposals::has_gates(limit.dimension) {
        return t!("none").into_any();
    }
    let id = limit.id.to_string();
    let href = address_of_new(target, &[("limit", &id), ("gates", proposals::PROPOSED)]);
    let (lower, upper) = (proposals::GATES.lower_percent, proposals::GATES.upper_percent);
    let add = t!("add {lower} and {upper} %", lower, upper);
    let label = t!(
        "add {lower} and {upper} % to the limit on {limit}",
        lower,
        upper,
        limit = words::dimension_within(limit.dimension)
    );
    tv!("none: {link}", link = view! { <a href=href aria-label=label>{add}</a> })
}

fn row_actions(limit: &Limit, version: i64, target: &Target) -> AnyView {
    let id = limit.id.to_string();
    let name = slot_name(&limit.slot());
    let (of, each) = place_of(target);
    let edit = address_of_new(target, &[("limit", &id)]);
    view! {
        <div class="actions actions-end">
            <a class="button" href=edit aria-label=t!("Edit the limit: {limit}", limit = name.as_str())>{t!("Edit")}</a>
            // One more step, which says what holds afterwards.
            <details class="ask">
                <summary class="button" aria-label=t!("Remove the limit: {limit}", limit = name)>
                    {t!("Remove")}
                </summary>
                <form method="post" action=RemoveLimit::PATH>
                    <input type="hidden" name="of" value=of />
                    <input type="hidden" name="each" value=each />
                    <input type="hidden" name="version" value=version.to_string() />
                    <input type="hidden" name="limit" value=id />
                    <p>{words::after_removal(target, limit.dimension)}</p>
                    <button class="button button-danger" type="submit">{t!("Remove this limit")}</button>
                </form>
            </details>
        </div>
    }
    .into_any()
}

/// What the form of the plain limits sends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitsForm {
    of: String,
    each: String,
    version: String,
    step: String,
    #[serde(flatten)]
    limits: NodeLimitsText,
}

/// Sets a node's plain limits.
#[server(prefix = "/console", endpoint = "limits/set")]
pub async fn set_limits(#[server(flatten)] form: LimitsForm) -> Result<(), ServerFnError> {
    let back = address("/limits", &[("of", &form.of), ("each", &form.each)]);
    let to = back.clone();
    submit(
        SetLimits::PATH,
        &back,
        form,
        |visit: Visit, form: LimitsForm| async move {
            let target = parsed_target(&form.of, &form.each).ok_or(PageError::Malformed)?;
            let version = parsed_id(&form.version)?;
            let step = Step::read(&form.step)?;
            let mut fields = Fields::default();
            let limits = form.limits.parse(&mut fields);
            fields.check()?;
            let (control, actor) = (&visit.state.control, visit.actor()?);
            if step == Step::Ask {
                let preview = control.preview_limits(actor, &target, version, &limits, visit.now());
                if !preview.await?.changes.is_empty() {
                    return Err(Refused::Unconfirmed);
                }
            }
            control
                .set_limits(actor, &target, version, &limits, visit.now())
                .await?;
            Ok::<_, Refused>(Done::say(to, t!("Saved.")))
        },
    )
    .await
}

/// Which limit, where, as last read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitChoice {
    of: String,
    each: String,
    version: String,
    limit: String,
}

/// Takes one limit away.
#[server(prefix = "/console", endpoint = "limits/remove")]
pub async fn remove_limit(#[server(flatten)] form: LimitChoice) -> Result<(), ServerFnError> {
    let back = address("/limits", &[("of", &form.of), ("each", &form.each)]);
    let to = back.clone();
    press(&back, |visit: Visit| async move {
        let target = parsed_target(&form.of, &form.each).ok_or(PageError::Malformed)?;
        let (version, id) = (parsed_id(&form.version)?, parsed_id(&form.limit)?);
        let (control, actor) = (&visit.state.control, visit.actor()?);
        let view = control.limits_of(actor, &target).await?;
        let removed = view.limits.into_iter().find(|limit| limit.id == id);
        control.clear_limit(actor, &target, version, id, visit.now()).await?;
        let done = Done::say(to, t!("The limit was removed; every gateway knows within a second."));
        Ok::<_, Refused>(match removed {
            Some(limit) => done.with_link(one::address_again(&target, &limit), t!("Add it again")),
            None => done,
        })
    })
    .await
}

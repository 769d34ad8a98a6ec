//! Tenants: the list, a new one, and one with its budgets and limits.

pub mod key_rules;

use chrono::{DateTime, Utc};
use control::ControlError;
use control::fields::Fields;
use control::limits::{NodeLimitsText, is_plain};
use control::plans::LimitSources;
use control::rows::{PlanRow, Spent};
use control::tenants::{TenantDraft, TenantSummary, TenantVersions, TenantView};
use domain::ids::{PlanId, TenantId};
use domain::limits::{Class, Dimension, Limit, Mode, Scope, Target};
use domain::policy::Tenant;
use domain::priority::Priority;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::format::{self, Format};
use crate::page::{self, Page, id_of_path};
use crate::pages::limits::confirm::{self, Confirm, Step};
use crate::pages::{audit, budget_events, limits};
use crate::shell;
use crate::submit::{Done, Refused, parsed_id, press, submit};
use crate::table::{self, Tone, badge, facts, figures, words};
use crate::tables::{Column, Listing, Named, by, by_text};
use crate::terms;
use crate::visit::{Visit, Visitor};
use terms::priority;

/// Every tenant with what it has spent this month.
pub fn list() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let tenants = visit.state.control.tenants(&visitor.actor, visit.now()).await?;
        let new = || {
            visitor
                .is_operator()
                .then(|| view! { <a class="button button-primary" href="/tenants/new">{t!("New tenant")}</a> })
        };
        let head = (!tenants.is_empty()).then(new);
        let listed = if tenants.is_empty() {
            table::empty(
                t!(
                    "No tenants yet. A tenant is an organisation or team with its own people, keys, limits and budgets: make \
                    one, give it a budget, then issue its first key and invite who runs it."
                ),
                new().into_any(),
            )
        } else {
            let caption = tn!(
                tenants.len() as u64,
                "{n} tenant, with what they have spent this month.",
                "{n} tenants, with what they have spent this month."
            );
            let listing = Listing::new(&visit, columns(visit.now()), tenants, &[], |tenant| {
                let plan = tenant.row.plan_name.as_deref().unwrap_or_default();
                format!("{} {plan} {}", tenant.row.tenant.name, tenant.row.tenant.id)
            })?;
            listing.view(
                caption,
                &Named {
                    counted: |n| tn!(n, "{n} tenant", "{n} tenants"),
                    find: t!("Find among the tenants"),
                },
                |tenant| row(tenant, visit.now(), &visit.format),
            )
        };
        let title = if visitor.is_manager() {
            t!("My tenant")
        } else {
            t!("Tenants")
        };
        let lead = t!("Who uses the gateway, and how much they may spend.");
        let content = view! {
            {shell::page_head(title, lead, head.into_any())}
            {listed}
        };
        Ok(Page::new(t!("Tenants"), content.into_any()))
    })
}

fn columns(at: DateTime<Utc>) -> Vec<Column<TenantSummary>> {
    let budget = move |tenant: &TenantSummary| tenant.cost_budget.as_ref().map(|budget| budget.value_at(at));
    let used = move |tenant: &TenantSummary| {
        let value = i64::try_from(budget(tenant)?).unwrap_or(i64::MAX);
        format::percent(tenant.spent.cost.0, value)
    };
    vec![
        by_text(words(t!("Name")), "name", |tenant: &TenantSummary| {
            &tenant.row.tenant.name
        })
        .natural(),
        by(words(t!("State")), "state", |one: &TenantSummary, other| {
            let is_suspended = |tenant: &TenantSummary| tenant.row.tenant.suspended_at.is_some();
            is_suspended(one).cmp(&is_suspended(other))
        }),
        by_text(words(t!("Plan")), "plan", |tenant| {
            tenant.row.plan_name.as_deref().unwrap_or_default()
        }),
        by(
            words(t!("Highest priority")),
            "priority",
            |one: &TenantSummary, other| {
                one.row
                    .priority_ceiling_in_force
                    .cmp(&other.row.priority_ceiling_in_force)
            },
        ),
        by(figures(t!("Spent")), "spent", |one: &TenantSummary, other| {
            one.spent.cost.cmp(&other.spent.cost)
        }),
        by(figures(t!("Budget")), "budget", move |one, other| {
            budget(one).cmp(&budget(other))
        }),
        by(words(t!("Used")), "used", move |one, other| used(one).cmp(&used(other))),
        by(figures(t!("Tokens")), "tokens", |one: &TenantSummary, other| {
            one.spent.tokens.cmp(&other.spent.tokens)
        }),
    ]
}

fn row(summary: &TenantSummary, at: DateTime<Utc>, format: &Format) -> AnyView {
    let tenant = &summary.row.tenant;
    let href = format!("/tenants/{}", tenant.id);
    let budget = summary.cost_budget.as_ref();
    let used = budget.map(|budget| limits::used(budget, summary.spent.cost.0, &tenant.name, at));
    let budget = match budget {
        Some(budget) => limits::value_in_force(budget, at, format),
        None => t!("none").into_any(),
    };
    view! {
        <tr>
            <th scope="row">
                <a href=href>{tenant.name.clone()}</a>
            </th>
            <td>{state(tenant)}</td>
            <td>{summary.row.plan_name.clone().unwrap_or_else(|| t!("none").to_owned())}</td>
            <td>{priority(summary.row.priority_ceiling_in_force)}</td>
            <td class="number">{format.money(summary.spent.cost)}</td>
            <td class="number">{budget}</td>
            <td>{used}</td>
            <td class="number">{format::signed_count(summary.spent.tokens)}</td>
        </tr>
    }
    .into_any()
}

fn state(tenant: &Tenant) -> AnyView {
    if tenant.suspended_at.is_some() {
        badge(t!("suspended"), Tone::Bad)
    } else {
        badge(t!("active"), Tone::Good)
    }
}

/// The form for a new tenant.
pub fn new() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        if !visitor.is_operator() {
            return Err(PageError::Forbidden);
        }
        let plans = visit.state.control.plans(&visitor.actor).await?;
        let form = Filled::new(visit.draft.clone(), CreateTenant::PATH, TenantForm::default);
        let lead = t!("An organisation or team with its own people, keys, limits and budgets.");
        let content = view! {
            {shell::page_head(t!("New tenant"), lead, ().into_any())}
            <section class="card">
                {form.summary()}
                <form class="form" method="post" action=CreateTenant::PATH>
                    {tenant_fields(&form, &plans, &visit.format, false)}
                    <div class="actions">
                        <button class="button button-primary" type="submit">{t!("Create tenant")}</button>
                        <a class="button" href="/tenants">{t!("Cancel")}</a>
                    </div>
                </form>
            </section>
        };
        Ok(Page::new(t!("New tenant"), content.into_any()))
    })
}

/// One tenant: what it has spent, and the form that changes it.
pub fn edit() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let id: TenantId = id_of_path(&visit, "/tenants/")?;
        let tenant = visit.state.control.tenant(&visitor.actor, id, visit.now()).await?;
        let name = tenant.row.tenant.name.clone();
        if let Some(card) = preview(&visit, visitor, &tenant).await? {
            let content = view! { {shell::page_head(name.clone(), "", ().into_any())} {card} };
            return Ok(Page::new(name, content.into_any()));
        }
        let content = view! {
            {shell::page_head(name.clone(), "", links(id, visitor))}
            {spent(&tenant, visit.now(), &visit.format)}
            {budget_events::latest(&visit, visitor, Some(id)).await?}
            {editor(&visit, visitor, &tenant).await?}
            {key_rules::card(&visit, visitor, &tenant).await?}
            {sources(&visit, visitor, &tenant).await?}
            {visitor.is_operator().then(|| suspension(&tenant))}
        };
        Ok(Page::new(name, content.into_any()))
    })
}

/// What the form would change, once it was sent.
async fn preview(visit: &Visit, visitor: &Visitor, tenant: &TenantView) -> Result<Option<AnyView>, PageError> {
    let form: Filled<TenantForm> = Filled::new(visit.draft.clone(), EditTenant::PATH, TenantForm::default);
    if !visitor.is_operator() || !form.is_preview() {
        return Ok(None);
    }
    let id = tenant.row.tenant.id;
    let draft = form.values.draft()?;
    let control = &visit.state.control;
    let preview = control
        .preview_tenant(&visitor.actor, id, tenant.versions(), &draft, visit.now())
        .await?;
    let plans = control.plans(&visitor.actor).await?;
    let target = Target::Node(Scope::Tenant(id));
    let confirm = Confirm {
        target: &target,
        name: &t!("the tenant {name}", name = tenant.row.tenant.name),
        preview: &preview,
        others: other_changes(tenant, &draft, &plans),
        spent: Some(tenant.spent),
        at: visit.now(),
    };
    Ok(Some(confirm::card(&form, EditTenant::PATH, &confirm, &visit.format)))
}

/// What the form changes beside limits.
fn other_changes(tenant: &TenantView, draft: &TenantDraft, plans: &[PlanRow]) -> Vec<(&'static str, String, String)> {
    let row = &tenant.row.tenant;
    let plan = |id: Option<PlanId>| {
        let found = plans.iter().find(|row| Some(row.plan.id) == id);
        found.map_or_else(|| t!("none").to_owned(), |row| row.plan.name.clone())
    };
    let ceiling = |ceiling: Option<Priority>| ceiling.map_or(t!("the plan's, or high"), priority).to_owned();
    [
        (t!("Name"), row.name.clone(), draft.name.trim().to_owned()),
        (t!("Plan"), plan(row.plan_id), plan(draft.plan_id)),
        (
            t!("Highest priority"),
            ceiling(row.priority_ceiling),
            ceiling(draft.priority_ceiling),
        ),
        (
            t!("Strict budgets"),
            yes(row.has_strict_budgets).to_owned(),
            yes(draft.has_strict_budgets).to_owned(),
        ),
    ]
    .into_iter()
    .filter(|(_, before, after)| before != after)
    .collect()
}

fn yes(is_so: bool) -> &'static str {
    if is_so { t!("yes") } else { t!("no") }
}

fn links(id: TenantId, visitor: &Visitor) -> AnyView {
    let keys = format!("/keys?tenant={id}");
    let ledger = format!("/ledger?tenant={id}");
    let issue = visitor.issues_keys().then(|| {
        let href = format!("/keys/new?tenant={id}");
        view! { <a class="button button-primary" href=href>{t!("Issue a key")}</a> }
    });
    view! {
        <a class="button" href=keys>{t!("Keys")}</a>
        <a class="button" href=ledger>{t!("Ledger")}</a>
        {audit::history_of_target(visitor, &Target::Node(Scope::Tenant(id)))}
        {issue}
    }
    .into_any()
}

/// What the tenant and each node below it may use, and where that comes from.
async fn sources(visit: &Visit, visitor: &Visitor, tenant: &TenantView) -> Result<AnyView, PageError> {
    let id = tenant.row.tenant.id;
    let sources = visit.state.control.limit_sources(&visitor.actor, id).await?;
    let plan = tenant.row.plan_name.as_deref().unwrap_or(t!("the plan"));
    let rows: Vec<AnyView> = sources
        .iter()
        .flat_map(|source| source_rows(source, plan, visit))
        .collect();
    let pages = sources
        .iter()
        .map(|source| {
            let href = limits::address_of(&target_of(id, source.class));
            let text = match source.class {
                Class::Tenant => t!("All limits of the tenant"),
                Class::User => t!("Limits of each user"),
                Class::EndUser => t!("Limits of each end user"),
                Class::Key => t!("Limits of each key"),
            };
            view! { <a class="button" href=href>{text}</a> }
        })
        .collect_view();
    let plan_page = match tenant.row.tenant.plan_id {
        Some(plan_id) if visitor.sees_everything() => {
            view! { " " <a href=format!("/plans/{plan_id}")>{t!("The plan {plan}", plan)}</a> }.into_any()
        }
        _ => ().into_any(),
    };
    let listed = if rows.is_empty() {
        table::empty(
            t!("Nothing is limited here yet, beyond what holds for the whole installation and its models."),
            ().into_any(),
        )
    } else {
        table::table(
            t!("Its own limits replace those of its plan, one by one."),
            &[
                words(t!("For", in "whom a limit is for")),
                words(t!("Limit")),
                figures(t!("Value")),
                words(t!("From", in "where a limit comes from")),
            ],
            rows,
        )
    };
    Ok(view! {
        <section class="card">
            <div class="card-head">
                <h2>{t!("Limits in force")}</h2>
                {plan_page}
            </div>
            {listed}
            <p class="actions">{pages}</p>
        </section>
    }
    .into_any())
}

fn source_rows(source: &LimitSources, plan: &str, visit: &Visit) -> Vec<AnyView> {
    let (at, format) = (visit.now(), &visit.format);
    let class = match source.class {
        Class::Tenant => t!("the tenant"),
        Class::User => t!("each user"),
        Class::EndUser => t!("each end user"),
        Class::Key => t!("each key"),
    };
    let value = |limit: &Limit| limits::value_text(limit.dimension, limit.value_at(at), format);
    let row = |limit: &Limit, from: String| {
        let rehearsed = (limit.mode == Mode::Rehearse).then(|| view! { " " {badge(t!("rehearsed"), Tone::Warning)} });
        view! {
            <tr>
                <td>{class}</td>
                <th scope="row">{limits::slot_name(&limit.slot())} {rehearsed}</th>
                <td class="number">{limits::value_in_force(limit, at, format)}</td>
                <td>{from}</td>
            </tr>
        }
        .into_any()
    };
    let own = source.own.iter().map(|limit| {
        let from = match source.replaced_by(limit) {
            Some(replaced) => t!(
                "its own, in place of {value} from {plan}",
                value = value(replaced),
                plan
            ),
            None => t!("its own").to_owned(),
        };
        row(limit, from)
    });
    let from_plan = source.from_plan().map(|limit| row(limit, plan.to_owned()));
    own.chain(from_plan).collect()
}

fn target_of(id: TenantId, class: Class) -> Target {
    match class {
        Class::Tenant => Target::Node(Scope::Tenant(id)),
        Class::User | Class::EndUser | Class::Key => Target::OfTenant(id, class),
    }
}

fn spent(tenant: &TenantView, at: DateTime<Utc>, format: &Format) -> AnyView {
    let Spent { cost, tokens } = tenant.spent;
    let budget = |dimension, spent: i64, label: &'static str| {
        let mut budgets = tenant.limits.limits.iter();
        let budget = budgets.find(|limit| is_plain(limit, dimension))?;
        Some(limits::used_of(budget, spent, label, at, format))
    };
    let cost_budget = budget(Dimension::BudgetCost, cost.0, t!("Budget"));
    let token_budget = budget(Dimension::BudgetTokens, tokens, t!("Token budget"));
    view! {
        <dl class="stats">
            <div class="stat">
                <dt>{t!("Spent this month")}</dt>
                <dd><span class="figure">{format.money(cost)}</span> {cost_budget}</dd>
            </div>
            <div class="stat">
                <dt>{t!("Tokens this month")}</dt>
                <dd><span class="figure">{format::signed_count(tokens)}</span> {token_budget}</dd>
            </div>
            <div class="stat">
                <dt>{t!("State")}</dt>
                <dd>{state(&tenant.row.tenant)}</dd>
            </div>
        </dl>
    }
    .into_any()
}

async fn editor(visit: &Visit, visitor: &Visitor, tenant: &TenantView) -> Result<AnyView, PageError> {
    let row = &tenant.row;
    let form = Filled::new(visit.draft.clone(), EditTenant::PATH, || TenantForm::of(tenant));
    if !visitor.is_operator() {
        let ceiling = priority(row.priority_ceiling_in_force);
        let strict = yes(row.tenant.has_strict_budgets);
        let plan = row.plan_name.clone().unwrap_or_else(|| t!("none").to_owned());
        return Ok(view! {
            <section class="card">
                <h2>{t!("Limits and budgets")}</h2>
                {facts(vec![
                    (t!("Highest priority"), ceiling.into_any()),
                    (t!("Strict budgets"), strict.into_any()),
                    (t!("Plan"), plan.into_any()),
                ])}
                <div class="form">{limits::fields(&form, &form.values.limits, &visit.format, true)}</div>
                <p class="quiet">{t!("Only operators change these.")}</p>
            </section>
        }
        .into_any());
    }
    let plans = visit.state.control.plans(&visitor.actor).await?;
    let versions = form
        .version(&form.values.versions, &versions_text(tenant.versions()))
        .to_owned();
    Ok(view! {
        <section class="card">
            {form.summary()}
            <form class="form" method="post" action=EditTenant::PATH>
                <input type="hidden" name="id" value=row.tenant.id.to_string() />
                <input type="hidden" name="versions" value=versions />
                {tenant_fields(&form, &plans, &visit.format, true)}
                <div class="actions">
                    <button class="button button-primary" type="submit">{t!("Save")}</button>
                </div>
                <p class="quiet">{t!("Changes are in force on every gateway within a second.")}</p>
            </form>
        </section>
    }
    .into_any())
}

fn tenant_fields(form: &Filled<TenantForm>, plans: &[PlanRow], format: &Format, exists: bool) -> AnyView {
    let values = &form.values;
    let plan_choices = std::iter::once((String::new(), t!("No plan").to_owned()))
        .chain(plans.iter().map(|row| (row.plan.id.to_string(), row.plan.name.clone())))
        .collect();
    let plan = (!plans.is_empty()).then(|| {
        let field = Field::new("plan_id", t!("Plan")).hint(t!(
            "Its limits and priority hold where this tenant has none of its own."
        ));
        form.select(field, &values.plan_id, plan_choices)
    });
    let ceilings = std::iter::once((String::new(), t!("The plan's, or high").to_owned()))
        .chain(Priority::ALL.map(|ceiling| (ceiling.as_str().to_owned(), priority(ceiling).to_owned())))
        .collect();
    let name = Field::new("name", t!("Name")).required();
    let name = if exists { name } else { name.placeholder(t!("Research")) };
    view! {
        <fieldset>
            <legend>{t!("Tenant")}</legend>
            {form.text(name, &values.name)}
            <div class="field-row">
                {plan}
                {form.select(
                    Field::new("priority_ceiling", t!("Highest priority")).hint(t!("Its keys never run above it.")),
                    &values.priority_ceiling,
                    ceilings,
                )}
            </div>
            {form.check(
                Field::new("has_strict_budgets", t!("Strict budgets"))
                    .hint(t!("Requests that state no output cap get one written in, so that a budget is a promise.")),
                values.has_strict_budgets == "on",
            )}
        </fieldset>
        {limits::fields(form, &values.limits, format, false)}
    }
    .into_any()
}

fn suspension(tenant: &TenantView) -> AnyView {
    let id = tenant.row.tenant.id.to_string();
    let version = tenant.row.version.to_string();
    let (heading, text) = if tenant.row.tenant.suspended_at.is_some() {
        (
            t!("Resume", in "a suspended tenant"),
            t!("All requests of this tenant are refused with tenant_suspended."),
        )
    } else {
        (
            t!("Suspend"),
            t!("Refuses all requests of this tenant until it is resumed. Keys and settings stay."),
        )
    };
    let form = if tenant.row.tenant.suspended_at.is_some() {
        view! {
            <form method="post" action=ResumeTenant::PATH>
                <input type="hidden" name="id" value=id />
                <input type="hidden" name="version" value=version />
                <button class="button button-primary" type="submit">{t!("Resume tenant")}</button>
            </form>
        }
        .into_any()
    } else {
        let suspend = t!("Suspend {name}", name = tenant.row.tenant.name);
        view! {
            <details class="steps">
                <summary>{t!("Suspend this tenant")}</summary>
                {suspending()}
                <form method="post" action=SuspendTenant::PATH>
                    <input type="hidden" name="id" value=id />
                    <input type="hidden" name="version" value=version />
                    <button class="button button-danger" type="submit">{suspend}</button>
                </form>
            </details>
        }
        .into_any()
    };
    view! {
        <section class="card">
            <h2>{heading}</h2>
            <p>{text}</p>
            {form}
        </section>
    }
    .into_any()
}

/// What happens when a tenant is suspended.
fn suspending() -> AnyView {
    let refused = tv!(
        "From the next second on each of its requests is refused with {code}, those that wait for room too.",
        code = view! { <code>"tenant_suspended"</code> },
    );
    table::consequences(vec![
        refused,
        t!("Requests under way end as they would.").into_any(),
        t!("Its people can still sign in.").into_any(),
        t!("Its keys, limits and budgets stay as they are: resuming it is one press of a button.").into_any(),
    ])
}

/// What the forms of a tenant send.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantForm {
    id: String,
    versions: String,
    step: String,
    name: String,
    plan_id: String,
    priority_ceiling: String,
    has_strict_budgets: String,
    #[serde(flatten)]
    limits: NodeLimitsText,
}

impl TenantForm {
    fn of(tenant: &TenantView) -> Self {
        let row = &tenant.row.tenant;
        Self {
            id: row.id.to_string(),
            versions: versions_text(tenant.versions()),
            step: String::new(),
            name: row.name.clone(),
            plan_id: row.plan_id.map(|plan| plan.to_string()).unwrap_or_default(),
            priority_ceiling: row
                .priority_ceiling
                .map(|ceiling| ceiling.as_str().to_owned())
                .unwrap_or_default(),
            has_strict_budgets: if row.has_strict_budgets { "on" } else { "" }.to_owned(),
            limits: NodeLimitsText::from(&tenant.limits.plain),
        }
    }

    fn draft(&self) -> Result<TenantDraft, ControlError> {
        let mut fields = Fields::default();
        let plan_id = fields.word("plan_id", &self.plan_id);
        let priority_ceiling = fields.word("priority_ceiling", &self.priority_ceiling);
        let limits = self.limits.parse(&mut fields);
        fields.check()?;
        Ok(TenantDraft {
            name: self.name.clone(),
            plan_id,
            priority_ceiling,
            has_strict_budgets: self.has_strict_budgets == "on",
            limits,
        })
    }
}

fn versions_text(versions: TenantVersions) -> String {
    format!("{}.{}", versions.tenant, versions.limits)
}

fn parsed_versions(text: &str) -> Result<TenantVersions, Refused> {
    text.split_once('.')
        .and_then(|(tenant, limits)| {
            Some(TenantVersions {
                tenant: tenant.parse().ok()?,
                limits: limits.parse().ok()?,
            })
        })
        .ok_or(Refused::Page(PageError::Malformed))
}

/// Makes a tenant.
#[server(prefix = "/console", endpoint = "tenants/create")]
pub async fn create_tenant(#[server(flatten)] form: TenantForm) -> Result<(), ServerFnError> {
    submit(
        CreateTenant::PATH,
        "/tenants/new",
        form,
        |visit: Visit, form: TenantForm| async move {
            let draft = form.draft()?;
            let id = visit
                .state
                .control
                .create_tenant(visit.actor()?, &draft, visit.now())
                .await?;
            Ok::<_, Refused>(Done::say(
                format!("/tenants/{id}"),
                t!("{name} was created.", name = draft.name.trim()),
            ))
        },
    )
    .await
}

/// Changes a tenant together with its limits.
#[server(prefix = "/console", endpoint = "tenants/edit")]
pub async fn edit_tenant(#[server(flatten)] form: TenantForm) -> Result<(), ServerFnError> {
    let back = format!("/tenants/{}", form.id);
    submit(
        EditTenant::PATH,
        &back,
        form,
        |visit: Visit, form: TenantForm| async move {
            let id: TenantId = parsed_id(&form.id)?;
            let read = parsed_versions(&form.versions)?;
            let step = Step::read(&form.step)?;
            let draft = form.draft()?;
            let (control, actor) = (&visit.state.control, visit.actor()?);
            if step == Step::Ask {
                let tenant = control.tenant(actor, id, visit.now()).await?;
                let preview = control.preview_tenant(actor, id, read, &draft, visit.now()).await?;
                // With the plan comes what it sets for users and keys.
                if !preview.changes.is_empty() || tenant.row.tenant.plan_id != draft.plan_id {
                    return Err(Refused::Unconfirmed);
                }
            }
            control.edit_tenant(actor, id, read, &draft, visit.now()).await?;
            Ok::<_, Refused>(Done::say(format!("/tenants/{id}"), t!("Saved.")))
        },
    )
    .await
}

/// Which tenant, as last read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantChoice {
    id: String,
    version: String,
}

/// Refuses a tenant's requests from now on.
#[server(prefix = "/console", endpoint = "tenants/suspend")]
pub async fn suspend_tenant(#[server(flatten)] form: TenantChoice) -> Result<(), ServerFnError> {
    let back = format!("/tenants/{}", form.id);
    press(&back, |visit: Visit| async move {
        let (id, version) = (parsed_id(&form.id)?, parsed_id(&form.version)?);
        visit
            .state
            .control
            .suspend_tenant(visit.actor()?, id, version, visit.now())
            .await?;
        Ok::<_, Refused>(Done::say(
            format!("/tenants/{id}"),
            t!("Suspended. Its requests are refused within a second."),
        ))
    })
    .await
}

/// Lets a suspended tenant go on.
#[server(prefix = "/console", endpoint = "tenants/resume")]
pub async fn resume_tenant(#[server(flatten)] form: TenantChoice) -> Result<(), ServerFnError> {
    let back = format!("/tenants/{}", form.id);
    press(&back, |visit: Visit| async move {
        let (id, version) = (parsed_id(&form.id)?, parsed_id(&form.version)?);
        visit
            .state
            .control
            .resume_tenant(visit.actor()?, id, version, visit.now())
            .await?;
        Ok::<_, Refused>(Done::say(
            format!("/tenants/{id}"),
            t!("Resumed. Its requests are admitted within a second."),
        ))
    })
    .await
}

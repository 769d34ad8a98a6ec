//! Plans: the list, a new one, and one with its limits and the tenants on it.

use chrono::{DateTime, Utc};
use control::ControlError;
use control::audit::AuditSubject;
use control::fields::Fields;
use control::plans::{PLAN_TENANTS_MAX, PlanDraft, PlanView};
use control::rows::PlanRow;
use domain::ids::PlanId;
use domain::limits::{Class, Limit, Target};
use domain::priority::Priority;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::format::{self, Format};
use crate::page::{self, Page, id_of_path};
use crate::pages::{audit, limits};
use crate::shell;
use crate::submit::{Done, Refused, parsed_id, press, submit};
use crate::table::{self, facts, figures, words};
use crate::tables::{Column, Listing, Named, by, by_text};
use crate::terms::{self, priority};
use crate::visit::Visit;

/// Every plan with how many tenants are on it.
pub fn list() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let plans = visit.state.control.plans(&visitor.actor).await?;
        let new = || {
            visitor
                .is_operator()
                .then(|| view! { <a class="button button-primary" href="/plans/new">{t!("New plan")}</a> })
                .into_any()
        };
        let head = if plans.is_empty() { ().into_any() } else { new() };
        let listed = if plans.is_empty() {
            table::empty(
                t!(
                    "No plans yet. A plan is a set of limits under a name, such as free, paid or VIP. Make one, set its limits, \
                    then choose it on the pages of the tenants it is for: changing the plan then changes all of them."
                ),
                new(),
            )
        } else {
            let listing = Listing::new(&visit, columns(), plans, &[], |row| row.plan.name.clone())?;
            listing.view(
                t!("What a tenant sets for itself replaces its plan's, limit by limit."),
                &Named {
                    counted: |n| tn!(n, "{n} plan", "{n} plans"),
                    find: t!("Find among the plans"),
                },
                |plan| row(plan, &visit.format),
            )
        };
        let lead = t!("Sets of limits under a name, given to tenants.");
        let content = view! {
            {shell::page_head(t!("Plans"), lead, head)}
            {listed}
        };
        Ok(Page::new(t!("Plans"), content.into_any()))
    })
}

fn columns() -> Vec<Column<PlanRow>> {
    vec![
        by_text(words(t!("Name")), "name", |row: &PlanRow| &row.plan.name).natural(),
        by(words(t!("Highest priority")), "priority", |one: &PlanRow, other| {
            one.plan.priority_ceiling.cmp(&other.plan.priority_ceiling)
        }),
        by(figures(t!("Limits")), "limits", |one: &PlanRow, other| {
            one.limits.cmp(&other.limits)
        }),
        by(figures(t!("Tenants")), "tenants", |one: &PlanRow, other| {
            one.tenants.cmp(&other.tenants)
        }),
        by(
            words(t!("Since", in "when it was made")),
            "since",
            |one: &PlanRow, other| one.created_at.cmp(&other.created_at),
        ),
    ]
}

fn row(row: &PlanRow, format: &Format) -> AnyView {
    let href = format!("/plans/{}", row.plan.id);
    view! {
        <tr>
            <th scope="row">
                <a href=href>{row.plan.name.clone()}</a>
            </th>
            <td>{priority(row.plan.priority_ceiling)}</td>
            <td class="number">{format::count(row.limits)}</td>
            <td class="number">{format::count(row.tenants)}</td>
            <td class="nowrap">{format.minute(row.created_at)}</td>
        </tr>
    }
    .into_any()
}

/// The form for a new plan.
pub fn new() -> AnyView {
    page::behind_the_door(|visit| async move {
        if !visit.visitor()?.is_operator() {
            return Err(PageError::Forbidden);
        }
        let form = Filled::new(visit.draft.clone(), CreatePlan::PATH, || PlanForm {
            priority_ceiling: Priority::High.as_str().to_owned(),
            ..PlanForm::default()
        });
        let lead = t!("A name and a priority now; its limits on the next page.");
        let content = view! {
            {shell::page_head(t!("New plan"), lead, ().into_any())}
            <section class="card">
                {form.summary()}
                <form class="form" method="post" action=CreatePlan::PATH>
                    {fields(&form, false)}
                    <div class="actions">
                        <button class="button button-primary" type="submit">{t!("Create plan")}</button>
                        <a class="button" href="/plans">{t!("Cancel")}</a>
                    </div>
                </form>
            </section>
        };
        Ok(Page::new(t!("New plan"), content.into_any()))
    })
}

/// One plan: its form, its limits, who is on it.
pub fn edit() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let id: PlanId = id_of_path(&visit, "/plans/")?;
        let plan = visit.state.control.plan(&visitor.actor, id).await?;
        let name = plan.row.plan.name.clone();
        let body = if visitor.is_operator() {
            editor(&visit, &plan)
        } else {
            facts(vec![(
                t!("Highest priority"),
                priority(plan.row.plan.priority_ceiling).into_any(),
            )])
        };
        let lead = t!("What tenants on this plan have where they set nothing themselves.");
        let history = audit::history(visitor, &AuditSubject::Plan(id));
        let content = view! {
            {shell::page_head(name.clone(), lead, history)}
            <section class="card">{body}</section>
            {class_limits(&plan, visitor.is_operator(), visit.now(), &visit.format)}
            {tenants(&plan)}
            {visitor.is_operator().then(|| removal(&plan.row))}
        };
        Ok(Page::new(name, content.into_any()))
    })
}

fn editor(visit: &Visit, plan: &PlanView) -> AnyView {
    let row = &plan.row;
    let form = Filled::new(visit.draft.clone(), EditPlan::PATH, || PlanForm {
        id: row.plan.id.to_string(),
        version: row.version.to_string(),
        name: row.plan.name.clone(),
        priority_ceiling: row.plan.priority_ceiling.as_str().to_owned(),
    });
    let version = form.version(&form.values.version, &row.version.to_string()).to_owned();
    view! {
        {form.summary()}
        <form class="form" method="post" action=EditPlan::PATH>
            <input type="hidden" name="id" value=row.plan.id.to_string() />
            <input type="hidden" name="version" value=version />
            {fields(&form, true)}
            <div class="actions">
                <button class="button button-primary" type="submit">{t!("Save")}</button>
            </div>
        </form>
    }
    .into_any()
}

fn fields(form: &Filled<PlanForm>, exists: bool) -> AnyView {
    let name = Field::new("name", t!("Name")).required();
    let name = if exists { name } else { name.placeholder(t!("Free")) };
    let ceilings = Priority::ALL
        .map(|ceiling| (ceiling.as_str().to_owned(), priority(ceiling).to_owned()))
        .to_vec();
    view! {
        <div class="field-row">
            {form.text(name, &form.values.name)}
            {form.select(
                Field::new("priority_ceiling", t!("Highest priority"))
                    .hint(t!("Keys of tenants on this plan never run above it, unless the tenant has a priority of its own.")),
                &form.values.priority_ceiling,
                ceilings,
            )}
        </div>
    }
    .into_any()
}

fn class_limits(plan: &PlanView, is_operator: bool, at: DateTime<Utc>, format: &Format) -> AnyView {
    let id = plan.row.plan.id;
    let rows = plan
        .limits
        .iter()
        .map(|(class, limits)| {
            let href = limits::address_of(&Target::OfPlan(id, *class));
            let of = terms::class(*class);
            let (link, label) = if is_operator {
                (
                    t!("Change", in "a button"),
                    t!("Change the limits of each {class}", class = of),
                )
            } else {
                (
                    t!("Show", in "a link to a page"),
                    t!("Show the limits of each {class}", class = of),
                )
            };
            view! {
                <tr>
                    <th scope="row">{each(*class)}</th>
                    <td>{listed(limits, at, format)}</td>
                    <td class="row-actions">
                        <a class="button" href=href aria-label=label>{link}</a>
                    </td>
                </tr>
            }
            .into_any()
        })
        .collect();
    view! {
        <section class="card">
            <h2>{t!("Limits")}</h2>
            {table::table(
                t!("For each of them on its own."),
                &[words(t!("For", in "whom a limit is for")), words(t!("Limits")), words(t!("Actions"))],
                rows,
            )}
        </section>
    }
    .into_any()
}

/// What a class of a plan is called.
fn each(class: Class) -> &'static str {
    match class {
        Class::Tenant => t!("Each tenant as a whole"),
        Class::User => t!("Each user"),
        Class::EndUser => t!("Each end user"),
        Class::Key => t!("Each key"),
    }
}

fn listed(limits: &[Limit], at: DateTime<Utc>, format: &Format) -> AnyView {
    if limits.is_empty() {
        return view! { <span class="quiet">{t!("none")}</span> }.into_any();
    }
    let lines = limits
        .iter()
        .map(|limit| {
            let value = limits::value_in_force(limit, at, format);
            view! { <li>{tv!("{limit}: {value}", limit = limits::slot_name(&limit.slot()), value)}</li> }
        })
        .collect_view();
    view! { <ul class="plain-list">{lines}</ul> }.into_any()
}

fn tenants(plan: &PlanView) -> AnyView {
    let body = if plan.tenants.is_empty() {
        table::empty(
            t!("No tenant is on this plan yet. Choose it on a tenant's page."),
            view! { <a class="button" href="/tenants">{t!("Go to the tenants")}</a> }.into_any(),
        )
    } else {
        let items = plan
            .tenants
            .iter()
            .map(|(id, name)| {
                let href = format!("/tenants/{id}");
                view! { <li><a href=href>{name.clone()}</a></li> }
            })
            .collect_view();
        let more = (plan.row.tenants > PLAN_TENANTS_MAX.unsigned_abs())
            .then(|| view! { <p class="quiet">{t!("The first {most} by name.", most = PLAN_TENANTS_MAX)}</p> });
        view! {
            <ul class="plain-list">{items}</ul>
            {more}
        }
        .into_any()
    };
    let heading = tn!(plan.row.tenants, "{n} tenant on this plan", "{n} tenants on this plan");
    view! {
        <section class="card">
            <h2>{heading}</h2>
            {body}
        </section>
    }
    .into_any()
}

fn removal(row: &PlanRow) -> AnyView {
    let body = if row.tenants > 0 {
        let text = t!("A plan can be removed once no tenant is on it. Give its tenants another plan, or none, first.");
        view! { <p>{text}</p> }.into_any()
    } else {
        let text = tn!(
            row.limits,
            "The plan goes for good, and {n} limit with it. No tenant is on it, so no request is treated otherwise. The audit \
             log keeps what it was.",
            "The plan goes for good, and {n} limits with it. No tenant is on it, so no request is treated otherwise. The audit \
             log keeps what it was."
        );
        let remove = t!("Remove {name}", name = row.plan.name);
        view! {
            <details class="steps">
                <summary>{t!("Remove this plan")}</summary>
                <p>{text}</p>
                <form method="post" action=RemovePlan::PATH>
                    <input type="hidden" name="id" value=row.plan.id.to_string() />
                    <input type="hidden" name="version" value=row.version.to_string() />
                    <button class="button button-danger" type="submit">{remove}</button>
                </form>
            </details>
        }
        .into_any()
    };
    view! {
        <section class="card">
            <h2>{t!("Remove")}</h2>
            {body}
        </section>
    }
    .into_any()
}

/// What the forms of a plan send.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanForm {
    id: String,
    version: String,
    name: String,
    priority_ceiling: String,
}

impl PlanForm {
    fn draft(&self) -> Result<PlanDraft, ControlError> {
        let mut fields = Fields::default();
        let priority_ceiling = fields.word("priority_ceiling", &self.priority_ceiling);
        fields.check()?;
        Ok(PlanDraft {
            name: self.name.clone(),
            priority_ceiling: priority_ceiling.unwrap_or(Priority::High),
        })
    }
}

/// Makes a plan.
#[server(prefix = "/console", endpoint = "plans/create")]
pub async fn create_plan(#[server(flatten)] form: PlanForm) -> Result<(), ServerFnError> {
    submit(
        CreatePlan::PATH,
        "/plans/new",
        form,
        |visit: Visit, form: PlanForm| async move {
            let draft = form.draft()?;
            let id = visit
                .state
                .control
                .create_plan(visit.actor()?, &draft, visit.now())
                .await?;
            Ok::<_, Refused>(Done::say(
                format!("/plans/{id}"),
                t!("{name} was created. Now set its limits.", name = draft.name.trim()),
            ))
        },
    )
    .await
}

/// Changes a plan's name and priority.
#[server(prefix = "/console", endpoint = "plans/edit")]
pub async fn edit_plan(#[server(flatten)] form: PlanForm) -> Result<(), ServerFnError> {
    let back = format!("/plans/{}", form.id);
    submit(EditPlan::PATH, &back, form, |visit: Visit, form: PlanForm| async move {
        let (id, version): (PlanId, _) = (parsed_id(&form.id)?, parsed_id(&form.version)?);
        let draft = form.draft()?;
        visit
            .state
            .control
            .edit_plan(visit.actor()?, id, version, &draft, visit.now())
            .await?;
        Ok::<_, Refused>(Done::say(format!("/plans/{id}"), t!("Saved.")))
    })
    .await
}

/// Which plan, as last read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanChoice {
    id: String,
    version: String,
}

/// Removes a plan that no tenant is on.
#[server(prefix = "/console", endpoint = "plans/remove")]
pub async fn remove_plan(#[server(flatten)] form: PlanChoice) -> Result<(), ServerFnError> {
    let back = format!("/plans/{}", form.id);
    press(&back, |visit: Visit| async move {
        let (id, version) = (parsed_id(&form.id)?, parsed_id(&form.version)?);
        visit
            .state
            .control
            .remove_plan(visit.actor()?, id, version, visit.now())
            .await?;
        Ok::<_, Refused>(Done::say("/plans", t!("The plan was removed.")))
    })
    .await
}

//! The plain limits of a node or class: one field per dimension, empty for none.

use control::fields::Fields;
use control::limits::{NodeLimitsText, NodeLimitsView, field_of, is_plain};
use domain::limits::{Class, Dimension, Limit, Scope, Target};
use domain::money::Nanos;
use domain::priority::Priority;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::format::{self, Format};
use crate::page::{self, Page};
use crate::shell;
use crate::submit::{Done, Refused, parsed_id, submit};
use crate::table::{self, figures, words};
use crate::visit::{Visit, Visitor, address};

/// The fields, in three groups. `is_fixed` shows them to somebody who may only look.
pub fn fields<F>(form: &Filled<F>, values: &NodeLimitsText, format: &Format, is_fixed: bool) -> AnyView {
    let whole = |dimension, label: &str, value: &str| {
        let field = Field::new(field_of(dimension), label).whole();
        form.text(if is_fixed { field.fixed() } else { field }, value)
    };
    let cost = Field::new(
        field_of(Dimension::BudgetCost),
        format!("Budget per month ({})", format.currency()),
    )
    .amount()
    .hint(format!(
        "Starts again on the first of each month, {} time.",
        format.zone()
    ));
    view! {
        <fieldset>
            <legend>"Budgets"</legend>
            <p class="quiet">"An empty field is no limit. 0 admits nothing."</p>
            <div class="field-row">
                {form.text(if is_fixed { cost.fixed() } else { cost }, &values.monthly_cost)}
                {whole(Dimension::BudgetTokens, "Tokens per month", &values.monthly_tokens)}
            </div>
        </fieldset>
        <fieldset>
            <legend>"Limits per minute, and at once"</legend>
            <div class="field-row">
                {whole(Dimension::Requests, "Requests / min", &values.requests_per_minute)}
                {whole(Dimension::Concurrency, "Requests at once", &values.concurrency)}
                {whole(Dimension::InputTokens, "Input tokens / min", &values.input_tokens_per_minute)}
                {whole(Dimension::OutputTokens, "Output tokens / min", &values.output_tokens_per_minute)}
                {whole(Dimension::TotalTokens, "All tokens / min", &values.total_tokens_per_minute)}
            </div>
        </fieldset>
        <fieldset>
            <legend>"Limits of a single request"</legend>
            <div class="field-row">
                {whole(Dimension::RequestInputTokens, "Input tokens", &values.request_input_tokens)}
                {whole(Dimension::RequestOutputTokens, "Output tokens", &values.request_output_tokens)}
                {whole(Dimension::RequestSeconds, "Seconds", &values.request_seconds)}
            </div>
        </fieldset>
    }
    .into_any()
}

/// The limits of one node, or of every node of a class: `of` is a scope as the ledger writes it, `each` a class within a
/// tenant.
pub fn edit() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let (of, each) = (
            visit.query("of").unwrap_or_default(),
            visit.query("each").unwrap_or_default(),
        );
        let target = parsed_target(&of, &each).ok_or(PageError::NotFound)?;
        let view = visit.state.control.limits_of(&visitor.actor, &target).await?;
        let subject = subject(&visit, visitor, &target).await?;
        let form = Filled::new(visit.draft.clone(), SetLimits::PATH, || LimitsForm {
            of: of.clone(),
            each: each.clone(),
            version: view.version.to_string(),
            limits: NodeLimitsText::from(&view.plain),
        });
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
                        <button class="button button-primary" type="submit">"Save"</button>
                        <a class="button" href=subject.href.clone()>"Back"</a>
                    </div>
                    <p class="quiet">"Changes are in force on every gateway within a second."</p>
                </form>
            }
            .into_any()
        } else {
            view! {
                <div class="form">{fields(&form, &form.values.limits, &visit.format, true)}</div>
                <p class="quiet">"Only operators change these."</p>
            }
            .into_any()
        };
        let title = format!("Limits of {}", subject.name);
        let content = view! {
            {shell::page_head(title.clone(), subject.explanation, ().into_any())}
            <section class="card">{body}</section>
            {others(&view, &visit.format)}
        };
        Ok(Page::new(title, content.into_any()))
    })
}

/// What a node is called, and where it lives in the console.
struct Subject {
    name: String,
    explanation: &'static str,
    href: String,
}

const OF_NODE: &str = "They hold beside those of everything above and below it: the tightest decides.";
const OF_CLASS: &str = "For each of them on its own. One that has a limit of its own keeps that instead.";

async fn subject(visit: &Visit, visitor: &Visitor, target: &Target) -> Result<Subject, PageError> {
    let control = &visit.state.control;
    let node = |name: String, href: String| Subject {
        name,
        explanation: OF_NODE,
        href,
    };
    Ok(match target {
        Target::Node(Scope::Global) => node("the whole installation".to_owned(), "/status".to_owned()),
        Target::Node(Scope::Model(name)) => {
            node(format!("the model {name}"), address("/models/edit", &[("name", name)]))
        }
        Target::Node(Scope::ModelGroup(group)) => node(format!("the models of {group}"), "/models".to_owned()),
        Target::Node(Scope::Key(id)) => {
            let key = control.key(&visitor.actor, *id).await?;
            node(format!("the key {}", key.name), format!("/keys/{id}"))
        }
        Target::Node(Scope::Upstream(id)) => {
            let upstream = control.upstream(&visitor.actor, *id).await?;
            node(format!("the upstream {}", upstream.name), format!("/upstreams/{id}"))
        }
        Target::Node(Scope::User(tenant, user)) => node(format!("the user {user}"), format!("/tenants/{tenant}")),
        Target::Node(Scope::Tenant(id)) => {
            let tenant = control.tenant(&visitor.actor, *id, visit.now()).await?;
            node(
                format!("the tenant {}", tenant.row.tenant.name),
                format!("/tenants/{id}"),
            )
        }
        Target::OfTenant(id, class) => {
            let tenant = control.tenant(&visitor.actor, *id, visit.now()).await?;
            Subject {
                name: format!("each {} of {}", format::words(class.as_str()), tenant.row.tenant.name),
                explanation: OF_CLASS,
                href: format!("/tenants/{id}"),
            }
        }
        Target::OfPlan(..) => return Err(PageError::NotFound),
    })
}

/// Limits that the form has no field for: other windows and periods, of one model or priority, in rehearsal.
fn others(view: &NodeLimitsView, format: &Format) -> AnyView {
    let rest: Vec<&Limit> = view
        .limits
        .iter()
        .filter(|limit| !is_plain(limit, limit.dimension))
        .collect();
    if rest.is_empty() {
        return ().into_any();
    }
    let rows = rest.into_iter().map(|limit| other_row(limit, format)).collect();
    view! {
        <section class="card">
            <h2>"More limits here"</h2>
            {table::table(
                "The form above leaves these alone.",
                &[words("Dimension"), figures("Value"), words("Per"), words("Model"), words("Priority"), words("Mode")],
                rows,
            )}
        </section>
    }
    .into_any()
}

fn other_row(limit: &Limit, format: &Format) -> AnyView {
    let value = match limit.dimension {
        Dimension::BudgetCost => format.money(Nanos(i64::try_from(limit.value).unwrap_or(i64::MAX))),
        _ => format::count(limit.value),
    };
    let per = if limit.dimension.is_rate() {
        format!("{} s", format::count(u64::from(limit.window_seconds)))
    } else if limit.dimension.is_budget() {
        limit.period.as_str().to_owned()
    } else {
        "request".to_owned()
    };
    view! {
        <tr>
            <th scope="row">{format::words(limit.dimension.as_str())}</th>
            <td class="number">{value}</td>
            <td>{per}</td>
            <td>{limit.model.as_ref().map_or("all".to_owned(), |model| model.to_string())}</td>
            <td>{limit.priority.map_or("all", Priority::as_str)}</td>
            <td>{limit.mode.as_str()}</td>
        </tr>
    }
    .into_any()
}

/// What the form sends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitsForm {
    of: String,
    each: String,
    version: String,
    #[serde(flatten)]
    limits: NodeLimitsText,
}

fn parsed_target(of: &str, each: &str) -> Option<Target> {
    let scope: Scope = of.parse().ok()?;
    match (scope, each) {
        (scope, "") => Some(Target::Node(scope)),
        (Scope::Tenant(tenant), each) => Some(Target::OfTenant(tenant, each.parse::<Class>().ok()?)),
        _ => None,
    }
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
            let mut fields = Fields::default();
            let limits = form.limits.parse(&mut fields);
            fields.check()?;
            let control = &visit.state.control;
            control
                .set_limits(visit.actor()?, &target, version, &limits, visit.now())
                .await?;
            Ok::<_, Refused>(Done::say(to, "Saved."))
        },
    )
    .await
}

//! Who runs at which priority, how often gates refused whom, and where the gates are.

use chrono::{DateTime, Utc};
use control::lookback::Lookback;
use control::priorities::{NAMED_LIMITS_MAX, NamedLimit, Priorities, TRAFFIC_ROWS_MAX, TrafficRow};
use control::rows::PRIORITY_CEILING_DEFAULT;
use domain::ids::TenantId;
use domain::key_text::masked;
use domain::limits::{Mode, Scope};
use domain::priority::{Priority, Traffic};
use leptos::prelude::*;

use crate::error::PageError;
use crate::format::{self, Format};
use crate::limit_names;
use crate::lookbacks;
use crate::page::{self, Page};
use crate::pages::{early_retries, limits};
use crate::shell;
use crate::table::{self, Tone, badge, figures, words};
use crate::terms;
use crate::visit::{Visit, Visitor, address};

const PATH: &str = "/priorities";
/// Width of the bar of shares in its own units, which are tenths of a percent.
const BAR_WIDTH: u64 = 1_000;
const BAR_HEIGHT: u64 = 10;

/// By tenant, or for one tenant by key.
pub fn view() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let lookback = lookbacks::chosen(&visit);
        let asked = match visit.query("tenant") {
            Some(text) => Some(text.parse::<TenantId>().map_err(|_| PageError::NotFound)?),
            None => None,
        };
        let control = &visit.state.control;
        let found = control.priorities(&visitor.actor, asked, lookback, visit.now()).await?;
        let early = control
            .early_retries(&visitor.actor, found.tenant, lookback, visit.now())
            .await?;
        let head = head(&visit, visitor, found.tenant).await?;
        let tenant = found.tenant.map(|tenant| tenant.to_string()).unwrap_or_default();
        let fields = [("tenant", tenant.as_str())];
        let fields = if visitor.sees_everything() { &fields[..] } else { &[] };
        let content = view! {
            {head}
            {lookbacks::links(PATH, Lookback::LATELY, lookback, fields)}
            {warning(&found)}
            {stats(&found.sums.all)}
            {traffic(&found, visitor, lookback, &visit.format)}
            {lookbacks::covered(found.span, found.sums.completeness.complete_until, &visit.format)}
            {gates(&found, visitor, visit.now(), &visit.format)}
            {early_retries::card(&early, visitor)}
            {explanation()}
        };
        Ok(Page::new(t!("Priorities"), content.into_any()))
    })
}

async fn head(visit: &Visit, visitor: &Visitor, tenant: Option<TenantId>) -> Result<AnyView, PageError> {
    let Some(tenant) = tenant else {
        return Ok(shell::page_head(
            t!("Priorities"),
            t!("Who runs at which priority, and whom gates hold back."),
            ().into_any(),
        ));
    };
    let summary = visit.state.control.tenant(&visitor.actor, tenant, visit.now()).await?;
    let lead = t!(
        "Which of its keys run at which priority, and which gates hold back. Its ceiling is {priority}.",
        priority = terms::priority(summary.row.priority_ceiling_in_force),
    );
    let all = visitor
        .sees_everything()
        .then(|| view! { <a class="button" href=PATH>{t!("All tenants")}</a> });
    let actions = view! {
        {all} <a class="button" href=format!("/tenants/{tenant}")>{t!("Tenant")}</a>
    };
    Ok(shell::page_head(
        t!("Priorities of {tenant}", tenant = summary.row.tenant.name),
        lead,
        actions.into_any(),
    ))
}

/// When everything is urgent, nothing is.
fn warning(found: &Priorities) -> AnyView {
    let all = &found.sums.all;
    if !all.is_mostly_urgent() {
        return ().into_any();
    }
    let whose = match found.tenant {
        Some(_) => t!("this tenant's requests"),
        None => t!("all requests"),
    };
    let text = t!(
        "{share} of {whose} ran at high or critical. Gates hold back low and default only, so when most is urgent \
         they protect little. Lower the priority of keys whose callers can wait, or the ceiling of their tenant.",
        share = format::share(all.urgent(), all.requests()),
        whose,
    );
    view! { <p class="notice notice-warning">{text}</p> }.into_any()
}

fn stats(all: &Traffic) -> AnyView {
    let urgent_cost = all.at(Priority::High).charged + all.at(Priority::Critical).charged;
    let of_cost = (all.requests() > 0).then(|| {
        let share = cost_share(urgent_cost.0, all.charged().0);
        view! { <small>{t!("{share} of cost", share)}</small> }
    });
    let gated = (all.gated() > 0).then(|| view! { <small>{gated_parts(all).join(t!(", ", in "list"))}</small> });
    view! {
        <dl class="stats">
            <div class="stat">
                <dt>{t!("Requests")}</dt>
                <dd><span class="figure">{format::count(all.requests())}</span></dd>
            </div>
            <div class="stat">
                <dt>{t!("At high or critical")}</dt>
                <dd>
                    <span class="figure">{format::share(all.urgent(), all.requests())}</span>
                    <div>{of_cost}</div>
                </dd>
            </div>
            <div class="stat">
                <dt>{t!("Refused by gates")}</dt>
                <dd>
                    <span class="figure">{format::count(all.gated())}</span>
                    <div>{gated}</div>
                </dd>
            </div>
        </dl>
    }
    .into_any()
}

/// At which priorities gates refused how many: `low 12`, `default 3`.
fn gated_parts(traffic: &Traffic) -> Vec<String> {
    Priority::ALL
        .into_iter()
        .map(|priority| (priority, traffic.at(priority).gated))
        .filter(|(_, gated)| *gated > 0)
        .map(|(priority, gated)| format!("{} {}", terms::priority(priority), format::count(gated)))
        .collect()
}

fn traffic(found: &Priorities, visitor: &Visitor, lookback: Lookback, format: &Format) -> AnyView {
    let sums = &found.sums;
    let by_key = found.tenant.is_some();
    if sums.rows.is_empty() {
        let text = t!(
            "Nothing ran and nothing was held back in this time. Once requests come in, this shows at which priority \
             each tenant's and each key's run."
        );
        let action = visitor
            .issues_keys()
            .then(|| view! { <a class="button" href="/keys">{t!("Keys and their priorities")}</a> });
        return view! { <section class="card">{table::empty(text, action.into_any())}</section> }.into_any();
    }
    let mut columns = if by_key {
        vec![words(t!("Key")), words(t!("Set to"))]
    } else {
        vec![words(t!("Tenant")), words(t!("Ceiling"))]
    };
    columns.extend([
        words(t!("Shares")),
        figures(t!("Requests")),
        figures(t!("Low", in "priority")),
        figures(t!("Default", in "priority")),
        figures(t!("High", in "priority")),
        figures(t!("Critical", in "priority")),
        figures(t!("Spent")),
        figures(t!("Gated")),
    ]);
    let rows = sums
        .rows
        .iter()
        .map(|row| traffic_row(row, by_key, lookback, format))
        .collect();
    let foot = view! {
        <tr>
            <th scope="row" colspan="2">{t!("All")}</th>
            {traffic_cells(&sums.all, None, None, format)}
        </tr>
    };
    let cut = sums.is_cut.then(|| {
        let text = t!(
            "Only the {count} busiest are listed; the last row counts all of them.",
            count = TRAFFIC_ROWS_MAX,
        );
        view! { <p class="notice notice-warning">{text}</p> }
    });
    let legend = Priority::ALL
        .into_iter()
        .map(|priority| view! { <li class=format!("legend-{priority}")>{terms::priority(priority)}</li> })
        .collect_view();
    view! {
        <section class="card">
            <div class="card-head">
                <h2>{if by_key { t!("By key") } else { t!("By tenant") }}</h2>
                <ul class="legend" aria-hidden="true">{legend}</ul>
            </div>
            {cut}
            {table::table_with_foot(
                t!("The busiest first: the shares of requests that ran at each priority and of their cost, and how \
                    many requests gates refused."),
                &columns,
                rows,
                foot.into_any(),
            )}
        </section>
    }
    .into_any()
}

fn traffic_row(row: &TrafficRow, by_key: bool, lookback: Lookback, format: &Format) -> AnyView {
    let tenant = row.tenant_id.to_string();
    let key = row.key_id.map(|key| key.to_string());
    let (name, set_to) = if by_key {
        let name = match (&key, &row.key_name, &row.key_public_id) {
            (None, ..) => t!("without a key").into_any(),
            (Some(id), Some(name), _) => view! { <a href=format!("/keys/{id}")>{name.clone()}</a> }.into_any(),
            (Some(_), None, Some(public_id)) => masked(public_id).into_any(),
            (Some(id), None, None) => id.clone().into_any(),
        };
        (name, row.key_priority)
    } else {
        let href = lookbacks::address_of(PATH, lookback, &[("tenant", &tenant)]);
        let name = row.tenant_name.clone().unwrap_or_else(|| tenant.clone());
        let name = view! { <a href=href>{name}</a> }.into_any();
        (name, Some(row.ceiling.unwrap_or(PRIORITY_CEILING_DEFAULT)))
    };
    let urgent = row.traffic.is_mostly_urgent().then(|| {
        view! { " " <div>{badge(t!("mostly urgent"), Tone::Warning)}</div> }
    });
    view! {
        <tr>
            <th scope="row">{name} {urgent}</th>
            <td>{set_to.map(terms::priority)}</td>
            {traffic_cells(&row.traffic, Some(&tenant), key.as_deref(), format)}
        </tr>
    }
    .into_any()
}

/// The bar, the figures, and how many were refused, which leads to them.
fn traffic_cells(traffic: &Traffic, tenant: Option<&str>, key: Option<&str>, format: &Format) -> AnyView {
    let cells = Priority::ALL
        .into_iter()
        .map(|priority| {
            let at = traffic.at(priority);
            let cost = (at.requests > 0 && traffic.charged().0 > 0).then(|| {
                let share = cost_share(at.charged.0, traffic.charged().0);
                view! { " " <div><small>{t!("cost {share}", share)}</small></div> }
            });
            view! { <td class="number">{format::share(at.requests, traffic.requests())} {cost}</td> }
        })
        .collect_view();
    let gated = if traffic.gated() == 0 {
        "0".into_any()
    } else {
        let fields = [
            ("kind", "rejection"),
            ("ending", "code:priority_gated"),
            ("tenant", tenant.unwrap_or_default()),
            ("key", key.unwrap_or_default()),
        ];
        let parts = gated_parts(traffic)
            .into_iter()
            .map(|part| view! { " " <div><small>{part}</small></div> })
            .collect_view();
        view! {
            <a href=address("/ledger", &fields)>{format::count(traffic.gated())}</a>
            {parts}
        }
        .into_any()
    };
    view! {
        <td>{bar(traffic)}</td>
        <td class="number">{format::count(traffic.requests())}</td>
        {cells}
        <td class="number">{format.money(traffic.charged())}</td>
        <td class="number">{gated}</td>
    }
    .into_any()
}

/// The shares of requests as a bar; the cells beside it say the same in figures.
fn bar(traffic: &Traffic) -> AnyView {
    let total = traffic.requests();
    let mut left = 0;
    let mut below = 0;
    let parts = Priority::ALL
        .into_iter()
        .map(|priority| {
            below += traffic.at(priority).requests;
            let right = (u128::from(below) * u128::from(BAR_WIDTH)).checked_div(u128::from(total));
            let right = right.and_then(|right| u64::try_from(right).ok()).unwrap_or(0);
            let (x, width) = (left, right - left);
            left = right;
            view! { <rect class=format!("shares-{priority}") x=x.to_string() width=width.to_string() height=BAR_HEIGHT.to_string() /> }
        })
        .collect_view();
    view! {
        <svg class="shares" viewBox=format!("0 0 {BAR_WIDTH} {BAR_HEIGHT}") preserveAspectRatio="none" aria-hidden="true" focusable="false">
            {parts}
        </svg>
    }
    .into_any()
}

/// A share of money; what was credited more than it cost is no share.
fn cost_share(part: i64, whole: i64) -> String {
    format::share(part.max(0).unsigned_abs(), whole.max(0).unsigned_abs())
}

fn gates(found: &Priorities, visitor: &Visitor, at: DateTime<Utc>, format: &Format) -> AnyView {
    let body = if found.gated_limits.is_empty() {
        let text = if visitor.sees_everything() {
            t!(
                "No limit has gates, so every priority may use the full capacity and only the queue's order tells \
                 them apart. Give gates to limits that tenants share: of the whole installation, of models, of \
                 upstreams."
            )
        } else {
            t!("No limit of your tenant has gates of its own. Limits that all tenants share may have some.")
        };
        let global = limits::address_of(&domain::limits::Target::Node(Scope::Global));
        let action = visitor
            .sees_everything()
            .then(|| view! { <a class="button" href=global>{t!("Limits of the whole installation")}</a> });
        table::empty(text, action.into_any())
    } else {
        table::table(
            t!("From the lower gate on low waits or is refused, from the upper gate on default, too."),
            &[
                words(t!("Limit of")),
                words(t!("Limit")),
                figures(t!("Value")),
                figures(t!("Lower gate")),
                figures(t!("Upper gate")),
                words(t!("Above the upper gate")),
                words(t!("Mode")),
            ],
            found
                .gated_limits
                .iter()
                .map(|named| gate_row(named, at, format))
                .collect(),
        )
    };
    let cut = (found.gated_limits.len() as i64 >= NAMED_LIMITS_MAX).then(|| {
        let text = t!("Only the first {count} are listed.", count = NAMED_LIMITS_MAX);
        view! { <p class="quiet">{text}</p> }
    });
    view! {
        <section class="card">
            <h2>{t!("Gates")}</h2>
            {body}
            {cut}
        </section>
    }
    .into_any()
}

fn gate_row(named: &NamedLimit, at: DateTime<Utc>, format: &Format) -> AnyView {
    let limit = &named.limit;
    let (lower, upper, above) = limit.gates.map_or((String::new(), String::new(), ""), |gates| {
        let above = if gates.upper_waits {
            t!("low and default wait")
        } else {
            t!("low and default are refused")
        };
        (
            format!("{} %", gates.lower_percent),
            format!("{} %", gates.upper_percent),
            above,
        )
    });
    let mode = match limit.mode {
        Mode::Enforce => badge(t!("enforced"), Tone::Good),
        Mode::Rehearse => badge(t!("rehearsed"), Tone::Warning),
    };
    view! {
        <tr>
            <th scope="row"><a href=limits::address_of(&limit.target)>{limit_names::place_of(named)}</a></th>
            <td>{limits::slot_name(&limit.slot())}</td>
            <td class="number">{limits::value_in_force(limit, at, format)}</td>
            <td class="number">{lower}</td>
            <td class="number">{upper}</td>
            <td>{above}</td>
            <td>{mode}</td>
        </tr>
    }
    .into_any()
}

fn explanation() -> AnyView {
    let order = tv!(
        "{order} A request runs at the priority of its key, but no higher than its tenant's ceiling. The header \
         {header} may lower it for one request, never raise it.",
        order = view! { <strong>{t!("low < default < high < critical.")}</strong> },
        header = view! { <code>"X-Tollgate-Priority"</code> },
    );
    let gates = t!(
        "Where a limit has gates, low is held back once the limit is used up to the lower gate, and default from the \
         upper gate on; high and critical pass until it is full. A limit without gates gives everybody its full \
         capacity. What other limits refuse is in the ledger."
    );
    view! {
        <section class="card">
            <h2>{t!("How priorities work")}</h2>
            <p>{order}</p>
            <p>{gates}</p>
        </section>
    }
    .into_any()
}

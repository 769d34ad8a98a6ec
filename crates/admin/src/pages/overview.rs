//! The first page: this month so far against its budgets. Members see their own use.

use chrono::{DateTime, Utc};
use control::limits::is_plain;
use control::lookback::Lookback;
use control::reports::{OverviewView, ReportFilter, ReportRow};
use control::tenants::TenantSummary;
use domain::key_text::masked;
use domain::limits::{Dimension, Limit, Scope};
use domain::money::Nanos;
use domain::reports::{Completeness, MonthState, Totals};
use leptos::prelude::*;

use crate::chart;
use crate::error::PageError;
use crate::format::{self, Format};
use crate::live;
use crate::page::{self, Page};
use crate::pages::{budget_events, early_retries, limits};
use crate::shell;
use crate::table::{self, figures, words};
use crate::terms;
use crate::visit::{Visit, Visitor, address};

/// Tenants whose budgets are shown.
const TENANTS_SHOWN: usize = 10;
/// Id of the chart's caption.
const CHART_CAPTION: &str = "spend-by-day";

/// This month so far.
pub fn view() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let view = visit
            .state
            .control
            .overview(&visitor.actor, &ReportFilter::default(), visit.now())
            .await?;
        let format = &visit.format;
        let month = format::month_name(view.month);
        let title = if visitor.is_member() {
            t!("My usage")
        } else {
            t!("Overview")
        };
        let lead = t!("{month} so far, in {zone} time.", month, zone = format.zone());
        let content = view! {
            {shell::page_head(title, lead, actions(visitor))}
            {live::region("month", view! { {budget_warning(&visit, &view)} {stats(&view, visit.now(), format)} }.into_any())}
            {live::region("days", spend_chart(&view, format))}
            {own_budget_events(&visit, visitor).await?}
            {live::region("budgets", budgets(&visit, visitor).await?)}
            {live::region(
                "models",
                view! { <div class="columns">{top_models(&view, format)} {rejections(&view.overview.totals)}</div> }.into_any(),
            )}
            {live::region("keys", top_keys(&view, format))}
            {keys_that_do_not_wait(&visit, visitor).await?}
            {live::region("completeness", completeness(&view.overview.completeness, format))}
        };
        Ok(Page::new(title, content.into_any()))
    })
}

fn actions(visitor: &Visitor) -> AnyView {
    if visitor.is_member() {
        view! { {live::figures()} <a class="button button-primary" href="/keys/new">{t!("Issue a key")}</a> }.into_any()
    } else {
        view! { {live::figures()} <a class="button" href="/reports">{t!("Monthly report")}</a> }.into_any()
    }
}

fn budget_warning(visit: &Visit, view: &OverviewView) -> AnyView {
    let spent = view.overview.totals.charged();
    let percent = budget_of(view, Dimension::BudgetCost)
        .and_then(|budget| format::percent(spent.0, i64::try_from(budget.value_at(visit.now())).unwrap_or(i64::MAX)));
    match percent {
        Some(percent @ 100..) => view! {
            <p class="notice notice-bad" role="status">
                {t!("This month's budget is spent ({percent} %). Requests are refused until {end}.", percent, end = end_of(visit, view))}
            </p>
        }
        .into_any(),
        Some(percent @ 80..) => view! {
            <p class="notice notice-warning" role="status">
                {t!("{percent} % of this month's budget is spent. It starts again on {end}.", percent, end = end_of(visit, view))}
            </p>
        }
        .into_any(),
        _ => ().into_any(),
    }
}

fn end_of(visit: &Visit, view: &OverviewView) -> String {
    visit.format.minute(view.month.span(view.zone).end)
}

/// The month's plain budget of what the page is about.
fn budget_of(view: &OverviewView, dimension: Dimension) -> Option<&Limit> {
    view.limits.iter().find(|limit| is_plain(limit, dimension))
}

fn stats(view: &OverviewView, at: DateTime<Utc>, format: &Format) -> AnyView {
    let totals = &view.overview.totals;
    let spent = totals.charged();
    let used = |dimension, spent: i64, label: &'static str| {
        budget_of(view, dimension).map(|budget| limits::used_of(budget, spent, label, at, format))
    };
    let cost_budget = used(Dimension::BudgetCost, spent.0, t!("Budget"));
    let token_budget = used(Dimension::BudgetTokens, totals.charged_tokens(), t!("Token budget"));
    let failed = (totals.failed_requests > 0)
        .then(|| view! { <small>{t!("{count} failed", count = format::count(totals.failed_requests))}</small> });
    let tokens = t!(
        "{input} in, {output} out",
        input = format::count(totals.usage.input_tokens()),
        output = format::count(totals.usage.output_tokens)
    );
    let median = totals
        .total_latencies
        .quantile_ms(0.5)
        .map_or(t!("none yet").to_owned(), format::duration_ms);
    let slow = totals
        .total_latencies
        .quantile_ms(0.95)
        .map(|ms| view! { <small>{t!("95 % within {duration}", duration = format::duration_ms(ms))}</small> });
    view! {
        <dl class="stats">
            <div class="stat">
                <dt>{t!("Spent")}</dt>
                <dd><span class="figure">{format.money(spent)}</span> {cost_budget}</dd>
            </div>
            <div class="stat">
                <dt>{t!("Requests")}</dt>
                <dd><span class="figure">{format::count(totals.requests)}</span> <div>{failed}</div></dd>
            </div>
            <div class="stat">
                <dt>{t!("Tokens")}</dt>
                <dd>
                    <span class="figure">{format::signed_count(totals.charged_tokens())}</span>
                    <div><small>{tokens}</small></div> {token_budget}
                </dd>
            </div>
            <div class="stat">
                <dt>{t!("Refused")}</dt>
                <dd><span class="figure">{format::count(totals.refused_requests())}</span></dd>
            </div>
            <div class="stat">
                <dt>{t!("Median duration")}</dt>
                <dd><span class="figure">{median}</span> <div>{slow}</div></dd>
            </div>
        </dl>
    }
    .into_any()
}

fn spend_chart(view: &OverviewView, format: &Format) -> AnyView {
    let days = &view.overview.days;
    let points: Vec<_> = days.iter().map(|day| (day.day, day.charged)).collect();
    let title = t!("Spend by day, {currency}", currency = format.currency());
    let drawing = match chart::daily_bars(&points, CHART_CAPTION, &title) {
        // The drawing is made of figures and dates of ours, never of texts that somebody entered.
        Ok(svg) => view! { <div class="chart-frame" tabindex="0" role="group" aria-labelledby=CHART_CAPTION inner_html=svg></div> }.into_any(),
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "a chart is left out");
            ().into_any()
        }
    };
    let rows = days
        .iter()
        .map(|day| {
            view! {
                <tr>
                    <th scope="row">{format::day(day.day)}</th>
                    <td class="number">{format.money(day.charged)}</td>
                    <td class="number">{format::count(day.requests)}</td>
                    <td class="number">{format::signed_count(day.tokens)}</td>
                    <td class="number">{format::count(day.refused_requests)}</td>
                </tr>
            }
            .into_any()
        })
        .collect();
    view! {
        <section class="card">
            <figure class="chart">
                <figcaption><h2 id=CHART_CAPTION>{title}</h2></figcaption>
                {drawing}
            </figure>
            <details>
                <summary>{t!("The figures as a table")}</summary>
                {table::table(
                    t!("By day in {zone} time.", zone = format.zone()),
                    &[words(t!("Day")), figures(t!("Spent")), figures(t!("Requests")), figures(t!("Tokens")), figures(t!("Refused"))],
                    rows,
                )}
            </details>
        </section>
    }
    .into_any()
}

async fn budgets(visit: &Visit, visitor: &Visitor) -> Result<AnyView, PageError> {
    if !visitor.sees_everything() {
        return Ok(().into_any());
    }
    let mut tenants = visit.state.control.tenants(&visitor.actor, visit.now()).await?;
    tenants.sort_by_key(|tenant| std::cmp::Reverse(tenant.spent.cost));
    tenants.truncate(TENANTS_SHOWN);
    let body = if tenants.is_empty() {
        table::empty(
            t!("No tenants yet. Start with an upstream, a model and its price; then make a tenant and issue a key."),
            first_step(visitor),
        )
    } else {
        table::table(
            t!("The tenants that have spent most this month."),
            &[
                words(t!("Tenant")),
                figures(t!("Spent")),
                figures(t!("Budget")),
                words(t!("Used")),
            ],
            tenants
                .iter()
                .map(|tenant| tenant_row(tenant, visit.now(), &visit.format))
                .collect(),
        )
    };
    Ok(view! {
        <section class="card">
            <div class="card-head">
                <h2>{t!("Budgets")}</h2>
                <a href="/tenants">{t!("All tenants")}</a>
            </div>
            {body}
        </section>
    }
    .into_any())
}

/// What the budgets of a tenant or a member have told; those who see everything have a page for it.
async fn own_budget_events(visit: &Visit, visitor: &Visitor) -> Result<AnyView, PageError> {
    if visitor.sees_everything() {
        return Ok(().into_any());
    }
    budget_events::latest(visit, visitor, None).await
}

/// Where an empty installation begins.
fn first_step(visitor: &Visitor) -> AnyView {
    if !visitor.is_operator() {
        return ().into_any();
    }
    view! {
        <p class="actions">
            <a class="button button-primary" href="/upstreams/new">{t!("New upstream")}</a>
            <a class="button" href="/models/new">{t!("New model")}</a>
            <a class="button" href="/tenants/new">{t!("New tenant")}</a>
        </p>
    }
    .into_any()
}

fn tenant_row(tenant: &TenantSummary, at: DateTime<Utc>, format: &Format) -> AnyView {
    let href = format!("/tenants/{}", tenant.row.tenant.id);
    let name = tenant.row.tenant.name.clone();
    let budget = tenant.cost_budget.as_ref();
    let used = budget.map(|budget| limits::used(budget, tenant.spent.cost.0, &name, at));
    let budget = match budget {
        Some(budget) => limits::value_in_force(budget, at, format),
        None => t!("none").into_any(),
    };
    view! {
        <tr>
            <th scope="row"><a href=href>{name.clone()}</a></th>
            <td class="number">{format.money(tenant.spent.cost)}</td>
            <td class="number">{budget}</td>
            <td>{used}</td>
        </tr>
    }
    .into_any()
}

fn top_models(view: &OverviewView, format: &Format) -> AnyView {
    let rows: Vec<AnyView> = view
        .overview
        .top_models
        .iter()
        // Requests that were refused before their model was known have a row of their own, without any cost.
        .filter(|row| row.totals.requests > 0 || row.totals.charged() != Nanos::ZERO)
        .map(|row| {
            let model = row.model.clone().unwrap_or_else(|| t!("no model").to_owned());
            view! {
                <tr>
                    <th scope="row">{model}</th>
                    <td class="number">{format::count(row.totals.requests)}</td>
                    <td class="number">{format.money(row.totals.charged())}</td>
                </tr>
            }
            .into_any()
        })
        .collect();
    let body = if rows.is_empty() {
        table::empty(
            t!("No request has run this month. How to send one from your program is shown for each language."),
            view! { <a class="button" href="/connect">{t!("How to connect")}</a> }.into_any(),
        )
    } else {
        table::table(
            t!("Models by cost."),
            &[words(t!("Model")), figures(t!("Requests")), figures(t!("Spent"))],
            rows,
        )
    };
    view! { <section class="card"><h2>{t!("Models")}</h2>{body}</section> }.into_any()
}

fn rejections(totals: &Totals) -> AnyView {
    let rows: Vec<AnyView> = totals
        .refusals
        .iter()
        .map(|(code, count)| {
            let href = address("/ledger", &[("ending", &format!("code:{code}"))]);
            view! {
                <tr>
                    <th scope="row"><a href=href>{terms::refusal_of(code)}</a></th>
                    <td class="number">{format::count(*count)}</td>
                </tr>
            }
            .into_any()
        })
        .collect();
    let body = if rows.is_empty() {
        table::empty(
            t!("No request was refused this month. What a request would meet now can be asked without sending one."),
            view! { <a class="button" href="/explain">{t!("Explain")}</a> }.into_any(),
        )
    } else {
        table::table(
            t!("Refusals by reason."),
            &[words(t!("Reason")), figures(t!("Requests"))],
            rows,
        )
    };
    view! { <section class="card"><h2>{t!("Refused")}</h2>{body}</section> }.into_any()
}

fn top_keys(view: &OverviewView, format: &Format) -> AnyView {
    if view.overview.top_keys.is_empty() {
        return ().into_any();
    }
    let rows = view.overview.top_keys.iter().map(|row| key_row(row, format)).collect();
    view! {
        <section class="card">
            <h2>{t!("Keys")}</h2>
            {table::table(
                t!("Keys by cost."),
                &[words(t!("Key")), words(t!("Tenant")), figures(t!("Requests")), figures(t!("Refused")), figures(t!("Tokens")), figures(t!("Spent"))],
                rows,
            )}
        </section>
    }
    .into_any()
}

/// Only where there are any: the page of priorities says so when there are none.
async fn keys_that_do_not_wait(visit: &Visit, visitor: &Visitor) -> Result<AnyView, PageError> {
    let lookback = Lookback::default();
    let keys = visit
        .state
        .control
        .early_retries(&visitor.actor, None, lookback, visit.now())
        .await?;
    if keys.is_empty() {
        return Ok(().into_any());
    }
    Ok(early_retries::card(&keys, visitor))
}

fn key_row(row: &ReportRow, format: &Format) -> AnyView {
    let name = match (&row.key_name, &row.key_public_id, row.key_id) {
        (Some(name), _, Some(id)) => view! { <a href=format!("/keys/{id}")>{name.clone()}</a> }.into_any(),
        (None, Some(public_id), _) => masked(public_id).into_any(),
        (None, None, Some(id)) => Scope::Key(id).to_string().into_any(),
        _ => t!("without a key").into_any(),
    };
    view! {
        <tr>
            <th scope="row">{name}</th>
            <td>{row.tenant_name.clone()}</td>
            <td class="number">{format::count(row.totals.requests)}</td>
            <td class="number">{format::count(row.totals.refused_requests())}</td>
            <td class="number">{format::signed_count(row.totals.charged_tokens())}</td>
            <td class="number">{format.money(row.totals.charged())}</td>
        </tr>
    }
    .into_any()
}

/// What the sums contain, in a sentence.
pub fn completeness(completeness: &Completeness, format: &Format) -> AnyView {
    let until = format.time(completeness.complete_until);
    let text = match completeness.state {
        MonthState::Open => t!("The month is open. Complete up to {until}.", until),
        MonthState::Closing => {
            t!(
                "The month is over, but entries are still on their way. Complete up to {until}.",
                until
            )
        }
        MonthState::Final => t!("The month is final: only adjustments can change it.").to_owned(),
    };
    let waiting = (!completeness.waiting_for.is_empty()).then(|| {
        t!(
            " Waiting for {gateways}.",
            gateways = completeness.waiting_for.join(", ")
        )
    });
    view! { <p class="quiet">{text} {waiting}</p> }.into_any()
}

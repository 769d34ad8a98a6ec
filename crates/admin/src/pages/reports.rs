//! The monthly report: a table to look at and a CSV to take away.

use axum::Extension;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use control::reports::{MonthlyQuery, MonthlyReport, ReportFilter, ReportRow};
use control::usage_csv::UsageCsv;
use domain::ids::TenantId;
use domain::key_text::masked;
use domain::periods::Month;
use domain::reports::{Completeness, Grouping, MonthState, Totals};
use http::header;
use leptos::prelude::*;

use crate::error::{self, PageError};
use crate::form::{Field, Filled};
use crate::format::{self, Format};
use crate::page::{self, Page};
use crate::pages::estimates;
use crate::pages::overview::completeness;
use crate::shell;
use crate::table::{self, Column, Tone, badge, figures, words};
use crate::visit::{Visit, Visitor};

mod tags;

/// Where the page is.
const PATH: &str = "/reports";
/// Where the CSV is.
pub const CSV_PATH: &str = "/reports/monthly.csv";
/// What a report can be divided by: the query's word and the heading.
const DIVISIONS: [(&str, &str); 5] = [
    ("tenant", "Tenant"),
    ("user", "User"),
    ("key", "Key"),
    ("model", "Model"),
    ("priority", "Priority"),
];

/// The report as a page.
pub fn view() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let (query, problem) = query(&visit, visitor);
        if let Some(tag) = tag(&visit) {
            return tags::page(&visit, visitor, &query, tag, problem).await;
        }
        let report = visit
            .state
            .control
            .monthly_report(&visitor.actor, &query, visit.now())
            .await?;
        let format = &visit.format;
        let csv = format!("{CSV_PATH}?{}", query_text(&query));
        let actions = view! { <a class="button button-primary" href=csv download="">"Download CSV"</a> };
        let cut = report.report.is_cut.then(|| view! {
            <p class="notice notice-warning">
                {format!("Only the {} largest rows are shown; the totals and the CSV contain all of them.", format::count(report.report.rows.len() as u64))}
            </p>
        });
        let listed = if report.report.rows.is_empty() {
            table::empty("Nothing happened in this month.", ().into_any())
        } else {
            sums(&report, format)
        };
        let content = view! {
            {shell::page_head(
                format!("Report for {}", format::month_name(query.month)),
                format!("By the time of admission, in {} time.", format.zone()),
                actions.into_any(),
            )}
            {tabs(PATH)}
            {choices(&visit, visitor, &query, None, problem).await?}
            {state_line(&report.report.completeness, format)}
            {cut}
            {listed}
        };
        Ok(Page::new("Report", content.into_any()))
    })
}

/// Links to the pages of reports, the one at `path` marked.
pub fn tabs(path: &str) -> AnyView {
    let links = [(PATH, "By month"), (estimates::PATH, "Estimates")]
        .into_iter()
        .map(|(href, text)| {
            let current = (href == path).then_some("page");
            view! { <a class="button" href=href aria-current=current>{text}</a> }
        })
        .collect_view();
    view! { <nav class="actions" aria-label="Reports">{links}</nav> }.into_any()
}

/// The report as a file.
pub async fn csv(Extension(visit): Extension<Visit>) -> Response {
    match file(&visit).await {
        Ok(response) => response,
        Err(error) => error::document(&error),
    }
}

async fn file(visit: &Visit) -> Result<Response, PageError> {
    let visitor = visit.visitor()?;
    let (query, problem) = query(visit, visitor);
    if problem.is_some() {
        return Err(PageError::Malformed);
    }
    let control = &visit.state.control;
    let csv = match tag(visit) {
        Some(name) => {
            let query = tags::query(&query, name);
            control.monthly_tag_csv(&visitor.actor, &query, visit.now()).await?
        }
        None => control.monthly_csv(&visitor.actor, &query, visit.now()).await?,
    };
    let headers = [
        (header::CONTENT_TYPE, UsageCsv::MEDIA_TYPE.to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"{}\"", csv.file_name),
        ),
    ];
    Ok((headers, Body::from_stream(csv.bytes)).into_response())
}

/// The name of the tag whose values divide the report, in place of everything else.
fn tag(visit: &Visit) -> Option<String> {
    visit.query("tag")
}

/// What the address asks for, and what is wrong with it.
fn query(visit: &Visit, visitor: &Visitor) -> (MonthlyQuery, Option<String>) {
    let mut problem = None;
    let this_month = Month::containing(visit.now(), visit.format.zone());
    let month = match visit.query("month").map(|text| text.parse::<Month>()) {
        None => this_month,
        Some(Ok(month)) => month,
        Some(Err(error)) => {
            problem = Some(error.to_string());
            this_month
        }
    };
    let tenant = match visit.query("tenant").map(|text| text.parse::<TenantId>()) {
        None => None,
        Some(Ok(tenant)) => Some(tenant),
        Some(Err(_)) => {
            problem = Some("choose a tenant from the list".to_owned());
            None
        }
    };
    let by = visit.queries("by");
    let has = |word: &str| by.iter().any(|chosen| chosen == word);
    let is_default = by.is_empty();
    let grouping = Grouping {
        tenant: has("tenant") || (is_default && visitor.sees_everything()),
        user: has("user"),
        key: has("key") || (is_default && !visitor.sees_everything()),
        model: has("model"),
        priority: has("priority"),
    };
    let filter = ReportFilter {
        tenant,
        ..ReportFilter::default()
    };
    (
        MonthlyQuery {
            month,
            filter,
            grouping,
        },
        problem,
    )
}

/// The query as an address states it.
fn query_text(query: &MonthlyQuery) -> String {
    let mut text = format!("month={}", query.month);
    if let Some(tenant) = query.filter.tenant {
        text.push_str(&format!("&tenant={tenant}"));
    }
    for (word, _) in DIVISIONS {
        if is_divided_by(query.grouping, word) {
            text.push_str(&format!("&by={word}"));
        }
    }
    text
}

fn is_divided_by(grouping: Grouping, word: &str) -> bool {
    match word {
        "tenant" => grouping.tenant,
        "user" => grouping.user,
        "key" => grouping.key,
        "model" => grouping.model,
        _ => grouping.priority,
    }
}

async fn choices(
    visit: &Visit,
    visitor: &Visitor,
    query: &MonthlyQuery,
    tag: Option<&str>,
    problem: Option<String>,
) -> Result<AnyView, PageError> {
    let form = Filled::<()>::blank(());
    let tags = tags::field(visit, visitor, query, tag).await?;
    let tenants = if visitor.sees_everything() {
        let tenants = visit.state.control.tenants(&visitor.actor, visit.now()).await?;
        let chosen = query.filter.tenant.map(|tenant| tenant.to_string()).unwrap_or_default();
        let options = std::iter::once((String::new(), "All tenants".to_owned()))
            .chain(
                tenants
                    .iter()
                    .map(|tenant| (tenant.row.tenant.id.to_string(), tenant.row.tenant.name.clone())),
            )
            .collect();
        form.select(Field::new("tenant", "Tenant"), &chosen, options)
    } else {
        ().into_any()
    };
    let boxes = DIVISIONS
        .into_iter()
        .map(|(word, text)| {
            let is_chosen = is_divided_by(query.grouping, word);
            view! {
                <label class="check">
                    <input type="checkbox" name="by" value=word checked=is_chosen />
                    <span>{text}</span>
                </label>
            }
        })
        .collect_view();
    let divisions = tag.is_none().then(|| {
        view! {
            <div class="field" role="group" aria-labelledby="by-label">
                <span class="label" id="by-label">"Divided by"</span>
                <div class="check-list">{boxes}</div>
            </div>
        }
    });
    let problem = problem.map(|problem| view! { <p class="notice notice-bad" role="alert">{problem}</p> });
    let previous = address_of(query.month.previous(), query, tag);
    let next = address_of(query.month.next(), query, tag);
    let has_next = query.month < Month::containing(visit.now(), visit.format.zone());
    Ok(view! {
        {problem}
        <form class="card" method="get" action=PATH>
            <div class="filters">
                {form.text(Field::new("month", "Month").month(), &query.month.to_string())}
                {tenants}
                {tags}
                <div class="actions">
                    <button class="button" type="submit">"Show"</button>
                </div>
            </div>
            {divisions}
        </form>
        <nav class="pager" aria-label="Months">
            <a class="button" href=previous rel="prev">{format!("← {}", format::month_name(query.month.previous()))}</a>
            {has_next.then(|| view! { <a class="button" href=next rel="next">{format!("{} →", format::month_name(query.month.next()))}</a> })}
        </nav>
    }
    .into_any())
}

fn address_of(month: Month, query: &MonthlyQuery, tag: Option<&str>) -> String {
    let query = MonthlyQuery { month, ..query.clone() };
    match tag {
        Some(tag) => format!("{PATH}?{}", tags::query_text(&query, tag)),
        None => format!("{PATH}?{}", query_text(&query)),
    }
}

/// The month's state, and how complete its sums are.
fn state_line(sums: &Completeness, format: &Format) -> AnyView {
    view! { <div class="actions">{state_badge(sums.state)} {completeness(sums, format)}</div> }.into_any()
}

fn state_badge(state: MonthState) -> AnyView {
    let tone = match state {
        MonthState::Open => Tone::Quiet,
        MonthState::Closing => Tone::Warning,
        MonthState::Final => Tone::Good,
    };
    badge(state.as_str(), tone)
}

fn sums(report: &MonthlyReport, format: &Format) -> AnyView {
    let grouping = report.query.grouping;
    let mut columns: Vec<Column> = Vec::new();
    if grouping.has_tenant() {
        columns.push(words("Tenant"));
    }
    let rest = [
        (grouping.user, "User"),
        (grouping.key, "Key"),
        (grouping.model, "Model"),
        (grouping.priority, "Priority"),
    ];
    columns.extend(
        rest.into_iter()
            .filter(|(is_in, _)| *is_in)
            .map(|(_, title)| words(title)),
    );
    let heads = columns.len();
    if heads == 0 {
        columns.push(words(""));
    }
    columns.extend([
        figures("Requests"),
        figures("Failed"),
        figures("Refused"),
        figures("Input"),
        figures("From cache"),
        figures("Output"),
        figures("Cost"),
        figures("Adjusted"),
        figures("Charged"),
    ]);
    let rows = report
        .report
        .rows
        .iter()
        .map(|row| sum_row(row, grouping, format))
        .collect();
    let totals = &report.report.totals;
    let foot = view! {
        <tr>
            <th scope="row" colspan=heads.max(1).to_string()>"Total"</th>
            {figure_cells(totals, format)}
        </tr>
    };
    table::table_with_foot(
        format!("The largest first. Money in {}.", format.currency()),
        &columns,
        rows,
        foot.into_any(),
    )
}

fn sum_row(row: &ReportRow, grouping: Grouping, format: &Format) -> AnyView {
    let unknown = || "none".to_owned();
    let mut cells: Vec<String> = Vec::new();
    if grouping.has_tenant() {
        cells.push(
            row.tenant_name
                .clone()
                .or_else(|| row.tenant_id.map(|id| id.to_string()))
                .unwrap_or_else(unknown),
        );
    }
    if grouping.user {
        cells.push(
            row.user_name
                .clone()
                .or_else(|| row.user_id.clone())
                .unwrap_or_else(unknown),
        );
    }
    if grouping.key {
        let masked = row.key_public_id.as_deref().map(masked);
        cells.push(match (&row.key_name, masked) {
            (Some(name), Some(masked)) => format!("{name} ({masked})"),
            (Some(name), None) => name.clone(),
            (None, _) => row.key_id.map_or_else(unknown, |id| id.to_string()),
        });
    }
    if grouping.model {
        cells.push(row.model.clone().unwrap_or_else(unknown));
    }
    if grouping.priority {
        cells.push(
            row.priority
                .map_or_else(unknown, |priority| priority.as_str().to_owned()),
        );
    }
    if cells.is_empty() {
        cells.push("Everything".to_owned());
    }
    let mut cells = cells.into_iter();
    let first = cells.next();
    let rest = cells.map(|cell| view! { <td>{cell}</td> }).collect_view();
    view! {
        <tr>
            <th scope="row">{first}</th>
            {rest}
            {figure_cells(&row.totals, format)}
        </tr>
    }
    .into_any()
}

fn figure_cells(totals: &Totals, format: &Format) -> AnyView {
    view! {
        <td class="number">{format::count(totals.requests)}</td>
        <td class="number">{format::count(totals.failed_requests)}</td>
        <td class="number">{format::count(totals.refused_requests())}</td>
        <td class="number">{format::count(totals.usage.input_tokens())}</td>
        <td class="number">{format::count(totals.usage.cache_read_tokens)}</td>
        <td class="number">{format::count(totals.usage.output_tokens)}</td>
        <td class="number">{format.bare_money(totals.cost)}</td>
        <td class="number">{format.bare_money(totals.adjusted_cost)}</td>
        <td class="number">{format.bare_money(totals.charged())}</td>
    }
    .into_any()
}

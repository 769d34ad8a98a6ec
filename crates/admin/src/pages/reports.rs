//! The monthly report: a table to look at and a CSV to take away.

use axum::Extension;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use control::reports::{MonthlyReport, ReportFilter};
use control::usage_csv::UsageCsv;
use domain::periods::Month;
use domain::reports::{Completeness, MonthState};
use http::header;
use leptos::prelude::*;

use crate::error::{self, PageError};
use crate::form::{Field, Filled};
use crate::format::{self, Format};
use crate::page::{self, Page};
use crate::pages::estimates;
use crate::pages::overview::completeness;
use crate::shell;
use crate::table::{self, Tone, badge};
use crate::terms;
use crate::visit::{Visit, Visitor};

use asked::{Asked, DIVISIONS, Figures, is_divided_by};
use month_chart::month_chart;

mod asked;
mod figures;
mod month_chart;
mod tags;

/// Where the page is.
const PATH: &str = "/reports";
/// Where the CSV is.
pub const CSV_PATH: &str = "/reports/monthly.csv";
/// The report as a page.
pub fn view() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let (asked, problem) = Asked::read(&visit, visitor);
        if let Some(tag) = tag(&visit) {
            return tags::page(&visit, visitor, &asked, tag, problem).await;
        }
        let query = &asked.query;
        let report = visit
            .state
            .control
            .monthly_report(&visitor.actor, query, visit.now())
            .await?;
        let format = &visit.format;
        let actions =
            view! { <a class="button button-primary" href=asked.csv_address() download="">{t!("Download CSV")}</a> };
        let cut = report.report.is_cut.then(|| view! {
            <p class="notice notice-warning">
                {t!("Only the {count} largest rows are shown; the totals and the CSV contain all of them.", count = format::count(report.report.rows.len() as u64))}
            </p>
        });
        let listed = if report.report.rows.is_empty() {
            table::empty(t!("Nothing happened in this month."), ().into_any())
        } else {
            view! { {figures_tabs(&asked)} {figures::table(&report, &asked, format)} }.into_any()
        };
        let content = view! {
            {shell::page_head(
                t!("Report for {month}", month = format::month_name(query.month)),
                t!("By the time of admission, in {zone} time.", zone = format.zone()),
                actions.into_any(),
            )}
            {tabs(PATH)}
            {choices(&visit, visitor, &asked, None, problem).await?}
            {narrowed(&report, &asked)}
            {state_line(&report.report.completeness, format)}
            {month_chart(&report, format)}
            {cut}
            {listed}
        };
        Ok(Page::new(t!("Report"), content.into_any()))
    })
}

/// Links to the pages of reports, the one at `path` marked.
pub fn tabs(path: &str) -> AnyView {
    let links = [(PATH, t!("By month")), (estimates::PATH, t!("Estimates"))]
        .into_iter()
        .map(|(href, text)| {
            let current = (href == path).then_some("page");
            view! { <a class="button" href=href aria-current=current>{text}</a> }
        })
        .collect_view();
    view! { <nav class="actions" aria-label=t!("Reports")>{links}</nav> }.into_any()
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
    let (asked, problem) = Asked::read(visit, visitor);
    // A file by tag has no narrower filter than the tenant's, and must not look as if it had.
    if problem.is_some() || tag(visit).is_some() && asked.is_narrowed() {
        return Err(PageError::Malformed);
    }
    let control = &visit.state.control;
    let csv = match tag(visit) {
        Some(name) => {
            let query = tags::query(&asked.query, name);
            control.monthly_tag_csv(&visitor.actor, &query, visit.now()).await?
        }
        None => control.monthly_csv(&visitor.actor, &asked.query, visit.now()).await?,
    };
    Ok(download(csv))
}

/// A file as the answer to a request.
pub fn download(csv: UsageCsv) -> Response {
    let headers = [
        (header::CONTENT_TYPE, UsageCsv::MEDIA_TYPE.to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"{}\"", csv.file_name),
        ),
    ];
    (headers, Body::from_stream(csv.bytes)).into_response()
}

/// The name of the tag whose values divide the report, in place of everything else.
fn tag(visit: &Visit) -> Option<String> {
    visit.query("tag")
}

async fn choices(
    visit: &Visit,
    visitor: &Visitor,
    asked: &Asked,
    tag: Option<&str>,
    problem: Option<String>,
) -> Result<AnyView, PageError> {
    let form = Filled::<()>::blank(());
    let query = &asked.query;
    let tags = tags::field(visit, visitor, query, tag).await?;
    let tenants = if visitor.sees_everything() {
        let tenants = visit.state.control.tenants(&visitor.actor, visit.now()).await?;
        let chosen = query.filter.tenant.map(|tenant| tenant.to_string()).unwrap_or_default();
        let options = std::iter::once((String::new(), t!("All tenants").to_owned()))
            .chain(
                tenants
                    .iter()
                    .map(|tenant| (tenant.row.tenant.id.to_string(), tenant.row.tenant.name.clone())),
            )
            .collect();
        form.select(Field::new("tenant", t!("Tenant")), &chosen, options)
    } else {
        ().into_any()
    };
    let boxes = DIVISIONS
        .into_iter()
        .map(|word| {
            let text = asked::division(word);
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
                <span class="label" id="by-label">{t!("Divided by")}</span>
                <div class="check-list">{boxes}</div>
            </div>
        }
    });
    let problem = problem.map(|problem| view! { <p class="notice notice-bad" role="alert">{problem}</p> });
    let previous = address_of(query.month.previous(), asked, tag);
    let next = address_of(query.month.next(), asked, tag);
    let kept = tag.is_none().then(|| kept_fields(asked));
    let has_next = query.month < Month::containing(visit.now(), visit.format.zone());
    Ok(view! {
        {problem}
        <form class="card" method="get" action=PATH>
            {kept}
            <div class="filters">
                {form.text(Field::new("month", t!("Month")).month(), &query.month.to_string())}
                {tenants}
                {tags}
                <div class="actions">
                    <button class="button" type="submit">{t!("Show")}</button>
                </div>
            </div>
            {divisions}
        </form>
        <nav class="pager" aria-label=t!("Months")>
            <a class="button" href=previous rel="prev">{format!("← {}", format::month_name(query.month.previous()))}</a>
            {has_next.then(|| view! { <a class="button" href=next rel="next">{format!("{} →", format::month_name(query.month.next()))}</a> })}
        </nav>
    }
    .into_any())
}

fn address_of(month: Month, asked: &Asked, tag: Option<&str>) -> String {
    let other = asked.of(month);
    match tag {
        Some(tag) => tags::page_address(&other.query, tag),
        None => other.address(),
    }
}

/// What the form has no field for and keeps all the same.
fn kept_fields(asked: &Asked) -> AnyView {
    let filter = &asked.query.filter;
    let figures = (asked.figures != Figures::default()).then(|| asked.figures.as_str().to_owned());
    [
        ("user", filter.user.clone()),
        ("key", filter.key.map(|key| key.to_string())),
        ("model", filter.model.clone()),
        ("priority", filter.priority.map(|priority| priority.to_string())),
        ("show", figures),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some(view! { <input type="hidden" name=name value=value? /> }))
    .collect_view()
    .into_any()
}

/// What the report is narrowed to beside the tenant, each with a link that takes it away.
fn narrowed(report: &MonthlyReport, asked: &Asked) -> AnyView {
    let filter = &asked.query.filter;
    let without = |change: fn(&mut ReportFilter)| asked.within(change, asked.query.grouping).address();
    let row = report.report.rows.first();
    let user_name = row.and_then(|row| row.user_name.clone());
    let key_name = row.and_then(|row| row.key_name.clone());
    let parts = [
        (
            t!("User"),
            t!("Show every user again"),
            filter
                .user
                .as_ref()
                .map(|user| user_name.unwrap_or_else(|| user.clone())),
            without(|filter| filter.user = None),
        ),
        (
            t!("Key"),
            t!("Show every key again"),
            filter.key.map(|key| key_name.unwrap_or_else(|| key.to_string())),
            without(|filter| filter.key = None),
        ),
        (
            t!("Model"),
            t!("Show every model again"),
            filter.model.clone(),
            without(|filter| filter.model = None),
        ),
        (
            t!("Priority"),
            t!("Show every priority again"),
            filter.priority.map(|priority| terms::priority(priority).to_owned()),
            without(|filter| filter.priority = None),
        ),
    ];
    let parts: Vec<AnyView> = parts
        .into_iter()
        .filter_map(|(kind, label, value, href)| {
            let value = value?;
            Some(
                view! {
                    <span class="badge">{t!("{kind}: {value}", kind, value)}</span>
                    <a href=href aria-label=label>{t!("remove")}</a>
                }
                .into_any(),
            )
        })
        .collect();
    if parts.is_empty() {
        return ().into_any();
    }
    view! { <p class="actions">{t!("Only ", in "a narrowed report")}{parts}</p> }.into_any()
}

/// Links to the table's other figures.
fn figures_tabs(asked: &Asked) -> AnyView {
    let links = Figures::ALL
        .into_iter()
        .map(|figures| {
            let current = (figures == asked.figures).then_some("page");
            view! { <a class="button" href=asked.with(figures).address() aria-current=current>{figures.title()}</a> }
        })
        .collect_view();
    view! { <nav class="actions" aria-label=t!("Figures")>{links}</nav> }.into_any()
}

/// The month's state, and how complete its sums are.
fn state_line(sums: &Completeness, format: &Format) -> AnyView {
    view! { <div class="actions">{state_badge(sums.state)} {completeness(sums, format)}</div> }.into_any()
}

fn state_badge(state: MonthState) -> AnyView {
    let (word, tone) = match state {
        MonthState::Open => (t!("open", in "a month"), Tone::Quiet),
        MonthState::Closing => (t!("closing", in "a month"), Tone::Warning),
        MonthState::Final => (t!("final", in "a month"), Tone::Good),
    };
    badge(word, tone)
}

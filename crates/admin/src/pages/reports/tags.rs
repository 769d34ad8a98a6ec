//! The monthly report by the values of one tag.

use control::reports::MonthlyQuery;
use control::tags::{MonthlyTagQuery, MonthlyTagReport, TagRow};
use domain::reports::TagTotals;
use leptos::prelude::*;

use super::{Asked, CSV_PATH, PATH, choices, state_line, tabs};
use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::format::{self, Format};
use crate::page::Page;
use crate::shell;
use crate::table::{self, figures, words};
use crate::visit::{Visit, Visitor, address};

/// What the report is asked for.
pub(super) fn query(query: &MonthlyQuery, name: String) -> MonthlyTagQuery {
    MonthlyTagQuery {
        month: query.month,
        tenant: query.filter.tenant,
        name,
    }
}

/// The page's address.
pub(super) fn page_address(query: &MonthlyQuery, tag: &str) -> String {
    address_under(PATH, query, tag)
}

fn address_under(path: &str, query: &MonthlyQuery, tag: &str) -> String {
    let tenant = query.filter.tenant.map(|tenant| tenant.to_string()).unwrap_or_default();
    let fields = [
        ("month", query.month.to_string()),
        ("tenant", tenant),
        ("tag", tag.to_owned()),
    ];
    let fields = fields.each_ref().map(|(name, value)| (*name, value.as_str()));
    address(path, &fields)
}

/// The choice among the tags that the month has.
pub(super) async fn field(
    visit: &Visit,
    visitor: &Visitor,
    query: &MonthlyQuery,
    chosen: Option<&str>,
) -> Result<AnyView, PageError> {
    let control = &visit.state.control;
    let mut names = control
        .tag_names(&visitor.actor, query.month, query.filter.tenant)
        .await?;
    let chosen = chosen.unwrap_or_default();
    if !chosen.is_empty() && !names.iter().any(|name| name == chosen) {
        names.push(chosen.to_owned());
    }
    if names.is_empty() {
        return Ok(().into_any());
    }
    let options = std::iter::once((String::new(), t!("None").to_owned()))
        .chain(names.into_iter().map(|name| (name.clone(), name)))
        .collect();
    Ok(Filled::<()>::blank(()).select(Field::new("tag", t!("By a tag instead")), chosen, options))
}

/// The report as a page.
pub(super) async fn page(
    visit: &Visit,
    visitor: &Visitor,
    report: &Asked,
    tag: String,
    problem: Option<String>,
) -> Result<Page, PageError> {
    let query = &report.query;
    let asked = self::query(query, tag);
    let control = &visit.state.control;
    let found = control.monthly_tag_report(&visitor.actor, &asked, visit.now()).await?;
    let format = &visit.format;
    let csv = address_under(CSV_PATH, query, &asked.name);
    let actions = view! { <a class="button button-primary" href=csv download="">{t!("Download CSV")}</a> };
    let cut = found.report.is_cut.then(|| {
        let text = t!(
            "Only the {count} dearest values are shown; the total and the CSV contain all of them.",
            count = format::count(found.report.rows.len() as u64)
        );
        view! { <p class="notice notice-warning">{text}</p> }
    });
    let widened = report.is_narrowed().then(|| view! {
        <p class="notice notice-warning">
            {t!("By a tag, the requests of all users, keys, models and priorities are counted: a report by tag is narrowed to a tenant only.")}
        </p>
    });
    let listed = if found.report.totals == TagTotals::default() {
        table::empty(t!("No request ran in this month."), ().into_any())
    } else {
        values(&found, &asked, format)
    };
    let content = view! {
        {shell::page_head(
            t!("Report for {month} by {tag}", month = format::month_name(query.month), tag = asked.name),
            t!("By the time of admission, in {zone} time.", zone = format.zone()),
            actions.into_any(),
        )}
        {tabs(PATH)}
        {choices(visit, visitor, report, Some(&asked.name), problem).await?}
        {widened}
        {state_line(&found.report.completeness, format)}
        {cut}
        {listed}
        <p class="quiet">
            {t!("Refused requests and adjustments have no part in this report; the total is that of the month's requests that ran.")}
        </p>
    };
    Ok(Page::new(t!("Report"), content.into_any()))
}

fn values(found: &MonthlyTagReport, asked: &MonthlyTagQuery, format: &Format) -> AnyView {
    let report = &found.report;
    let without = view! {
        <tr>
            <th scope="row" class="quiet">{t!("Without {tag}", tag = asked.name)}</th>
            {figure_cells(&report.without, format)}
        </tr>
    };
    let rows = report
        .rows
        .iter()
        .map(|row| value_row(row, found, asked, format))
        .chain([without.into_any()])
        .collect();
    let foot = view! {
        <tr>
            <th scope="row">{t!("Total")}</th>
            {figure_cells(&report.totals, format)}
        </tr>
    };
    table::table_with_foot(
        t!(
            "The dearest first. Money in {currency}, before adjustments.",
            currency = format.currency()
        ),
        &[
            words(t!("Value")),
            figures(t!("Requests")),
            figures(t!("Failed")),
            figures(t!("Input")),
            figures(t!("From cache")),
            figures(t!("Output")),
            figures(t!("Cost")),
        ],
        rows,
        foot.into_any(),
    )
}

fn value_row(row: &TagRow, found: &MonthlyTagReport, asked: &MonthlyTagQuery, format: &Format) -> AnyView {
    let tag = format!("{}={}", asked.name, row.value);
    let (from, until) = (format.field_time(found.span.start), format.field_time(found.span.end));
    let tenant = asked.tenant.map(|tenant| tenant.to_string()).unwrap_or_default();
    let entries = address(
        "/ledger",
        &[
            ("kind", "settlement"),
            ("tenant", &tenant),
            ("tag", &tag),
            ("from", &from),
            ("until", &until),
        ],
    );
    let value = if row.value.is_empty() {
        t!("(empty)").to_owned()
    } else {
        row.value.clone()
    };
    view! {
        <tr>
            <th scope="row">
                <a href=entries>{value}</a>
            </th>
            {figure_cells(&row.totals, format)}
        </tr>
    }
    .into_any()
}

fn figure_cells(totals: &TagTotals, format: &Format) -> AnyView {
    view! {
        <td class="number">{format::count(totals.requests)}</td>
        <td class="number">{format::count(totals.failed_requests)}</td>
        <td class="number">{format::count(totals.usage.input_tokens())}</td>
        <td class="number">{format::count(totals.usage.cache_read_tokens)}</td>
        <td class="number">{format::count(totals.usage.output_tokens)}</td>
        <td class="number">{format.bare_money(totals.cost)}</td>
    }
    .into_any()
}

//! The report's table: rows with links to what they are made of, and the figures that were asked for.

use std::collections::BTreeSet;

use control::reports::{Before, MonthlyReport, ReportFilter, ReportRow};
use domain::key_text::masked;
use domain::money::Nanos;
use domain::reports::{Grouping, Totals};
use leptos::prelude::*;

use super::asked::{Asked, Figures};
use crate::format::{self, Format};
use crate::table::{self, Column, figures, meter, words};
use crate::terms;

/// Where a budget stands among the figures that have one: behind what is measured against it.
const BEFORE_BUDGET: usize = 3;
/// Shares of requests whose latencies are shown.
const QUANTILES: [f64; 3] = [0.5, 0.95, 0.99];

/// The rows, the largest first, and the totals.
pub(super) fn table(report: &MonthlyReport, asked: &Asked, format: &Format) -> AnyView {
    let grouping = report.query.grouping;
    let mut columns: Vec<Column> = heads(grouping).into_iter().map(words).collect();
    let heads = columns.len();
    let cells = Cells::of(report, asked.figures, format);
    let titles = cells.titles();
    columns.extend(titles.iter().map(|title| figures(title.clone())));
    let rows = report
        .report
        .rows
        .iter()
        .map(|row| {
            let head = row_head(row, grouping, asked);
            let label = row_label(row, grouping);
            let cells = cells.row(&row.totals, row.before, row.budget.map(|budget| (budget, label)));
            view! { <tr>{head} {cells}</tr> }.into_any()
        })
        .collect();
    let foot = view! {
        <tr>
            <th scope="row" colspan=heads.to_string()>{t!("Total")}</th>
            {cells.row(&report.report.totals, report.report.before, None)}
        </tr>
    };
    let caption = t!("The largest first. Money in {currency}.", currency = format.currency());
    table::table_with_foot(caption, &columns, rows, foot.into_any())
}

fn heads(grouping: Grouping) -> Vec<&'static str> {
    let all = [
        (grouping.has_tenant(), t!("Tenant")),
        (grouping.user, t!("User")),
        (grouping.key, t!("Key")),
        (grouping.model, t!("Model")),
        (grouping.priority, t!("Priority")),
    ];
    let heads: Vec<&str> = all
        .into_iter()
        .filter(|(is_in, _)| *is_in)
        .map(|(_, title)| title)
        .collect();
    if heads.is_empty() { vec![""] } else { heads }
}

/// What a row is about, each part with a link to the report that divides it further.
fn row_head(row: &ReportRow, grouping: Grouping, asked: &Asked) -> AnyView {
    let mut cells: Vec<(String, Option<String>)> = Vec::new();
    let none = Grouping::NONE;
    let within = |narrow: &dyn Fn(&mut ReportFilter), by: Grouping| Some(asked.within(narrow, by).address());
    if grouping.has_tenant() {
        let link = row
            .tenant_id
            .and_then(|id| within(&|filter| filter.tenant = Some(id), Grouping { key: true, ..none }));
        cells.push((tenant_name(row), link));
    }
    if grouping.user {
        let link = row.user_id.as_ref().and_then(|user| {
            let narrow = |filter: &mut ReportFilter| {
                filter.tenant = row.tenant_id;
                filter.user = Some(user.clone());
            };
            within(&narrow, Grouping { model: true, ..none })
        });
        cells.push((user_name(row), link));
    }
    if grouping.key {
        let link = row
            .key_id
            .and_then(|id| within(&|filter| filter.key = Some(id), Grouping { model: true, ..none }));
        cells.push((key_name(row), link));
    }
    if grouping.model {
        let link = row.model.as_ref().and_then(|model| {
            within(
                &|filter| filter.model = Some(model.clone()),
                Grouping { tenant: true, ..none },
            )
        });
        cells.push((row.model.clone().unwrap_or_else(unknown), link));
    }
    if grouping.priority {
        let link = row.priority.and_then(|priority| {
            within(
                &|filter| filter.priority = Some(priority),
                Grouping { tenant: true, ..none },
            )
        });
        let name = row
            .priority
            .map_or_else(unknown, |priority| terms::priority(priority).to_owned());
        cells.push((name, link));
    }
    if cells.is_empty() {
        cells.push((t!("Everything").to_owned(), None));
    }
    let mut cells = cells.into_iter().map(|(text, link)| match link {
        Some(href) => view! { <a href=href>{text}</a> }.into_any(),
        None => text.into_any(),
    });
    let first = cells.next();
    let rest = cells.map(|cell| view! { <td>{cell}</td> }).collect_view();
    view! { <th scope="row">{first}</th> {rest} }.into_any()
}

fn row_label(row: &ReportRow, grouping: Grouping) -> String {
    match grouping {
        Grouping { key: true, .. } => key_name(row),
        Grouping { user: true, .. } => user_name(row),
        Grouping { model: true, .. } => row.model.clone().unwrap_or_else(unknown),
        _ => tenant_name(row),
    }
}

fn unknown() -> String {
    t!("none").to_owned()
}

fn tenant_name(row: &ReportRow) -> String {
    let id = || row.tenant_id.map(|id| id.to_string());
    row.tenant_name.clone().or_else(id).unwrap_or_else(unknown)
}

fn user_name(row: &ReportRow) -> String {
    let id = || row.user_id.clone();
    row.user_name.clone().or_else(id).unwrap_or_else(unknown)
}

fn key_name(row: &ReportRow) -> String {
    let masked = row.key_public_id.as_deref().map(masked);
    match (&row.key_name, masked) {
        (Some(name), Some(masked)) => format!("{name} ({masked})"),
        (Some(name), None) => name.clone(),
        (None, _) => row.key_id.map_or_else(unknown, |id| id.to_string()),
    }
}

/// The figures of a row.
struct Cells<'a> {
    figures: Figures,
    format: &'a Format,
    /// The reasons that came up, for [`Figures::Refusals`].
    reasons: Vec<String>,
    has_budgets: bool,
}

impl<'a> Cells<'a> {
    fn of(report: &MonthlyReport, figures: Figures, format: &'a Format) -> Self {
        let reasons: BTreeSet<String> = report.report.totals.refusals.keys().cloned().collect();
        Self {
            figures,
            format,
            reasons: reasons.into_iter().collect(),
            has_budgets: report.report.rows.iter().any(|row| row.budget.is_some()),
        }
    }

    fn titles(&self) -> Vec<String> {
        let fixed: &[&str] = match self.figures {
            Figures::Summary => &[
                t!("Requests"),
                t!("Charged"),
                t!("Change"),
                t!("Cost"),
                t!("Adjusted"),
                t!("Failed"),
                t!("Refused"),
                t!("Input"),
                t!("From cache"),
                t!("Output"),
            ],
            Figures::Tokens => &[
                t!("Requests"),
                t!("Fresh input"),
                t!("From cache"),
                t!("Into cache, 5 min"),
                t!("Into cache, 1 h"),
                t!("Output"),
                t!("Of it reasoning"),
                t!("Adjusted"),
                t!("All"),
            ],
            Figures::Money => &[
                t!("Charged"),
                t!("Month before"),
                t!("Change"),
                t!("Cost"),
                t!("Adjusted"),
                t!("Expected"),
                t!("Estimate off by"),
            ],
            Figures::Refusals => &[t!("Requests"), t!("Refused")],
            Figures::Service => &[
                t!("Requests"),
                t!("Failed"),
                t!("Usage estimated"),
                t!("First byte, median"),
                t!("95 %"),
                t!("99 %"),
                t!("Duration, median"),
                t!("95 %"),
                t!("99 %"),
                t!("Wait, mean"),
            ],
        };
        let mut titles: Vec<String> = fixed.iter().map(|title| (*title).to_owned()).collect();
        if self.figures == Figures::Refusals {
            titles.extend(self.reasons.iter().map(|code| terms::refusal_of(code)));
        }
        if self.shows_budgets() {
            titles.splice(
                BEFORE_BUDGET..BEFORE_BUDGET,
                [t!("Budget"), t!("Used")].map(str::to_owned),
            );
        }
        titles
    }

    fn shows_budgets(&self) -> bool {
        self.has_budgets && matches!(self.figures, Figures::Summary | Figures::Money)
    }

    /// `budget` with the name of what it is of.
    fn row(&self, totals: &Totals, before: Before, budget: Option<(Nanos, String)>) -> AnyView {
        let (format, usage) = (self.format, &totals.usage);
        let money = |amount: Nanos| format.bare_money(amount);
        let quantiles = |latencies: &domain::reports::Latencies| {
            QUANTILES.map(|quantile| {
                latencies
                    .quantile_ms(quantile)
                    .map_or_else(String::new, format::duration_ms)
            })
        };
        let change = || change(totals.charged(), before.charged);
        let count = format::count;
        let cells: Vec<String> = match self.figures {
            Figures::Summary => vec![
                count(totals.requests),
                money(totals.charged()),
                change(),
                money(totals.cost),
                money(totals.adjusted_cost),
                count(totals.failed_requests),
                count(totals.refused_requests()),
                count(usage.input_tokens()),
                count(usage.cache_read_tokens),
                count(usage.output_tokens),
            ],
            Figures::Tokens => vec![
                count(totals.requests),
                count(usage.input_fresh_tokens),
                count(usage.cache_read_tokens),
                count(usage.cache_write_5m_tokens),
                count(usage.cache_write_1h_tokens),
                count(usage.output_tokens),
                count(usage.reasoning_tokens),
                format::signed_count(totals.adjusted_input_tokens + totals.adjusted_output_tokens),
                format::signed_count(totals.charged_tokens()),
            ],
            Figures::Money => vec![
                money(totals.charged()),
                money(before.charged),
                change(),
                money(totals.cost),
                money(totals.adjusted_cost),
                money(totals.expected_cost),
                totals.estimate_error_percent().map_or_else(String::new, signed_percent),
            ],
            Figures::Refusals => {
                let of = |code: &String| count(totals.refusals.get(code).copied().unwrap_or(0));
                let all = [count(totals.requests), count(totals.refused_requests())];
                all.into_iter().chain(self.reasons.iter().map(of)).collect()
            }
            Figures::Service => {
                let counts = [totals.requests, totals.failed_requests, totals.estimated_requests].map(count);
                let wait = totals.mean_queue_ms().and_then(|ms| i64::try_from(ms).ok());
                counts
                    .into_iter()
                    .chain(quantiles(&totals.first_byte_latencies))
                    .chain(quantiles(&totals.total_latencies))
                    .chain([wait.map_or_else(String::new, format::duration_ms)])
                    .collect()
            }
        };
        let mut cells: Vec<AnyView> = cells.into_iter().map(|cell| cell.into_any()).collect();
        if self.shows_budgets() {
            let amount = budget.as_ref().map(|(budget, _)| money(*budget)).into_any();
            let percent =
                budget.and_then(|(budget, label)| Some((format::percent(totals.charged().0, budget.0)?, label)));
            let meter = percent.map(|(percent, label)| view! { {format!("{percent} %")} {meter(percent, &label)} });
            cells.splice(BEFORE_BUDGET..BEFORE_BUDGET, [amount, meter.into_any()]);
        }
        cells
            .into_iter()
            .map(|cell| view! { <td class="number">{cell}</td> })
            .collect_view()
            .into_any()
    }
}

/// How much more or less than the month before.
fn change(charged: Nanos, before: Nanos) -> String {
    // Credits may have brought the month before below zero, of which there are no percents.
    if before.0 <= 0 {
        let is_new = before.0 == 0 && charged.0 > 0;
        return if is_new {
            t!("new", in "a change").to_owned()
        } else {
            String::new()
        };
    }
    signed_percent((charged.0 - before.0) as f64 * 100.0 / before.0 as f64)
}

fn signed_percent(percent: f64) -> String {
    let rounded = percent.round();
    if rounded == 0.0 {
        "0 %".to_owned()
    } else if rounded < 0.0 {
        format!("\u{2212}{} %", format::count(-rounded as u64))
    } else {
        format!("+{} %", format::count(rounded as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_by_its_sign_and_nothing_before_is_new() {
        let units = Nanos::from_units;
        for (charged, before, text) in [
            (3, 2, "+50 %"),
            (1, 2, "\u{2212}50 %"),
            (2, 2, "0 %"),
            (2, 0, "new"),
            (0, 0, ""),
            (30_000, 1, "+2,999,900 %"),
        ] {
            assert_eq!(change(units(charged), units(before)), text, "{charged} after {before}");
        }
    }
}

//! What a month was charged day by day, beside the month before.

use control::reports::MonthlyReport;
use domain::money::Nanos;
use leptos::prelude::*;

use crate::chart;
use crate::format::{self, Format};
use crate::table::{self, figures, words};

/// Id of the chart's caption.
const CAPTION: &str = "charged-by-day";

/// The chart and its table.
pub(super) fn month_chart(report: &MonthlyReport, format: &Format) -> AnyView {
    let (days, earlier) = (&report.days, &report.days_before);
    let is_empty = days.iter().chain(earlier).all(|day| day.charged == Nanos::ZERO);
    if is_empty {
        return ().into_any();
    }
    let points: Vec<_> = days.iter().map(|day| (day.day, day.charged)).collect();
    let before: Vec<_> = earlier.iter().map(|day| day.charged).collect();
    let title = t!("Charged by day, {currency}", currency = format.currency());
    let drawing = match chart::daily_bars_beside(&points, &before, CAPTION, &title) {
        // The drawing is made of figures and dates of ours, never of texts that somebody entered.
        Ok(svg) => {
            view! { <div class="chart-frame" tabindex="0" role="group" aria-labelledby=CAPTION inner_html=svg></div> }
                .into_any()
        }
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "a chart is left out");
            ().into_any()
        }
    };
    // The month before may be longer.
    let rows = (0..days.len().max(earlier.len()))
        .map(|at| {
            let (day, before) = (days.get(at), earlier.get(at));
            let name = day.or(before).map(|day| format::day(day.day));
            view! {
                <tr>
                    <th scope="row">{name}</th>
                    <td class="number">{day.map(|day| format.money(day.charged))}</td>
                    <td class="number">{before.map(|day| format.money(day.charged))}</td>
                    <td class="number">{day.map(|day| format::count(day.requests))}</td>
                    <td class="number">{day.map(|day| format::signed_count(day.tokens))}</td>
                    <td class="number">{day.map(|day| format::count(day.refused_requests))}</td>
                </tr>
            }
            .into_any()
        })
        .collect();
    let (month, month_before) = (report.query.month, report.query.month.previous());
    view! {
        <section class="card">
            <figure class="chart">
                <figcaption><h2 id=CAPTION>{title}</h2></figcaption>
                <ul class="legend">
                    <li class="legend-now">{format::month_name(month)}</li>
                    <li class="legend-before">{format::month_name(month_before)}</li>
                </ul>
                {drawing}
            </figure>
            <details>
                <summary>{t!("The figures as a table")}</summary>
                {table::table(
                    t!("By day in {zone} time.", zone = format.zone()),
                    &[
                        words(t!("Day")),
                        figures(t!("Charged")),
                        figures(t!("Month before")),
                        figures(t!("Requests")),
                        figures(t!("Tokens")),
                        figures(t!("Refused")),
                    ],
                    rows,
                )}
            </details>
        </section>
    }
    .into_any()
}

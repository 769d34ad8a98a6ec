//! How well expectations fit what requests use, by model.

use control::estimates::EstimatesView;
use control::lookback::Lookback;
use control::reports::ReportFilter;
use domain::money::Nanos;
use domain::reports::{Estimated, Estimates};
use leptos::prelude::*;

use crate::error::PageError;
use crate::format::{self, Format};
use crate::lookbacks;
use crate::page::{self, Page};
use crate::pages::reports;
use crate::shell;
use crate::table::{self, figures, words};
use crate::visit::{Visit, Visitor, address};

/// Where the page is.
pub const PATH: &str = "/reports/estimates";

/// All models, over the time that the address asks for.
pub fn view() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let lookback = lookbacks::chosen(&visit);
        let found = visit
            .state
            .control
            .estimates(&visitor.actor, &ReportFilter::default(), lookback, visit.now())
            .await?;
        let format = &visit.format;
        let listed = if found.models.is_empty() {
            table::empty(t!("No request has ended in this time."), ().into_any())
        } else {
            by_model(&found, visitor, format)
        };
        let cut = found.is_cut.then(|| {
            let text = t!(
                "Only the {count} models that cost most are shown; the total contains all.",
                count = found.models.len()
            );
            view! { <p class="notice notice-warning">{text}</p> }
        });
        let content = view! {
            {shell::page_head(t!("Estimates"), t!("What was held for requests before they ran, beside what they used."), ().into_any())}
            {reports::tabs(PATH)}
            {lookbacks::links(PATH, Lookback::WHILE, lookback, &[])}
            {cut}
            {listed}
            {lookbacks::covered(found.span, found.completeness.complete_until, format)}
            <section class="card">
                <h2>{t!("What the ratios say")}</h2>
                {explanation()}
            </section>
        };
        Ok(Page::new(t!("Estimates"), content.into_any()))
    })
}

/// One model's estimates over the last day, week and thirty days, as a part of its page.
pub async fn of_model(visit: &Visit, visitor: &Visitor, model: &str) -> Result<AnyView, PageError> {
    let filter = ReportFilter {
        model: Some(model.to_owned()),
        ..ReportFilter::default()
    };
    let mut rows = Vec::new();
    for lookback in Lookback::WHILE {
        let found = visit
            .state
            .control
            .estimates(&visitor.actor, &filter, lookback, visit.now())
            .await?;
        rows.push((lookbacks::name(lookback), found.all));
    }
    let is_empty = rows.iter().all(|(_, estimates)| estimates.requests == 0);
    let listed = if is_empty {
        table::empty(
            t!("No request for this model has ended in the last 30 days."),
            ().into_any(),
        )
    } else {
        let rows = rows
            .into_iter()
            .map(|(name, estimates)| {
                let head = view! { <span class="nowrap">{name}</span> };
                row(head.into_any(), &estimates, &visit.format)
            })
            .collect();
        table::table(caption(&visit.format), &columns(t!("Time")), rows)
    };
    Ok(view! {
        <section class="card">
            <div class="card-head">
                <h2>{t!("Estimates")}</h2>
                <a href=PATH>{t!("All models, and what the ratios say")}</a>
            </div>
            {listed}
        </section>
    }
    .into_any())
}

fn by_model(found: &EstimatesView, visitor: &Visitor, format: &Format) -> AnyView {
    let rows = found
        .models
        .iter()
        .map(|model| {
            let name = model.model.clone().unwrap_or_else(|| t!("none").to_owned());
            let head = match &model.model {
                Some(model) if visitor.sees_everything() => {
                    let href = address("/models/edit", &[("name", model)]);
                    view! { <a href=href>{name}</a> }.into_any()
                }
                _ => name.into_any(),
            };
            row(head, &model.estimates, format)
        })
        .collect();
    table::table_with_foot(
        caption(format),
        &columns(t!("Model")),
        rows,
        row(t!("Total").into_any(), &found.all, format),
    )
}

fn caption(format: &Format) -> String {
    t!(
        "Each ratio is expected ÷ used; the figures below it are expected / used. Money in {currency}.",
        currency = format.currency()
    )
}

fn columns(first: &'static str) -> [table::Column; 7] {
    [
        words(first),
        figures(t!("Requests")),
        figures(t!("Input tokens")),
        figures(t!("Output tokens")),
        figures(t!("Cost")),
        figures(t!("Overrun")),
        figures(t!("Usage estimated")),
    ]
}

fn row(head: AnyView, estimates: &Estimates, format: &Format) -> AnyView {
    let money = |nanos: u64| format.bare_money(Nanos(i64::try_from(nanos).unwrap_or(i64::MAX)));
    view! {
        <tr>
            <th scope="row">{head}</th>
            <td class="number">{format::count(estimates.requests)}</td>
            {compared(estimates.input, format::count)}
            {compared(estimates.output, format::count)}
            {compared(estimates.cost, money)}
            <td class="number">{format.bare_money(estimates.overrun)}</td>
            <td class="number">{format::share(estimates.estimated_requests, estimates.requests)}</td>
        </tr>
    }
    .into_any()
}

fn compared(figure: Estimated, written: impl Fn(u64) -> String) -> AnyView {
    let both = format!("{} / {}", written(figure.expected), written(figure.used));
    view! { <td class="number">{ratio_text(figure)} <br /> <small class="quiet">{both}</small></td> }.into_any()
}

/// A ratio to two places; a dash where nothing was used.
fn ratio_text(figure: Estimated) -> String {
    match figure.ratio_hundredths() {
        Some(hundredths) => format!("{}.{:02}", format::count(hundredths / 100), hundredths % 100),
        None => "–".to_owned(),
    }
}

fn explanation() -> AnyView {
    view! {
        <p>
            {t!("Above 1, limits of tokens held more than was used: others waited or were refused for room that was \
             given back only when the requests ended. Below 1, more was used than held: the rest is taken when a request \
             ends, so a limit is passed for a moment and the next requests wait longer. Somewhat above 1 is meant, as most \
             requests should stay within what was held for them.")}
        </p>
        <p>
            {t!("Budgets do not go by these figures: they hold each request's ceiling. What cost more than its ceiling is the \
             overrun, booked in full; where it is not zero, look at the model's output cap and its prices.")}
        </p>
        <p>
            {t!("Where a provider reports no usage, requests are charged what was counted or expected here, which brings the \
             ratios closer to 1 than they are. The last column says how many those are; the others compare with what \
             providers reported.")}
        </p>
    }
    .into_any()
}

#[cfg(test)]
mod tests;

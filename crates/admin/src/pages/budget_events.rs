//! Thresholds of budgets that were reached: the latest beside alerts, on a tenant's page and on one's own, all of them here.

use chrono::{DateTime, Utc};
use control::budget_events::{BUDGET_EVENTS_KEPT_DAYS, BudgetEventFilter, BudgetEventRow};
use domain::ids::TenantId;
use domain::limits::Slot;
use leptos::prelude::*;
use uuid::Uuid;

use crate::error::PageError;
use crate::format::Format;
use crate::limit_names::node_name;
use crate::page::{self, Page};
use crate::pages::limits::slot_name;
use crate::reading::amount;
use crate::shell;
use crate::table::{self, Tone, badge, figures, words};
use crate::visit::{Visit, Visitor, address};

/// Where all of them are.
const ADDRESS: &str = "/budget-events";
const PER_PAGE: usize = 50;
/// Of each list that leads there.
const LATEST: i64 = 10;

/// All of them that the visitor may see, page by page; of one tenant with `tenant`.
pub fn view() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let tenant: Option<TenantId> = visit
            .query("tenant")
            .map(|id| id.parse())
            .transpose()
            .map_err(|_| PageError::NotFound)?;
        let before = visit
            .query("before")
            .map(|text| cursor(&text).ok_or(PageError::NotFound));
        let filter = BudgetEventFilter {
            tenant,
            before: before.transpose()?,
            // One more tells whether there is another page.
            count: PER_PAGE as i64 + 1,
            ..BudgetEventFilter::default()
        };
        let mut events = visit.state.control.budget_events(&visitor.actor, &filter).await?;
        let older = (events.len() > PER_PAGE).then(|| {
            let last = &events[PER_PAGE - 1].event;
            let before = format!("{}_{}", last.at.timestamp_micros(), last.id);
            let tenant = tenant.map(|id| id.to_string()).unwrap_or_default();
            address(ADDRESS, &[("tenant", &tenant), ("before", &before)])
        });
        events.truncate(PER_PAGE);
        let body = if events.is_empty() {
            table::empty(t!("No budget has reached a threshold lately."), ().into_any())
        } else {
            listed(&events, &visit.format)
        };
        let content = view! {
            {shell::page_head(
                t!("Budget events"),
                t!(
                    "Each threshold of a budget is told once in each period, here and to the webhook. Kept for {days} days \
                     after the period.",
                    days = BUDGET_EVENTS_KEPT_DAYS
                ),
                ().into_any(),
            )}
            <section class="card">{body}</section>
            {older.map(|href| view! {
                <nav class="pager" aria-label=t!("Pages")><a class="button" href=href rel="next">{t!("Older events")}</a></nav>
            })}
        };
        Ok(Page::new(t!("Budget events"), content.into_any()))
    })
}

/// The latest of what the visitor may see, of one tenant if given; nothing where there are none.
pub async fn latest(visit: &Visit, visitor: &Visitor, tenant: Option<TenantId>) -> Result<AnyView, PageError> {
    let filter = BudgetEventFilter {
        tenant,
        count: LATEST,
        ..BudgetEventFilter::default()
    };
    let events = visit.state.control.budget_events(&visitor.actor, &filter).await?;
    if events.is_empty() {
        return Ok(().into_any());
    }
    let tenant = tenant.map(|id| id.to_string()).unwrap_or_default();
    let all = address(ADDRESS, &[("tenant", &tenant)]);
    Ok(view! {
        <section class="card">
            <div class="card-head">
                <h2>{t!("Budget events")}</h2>
                <a href=all>{t!("All of them")}</a>
            </div>
            {listed(&events, &visit.format)}
        </section>
    }
    .into_any())
}

fn cursor(text: &str) -> Option<(DateTime<Utc>, Uuid)> {
    let (at, id) = text.split_once('_')?;
    Some((DateTime::from_timestamp_micros(at.parse().ok()?)?, id.parse().ok()?))
}

fn listed(events: &[BudgetEventRow], format: &Format) -> AnyView {
    table::table(
        t!("The latest first; times in {zone} time.", zone = format.zone()),
        &[
            words(t!("Reached", in "budget events")),
            words(t!("By", in "budget events")),
            words(t!("Budget")),
            figures(t!("Spent")),
            figures(t!("Of", in "budget events")),
            words(t!("Period")),
            words(t!("Seen", in "budget events")),
        ],
        events.iter().map(|row| event_row(row, format)).collect(),
    )
}

fn event_row(row: &BudgetEventRow, format: &Format) -> AnyView {
    let event = &row.event;
    let tone = if event.percent == 100 { Tone::Bad } else { Tone::Warning };
    let slot = Slot {
        dimension: event.dimension,
        window_seconds: None,
        period: Some(event.period),
        model: event.model.clone(),
        priority: event.priority,
    };
    let of = address("/limits", &[("of", &event.scope.to_string())]);
    let amount = |value: i128| amount(event.dimension, value, format);
    view! {
        <tr>
            <th scope="row">{badge(format!("{} %", event.percent), tone)}</th>
            <td><a href=of>{node_name(&event.scope, row.name.as_deref(), row.tenant_name.as_deref())}</a></td>
            <td>{slot_name(&slot)}</td>
            <td class="number">{amount(i128::from(event.spent))}</td>
            <td class="number">{amount(i128::from(event.value))}</td>
            <td class="nowrap">{t!("from {time}", time = format.bare_minute(event.span.start))}</td>
            <td class="nowrap">{format.bare_time(event.at)}</td>
        </tr>
    }
    .into_any()
}

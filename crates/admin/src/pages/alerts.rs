//! Alerts: those that are open, and those that are over.

use chrono::{DateTime, Utc};
use control::alerts::{ALERTS_KEPT_DAYS, Alert, AlertKind, GIVEN_UP_HOURS, OPEN_ALERTS_MAX, PastAlertFilter};
use domain::alerts::{AlertSubject, Severity};
use domain::limits::Scope;
use leptos::prelude::*;
use uuid::Uuid;

use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::format;
use crate::language;
use crate::page::{self, Page};
use crate::pages::budget_events;
use crate::shell;
use crate::table::{self, Tone, badge, figures, words};
use crate::visit::{Visit, address};

/// Where they are.
pub const ADDRESS: &str = "/alerts";
const PER_PAGE: usize = 50;

/// Open alerts first, then the history.
pub fn view() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let wanted = Wanted::of(&visit)?;
        let control = &visit.state.control;
        let open = control.open_alerts(&visitor.actor, wanted.kind).await?;
        let mut past = control.past_alerts(&visitor.actor, &wanted.filter()).await?;
        let older = (past.len() > PER_PAGE).then(|| wanted.after(&past[PER_PAGE - 1]));
        past.truncate(PER_PAGE);
        let has_webhook = control.webhook(&visitor.actor).await?.is_some();
        let given_up = control.given_up_deliveries(&visitor.actor, visit.now()).await?;
        let is_first_page = wanted.before.is_none();
        let budgets = match (is_first_page, wanted.kind) {
            (true, None) => budget_events::latest(&visit, visitor, None).await?,
            _ => ().into_any(),
        };
        let webhook = if has_webhook {
            t!("Webhook")
        } else {
            t!("Send them to a webhook")
        };
        let webhook = view! { <a class="button" href="/settings/webhook">{webhook}</a> };
        let content = view! {
            {shell::page_head(
                t!("Alerts"),
                t!("What somebody should look at: it is raised by itself, and cleared by itself when it is over."),
                webhook.into_any(),
            )}
            {undelivered(given_up)}
            {filters(&wanted)}
            {is_first_page.then(|| open_ones(&open, &wanted, &visit))}
            {budgets}
            {past_ones(&past, is_first_page, &visit)}
            {older.map(|href| view! {
                <nav class="pager" aria-label=t!("Pages")><a class="button" href=href rel="next">{t!("Older alerts")}</a></nav>
            })}
        };
        Ok(Page::new(t!("Alerts"), content.into_any()))
    })
}

/// What the address asks for.
struct Wanted {
    kind: Option<AlertKind>,
    before: Option<(DateTime<Utc>, Uuid)>,
}

impl Wanted {
    fn of(visit: &Visit) -> Result<Self, PageError> {
        let kind = visit.query("kind").map(|text| text.parse()).transpose();
        let before = visit
            .query("before")
            .map(|text| cursor(&text).ok_or(PageError::NotFound));
        Ok(Self {
            kind: kind.map_err(|_| PageError::NotFound)?,
            before: before.transpose()?,
        })
    }

    fn filter(&self) -> PastAlertFilter {
        PastAlertFilter {
            kind: self.kind,
            before: self.before,
            // One more tells whether there is another page.
            count: PER_PAGE as i64 + 1,
        }
    }

    fn kind_text(&self) -> &'static str {
        self.kind.map_or("", AlertKind::as_str)
    }

    fn after(&self, last: &Alert) -> String {
        let before = format!("{}_{}", last.raised_at.timestamp_micros(), last.id);
        address(ADDRESS, &[("kind", self.kind_text()), ("before", &before)])
    }
}

fn cursor(text: &str) -> Option<(DateTime<Utc>, Uuid)> {
    let (at, id) = text.split_once('_')?;
    Some((DateTime::from_timestamp_micros(at.parse().ok()?)?, id.parse().ok()?))
}

fn undelivered(given_up: u64) -> AnyView {
    if given_up == 0 {
        return ().into_any();
    }
    let text = tn!(
        given_up,
        "The webhook did not take {n} event in the last {hours} hours, however often it was tried.",
        "The webhook did not take {n} events in the last {hours} hours, however often it was tried.",
        hours = GIVEN_UP_HOURS
    );
    let why = view! { <a href="/settings/webhook">{t!("Why", in "link to the reasons")}</a> };
    view! { <p class="notice notice-bad"><span>{text} " " {why}</span></p> }.into_any()
}

fn filters(wanted: &Wanted) -> AnyView {
    let form = Filled::<()>::blank(());
    let choices = std::iter::once((String::new(), t!("All kinds").to_owned()))
        .chain(
            AlertKind::ALL
                .into_iter()
                .map(|kind| (kind.as_str().to_owned(), language::text(&kind.title()))),
        )
        .collect();
    view! {
        <form class="filters" method="get" action=ADDRESS>
            {form.select(Field::new("kind", t!("Kind", in "alerts")), wanted.kind_text(), choices)}
            <div class="actions">
                <button class="button" type="submit">{t!("Show")}</button>
            </div>
        </form>
    }
    .into_any()
}

fn open_ones(open: &[Alert], wanted: &Wanted, visit: &Visit) -> AnyView {
    let body = if open.is_empty() {
        let text = match wanted.kind {
            Some(_) => t!("No alert of this kind is open."),
            None => t!(
                "Nothing is open. An alert is raised when an upstream's breaker opens, when Redis or Postgres does not \
                 answer, when the journal lags or fills, and when a model without a price is asked for. A webhook hears of \
                 each."
            ),
        };
        table::empty(text, ().into_any())
    } else {
        let rows = open.iter().map(|alert| open_row(alert, visit)).collect();
        table::table(
            t!("The latest first; times in {zone} time.", zone = visit.format.zone()),
            &[
                words(t!("Alert")),
                words(t!("What it means, and what to do")),
                words(t!("About", in "alerts")),
                words(t!("Gateway")),
                words(t!("Raised", in "alerts")),
                words(t!("Last seen", in "alerts")),
                figures(t!("Times", in "alerts")),
            ],
            rows,
        )
    };
    let is_cut = open.len() as i64 >= OPEN_ALERTS_MAX;
    let cut = is_cut.then(|| view! { <p class="notice notice-warning">{t!("Only the latest are listed.")}</p> });
    view! { <section class="card"><h2>{t!("Open", in "alerts")}</h2>{cut}{body}</section> }.into_any()
}

fn open_row(alert: &Alert, visit: &Visit) -> AnyView {
    let advice = language::text(&alert.kind.advice());
    view! {
        <tr>
            <th scope="row">{severity(alert)} " " {language::text(&alert.kind.title())}</th>
            <td class="sentence"><span lang="en">{alert.message.clone()}</span> <div><small>{advice}</small></div></td>
            <td>{about(&alert.subject)}</td>
            <td>{alert.instance.clone()}</td>
            <td class="nowrap">{visit.format.bare_minute(alert.raised_at)}</td>
            <td class="nowrap">{visit.format.bare_minute(alert.last_seen_at)}</td>
            <td class="number">{format::count(alert.count)}</td>
        </tr>
    }
    .into_any()
}

fn past_ones(past: &[Alert], is_first_page: bool, visit: &Visit) -> AnyView {
    let body = if past.is_empty() {
        let text = if is_first_page {
            t!(
                "Nothing was raised and cleared in the last {days} days.",
                days = ALERTS_KEPT_DAYS
            )
        } else {
            t!("There is nothing older.").to_owned()
        };
        table::empty(text, ().into_any())
    } else {
        let rows = past.iter().map(|alert| past_row(alert, visit)).collect();
        table::table(
            t!(
                "The latest first; times in {zone} time. Kept for {days} days.",
                zone = visit.format.zone(),
                days = ALERTS_KEPT_DAYS
            ),
            &[
                words(t!("Alert")),
                words(t!("What it was")),
                words(t!("About", in "alerts")),
                words(t!("Gateway")),
                words(t!("Raised", in "alerts")),
                words(t!("Over", in "when an alert ended")),
                figures(t!("Lasted")),
                figures(t!("Times", in "alerts")),
            ],
            rows,
        )
    };
    view! { <section class="card"><h2>{t!("Over", in "alerts")}</h2>{body}</section> }.into_any()
}

fn past_row(alert: &Alert, visit: &Visit) -> AnyView {
    let lasted = alert
        .cleared_at
        .map(|at| (at - alert.raised_at).num_milliseconds().max(0));
    view! {
        <tr>
            <th scope="row">{language::text(&alert.kind.title())}</th>
            <td class="sentence" lang="en">{alert.message.clone()}</td>
            <td>{about(&alert.subject)}</td>
            <td>{alert.instance.clone()}</td>
            <td class="nowrap">{visit.format.bare_time(alert.raised_at)}</td>
            <td class="nowrap">{alert.cleared_at.map(|at| visit.format.bare_time(at))}</td>
            <td class="number">{lasted.map(format::duration_ms)}</td>
            <td class="number">{format::count(alert.count)}</td>
        </tr>
    }
    .into_any()
}

/// How soon somebody should look, as a word.
pub fn severity(alert: &Alert) -> AnyView {
    match alert.kind.severity() {
        Severity::Critical => badge(t!("critical", in "severity of an alert"), Tone::Bad),
        Severity::Warning => badge(t!("warning", in "severity of an alert"), Tone::Warning),
    }
}

/// Where to look.
fn about(subject: &AlertSubject) -> AnyView {
    let link = |href: String, text: String| view! { <a href=href>{text}</a> }.into_any();
    match subject {
        AlertSubject::Gateway => link("/status".to_owned(), t!("the gateway").to_owned()),
        AlertSubject::Scope(Scope::Model(name)) => link(address("/models/edit", &[("name", name)]), name.to_string()),
        AlertSubject::Scope(Scope::Upstream(id)) => link(format!("/upstreams/{id}"), t!("the upstream").to_owned()),
        AlertSubject::Scope(scope) => link(address("/limits", &[("of", &scope.to_string())]), scope.to_string()),
        AlertSubject::UpstreamModel(id, model) => link(format!("/upstreams/{id}"), model.clone()),
    }
}

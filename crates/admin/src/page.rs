//! A page: what it loads, under which title, inside which frame. Loading ends before the first byte is sent; what cannot
//! be loaded becomes the error's page with the error's status.

use std::future::Future;

use control::alerts::Alert;
use domain::alerts::Severity;
use domain::instances::STATUS_STALE_MS;
use http::request::Parts;
use http::{HeaderName, HeaderValue, header};
use leptos::prelude::*;
use leptos_axum::ResponseOptions;
use leptos_meta::Title;

use crate::error::{PageError, RETRY_AFTER_SECONDS};
use crate::language;
use crate::pages::alerts;
use crate::shell;
use crate::visit::Visit;

/// Troubles named on top of every page at most.
const TROUBLES_MAX: usize = 5;

/// A loaded page.
pub struct Page {
    title: String,
    content: AnyView,
}

impl Page {
    /// A page with this title (shown by the browser) and content.
    pub fn new(title: impl Into<String>, content: AnyView) -> Self {
        Self {
            title: title.into(),
            content,
        }
    }
}

/// Shows what `load` gives, with the navigation of the visitor's role.
pub fn behind_the_door<F>(load: impl FnOnce(Visit) -> F + Send + 'static) -> AnyView
where
    F: Future<Output = Result<Page, PageError>> + Send + 'static,
{
    rendered(load, |visit, content, attention| match &visit.visitor {
        Some(visitor) => {
            let open_alerts = attention.alerts.len();
            // The page of alerts says it all itself.
            let notice = (visit.path() != alerts::ADDRESS).then(|| notice_of(attention));
            let content = view! { {notice} {messages(visit)} {content} };
            shell::frame(visitor, visit.path(), open_alerts, content.into_any())
        }
        None => shell::door(content),
    })
}

/// Shows what `load` gives, without navigation.
pub fn at_the_door<F>(load: impl FnOnce(Visit) -> F + Send + 'static) -> AnyView
where
    F: Future<Output = Result<Page, PageError>> + Send + 'static,
{
    rendered(load, |visit, content, _| {
        shell::door(view! { {messages(visit)} {content} }.into_any())
    })
}

/// What somebody should look at, whatever page they are on.
#[derive(Default)]
struct Attention {
    /// Open alerts, the latest first.
    alerts: Vec<Alert>,
    /// What is degraded on a gateway that is there, and no alert yet: the gateway's name and what it says.
    degraded: Vec<(String, String)>,
}

/// What is not as it should be anywhere, for those who can do something about it.
async fn attention(visit: &Visit) -> Attention {
    let Some(visitor) = visit.visitor.as_ref().filter(|visitor| visitor.sees_everything()) else {
        return Attention::default();
    };
    // A page that cannot be loaded says so itself.
    let control = &visit.state.control;
    let alerts = control.open_alerts(&visitor.actor, None).await.unwrap_or_default();
    let instances = control.instances(&visitor.actor).await.unwrap_or_default();
    let now = visit.now();
    let is_told = |instance: &str, kind| {
        let mut told = alerts.iter();
        told.any(|alert| alert.instance == instance && alert.kind == kind)
    };
    let mut degraded = Vec::new();
    for instance in instances {
        if (now - instance.seen_at).num_milliseconds() > STATUS_STALE_MS {
            continue;
        }
        let name = instance.instance;
        let untold = instance.status.degraded.into_iter();
        let untold = untold.filter(|degraded| !is_told(&name, degraded.kind));
        degraded.extend(untold.map(|degraded| (name.clone(), degraded.text)));
    }
    Attention { alerts, degraded }
}

fn notice_of(attention: Attention) -> AnyView {
    let Attention { alerts, degraded } = attention;
    if alerts.is_empty() && degraded.is_empty() {
        return ().into_any();
    }
    let count = match alerts.len() {
        0 => t!("Degraded.").to_owned(),
        count => tn!(count as u64, "{n} alert is open.", "{n} alerts are open."),
    };
    let class = if alerts.iter().any(|alert| alert.kind.severity() == Severity::Critical) {
        "notice notice-bad"
    } else {
        "notice notice-warning"
    };
    let listed = alerts
        .into_iter()
        .map(|alert| (alert.instance, alert.message))
        .chain(degraded)
        .take(TROUBLES_MAX)
        .map(|(instance, text)| view! { <li><strong>{instance}</strong> ": " <span lang="en">{text}</span></li> })
        .collect_view();
    let advice = tv!(
        "{alerts} say what to do; {status} has the whole picture.",
        alerts = view! { <a href=alerts::ADDRESS>{t!("Alerts")}</a> },
        status = view! { <a href="/status">{t!("status")}</a> },
    );
    view! {
        <aside class=class aria-label=t!("What needs attention")>
            <p>{count} " " {advice}</p>
            <ul>{listed}</ul>
        </aside>
    }
    .into_any()
}

fn messages(visit: &Visit) -> AnyView {
    let link = visit
        .notice_link
        .clone()
        .map(|(href, text)| view! { " " <a href=href>{text}</a> });
    let notice = visit
        .notice
        .clone()
        .map(|notice| view! { <p class="notice notice-good" role="status"><span>{notice} {link}</span></p> });
    let problem = visit
        .problem
        .clone()
        .map(|problem| view! { <p class="notice notice-bad" role="alert">{problem}</p> });
    view! { {notice} {problem} }.into_any()
}

fn rendered<F>(
    load: impl FnOnce(Visit) -> F + Send + 'static,
    frame: impl FnOnce(&Visit, AnyView, Attention) -> AnyView + Send + 'static,
) -> AnyView
where
    F: Future<Output = Result<Page, PageError>> + Send + 'static,
{
    let visit = use_context::<Parts>().and_then(|parts| parts.extensions.get::<Visit>().cloned());
    let response = use_context::<ResponseOptions>();
    Suspend::new(async move {
        let Some(visit) = visit else {
            return failed(response.as_ref(), PageError::Internal);
        };
        // Leptos may poll this from another task than the one that answers the request.
        language::scope(visit.language(), shown(visit, response, load, frame)).await
    })
    .into_any()
}

async fn shown<F>(
    visit: Visit,
    response: Option<ResponseOptions>,
    load: impl FnOnce(Visit) -> F + Send,
    frame: impl FnOnce(&Visit, AnyView, Attention) -> AnyView + Send,
) -> AnyView
where
    F: Future<Output = Result<Page, PageError>> + Send,
{
    let shown = visit.clone();
    let attention = attention(&visit).await;
    let page = match load(visit).await {
        Ok(page) => shown.end_secret().await.map(|()| page),
        Err(error) => Err(error),
    };
    match page {
        Ok(page) => {
            let title = shell::full_title(&page.title);
            let content = frame(&shown, page.content, attention);
            view! {
                <Title text=title />
                {content}
            }
            .into_any()
        }
        Err(error) => {
            let content = failed(response.as_ref(), error);
            frame(&shown, content, attention)
        }
    }
}

fn failed(response: Option<&ResponseOptions>, error: PageError) -> AnyView {
    if let Some(response) = response {
        response.set_status(error.status());
        if error == PageError::Unavailable {
            header_of(response, header::RETRY_AFTER, RETRY_AFTER_SECONDS);
        }
    }
    let title = shell::full_title(error.title());
    view! {
        <Title text=title />
        {error.view()}
    }
    .into_any()
}

fn header_of(response: &ResponseOptions, name: HeaderName, value: &'static str) {
    response.insert_header(name, HeaderValue::from_static(value));
}

/// The id that follows `prefix` in the address.
pub fn id_of_path<T: std::str::FromStr>(visit: &Visit, prefix: &str) -> Result<T, PageError> {
    let rest = visit.path().strip_prefix(prefix).unwrap_or_default();
    rest.split('/')
        .next()
        .unwrap_or_default()
        .parse()
        .map_err(|_| PageError::NotFound)
}

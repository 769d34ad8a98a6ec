//! A page: what it loads, under which title, inside which frame. Loading ends before the first byte is sent; what cannot
//! be loaded becomes the error's page with the error's status.

use std::future::Future;

use domain::instances::STATUS_STALE_MS;
use http::request::Parts;
use http::{HeaderName, HeaderValue, header};
use leptos::prelude::*;
use leptos_axum::ResponseOptions;
use leptos_meta::Title;

use crate::error::{PageError, RETRY_AFTER_SECONDS};
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
    rendered(load, |visit, content, trouble| match &visit.visitor {
        Some(visitor) => {
            let content = view! { {troubles(trouble)} {messages(visit)} {content} };
            shell::frame(visitor, visit.path(), content.into_any())
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

/// What is degraded on a gateway that is there.
struct Trouble {
    instance: String,
    degraded: String,
}

/// What is degraded anywhere, for those who can do something about it.
async fn trouble(visit: &Visit) -> Vec<Trouble> {
    let Some(visitor) = visit.visitor.as_ref().filter(|visitor| visitor.sees_everything()) else {
        return Vec::new();
    };
    // A page that cannot be loaded says so itself.
    let instances = visit.state.control.instances(&visitor.actor).await.unwrap_or_default();
    let now = visit.now();
    instances
        .into_iter()
        .filter(|instance| (now - instance.seen_at).num_milliseconds() <= STATUS_STALE_MS)
        .flat_map(|instance| {
            let name = instance.instance;
            instance.status.degraded.into_iter().map(move |degraded| Trouble {
                instance: name.clone(),
                degraded: degraded.text,
            })
        })
        .take(TROUBLES_MAX)
        .collect()
}

fn troubles(troubles: Vec<Trouble>) -> AnyView {
    if troubles.is_empty() {
        return ().into_any();
    }
    let listed = troubles
        .into_iter()
        .map(|trouble| view! { <li><strong>{trouble.instance}</strong> ": " {trouble.degraded}</li> })
        .collect_view();
    view! {
        <aside class="notice notice-warning" aria-label="Degraded">
            <p>"Degraded. " <a href="/status">"Status"</a> " has the whole picture."</p>
            <ul>{listed}</ul>
        </aside>
    }
    .into_any()
}

fn messages(visit: &Visit) -> AnyView {
    let notice = visit
        .notice
        .clone()
        .map(|notice| view! { <p class="notice notice-good" role="status">{notice}</p> });
    let problem = visit
        .problem
        .clone()
        .map(|problem| view! { <p class="notice notice-bad" role="alert">{problem}</p> });
    view! { {notice} {problem} }.into_any()
}

fn rendered<F>(
    load: impl FnOnce(Visit) -> F + Send + 'static,
    frame: impl FnOnce(&Visit, AnyView, Vec<Trouble>) -> AnyView + Send + 'static,
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
        let shown = visit.clone();
        let trouble = trouble(&visit).await;
        match load(visit).await {
            Ok(page) => {
                let title = shell::full_title(&page.title);
                let content = frame(&shown, page.content, trouble);
                view! {
                    <Title text=title />
                    {content}
                }
                .into_any()
            }
            Err(error) => {
                let content = failed(response.as_ref(), error);
                frame(&shown, content, trouble)
            }
        }
    })
    .into_any()
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

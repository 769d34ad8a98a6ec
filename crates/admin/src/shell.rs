//! The frame of every page: the document, the navigation of the role, the heading.

use leptos::config::LeptosOptions;
use leptos::nonce::use_nonce;
use leptos::prelude::*;
use leptos_axum::ResponseOptions;
use leptos_meta::MetaTags;

use crate::app::App;
use crate::language;
use crate::pages::account;
use crate::protection;
use crate::terms;
use crate::visit::Visitor;

/// The product's name, at the end of every title.
const NAME: &str = "Tollgate";

/// The whole document around the rendered app, with the scripts that bring the islands to life.
pub fn shell(options: LeptosOptions) -> AnyView {
    if let (Some(nonce), Some(response)) = (use_nonce(), use_context::<ResponseOptions>())
        && let Ok(policy) = protection::content_security_policy(&nonce).parse()
    {
        response.insert_header(http::header::CONTENT_SECURITY_POLICY, policy);
    }
    view! {
        <!DOCTYPE html>
        <html lang=language::current().as_str()>
            <head>
                {head()} <HydrationScripts options=options islands=true /> <MetaTags />
            </head>
            <body>
                <App />
            </body>
        </html>
    }
    .into_any()
}

/// A document without scripts, for where the app cannot be rendered.
pub fn bare_document(title: &str, content: AnyView) -> AnyView {
    view! {
        <!DOCTYPE html>
        <html lang=language::current().as_str()>
            <head>{head()} <title>{full_title(title)}</title></head>
            <body>{door(content)}</body>
        </html>
    }
    .into_any()
}

/// A page's title as browsers show it.
pub fn full_title(title: &str) -> String {
    format!("{title} · {NAME}")
}

fn head() -> AnyView {
    view! {
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta name="robots" content="noindex" />
        <link rel="icon" href="/favicon.svg" type="image/svg+xml" />
        <link rel="stylesheet" href="/pkg/tollgate.css" />
    }
    .into_any()
}

/// A page without navigation: one narrow column.
pub fn door(content: AnyView) -> AnyView {
    view! {
        <main class="door" id="content">
            {brand()} {content}
        </main>
    }
    .into_any()
}

/// A page behind the door: navigation beside the content. `path` marks where one is; so many alerts are open.
pub fn frame(visitor: &Visitor, path: &str, open_alerts: usize, content: AnyView) -> AnyView {
    let items = Place::ALL
        .into_iter()
        .filter(|place| place.is_open_to(visitor))
        .map(|place| {
            let current = place
                .contains(path)
                .then_some(if place.href() == path { "page" } else { "true" });
            view! {
                <li>
                    <a href=place.href() aria-current=current>
                        {place.label(visitor)} {count_at(place, open_alerts)}
                    </a>
                </li>
            }
        })
        .collect_view();
    view! {
        <a class="skip-link" href="#content">
            {t!("Skip to the content")}
        </a>
        <div class="shell">
            <header class="side">
                {brand()} <nav aria-label=t!("Console")>
                    <ul class="nav-list">{items}</ul>
                </nav> <div class="who">
                    <p>
                        <a href=account::PATH aria-current=(path == account::PATH).then_some("page") title=t!("Your account")>
                            {visitor.name.clone()}
                        </a> <br /> <small>{terms::role(visitor.role)}</small>
                    </p>
                    <form method="post" action="/console/sign-out">
                        <button class="button" type="submit">
                            {t!("Sign out")}
                        </button>
                    </form>
                </div>
            </header>
            <main class="content" id="content" tabindex="-1">
                {content}
            </main>
        </div>
    }
    .into_any()
}

/// How many things wait at a place, for those who see only a word of it.
fn count_at(place: Place, open_alerts: usize) -> Option<AnyView> {
    (place == Place::Alerts && open_alerts > 0).then(|| {
        view! { <span class="badge badge-bad">{open_alerts} <span class="visually-hidden">{t!(" open", in "alerts")}</span></span> }
            .into_any()
    })
}

/// A page's heading, what it is for, and what can be done from here.
pub fn page_head(title: impl Into<String>, lead: impl Into<String>, actions: AnyView) -> AnyView {
    let (title, lead) = (title.into(), lead.into());
    let lead = (!lead.is_empty()).then(|| view! { <p>{lead}</p> });
    view! {
        <div class="page-head">
            <div>
                <h1>{title}</h1>
                {lead}
            </div>
            <div class="actions">{actions}</div>
        </div>
    }
    .into_any()
}

fn brand() -> AnyView {
    view! {
        <a class="brand" href="/">
            <svg viewBox="0 0 32 32" aria-hidden="true" focusable="false">
                <rect width="32" height="32" rx="7" fill="currentColor" />
                <path
                    d="M8 24V8m16 16V8M8 13l16 5"
                    fill="none"
                    stroke="var(--color-surface)"
                    stroke-width="3"
                    stroke-linecap="round"
                />
            </svg>
            <span>{NAME}</span>
        </a>
    }
    .into_any()
}

/// Where the navigation leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Overview,
    QuotaTree,
    Explain,
    Tenants,
    Plans,
    Keys,
    Models,
    Upstreams,
    Priorities,
    Rehearsal,
    Queue,
    Ledger,
    Reports,
    People,
    Connect,
    Alerts,
    Audit,
    Settings,
    Status,
}

impl Place {
    const ALL: [Self; 19] = [
        Self::Overview,
        Self::QuotaTree,
        Self::Explain,
        Self::Tenants,
        Self::Plans,
        Self::Keys,
        Self::Models,
        Self::Upstreams,
        Self::Priorities,
        Self::Rehearsal,
        Self::Queue,
        Self::Ledger,
        Self::Reports,
        Self::People,
        Self::Connect,
        Self::Alerts,
        Self::Audit,
        Self::Settings,
        Self::Status,
    ];

    fn href(self) -> &'static str {
        match self {
            Self::Overview => "/",
            Self::QuotaTree => "/quota-tree",
            Self::Explain => "/explain",
            Self::Tenants => "/tenants",
            Self::Plans => "/plans",
            Self::Keys => "/keys",
            Self::Models => "/models",
            Self::Upstreams => "/upstreams",
            Self::Priorities => "/priorities",
            Self::Rehearsal => "/rehearsal",
            Self::Queue => "/queue",
            Self::Ledger => "/ledger",
            Self::Reports => "/reports",
            Self::People => "/people",
            Self::Connect => "/connect",
            Self::Alerts => "/alerts",
            Self::Audit => "/audit",
            Self::Settings => "/settings",
            Self::Status => "/status",
        }
    }

    fn label(self, visitor: &Visitor) -> &'static str {
        match self {
            Self::Overview if visitor.is_member() => t!("My usage"),
            Self::Overview => t!("Overview"),
            Self::QuotaTree if visitor.is_member() => t!("My limits"),
            Self::QuotaTree => t!("Quota tree"),
            Self::Explain => t!("Explain"),
            Self::Tenants if visitor.is_manager() => t!("My tenant"),
            Self::Tenants => t!("Tenants"),
            Self::Plans => t!("Plans"),
            Self::Keys if visitor.is_member() => t!("My keys"),
            Self::Keys => t!("Keys"),
            Self::Models => t!("Models and prices"),
            Self::Upstreams => t!("Upstreams"),
            Self::Priorities => t!("Priorities"),
            Self::Rehearsal => t!("Rehearsal"),
            Self::Queue if visitor.is_member() => t!("My jobs"),
            Self::Queue if visitor.is_manager() => t!("Jobs"),
            Self::Queue => t!("Queue and jobs"),
            Self::Ledger if visitor.is_member() => t!("My requests"),
            Self::Ledger => t!("Ledger"),
            Self::Reports => t!("Reports"),
            Self::People => t!("People"),
            Self::Connect => t!("How to connect"),
            Self::Alerts => t!("Alerts"),
            Self::Audit => t!("Audit log"),
            Self::Settings => t!("Settings"),
            Self::Status => t!("Status"),
        }
    }

    /// The navigation shows only what the role may open; the operations behind the pages decide for themselves.
    fn is_open_to(self, visitor: &Visitor) -> bool {
        match self {
            Self::Overview
            | Self::QuotaTree
            | Self::Explain
            | Self::Keys
            | Self::Queue
            | Self::Ledger
            | Self::Connect => true,
            Self::Tenants | Self::Priorities | Self::Reports | Self::People | Self::Audit => !visitor.is_member(),
            Self::Plans
            | Self::Models
            | Self::Upstreams
            | Self::Rehearsal
            | Self::Alerts
            | Self::Settings
            | Self::Status => visitor.sees_everything(),
        }
    }

    fn contains(self, path: &str) -> bool {
        let href = self.href();
        path == href || (href != "/" && path.strip_prefix(href).is_some_and(|rest| rest.starts_with('/')))
    }
}

//! The audit log: who changed what, from where, and what was different afterwards.

use chrono::{DateTime, Utc};
use control::audit::difference::{Difference, Fate, difference, value_text};
use control::audit::{AuditSubject, NamedAuditEntry, Surface};
use control::fields::Fields;
use control::rows::AuditFilter;
use control::{ControlError, FieldError};
use domain::ids::TenantId;
use domain::limits::{Class, Dimension, Scope, Target};
use domain::money::Nanos;
use leptos::prelude::*;
use serde_json::Value;
use uuid::Uuid;

use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::format::{self, Format};
use crate::page::{self, Page, id_of_path};
use crate::shell;
use crate::table::{self, Tone, badge, facts, words};
use crate::visit::{Visit, Visitor, address};

/// Where it is.
pub const ADDRESS: &str = "/audit";
const PER_PAGE: usize = 50;
/// Fields that a row of the list names at most.
const NAMED_FIELDS_MAX: usize = 3;
/// The fields of the list's address, in the order of the form.
const FILTERS: [&str; 7] = ["who", "action", "tenant", "subject", "from", "until", "address"];
/// The first of those that are folded away while they are empty.
const FIRST_FOLDED: usize = 3;
/// What the action's field suggests: nouns, which stand for all that is done to one.
const NOUNS: [&str; 14] = [
    "adjustment",
    "job",
    "key",
    "limit",
    "management_token",
    "model",
    "person",
    "plan",
    "price",
    "priority",
    "quarantine",
    "settings",
    "tenant",
    "upstream",
];

/// The list, the newest first.
pub fn list() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let wanted = Wanted::of(&visit)?;
        let (mut entries, problems) = match wanted.filter(&visit.format) {
            Ok(filter) => {
                let control = &visit.state.control;
                (control.named_audit_entries(&visitor.actor, filter).await?, Vec::new())
            }
            Err(ControlError::Invalid(problems)) if !visitor.is_member() => (Vec::new(), problems),
            Err(ControlError::Invalid(_)) => return Err(PageError::Forbidden),
            Err(error) => return Err(error.into()),
        };
        let older = (entries.len() > PER_PAGE).then(|| wanted.after(&entries[PER_PAGE - 1]));
        entries.truncate(PER_PAGE);
        let listed = if entries.is_empty() {
            let text = if wanted.is_empty() {
                "Nothing was changed yet. Every change that is made here, by the JSON API or on the command line leaves an entry: \
                 begin with a tenant or an upstream."
            } else {
                "No entry matches. Take a filter away, or write less of the name or action."
            };
            table::empty(
                text,
                view! { <a class="button" href=ADDRESS>"Show everything"</a> }.into_any(),
            )
        } else {
            table::table(
                format!(
                    "The newest first; times in {} time. The time leads to what was different afterwards.",
                    visit.format.zone()
                ),
                &[
                    words("Time"),
                    words("Who"),
                    words("Action"),
                    words("What it was done to"),
                    words("Changed"),
                    words("Tenant"),
                    words("From"),
                ],
                entries.iter().map(|entry| row(entry, visitor, &visit.format)).collect(),
            )
        };
        let newest = wanted.before.is_some().then(|| wanted.address(""));
        let content = view! {
            {shell::page_head("Audit log", "Every change, with who made it, and what was different afterwards.", ().into_any())}
            {wanted.form(&visit, visitor, &problems).await?}
            {listed}
            <nav class="pager" aria-label="Pages">
                {newest.map(|href| view! { <a class="button" href=href>"Back to the newest"</a> })}
                {older.map(|href| view! { <a class="button" href=href rel="next">"Older entries"</a> })}
            </nav>
        };
        Ok(Page::new("Audit log", content.into_any()))
    })
}

/// What the list's address asks for, as text.
struct Wanted {
    values: Vec<(&'static str, String)>,
    before: Option<(DateTime<Utc>, Uuid)>,
}

impl Wanted {
    fn of(visit: &Visit) -> Result<Self, PageError> {
        let before = visit
            .query("before")
            .map(|text| cursor(&text).ok_or(PageError::NotFound))
            .transpose()?;
        Ok(Self {
            values: FILTERS
                .iter()
                .map(|name| (*name, visit.query(name).unwrap_or_default().trim().to_owned()))
                .collect(),
            before,
        })
    }

    fn value(&self, name: &str) -> &str {
        self.values
            .iter()
            .find(|(field, _)| *field == name)
            .map_or("", |(_, value)| value.as_str())
    }

    fn is_empty(&self) -> bool {
        self.before.is_none() && self.values.iter().all(|(_, value)| value.is_empty())
    }

    fn filter(&self, format: &Format) -> Result<AuditFilter, ControlError> {
        let mut fields = Fields::default();
        let text = |name: &str| Some(self.value(name).to_owned()).filter(|text| !text.is_empty());
        let filter = AuditFilter {
            tenant_id: fields.word::<TenantId>("tenant", self.value("tenant")),
            actor: text("who"),
            action: text("action"),
            subjects: text("subject").map(|subject| AuditSubject::read(&subject).history()),
            peer: text("address"),
            from: fields.local_time("from", self.value("from"), format.zone()),
            until: fields.local_time("until", self.value("until"), format.zone()),
            before: self.before,
            // One more tells whether there is another page.
            count: PER_PAGE as i64 + 1,
            ..AuditFilter::default()
        };
        fields.check()?;
        Ok(filter)
    }

    fn address(&self, before: &str) -> String {
        let mut fields: Vec<(&str, &str)> = self
            .values
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        fields.push(("before", before));
        address(ADDRESS, &fields)
    }

    fn after(&self, last: &NamedAuditEntry) -> String {
        let last = &last.entry;
        self.address(&format!("{}_{}", last.at.timestamp_micros(), last.id))
    }

    async fn form(&self, visit: &Visit, visitor: &Visitor, problems: &[FieldError]) -> Result<AnyView, PageError> {
        let form = Filled::refused((), problems);
        let zone = visit.format.zone();
        let tenants = if visitor.sees_everything() {
            let tenants = visit.state.control.tenants(&visitor.actor, visit.now()).await?;
            let choices = std::iter::once((String::new(), "All".to_owned()))
                .chain(
                    tenants
                        .iter()
                        .map(|tenant| (tenant.row.tenant.id.to_string(), tenant.row.tenant.name.clone())),
                )
                .collect();
            form.select(Field::new("tenant", "Tenant"), self.value("tenant"), choices)
        } else {
            ().into_any()
        };
        let nouns = NOUNS.map(|noun| view! { <option value=noun></option> }).collect_view();
        let folded = &FILTERS[FIRST_FOLDED..];
        let is_open = folded.iter().any(|name| !self.value(name).is_empty()) || !problems.is_empty();
        let address_hint = if visitor.is_manager() {
            "Of your own changes."
        } else {
            "The whole of it."
        };
        Ok(view! {
            <form class="card" method="get" action=ADDRESS>
                <div class="filters">
                    {form.text(
                        Field::new("who", "Who, how it begins").placeholder("ada@example.com"),
                        self.value("who"),
                    )}
                    {form.text(
                        Field::new("action", "Action, how it begins").placeholder("key.issue").suggestions("nouns"),
                        self.value("action"),
                    )}
                    <datalist id="nouns">{nouns}</datalist>
                    {tenants}
                    <div class="actions">
                        <button class="button button-primary" type="submit">"Show"</button>
                        <a class="button" href=ADDRESS>"Clear"</a>
                    </div>
                </div>
                <details open=is_open>
                    <summary>"Time, what it was done to, from where"</summary>
                    <div class="filters">
                        {form.text(Field::new("from", format!("From ({zone})")).instant(), self.value("from"))}
                        {form.text(Field::new("until", format!("Until ({zone})")).instant(), self.value("until"))}
                        {form.text(
                            Field::new("subject", "Done to").placeholder("model:gpt-4o").hint("Its page has a link to its history."),
                            self.value("subject"),
                        )}
                        {form.text(
                            Field::new("address", "From the address").placeholder("192.0.2.7").hint(address_hint),
                            self.value("address"),
                        )}
                    </div>
                </details>
            </form>
        }
        .into_any())
    }
}

fn cursor(text: &str) -> Option<(DateTime<Utc>, Uuid)> {
    let (at, id) = text.split_once('_')?;
    Some((DateTime::from_timestamp_micros(at.parse().ok()?)?, id.parse().ok()?))
}

fn row(named: &NamedAuditEntry, visitor: &Visitor, format: &Format) -> AnyView {
    let entry = &named.entry;
    let tenant = entry.tenant_id.map(|id| {
        let name = named.tenant_name.clone().unwrap_or_else(|| id.to_string());
        view! { <a href=format!("/tenants/{id}")>{name}</a> }
    });
    view! {
        <tr>
            <th scope="row" class="nowrap">
                <a href=format!("{ADDRESS}/{}", entry.id)>{format.bare_time(entry.at)}</a>
            </th>
            <td>{entry.actor.clone()}</td>
            <td class="nowrap"><code>{entry.action.clone()}</code></td>
            <td>{done_to(named, visitor)}</td>
            <td>{in_short(named)}</td>
            <td>{tenant}</td>
            <td>{origin(named)}</td>
        </tr>
    }
    .into_any()
}

/// Which fields differ.
fn in_short(named: &NamedAuditEntry) -> String {
    let found = difference_of(named);
    let changed: Vec<String> = found
        .fields
        .iter()
        .filter(|field| !matches!(field.fate, Fate::Same(_)))
        .map(|field| field_name(&field.name))
        .collect();
    let more = changed.len().saturating_sub(NAMED_FIELDS_MAX);
    match (&named.entry.before, &named.entry.after) {
        (None, None) => String::new(),
        (None, Some(_)) => "new".to_owned(),
        (Some(_), None) => "removed".to_owned(),
        (Some(_), Some(_)) => {
            let named = changed
                .iter()
                .take(NAMED_FIELDS_MAX)
                .cloned()
                .collect::<Vec<_>>()
                .join(", ");
            match more {
                0 => named,
                more => format!("{named} and {more} more"),
            }
        }
    }
}

fn difference_of(named: &NamedAuditEntry) -> Difference {
    difference(named.entry.before.as_ref(), named.entry.after.as_ref())
}

/// `routes.0.weight` as people count: `routes 1 weight`.
fn field_name(name: &str) -> String {
    let parts: Vec<String> = name
        .split('.')
        .map(|part| match part.parse::<usize>() {
            Ok(place) => (place + 1).to_string(),
            Err(_) => format::words(part),
        })
        .collect();
    parts.join(" ")
}

fn origin(named: &NamedAuditEntry) -> AnyView {
    let peer = named.entry.peer.clone().map(|peer| view! { <code>{peer}</code> });
    view! { {surface(named.surface)} " " {peer} }.into_any()
}

fn surface(surface: Surface) -> &'static str {
    match surface {
        Surface::Console => "console",
        Surface::Api => "JSON API",
        Surface::Program => "command line",
    }
}

/// What it was done to, by the name it has now, with a link for those who may follow it.
fn done_to(named: &NamedAuditEntry, visitor: &Visitor) -> AnyView {
    let (text, href) = place_of(named, visitor);
    match href {
        Some(href) => view! { <a href=href>{text}</a> }.into_any(),
        None => text.into_any(),
    }
}

fn place_of(named: &NamedAuditEntry, visitor: &Visitor) -> (String, Option<String>) {
    let everything = visitor.sees_everything();
    let called = |kind: &str, id: String| match &named.subject_name {
        Some(name) => format!("{kind} {name}"),
        None => format!("{kind} {id}"),
    };
    let each = |class: Class, of: String| format!("each {} of {of}", format::words(class.as_str()));
    let limits = |target: &Target| Some(super::limits::address_of(target));
    match &named.subject {
        AuditSubject::Target(target) => match target {
            Target::Node(Scope::Global) => (
                "the whole installation".to_owned(),
                everything.then(|| limits(target)).flatten(),
            ),
            Target::Node(Scope::Model(name)) => (
                format!("model {name}"),
                everything.then(|| address("/models/edit", &[("name", name)])),
            ),
            Target::Node(Scope::ModelGroup(group)) => (
                format!("models of {group}"),
                everything.then(|| limits(target)).flatten(),
            ),
            Target::Node(Scope::Tenant(id)) => (called("tenant", id.to_string()), Some(format!("/tenants/{id}"))),
            Target::Node(Scope::Key(id)) => (called("key", id.to_string()), Some(format!("/keys/{id}"))),
            Target::Node(Scope::Upstream(id)) => (
                called("upstream", id.to_string()),
                everything.then(|| format!("/upstreams/{id}")),
            ),
            Target::Node(Scope::User(_, user)) => (called("user", user.to_string()), limits(target)),
            Target::OfTenant(id, class) => (each(*class, called("tenant", id.to_string())), limits(target)),
            Target::OfPlan(id, class) => (
                each(*class, called("plan", id.to_string())),
                everything.then(|| limits(target)).flatten(),
            ),
        },
        AuditSubject::Plan(id) => (
            called("plan", id.to_string()),
            everything.then(|| format!("/plans/{id}")),
        ),
        AuditSubject::Person(id) => (called("person", id.to_string()), Some("/people".to_owned())),
        AuditSubject::ManagementToken(id) => (
            called("management token", id.to_string()),
            visitor.is_operator().then(|| super::management_tokens::PATH.to_owned()),
        ),
        AuditSubject::Request(id) => (format!("request {id}"), Some(format!("/ledger/{id}"))),
        AuditSubject::Settings => ("settings".to_owned(), everything.then(|| "/settings".to_owned())),
        AuditSubject::Webhook => ("webhook".to_owned(), everything.then(|| "/settings/webhook".to_owned())),
        AuditSubject::Other(text) => (format::words(text), None),
    }
}

/// One entry.
pub fn entry() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let id: Uuid = id_of_path(&visit, "/audit/")?;
        let named = visit.state.control.audit_entry(&visitor.actor, id).await?;
        let entry = &named.entry;
        let subject = named.subject.text();
        let by_actor = address(ADDRESS, &[("who", &entry.actor)]);
        let mut about = vec![
            ("Time", visit.format.time(entry.at).into_any()),
            ("Who", view! { <a href=by_actor>{entry.actor.clone()}</a> }.into_any()),
            ("By", surface(named.surface).into_any()),
            ("Action", view! { <code>{entry.action.clone()}</code> }.into_any()),
            ("Done to", done_to(&named, visitor)),
        ];
        if let Some(peer) = &entry.peer {
            let from_there = address(ADDRESS, &[("address", peer)]);
            about.insert(
                3,
                (
                    "From",
                    view! { <a href=from_there><code>{peer.clone()}</code></a> }.into_any(),
                ),
            );
        }
        if let Some(tenant) = entry.tenant_id {
            let name = named.tenant_name.clone().unwrap_or_else(|| tenant.to_string());
            about.push((
                "Tenant",
                view! { <a href=format!("/tenants/{tenant}")>{name}</a> }.into_any(),
            ));
        }
        let history =
            view! { <a class="button" href=address(ADDRESS, &[("subject", &subject)])>"Everything done to it"</a> };
        let content = view! {
            {shell::page_head(entry.action.clone(), "One entry of the audit log.", history.into_any())}
            <section class="card">{facts(about)}</section>
            {changes(&named, &visit.format)}
        };
        Ok(Page::new(entry.action.clone(), content.into_any()))
    })
}

fn changes(named: &NamedAuditEntry, format: &Format) -> AnyView {
    let found = difference_of(named);
    let is_money = is_of_money(&found);
    let (same, changed): (Vec<_>, Vec<_>) = found
        .fields
        .iter()
        .partition(|field| matches!(field.fate, Fate::Same(_)));
    let body = if changed.is_empty() {
        table::empty(
            "The entry states no fields that became different: what was done is said by its action.",
            ().into_any(),
        )
    } else {
        let rows = changed
            .iter()
            .map(|field| change_row(&field.name, &field.fate, is_money, format))
            .collect();
        table::table(
            "What was different afterwards.",
            &[words("Field"), words("What happened"), words("Before"), words("After")],
            rows,
        )
    };
    let stayed = (!same.is_empty()).then(|| {
        let listed = same
            .iter()
            .map(|field| {
                let value = field
                    .fate
                    .after()
                    .map(|value| shown(&field.name, value, is_money, format));
                view! { <tr><th scope="row">{field_name(&field.name)}</th><td>{value}</td></tr> }.into_any()
            })
            .collect();
        view! {
            <details>
                <summary>{format::counted(same.len() as u64, "field stayed", "fields stayed")}</summary>
                {table::table("As before.", &[words("Field"), words("Value")], listed)}
            </details>
        }
    });
    let more = (found.left_out > 0).then(|| {
        let more = format::counted(found.left_out as u64, "field is", "fields are");
        view! { <p class="quiet">{format!("{more} left out here.")}</p> }
    });
    view! {
        <section class="card">
            <h2>"What changed"</h2>
            {body} {stayed} {more}
        </section>
    }
    .into_any()
}

fn change_row(name: &str, fate: &Fate, is_money: bool, format: &Format) -> AnyView {
    let (mark, tone) = match fate {
        Fate::Set(_) => ("+ set", Tone::Good),
        Fate::Removed(_) => ("− removed", Tone::Bad),
        Fate::Changed { .. } => ("→ changed", Tone::Warning),
        Fate::Same(_) => ("= same", Tone::Quiet),
    };
    let nothing = || view! { <span class="quiet">"nothing"</span> }.into_any();
    let before = fate.before().map_or_else(nothing, |value| {
        view! { <del>{shown(name, value, is_money, format)}</del> }.into_any()
    });
    let after = fate.after().map_or_else(nothing, |value| {
        view! { <ins>{shown(name, value, is_money, format)}</ins> }.into_any()
    });
    view! {
        <tr>
            <th scope="row">{field_name(name)}</th>
            <td class="nowrap">{badge(mark, tone)}</td>
            <td class="value">{before}</td>
            <td class="value">{after}</td>
        </tr>
    }
    .into_any()
}

/// Whether the entry is about a limit of money, whose values are nano-units.
fn is_of_money(found: &Difference) -> bool {
    found.fields.iter().any(|field| {
        field.name == "dimension"
            && field.fate.after().or(field.fate.before()).and_then(Value::as_str)
                == Some(Dimension::BudgetCost.as_str())
    })
}

/// A value as the console writes it elsewhere: money with its currency, instants in the billing zone.
fn shown(name: &str, value: &Value, is_money: bool, format: &Format) -> String {
    let last = name.rsplit('.').next().unwrap_or(name);
    if let Some(amount) = value.as_i64() {
        if last.ends_with("_nanos_per_mtok") {
            return format.rate(amount);
        }
        let is_amount = last.ends_with("_nanos") || last == "monthly_cost" || (is_money && last == "value");
        if is_amount {
            return format.exact(Nanos(amount));
        }
        if let Ok(count) = u64::try_from(amount) {
            return format::count(count);
        }
    }
    let instant = value.as_str().and_then(|text| DateTime::parse_from_rfc3339(text).ok());
    match instant {
        Some(at) => format.time(at.with_timezone(&Utc)),
        None => value_text(value),
    }
}

/// A button to the history of one thing, for pages about it; nothing for those who may not read it.
pub fn history(visitor: &Visitor, subject: &AuditSubject) -> AnyView {
    if visitor.is_member() {
        return ().into_any();
    }
    let href = address(ADDRESS, &[("subject", &subject.text())]);
    view! { <a class="button" href=href>"History"</a> }.into_any()
}

/// The same of a node or class that limits sit on.
pub fn history_of_target(visitor: &Visitor, target: &Target) -> AnyView {
    history(visitor, &AuditSubject::Target(target.clone()))
}

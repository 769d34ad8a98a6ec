//! The audit log: who changed what, from where, and what was different afterwards.

mod names;

use std::fmt::Display;

use chrono::{DateTime, Utc};
use control::audit::difference::{Difference, Fate, difference, value_text};
use control::audit::{AuditSubject, NamedAuditEntry, Surface};
use control::fields::Fields;
use control::rows::AuditFilter;
use control::{ControlError, FieldError};
use domain::ids::{PlanId, TenantId};
use domain::limits::{Class, Dimension, Scope, Target};
use domain::money::Nanos;
use leptos::prelude::*;
use serde_json::Value;
use uuid::Uuid;

use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::format::{self, Format};
use crate::language;
use crate::page::{self, Page, id_of_path};
use crate::shell;
use crate::table::{self, Tone, badge, facts, words};
use crate::terms;
use crate::visit::{Visit, Visitor, address};

use names::{action, action_name, field_name, other_subject};

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
const NOUNS: [&str; 15] = [
    "adjustment",
    "job",
    "key",
    "ledger",
    "limit",
    "management_token",
    "model",
    "person",
    "plan",
    "price",
    "quarantine",
    "settings",
    "tenant",
    "upstream",
    "webhook",
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
                t!(
                    "Nothing was changed yet. Every change that is made here, by the JSON API or on the command line \
                     leaves an entry: begin with a tenant or an upstream."
                )
            } else {
                t!("No entry matches. Take a filter away, or write less of the name or action.")
            };
            table::empty(
                text,
                view! { <a class="button" href=ADDRESS>{t!("Show everything")}</a> }.into_any(),
            )
        } else {
            table::stacked(
                t!(
                    "The newest first; times in {zone} time. The time leads to what was different afterwards.",
                    zone = visit.format.zone(),
                ),
                &columns().map(words),
                entries.iter().map(|entry| row(entry, visitor, &visit.format)).collect(),
            )
        };
        let newest = wanted.before.is_some().then(|| wanted.address(""));
        let older = older.map(|href| {
            let text = t!("Older entries", in "audit log");
            view! { <a class="button" href=href rel="next">{text}</a> }
        });
        let content = view! {
            {shell::page_head(
                t!("Audit log"),
                t!("Every change, with who made it, and what was different afterwards."),
                ().into_any(),
            )}
            {wanted.form(&visit, visitor, &problems).await?}
            {listed}
            <nav class="pager" aria-label=t!("Pages")>
                {newest.map(|href| view! { <a class="button" href=href>{t!("Back to the newest")}</a> })}
                {older}
            </nav>
        };
        Ok(Page::new(t!("Audit log"), content.into_any()))
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
            let choices = std::iter::once((String::new(), t!("All").to_owned()))
                .chain(
                    tenants
                        .iter()
                        .map(|tenant| (tenant.row.tenant.id.to_string(), tenant.row.tenant.name.clone())),
                )
                .collect();
            form.select(Field::new("tenant", t!("Tenant")), self.value("tenant"), choices)
        } else {
            ().into_any()
        };
        let nouns = NOUNS.map(|noun| view! { <option value=noun></option> }).collect_view();
        let folded = &FILTERS[FIRST_FOLDED..];
        let is_open = folded.iter().any(|name| !self.value(name).is_empty()) || !problems.is_empty();
        let address_hint = if visitor.is_manager() {
            t!("Of your own changes.")
        } else {
            t!("The whole of it.")
        };
        Ok(view! {
            <form class="card" method="get" action=ADDRESS>
                <div class="filters">
                    {form.text(
                        Field::new("who", t!("Who, how it begins")).placeholder("ada@example.com"),
                        self.value("who"),
                    )}
                    {form.text(
                        Field::new("action", t!("Action, how it begins")).placeholder("key.issue").suggestions("nouns"),
                        self.value("action"),
                    )}
                    <datalist id="nouns">{nouns}</datalist>
                    {tenants}
                    <div class="actions">
                        <button class="button button-primary" type="submit">{t!("Show")}</button>
                        <a class="button" href=ADDRESS>{t!("Clear")}</a>
                    </div>
                </div>
                <details open=is_open>
                    <summary>{t!("Time, what it was done to, from where")}</summary>
                    <div class="filters">
                        {form.text(Field::new("from", t!("From ({zone})", zone)).instant(), self.value("from"))}
                        {form.text(Field::new("until", t!("Until ({zone})", zone)).instant(), self.value("until"))}
                        {form.text(
                            Field::new("subject", t!("Done to"))
                                .placeholder("model:gpt-4o")
                                .hint(t!("Its page has a link to its history.")),
                            self.value("subject"),
                        )}
                        {form.text(
                            Field::new("address", t!("From the address")).placeholder("192.0.2.7").hint(address_hint),
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

/// The columns' names.
fn columns() -> [&'static str; 7] {
    [
        t!("Time"),
        t!("Who"),
        t!("Action"),
        t!("What it was done to"),
        t!("Changed"),
        t!("Tenant"),
        t!("From", in "address of the audit log"),
    ]
}

fn row(named: &NamedAuditEntry, visitor: &Visitor, format: &Format) -> AnyView {
    let [time, who, what, subject, changed, whose, from] = columns();
    let entry = &named.entry;
    let tenant = entry.tenant_id.map(|id| {
        let name = named.tenant_name.clone().unwrap_or_else(|| id.to_string());
        view! { <a href=format!("/tenants/{id}")>{name}</a> }
    });
    view! {
        <tr>
            <th scope="row" class="nowrap" data-label=time>
                <a href=format!("{ADDRESS}/{}", entry.id)>{format.bare_time(entry.at)}</a>
            </th>
            <td class="value" translate="no" data-label=who>{entry.actor.clone()}</td>
            <td class="nowrap" data-label=what>{action(&entry.action)}</td>
            <td data-label=subject>{done_to(named, visitor)}</td>
            <td data-label=changed>{in_short(named)}</td>
            <td data-label=whose>{tenant}</td>
            <td data-label=from>{origin(named)}</td>
        </tr>
    }
    .into_any()
}

/// Which fields differ, where any are stated.
fn in_short(named: &NamedAuditEntry) -> Option<String> {
    let found = difference_of(named);
    let changed: Vec<String> = found
        .fields
        .iter()
        .filter(|field| !matches!(field.fate, Fate::Same(_)))
        .map(|field| field_name(&field.name))
        .collect();
    let more = changed.len().saturating_sub(NAMED_FIELDS_MAX);
    let told = match (&named.entry.before, &named.entry.after) {
        (None, None) => return None,
        (None, Some(_)) => t!("new", in "entry of the audit log").to_owned(),
        (Some(_), None) => t!("removed").to_owned(),
        (Some(_), Some(_)) => {
            let named = changed
                .iter()
                .take(NAMED_FIELDS_MAX)
                .cloned()
                .collect::<Vec<_>>()
                .join(t!(", ", in "list"));
            match more {
                0 => named,
                more => t!("{named} and {more} more", named, more),
            }
        }
    };
    Some(told).filter(|told| !told.is_empty())
}

fn difference_of(named: &NamedAuditEntry) -> Difference {
    difference(named.entry.before.as_ref(), named.entry.after.as_ref())
}

fn origin(named: &NamedAuditEntry) -> AnyView {
    let peer = named
        .entry
        .peer
        .clone()
        .map(|peer| view! { <code class="nowrap">{peer}</code> });
    view! { {surface(named.surface)} <br /> {peer} }.into_any()
}

fn surface(surface: Surface) -> &'static str {
    match surface {
        Surface::Console => t!("console"),
        Surface::Api => t!("JSON API"),
        Surface::Program => t!("command line"),
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
    let (entry, everything) = (&named.entry, visitor.sees_everything());
    let name_of = |id: &dyn Display| named.subject_name.clone().unwrap_or_else(|| id.to_string());
    let tenant = |id: &TenantId| t!("tenant {name}", name = name_of(id));
    let plan = |id: &PlanId| t!("plan {name}", name = name_of(id));
    let each = |class: Class, place: String| t!("each {class} of {place}", class = terms::class(class), place);
    let limits = |target: &Target| Some(super::limits::address_of(target));
    match &named.subject {
        AuditSubject::Target(target) => match target {
            Target::Node(Scope::Global) => (
                t!("the whole installation").to_owned(),
                everything.then(|| limits(target)).flatten(),
            ),
            Target::Node(Scope::Model(name)) => (
                t!("model {name}", name),
                everything.then(|| address("/models/edit", &[("name", name)])),
            ),
            Target::Node(Scope::ModelGroup(group)) => (
                t!("models of {group}", group),
                everything.then(|| limits(target)).flatten(),
            ),
            Target::Node(Scope::Tenant(id)) => (tenant(id), Some(format!("/tenants/{id}"))),
            Target::Node(Scope::Key(id)) => (t!("key {name}", name = name_of(id)), Some(format!("/keys/{id}"))),
            Target::Node(Scope::Upstream(id)) => (
                t!("upstream {name}", name = name_of(id)),
                everything.then(|| format!("/upstreams/{id}")),
            ),
            Target::Node(Scope::User(_, user)) => (t!("user {name}", name = name_of(user)), limits(target)),
            Target::OfTenant(id, class) => (each(*class, tenant(id)), limits(target)),
            Target::OfPlan(id, class) => (each(*class, plan(id)), everything.then(|| limits(target)).flatten()),
        },
        AuditSubject::Plan(id) => (plan(id), everything.then(|| format!("/plans/{id}"))),
        AuditSubject::Person(id) => (
            t!("person {name}", name = name_of(id)),
            // Who has left a manager's tenant is out of their reach.
            (entry.action != "person.leave").then(|| super::people::one::address_of(*id)),
        ),
        AuditSubject::ManagementToken(id) => (
            t!("management token {name}", name = name_of(id)),
            visitor.is_operator().then(|| super::management_tokens::PATH.to_owned()),
        ),
        AuditSubject::Request(id) => (t!("request {id}", id), Some(format!("/ledger/{id}"))),
        AuditSubject::Settings => (t!("settings").to_owned(), everything.then(|| "/settings".to_owned())),
        AuditSubject::Webhook => (
            t!("webhook").to_owned(),
            everything.then(|| "/settings/webhook".to_owned()),
        ),
        AuditSubject::Other(text) => (other_subject(text), None),
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
            (t!("Time"), visit.format.time(entry.at).into_any()),
            (
                t!("Who"),
                view! { <a href=by_actor translate="no">{entry.actor.clone()}</a> }.into_any(),
            ),
            (t!("By", in "way of a change"), surface(named.surface).into_any()),
            (t!("Action"), action(&entry.action)),
            (t!("Done to"), done_to(&named, visitor)),
        ];
        if let Some(peer) = &entry.peer {
            let from_there = address(ADDRESS, &[("address", peer)]);
            about.insert(
                3,
                (
                    t!("From", in "address of the audit log"),
                    view! { <a href=from_there><code>{peer.clone()}</code></a> }.into_any(),
                ),
            );
        }
        if let Some(tenant) = entry.tenant_id {
            let name = named.tenant_name.clone().unwrap_or_else(|| tenant.to_string());
            about.push((
                t!("Tenant"),
                view! { <a href=format!("/tenants/{tenant}")>{name}</a> }.into_any(),
            ));
        }
        let title = action_name(&entry.action);
        let of_subject = address(ADDRESS, &[("subject", &subject)]);
        let history = view! { <a class="button" href=of_subject>{t!("Everything done to it")}</a> };
        let content = view! {
            {shell::page_head(title.clone(), t!("One entry of the audit log."), history.into_any())}
            <section class="card">{facts(about)}</section>
            {changes(&named, &visit.format)}
        };
        Ok(Page::new(title, content.into_any()))
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
            t!("The entry states no fields that became different: what was done is said by its action."),
            ().into_any(),
        )
    } else {
        let rows = changed
            .iter()
            .map(|field| change_row(&field.name, &field.fate, is_money, format))
            .collect();
        table::table(
            t!("What was different afterwards."),
            &[
                words(t!("Field")),
                words(t!("What happened")),
                words(t!("Before")),
                words(t!("After")),
            ],
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
                view! { <tr><th scope="row">{field_name(&field.name)}</th><td translate="no">{value}</td></tr> }
                    .into_any()
            })
            .collect();
        view! {
            <details>
                <summary>{tn!(same.len() as u64, "{n} field stayed", "{n} fields stayed")}</summary>
                {table::table(t!("As before."), &[words(t!("Field")), words(t!("Value"))], listed)}
            </details>
        }
    });
    let more = (found.left_out > 0).then(|| {
        let text = tn!(
            found.left_out as u64,
            "{n} field is left out here.",
            "{n} fields are left out here."
        );
        view! { <p class="quiet">{text}</p> }
    });
    view! {
        <section class="card">
            <h2>{t!("What changed")}</h2>
            {body} {stayed} {more}
        </section>
    }
    .into_any()
}

fn change_row(name: &str, fate: &Fate, is_money: bool, format: &Format) -> AnyView {
    let (mark, tone) = match fate {
        Fate::Set(_) => (t!("+ set"), Tone::Good),
        Fate::Removed(_) => (t!("− removed"), Tone::Bad),
        Fate::Changed { .. } => (t!("→ changed"), Tone::Warning),
        Fate::Same(_) => (t!("= same"), Tone::Quiet),
    };
    let nothing = || view! { <span class="quiet">{t!("nothing")}</span> }.into_any();
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
            <td class="value" translate="no">{before}</td>
            <td class="value" translate="no">{after}</td>
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
        None => language::text(&value_text(value)),
    }
}

/// A button to the history of one thing, for pages about it; nothing for those who may not read it.
pub fn history(visitor: &Visitor, subject: &AuditSubject) -> AnyView {
    if visitor.is_member() {
        return ().into_any();
    }
    let href = address(ADDRESS, &[("subject", &subject.text())]);
    view! { <a class="button" href=href>{t!("History")}</a> }.into_any()
}

/// The same of a node or class that limits sit on.
pub fn history_of_target(visitor: &Visitor, target: &Target) -> AnyView {
    history(visitor, &AuditSubject::Target(target.clone()))
}

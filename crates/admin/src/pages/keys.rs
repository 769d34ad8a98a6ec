//! Keys: the list, issuing one, the page that shows a secret once, one key, rotating and revoking it.

mod order;
pub mod own_limits;
pub mod rotate;

use std::str::FromStr;

use chrono::{DateTime, Utc};
use control::ControlError;
use control::fields::Fields;
use control::keys::{EndChoices, Expiry, KeyChoices, KeyDraft, KeyOwner};
use control::rows::{KEYS_PAGE_MAX, KeyFilter, KeyMonth, KeyOrder, KeyPlace, KeyRow, Person};
use domain::ids::{KeyId, PersonId, TenantId};
use domain::key_text::masked;
use domain::key_warnings::KeyEnding;
use domain::limits::{Scope, Target};
use domain::priority::Priority;
use domain::text;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use crate::copy;
use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::format::{self, Format};
use crate::language;
use crate::page::{self, Page, id_of_path};
use crate::pages::audit;
use crate::pages::connect::snippets;
use crate::session;
use crate::shell;
use crate::submit::{Done, Refused, parsed_id, press, submit};
use crate::table::{self, Direction, SortLink, Tone, badge, facts, figures, words};
use crate::terms;
use crate::visit::{Visit, Visitor, address};
use terms::priority;

use order::Sort;

/// Keys on one page of the list.
const KEYS_PER_PAGE: usize = 100;
/// What the expiry's choice says for an instant of one's own.
const EXPIRY_AT: &str = "at";
/// What the choice of models says for those that are named.
const ACCESS_CHOSEN: &str = "chosen";
/// The owner's choice for a key of the tenant itself.
const SERVICE: &str = "service";

/// The keys that the visitor may see.
pub fn list() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let wanted = Wanted::of(&visit)?;
        let mut keys = visit.state.control.keys(&visitor.actor, wanted.filter()).await?;
        let has_more = keys.len() > KEYS_PER_PAGE;
        keys.truncate(KEYS_PER_PAGE);
        let next = has_more
            .then(|| keys.last().map(|last| wanted.page_after(last)))
            .flatten();
        let issue = visitor.issues_keys().then(|| {
            let href = address("/keys/new", &[("tenant", &wanted.tenant_text())]);
            view! { <a class="button button-primary" href=href>{t!("Issue a key")}</a> }
        });
        let (title, lead) = if visitor.is_member() {
            (
                t!("My keys"),
                t!("Programs that you run identify themselves with one of these."),
            )
        } else {
            (
                t!("Keys"),
                t!("Programs identify themselves with a key. Its secret is shown once, when it is issued."),
            )
        };
        let listed = if keys.is_empty() {
            nothing_listed(visitor, &wanted)
        } else {
            let now = visit.now();
            let months = visit.state.control.key_months(&visitor.actor, &keys, now).await?;
            let month = |key: &KeyRow| months.get(&key.id).copied().unwrap_or_default();
            table::table(
                order::caption(wanted.order),
                &[
                    words(t!("Name")).sorted(wanted.sort_link(Sort::ByName)),
                    words(t!("Key")),
                    words(t!("State")),
                    figures(t!("Spent")),
                    figures(t!("Refused")),
                    words(t!("Last used")).sorted(wanted.sort_link(Sort::ByUse)),
                    words(t!("Tenant")),
                    words(t!("Owner")),
                    words(t!("Priority")),
                    words(t!("Models")),
                    words(t!("Expires")),
                ],
                keys.iter()
                    .map(|key| row(key, month(key), visitor, &visit.format, now))
                    .collect(),
            )
        };
        let next = next.map(|href| {
            let says = match wanted.order {
                KeyOrder::Newest => t!("Older keys"),
                _ => t!("Next page"),
            };
            view! {
                <nav class="pager" aria-label=t!("Pages")>
                    <a class="button" href=href rel="next">{says}</a>
                </nav>
            }
        });
        let content = view! {
            {shell::page_head(title, lead, issue.into_any())}
            {filters(&visit, visitor, &wanted).await?}
            {listed}
            {next}
        };
        Ok(Page::new(title, content.into_any()))
    })
}

/// What stands in place of a list without keys: the next step.
fn nothing_listed(visitor: &Visitor, wanted: &Wanted) -> AnyView {
    if wanted.tenant.is_some() || !wanted.find.is_empty() || wanted.after.is_some() {
        return table::empty(
            t!("No key matches. Take a filter away, or show revoked keys too."),
            view! { <a class="button" href="/keys">{t!("Show all")}</a> }.into_any(),
        );
    }
    if !visitor.issues_keys() {
        return table::empty(t!("No keys yet. Operators and managers issue them."), ().into_any());
    }
    table::empty(
        t!(
            "No keys yet. A program sends its key with each request, as it would send one of the provider's: issue one for each \
             program, so that its use is told apart and it can be revoked alone."
        ),
        view! {
            <a class="button" href="/keys/new">{t!("Issue the first key")}</a>
            <a class="button" href="/connect">{t!("How to connect")}</a>
        }
        .into_any(),
    )
}

/// What the list's address asks for.
struct Wanted {
    tenant: Option<TenantId>,
    includes_revoked: bool,
    find: String,
    order: KeyOrder,
    after: Option<KeyPlace>,
}

impl Wanted {
    fn of(visit: &Visit) -> Result<Self, PageError> {
        let sort = match visit.query("sort") {
            None => None,
            Some(word) => Some(Sort::read(&word).ok_or(PageError::NotFound)?),
        };
        let direction = match visit.query("dir") {
            None => Direction::Ascending,
            Some(word) => Direction::read(&word).ok_or(PageError::NotFound)?,
        };
        let order = sort.map_or(KeyOrder::Newest, |sort| sort.order(direction));
        let after = match visit.query("after") {
            None => None,
            Some(text) => Some(order::place(order, &text).ok_or(PageError::NotFound)?),
        };
        Ok(Self {
            tenant: parsed(visit.query("tenant"))?,
            includes_revoked: visit.query("revoked").is_some(),
            find: visit.query("find").unwrap_or_default().trim().to_owned(),
            order,
            after,
        })
    }

    fn filter(&self) -> KeyFilter {
        KeyFilter {
            tenant_id: self.tenant,
            includes_revoked: self.includes_revoked,
            containing: Some(self.find.clone()).filter(|find| !find.is_empty()),
            order: self.order,
            after: self.after.clone(),
            // One more tells whether there is another page.
            count: i64::try_from(KEYS_PER_PAGE + 1).unwrap_or(KEYS_PAGE_MAX),
            ..KeyFilter::default()
        }
    }

    fn tenant_text(&self) -> String {
        self.tenant.map(|tenant| tenant.to_string()).unwrap_or_default()
    }

    /// The address of the list in an order, from behind a place.
    fn address(&self, order: KeyOrder, after: &str) -> String {
        let revoked = if self.includes_revoked { "on" } else { "" };
        let (sort, direction) = order::fields(order);
        address(
            "/keys",
            &[
                ("tenant", &self.tenant_text()),
                ("revoked", revoked),
                ("find", &self.find),
                ("sort", sort),
                ("dir", direction),
                ("after", after),
            ],
        )
    }

    fn page_after(&self, last: &KeyRow) -> String {
        self.address(self.order, &order::place_text(&self.order.place(last)))
    }

    /// The heading's link: the other way round, where the list is in its order.
    fn sort_link(&self, sort: Sort) -> SortLink {
        let state = Sort::of(self.order).and_then(|(by, direction)| (by == sort).then_some(direction));
        let next = match state {
            Some(Direction::Ascending) => Direction::Descending,
            Some(Direction::Descending) | None => Direction::Ascending,
        };
        SortLink {
            href: self.address(sort.order(next), ""),
            state,
        }
    }
}

fn parsed<T: FromStr>(text: Option<String>) -> Result<Option<T>, PageError> {
    text.map(|text| text.parse().map_err(|_| PageError::NotFound))
        .transpose()
}

async fn filters(visit: &Visit, visitor: &Visitor, wanted: &Wanted) -> Result<AnyView, PageError> {
    let form = Filled::<()>::blank(());
    let tenants = if visitor.sees_everything() {
        let tenants = visit.state.control.tenants(&visitor.actor, visit.now()).await?;
        let choices = std::iter::once((String::new(), t!("All tenants").to_owned()))
            .chain(
                tenants
                    .iter()
                    .map(|tenant| (tenant.row.tenant.id.to_string(), tenant.row.tenant.name.clone())),
            )
            .collect();
        form.select(Field::new("tenant", t!("Tenant")), &wanted.tenant_text(), choices)
    } else {
        ().into_any()
    };
    let (sort, direction) = order::fields(wanted.order);
    let kept = [("sort", sort), ("dir", direction)]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| view! { <input type="hidden" name=name value=value /> })
        .collect_view();
    let newest = (wanted.order != KeyOrder::Newest).then(|| {
        let href = wanted.address(KeyOrder::Newest, "");
        view! { <a class="button" href=href>{t!("The newest first")}</a> }
    });
    Ok(view! {
        <form class="filters" method="get" action="/keys">
            {kept}
            {tenants}
            {form.text(Field::new("find", t!("Find among the keys")), &wanted.find)}
            {form.check(Field::new("revoked", t!("Show revoked keys too")), wanted.includes_revoked)}
            <div class="actions">
                <button class="button" type="submit">{t!("Show")}</button>
                {newest}
            </div>
        </form>
    }
    .into_any())
}

fn row(key: &KeyRow, month: KeyMonth, visitor: &Visitor, format: &Format, now: DateTime<Utc>) -> AnyView {
    let href = format!("/keys/{}", key.id);
    let name = key.tenant_name.clone();
    // Members may not open the tenant's page.
    let tenant = if visitor.is_member() {
        name.into_any()
    } else {
        view! { <a href=format!("/tenants/{}", key.tenant_id)>{name}</a> }.into_any()
    };
    view! {
        <tr>
            <th scope="row">
                <a href=href>{key.name.clone()}</a>
            </th>
            <td class="nowrap">
                <code>{masked(&key.public_id)}</code>
            </td>
            <td>{state(key, format, now)}</td>
            <td class="number">{format.money(month.cost)}</td>
            <td class="number">{format::count(month.refusals)}</td>
            <td class="nowrap">{last_used(key.last_used_at, format)}</td>
            <td>{tenant}</td>
            <td>{owner(key)}</td>
            <td>{priority(key.priority)}</td>
            <td>{models(key)}</td>
            <td class="nowrap">{expiry(key, format)}</td>
        </tr>
    }
    .into_any()
}

fn state(key: &KeyRow, format: &Format, now: DateTime<Utc>) -> AnyView {
    if key.revoked_at.is_some() {
        return badge(t!("revoked"), Tone::Bad);
    }
    if key.expires_at.is_some_and(|at| at <= now) {
        return badge(t!("expired"), Tone::Warning);
    }
    let ends_soon = |at: &DateTime<Utc>| KeyEnding::KeyExpires.told_from(*at) <= now;
    let expires = key.expires_at.filter(ends_soon).map(|at| {
        let text = t!("expires {time}", time = format.minute(at));
        badge(text, Tone::Warning)
    });
    let overlap = running_overlap(key, now).map(|until| {
        let text = t!("old secret works until {time}", time = format.minute(until));
        badge(text, Tone::Warning)
    });
    view! { {badge(t!("active"), Tone::Good)} " " {expires} " " {overlap} }.into_any()
}

/// Until when the secret before the present one works, if it does.
fn running_overlap(key: &KeyRow, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    key.old_secret_until.filter(|until| now < *until)
}

fn owner(key: &KeyRow) -> String {
    key.owner_name
        .clone()
        .unwrap_or_else(|| t!("service account").to_owned())
}

fn models(key: &KeyRow) -> String {
    match key.allowed_models.as_deref() {
        None => t!("all").to_owned(),
        // A rotation has taken away what the tenant's rules do not allow any more.
        Some([]) => t!("none of the tenant's models").to_owned(),
        Some(models) => models.join(", "),
    }
}

fn expiry(key: &KeyRow, format: &Format) -> String {
    match key.expires_at {
        Some(at) => format.minute(at),
        None => t!("never", in "when a key expires").to_owned(),
    }
}

/// Gateways write it down each minute.
fn last_used(at: Option<DateTime<Utc>>, format: &Format) -> String {
    match at {
        Some(at) => format.minute(at),
        None => t!("not yet", in "when a key was last used").to_owned(),
    }
}

/// The form that issues a key. An operator first chooses the tenant, whose people and ceiling the form then offers.
pub fn new() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        if !visitor.issues_keys() {
            return Err(PageError::Forbidden);
        }
        let tenant = match visitor.tenant_id {
            Some(own) => Some(own),
            None => parsed::<TenantId>(visit.query("tenant"))?,
        };
        let content = match tenant {
            Some(tenant) => issue_form(&visit, visitor, tenant).await?,
            None => tenant_choice(&visit, visitor).await?,
        };
        Ok(Page::new(t!("Issue a key"), content))
    })
}

async fn tenant_choice(visit: &Visit, visitor: &Visitor) -> Result<AnyView, PageError> {
    let tenants = visit.state.control.tenants(&visitor.actor, visit.now()).await?;
    let choices: Vec<_> = tenants
        .iter()
        .map(|tenant| (tenant.row.tenant.id.to_string(), tenant.row.tenant.name.clone()))
        .collect();
    let body = if choices.is_empty() {
        table::empty(
            t!("A key belongs to a tenant, and there is none yet."),
            view! { <a class="button button-primary" href="/tenants/new">{t!("New tenant")}</a> }.into_any(),
        )
    } else {
        let form = Filled::<()>::blank(());
        view! {
            <form class="form" method="get" action="/keys/new">
                {form.select(Field::new("tenant", t!("Tenant")), "", choices)}
                <div class="actions">
                    <button class="button button-primary" type="submit">{t!("Continue")}</button>
                    <a class="button" href="/keys">{t!("Cancel")}</a>
                </div>
            </form>
        }
        .into_any()
    };
    let lead = t!("First choose the tenant that the key belongs to.");
    Ok(view! {
        {shell::page_head(t!("Issue a key"), lead, ().into_any())}
        <section class="card">{body}</section>
    }
    .into_any())
}

async fn issue_form(visit: &Visit, visitor: &Visitor, tenant: TenantId) -> Result<AnyView, PageError> {
    let control = &visit.state.control;
    let name = tenant_name(visit, visitor, tenant).await?;
    // Others than members choose the owner in the form, who may be the tenant itself.
    let owner = match (visitor.is_member(), visitor.actor.person_id()) {
        (true, Some(own)) => KeyOwner::Person(own),
        _ => KeyOwner::Service,
    };
    let now = visit.now();
    let choices = control.choices_for_new_key(&visitor.actor, tenant, owner, now).await?;
    let highest = choices.priorities.last().copied().unwrap_or_default();
    let people = if visitor.is_member() {
        Vec::new()
    } else {
        control.people(&visitor.actor, Some(tenant)).await?
    };
    let form = Filled::new(visit.draft.clone(), IssueKey::PATH, || KeyForm {
        tenant_id: tenant.to_string(),
        priority: Priority::Default.min(highest).as_str().to_owned(),
        expiry: match choices.ends.is_endless {
            true => String::new(),
            false => lifetime(choices.ends.longest()),
        },
        owner: if visitor.is_member() {
            String::new()
        } else {
            SERVICE.to_owned()
        },
        ..KeyForm::default()
    });
    let owner = (!visitor.is_member()).then(|| {
        form.select(
            Field::new("owner", t!("Owner")).hint(t!(
                "A person's key shows in their own usage. A service account belongs to the tenant."
            )),
            &form.values.owner,
            owner_choices(&people),
        )
    });
    let fields = key_fields(visit, visitor, &form, &choices, None);
    let called = Field::new("name", t!("Name"))
        .required()
        .hint(t!("What uses it: a program, a notebook, a team's job."))
        .placeholder(t!("nightly summaries"));
    Ok(view! {
        {shell::page_head(t!("Issue a key"), t!("For {name}.", name), ().into_any())}
        <section class="card">
            {form.summary()}
            <form class="form" method="post" action=IssueKey::PATH>
                <input type="hidden" name="tenant_id" value=tenant.to_string() />
                {form.text(called, &form.values.name)}
                {owner}
                {fields}
                <div class="actions">
                    <button class="button button-primary" type="submit">{t!("Issue key")}</button>
                    <a class="button" href="/keys">{t!("Cancel")}</a>
                </div>
            </form>
        </section>
    }
    .into_any())
}

fn owner_choices(people: &[Person]) -> Vec<(String, String)> {
    std::iter::once((SERVICE.to_owned(), t!("Service account").to_owned()))
        .chain(
            people
                .iter()
                .filter(|person| person.disabled_at.is_none())
                .map(|person| (person.id.to_string(), format!("{} ({})", person.name, person.email))),
        )
        .collect()
}

async fn tenant_name(visit: &Visit, visitor: &Visitor, id: TenantId) -> Result<String, PageError> {
    let control = &visit.state.control;
    let row = if visitor.is_member() {
        control.own_tenant(&visitor.actor).await?.ok_or(PageError::NotFound)?
    } else {
        control.tenant(&visitor.actor, id, visit.now()).await?.row
    };
    Ok(row.tenant.name)
}

/// A lifetime as the choice of an expiry has it; a time of one's own where none is offered.
fn lifetime(months: Option<u32>) -> String {
    months.map_or(EXPIRY_AT.to_owned(), |months| months.to_string())
}

/// The fields that issuing and editing share. `stored` is the key that is edited.
fn key_fields(
    visit: &Visit,
    visitor: &Visitor,
    form: &Filled<KeyForm>,
    choices: &KeyChoices,
    stored: Option<&KeyRow>,
) -> AnyView {
    let values = &form.values;
    let highest = choices.priorities.last().copied().unwrap_or_default();
    let priorities = Priority::ALL
        .into_iter()
        // What the key has stays on offer, or another would be chosen unseen.
        .filter(|offered| choices.priorities.contains(offered) || offered.as_str() == values.priority)
        .map(|offered| {
            let word = priority(offered);
            let text = if choices.priorities.contains(&offered) {
                word.to_owned()
            } else {
                t!("{priority} (no longer allowed)", priority = word)
            };
            (offered.as_str().to_owned(), text)
        })
        .collect();
    let users = (!visitor.is_member()).then(|| {
        form.check(
            Field::new("may_name_users", t!("May name end users")).hint(t!(
                "For service accounts only: their requests say whom they are for, and limits per user apply to those."
            )),
            values.may_name_users == "on",
        )
    });
    let degrades = form.check(
        Field::new("degrades", t!("Answers with a job instead of refusing")).hint(t!(
            "When there is no room, the caller gets 202 and the answer later at /v1/jobs. Only for programs that expect it; \
             others ask for it with the header Prefer: respond-async."
        )),
        values.degrades == "on",
    );
    let urgency = t!(
        "Who goes first when the service is busy. At most {ceiling}.",
        ceiling = priority(highest)
    );
    let ends = &choices.ends;
    let never = match ends.is_endless {
        true => Some(t!("Never", in "when a key expires")),
        false => values.expiry.is_empty().then(|| t!("Never (no longer allowed)")),
    };
    let never = never.map(|text| (String::new(), text.to_owned()));
    view! {
        {form.select(Field::new("priority", t!("Priority")).hint(urgency), &values.priority, priorities)}
        {model_fields(form, choices, stored)}
        {users}
        {degrades}
        {expiry_fields(visit, form, (&values.expiry, &values.expires_at), never.into_iter().collect(), ends)}
    }
    .into_any()
}

/// Which models a key may use.
fn model_fields(form: &Filled<KeyForm>, choices: &KeyChoices, stored: Option<&KeyRow>) -> AnyView {
    let values = &form.values;
    let mut names = choices.models.clone();
    // What the key names already stays on offer, even if it is disabled by now.
    names.extend(
        values
            .allowed_models
            .iter()
            .filter(|name| !choices.models.contains(name))
            .cloned(),
    );
    let named: Vec<_> = names.into_iter().map(|name| (name.clone(), name)).collect();
    let any_model = match choices.has_model_rule {
        false => t!("All models, those of the future included"),
        true => t!("All that people of this tenant may use"),
    };
    let access = choices
        .is_any_model
        .then(|| (String::new(), any_model.to_owned()))
        .into_iter()
        .chain([(ACCESS_CHOSEN.to_owned(), t!("Only those chosen below").to_owned())])
        .collect();
    let mut how = Field::new("model_access", t!("Models"));
    if stored.is_some_and(|key| key.allowed_models.as_ref().is_some_and(Vec::is_empty)) {
        how = how.hint(t!(
            "At present none of the tenant's models: every request with this key is refused until it may use some."
        ));
    }
    let chosen = if named.is_empty() {
        // With a place for what may be wrong.
        form.error_of("allowed_models")
    } else {
        form.checks(
            Field::new("allowed_models", t!("Chosen models")),
            &values.allowed_models,
            named,
        )
    };
    view! {
        {form.select(how, &values.model_access, access)}
        {chosen}
    }
    .into_any()
}

/// When a key ends: in so many months, at a time of one's own, or as the `first` choices say. `chosen` are the values of both
/// fields.
fn expiry_fields<F>(
    visit: &Visit,
    form: &Filled<F>,
    chosen: (&str, &str),
    first: Vec<(String, String)>,
    ends: &EndChoices,
) -> AnyView {
    let (expiry, expires_at) = chosen;
    let lifetimes = ends.lifetimes.iter().map(|(months, at)| {
        let end = visit.format.minute(*at);
        let text = tn!(u64::from(*months), "In {n} month: {end}", "In {n} months: {end}", end);
        (months.to_string(), text)
    });
    let options = first
        .into_iter()
        .chain(lifetimes)
        .chain([(EXPIRY_AT.to_owned(), t!("At the time below").to_owned())])
        .collect();
    let zone = visit.format.zone();
    let hint = match ends.latest {
        None => t!("In {zone} time.", zone),
        Some(_) if !ends.is_any(visit.now()) => t!("In {zone} time. A later one cannot be chosen here.", zone),
        Some(at) => t!(
            "In {zone} time. At the latest {latest}.",
            zone,
            latest = visit.format.minute(at)
        ),
    };
    let time = Field::new("expires_at", t!("Time of expiry")).instant().hint(hint);
    view! {
        <div class="field-row">
            {form.select(Field::new("expiry", t!("Expires")), expiry, options)}
            {form.text(time, expires_at)}
        </div>
    }
    .into_any()
}

/// The expiry that these fields say. `unchanged` is the end that the key has, if the field of the time still says it: that
/// knows no seconds.
fn expiry_of(
    fields: &mut Fields,
    (expiry, expires_at): (&str, &str),
    format: &Format,
    unchanged: Option<DateTime<Utc>>,
) -> Expiry {
    match expiry {
        "" => Expiry::Never,
        EXPIRY_AT => match unchanged.or_else(|| fields.local_time("expires_at", expires_at, format.zone())) {
            Some(at) => Expiry::At(at),
            None => {
                if expires_at.trim().is_empty() {
                    fields.refuse("expires_at", text!("choose a time, or another expiry"));
                }
                Expiry::Never
            }
        },
        months => Expiry::Months(months.parse().unwrap_or(0)),
    }
}

/// Shows the secret of a key that was just issued, once.
pub fn issued() -> AnyView {
    page::behind_the_door(|visit| async move {
        let secret: Option<IssuedSecret> = visit.secret().await?;
        let Some(secret) = secret else {
            let content = view! {
                {shell::page_head(t!("This secret was shown already"), "", ().into_any())}
                <section class="card">
                    <p>{t!("A secret is shown once. If it is lost, rotate the key: it gets another one.")}</p>
                    <p class="actions"><a class="button" href="/keys">{t!("Go to the keys")}</a></p>
                </section>
            };
            return Ok(Page::new(t!("Secret"), content.into_any()));
        };
        let visitor = visit.visitor()?;
        let key = visit.state.control.key(&visitor.actor, secret.id).await?;
        let model = visit
            .state
            .control
            .model_to_try(&visitor.actor, &key, visit.now())
            .await?;
        let detail = format!("/keys/{}", key.id);
        let overlap = running_overlap(&key, visit.now()).map(|until| {
            let time = visit.format.minute(until);
            view! { <p>{t!("The old secret works, too, until {time}.", time)}</p> }
        });
        let done = match key.rotated_at {
            Some(_) => t!("Key rotated: {name}", name = key.name),
            None => t!("Key issued: {name}", name = key.name),
        };
        let content = view! {
            {shell::page_head(done, t!("Copy the secret now: it is not shown again."), ().into_any())}
            <section class="card">
                <h2>{t!("Secret")}</h2>
                <code class="secret" id="secret">{secret.text.clone()}</code>
                <div class="copy-row">
                    {copy::button("secret", t!("Copy the secret"))}
                    <a class="button" href=detail>{t!("Done")}</a>
                </div>
                {overlap}
                <p class="quiet">{t!("Keep it like a password. Whoever has it spends this tenant's budget.")}</p>
            </section>
            <section class="card">
                <h2>{t!("Connect")}</h2>
                {check_form(key.id, true)}
                {snippets(&visit.state.gateway_address, &secret.text, model.as_ref())}
            </section>
        };
        Ok(Page::new(t!("Secret"), content.into_any()))
    })
}

/// One key and the form that changes it.
pub fn detail() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let id: KeyId = id_of_path(&visit, "/keys/")?;
        let key = visit.state.control.key(&visitor.actor, id).await?;
        let is_changeable = visitor.issues_keys() && key.revoked_at.is_none();
        let (rotate, revoke) = (format!("/keys/{id}/rotate"), format!("/keys/{id}/revoke"));
        let ledger = format!("/ledger?key={id}");
        let limits = address("/limits", &[("of", &Scope::Key(id).to_string())]);
        let actions = view! {
            <a class="button" href=ledger>{t!("Requests", in "link to the ledger")}</a>
            <a class="button" href=limits>{t!("Limits")}</a>
            {is_changeable.then(|| check_form(id, false))}
            {is_changeable.then(|| view! { <a class="button" href=rotate>{t!("Rotate")}</a> })}
            {audit::history_of_target(visitor, &Target::Node(Scope::Key(id)))}
            {is_changeable.then(|| view! { <a class="button button-danger" href=revoke>{t!("Revoke")}</a> })}
        };
        let (expired, editor) = if is_changeable {
            let control = &visit.state.control;
            let choices = control.choices_for_key(&visitor.actor, id, visit.now()).await?;
            let expired = expired(&visit, visitor, &key, &choices).await?;
            (expired, Some(editor(&visit, visitor, &key, &choices)))
        } else {
            (None, None)
        };
        let sets_own = is_changeable && visit.state.control.sets_own_limits(&visitor.actor, &key);
        let own_limits = sets_own.then(|| own_limits::card(&visit, &key));
        let control = &visit.state.control;
        let months = control
            .key_months(&visitor.actor, std::slice::from_ref(&key), visit.now())
            .await?;
        let month = months.get(&id).copied().unwrap_or_default();
        let content = view! {
            {shell::page_head(key.name.clone(), "", actions.into_any())}
            {revoked_meanwhile(&visit, &key)}
            {expired}
            <section class="card">{facts(known(&visit, &key, month, is_changeable))}</section>
            {editor}
            {own_limits}
        };
        Ok(Page::new(key.name.clone(), content.into_any()))
    })
}

/// What there is to know about a key.
fn known(visit: &Visit, key: &KeyRow, month: KeyMonth, is_changeable: bool) -> Vec<(&'static str, AnyView)> {
    let format = &visit.format;
    let may_name_users = if key.may_name_users && key.owner_id.is_none() {
        t!("yes")
    } else {
        t!("no")
    };
    let degrades = if key.degrades {
        t!("yes, instead of refusing")
    } else {
        t!("only to requests that ask for it")
    };
    let issued = t!(
        "{time} by {name}",
        time = format.time(key.created_at),
        name = key.created_by
    );
    let mut rows = vec![
        (t!("Key"), view! { <code>{masked(&key.public_id)}</code> }.into_any()),
        (t!("State"), state(key, format, visit.now())),
        (t!("Tenant"), key.tenant_name.clone().into_any()),
        (t!("Owner"), owner(key).into_any()),
        (t!("Priority"), priority(key.priority).into_any()),
        (t!("Models"), models(key).into_any()),
        (t!("May name end users"), may_name_users.into_any()),
        (t!("Answers with a job"), degrades.into_any()),
        (t!("Expires"), expiry(key, format).into_any()),
        (t!("Issued"), issued.into_any()),
        (t!("Last used"), last_used(key.last_used_at, format).into_any()),
        (t!("Spent this month"), format.money(month.cost).into_any()),
        (t!("Refused this month"), format::count(month.refusals).into_any()),
    ];
    if let Some(rotated) = key.rotated_at {
        rows.push((t!("Rotated"), format.time(rotated).into_any()));
    }
    if let Some(until) = running_overlap(key, visit.now()) {
        let until = format.time(until);
        let says = match key.old_secret_used_at {
            Some(at) => t!("works until {until}; last used {used}", until, used = format.minute(at)),
            None => t!("works until {until}; not used", until),
        };
        let end = is_changeable.then(|| rotate::end_overlap_form(key));
        rows.push((t!("Old secret"), view! { {says} " " {end} }.into_any()));
    }
    if let Some(revoked) = key.revoked_at {
        rows.push((t!("Revoked"), format.time(revoked).into_any()));
    }
    rows
}

/// The button that tries a key. Beside a secret that is shown once, the result opens in a window of its own.
fn check_form(id: KeyId, opens_window: bool) -> AnyView {
    view! {
        <form method="post" action=CheckKey::PATH target=opens_window.then_some("_blank")>
            <input type="hidden" name="id" value=id.to_string() />
            <button class="button" type="submit">{t!("Test this key")}</button>
        </form>
    }
    .into_any()
}

/// What is said of a form that comes back to the page of a key that is revoked, which has no forms.
fn revoked_meanwhile(visit: &Visit, key: &KeyRow) -> Option<AnyView> {
    if key.revoked_at.is_none() || visit.draft.is_none() {
        return None;
    }
    let says = t!("Nothing was saved: this key was revoked meanwhile.");
    Some(view! { <p class="notice notice-bad" role="alert">{says}</p> }.into_any())
}

/// That a key has expired, and what brings it back.
async fn expired(
    visit: &Visit,
    visitor: &Visitor,
    key: &KeyRow,
    choices: &KeyChoices,
) -> Result<Option<AnyView>, PageError> {
    let now = visit.now();
    let Some(at) = key.expires_at.filter(|at| *at <= now) else {
        return Ok(None);
    };
    let control = &visit.state.control;
    let rotation = control.choices_for_rotation(&visitor.actor, key.id, now).await?;
    let back = if rotation.ends.is_any(now) {
        let href = format!("/keys/{}/rotate", key.id);
        tv!(
            "{rotate}: it gets a new secret and a later expiry, and keeps its id, its limits and what they have counted.",
            rotate = view! { <a href=href>{t!("Rotate it")}</a> },
        )
    } else {
        rotate::end_is_set().into_any()
    };
    let edit = choices.ends.is_any(now).then(|| {
        let says = t!("Or choose a later expiry below: its present secret works again then.");
        view! { <p>{says}</p> }
    });
    let says = t!(
        "This key expired at {time}: requests with it are refused.",
        time = visit.format.minute(at)
    );
    Ok(Some(
        view! {
            <div class="notice notice-warning">
                <p>{says}</p>
                <p>{back}</p>
                {edit}
            </div>
        }
        .into_any(),
    ))
}

fn editor(visit: &Visit, visitor: &Visitor, key: &KeyRow, choices: &KeyChoices) -> AnyView {
    let form = Filled::new(visit.draft.clone(), EditKey::PATH, || KeyForm::of(key, &visit.format));
    let version = form.version(&form.values.version, &key.version.to_string()).to_owned();
    let fields = key_fields(visit, visitor, &form, choices, Some(key));
    view! {
        <section class="card">
            <h2>{t!("Change", in "heading of a form")}</h2>
            {form.summary()}
            <form class="form" method="post" action=EditKey::PATH>
                <input type="hidden" name="id" value=key.id.to_string() />
                <input type="hidden" name="version" value=version />
                {form.text(Field::new("name", t!("Name")).required(), &form.values.name)}
                {fields}
                <div class="actions">
                    <button class="button button-primary" type="submit">{t!("Save")}</button>
                </div>
                <p class="quiet">{t!("Changes are in force on every gateway within a second.")}</p>
            </form>
        </section>
    }
    .into_any()
}

/// Asks before a key is revoked: it cannot be undone.
pub fn revoke() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let id: KeyId = id_of_path(&visit, "/keys/")?;
        let key = visit.state.control.key(&visitor.actor, id).await?;
        if !visitor.issues_keys() {
            return Err(PageError::Forbidden);
        }
        let back = format!("/keys/{id}");
        let content = view! {
            {shell::page_head(t!("Revoke {name}?", name = key.name), "", ().into_any())}
            <section class="card">
                <p>
                    {tv!(
                        "Requests with {key} are refused within a second, for good. Requests that are running end normally. \
                         The key stays in the ledger and in reports.",
                        key = view! { <code>{masked(&key.public_id)}</code> },
                    )}
                </p>
                <form method="post" action=RevokeKey::PATH>
                    <input type="hidden" name="id" value=id.to_string() />
                    <div class="actions">
                        <button class="button button-danger" type="submit">{t!("Revoke key")}</button>
                        <a class="button" href=back>{t!("Keep it")}</a>
                    </div>
                </form>
            </section>
        };
        Ok(Page::new(t!("Revoke key"), content.into_any()))
    })
}

/// A secret on its way to the one page that shows it.
#[derive(Serialize, Deserialize)]
struct IssuedSecret {
    id: KeyId,
    text: String,
}

/// What the forms of a key send.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyForm {
    id: String,
    version: String,
    tenant_id: String,
    owner: String,
    name: String,
    priority: String,
    /// Empty for all models, or `chosen`.
    model_access: String,
    allowed_models: Vec<String>,
    may_name_users: String,
    degrades: String,
    /// Empty for never, a number of months, or `at`.
    expiry: String,
    expires_at: String,
}

impl KeyForm {
    fn of(key: &KeyRow, format: &Format) -> Self {
        Self {
            id: key.id.to_string(),
            version: key.version.to_string(),
            tenant_id: key.tenant_id.to_string(),
            owner: String::new(),
            name: key.name.clone(),
            priority: key.priority.as_str().to_owned(),
            model_access: if key.allowed_models.is_some() {
                ACCESS_CHOSEN
            } else {
                ""
            }
            .to_owned(),
            allowed_models: key.allowed_models.clone().unwrap_or_default(),
            may_name_users: if key.may_name_users { "on" } else { "" }.to_owned(),
            degrades: if key.degrades { "on" } else { "" }.to_owned(),
            expiry: if key.expires_at.is_some() { EXPIRY_AT } else { "" }.to_owned(),
            expires_at: key.expires_at.map(|at| format.field_time(at)).unwrap_or_default(),
        }
    }

    /// `before` is the key that is edited: an expiry that was left alone stays exact.
    fn draft(&self, format: &Format, before: Option<&KeyRow>) -> Result<KeyDraft, ControlError> {
        let mut fields = Fields::default();
        let priority = fields.word("priority", &self.priority).unwrap_or_default();
        let unchanged = before
            .and_then(|key| key.expires_at)
            .filter(|at| format.field_time(*at) == self.expires_at);
        let expiry = expiry_of(&mut fields, (&self.expiry, &self.expires_at), format, unchanged);
        fields.check()?;
        Ok(KeyDraft {
            name: self.name.clone(),
            priority,
            allowed_models: (self.model_access == ACCESS_CHOSEN).then(|| self.allowed_models.clone()),
            may_name_users: self.may_name_users == "on",
            degrades: self.degrades == "on",
            expiry,
        })
    }
}

/// Issues a key and leads to the page that shows its secret.
#[server(prefix = "/console", endpoint = "keys/issue")]
pub async fn issue_key(#[server(flatten)] form: KeyForm) -> Result<(), ServerFnError> {
    let back = address("/keys/new", &[("tenant", &form.tenant_id)]);
    submit(IssueKey::PATH, &back, form, |visit: Visit, form: KeyForm| async move {
        let visitor = visit.visitor()?;
        let tenant = match visitor.tenant_id {
            Some(own) => own,
            None => parsed_id(&form.tenant_id)?,
        };
        let owner = match (visitor.is_member(), visitor.actor.person_id()) {
            (true, Some(own)) => KeyOwner::Person(own),
            _ if form.owner == SERVICE => KeyOwner::Service,
            _ => KeyOwner::Person(
                form.owner
                    .parse::<PersonId>()
                    .map_err(|_| Refused::field("owner", text!("choose an owner")))?,
            ),
        };
        let draft = form.draft(&visit.format, None)?;
        let now = visit.now();
        let issued = visit
            .state
            .control
            .issue_key(&visitor.actor, tenant, owner, &draft, now)
            .await?;
        let secret = IssuedSecret {
            id: issued.row.id,
            text: issued.text.reveal().to_owned(),
        };
        session::keep_secret(&visit.session, secret, now).await?;
        Ok::<_, Refused>(Done::go("/keys/issued"))
    })
    .await
}

/// Changes a key.
#[server(prefix = "/console", endpoint = "keys/edit")]
pub async fn edit_key(#[server(flatten)] form: KeyForm) -> Result<(), ServerFnError> {
    let back = format!("/keys/{}", form.id);
    submit(EditKey::PATH, &back, form, |visit: Visit, form: KeyForm| async move {
        let (id, version) = (parsed_id(&form.id)?, parsed_id(&form.version)?);
        let actor = visit.actor()?;
        let before = visit.state.control.key(actor, id).await?;
        let mut draft = form.draft(&visit.format, Some(&before))?;
        // A form without the field leaves it alone. A person's key names nobody, and no form of theirs has the field.
        if visit.visitor()?.is_member() {
            draft.may_name_users = before.may_name_users && before.owner_id.is_none();
        }
        visit
            .state
            .control
            .edit_key(actor, id, version, &draft, visit.now())
            .await?;
        Ok::<_, Refused>(Done::say(format!("/keys/{id}"), t!("Saved.")))
    })
    .await
}

/// Tries a key, and says what came of it.
#[server(prefix = "/console", endpoint = "keys/check")]
pub async fn check_key(#[server(default)] id: String) -> Result<(), ServerFnError> {
    let back = format!("/keys/{id}");
    press(&back, |visit: Visit| async move {
        let id: KeyId = parsed_id(&id)?;
        let check = visit.state.control.check_key(visit.actor()?, id, visit.now()).await?;
        let says = language::text(&check.words());
        match check.is_good() {
            true => Ok(Done::say(format!("/keys/{id}"), says)),
            false => Err(Refused::Form(says)),
        }
    })
    .await
}

/// Revokes a key for good.
#[server(prefix = "/console", endpoint = "keys/revoke")]
pub async fn revoke_key(#[server(default)] id: String) -> Result<(), ServerFnError> {
    let back = format!("/keys/{id}");
    press(&back, |visit: Visit| async move {
        let id: KeyId = parsed_id(&id)?;
        visit.state.control.revoke_key(visit.actor()?, id, visit.now()).await?;
        Ok::<_, Refused>(Done::say(format!("/keys/{id}"), t!("Revoked.")))
    })
    .await
}

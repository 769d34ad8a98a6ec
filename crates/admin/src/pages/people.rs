//! People: the list, inviting somebody, the page that shows a one-time link once.

pub mod one;

use chrono::{DateTime, Utc};
use control::audit::AuditSubject;
use control::fields::Fields;
use control::people::{INVITATION_DAYS, Invitation, PersonDraft};
use control::rows::Person;
use domain::limits::{Scope, Target};
use domain::people::Role;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use crate::copy;
use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::page::{self, Page};
use crate::pages::{audit, limits};
use crate::session;
use crate::shell;
use crate::submit::{Done, Refused, submit};
use crate::table::{Tone, badge, words};
use crate::tables::{Column, Listing, Named, by, by_text};
use crate::terms;
use crate::visit::{Visit, Visitor, address};

/// Everybody whom the visitor may see.
pub fn list() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let people = visit.state.control.people(&visitor.actor, None).await?;
        let may_invite = visitor.is_operator() || visitor.is_manager();
        let invite = may_invite
            .then(|| view! { <a class="button button-primary" href="/people/new">{t!("Invite somebody")}</a> });
        let listing = Listing::new(&visit, columns(), people, &[], |person| {
            let tenant = person.tenant_name.as_deref().unwrap_or_default();
            // By either word: a link with a search is passed on to readers of another language.
            let roles = [terms::role(person.role), person.role.as_str()].join(" ");
            format!("{} {} {roles} {tenant}", person.name, person.email)
        })?;
        let caption = t!("Times in {zone} time.", zone = visit.format.zone());
        let named = Named {
            counted: |n| tn!(n, "{n} person", "{n} people"),
            find: t!("Find among the people"),
        };
        let content = view! {
            {shell::page_head(
                t!("People"),
                t!("Who may sign in to this console, and what they may do."),
                invite.into_any(),
            )}
            {listing.view(caption, &named, |person| row(person, &visit))}
        };
        Ok(Page::new(t!("People"), content.into_any()))
    })
}

fn columns() -> Vec<Column<Person>> {
    // Those who cannot sign in last.
    let standing = |person: &Person| (person.disabled_at.is_some(), !person.has_password);
    vec![
        by_text(words(t!("Name", in "a person")), "name", |person: &Person| &person.name).natural(),
        by_text(words(t!("E-mail")), "email", |person| &person.email),
        by_text(words(t!("Role")), "role", |person| person.role.as_str()),
        by_text(words(t!("Tenant")), "tenant", |person| {
            person.tenant_name.as_deref().unwrap_or_default()
        }),
        by(words(t!("State")), "state", move |one, other| {
            standing(one).cmp(&standing(other))
        }),
        by(words(t!("Last sign-in")), "signed_in", |one: &Person, other| {
            one.signed_in_at.cmp(&other.signed_in_at)
        }),
    ]
}

fn row(person: &Person, visit: &Visit) -> AnyView {
    let signed_in = person.signed_in_at.map_or_else(
        || t!("never", in "so far").to_owned(),
        |at| visit.format.bare_minute(at),
    );
    let limits = person.tenant_id.map(|tenant| {
        let user = Target::Node(Scope::User(tenant, person.id.to_string().into()));
        let label = t!("Limits of {name}", name = person.name);
        view! { <br /> <small><a href=limits::address_of(&user) aria-label=label>{t!("Limits")}</a></small> }
    });
    let history = address(audit::ADDRESS, &[("subject", &AuditSubject::Person(person.id).text())]);
    let label = t!("History of {name}", name = person.name);
    let history = view! { " " <small><a href=history aria-label=label>{t!("History")}</a></small> };
    view! {
        <tr>
            <th scope="row"><a href=one::address_of(person.id)>{person.name.clone()}</a> {limits} {history}</th>
            <td>{person.email.clone()}</td>
            <td>{terms::role(person.role)}</td>
            <td>{person.tenant_name.clone()}</td>
            <td>{state(person)}</td>
            <td class="nowrap">{signed_in}</td>
        </tr>
    }
    .into_any()
}

fn state(person: &Person) -> AnyView {
    if person.disabled_at.is_some() {
        badge(t!("closed", in "a person"), Tone::Bad)
    } else if person.has_password {
        badge(t!("active"), Tone::Good)
    } else {
        badge(t!("invited"), Tone::Warning)
    }
}

/// The form that invites somebody.
pub fn new() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        if !visitor.is_operator() && !visitor.is_manager() {
            return Err(PageError::Forbidden);
        }
        let form = Filled::new(visit.draft.clone(), InvitePerson::PATH, || PersonForm {
            role: Role::Member.as_str().to_owned(),
            ..PersonForm::default()
        });
        let values = &form.values;
        let tenants = if visitor.is_operator() {
            let choices = tenant_choices(&visit, visitor).await?;
            form.select(tenant_field(), &values.tenant_id, choices)
        } else {
            ().into_any()
        };
        let content = view! {
            {shell::page_head(
                t!("Invite somebody"),
                t!("You get a link for them. It works once, for {days} days.", days = INVITATION_DAYS),
                ().into_any(),
            )}
            <section class="card">
                {form.summary()}
                <form class="form" method="post" action=InvitePerson::PATH>
                    {form.text(name_field(), &values.name)}
                    {form.text(email_field(), &values.email)}
                    {form.select(Field::new("role", t!("Role")), &values.role, role_choices(visitor))}
                    {tenants}
                    <div class="actions">
                        <button class="button button-primary" type="submit">{t!("Make the link")}</button>
                        <a class="button" href="/people">{t!("Cancel")}</a>
                    </div>
                </form>
            </section>
        };
        Ok(Page::new(t!("Invite somebody"), content.into_any()))
    })
}

/// The roles that the visitor may give.
fn role_choices(visitor: &Visitor) -> Vec<(String, String)> {
    let roles = Role::ALL.into_iter().rev();
    roles
        .filter(|role| visitor.is_operator() || role.belongs_to_tenant())
        .map(|role| (role.as_str().to_owned(), role_text(role).to_owned()))
        .collect()
}

fn name_field() -> Field {
    Field::new("name", t!("Name", in "a person")).required()
}

fn email_field() -> Field {
    Field::new("email", t!("E-mail address"))
        .email()
        .required()
        .hint(t!("They sign in with it."))
}

fn tenant_field() -> Field {
    Field::new("tenant_id", t!("Tenant")).hint(t!("For members and managers. Operators and auditors belong to none."))
}

async fn tenant_choices(visit: &Visit, visitor: &Visitor) -> Result<Vec<(String, String)>, PageError> {
    let tenants = visit.state.control.tenants(&visitor.actor, visit.now()).await?;
    let tenants = tenants
        .into_iter()
        .map(|tenant| (tenant.row.tenant.id.to_string(), tenant.row.tenant.name));
    Ok(std::iter::once((String::new(), t!("None").to_owned()))
        .chain(tenants)
        .collect())
}

/// A role and what it may do.
pub fn role_text(role: Role) -> &'static str {
    match role {
        Role::Operator => t!("Operator: everything"),
        Role::Auditor => t!("Auditor: reads everything, changes nothing"),
        Role::Manager => t!("Manager: runs one tenant"),
        Role::Member => t!("Member: own keys and usage"),
    }
}

/// Shows a one-time link, once.
pub fn link() -> AnyView {
    page::behind_the_door(|visit| async move {
        visit.visitor()?;
        let link: Option<IssuedLink> = visit.secret().await?;
        let content = match link {
            Some(link) => {
                let url = format!(
                    "{}{}",
                    visit.state.public_address,
                    address("/invitation", &[("token", &link.token)])
                );
                let end = visit.format.minute(link.expires_at);
                view! {
                    {shell::page_head(
                        t!("A link for {name}", name = link.name),
                        t!("Send it to them in a way that only they can read. It is not shown again."),
                        ().into_any(),
                    )}
                    <section class="card">
                        <code class="secret" id="secret">{url}</code>
                        <div class="copy-row">
                            {copy::button("secret", t!("Copy the link"))}
                            <a class="button" href="/people">{t!("Done")}</a>
                        </div>
                        <p class="quiet">{t!("It works once, until {time}.", time = end)}</p>
                    </section>
                }
                .into_any()
            }
            None => view! {
                {shell::page_head(t!("This link was shown already"), "", ().into_any())}
                <section class="card">
                    <p>{t!("A link is shown once. If it is lost, make a new one from the list of people.")}</p>
                    <p class="actions"><a class="button" href="/people">{t!("Go to the people")}</a></p>
                </section>
            }
            .into_any(),
        };
        Ok(Page::new(t!("Link"), content))
    })
}

/// A link on its way to the one page that shows it.
#[derive(Serialize, Deserialize)]
struct IssuedLink {
    name: String,
    token: String,
    expires_at: DateTime<Utc>,
}

async fn show_link(visit: &Visit, invitation: Invitation) -> Result<Done, Refused> {
    let link = IssuedLink {
        name: invitation.person.name,
        token: invitation.token.reveal().to_owned(),
        expires_at: invitation.expires_at,
    };
    session::keep_secret(&visit.session, link, visit.now()).await?;
    Ok(Done::go("/people/link"))
}

/// What the invitation's form sends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PersonForm {
    name: String,
    email: String,
    role: String,
    tenant_id: String,
}

/// Adds somebody and leads to the page that shows their link.
#[server(prefix = "/console", endpoint = "people/invite")]
pub async fn invite_person(#[server(flatten)] form: PersonForm) -> Result<(), ServerFnError> {
    submit(
        InvitePerson::PATH,
        "/people/new",
        form,
        |visit: Visit, form: PersonForm| async move {
            let visitor = visit.visitor()?;
            let mut fields = Fields::default();
            let role: Option<Role> = fields.word("role", &form.role);
            let tenant_id = match visitor.tenant_id {
                Some(own) => Some(own),
                None => fields.word("tenant_id", &form.tenant_id),
            };
            fields.check()?;
            let draft = PersonDraft {
                name: form.name,
                email: form.email,
                role: role.unwrap_or(Role::Member),
                tenant_id,
            };
            let invitation = visit
                .state
                .control
                .invite_person(&visitor.actor, &draft, visit.now())
                .await?;
            show_link(&visit, invitation).await
        },
    )
    .await
}

//! One person: what they may do and whose they are, what hangs on them, where they are signed in, and how all that ends.

use control::audit::AuditSubject;
use control::fields::Fields;
use control::people::{Issued, Kept, PersonDraft, PersonEdit, PersonView};
use control::rows::{KeyRow, ManagementTokenRow};
use control::sessions::SessionRow;
use domain::ids::{PersonId, SessionId};
use domain::key_text;
use domain::limits::{Scope, Target};
use domain::management_tokens;
use domain::people::Role;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use super::{email_field, name_field, role_choices, role_text, show_link, state, tenant_choices, tenant_field};
use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::format::Format;
use crate::page::{self, Page, id_of_path};
use crate::pages::{account, audit, limits, sessions};
use crate::session;
use crate::shell;
use crate::submit::{Done, Refused, parsed_id, press, submit};
use crate::table::{self, facts, words};
use crate::visit::{Visit, Visitor};

/// Somebody's page.
pub fn address_of(id: PersonId) -> String {
    format!("/people/{id}")
}

/// Somebody, for those who see everything and for managers of their tenant.
pub fn view() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let id: PersonId = id_of_path(&visit, "/people/")?;
        let view = visit.state.control.person_view(&visitor.actor, id, visit.now()).await?;
        let person = &view.row;
        let is_self = visitor.actor.person_id() == Some(id);
        let may_change = visitor.is_operator() || (visitor.is_manager() && !is_self);
        let actions = actions(&view, visitor, is_self);
        let editor = if may_change {
            Some(editor(&visit, visitor, &view).await?)
        } else {
            None
        };
        let access = (may_change && !is_self).then(|| access(&view));
        let content = view! {
            {shell::page_head(person.name.clone(), "", actions)}
            <section class="card">{about(&view, &visit.format)}</section>
            {editor}
            <section class="card">
                <h2>{t!("Keys")}</h2>
                {keys(&view.keys, t!("No keys of their own."), &visit.format)}
            </section>
            {issued(&view.issued, &visit.format)}
            <section class="card">
                <h2>{t!("Sessions")}</h2>
                {sessions::table_of(&view.sessions, &visit, |session, _| may_change.then(|| ending(id, session)))}
                {(may_change && !view.sessions.is_empty()).then(|| ending_all(id))}
            </section>
            {access}
        };
        Ok(Page::new(person.name.clone(), content.into_any()))
    })
}

fn actions(view: &PersonView, visitor: &Visitor, is_self: bool) -> AnyView {
    let limits = view.row.tenant_id.map(|tenant| {
        let user = Target::Node(Scope::User(tenant, view.row.id.to_string().into()));
        view! { <a class="button" href=limits::address_of(&user)>{t!("Limits")}</a> }
    });
    let account = is_self.then(|| view! { <a class="button" href=account::PATH>{t!("Your account")}</a> });
    let history = audit::history(visitor, &AuditSubject::Person(view.row.id));
    view! { {limits} {account} {history} }.into_any()
}

fn about(view: &PersonView, format: &Format) -> AnyView {
    let person = &view.row;
    let never = || t!("never", in "so far").to_owned();
    let mut rows = vec![
        (t!("E-mail address"), person.email.clone().into_any()),
        (t!("Role"), role_text(person.role).into_any()),
        (
            t!("Tenant"),
            person
                .tenant_name
                .clone()
                .unwrap_or_else(|| t!("none: sees all tenants").to_owned())
                .into_any(),
        ),
        (t!("State"), state(person)),
        (t!("Invited"), format.minute(person.created_at).into_any()),
        (
            t!("Last sign-in"),
            person
                .signed_in_at
                .map_or_else(never, |at| format.minute(at))
                .into_any(),
        ),
    ];
    if let Some(at) = person.disabled_at {
        rows.push((t!("Closed", in "a person"), format.minute(at).into_any()));
    }
    facts(rows)
}

async fn editor(visit: &Visit, visitor: &Visitor, view: &PersonView) -> Result<AnyView, PageError> {
    let person = &view.row;
    let form = Filled::new(visit.draft.clone(), EditPerson::PATH, || EditForm {
        name: person.name.clone(),
        email: person.email.clone(),
        role: person.role.as_str().to_owned(),
        tenant_id: person.tenant_id.map(|id| id.to_string()).unwrap_or_default(),
        ..EditForm::default()
    });
    let values = &form.values;
    let stored = person.version.to_string();
    let version = form.version(&values.version, &stored).to_owned();
    let fixed = |field: Field| if visitor.is_operator() { field } else { field.fixed() };
    let tenants = if visitor.is_operator() {
        form.select(tenant_field(), &values.tenant_id, tenant_choices(visit, visitor).await?)
    } else {
        ().into_any()
    };
    let owned = view.keys.len();
    let revokes = (visitor.is_operator() && owned > 0).then(|| {
        let label = tn!(
            owned as u64,
            "Revoke their {n} key for good",
            "Revoke their {n} keys for good"
        );
        view! {
            // So many they were told of.
            <input type="hidden" name="keys_shown" value=owned />
            {form.check(
                Field::new("revokes_keys", label)
                    .hint(t!("Keys stay with their tenant: whoever leaves it loses them.")),
                values.revokes_keys == "on",
            )}
        }
    });
    let keeps = keeps(
        &form,
        &view.issued,
        values.kept(),
        Some(t!("when they may not issue such any more")),
    );
    Ok(view! {
        <section class="card">
            <h2>{t!("Change", in "verb")}</h2>
            {form.summary()}
            <form class="form" method="post" action=EditPerson::PATH>
                <input type="hidden" name="id" value=person.id.to_string() />
                <input type="hidden" name="version" value=version />
                {form.text(fixed(name_field()), &values.name)}
                {form.text(fixed(email_field()), &values.email)}
                {form.select(
                    Field::new("role", t!("Role")).hint(t!("Another role or tenant ends their sessions.")),
                    &values.role,
                    role_choices(visitor),
                )}
                {tenants}
                {revokes}
                {keeps}
                <div class="actions">
                    <button class="button button-primary" type="submit">{t!("Save")}</button>
                </div>
            </form>
        </section>
    }
    .into_any())
}

/// What of somebody's issuing may be kept. Two forms of one page ask for it, and only one of them may have the hint: its id is
/// the field's.
fn keeps<F>(form: &Filled<F>, issued: &Issued, kept: Kept, hint: Option<&str>) -> AnyView {
    let field = |name, label| match hint {
        Some(hint) => Field::new(name, label).hint(hint),
        None => Field::new(name, label),
    };
    let service_keys = (!issued.service_keys.is_empty()).then(|| {
        let label = tn!(
            issued.service_keys.len() as u64,
            "Keep the {n} service account's key that they issued",
            "Keep the {n} service accounts' keys that they issued",
        );
        form.check(field("keeps_service_keys", label), kept.service_keys)
    });
    let tokens = (!issued.management_tokens.is_empty()).then(|| {
        let label = tn!(
            issued.management_tokens.len() as u64,
            "Keep the {n} management token that they issued",
            "Keep the {n} management tokens that they issued",
        );
        form.check(field("keeps_management_tokens", label), kept.management_tokens)
    });
    view! { {service_keys} {tokens} }.into_any()
}

fn keys(keys: &[KeyRow], none: &'static str, format: &Format) -> AnyView {
    if keys.is_empty() {
        return table::empty(none, ().into_any());
    }
    let rows = keys.iter().map(|key| {
        let expires = key
            .expires_at
            .map_or_else(|| t!("never", in "expiry").to_owned(), |at| format.bare_minute(at));
        view! {
            <tr>
                <th scope="row"><a href=format!("/keys/{}", key.id)>{key.name.clone()}</a></th>
                <td class="nowrap"><code>{key_text::masked(&key.public_id)}</code></td>
                <td>{key.tenant_name.clone()}</td>
                <td class="nowrap">{expires}</td>
            </tr>
        }
        .into_any()
    });
    table::table(
        t!(
            "Those that are not revoked; times in {zone} time.",
            zone = format.zone()
        ),
        &[
            words(t!("Name")),
            words(t!("Key")),
            words(t!("Tenant")),
            words(t!("Expires")),
        ],
        rows.collect(),
    )
}

/// What they issued that goes on without them; nothing, where there is none.
fn issued(issued: &Issued, format: &Format) -> AnyView {
    let service_keys = (!issued.service_keys.is_empty()).then(|| {
        view! {
            <section class="card">
                <h2>{t!("Service accounts' keys that they issued")}</h2>
                {keys(&issued.service_keys, "", format)}
            </section>
        }
    });
    let tokens = (!issued.management_tokens.is_empty()).then(|| {
        let rows = issued.management_tokens.iter().map(|token| token_row(token, format));
        view! {
            <section class="card">
                <h2>{t!("Management tokens that they issued")}</h2>
                {table::table(
                    t!("Those that work; times in {zone} time.", zone = format.zone()),
                    &[
                        words(t!("Name")),
                        words(t!("Token", in "management token")),
                        words(t!("Tenant")),
                        words(t!("Expires")),
                        words(t!("Last used")),
                    ],
                    rows.collect(),
                )}
            </section>
        }
    });
    view! { {service_keys} {tokens} }.into_any()
}

fn token_row(token: &ManagementTokenRow, format: &Format) -> AnyView {
    let used = token
        .last_used_at
        .map_or_else(|| t!("never", in "so far").to_owned(), |at| format.bare_minute(at));
    view! {
        <tr>
            <th scope="row">{token.name.clone()}</th>
            <td class="nowrap"><code>{management_tokens::masked(&token.public_id)}</code></td>
            <td>{token.tenant_name.clone().unwrap_or_else(|| t!("all", in "tenants").to_owned())}</td>
            <td class="nowrap">{format.bare_minute(token.expires_at)}</td>
            <td class="nowrap">{used}</td>
        </tr>
    }
    .into_any()
}

fn ending(id: PersonId, session: &SessionRow) -> AnyView {
    let described = t!("End: {session}", session = sessions::name_of(session));
    view! {
        <form method="post" action=EndSession::PATH>
            <input type="hidden" name="person" value=id.to_string() />
            <input type="hidden" name="id" value=session.id.to_string() />
            <button class="button" type="submit" aria-label=described>{t!("End", in "a session")}</button>
        </form>
    }
    .into_any()
}

fn ending_all(id: PersonId) -> AnyView {
    view! {
        <form method="post" action=EndSessions::PATH>
            <input type="hidden" name="person" value=id.to_string() />
            <div class="actions">
                <button class="button" type="submit">{t!("End all of them")}</button>
            </div>
        </form>
    }
    .into_any()
}

/// How they get in, and how they are shut out.
fn access(view: &PersonView) -> AnyView {
    let person = &view.row;
    let (id, version) = (person.id.to_string(), person.version.to_string());
    let hidden = || {
        view! {
            <input type="hidden" name="id" value=id.clone() />
            <input type="hidden" name="version" value=version.clone() />
        }
    };
    if person.disabled_at.is_some() {
        return view! {
            <section class="card">
                <h2>{t!("Open the account")}</h2>
                <p>{t!("They can sign in again. What was revoked stays revoked.")}</p>
                <form class="form" method="post" action=EnablePerson::PATH>
                    {hidden()}
                    <div class="actions">
                        <button class="button" type="submit">{t!("Open the account")}</button>
                    </div>
                </form>
            </section>
        }
        .into_any();
    }
    let link = if person.has_password {
        t!("They lost their password? Whoever has the link chooses another one.")
    } else {
        t!("They lost their invitation? The link before ends.")
    };
    let form = Filled::blank(());
    view! {
        <section class="card">
            <h2>{t!("A new link")}</h2>
            <p>{link}</p>
            <form class="form" method="post" action=CreatePersonLink::PATH>
                <input type="hidden" name="id" value=id.clone() />
                <div class="actions"><button class="button" type="submit">{t!("Make a link")}</button></div>
            </form>
        </section>
        <section class="card">
            <h2>{t!("Close the account")}</h2>
            {closing(view)}
            <form class="form" method="post" action=DisablePerson::PATH>
                {hidden()}
                {keeps(&form, &view.issued, Kept::default(), None)}
                <div class="actions">
                    <button class="button button-danger" type="submit">{t!("Close the account")}</button>
                </div>
            </form>
        </section>
    }
    .into_any()
}

/// What happens when somebody is shut out.
fn closing(view: &PersonView) -> AnyView {
    let sessions = match view.sessions.len() as u64 {
        0 => t!("They cannot sign in any more, and links that they were sent end.").to_owned(),
        sessions => tn!(
            sessions,
            "They cannot sign in any more: {n} session ends, and so do links that they were sent.",
            "They cannot sign in any more: {n} sessions end, and so do links that they were sent."
        ),
    };
    let keys = tn!(
        view.keys.len() as u64,
        "Their {n} key is revoked for good.",
        "Their {n} keys are revoked for good."
    );
    let issued = &view.issued;
    let service_keys = tn!(
        issued.service_keys.len() as u64,
        "{n} service account's key that they issued is revoked for good, unless the tick below keeps it.",
        "{n} service accounts' keys that they issued are revoked for good, unless the tick below keeps them."
    );
    let tokens = issued.management_token_count as u64;
    let tokens = if issued.management_tokens.is_empty() {
        tn!(
            tokens,
            "{n} management token that they issued is revoked for good; only an operator who closes the account could \
             keep it.",
            "{n} management tokens that they issued are revoked for good; only an operator who closes the account could \
             keep them."
        )
    } else {
        tn!(
            tokens,
            "{n} management token that they issued is revoked for good, unless the tick below keeps it.",
            "{n} management tokens that they issued are revoked for good, unless the tick below keeps them."
        )
    };
    let told = [
        Some(sessions),
        (!view.keys.is_empty()).then_some(keys),
        (!issued.service_keys.is_empty()).then_some(service_keys),
        (issued.management_token_count > 0).then_some(tokens),
        Some(t!("What they did stays in the ledger and in the audit log.").to_owned()),
        Some(t!("The account can be opened again; what was revoked stays revoked.").to_owned()),
    ];
    table::consequences(told.into_iter().flatten().map(IntoAny::into_any).collect())
}

/// What the form that changes somebody sends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EditForm {
    id: String,
    version: String,
    name: String,
    email: String,
    role: String,
    tenant_id: String,
    revokes_keys: String,
    keys_shown: String,
    keeps_service_keys: String,
    keeps_management_tokens: String,
}

impl EditForm {
    fn kept(&self) -> Kept {
        kept(&self.keeps_service_keys, &self.keeps_management_tokens)
    }
}

fn kept(service_keys: &str, management_tokens: &str) -> Kept {
    Kept {
        service_keys: service_keys == "on",
        management_tokens: management_tokens == "on",
    }
}

/// Changes somebody.
#[server(prefix = "/console", endpoint = "people/edit")]
pub async fn edit_person(#[server(flatten)] form: EditForm) -> Result<(), ServerFnError> {
    let back = format!("/people/{}", form.id);
    submit(
        EditPerson::PATH,
        &back,
        form,
        |visit: Visit, form: EditForm| async move {
            let (id, version) = (parsed_id(&form.id)?, parsed_id(&form.version)?);
            let visitor = visit.visitor()?;
            let mut fields = Fields::default();
            let role: Option<Role> = fields.word("role", &form.role);
            // Only an operator's form has the field.
            let tenant_id = match visitor.tenant_id {
                Some(own) => Some(own),
                None => fields.word("tenant_id", &form.tenant_id),
            };
            fields.check()?;
            let revokes_keys = (form.revokes_keys == "on").then(|| form.keys_shown.parse().ok());
            let edit = PersonEdit {
                kept: form.kept(),
                revokes_keys: revokes_keys.flatten(),
                person: PersonDraft {
                    name: form.name,
                    email: form.email,
                    role: role.unwrap_or(Role::Member),
                    tenant_id,
                },
            };
            let control = &visit.state.control;
            control
                .edit_person(&visitor.actor, id, version, &edit, visit.now())
                .await?;
            Ok::<_, Refused>(Done::say(address_of(id), t!("Saved.")))
        },
    )
    .await
}

/// Makes another link for somebody who lost theirs, or their password.
#[server(prefix = "/console", endpoint = "people/link")]
pub async fn create_person_link(#[server(default)] id: String) -> Result<(), ServerFnError> {
    let back = format!("/people/{id}");
    press(&back, |visit: Visit| async move {
        let id: PersonId = parsed_id(&id)?;
        let control = &visit.state.control;
        let invitation = control.create_password_link(visit.actor()?, id, visit.now()).await?;
        show_link(&visit, invitation).await
    })
    .await
}

/// Shuts somebody out.
#[server(prefix = "/console", endpoint = "people/disable")]
pub async fn disable_person(
    #[server(default)] id: String,
    #[server(default)] version: String,
    #[server(default)] keeps_service_keys: String,
    #[server(default)] keeps_management_tokens: String,
) -> Result<(), ServerFnError> {
    let back = format!("/people/{id}");
    press(&back, |visit: Visit| async move {
        let (id, version) = (parsed_id(&id)?, parsed_id(&version)?);
        let kept = kept(&keeps_service_keys, &keeps_management_tokens);
        let control = &visit.state.control;
        control
            .disable_person(visit.actor()?, id, version, kept, visit.now())
            .await?;
        Ok::<_, Refused>(Done::say(
            address_of(id),
            t!("The account is closed: its sessions have ended and its keys are revoked."),
        ))
    })
    .await
}

/// Lets somebody in again.
#[server(prefix = "/console", endpoint = "people/enable")]
pub async fn enable_person(
    #[server(default)] id: String,
    #[server(default)] version: String,
) -> Result<(), ServerFnError> {
    let back = format!("/people/{id}");
    press(&back, |visit: Visit| async move {
        let (id, version) = (parsed_id(&id)?, parsed_id(&version)?);
        let control = &visit.state.control;
        control.enable_person(visit.actor()?, id, version, visit.now()).await?;
        Ok::<_, Refused>(Done::say(
            address_of(id),
            t!("The account is open again. What was revoked stays revoked."),
        ))
    })
    .await
}

/// Ends one session of somebody.
#[server(prefix = "/console", endpoint = "people/end-session")]
pub async fn end_session(
    #[server(default)] person: String,
    #[server(default)] id: String,
) -> Result<(), ServerFnError> {
    let back = format!("/people/{person}");
    press(&back, |visit: Visit| async move {
        let (person, id): (PersonId, SessionId) = (parsed_id(&person)?, parsed_id(&id)?);
        let visitor = visit.visitor()?;
        let control = &visit.state.control;
        control.end_session(&visitor.actor, person, id, visit.now()).await?;
        if id == visitor.session_id {
            session::end(&visit.session).await?;
            return Ok(Done::go("/sign-in"));
        }
        Ok::<_, Refused>(Done::say(address_of(person), t!("The session has ended.")))
    })
    .await
}

/// Ends every session of somebody.
#[server(prefix = "/console", endpoint = "people/end-sessions")]
pub async fn end_sessions(#[server(default)] person: String) -> Result<(), ServerFnError> {
    let back = format!("/people/{person}");
    press(&back, |visit: Visit| async move {
        let person: PersonId = parsed_id(&person)?;
        let visitor = visit.visitor()?;
        let control = &visit.state.control;
        let count = control.end_sessions(&visitor.actor, person, visit.now()).await?;
        if visitor.actor.person_id() == Some(person) {
            session::end(&visit.session).await?;
            return Ok(Done::go("/sign-in"));
        }
        let ended = tn!(count, "{n} session has ended.", "{n} sessions have ended.");
        Ok::<_, Refused>(Done::say(address_of(person), ended))
    })
    .await
}

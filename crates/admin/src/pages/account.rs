//! One's own account: who one is here, the password, and where one is signed in.

use control::rows::Person;
use control::sessions::SessionRow;
use control::sign_in::SignInError;
use domain::ids::SessionId;
use domain::language::Language;
use domain::text;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use crate::error::PageError;
use crate::form::{Field, Filled, Secret};
use crate::language;
use crate::page::{self, Page};
use crate::pages::{people, sessions, sign_in};
use crate::session;
use crate::shell;
use crate::submit::{Done, Refused, parsed_id, press, submit};
use crate::table::facts;
use crate::visit::Visit;

/// Where it is.
pub const PATH: &str = "/account";

/// The account of whoever is signed in.
pub fn view() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let control = &visit.state.control;
        let id = visitor.actor.person_id().ok_or(PageError::Forbidden)?;
        let person = control.person(&visitor.actor, id).await?;
        let listed = control.sessions_of(&visitor.actor, id, visit.now()).await?;
        let form = Filled::new(visit.draft.clone(), ChangePassword::PATH, PasswordForm::default);
        let content = view! {
            {shell::page_head(t!("Your account"), t!("Only you see this page."), ().into_any())}
            <section class="card">{about(&person, &visit)}</section>
            {language_card(&person, &visit)}
            <section class="card">
                <h2>{t!("Password")}</h2>
                {form.summary()}
                <form class="form" method="post" action=ChangePassword::PATH>
                    // For password managers; not sent.
                    <input type="text" autocomplete="username" value=person.email.clone() hidden readonly />
                    {form.text(
                        Field::new("current_password", t!("Present password")).password("current-password").required(),
                        "",
                    )}
                    {form.text(
                        Field::new("password", t!("New password"))
                            .password("new-password")
                            .required()
                            .hint(t!(
                                "At least 12 characters; a sentence is easy to remember. You are signed out everywhere \
                                 else."
                            )),
                        "",
                    )}
                    <div class="actions">
                        <button class="button button-primary" type="submit">{t!("Change the password")}</button>
                    </div>
                </form>
            </section>
            <section class="card">
                <h2>{t!("Where you are signed in")}</h2>
                {sessions::table_of(&listed, &visit, |session, is_current| Some(ending(session, is_current)))}
                <form method="post" action=SignOutEverywhere::PATH>
                    <div class="actions">
                        <button class="button button-danger" type="submit">{t!("Sign out everywhere")}</button>
                    </div>
                </form>
            </section>
        };
        Ok(Page::new(t!("Your account"), content.into_any()))
    })
}

fn about(person: &Person, visit: &Visit) -> AnyView {
    let mut rows = vec![
        (t!("Name", in "a person"), person.name.clone().into_any()),
        (t!("E-mail address"), person.email.clone().into_any()),
        (t!("Role"), people::role_text(person.role).into_any()),
    ];
    if let Some(tenant) = &person.tenant_name {
        rows.push((t!("Tenant"), tenant.clone().into_any()));
    }
    if let Some(at) = person.signed_in_at {
        rows.push((t!("Last sign-in"), visit.format.minute(at).into_any()));
    }
    facts(rows)
}

fn ending(session: &SessionRow, is_current: bool) -> AnyView {
    let session_name = sessions::name_of(session);
    let (label, described) = if is_current {
        (t!("Sign out"), t!("Sign out: {session}", session = session_name))
    } else {
        (t!("End", in "a session"), t!("End: {session}", session = session_name))
    };
    view! {
        <form method="post" action=EndOwnSession::PATH>
            <input type="hidden" name="id" value=session.id.to_string() />
            <button class="button" type="submit" aria-label=described>{label}</button>
        </form>
    }
    .into_any()
}

/// The choice of the language; each is called what its speakers call it.
fn language_card(person: &Person, visit: &Visit) -> AnyView {
    let form = Filled::new(visit.draft.clone(), ChooseLanguage::PATH, || LanguageForm {
        language: person.language.map_or("", Language::as_str).to_owned(),
    });
    let options = std::iter::once((String::new(), t!("As your browser asks").to_owned()))
        .chain(Language::ALL.map(|language| (language.as_str().to_owned(), language.own_name().to_owned())))
        .collect();
    view! {
        <section class="card">
            <h2>{t!("Language (语言)")}</h2>
            {form.summary()}
            <form class="form" method="post" action=ChooseLanguage::PATH>
                {form.select(Field::new("language", t!("Language")), &form.values.language, options)}
                <div class="actions">
                    <button class="button" type="submit">{t!("Save the language")}</button>
                </div>
            </form>
        </section>
    }
    .into_any()
}

/// What the form of the language sends; empty is the one that the browser asks for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LanguageForm {
    language: String,
}

/// Chooses the language of one's own console.
#[server(prefix = "/console", endpoint = "account/language")]
pub async fn choose_language(#[server(flatten)] form: LanguageForm) -> Result<(), ServerFnError> {
    submit(
        ChooseLanguage::PATH,
        PATH,
        form,
        |visit: Visit, form: LanguageForm| async move {
            let chosen = match form.language.as_str() {
                "" => None,
                tag => {
                    let language = tag.parse::<Language>();
                    Some(language.map_err(|_| Refused::field("language", text!("choose a language from the list")))?)
                }
            };
            let visitor = visit.visitor()?;
            visit
                .state
                .control
                .choose_language(&visitor.actor, chosen, visit.now())
                .await?;
            // In the language that was chosen, and not in the one before.
            let said = language::sync_scope(chosen.unwrap_or(visit.arrival.language), || t!("Your language is set."));
            Ok::<_, Refused>(Done::say(PATH, said))
        },
    )
    .await
}

/// What the password's form sends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PasswordForm {
    current_password: Secret,
    password: Secret,
}

/// Replaces one's own password; every other session of one's own ends.
#[server(prefix = "/console", endpoint = "account/password")]
pub async fn change_password(#[server(flatten)] form: PasswordForm) -> Result<(), ServerFnError> {
    submit(
        ChangePassword::PATH,
        PATH,
        form,
        |visit: Visit, form: PasswordForm| async move {
            let visitor = visit.visitor()?;
            let changed = visit
                .state
                .control
                .change_password(
                    &visitor.actor,
                    form.current_password.reveal(),
                    form.password.reveal(),
                    visitor.session_id,
                    visit.now(),
                )
                .await;
            let ended = changed.map_err(|error| match error {
                SignInError::Control(error) => error.into(),
                SignInError::Refused => Refused::field("current_password", text!("this is not your present password")),
                SignInError::Throttled { .. } => Refused::Form(sign_in::told(&error)),
            })?;
            session::renew(&visit.session).await?;
            let told = match ended {
                0 => t!("Your password is changed.").to_owned(),
                count => tn!(
                    count,
                    "Your password is changed. {n} other session has ended.",
                    "Your password is changed. {n} other sessions have ended.",
                ),
            };
            Ok::<_, Refused>(Done::say(PATH, told))
        },
    )
    .await
}

/// Ends one of one's own sessions; this one is a sign-out.
#[server(prefix = "/console", endpoint = "account/end-session")]
pub async fn end_own_session(#[server(default)] id: String) -> Result<(), ServerFnError> {
    press(PATH, |visit: Visit| async move {
        let id: SessionId = parsed_id(&id)?;
        let visitor = visit.visitor()?;
        let person = visitor.actor.person_id().ok_or(PageError::Forbidden)?;
        let control = &visit.state.control;
        control.end_session(&visitor.actor, person, id, visit.now()).await?;
        if id == visitor.session_id {
            session::end(&visit.session).await?;
            return Ok(Done::go("/sign-in"));
        }
        Ok::<_, Refused>(Done::say(PATH, t!("The session has ended.")))
    })
    .await
}

/// Ends all of one's own sessions, this one too.
#[server(prefix = "/console", endpoint = "account/end-sessions")]
pub async fn sign_out_everywhere() -> Result<(), ServerFnError> {
    press(PATH, |visit: Visit| async move {
        let visitor = visit.visitor()?;
        let person = visitor.actor.person_id().ok_or(PageError::Forbidden)?;
        let control = &visit.state.control;
        control.end_sessions(&visitor.actor, person, visit.now()).await?;
        session::end(&visit.session).await?;
        Ok::<_, Refused>(Done::go("/sign-in"))
    })
    .await
}

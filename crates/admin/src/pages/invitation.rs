//! An invitation or a password reset: whoever holds the one-time link chooses a password.

use control::ControlError;
use control::people::LinkInfo;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use crate::form::{Field, Filled, Secret};
use crate::language;
use crate::page::{self, Page};
use crate::session;
use crate::submit::{Done, Refused, submit};
use crate::visit::{Visit, address};

/// The form behind the link.
pub fn view() -> AnyView {
    page::at_the_door(|visit| async move {
        let token = visit.query("token").unwrap_or_default();
        let person = match visit.state.control.find_link(&token, visit.now()).await {
            Ok(LinkInfo {
                person: Some(person), ..
            }) => person,
            Ok(LinkInfo { person: None, .. }) | Err(ControlError::LinkEnded) => return Ok(ended()),
            Err(error) => return Err(error.into()),
        };
        let form = Filled::new(visit.draft.clone(), AcceptInvitation::PATH, InvitationForm::default);
        let content = view! {
            <section class="card">
                <h1>{t!("Choose your password")}</h1>
                <p class="quiet">
                    {t!(
                        "For {name}, who signs in as {email}. The link works once.",
                        name = person.name,
                        email = person.email,
                    )}
                </p>
                {form.summary()}
                <form class="form" method="post" action=AcceptInvitation::PATH>
                    <input type="hidden" name="token" value=token />
                    // For password managers; not sent.
                    <input type="text" autocomplete="username" value=person.email.clone() hidden readonly />
                    {form.text(
                        Field::new("password", t!("Password"))
                            .password("new-password")
                            .required()
                            .hint(t!("At least 12 characters; a sentence is easy to remember.")),
                        "",
                    )}
                    <button class="button button-primary" type="submit">
                        {t!("Save and sign in")}
                    </button>
                </form>
            </section>
        };
        Ok(Page::new(t!("Choose your password"), content.into_any()))
    })
}

fn ended() -> Page {
    let content = view! {
        <section class="card">
            <h1>{t!("This link has ended")}</h1>
            <p>
                {t!("It was used, is too old, or was replaced by a newer one. Whoever invited you can make another one.")}
            </p>
            <p class="actions">
                <a class="button" href="/sign-in">
                    {t!("Go to the sign-in")}
                </a>
            </p>
        </section>
    };
    Page::new(t!("Link ended"), content.into_any())
}

/// What the form sends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct InvitationForm {
    token: Secret,
    password: Secret,
}

/// Sets the password and signs the person in.
#[server(prefix = "/console", endpoint = "invitation")]
pub async fn accept_invitation(#[server(flatten)] form: InvitationForm) -> Result<(), ServerFnError> {
    let back = address("/invitation", &[("token", form.token.reveal())]);
    submit(
        AcceptInvitation::PATH,
        &back,
        form,
        |visit: Visit, form: InvitationForm| async move {
            let now = visit.now();
            let person = visit
                .state
                .control
                .accept_invitation(
                    form.token.reveal(),
                    form.password.reveal(),
                    visit.arrival.peer.clone(),
                    now,
                )
                .await?;
            session::begin(&visit, person.id).await?;
            let language = person.language.unwrap_or(visit.arrival.language);
            let said = language::sync_scope(language, || t!("Welcome. Your password is saved."));
            Ok::<_, Refused>(Done::say("/", said))
        },
    )
    .await
}

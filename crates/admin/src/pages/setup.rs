//! The first start: whoever holds the one-time link becomes the first operator.

use control::ControlError;
use control::rows::LinkPurpose;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use crate::form::{Field, Filled, Secret};
use crate::page::{self, Page};
use crate::session;
use crate::submit::{Done, Refused, submit};
use crate::visit::{Visit, address};

/// The set-up form.
pub fn view() -> AnyView {
    page::at_the_door(|visit| async move {
        let token = visit.query("token").unwrap_or_default();
        let link = visit.state.control.find_link(&token, visit.now()).await;
        match link {
            Ok(link) if link.purpose == LinkPurpose::Setup => {}
            Ok(_) | Err(ControlError::LinkEnded) => return Ok(ended()),
            Err(error) => return Err(error.into()),
        }
        let form = Filled::new(visit.draft.clone(), SetUp::PATH, SetUpForm::default);
        let values = &form.values;
        let content = view! {
            <section class="card">
                <h1>{t!("Set up Tollgate")}</h1>
                <p class="quiet">
                    {t!("You become the first operator. Operators manage tenants, keys, models and everybody else.")}
                </p>
                {form.summary()}
                <form class="form" method="post" action=SetUp::PATH>
                    <input type="hidden" name="token" value=token />
                    {form.text(Field::new("name", t!("Your name")).required().autocomplete("name"), &values.name)}
                    {form.text(
                        Field::new("email", t!("E-mail address")).email().required().autocomplete("username"),
                        &values.email,
                    )}
                    {form.text(
                        Field::new("password", t!("Password"))
                            .password("new-password")
                            .required()
                            .hint(t!("At least 12 characters; a sentence is easy to remember.")),
                        "",
                    )}
                    <button class="button button-primary" type="submit">
                        {t!("Create the operator")}
                    </button>
                </form>
            </section>
        };
        Ok(Page::new(t!("Set up"), content.into_any()))
    })
}

fn ended() -> Page {
    let content = view! {
        <section class="card">
            <h1>{t!("This link has ended")}</h1>
            <p>
                {t!(
                    "It was used, is too old, or was cut off when it was copied. The server writes a new one to its log each \
                     time it starts, until somebody is set up."
                )}
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

/// What the set-up sends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SetUpForm {
    token: Secret,
    name: String,
    email: String,
    password: Secret,
}

/// Makes the first operator and signs them in.
#[server(prefix = "/console", endpoint = "setup")]
pub async fn set_up(#[server(flatten)] form: SetUpForm) -> Result<(), ServerFnError> {
    let back = address("/setup", &[("token", form.token.reveal())]);
    submit(SetUp::PATH, &back, form, |visit: Visit, form: SetUpForm| async move {
        let now = visit.now();
        let person = visit
            .state
            .control
            .accept_setup(
                form.token.reveal(),
                &form.name,
                &form.email,
                form.password.reveal(),
                visit.arrival.peer.clone(),
                now,
            )
            .await?;
        session::begin(&visit, person.id).await?;
        Ok::<_, Refused>(Done::say(
            "/",
            t!("Welcome. Next: add an upstream, a model with its price, and a tenant."),
        ))
    })
    .await
}

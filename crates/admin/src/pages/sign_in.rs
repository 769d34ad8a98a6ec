//! Signing in and out.

use control::sign_in::SignInError;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use crate::form::{Field, Filled, Secret};
use crate::page::{self, Page};
use crate::session;
use crate::submit::{Done, Refused, submit};
use crate::visit::{Visit, address, local_address};

/// The sign-in.
pub fn view() -> AnyView {
    page::at_the_door(|visit| async move {
        let form = Filled::new(visit.draft.clone(), SignIn::PATH, || SignInForm {
            next: visit.query("next").unwrap_or_default(),
            ..SignInForm::default()
        });
        let needs_setup = visit.state.control.needs_setup().await?.then(|| {
            view! {
                <p class="notice notice-warning">
                    {t!(
                        "Nobody is set up yet. The first operator uses the one-time link that the server wrote to its log \
                         when it started."
                    )}
                </p>
            }
        });
        let ended = visit.query("ended").map(|_| {
            view! {
                <p class="notice notice-warning" role="status">
                    {t!("Your session had ended, so nothing was saved. Sign in and send the form again.")}
                </p>
            }
        });
        let content = view! {
            <section class="card">
                <h1>{t!("Sign in")}</h1>
                {needs_setup}
                {ended}
                {form.summary()}
                <form class="form" method="post" action=SignIn::PATH>
                    <input type="hidden" name="next" value=form.values.next.clone() />
                    {form.text(
                        Field::new("email", t!("E-mail address")).email().required().autocomplete("username"),
                        &form.values.email,
                    )}
                    {form.text(Field::new("password", t!("Password")).password("current-password").required(), "")}
                    <button class="button button-primary" type="submit">
                        {t!("Sign in")}
                    </button>
                </form>
                <p class="quiet">
                    {t!("No account, or the password is lost? Ask an operator for a new invitation link.")}
                </p>
            </section>
        };
        Ok(Page::new(t!("Sign in"), content.into_any()))
    })
}

/// What the sign-in sends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SignInForm {
    email: String,
    password: Secret,
    next: String,
}

/// Checks address and password, and starts a session.
#[server(prefix = "/console", endpoint = "sign-in")]
pub async fn sign_in(#[server(flatten)] form: SignInForm) -> Result<(), ServerFnError> {
    let back = address("/sign-in", &[("next", &form.next)]);
    submit(SignIn::PATH, &back, form, |visit: Visit, form: SignInForm| async move {
        let now = visit.now();
        let signed_in = visit
            .state
            .control
            .sign_in(&form.email, form.password.reveal(), visit.arrival.peer.clone(), now)
            .await;
        let person = signed_in.map_err(|error| match error {
            SignInError::Control(error) => error.into(),
            refused @ (SignInError::Refused | SignInError::Throttled { .. }) => Refused::Form(told(&refused)),
        })?;
        session::begin(&visit, person.id).await?;
        Ok::<_, Refused>(Done::go(local_address(Some(&form.next))))
    })
    .await
}

/// Ends the session.
#[server(prefix = "/console", endpoint = "sign-out")]
pub async fn sign_out() -> Result<(), ServerFnError> {
    submit(SignOut::PATH, "/sign-in", (), |visit: Visit, ()| async move {
        if let Some(visitor) = &visit.visitor {
            visit.state.control.sign_out(&visitor.actor, visit.now()).await?;
        }
        session::end(&visit.session).await?;
        Ok::<_, Refused>(Done::go("/sign-in"))
    })
    .await
}

/// Why nobody was let in.
pub fn told(error: &SignInError) -> String {
    match error {
        SignInError::Throttled { retry_after_seconds } => tn!(
            u64::try_from((retry_after_seconds + 59) / 60).unwrap_or(1),
            "Too many failed sign-ins. Try again in {n} minute.",
            "Too many failed sign-ins. Try again in {n} minutes.",
        ),
        _ => t!("The e-mail address or the password is wrong.").to_owned(),
    }
}

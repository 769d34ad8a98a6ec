//! Rotating a key: the page that says what will happen, and ending an overlap early.

use control::rows::KeyRow;
use domain::ids::KeyId;
use domain::key_rotation::Overlap;
use domain::key_text::masked;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::format::Format;
use crate::page::{self, Page, id_of_path};
use crate::pages::keys::{IssuedSecret, running_overlap};
use crate::session;
use crate::shell;
use crate::submit::{Done, Refused, parsed_id, press, submit};
use crate::visit::Visit;

/// Says what a rotation does, and asks for how long the old secret goes on working.
pub fn view() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let id: KeyId = id_of_path(&visit, "/keys/")?;
        let key = visit.state.control.key(&visitor.actor, id).await?;
        if !visitor.issues_keys() {
            return Err(PageError::Forbidden);
        }
        let form = Filled::new(visit.draft.clone(), RotateKey::PATH, || RotateForm {
            id: id.to_string(),
            version: key.version.to_string(),
            overlap: Overlap::default().seconds().to_string(),
        });
        let version = form.version(&form.values.version, &key.version.to_string()).to_owned();
        let choices = Overlap::OFFERED.into_iter();
        let (says, choices) = match running_overlap(&key, visit.now()) {
            Some(until) => (replaces(&key, until, &visit.format), {
                let until = visit.format.minute(until);
                choices
                    .filter(|overlap| matches!(*overlap, Overlap::AT_ONCE) || *overlap == Overlap::default())
                    .map(|overlap| match overlap {
                        Overlap::AT_ONCE => (overlap, t!("Ends now").to_owned()),
                        _ => (overlap, t!("Goes on until {until}, as before", until)),
                    })
                    .rev()
                    .collect::<Vec<_>>()
            }),
            None => (rotates(), {
                let now = visit.now();
                let end = |overlap: Overlap| visit.format.minute(overlap.end(now));
                choices
                    .map(|overlap| match overlap {
                        Overlap::AT_ONCE => (overlap, t!("Ends now").to_owned()),
                        _ => (overlap, works(overlap, &end(overlap))),
                    })
                    .collect()
            }),
        };
        let choices = choices
            .into_iter()
            .map(|(overlap, text)| (overlap.seconds().to_string(), text))
            .collect();
        let back = format!("/keys/{id}");
        let content = view! {
            {shell::page_head(t!("Rotate {name}?", name = key.name), "", ().into_any())}
            <section class="card">
                {form.summary()}
                <p>
                    {tv!(
                        "{key} gets a new secret, which is shown once. It stays the same key: its name, limits, counters, and \
                         what it has spent do not change.",
                        key = view! { <code>{masked(&key.public_id)}</code> },
                    )}
                </p>
                {says}
                <form class="form" method="post" action=RotateKey::PATH>
                    <input type="hidden" name="id" value=id.to_string() />
                    <input type="hidden" name="version" value=version />
                    {form.select(Field::new("overlap", t!("The old secret")), &form.values.overlap, choices)}
                    <div class="actions">
                        <button class="button button-primary" type="submit">{t!("Rotate key")}</button>
                        <a class="button" href=back>{t!("Leave it")}</a>
                    </div>
                </form>
            </section>
        };
        Ok(Page::new(t!("Rotate key"), content.into_any()))
    })
}

fn rotates() -> AnyView {
    view! {
        <p>
            {tv!(
                "Programs go on with the old secret until it ends. Answers to it say when, in the header {header}. If somebody \
                 else may know the old secret, end it now.",
                header = view! { <code>"X-Tollgate-Key-Expires"</code> },
            )}
        </p>
    }
    .into_any()
}

fn replaces(key: &KeyRow, until: chrono::DateTime<chrono::Utc>, format: &Format) -> AnyView {
    let rotated = key.rotated_at.map(|at| format.minute(at)).unwrap_or_default();
    let says = t!(
        "This key was rotated at {rotated}, and the secret before that works until {until}. Rotating again replaces the secret \
         of {rotated}, which stops working within a second: do so if nobody has it, because it was lost before it was copied.",
        rotated,
        until = format.minute(until)
    );
    view! { <p>{says}</p> }.into_any()
}

fn works(overlap: Overlap, until: &str) -> String {
    match overlap.seconds() / 3_600 {
        hours @ 0..=24 => tn!(
            hours,
            "Works for {n} hour: until {until}",
            "Works for {n} hours: until {until}",
            until
        ),
        hours => tn!(
            hours / 24,
            "Works for {n} day: until {until}",
            "Works for {n} days: until {until}",
            until
        ),
    }
}

/// The button that ends an overlap early.
pub fn end_overlap_form(key: &KeyRow) -> AnyView {
    view! {
        <form method="post" action=EndOverlap::PATH>
            <input type="hidden" name="id" value=key.id.to_string() />
            <input type="hidden" name="version" value=key.version.to_string() />
            <button class="button button-danger" type="submit">{t!("End the old secret now")}</button>
        </form>
    }
    .into_any()
}

/// What the form sends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RotateForm {
    id: String,
    version: String,
    /// In seconds.
    overlap: String,
}

/// Rotates a key and leads to the page that shows its secret.
#[server(prefix = "/console", endpoint = "keys/rotate")]
pub async fn rotate_key(#[server(flatten)] form: RotateForm) -> Result<(), ServerFnError> {
    let back = format!("/keys/{}/rotate", form.id);
    submit(
        RotateKey::PATH,
        &back,
        form,
        |visit: Visit, form: RotateForm| async move {
            let (id, version) = (parsed_id(&form.id)?, parsed_id(&form.version)?);
            let seconds = form.overlap.parse().unwrap_or(u64::MAX);
            let overlap = Overlap::of_seconds(seconds).map_err(|error| Refused::field("overlap", error.text()))?;
            let now = visit.now();
            let control = &visit.state.control;
            let issued = control.rotate_key(visit.actor()?, id, version, overlap, now).await?;
            let secret = IssuedSecret {
                id: issued.row.id,
                text: issued.text.reveal().to_owned(),
            };
            session::keep_secret(&visit.session, secret, now).await?;
            Ok::<_, Refused>(Done::go("/keys/issued"))
        },
    )
    .await
}

/// Ends the overlap of a rotation.
#[server(prefix = "/console", endpoint = "keys/end-overlap")]
pub async fn end_overlap(
    #[server(default)] id: String,
    #[server(default)] version: String,
) -> Result<(), ServerFnError> {
    let back = format!("/keys/{id}");
    press(&back, |visit: Visit| async move {
        let (id, version): (KeyId, i64) = (parsed_id(&id)?, parsed_id(&version)?);
        let control = &visit.state.control;
        control.end_overlap(visit.actor()?, id, version, visit.now()).await?;
        Ok::<_, Refused>(Done::say(format!("/keys/{id}"), t!("The old secret has ended.")))
    })
    .await
}

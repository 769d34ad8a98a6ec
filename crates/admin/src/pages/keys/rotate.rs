//! Rotating a key: the page that says what will happen, and ending an overlap early.

use chrono::{DateTime, Utc};
use control::ControlError;
use control::fields::Fields;
use control::keys::{Expiry, RotationChoices, RotationDraft};
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
use crate::language;
use crate::page::{self, Page, id_of_path};
use crate::pages::keys::{IssuedSecret, expiry_fields, expiry_of, lifetime, running_overlap};
use crate::session;
use crate::shell;
use crate::submit::{Done, Refused, parsed_id, press, submit};
use crate::terms;
use crate::visit::Visit;
use terms::priority;

/// What the expiry's choice says for a key that shall not end. Empty it leaves the end as it is.
const EXPIRY_NEVER: &str = "never";

/// Says what a rotation does, and asks for how long the old secret goes on working and when the key ends.
pub fn view() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let id: KeyId = id_of_path(&visit, "/keys/")?;
        let control = &visit.state.control;
        let key = control.key(&visitor.actor, id).await?;
        if !visitor.issues_keys() {
            return Err(PageError::Forbidden);
        }
        let body = if key.revoked_at.is_some() {
            let says = t!("This key is revoked: it gets no other secret. Issue another key in its place.");
            refusal(says, &key)
        } else {
            let choices = control.choices_for_rotation(&visitor.actor, id, visit.now()).await?;
            if choices.has_expired && !choices.ends.is_any(visit.now()) {
                refusal(end_is_set(), &key)
            } else {
                form(&visit, &key, &choices)
            }
        };
        let content = view! {
            {shell::page_head(t!("Rotate {name}?", name = key.name), "", ().into_any())}
            <section class="card">{body}</section>
        };
        Ok(Page::new(t!("Rotate key"), content.into_any()))
    })
}

/// Why there is nothing to ask for.
fn refusal(says: &'static str, key: &KeyRow) -> AnyView {
    let back = format!("/keys/{}", key.id);
    view! {
        <p>{says}</p>
        <p class="actions"><a class="button" href=back>{t!("Back to the key")}</a></p>
    }
    .into_any()
}

/// That a key has expired whose owner cannot bring it back.
pub fn end_is_set() -> &'static str {
    t!("A manager of your tenant has set the end of this key. Ask them for a later one.")
}

fn form(visit: &Visit, key: &KeyRow, choices: &RotationChoices) -> AnyView {
    let (format, now) = (&visit.format, visit.now());
    let form = Filled::new(visit.draft.clone(), RotateKey::PATH, || RotateForm {
        id: key.id.to_string(),
        version: key.version.to_string(),
        overlap: Overlap::default().seconds().to_string(),
        expiry: expiry_like_before(key, choices, now),
        expires_at: String::new(),
    });
    let version = form.version(&form.values.version, &key.version.to_string()).to_owned();
    let (says, old_secret) = match (choices.has_expired, running_overlap(key, now)) {
        (true, _) => (comes_back(key, format), none_works()),
        (false, Some(until)) => {
            let offered = pending_overlaps(until, format);
            (replaces(key, until, format), overlap_field(&form, offered))
        }
        (false, None) => (rotates(), overlap_field(&form, new_overlaps(now, format))),
    };
    let mut ends = Vec::new();
    if !choices.has_expired {
        ends.push((String::new(), kept_end(key, choices, format)));
    }
    if choices.ends.is_endless {
        ends.push((EXPIRY_NEVER.to_owned(), t!("Never", in "when a key expires").to_owned()));
    }
    // A page that was opened while the key had not expired asked for no end.
    let expiry = match form.values.expiry.as_str() {
        "" => expiry_like_before(key, choices, now),
        expiry => expiry.to_owned(),
    };
    let chosen = (expiry.as_str(), form.values.expires_at.as_str());
    let back = format!("/keys/{}", key.id);
    view! {
        {form.summary()}
        <p>
            {tv!(
                "{key} gets a new secret, which is shown once. It stays the same key: its name, limits, counters, and \
                 what it has spent do not change.",
                key = view! { <code>{masked(&key.public_id)}</code> },
            )}
        </p>
        {says}
        {losses(key, choices)}
        <form class="form" method="post" action=RotateKey::PATH>
            <input type="hidden" name="id" value=key.id.to_string() />
            <input type="hidden" name="version" value=version />
            {old_secret}
            {expiry_fields(visit, &form, chosen, ends, &choices.ends)}
            <div class="actions">
                <button class="button button-primary" type="submit">{t!("Rotate key")}</button>
                <a class="button" href=back>{t!("Leave it")}</a>
            </div>
        </form>
    }
    .into_any()
}

/// What the choice of an end begins with: the one that the key has, or for one that has expired a life as long as it had.
fn expiry_like_before(key: &KeyRow, choices: &RotationChoices, now: DateTime<Utc>) -> String {
    let Some(ended) = key.expires_at.filter(|_| choices.has_expired) else {
        return String::new();
    };
    let began = key.rotated_at.unwrap_or(key.created_at);
    lifetime(choices.ends.like(ended - began, now))
}

/// The end of a key for which no other one is chosen.
fn kept_end(key: &KeyRow, choices: &RotationChoices, format: &Format) -> String {
    match choices.kept.expires_at {
        None => t!("As before: never").to_owned(),
        Some(end) if key.expires_at == Some(end) => t!("As before: {end}", end = format.minute(end)),
        Some(end) => t!("As late as the tenant's rules allow: {end}", end = format.minute(end)),
    }
}

/// What the tenant's rules do not allow the key any more.
fn losses(key: &KeyRow, choices: &RotationChoices) -> Option<AnyView> {
    let kept = &choices.kept;
    let mut says = Vec::new();
    if kept.priority != key.priority {
        says.push(t!(
            "By its tenant's rules it runs at {priority} from then on.",
            priority = priority(kept.priority)
        ));
    }
    let named = key.allowed_models.iter().flatten();
    let lost = named.filter(|name| kept.models.as_ref().is_some_and(|kept| !kept.contains(name)));
    let lost: Vec<&str> = lost.map(String::as_str).collect();
    if !lost.is_empty() {
        says.push(t!(
            "By its tenant's rules it may not use {models} any more.",
            models = lost.join(", ")
        ));
        if kept.models.as_ref().is_some_and(Vec::is_empty) {
            says.push(t!("None of the tenant's models is left to it.").to_owned());
        }
    }
    let says = (!says.is_empty()).then(|| language::sentences(&says))?;
    Some(view! { <p class="notice notice-warning">{says}</p> }.into_any())
}

fn overlap_field(form: &Filled<RotateForm>, offered: Vec<(Overlap, String)>) -> AnyView {
    let offered = offered
        .into_iter()
        .map(|(overlap, text)| (overlap.seconds().to_string(), text))
        .collect();
    form.select(
        Field::new("overlap", t!("The old secret")),
        &form.values.overlap,
        offered,
    )
}

/// In place of the choice of an overlap where nothing goes on working.
fn none_works() -> AnyView {
    let none = Overlap::AT_ONCE.seconds().to_string();
    view! { <input type="hidden" name="overlap" value=none /> }.into_any()
}

fn new_overlaps(now: DateTime<Utc>, format: &Format) -> Vec<(Overlap, String)> {
    let told = |overlap: Overlap| match overlap {
        Overlap::AT_ONCE => t!("Ends now").to_owned(),
        _ => works(overlap, &format.minute(overlap.end(now))),
    };
    Overlap::OFFERED
        .into_iter()
        .map(|overlap| (overlap, told(overlap)))
        .collect()
}

/// While an overlap runs until then.
fn pending_overlaps(until: DateTime<Utc>, format: &Format) -> Vec<(Overlap, String)> {
    let until = format.minute(until);
    vec![
        (Overlap::default(), t!("Goes on until {until}, as before", until)),
        (Overlap::AT_ONCE, t!("Ends now").to_owned()),
    ]
}

fn comes_back(key: &KeyRow, format: &Format) -> AnyView {
    let time = key.expires_at.map(|at| format.minute(at)).unwrap_or_default();
    let says = t!(
        "It expired at {time}, and comes back with the expiry that you choose. Only its new secret works then; what it had \
         before stays without use.",
        time
    );
    view! { <p>{says}</p> }.into_any()
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

fn replaces(key: &KeyRow, until: DateTime<Utc>, format: &Format) -> AnyView {
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
    /// Empty for the end that it has, `never`, a number of months, or `at`.
    expiry: String,
    expires_at: String,
}

impl RotateForm {
    fn draft(&self, format: &Format) -> Result<RotationDraft, ControlError> {
        let mut fields = Fields::default();
        let overlap = Overlap::of_seconds(self.overlap.parse().unwrap_or(u64::MAX));
        if let Err(too_long) = overlap {
            fields.refuse("overlap", too_long.text());
        }
        let expiry = match self.expiry.as_str() {
            "" => None,
            EXPIRY_NEVER => Some(Expiry::Never),
            expiry => Some(expiry_of(&mut fields, (expiry, &self.expires_at), format, None)),
        };
        fields.check()?;
        Ok(RotationDraft {
            overlap: overlap.unwrap_or_default(),
            expiry,
        })
    }
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
            let draft = form.draft(&visit.format)?;
            let (control, actor, now) = (&visit.state.control, visit.actor()?, visit.now());
            let issued = match control.rotate_key(actor, id, version, draft, now).await {
                Ok(issued) => issued,
                Err(ControlError::Conflict { .. }) => {
                    // Pressed twice: what the first press has made is still to be shown.
                    visit.session.load().await.map_err(PageError::from)?;
                    let made: Option<IssuedSecret> = session::secret(&visit.session, now).await?;
                    if made.is_some_and(|made| made.id == id) {
                        return Ok(Done::go("/keys/issued"));
                    }
                    // Not to be sent again as it is: what it says of the old secret may be of another one by now.
                    let says = overtaken(&control.key(actor, id).await?, &visit.format);
                    session::keep_problem(&visit.session, says).await?;
                    return Ok(Done::go(format!("/keys/{id}/rotate")));
                }
                Err(error) => return Err(error.into()),
            };
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

/// What somebody is told whose page was overtaken by another change: which secret is in force.
fn overtaken(key: &KeyRow, format: &Format) -> String {
    if key.revoked_at.is_some() {
        return t!("This key was revoked since you opened the page, so it was not rotated.").to_owned();
    }
    t!(
        "This key was changed since you opened the page, so it was not rotated now. The secret in force is the one of {time}: if \
         you do not have that one, somebody else has, or it is lost. Rotate again only if nobody needs it.",
        time = format.time(key.rotated_at.unwrap_or(key.created_at))
    )
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

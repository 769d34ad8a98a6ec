//! The webhook that hears of alerts: its address, its secret, and what became of the latest events.

use control::alerts::{DeliveryRow, WebhookView};
use domain::alerts::AlertEvent;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use crate::copy;
use crate::form::{Field, Filled};
use crate::format;
use crate::language;
use crate::page::{self, Page};
use crate::session;
use crate::shell;
use crate::submit::{Done, Refused, parsed_id, press, submit};
use crate::table::{self, Tone, badge, facts, figures, words};
use crate::visit::{Visit, Visitor};

const ADDRESS: &str = "/settings/webhook";
const SECRET_ADDRESS: &str = "/settings/webhook/secret";

/// The webhook, for operators to change and auditors to read.
pub fn view() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        // Addresses of webhooks often hold one.
        visit.shows_secret();
        let control = &visit.state.control;
        let webhook = control.webhook(&visitor.actor).await?;
        let deliveries = control.deliveries(&visitor.actor).await?;
        let content = view! {
            {shell::page_head(
                t!("Webhook"),
                t!("Every alert is posted to this address when it is raised and when it is over."),
                view! { <a class="button" href="/alerts">{t!("Alerts")}</a> }.into_any(),
            )}
            {address_card(&visit, visitor, webhook.as_ref())}
            {webhook.as_ref().filter(|_| visitor.is_operator()).map(secret_card)}
            {deliveries_card(&deliveries, webhook.as_ref(), visitor, &visit)}
        };
        Ok(Page::new(t!("Webhook"), content.into_any()))
    })
}

/// The webhook in one line, for the page of settings.
pub fn state(webhook: Option<&WebhookView>) -> String {
    match webhook {
        Some(webhook) => t!("Alerts are sent to {address}.", address = webhook.origin),
        None => t!("Off: alerts are in the console only.").to_owned(),
    }
}

fn address_card(visit: &Visit, visitor: &Visitor, webhook: Option<&WebhookView>) -> AnyView {
    if !visitor.is_operator() {
        let origin = webhook.map_or(t!("none").to_owned(), |webhook| webhook.origin.clone());
        return view! { <section class="card">{facts(vec![(t!("Address"), origin.into_any())])}</section> }.into_any();
    }
    let version = webhook.map_or(0, |webhook| webhook.version).to_string();
    let form = Filled::new(visit.draft.clone(), SetWebhook::PATH, || WebhookForm {
        version: version.clone(),
        url: webhook.and_then(|webhook| webhook.url.clone()).unwrap_or_default(),
    });
    let read = form.version(&form.values.version, &version).to_owned();
    let is_new = webhook.is_none();
    let button = if is_new { t!("Set up the webhook") } else { t!("Save") };
    view! {
        <section class="card">
            <h2>{t!("Address")}</h2>
            {is_new.then(|| view! {
                <p>
                    {t!(
                        "Alerts are in the console only. Give an address, and a secret is made and shown once: each event \
                         carries a signature made with it, so that your receiver can tell it from what anybody else sends."
                    )}
                </p>
            })}
            {form.summary()}
            <form class="form" method="post" action=SetWebhook::PATH>
                <input type="hidden" name="version" value=read />
                {form.text(
                    Field::new("url", t!("Address"))
                        .required()
                        .hint(t!("https; plain http only to this machine. Kept sealed. Redirects are not followed."))
                        .placeholder("https://hooks.example.com/tollgate"),
                    &form.values.url,
                )}
                <div class="actions">
                    <button class="button button-primary" type="submit">{button}</button>
                </div>
            </form>
        </section>
    }
    .into_any()
}

fn secret_card(webhook: &WebhookView) -> AnyView {
    let version = webhook.version.to_string();
    view! {
        <section class="card">
            <h2>{t!("Secret", in "webhook")}</h2>
            <p>
                {t!(
                    "Events are signed with a secret that is sealed here and never shown again. If it is lost or may be \
                     known to others, replace it; the old one is worth nothing at once."
                )}
            </p>
            <div class="actions">
                <form method="post" action=ReplaceWebhookSecret::PATH>
                    <input type="hidden" name="version" value=version.clone() />
                    <button class="button" type="submit">{t!("Replace the secret")}</button>
                </form>
                <form method="post" action=RemoveWebhook::PATH>
                    <input type="hidden" name="version" value=version />
                    <button class="button button-danger" type="submit">{t!("Remove the webhook")}</button>
                </form>
            </div>
        </section>
    }
    .into_any()
}

fn deliveries_card(
    deliveries: &[DeliveryRow],
    webhook: Option<&WebhookView>,
    visitor: &Visitor,
    visit: &Visit,
) -> AnyView {
    let test = (webhook.is_some() && visitor.is_operator()).then(|| {
        view! {
            <form class="actions" method="post" action=TestWebhook::PATH>
                <button class="button" type="submit">{t!("Send a test alert")}</button>
            </form>
        }
    });
    let body = if deliveries.is_empty() {
        let text = t!(
            "Nothing was sent yet. An event that your receiver does not take is sent again, after longer and longer pauses, \
             for two and a half hours."
        );
        table::empty(text, ().into_any())
    } else {
        table::table(
            t!("The latest events; times in {zone} time.", zone = visit.format.zone()),
            &[
                words(t!("Event")),
                words(t!("At", in "when an event was")),
                words(t!("State")),
                figures(t!("Attempts", in "event for a webhook")),
                words(t!("Id")),
            ],
            deliveries.iter().map(|delivery| row(delivery, visit)).collect(),
        )
    };
    view! { <section class="card"><h2>{t!("Latest events")}</h2>{body}{test}</section> }.into_any()
}

fn row(delivery: &DeliveryRow, visit: &Visit) -> AnyView {
    let title = delivery.kind.map(|kind| language::text(&kind.title()));
    let event = match (delivery.event.as_str(), title) {
        (event, Some(title)) if event == AlertEvent::Raised.as_str() => t!("{title}: raised", title),
        (event, Some(title)) if event == AlertEvent::Cleared.as_str() => t!("{title}: over", title),
        (event, _) if event == AlertEvent::Test.as_str() => t!("Test").to_owned(),
        (event, _) => event.to_owned(),
    };
    let why = delivery
        .last_error
        .clone()
        .map(|error| view! { " " <small lang="en">{error}</small> });
    let state = match (delivery.delivered_at, delivery.given_up_at) {
        (Some(at), _) => {
            view! { {badge(t!("delivered"), Tone::Good)} " " <small>{visit.format.bare_time(at)}</small> }.into_any()
        }
        (None, Some(_)) => view! { {badge(t!("given up"), Tone::Bad)} {why} }.into_any(),
        (None, None) if delivery.attempts == 0 => badge(t!("waiting"), Tone::Quiet),
        (None, None) => {
            let next = t!("next at {time}", time = visit.format.bare_time(delivery.due_at));
            let again = badge(t!("tried again", in "event for a webhook"), Tone::Warning);
            view! { {again} " " <small>{next}</small> {why} }.into_any()
        }
    };
    view! {
        <tr>
            <th scope="row">{event}</th>
            <td class="nowrap">{visit.format.bare_time(delivery.at)}</td>
            <td class="sentence">{state}</td>
            <td class="number">{format::count(u64::from(delivery.attempts))}</td>
            <td class="nowrap"><code>{delivery.id.to_string()}</code></td>
        </tr>
    }
    .into_any()
}

/// Shows the secret that was just made, once.
pub fn secret() -> AnyView {
    page::behind_the_door(|visit| async move {
        visit.visitor()?;
        let secret: Option<MadeSecret> = visit.secret().await?;
        let content = match secret {
            Some(secret) => view! {
                {shell::page_head(
                    t!("The webhook's secret"),
                    t!("Copy it now: it is not shown again.", in "webhook"),
                    ().into_any(),
                )}
                <section class="card">
                    <h2>{t!("Secret", in "webhook")}</h2>
                    <code class="secret" id="secret">{secret.webhook_secret}</code>
                    <div class="copy-row">
                        {copy::button("secret", t!("Copy the secret", in "webhook"))}
                        <a class="button" href=ADDRESS>{t!("Done")}</a>
                    </div>
                    <p class="quiet">
                        {t!(
                            "Give it to your receiver. It checks that v1 in the header X-Tollgate-Signature is the \
                             HMAC-SHA256, in hexadecimal, of t, a point and the body as it came, made with all of this text, \
                             and that t is not long ago."
                        )}
                    </p>
                </section>
            }
            .into_any(),
            None => view! {
                {shell::page_head(t!("This secret was shown already", in "webhook"), "", ().into_any())}
                <section class="card">
                    <p>{t!("A secret is shown once. If it is lost, replace it.")}</p>
                    <p class="actions"><a class="button" href=ADDRESS>{t!("Go to the webhook")}</a></p>
                </section>
            }
            .into_any(),
        };
        Ok(Page::new(t!("Secret", in "webhook"), content))
    })
}

/// A secret on its way to the one page that shows it.
#[derive(Serialize, Deserialize)]
struct MadeSecret {
    webhook_secret: String,
}

/// What the form of the address sends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WebhookForm {
    version: String,
    url: String,
}

/// Sets the address; the first time, makes a secret and leads to the page that shows it.
#[server(prefix = "/console", endpoint = "webhook/set")]
pub async fn set_webhook(#[server(flatten)] form: WebhookForm) -> Result<(), ServerFnError> {
    submit(
        SetWebhook::PATH,
        ADDRESS,
        form,
        |visit: Visit, form: WebhookForm| async move {
            let (version, now) = (parsed_id(&form.version)?, visit.now());
            let control = &visit.state.control;
            match control.set_webhook(visit.actor()?, version, &form.url, now).await? {
                Some(secret) => show(&visit, secret.reveal()).await,
                None => Ok(Done::say(ADDRESS, t!("Saved. Events go there from now on."))),
            }
        },
    )
    .await
}

/// Makes another secret and leads to the page that shows it.
#[server(prefix = "/console", endpoint = "webhook/replace-secret")]
pub async fn replace_webhook_secret(version: String) -> Result<(), ServerFnError> {
    press(ADDRESS, |visit: Visit| async move {
        let (version, now) = (parsed_id(&version)?, visit.now());
        let control = &visit.state.control;
        let secret = control.replace_webhook_secret(visit.actor()?, version, now).await?;
        show(&visit, secret.reveal()).await
    })
    .await
}

/// Takes the webhook away.
#[server(prefix = "/console", endpoint = "webhook/remove")]
pub async fn remove_webhook(version: String) -> Result<(), ServerFnError> {
    press(ADDRESS, |visit: Visit| async move {
        let (version, now) = (parsed_id(&version)?, visit.now());
        visit.state.control.remove_webhook(visit.actor()?, version, now).await?;
        Ok::<_, Refused>(Done::say(
            ADDRESS,
            t!("The webhook was removed. Alerts are in the console only."),
        ))
    })
    .await
}

/// Sends a test.
#[server(prefix = "/console", endpoint = "webhook/test")]
pub async fn test_webhook() -> Result<(), ServerFnError> {
    press(ADDRESS, |visit: Visit| async move {
        let now = visit.now();
        visit.state.control.test_webhook(visit.actor()?, now).await?;
        let notice = t!("A test is on its way. Load this page again in a few seconds to see what became of it.");
        Ok::<_, Refused>(Done::say(ADDRESS, notice))
    })
    .await
}

async fn show(visit: &Visit, secret: &str) -> Result<Done, Refused> {
    let secret = MadeSecret {
        webhook_secret: secret.to_owned(),
    };
    session::keep_secret(&visit.session, secret, visit.now()).await?;
    Ok(Done::go(SECRET_ADDRESS))
}

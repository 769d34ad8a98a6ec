//! Alerts, and the webhook that hears of them. For those who see everything; only operators change the webhook.

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Duration, Utc};
pub use domain::alerts::{ALERTS_KEPT_DAYS, Alert, AlertEvent, AlertKind};
use domain::text;
use serde_json::{Value, json};
use store::alerts::{self, NewDelivery, WebhookRow};
pub use store::alerts::{DELIVERIES_MAX, DeliveryRow, OPEN_ALERTS_MAX, PAST_ALERTS_MAX, PastAlertFilter};
use store::random;
use store::sealing::Purpose;
use url::{Host, Url};

use crate::audit::Change;
use crate::fields::Fields;
use crate::{Actor, Control, ControlError, commit};

/// The longest address of a webhook, in characters.
pub const WEBHOOK_URL_CHARS_MAX: usize = 1_000;
/// How far back deliveries that were given up are pointed out, in hours.
pub const GIVEN_UP_HOURS: i64 = 24;
/// What the webhook's secret begins with, so that it is recognised where it should not be.
const SECRET_PREFIX: &str = "whsec_";
const SECRET_BYTES: usize = 32;

/// The webhook, as far as it may be shown.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookView {
    /// Scheme, host and port.
    pub origin: String,
    /// All of it, for operators: such addresses often hold a secret.
    pub url: Option<String>,
    /// Raised by every change; 0 where there is none.
    pub version: i64,
}

impl fmt::Debug for WebhookView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookView")
            .field("origin", &self.origin)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// What events are signed with. Neither shown nor logged but by [`WebhookSecret::reveal`].
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSecret(String);

impl WebhookSecret {
    /// The text, to be shown once.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret(..)")
    }
}

impl Control {
    /// Open alerts, of one kind if given, the latest first; at most [`OPEN_ALERTS_MAX`].
    pub async fn open_alerts(&self, actor: &Actor, kind: Option<AlertKind>) -> Result<Vec<Alert>, ControlError> {
        actor.require_everything()?;
        Ok(self.store.open_alerts(kind).await?)
    }

    /// Alerts that are over, the latest first. They are kept for [`ALERTS_KEPT_DAYS`].
    pub async fn past_alerts(&self, actor: &Actor, filter: &PastAlertFilter) -> Result<Vec<Alert>, ControlError> {
        actor.require_everything()?;
        Ok(self.store.past_alerts(filter).await?)
    }

    /// The webhook, if there is one.
    pub async fn webhook(&self, actor: &Actor) -> Result<Option<WebhookView>, ControlError> {
        actor.require_everything()?;
        let Some(row) = self.store.find_webhook().await? else {
            return Ok(None);
        };
        let url = self.webhook_url(&row)?;
        Ok(Some(WebhookView {
            origin: origin(&url),
            url: actor.is_operator().then_some(url),
            version: row.version,
        }))
    }

    /// The latest events for the webhook, and what became of them.
    pub async fn deliveries(&self, actor: &Actor) -> Result<Vec<DeliveryRow>, ControlError> {
        actor.require_everything()?;
        Ok(self.store.deliveries().await?)
    }

    /// How many events were given up in the last [`GIVEN_UP_HOURS`].
    pub async fn given_up_deliveries(&self, actor: &Actor, now: DateTime<Utc>) -> Result<u64, ControlError> {
        actor.require_everything()?;
        let since = now - Duration::hours(GIVEN_UP_HOURS);
        Ok(self.store.given_up_deliveries(since).await?)
    }

    /// Sends events to this address from now on. The first time, a secret is made, and returned to be shown once; later the
    /// secret stays. Field `url`. `version` is 0 where there is no webhook yet.
    pub async fn set_webhook(
        &self,
        actor: &Actor,
        version: i64,
        url: &str,
        now: DateTime<Utc>,
    ) -> Result<Option<WebhookSecret>, ControlError> {
        actor.require_operator()?;
        let mut fields = Fields::default();
        let url = check_url(&mut fields, url);
        fields.check()?;
        let mut transaction = self.store.begin().await?;
        let row = alerts::lock_webhook(&mut transaction).await?;
        same_version(row.as_ref(), version)?;
        let url_sealed = self.seal(Purpose::WebhookUrl, &url);
        let (secret, before) = match &row {
            Some(row) => {
                alerts::update_webhook(&mut transaction, &url_sealed, &row.secret_sealed, now).await?;
                (None, Some(origin(&self.webhook_url(row)?)))
            }
            None => {
                let secret = self.new_webhook_secret();
                let sealed = self.seal(Purpose::WebhookSecret, secret.reveal());
                alerts::insert_webhook(&mut transaction, &url_sealed, &sealed, now).await?;
                (Some(secret), None)
            }
        };
        let after = json!({ "origin": origin(&url), "is_secret_new": secret.is_some() });
        let change = changed(
            "webhook.set",
            before.map(|origin| json!({ "origin": origin })),
            Some(after),
        );
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await?;
        Ok(secret)
    }

    /// Signs events with a new secret from now on, to be shown once. The old one is worth nothing at once.
    pub async fn replace_webhook_secret(
        &self,
        actor: &Actor,
        version: i64,
        now: DateTime<Utc>,
    ) -> Result<WebhookSecret, ControlError> {
        actor.require_operator()?;
        let mut transaction = self.store.begin().await?;
        let row = alerts::lock_webhook(&mut transaction).await?;
        same_version(row.as_ref(), version)?;
        let row = row.ok_or(NOT_FOUND)?;
        let secret = self.new_webhook_secret();
        let sealed = self.seal(Purpose::WebhookSecret, secret.reveal());
        alerts::update_webhook(&mut transaction, &row.url_sealed, &sealed, now).await?;
        let change = changed("webhook.replace_secret", None, Some(json!({ "is_secret_new": true })));
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await?;
        Ok(secret)
    }

    /// Sends nothing any more. Events on their way are given up.
    pub async fn remove_webhook(&self, actor: &Actor, version: i64, now: DateTime<Utc>) -> Result<(), ControlError> {
        actor.require_operator()?;
        let mut transaction = self.store.begin().await?;
        let row = alerts::lock_webhook(&mut transaction).await?;
        same_version(row.as_ref(), version)?;
        let row = row.ok_or(NOT_FOUND)?;
        alerts::remove_webhook(&mut transaction, "the webhook was removed", now).await?;
        let before = json!({ "origin": origin(&self.webhook_url(&row)?) });
        let change = changed("webhook.remove", Some(before), None);
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await
    }

    /// Sends an event that tells of no alert, to try the webhook. One at a time.
    pub async fn test_webhook(&self, actor: &Actor, now: DateTime<Utc>) -> Result<(), ControlError> {
        actor.require_operator()?;
        let mut transaction = self.store.begin().await?;
        alerts::lock_webhook(&mut transaction).await?.ok_or(NOT_FOUND)?;
        let id = self.audit_id(now);
        let test = NewDelivery {
            id,
            body: AlertEvent::Test.body(id, now, None),
        };
        if !alerts::insert_test(&mut transaction, &test, now).await? {
            return Err(ControlError::field("test", text!("a test is on its way already")));
        }
        let change = changed("webhook.test", None, None);
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await
    }

    fn webhook_url(&self, row: &WebhookRow) -> Result<String, ControlError> {
        let opened = self.secret_key.open(Purpose::WebhookUrl, "", &row.url_sealed);
        let bytes = opened.map_err(|error| ControlError::Internal(Box::new(error)))?;
        String::from_utf8(bytes).map_err(|error| ControlError::Internal(Box::new(error)))
    }

    fn seal(&self, purpose: Purpose, plain: &str) -> Vec<u8> {
        self.secret_key.seal(purpose, "", plain.as_bytes(), &*self.random)
    }

    fn new_webhook_secret(&self) -> WebhookSecret {
        let bytes = random::bytes::<SECRET_BYTES>(&*self.random);
        WebhookSecret(format!("{SECRET_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
    }
}

const NOT_FOUND: ControlError = ControlError::NotFound { what: "webhook" };

fn same_version(row: Option<&WebhookRow>, read: i64) -> Result<(), ControlError> {
    let current = row.map_or(0, |row| row.version);
    if current == read {
        return Ok(());
    }
    Err(ControlError::Conflict {
        what: "webhook",
        read,
        current,
    })
}

/// The address as it is asked for; what is wrong with it is noted. Alerts say what is wrong inside, so they travel encrypted
/// or not at all: plain http only to this machine.
fn check_url(fields: &mut Fields, text: &str) -> String {
    const FIELD: &str = "url";
    let text = text.trim();
    if text.chars().count() > WEBHOOK_URL_CHARS_MAX {
        fields.refuse(
            FIELD,
            text!("at most {count} characters", count = WEBHOOK_URL_CHARS_MAX),
        );
        return text.to_owned();
    }
    let parsed = Url::parse(text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let Some(url) = parsed else {
        fields.refuse(
            FIELD,
            text!("write a whole address such as https://hooks.example.com/tollgate"),
        );
        return text.to_owned();
    };
    if url.scheme() == "http" && !is_loopback(&url) {
        fields.refuse(
            FIELD,
            text!("use https; plain http is for a receiver on this machine only"),
        );
    }
    if !url.username().is_empty() || url.password().is_some() {
        fields.refuse(
            FIELD,
            text!("no name or password in the address; the signature says who sends"),
        );
    }
    if url.fragment().is_some() {
        fields.refuse(FIELD, text!("what follows # is never sent; leave it out"));
    }
    url.into()
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        None => false,
    }
}

fn origin(url: &str) -> String {
    Url::parse(url).map_or_else(|_| String::new(), |url| url.origin().ascii_serialization())
}

fn changed(action: &'static str, before: Option<Value>, after: Option<Value>) -> Change {
    Change {
        action,
        subject: "webhook".to_owned(),
        tenant_id: None,
        before,
        after,
    }
}

#[cfg(test)]
mod tests;

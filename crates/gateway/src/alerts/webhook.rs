//! Sending events to the operator's webhook, signed: each at least once, by whichever gateway takes it, again after a while
//! where it fails, and not for ever.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use domain::alerts::{DELIVERY_ATTEMPTS_MAX, delivery_pause_ms};
use domain::error_chain::chain;
use domain::policy::Dialect;
use futures_util::future::join_all;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Uri};
use sha2::Sha256;
use store::StoreError;
use store::alerts::TakenDelivery;
use store::sealing::Purpose;
use tokio::time::sleep;
use upstream::{Client, SendError, Timeouts};

use crate::{Gateway, metrics};

/// The header that says when and by whom an event was sent: `t=<unix seconds>,v1=<hex>`.
pub const SIGNATURE_HEADER: &str = "x-tollgate-signature";
/// How often it is looked for events whose pause is over, in milliseconds.
const LOOK_INTERVAL_MS: u64 = 2_000;
/// Events sent at once by one gateway, at most.
const TAKEN_MAX: i64 = 8;
/// Whoever took an event has so long to send it before somebody else may, in milliseconds. Far above the time-out.
const TAKEN_MS: i64 = 60_000;
/// What the receiver may take: connecting, answering, all of it. Its answer's body is not read.
const TIMEOUTS: Timeouts = Timeouts {
    connect_ms: 3_000,
    first_byte_ms: 10_000,
    chunk_ms: 1_000,
    total_ms: 10_000,
};

/// Sends what is on its way to the webhook.
pub(crate) async fn deliver_alerts(gateway: Arc<Gateway>) {
    // Not a provider, but reached like one: bounded in every step, following no redirect.
    let client = Client::new(TIMEOUTS);
    let mut is_failing = false;
    loop {
        match gateway.deliver_due(&client).await {
            Ok(sent) => {
                is_failing = false;
                // There may be more.
                if sent > 0 {
                    continue;
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(
                        error = chain(&error),
                        "alerts cannot be sent to the webhook; it is tried again"
                    );
                }
            }
        }
        tokio::select! {
            () = sleep(Duration::from_millis(LOOK_INTERVAL_MS)) => {}
            () = gateway.alerts.written.notified() => {}
        }
    }
}

/// Why nothing could be sent.
#[derive(Debug, thiserror::Error)]
enum DeliverError {
    #[error("events on their way cannot be read or marked")]
    Store(#[from] StoreError),
    #[error("the webhook's address and secret cannot be opened; set them again")]
    Sealed,
}

struct Webhook {
    uri: Uri,
    secret: Vec<u8>,
}

impl Gateway {
    /// Sends what is due; how many events that were.
    async fn deliver_due(&self, client: &Client) -> Result<usize, DeliverError> {
        let Some(webhook) = self.find_webhook().await? else {
            return Ok(0);
        };
        let now = self.clock.now().wall;
        let taken_until = now + chrono::Duration::milliseconds(TAKEN_MS);
        let taken = self.store.take_deliveries(now, taken_until, TAKEN_MAX).await?;
        let sent = taken.iter().map(async |event| {
            let failure = webhook.send(client, event, self.clock.now().wall).await.err();
            self.mark(event, failure).await
        });
        // All of them are marked before one's failure to be marked counts.
        join_all(sent).await.into_iter().collect::<Result<(), _>>()?;
        Ok(taken.len())
    }

    async fn find_webhook(&self) -> Result<Option<Webhook>, DeliverError> {
        let Some(row) = self.store.find_webhook().await? else {
            return Ok(None);
        };
        let open = |purpose, sealed: &[u8]| {
            self.secret_key
                .open(purpose, "", sealed)
                .map_err(|_| DeliverError::Sealed)
        };
        let uri = open(Purpose::WebhookUrl, &row.url_sealed)?;
        Ok(Some(Webhook {
            uri: Uri::try_from(uri).map_err(|_| DeliverError::Sealed)?,
            secret: open(Purpose::WebhookSecret, &row.secret_sealed)?,
        }))
    }

    async fn mark(&self, event: &TakenDelivery, failure: Option<String>) -> Result<(), StoreError> {
        let now = self.clock.now().wall;
        let Some(failure) = failure else {
            metrics::alert_delivery("delivered");
            return self.store.delivered(event, now).await;
        };
        let due_at = delivery_pause_ms(event.attempts)
            .and_then(|pause_ms| i64::try_from(pause_ms).ok())
            .map(|pause_ms| now + chrono::Duration::milliseconds(pause_ms));
        if due_at.is_some() {
            metrics::alert_delivery("failed");
        } else {
            metrics::alert_delivery("given_up");
            tracing::error!(
                event = %event.id,
                attempts = DELIVERY_ATTEMPTS_MAX,
                failure,
                "an alert is not sent to the webhook any more; the console has it"
            );
        }
        self.store.not_delivered(event, &failure, due_at, now).await
    }
}

impl Webhook {
    /// Sends one event. What failed, in words for operators that tell nothing of the address.
    async fn send(&self, client: &Client, event: &TakenDelivery, now: DateTime<Utc>) -> Result<(), String> {
        let (Some(scheme), Some(authority)) = (self.uri.scheme_str(), self.uri.authority()) else {
            return Err("the address is not whole".to_owned());
        };
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("tollgate"));
        let signature = signature(&self.secret, now, event.body.as_bytes());
        let signature = HeaderValue::try_from(signature).map_err(|_| "the event cannot be signed".to_owned())?;
        headers.insert(SIGNATURE_HEADER, signature);
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let request = upstream::Request {
            method: Method::POST,
            base_url: &format!("{scheme}://{authority}"),
            endpoint: path.trim_start_matches('/'),
            dialect: Dialect::Openai,
            credential: None,
            headers,
            body: Bytes::from(event.body.clone()),
        };
        match client.send(request, None).await {
            Ok(response) if response.status().is_success() => Ok(()),
            Ok(response) => Err(format!("it answered with status {}", response.status().as_u16())),
            Err(error) => Err(failure(&error)),
        }
    }
}

/// What failed, of the webhook and not of a provider.
fn failure(error: &SendError) -> String {
    match error {
        SendError::Address => "the address is not whole".to_owned(),
        SendError::Connect(_) => "no connection to it".to_owned(),
        SendError::Unconnected(ms) => format!("no connection to it within {ms} ms"),
        SendError::Broken(_) => "it closed the connection before it answered".to_owned(),
        SendError::TimedOut(ms) => format!("it did not answer within {ms} ms"),
    }
}

/// The signature of a body that is sent now: over the time and the body, so that neither can be replaced.
fn signature(secret: &[u8], now: DateTime<Utc>, body: &[u8]) -> String {
    let seconds = now.timestamp();
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a secret of any length will do");
    mac.update(seconds.to_string().as_bytes());
    mac.update(b".");
    mac.update(body);
    format!("t={seconds},v1={}", hex::encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests;

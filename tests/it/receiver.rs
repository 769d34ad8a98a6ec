//! A webhook's receiver, and what it was sent.

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use chrono::{DateTime, Utc};
use gateway::alerts::SIGNATURE_HEADER;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, StatusCode};
use serde_json::Value;
use sha2::Sha256;
use test_support::tollgate::Tollgate;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What a webhook was sent.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) signature: String,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    pub(crate) fn text(&self, pointer: &str) -> String {
        let json = self.json();
        let found = json.pointer(pointer).and_then(Value::as_str);
        found.unwrap_or_else(|| panic!("no {pointer} in {json}")).to_owned()
    }

    /// Whether it was signed with this secret, and when.
    pub(crate) fn is_signed_with(&self, secret: &str) -> Option<DateTime<Utc>> {
        let (time, signature) = self.signature.split_once(",v1=")?;
        let time = time.strip_prefix("t=")?;
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).ok()?;
        mac.update(format!("{time}.").as_bytes());
        mac.update(&self.body);
        mac.verify_slice(&hex::decode(signature).ok()?).ok()?;
        DateTime::from_timestamp(time.parse().ok()?, 0)
    }
}

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Received>>>, Arc<Mutex<Vec<u16>>>);

/// A webhook's receiver on loopback.
pub(crate) struct Receiver {
    pub(crate) url: String,
    kept: Kept,
    task: JoinHandle<()>,
}

impl Receiver {
    /// Answers with these statuses, one after the other, and then with 204.
    pub(crate) async fn start(statuses: &[u16]) -> Self {
        let kept = Kept::default();
        kept.1
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(statuses.iter().rev());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!(
            "http://{}/hook?token=of-the-hook",
            listener.local_addr().expect("an address")
        );
        let router = Router::new().route("/hook", post(receive)).with_state(kept.clone());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { url, kept, task }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.kept.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it was sent, as `event kind`.
    pub(crate) fn events(&self) -> Vec<String> {
        let name = |received: &Received| format!("{} {}", received.text("/event"), received.text("/alert/kind"));
        self.received().iter().map(name).collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn receive(State(kept): State<Kept>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let signature = headers.get(SIGNATURE_HEADER).and_then(|value| value.to_str().ok());
    let received = Received {
        signature: signature.unwrap_or_default().to_owned(),
        body: body.to_vec(),
    };
    kept.0.lock().unwrap_or_else(PoisonError::into_inner).push(received);
    let status = kept.1.lock().unwrap_or_else(PoisonError::into_inner).pop();
    StatusCode::from_u16(status.unwrap_or(204)).expect("a status")
}

pub(crate) async fn set_webhook(tollgate: &Tollgate, receiver: &Receiver) -> String {
    let secret = tollgate
        .control()
        .set_webhook(&tollgate.actor(), 0, &receiver.url, Utc::now())
        .await
        .expect("a webhook");
    secret.expect("its secret").reveal().to_owned()
}

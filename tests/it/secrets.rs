//! No secret reaches the log, at any level, whatever callers and providers do with it.

use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use chrono::{Duration, Utc};
use control::keys::{Expiry, KeyDraft, KeyOwner};
use control::limits::NodeLimits;
use control::management_tokens::ManagementTokenDraft;
use domain::key_text::{KEY_RANDOM_BYTES, KeyText};
use domain::management_tokens::Permission;
use domain::priority::Priority;
use http::Method;
use test_support::console::{OPERATOR, Window};
use test_support::fleet::until;
use test_support::tollgate::{CREDENTIAL, Tollgate, chat_body};
use tracing_subscriber::fmt::MakeWriter;

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Everything up to now, as text.
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("whole")).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("whole").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// The part of a key that nobody may know. What stands before it is shown in the console.
fn secret_of(key: &str) -> &str {
    key.rsplit('-').next().expect("a key")
}

/// Does at the console and the API what people and programs do there, well and badly; every secret that was used.
async fn secrets_of_people(tollgate: &Tollgate) -> Vec<String> {
    let (control, actor) = (tollgate.control(), tollgate.actor());
    let mut secrets = vec![
        "a password that is wrong".to_owned(),
        "a password that is right".to_owned(),
    ];
    let token = control
        .create_setup_link(Utc::now())
        .await
        .expect("a link")
        .expect("nobody");
    let mut window = Window::open(tollgate, &format!("/setup?token={}", token.reveal())).await;
    let form = window.page.form("/console/setup");
    let form = form
        .fill("name", "Olga")
        .fill("email", OPERATOR)
        .fill("password", "short");
    window.send(&form).await;
    let form = window.page.form("/console/setup").fill("password", &secrets[1]);
    assert_eq!(window.send(&form).await.path(), "/", "set up");
    secrets.push(token.reveal().to_owned());
    secrets.push(cookie_of(&window));
    window.sign_out().await;
    window.sign_in(OPERATOR, &secrets[0]).await;
    window.sign_in(OPERATOR, &secrets[1]).await;
    secrets.push(cookie_of(&window));
    let form = window.visit("/account").await.form("/console/account/password");
    let changed = form
        .fill("current_password", &secrets[0])
        .fill("password", "another password");
    window.send(&changed).await;
    let form = window.visit("/account").await.form("/console/account/password");
    let changed = form
        .fill("current_password", &secrets[1])
        .fill("password", "another password");
    window.send(&changed).await;
    let notices = window.page.notices();
    let is_changed = notices
        .iter()
        .any(|notice| notice.starts_with("Your password is changed"));
    assert!(is_changed, "{notices:?}");
    secrets.extend(["another password".to_owned(), cookie_of(&window)]);

    // An invitation, shown once and used.
    let form = window.visit("/people/new").await.form("/console/people/invite");
    let form = form.fill("name", "Ann").fill("email", "ann@example.com");
    let page = window
        .send(&form.choose("role", "Auditor: reads everything, changes nothing"))
        .await;
    let link = page.text("#secret");
    let token = link.split("token=").nth(1).expect("a token").to_owned();
    let mut invited = Window::open(tollgate, &format!("/invitation?token={token}")).await;
    let form = invited
        .page
        .form("/console/invitation")
        .fill("password", "a password of the invited");
    assert_eq!(invited.send(&form).await.path(), "/");
    secrets.extend([token, "a password of the invited".to_owned(), cookie_of(&invited)]);

    let draft = ManagementTokenDraft {
        name: "export".into(),
        tenant_id: None,
        permissions: vec![Permission::LedgerRead],
        lifetime_days: 1,
    };
    let issued = control
        .issue_management_token(&actor, &draft, Utc::now())
        .await
        .expect("a token");
    let text = issued.text.reveal().to_owned();
    let misspelt = format!("{}_", &text[..text.len() - 1]);
    for (token, status) in [(&text, 200), (&misspelt, 401)] {
        let bearer = format!("Bearer {token}");
        let header = [("authorization", bearer.as_str())];
        let path = "/api/v1/settlements";
        let answer = tollgate.browser().send(Method::GET, path, &header, Bytes::new()).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        secrets.push(secret_of(token).to_owned());
    }
    secrets
}

fn cookie_of(window: &Window) -> String {
    let cookie = window.browser.cookie("tollgate_session");
    assert!(cookie.len() > 20, "{cookie} is no secret");
    cookie.to_owned()
}

// On one thread, which is this one: gateway, console, provider and callers all log to the buffer.
#[tokio::test(flavor = "current_thread")]
async fn keys_and_credentials_do_not_reach_the_log() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(log.clone())
        .finish();
    let _here = tracing::subscriber::set_default(subscriber);
    // With a second one about, tracing asks all of them whether an event that is met first on another thread is of interest;
    // of a single one it takes the word of that thread, where nobody listens, for everybody's.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());

    let tollgate = Tollgate::start().await;
    let (tenant, valid) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let draft = KeyDraft {
        name: "another".into(),
        priority: Priority::Default,
        allowed_models: None,
        may_name_users: true,
        degrades: false,
        expiry: Expiry::At(Utc::now() + Duration::days(1)),
    };
    let issue = async || {
        tollgate
            .control()
            .issue_key(&tollgate.actor(), tenant, KeyOwner::Service, &draft, Utc::now())
            .await
            .expect("a key")
    };
    let (expired, revoked) = (issue().await, issue().await);
    tollgate
        .control()
        .revoke_key(&tollgate.actor(), revoked.row.id, Utc::now())
        .await
        .expect("revoked");
    tollgate.in_force().await;
    let unknown = KeyText::generate(&[3; KEY_RANDOM_BYTES]);
    let mut misspelt = valid.clone();
    misspelt.pop();
    misspelt.push('_');
    let foreign = "sk-proj-Zq81vKx0fNotOfThisHouse";

    // Every key in every place, whole answers and streams, and a provider that fails and quotes its credential.
    let keys = [
        valid.as_str(),
        revoked.text.reveal(),
        unknown.reveal(),
        &misspelt,
        foreign,
    ];
    for key in keys {
        tollgate.chat(key, "Hello.").await;
        tollgate.chat_stream(key, "Hello.").await.rest().await;
        tollgate.chat(key, "Hello. [[sim: status=401 quote-credential]]").await;
        let body = chat_body("Hello.").to_string();
        for (method, path, header) in [
            (Method::POST, "/v1/chat/completions", "x-api-key"),
            (Method::GET, "/v1/models", "x-api-key"),
            (Method::POST, "/v1/nothing/here", "authorization"),
            (Method::GET, "/console/nothing", "authorization"),
        ] {
            let content = [("content-type", "application/json"), (header, key)];
            let mut browser = tollgate.browser();
            browser.send(method, path, &content, body.clone().into()).await;
        }
    }
    tollgate.clock.set(Utc::now() + Duration::days(2));
    assert_eq!(
        tollgate.chat(expired.text.reveal(), "Hello.").await.code(),
        "key_expired"
    );
    // A webhook that nobody answers at.
    let hook = "http://127.0.0.1:1/hook/token-of-the-hook";
    let hook_secret = tollgate
        .control()
        .set_webhook(&tollgate.actor(), 0, hook, Utc::now())
        .await
        .expect("a webhook")
        .expect("its secret");
    let now = tollgate.clock.wall();
    let tested = tollgate.control().test_webhook(&tollgate.actor(), now).await;
    tested.expect("a test on its way");
    until("it was tried", async || {
        let deliveries = tollgate.control().deliveries(&tollgate.actor()).await;
        deliveries.expect("deliveries")[0].last_error.is_some()
    })
    .await;
    let of_people = secrets_of_people(&tollgate).await;
    tollgate.shipped().await;
    let tollgate = tollgate.restart().await;
    assert_eq!(tollgate.chat(&valid, "Hello.").await.status, 200);

    let text = log.text();
    assert!(text.contains("\"settled\""), "the log was written here");
    assert!(text.contains("quota_exceeded"), "refusals, too");
    let mut secrets: Vec<&str> = keys.into_iter().chain([expired.text.reveal()]).collect();
    let parts: Vec<&str> = secrets.iter().map(|key| secret_of(key)).collect();
    secrets.extend(parts);
    secrets.extend([CREDENTIAL, hook_secret.reveal(), "token-of-the-hook"]);
    secrets.extend(of_people.iter().map(String::as_str));
    for secret in secrets {
        let found = text.lines().find(|line| line.contains(secret));
        assert!(found.is_none(), "{secret} is in the log: {}", found.unwrap_or_default());
    }
    tracing::info!(secret = CREDENTIAL, "on purpose");
    assert!(log.text().contains(CREDENTIAL), "a secret would have been found");
}

//! What happens to an installation is noted: by whom, from where, as it was and as it is.

use chrono::Utc;
use control::Actor;
use control::keys::{Expiry, KeyDraft, KeyOwner};
use control::limits::NodeLimits;
use domain::ids::TenantId;
use domain::limits::{Dimension, Scope, Target};
use domain::priority::Priority;
use serde_json::Value;
use test_support::console::{OPERATOR, PASSWORD, Window};
use test_support::tollgate::{Options, Tollgate, limit};

/// An entry as it is stored.
#[derive(Debug, sqlx::FromRow)]
struct Entry {
    actor: String,
    subject: String,
    tenant_id: Option<uuid::Uuid>,
    before: Option<Value>,
    after: Option<Value>,
    peer: Option<String>,
}

/// What was noted of an action, the latest last.
async fn entries(tollgate: &Tollgate, action: &str) -> Vec<Entry> {
    sqlx::query_as(
        "select actor, subject, tenant_id, before, after, peer from audit_log where action = $1 order by at, id",
    )
    .bind(action)
    .fetch_all(&mut tollgate.sql().await)
    .await
    .expect("entries")
}

async fn empty(options: Options) -> Tollgate {
    Tollgate::start_with(Options {
        is_empty: true,
        ..options
    })
    .await
}

#[tokio::test]
async fn the_first_start_and_its_link_are_noted() {
    let tollgate = empty(Options {
        time_zone: Some(chrono_tz::Europe::Berlin),
        currency: Some("EUR".into()),
        ..Options::default()
    })
    .await;
    let made = entries(&tollgate, "settings.create").await;
    assert_eq!((made.len(), made[0].actor.as_str()), (1, "first start"));
    let after = made[0].after.as_ref().expect("settings");
    assert_eq!(
        (&after["time_zone"], &after["currency"]),
        (&"Europe/Berlin".into(), &"EUR".into())
    );
    Window::operator(&tollgate).await;
    let links = entries(&tollgate, "person.setup_link").await;
    assert_eq!((links.len(), links[0].actor.as_str()), (1, "start"));
    let tollgate = tollgate.restart().await;
    assert_eq!(entries(&tollgate, "settings.create").await.len(), 1, "once");
}

#[tokio::test]
async fn what_a_suspension_and_a_limit_of_a_key_changed_is_noted_for_the_tenant() {
    let tollgate = empty(Options::default()).await;
    let (control, actor) = (tollgate.control(), tollgate.actor());
    let tenant: TenantId = tollgate.tenant("Acme", NodeLimits::default()).await;
    let version = async || {
        let view = control.tenant(&actor, tenant, Utc::now()).await;
        view.expect("the tenant").row.version
    };
    let read = version().await;
    control
        .suspend_tenant(&actor, tenant, read, Utc::now())
        .await
        .expect("suspended");
    let read = version().await;
    control
        .resume_tenant(&actor, tenant, read, Utc::now())
        .await
        .expect("resumed");
    let suspended = entries(&tollgate, "tenant.suspend").await.remove(0);
    let at = |value: &Option<Value>| value.as_ref().expect("a side")["suspended_at"].clone();
    assert_eq!(at(&suspended.before), Value::Null);
    assert!(at(&suspended.after).is_string());
    let resumed = entries(&tollgate, "tenant.resume").await.remove(0);
    assert!(at(&resumed.before).is_string());
    assert_eq!(at(&resumed.after), Value::Null);

    let draft = KeyDraft {
        name: "application".into(),
        priority: Priority::Default,
        allowed_models: None,
        may_name_users: false,
        degrades: false,
        expiry: Expiry::Never,
    };
    let issued = control
        .issue_key(&actor, tenant, KeyOwner::Service, &draft, Utc::now())
        .await
        .expect("a key");
    let key = Target::Node(Scope::Key(issued.row.id));
    tollgate.set_limit(key, 0, &limit(Dimension::Requests, 5)).await;
    let set = entries(&tollgate, "limit.set").await.remove(0);
    assert_eq!(
        (set.subject, set.tenant_id),
        (format!("key:{}", issued.row.id), Some(tenant.0))
    );
}

#[tokio::test]
async fn what_was_noted_stays_as_it_was_noted() {
    let tollgate = empty(Options::default()).await;
    tollgate.tenant("Acme", NodeLimits::default()).await;
    for change in [
        "update audit_log set actor = 'somebody else'",
        "delete from audit_log",
        "truncate audit_log",
    ] {
        let refused = sqlx::query(change).execute(&mut tollgate.sql().await).await;
        let error = refused.expect_err(change).to_string();
        assert!(error.contains("the audit log is append-only"), "{error}");
    }
    assert_eq!(entries(&tollgate, "tenant.create").await.len(), 1);
}

#[tokio::test]
async fn the_command_line_says_who_ran_it_where() {
    let tollgate = empty(Options::default()).await;
    let actor = Actor::CommandLine {
        from: "ada@gateway-1".into(),
    };
    let control = tollgate.control();
    control
        .create_operator(&actor, "Ada", "ada@example.com", PASSWORD, Utc::now())
        .await
        .expect("an operator");
    let made = entries(&tollgate, "person.create").await.remove(0);
    assert_eq!(
        (made.actor.as_str(), made.peer.as_deref()),
        ("command line", Some("ada@gateway-1"))
    );
}

#[tokio::test]
async fn behind_a_trusted_proxy_the_callers_address_is_noted_and_throttled() {
    let tollgate = empty(Options {
        trusted_proxies: "127.0.0.1".parse().expect("a proxy"),
        ..Options::default()
    })
    .await;
    let mut window = Window::operator(&tollgate).await;
    window.sign_out().await;
    // Whatever the caller writes itself stands before what the proxy adds.
    window.browser.always("x-forwarded-for", "192.0.2.1, 198.51.100.7");
    window.sign_in(OPERATOR, PASSWORD).await;
    let signed_in = entries(&tollgate, "person.sign_in").await.pop().expect("an entry");
    assert_eq!(signed_in.peer.as_deref(), Some("198.51.100.7"));
    let listed = window.visit("/account").await.table(&["Program", "Address"]);
    assert_eq!(listed.column("Address"), ["198.51.100.7"]);

    // One caller that tries many accounts has to wait, and no other.
    let mut guessing = Window::open(&tollgate, "/sign-in").await;
    guessing.browser.always("x-forwarded-for", "203.0.113.5");
    for number in 0..control::sign_in::PEER_FAILURES_MAX {
        guessing
            .sign_in(&format!("{number}@example.com"), "a wrong sentence")
            .await;
    }
    guessing.sign_in("another@example.com", "a wrong sentence").await;
    assert!(
        guessing.page.notices()[0].contains("Try again in"),
        "{:?}",
        guessing.page.notices()
    );
    window.sign_out().await;
    assert_eq!(window.sign_in(OPERATOR, PASSWORD).await.path(), "/");
}

#[tokio::test]
async fn without_a_trusted_proxy_nobody_chooses_their_address() {
    let tollgate = empty(Options::default()).await;
    let mut window = Window::operator(&tollgate).await;
    window.sign_out().await;
    window.browser.always("x-forwarded-for", "198.51.100.7");
    window.sign_in(OPERATOR, PASSWORD).await;
    let signed_in = entries(&tollgate, "person.sign_in").await.pop().expect("an entry");
    assert_eq!(signed_in.peer.as_deref(), Some("127.0.0.1"));
}

//! A rotated key is the same key with another secret: both work for a while, and nothing that it may do changes.

use chrono::{DateTime, Duration, Utc};
use control::ControlError;
use control::keys::{Expiry, IssuedKey, KeyDraft, KeyOwner, RotationDraft};
use control::limits::NodeLimits;
use domain::ids::{KeyId, TenantId};
use domain::key_rotation::Overlap;
use domain::limits::{Dimension, Scope, Target};
use domain::people::Role;
use domain::priority::Priority;
use http::StatusCode;
use test_redis::RedisServer;
use test_support::clock::zone_at_noon;
use test_support::console::{OPERATOR, PASSWORD, Window};
use test_support::fleet::until;
use test_support::tollgate::{MODEL, Options, Tollgate, limit};

use crate::fleet::shared;
use crate::receiver::{Receiver, set_webhook};

const EXPIRES: &str = "x-tollgate-key-expires";

async fn rotate(tollgate: &Tollgate, id: KeyId, overlap: Overlap) -> IssuedKey {
    let control = tollgate.control();
    let version = control.key(&tollgate.actor(), id).await.expect("a key").version;
    let now = tollgate.clock.wall();
    let rotated = control.rotate_key(&tollgate.actor(), id, version, overlap, now).await;
    tollgate.in_force().await;
    rotated.expect("rotated")
}

async fn status(tollgate: &Tollgate, key: &IssuedKey) -> StatusCode {
    tollgate.chat(key.text.reveal(), "Hello.").await.status
}

/// A service account's key like this.
async fn issue(tollgate: &Tollgate, tenant: TenantId, draft: &KeyDraft) -> IssuedKey {
    let (actor, now) = (tollgate.actor(), tollgate.clock.wall());
    let key = tollgate
        .control()
        .issue_key(&actor, tenant, KeyOwner::Service, draft, now)
        .await;
    tollgate.in_force().await;
    key.expect("a key")
}

async fn issued(tollgate: &Tollgate) -> (TenantId, IssuedKey) {
    let tenant = tollgate.tenant("Tenant", NodeLimits::default()).await;
    let key = tollgate.issue(tenant).await;
    tollgate.in_force().await;
    (tenant, key)
}

async fn audited(tollgate: &Tollgate) -> Vec<String> {
    sqlx::query_scalar("select action from audit_log where action like 'key.%' order by at, id")
        .fetch_all(&mut tollgate.sql().await)
        .await
        .expect("entries")
}

/// Three requests a minute, whichever of its secrets a key shows.
async fn both_secrets_count_as_one(tollgate: &Tollgate) {
    let (_, first) = issued(tollgate).await;
    let target = Target::Node(Scope::Key(first.row.id));
    tollgate.set_limit(target, 0, &limit(Dimension::Requests, 3)).await;
    assert_eq!(status(tollgate, &first).await, 200);
    let second = rotate(tollgate, first.row.id, Overlap::default()).await;
    assert_eq!(second.row.id, first.row.id);
    assert_eq!(second.row.public_id, first.row.public_id);
    assert_eq!(second.text.public_id(), first.text.public_id());
    assert_eq!(status(tollgate, &first).await, 200, "the old secret works on");
    assert_eq!(status(tollgate, &second).await, 200);
    for key in [&first, &second] {
        let answer = tollgate.chat(key.text.reveal(), "Hello.").await;
        assert_eq!(answer.code(), "rate_limit_exceeded", "the counter goes on");
    }
    tollgate.shipped().await;
    let rows: Vec<KeyId> = sqlx::query_scalar::<_, uuid::Uuid>("select distinct key_id from settlements")
        .fetch_all(&mut tollgate.sql().await)
        .await
        .expect("rows")
        .into_iter()
        .map(KeyId)
        .collect();
    assert_eq!(rows, [first.row.id]);
}

#[tokio::test]
async fn both_secrets_count_as_one_key_in_memory() {
    both_secrets_count_as_one(&Tollgate::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_secrets_count_as_one_key_in_redis() {
    let redis = RedisServer::start().await;
    both_secrets_count_as_one(&Tollgate::start_with(shared(redis.url())).await).await;
}

#[tokio::test]
async fn the_old_secret_is_warned_and_ends_with_the_overlap() {
    let tollgate = Tollgate::start().await;
    let (_, first) = issued(&tollgate).await;
    let second = rotate(&tollgate, first.row.id, Overlap::of_seconds(3_600).expect("an hour")).await;
    let answer = tollgate.chat(first.text.reveal(), "Hello.").await;
    let ends: DateTime<Utc> = answer.header(EXPIRES).parse().expect("an instant");
    let until = second.row.old_secret_until.expect("an overlap");
    assert!((until - ends).num_seconds().abs() <= 1, "{ends} for {until}");
    let answer = tollgate.chat(second.text.reveal(), "Hello.").await;
    assert!(answer.headers.get(EXPIRES).is_none(), "the new secret has no end");

    tollgate.clock.set(until);
    assert_eq!(status(&tollgate, &first).await, 401);
    assert_eq!(status(&tollgate, &second).await, 200);
    // Housekeeping forgets it, and the key is what it was.
    tollgate
        .control()
        .delete_expired(tollgate.clock.wall())
        .await
        .expect("tidied up");
    let row = tollgate
        .control()
        .key(&tollgate.actor(), first.row.id)
        .await
        .expect("a key");
    assert_eq!(row.old_secret_until, None);
    assert_eq!(row.rotated_at, second.row.rotated_at);
}

#[tokio::test]
async fn a_key_in_its_last_week_is_warned() {
    let tollgate = Tollgate::start().await;
    let tenant = tollgate.tenant("Tenant", NodeLimits::default()).await;
    let expires_at = Utc::now() + Duration::days(10);
    let key = issue(&tollgate, tenant, &draft("nightly", Expiry::At(expires_at))).await;
    let warned = async || {
        let answer = tollgate.chat(key.text.reveal(), "Hello.").await;
        assert_eq!(answer.status, 200);
        answer.headers.contains_key(EXPIRES)
    };
    assert!(!warned().await);
    tollgate.clock.set(expires_at - Duration::days(6));
    assert!(warned().await);
}

#[tokio::test]
async fn a_secret_that_was_lost_is_replaced_and_the_old_one_keeps_its_end() {
    let tollgate = Tollgate::start().await;
    let (_, first) = issued(&tollgate).await;
    let lost = rotate(&tollgate, first.row.id, Overlap::of_seconds(3_600).expect("an hour")).await;
    let found = rotate(&tollgate, first.row.id, Overlap::default()).await;
    assert_eq!(found.row.old_secret_until, lost.row.old_secret_until);
    assert_eq!(status(&tollgate, &first).await, 200);
    assert_eq!(status(&tollgate, &lost).await, 401);
    assert_eq!(status(&tollgate, &found).await, 200);
    // Without an overlap, nothing that anybody knew works any more.
    let last = rotate(&tollgate, first.row.id, Overlap::AT_ONCE).await;
    for ended in [&first, &lost, &found] {
        assert_eq!(status(&tollgate, ended).await, 401);
    }
    assert_eq!(status(&tollgate, &last).await, 200);
    assert_eq!(
        audited(&tollgate).await,
        ["key.issue", "key.rotate", "key.replace_secret", "key.rotate"]
    );
}

#[tokio::test]
async fn an_overlap_is_ended_early_and_a_revocation_ends_both_secrets() {
    let tollgate = Tollgate::start().await;
    let (_, first) = issued(&tollgate).await;
    let second = rotate(&tollgate, first.row.id, Overlap::default()).await;
    let control = tollgate.control();
    let (actor, id) = (tollgate.actor(), first.row.id);
    let stale = control.end_overlap(&actor, id, first.row.version, Utc::now()).await;
    assert!(matches!(stale, Err(ControlError::Conflict { .. })), "{stale:?}");
    let ended = control
        .end_overlap(&actor, id, second.row.version, Utc::now())
        .await
        .expect("ended");
    assert_eq!(ended.old_secret_until, None);
    tollgate.in_force().await;
    assert_eq!(status(&tollgate, &first).await, 401);
    assert_eq!(status(&tollgate, &second).await, 200);

    let third = rotate(&tollgate, id, Overlap::default()).await;
    control.revoke_key(&actor, id, Utc::now()).await.expect("revoked");
    tollgate.in_force().await;
    assert_eq!(status(&tollgate, &second).await, 403);
    assert_eq!(status(&tollgate, &third).await, 403);
    let version = control.key(&actor, id).await.expect("a key").version;
    let again = control
        .rotate_key(&actor, id, version, Overlap::default(), Utc::now())
        .await;
    let error = again.expect_err("a revoked key stays revoked").to_string();
    assert!(error.contains("revoked"), "{error}");
}

#[tokio::test]
async fn rotations_change_nothing_that_a_key_may_do() {
    let tollgate = Tollgate::start().await;
    let tenant = tollgate.tenant("Tenant", NodeLimits::default()).await;
    let draft = KeyDraft {
        priority: Priority::Low,
        allowed_models: Some(vec![MODEL.to_owned()]),
        may_name_users: true,
        degrades: true,
        ..draft("narrow", Expiry::At(Utc::now() + Duration::days(40)))
    };
    let control = tollgate.control();
    let key = issue(&tollgate, tenant, &draft).await.row;
    let target = Target::Node(Scope::Key(key.id));
    let version = tollgate
        .set_limit(target.clone(), 0, &limit(Dimension::TotalTokens, 5_000))
        .await;
    tollgate
        .set_limit(target.clone(), version, &limit(Dimension::BudgetCost, 7_000))
        .await;
    let limits = async || control.limits_of(&tollgate.actor(), &target).await.expect("limits");
    let before = limits().await;
    // Every pair of overlaps: whatever runs, and whatever is asked for meanwhile.
    for first in Overlap::OFFERED {
        for second in Overlap::OFFERED {
            for overlap in [first, second] {
                let after = rotate(&tollgate, key.id, overlap).await.row;
                let comparable = control::rows::KeyRow {
                    version: key.version,
                    rotated_at: key.rotated_at,
                    old_secret_until: key.old_secret_until,
                    ..after
                };
                assert_eq!(comparable, key);
            }
        }
    }
    assert_eq!(limits().await, before);
}

#[tokio::test]
async fn ends_are_told_to_the_webhook_once_each_and_in_time() {
    let tollgate = Tollgate::start().await;
    let receiver = Receiver::start(&[]).await;
    set_webhook(&tollgate, &receiver).await;
    let (tenant, first) = issued(&tollgate).await;
    let now = tollgate.clock.wall();
    rotate(&tollgate, first.row.id, Overlap::default()).await;
    let expires_at = now + Duration::days(20);
    let control = tollgate.control();
    let key = issue(&tollgate, tenant, &draft("nightly", Expiry::At(expires_at)))
        .await
        .row;
    let told = async |at| control.warn_of_ending_keys(at).await.expect("told");
    assert_eq!(told(now + Duration::hours(17)).await, 0, "it is early");
    assert_eq!(told(now + Duration::hours(19)).await, 1);
    assert_eq!(told(now + Duration::hours(20)).await, 0, "once");
    assert_eq!(told(expires_at - Duration::days(8)).await, 0);
    assert_eq!(told(expires_at - Duration::days(7)).await, 1);
    assert_eq!(told(expires_at - Duration::days(1)).await, 0, "once");
    tollgate.clock.set(expires_at - Duration::hours(1));
    until("both are delivered", async || receiver.received().len() == 2).await;
    let mut events: Vec<(String, String)> = receiver
        .received()
        .iter()
        .map(|received| (received.text("/event"), received.text("/key/id")))
        .collect();
    events.sort();
    let wanted = [
        ("key.expires".to_owned(), key.id.to_string()),
        ("key.overlap_ends".to_owned(), first.row.id.to_string()),
    ];
    assert_eq!(events, wanted);
}

#[tokio::test]
async fn a_member_rotates_an_own_key_on_its_page() {
    let tollgate = Tollgate::start().await;
    let tenant = tollgate.tenant("Tenant", NodeLimits::default()).await;
    let mut window = Window::person(&tollgate, Role::Member, Some(tenant)).await;
    let old = window.issue_key("", "notebook").await;
    let done = window.page.link("Done");
    window.visit(&done).await;
    let rotate = window.page.link("Rotate");
    window.visit(&rotate).await;
    let form = window.page.form("/console/keys/rotate");
    assert_eq!(form.options("overlap").len(), Overlap::OFFERED.len());
    window.send(&form).await;
    assert_eq!(window.page.heading(), "Key rotated: notebook");
    assert!(window.page.content().contains("The old secret works, too, until"));
    let new = window.page.text("#secret");
    tollgate.in_force().await;
    assert_ne!(new, old);
    for key in [&old, &new] {
        assert_eq!(tollgate.chat(key, "Hello.").await.status, 200);
    }
    window.visit("/keys").await;
    assert!(
        window.page.content().contains("old secret works until"),
        "{}",
        window.page.content()
    );
    window.visit(&done).await;
    let form = window.page.form("/console/keys/end-overlap");
    window.send(&form).await;
    assert_eq!(window.page.notices(), ["The old secret has ended."]);
    tollgate.in_force().await;
    assert_eq!(tollgate.chat(&old, "Hello.").await.status, 401);
    assert_eq!(tollgate.chat(&new, "Hello.").await.status, 200);
}

#[tokio::test]
async fn an_expired_key_that_is_rotated_keeps_its_id_and_what_it_has_counted() {
    let options = Options {
        time_zone: Some(zone_at_noon()),
        ..Options::default()
    };
    let tollgate = Tollgate::start_with(options).await;
    let tenant = tollgate.tenant("Tenant", NodeLimits::default()).await;
    let ends = tollgate.clock.wall() + Duration::minutes(10);
    let key = issue(&tollgate, tenant, &draft("nightly", Expiry::At(ends))).await;
    let of_key = Target::Node(Scope::Key(key.row.id));
    tollgate
        .set_limit(of_key, 0, &limit(Dimension::BudgetTokens, 600))
        .await;
    let text = "Hello. [[sim: tokens=400]]";
    assert_eq!(tollgate.chat(key.text.reveal(), text).await.status, 200);
    tollgate.shipped().await;
    let control = tollgate.control();
    let rotate = async |expiry| {
        let version = control.key(&tollgate.actor(), key.row.id).await.expect("a key").version;
        let draft = RotationDraft {
            overlap: Overlap::default(),
            expiry,
        };
        let now = tollgate.clock.wall();
        control
            .rotate_key(&tollgate.actor(), key.row.id, version, draft, now)
            .await
    };
    tollgate.clock.set(ends + Duration::minutes(1));
    assert_eq!(tollgate.chat(key.text.reveal(), text).await.code(), "key_expired");
    let without_end = rotate(None).await;
    assert_eq!(without_end.expect_err("it stays expired").fields()[0].field, "key");
    let back = rotate(Some(Expiry::Never)).await.expect("it is back");
    assert_eq!(back.row.id, key.row.id);
    assert_eq!((back.row.expires_at, back.row.old_secret_until), (None, None));
    tollgate.in_force().await;
    assert_eq!(
        tollgate.chat(back.text.reveal(), text).await.code(),
        "budget_exhausted",
        "its budget goes on"
    );
    assert_eq!(tollgate.chat(key.text.reveal(), text).await.status, 401);
}

#[tokio::test]
async fn a_button_that_is_pressed_twice_leads_to_the_secret_that_it_has_made() {
    let tollgate = Tollgate::start().await;
    let tenant = tollgate.tenant("Tenant", NodeLimits::default()).await;
    let mut operator = Window::operator(&tollgate).await;
    operator.issue_key(&tenant.to_string(), "notebook").await;
    let key = operator.visit("/keys").await.table(&["Name"]).links[0].clone();
    let form = operator
        .visit(&format!("{key}/rotate"))
        .await
        .form("/console/keys/rotate");
    let first = operator.browser.post_form(&form.action, &form.data()).await;
    assert_eq!(first.header("location"), "/keys/issued", "{}", first.text());
    let page = operator.send(&form).await;
    assert_eq!(page.path(), "/keys/issued", "{}", page.content());
    assert!(!page.text("#secret").is_empty());
    // What was shown is no reason any more.
    let page = operator.send(&form).await;
    assert_eq!(page.path(), format!("{key}/rotate"), "{}", page.content());
}

#[tokio::test]
async fn a_page_that_was_overtaken_rotates_nothing_and_says_which_secret_is_in_force() {
    let tollgate = Tollgate::start().await;
    let (_, first) = issued(&tollgate).await;
    let mut one = Window::operator(&tollgate).await;
    let mut other = Window::open(&tollgate, "/sign-in").await;
    other.sign_in(OPERATOR, PASSWORD).await;
    let address = format!("/keys/{}/rotate", first.row.id);
    let form = one.visit(&address).await.form("/console/keys/rotate");
    let stale = other.visit(&address).await.form("/console/keys/rotate");
    one.send(&form.choose("overlap", "Ends now")).await;
    let second = one.page.text("#secret");

    other.send(&stale).await;
    assert_eq!(other.page.path(), address, "no secret is shown");
    let told = other.page.notices().concat();
    assert!(told.contains("it was not rotated now"), "{told}");
    assert!(told.contains("The secret in force is the one of"), "{told}");
    let (control, actor, now) = (tollgate.control(), tollgate.actor(), tollgate.clock.wall());
    let version = first.row.version;
    let stale = control
        .rotate_key(&actor, first.row.id, version, Overlap::AT_ONCE, now)
        .await;
    assert!(matches!(stale, Err(ControlError::Conflict { .. })), "{stale:?}");
    tollgate.in_force().await;
    assert_eq!(status(&tollgate, &first).await, 401);
    assert_eq!(tollgate.chat(&second, "Hello.").await.status, 200);
    assert_eq!(audited(&tollgate).await, ["key.issue", "key.rotate"]);

    // Whoever goes on knowingly rotates the key as it is now.
    let form = other.page.form("/console/keys/rotate");
    other.send(&form).await;
    let third = other.page.text("#secret");
    tollgate.in_force().await;
    for secret in [&second, &third] {
        assert_eq!(tollgate.chat(secret, "Hello.").await.status, 200);
    }
}

#[tokio::test]
async fn a_page_whose_key_was_revoked_meanwhile_says_so() {
    let tollgate = Tollgate::start().await;
    let (_, key) = issued(&tollgate).await;
    let mut window = Window::operator(&tollgate).await;
    let address = format!("/keys/{}", key.row.id);
    let edit = window.visit(&address).await.form("/console/keys/edit");
    let limits = window.page.form("/console/keys/own-limits");
    let rotate = format!("{address}/rotate");
    let rotation = window.visit(&rotate).await.form("/console/keys/rotate");
    let now = tollgate.clock.wall();
    let revoked = tollgate.control().revoke_key(&tollgate.actor(), key.row.id, now).await;
    revoked.expect("revoked");
    for form in [&edit, &limits, &rotation] {
        window.send(form).await;
        let told = window.page.notices().concat();
        assert!(
            told.contains("this key was revoked") || told.contains("This key was revoked"),
            "{told}"
        );
    }
    assert!(window.page.forms("/console/keys/rotate").is_empty());
}

fn draft(name: &str, expiry: Expiry) -> KeyDraft {
    KeyDraft {
        name: name.to_owned(),
        priority: Priority::Default,
        allowed_models: None,
        may_name_users: false,
        degrades: false,
        expiry,
    }
}

//! A key tells its caller what it may do and what is left; the console tells its owner how it is used, and tries it.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use control::keys::{Expiry, IssuedKey, KeyCheck, KeyDraft, KeyOwner};
use control::limits::NodeLimits;
use domain::ids::TenantId;
use domain::key_rotation::Overlap;
use domain::limits::{Dimension, Scope, Target};
use domain::people::Role;
use domain::priority::Priority;
use http::Method;
use serde_json::{Value, json};
use test_redis::RedisServer;
use test_support::clock::zone_at_noon;
use test_support::console::Window;
use test_support::http::Answer;
use test_support::tollgate::{MODEL, Options, Tollgate, limit};

use crate::fleet::shared;

async fn show(tollgate: &Tollgate, key: &str, more: &[(&str, &str)]) -> Answer {
    let bearer = format!("Bearer {key}");
    let mut headers = vec![("authorization", bearer.as_str())];
    headers.extend(more);
    let mut browser = tollgate.browser();
    browser.send(Method::GET, "/v1/key", &headers, Bytes::new()).await
}

fn limit_of<'a>(body: &'a Value, scope: &str, dimension: &str) -> &'a Value {
    let limits = body["limits"].as_array().expect("limits");
    let found = limits
        .iter()
        .find(|limit| limit["scope"] == scope && limit["dimension"] == dimension);
    found.unwrap_or_else(|| panic!("no {scope} {dimension} in {body}"))
}

async fn what_is_left(tollgate: &Tollgate) {
    let tenant = tollgate
        .tenant(
            "Tenant",
            NodeLimits {
                monthly_tokens: Some(10_000),
                ..NodeLimits::default()
            },
        )
        .await;
    let issued = tollgate.issue(tenant).await;
    let of_key = Target::Node(Scope::Key(issued.row.id));
    let version = tollgate
        .set_limit(of_key.clone(), 0, &limit(Dimension::Requests, 5))
        .await;
    tollgate
        .set_limit(of_key, version, &limit(Dimension::BudgetCost, 2_000_000_000))
        .await;
    // What is shared with others is nobody's business.
    tollgate
        .set_limit(Target::Node(Scope::Global), 0, &limit(Dimension::Requests, 900))
        .await;
    let key = issued.text.reveal();
    assert_eq!(tollgate.chat(key, "Hello. [[sim: tokens=100]]").await.status, 200);
    tollgate.shipped().await;

    let answer = show(tollgate, key, &[]).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("cache-control"), "no-store");
    let body = answer.json();
    assert_eq!(body["id"], json!(issued.row.id));
    assert_eq!(body["key"], format!("sk-tg-{}-…", issued.row.public_id));
    assert_eq!(body["priority"], "default");
    assert_eq!(body["models"], Value::Null);
    assert_eq!(body["secret_valid_until"], Value::Null);
    assert_eq!(body["limits"].as_array().expect("limits").len(), 3, "{body}");
    let scope = format!("key:{}", issued.row.id);
    let requests = limit_of(&body, &scope, "requests");
    assert_eq!((&requests["used"], &requests["remaining"]), (&json!(1), &json!(4)));
    let resets: DateTime<Utc> = requests["resets_at"]
        .as_str()
        .expect("an instant")
        .parse()
        .expect("RFC 3339");
    let seconds = (resets - tollgate.clock.wall()).num_seconds();
    assert!((0..=65).contains(&seconds), "{seconds}");
    let money = limit_of(&body, &scope, "budget_cost");
    assert_eq!(money["limit"], "2.00");
    let tokens = limit_of(&body, &format!("tenant:{tenant}"), "budget_tokens");
    let used = tokens["used"].as_i64().expect("a count");
    assert!(used > 100, "{used}");
    assert_eq!(tokens["remaining"], json!(10_000 - used));
    // It costs nothing and leaves no row.
    let again = show(tollgate, key, &[]).await.json();
    assert_eq!(limit_of(&again, &scope, "requests")["used"], json!(1));
    tollgate.shipped().await;
    let rows: i64 = sqlx::query_scalar("select (select count(*) from settlements) + (select count(*) from rejections)")
        .fetch_one(&mut tollgate.sql().await)
        .await
        .expect("a count");
    assert_eq!(rows, 1);
}

fn at_noon() -> Options {
    Options {
        time_zone: Some(zone_at_noon()),
        ..Options::default()
    }
}

#[tokio::test]
async fn a_key_reads_what_is_left_of_its_own_limits() {
    what_is_left(&Tollgate::start_with(at_noon()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_reads_what_is_left_of_its_own_limits_in_redis() {
    let redis = RedisServer::start().await;
    let options = Options {
        time_zone: Some(zone_at_noon()),
        ..shared(redis.url())
    };
    what_is_left(&Tollgate::start_with(options).await).await;
}

#[tokio::test]
async fn a_key_reads_of_its_user_and_of_the_end_user_it_names_and_nobody_else_reads_it() {
    let tollgate = Tollgate::start().await;
    let tenant = tollgate.tenant("Tenant", NodeLimits::default()).await;
    let each_end_user = Target::OfTenant(tenant, domain::limits::Class::EndUser);
    tollgate
        .set_limit(each_end_user, 0, &limit(Dimension::Requests, 7))
        .await;
    let issued = tollgate.issue(tenant).await;
    tollgate.in_force().await;
    let key = issued.text.reveal();
    let body = show(&tollgate, key, &[("x-tollgate-user", "ada")]).await.json();
    let of_ada = limit_of(&body, &format!("user:{tenant}/ada"), "requests");
    assert_eq!(of_ada["limit"], 7);
    assert_eq!(show(&tollgate, key, &[]).await.json()["limits"], json!([]));

    let version = issued.row.version;
    let rotated = tollgate
        .control()
        .rotate_key(
            &tollgate.actor(),
            issued.row.id,
            version,
            Overlap::default(),
            tollgate.clock.wall(),
        )
        .await
        .expect("rotated");
    tollgate.in_force().await;
    let old = show(&tollgate, key, &[]).await;
    assert!(old.json()["secret_valid_until"].is_string());
    assert!(old.headers.contains_key("x-tollgate-key-expires"));
    let new = show(&tollgate, rotated.text.reveal(), &[]).await;
    assert_eq!(new.json()["secret_valid_until"], Value::Null);

    assert_eq!(show(&tollgate, "sk-tg-wrong", &[]).await.status, 401);
    let control = tollgate.control();
    control
        .revoke_key(&tollgate.actor(), issued.row.id, Utc::now())
        .await
        .expect("revoked");
    tollgate.in_force().await;
    assert_eq!(show(&tollgate, key, &[]).await.code(), "key_revoked");
}

async fn version(tollgate: &Tollgate) -> i64 {
    sqlx::query_scalar("select version from policy_version")
        .fetch_one(&mut tollgate.sql().await)
        .await
        .expect("a version")
}

#[tokio::test]
async fn when_a_key_was_used_is_written_down_without_a_new_policy() {
    let tollgate = Tollgate::start_with(at_noon()).await;
    let limits = NodeLimits {
        requests_per_minute: Some(1),
        ..NodeLimits::default()
    };
    let tenant = tollgate.tenant("Tenant", NodeLimits::default()).await;
    let issued = tollgate.issue(tenant).await;
    let control = tollgate.control();
    let of_key = Target::Node(Scope::Key(issued.row.id));
    control
        .set_limits(&tollgate.actor(), &of_key, 0, &limits, Utc::now())
        .await
        .expect("a limit");
    tollgate.in_force().await;
    let before = version(&tollgate).await;
    assert_eq!(issued.row.last_used_at, None);
    let text = "Hello. [[sim: tokens=1000]]";
    assert_eq!(tollgate.chat(issued.text.reveal(), text).await.status, 200);
    assert_eq!(tollgate.chat(issued.text.reveal(), text).await.status, 429);
    tollgate.shipped().await;
    let gateway = &tollgate.running.gateway;
    gateway.write_key_uses().await.expect("written");
    let row = control.key(&tollgate.actor(), issued.row.id).await.expect("a key");
    let used = row.last_used_at.expect("it was used");
    assert!((tollgate.clock.wall() - used).num_seconds() < 60);
    assert_eq!(version(&tollgate).await, before, "gateways have nothing to read");
    assert_eq!(row.version, issued.row.version, "and editors no conflict");

    // A rotation takes the secret and leaves the key's last use.
    let now = tollgate.clock.wall();
    let rotated = control
        .rotate_key(&tollgate.actor(), row.id, row.version, Overlap::default(), now)
        .await;
    let rotated = rotated.expect("rotated").row;
    assert_eq!(rotated.old_secret_used_at, Some(used));
    let rotated = control
        .rotate_key(&tollgate.actor(), row.id, rotated.version, Overlap::AT_ONCE, now)
        .await;
    assert_eq!(rotated.expect("rotated").row.last_used_at, Some(used));

    let months = control
        .key_months(&tollgate.actor(), std::slice::from_ref(&row), now)
        .await;
    let month = months.expect("sums")[&row.id];
    assert_eq!(month.refusals, 1);
    let spent: i64 = sqlx::query_scalar("select sum(cost_nanos)::bigint from settlements")
        .fetch_one(&mut tollgate.sql().await)
        .await
        .expect("a sum");
    assert_eq!(month.cost.0, spent);
    assert!(spent > 0);
    let mut window = Window::operator(&tollgate).await;
    window.visit("/keys").await;
    let table = window.page.table(&[
        "Name",
        "Key",
        "State",
        "Tenant",
        "Owner",
        "Priority",
        "Models",
        "Expires",
        "Last used",
        "Spent",
        "Refused",
    ]);
    assert_eq!(table.cell("application", "Refused"), "1");
    assert_ne!(table.cell("application", "Last used"), "not yet");
}

async fn member_key(tollgate: &Tollgate, window: &mut Window) -> String {
    let secret = window.issue_key("", "notebook").await;
    tollgate.in_force().await;
    secret
}

#[tokio::test]
async fn a_key_that_was_issued_comes_with_what_connects_and_is_tried_by_a_button() {
    let tollgate = Tollgate::start().await;
    let tenant = tollgate.tenant("Tenant", NodeLimits::default()).await;
    let mut window = Window::person(&tollgate, Role::Member, Some(tenant)).await;
    let secret = member_key(&tollgate, &mut window).await;
    for id in ["#environment", "#curl", "#python", "#node"] {
        assert!(window.page.text(id).contains(&secret), "{id}");
    }
    assert!(window.page.text("#node").contains(MODEL));
    let form = window.page.form("/console/keys/check");
    window.send(&form).await;
    let works = format!("The gateway knows this key, and would admit a short chat request for {MODEL} now.");
    assert_eq!(window.page.notices(), [works.as_str()]);
    assert!(!window.page.content().contains(&secret));
}

#[tokio::test]
async fn a_secret_whose_page_fails_is_shown_by_the_next_one_and_once() {
    let tollgate = Tollgate::start().await;
    let tenant = tollgate.tenant("Tenant", NodeLimits::default()).await;
    let other = tollgate.tenant("Other", NodeLimits::default()).await;
    let mut window = Window::person(&tollgate, Role::Manager, Some(tenant)).await;
    let form = window.visit(&format!("/keys/new?tenant={tenant}")).await;
    let form = form.form("/console/keys/issue").fill("name", "notebook");
    let answer = window.browser.post_form(&form.action, &form.data()).await;
    assert_eq!(answer.header("location"), "/keys/issued", "{}", answer.text());

    // For a moment the key is nothing that they may see.
    let mut sql = tollgate.sql().await;
    let mut move_to = async |tenant: TenantId| {
        sqlx::query("update people set tenant_id = $1 where role = 'manager'")
            .bind(tenant.0)
            .execute(&mut sql)
            .await
            .expect("moved");
    };
    move_to(other).await;
    let page = window.visit("/keys/issued").await;
    assert_eq!(page.status, 404, "{}", page.content());
    move_to(tenant).await;

    // Nor does the page of another kind of secret use it up.
    let page = window.visit("/people/link").await;
    assert_eq!(page.heading(), "This link was shown already");
    assert!(!window.visit("/keys/issued").await.text("#secret").is_empty());
    let page = window.visit("/keys/issued").await;
    assert!(page.texts("#secret").is_empty(), "once");
    assert_eq!(page.status, 200);
}

async fn check(tollgate: &Tollgate, key: &IssuedKey) -> KeyCheck {
    let now = tollgate.clock.wall();
    let checked = tollgate.control().check_key(&tollgate.actor(), key.row.id, now).await;
    checked.expect("checked")
}

#[tokio::test]
async fn trying_a_key_says_why_it_would_be_refused() {
    let tollgate = Tollgate::start().await;
    let tenant = tollgate.tenant("Tenant", NodeLimits::default()).await;
    let draft = KeyDraft {
        name: "key".to_owned(),
        priority: Priority::Default,
        allowed_models: None,
        may_name_users: false,
        degrades: false,
        expiry: Expiry::Never,
    };
    let control = tollgate.control();
    let issued = control
        .issue_key(&tollgate.actor(), tenant, KeyOwner::Service, &draft, Utc::now())
        .await;
    let issued = issued.expect("a key");
    tollgate.in_force().await;
    assert!(check(&tollgate, &issued).await.is_good());
    let of_key = Target::Node(Scope::Key(issued.row.id));
    tollgate.set_limit(of_key, 0, &limit(Dimension::Requests, 1)).await;
    assert_eq!(tollgate.chat(issued.text.reveal(), "Hello.").await.status, 200);
    let refused = check(&tollgate, &issued).await;
    let refused = refused.words().to_string();
    assert!(refused.contains("would refuse"), "{refused}");
    control
        .revoke_key(&tollgate.actor(), issued.row.id, Utc::now())
        .await
        .expect("revoked");
    tollgate.in_force().await;
    assert!(check(&tollgate, &issued).await.words().to_string().contains("revoked"));
    assert_eq!(tollgate.simulator.stats().requests_received, 1, "nothing was sent");
}

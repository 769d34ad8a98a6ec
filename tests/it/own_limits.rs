//! The owner of a key holds it below what operators allow, and never above.

use chrono::Utc;
use control::keys::{Expiry, KeyDraft, KeyOwner};
use control::limits::NodeLimits;
use control::rows::KeyRow;
use control::{Actor, ControlError};
use domain::ids::TenantId;
use domain::limits::{Class, Dimension, Target};
use domain::people::Role;
use domain::priority::Priority;
use test_redis::RedisServer;
use test_support::console::Window;
use test_support::tollgate::{Tollgate, limit};

use crate::fleet::shared;

async fn person(tollgate: &Tollgate, role: Role, tenant: TenantId) -> Actor {
    Window::person(tollgate, role, Some(tenant)).await;
    let people = tollgate
        .control()
        .people(&tollgate.actor(), Some(tenant))
        .await
        .expect("people");
    let person = people
        .into_iter()
        .find(|person| person.role == role)
        .expect("the person");
    Actor::person(&person, None)
}

async fn set(tollgate: &Tollgate, actor: &Actor, key: &KeyRow, limits: &NodeLimits) -> Result<KeyRow, ControlError> {
    let control = tollgate.control();
    let version = control.key(actor, key.id).await.expect("a key").version;
    let set = control.set_own_limits(actor, key.id, version, limits, Utc::now()).await;
    tollgate.in_force().await;
    set
}

fn requests(most: u64) -> NodeLimits {
    NodeLimits {
        requests_per_minute: Some(most),
        ..NodeLimits::default()
    }
}

async fn the_lower_holds(tollgate: &Tollgate) {
    let tenant = tollgate.tenant("Tenant", NodeLimits::default()).await;
    let each_key = Target::OfTenant(tenant, Class::Key);
    tollgate.set_limit(each_key, 0, &limit(Dimension::Requests, 3)).await;
    let member = person(tollgate, Role::Member, tenant).await;
    let draft = KeyDraft {
        name: "mine".to_owned(),
        priority: Priority::Default,
        allowed_models: None,
        may_name_users: false,
        degrades: false,
        expiry: Expiry::Never,
    };
    let owner = KeyOwner::Person(member.person_id().expect("a person"));
    let issued = tollgate
        .control()
        .issue_key(&member, tenant, owner, &draft, Utc::now())
        .await;
    let issued = issued.expect("a key");
    tollgate.in_force().await;
    let ask = async || tollgate.chat(issued.text.reveal(), "Hello.").await.status;

    // Above what operators allow it changes nothing.
    set(tollgate, &member, &issued.row, &requests(100)).await.expect("set");
    assert_eq!(ask().await, 200);
    // Below it holds at once, and what was counted counts.
    set(tollgate, &member, &issued.row, &requests(2)).await.expect("set");
    assert_eq!(ask().await, 200);
    assert_eq!(ask().await, 429);
    // Taken away, the operators' is what holds.
    set(tollgate, &member, &issued.row, &NodeLimits::default())
        .await
        .expect("set");
    assert_eq!(ask().await, 200);
    assert_eq!(ask().await, 429);
}

#[tokio::test]
async fn the_lower_of_owners_and_operators_limit_holds() {
    the_lower_holds(&Tollgate::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lower_of_owners_and_operators_limit_holds_in_redis() {
    let redis = RedisServer::start().await;
    the_lower_holds(&Tollgate::start_with(shared(redis.url())).await).await;
}

#[tokio::test]
async fn an_owner_sets_a_budget_on_the_keys_page_and_nobody_else_does() {
    let tollgate = Tollgate::start().await;
    let tenant = tollgate.tenant("Tenant", NodeLimits::default()).await;
    let mut window = Window::person(&tollgate, Role::Member, Some(tenant)).await;
    let secret = window.issue_key("", "notebook").await;
    let page = window.page.link("Done");
    window.visit(&page).await;
    let form = window
        .page
        .form("/console/keys/own-limits")
        .fill("monthly_tokens", "600");
    window.send(&form).await;
    assert_eq!(window.page.notices(), ["Saved."]);
    let form = window.page.form("/console/keys/own-limits");
    assert_eq!(form.value("monthly_tokens"), "600");
    tollgate.in_force().await;
    let text = "Hello. [[sim: tokens=400]]";
    assert_eq!(tollgate.chat(&secret, text).await.status, 200);
    assert_eq!(tollgate.chat(&secret, text).await.code(), "budget_exhausted");
    tollgate.shipped().await;

    let manager = person(&tollgate, Role::Manager, tenant).await;
    let control = tollgate.control();
    let keys = control
        .keys(
            &manager,
            control::rows::KeyFilter {
                count: 10,
                ..Default::default()
            },
        )
        .await;
    let key = keys
        .expect("keys")
        .into_iter()
        .find(|key| key.name == "notebook")
        .expect("the key");
    for actor in [&manager, &tollgate.actor()] {
        let refused = set(&tollgate, actor, &key, &NodeLimits::default()).await;
        assert!(matches!(refused, Err(ControlError::Forbidden)), "{refused:?}");
    }
    let stale = control
        .set_own_limits(
            &manager,
            tollgate.issue(tenant).await.row.id,
            99,
            &requests(1),
            Utc::now(),
        )
        .await;
    assert!(
        matches!(stale, Err(ControlError::Conflict { .. })),
        "a service account's key is its managers': {stale:?}"
    );
    // A rotation takes nothing of it away.
    let version = control.key(&manager, key.id).await.expect("a key").version;
    let overlap = domain::key_rotation::Overlap::AT_ONCE;
    let rotated = control
        .rotate_key(&manager, key.id, version, overlap, Utc::now())
        .await
        .expect("rotated");
    tollgate.in_force().await;
    assert_eq!(
        tollgate.chat(rotated.text.reveal(), text).await.code(),
        "budget_exhausted"
    );
}

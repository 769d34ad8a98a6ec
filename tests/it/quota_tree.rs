//! The page of the quota tree: what each limit says now and for whom, and that a long page stays short.

use std::sync::Arc;

use chrono::Utc;
use control::keys::{Expiry, KeyDraft, KeyOwner};
use control::limits::{LimitDraft, NodeLimits};
use control::live::LiveError;
use control::quota_tree::{NODES_SHOWN_MAX, TreeFilter};
use control::{Control, ControlError, SystemRandom};
use domain::ids::TenantId;
use domain::limits::{Class, Dimension, Gates, Mode, Scope, Target};
use domain::money::Nanos;
use domain::people::Role;
use domain::priority::Priority;
use store::sealing::SecretKey;
use test_support::console::Window;
use test_support::html::Page;
use test_support::tollgate::{MODEL, Options, Tollgate};

/// The gauges of a list, as text.
fn gauges(page: &Page, list: &str) -> Vec<String> {
    page.texts(&format!("{list} > .gauge"))
}

/// The gauge that begins so.
fn gauge(page: &Page, start: &str) -> String {
    let all = gauges(page, ".node .gauges");
    let found = all.iter().find(|gauge| gauge.starts_with(start));
    found
        .unwrap_or_else(|| panic!("no gauge begins with `{start}`: {all:?}"))
        .clone()
}

fn names(page: &Page) -> Vec<String> {
    page.texts(".node h3")
}

fn requests(value: u64) -> LimitDraft {
    test_support::tollgate::limit(Dimension::Requests, value)
}

async fn limit(tollgate: &Tollgate, target: Target, draft: &LimitDraft) {
    tollgate
        .control()
        .set_limit(&tollgate.actor(), &target, 0, draft, Utc::now())
        .await
        .expect("the limit is set");
}

fn opened(tenant: TenantId) -> String {
    format!("/quota-tree?open=tenant:{tenant}")
}

#[tokio::test]
async fn each_limit_says_what_is_used_of_it_now_and_the_tightest_come_first() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate
        .named_tenant_with_key(
            "Research",
            NodeLimits {
                requests_per_minute: Some(4),
                monthly_cost: Some(Nanos::from_units(10)),
                ..NodeLimits::default()
            },
        )
        .await;
    let gated = LimitDraft {
        gates: Some(Gates {
            lower_percent: 40,
            upper_percent: 90,
            upper_waits: false,
        }),
        ..requests(5)
    };
    limit(&tollgate, Target::Node(Scope::Global), &gated).await;
    let rehearsed = LimitDraft {
        mode: Mode::Rehearse,
        ..requests(1)
    };
    limit(&tollgate, Target::Node(Scope::Model(MODEL.into())), &rehearsed).await;
    tollgate.in_force().await;
    let mut operator = Window::operator(&tollgate).await;
    operator.visit("/quota-tree").await;
    assert!(
        operator.page.content().contains("Nothing is in use"),
        "{}",
        operator.page.content()
    );

    for _ in 0..3 {
        assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
    }
    let page = operator.visit("/quota-tree").await.clone();
    assert_eq!(names(&page)[0], "The installation");
    let global = gauge(&page, "Requests per minute 3 of 5 60 %");
    assert!(global.contains("Gates at 40 % and 90 %. low is held back"), "{global}");
    assert_eq!(page.texts(".node .gated line").len(), 2);
    let rehearsed = gauge(&page, "Requests per minute rehearsed");
    assert!(
        rehearsed.contains("3 of 1 300 %") && rehearsed.contains("0 left"),
        "{rehearsed}"
    );
    let tenant_rate = gauge(&page, "Requests per minute 3 of 4 75 %");
    assert!(tenant_rate.contains("1 left; unused again in"), "{tenant_rate}");
    let budget = gauge(&page, "Budget per month USD");
    assert!(
        budget.contains("of USD\u{a0}10") || budget.contains("of USD 10"),
        "{budget}"
    );

    // The fullest that refuse: the rehearsed one is not among them.
    let tightest = gauges(&page, "ol.gauges");
    assert!(
        tightest[0].starts_with("Research: Requests per minute 3 of 4 75 %"),
        "{tightest:?}"
    );
    assert!(tightest[1].starts_with("The installation: Requests"), "{tightest:?}");
    assert!(
        tightest.iter().all(|gauge| !gauge.contains("rehearsed")),
        "{tightest:?}"
    );
    assert_eq!(
        page.texts(".gauge-tightest").len(),
        2,
        "both that are half full, at least"
    );
    assert!(page.content().contains("Counted in the memory of this gateway."));
    assert!(page.content().contains("As of "));

    // From every node to its limits and to an explanation.
    let links = page.links();
    for link in [
        "/limits?of=global".to_owned(),
        format!("/limits?of=model%3A{MODEL}"),
        format!("/limits?of=tenant%3A{tenant}"),
        format!("/explain?model={MODEL}"),
        "/explain?key=Research".to_owned(),
        format!("/quota-tree?open=tenant%3A{tenant}"),
    ] {
        assert!(links.contains(&link), "{link} is not among {links:?}");
    }
}

#[tokio::test]
async fn a_tenant_opens_to_its_users_and_keys() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.named_tenant_with_key("Research", NodeLimits::default()).await;
    let mut operator = Window::operator(&tollgate).await;
    Window::person(&tollgate, Role::Member, Some(tenant)).await;
    limit(&tollgate, Target::OfTenant(tenant, Class::Key), &requests(10)).await;
    limit(&tollgate, Target::OfTenant(tenant, Class::User), &requests(7)).await;
    let end_user = Target::Node(Scope::User(tenant, "anna".into()));
    limit(&tollgate, end_user, &requests(3)).await;
    tollgate.in_force().await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);

    operator.visit("/quota-tree").await;
    let link = operator.page.link("Research");
    let page = operator.visit(&link).await.clone();
    let names = names(&page);
    assert_eq!(names[0], "Research");
    for name in ["The member member@example.com", "anna end user"] {
        assert!(names.contains(&name.to_owned()), "{names:?}");
    }
    assert!(
        names.iter().any(|name| name.starts_with("application sk-tg-")),
        "{names:?}"
    );
    let of_key = gauge(&page, "Requests per minute as for each here 1 of 10 10 %");
    assert!(of_key.contains("9 left"), "{of_key}");
    // An end user has no key, and is named by an application's.
    assert!(page.links().contains(&"/explain?user=anna".to_owned()));
    assert!(page.links().contains(&"/explain?key=The%20member".to_owned()));
    gauge(&page, "Requests per minute as for each here 0 of 7");
    gauge(&page, "Requests per minute 0 of 3");
    let classes = page.table(&["For each", "Limit", "Value", "Set by"]);
    assert_eq!(classes.cell("key", "Value"), "10");
    assert_eq!(classes.cell("user", "Set by"), "tenant");
    let tightest = gauges(&page, "ol.gauges");
    assert!(tightest[0].starts_with("application: "), "{tightest:?}");

    // Found by name: of users by their own, of keys also by their owner's.
    let form = page.form("/quota-tree").fill("find", "ANN");
    let page = operator.send(&form).await;
    let found = self::names(page);
    assert_eq!(found, ["Research", "anna end user"], "{}", page.address);
    assert_eq!(operator.visit("/quota-tree?open=tenant:nothing").await.status, 404);
    assert_eq!(operator.visit("/quota-tree?open=global").await.status, 404);
    let stranger = TenantId(uuid::Uuid::from_u128(1));
    assert_eq!(operator.visit(&opened(stranger)).await.status, 404);
}

#[tokio::test]
async fn people_of_a_tenant_see_their_own_part_and_nothing_shared() {
    let tollgate = Tollgate::start().await;
    let (own, _) = tollgate
        .named_tenant_with_key(
            "Research",
            NodeLimits {
                requests_per_minute: Some(40),
                ..NodeLimits::default()
            },
        )
        .await;
    let (other, _) = tollgate.named_tenant_with_key("Support", NodeLimits::default()).await;
    limit(&tollgate, Target::Node(Scope::Global), &requests(50)).await;
    for tenant in [own, other] {
        limit(&tollgate, Target::OfTenant(tenant, Class::Key), &requests(10)).await;
    }
    tollgate.in_force().await;
    let mut manager = Window::person(&tollgate, Role::Manager, Some(own)).await;
    let mut member = Window::person(&tollgate, Role::Member, Some(own)).await;
    member.issue_key("", "notebook").await;
    tollgate.in_force().await;

    let page = manager.visit("/quota-tree").await.clone();
    assert_eq!(names(&page)[0], "Research");
    assert_eq!(names(&page).len(), 3, "the tenant and its two keys: {:?}", names(&page));
    for address in [opened(other), opened(own)] {
        let page = manager.visit(&address).await;
        let expected = if address.contains(&own.to_string()) { 200 } else { 404 };
        assert_eq!(page.status, expected, "{address}");
        for hidden in ["The installation", "Support", "simulator"] {
            assert!(!page.content().contains(hidden), "{address} shows {hidden}");
        }
    }

    let page = member.visit("/quota-tree").await.clone();
    assert_eq!(page.heading(), "My limits");
    let names = names(&page);
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(names[0].starts_with("notebook"), "{names:?}");
    for hidden in ["The installation", "Research", "application"] {
        assert!(!page.texts(".node").concat().contains(hidden), "{hidden}");
    }
    assert_eq!(member.visit(&opened(other)).await.status, 404);
}

#[tokio::test]
async fn from_ones_own_limits_one_comes_to_ones_own_keys() {
    let tollgate = Tollgate::start().await;
    let (own, _) = tollgate.named_tenant_with_key("Research", NodeLimits::default()).await;
    limit(&tollgate, Target::OfTenant(own, Class::User), &requests(7)).await;
    let mut member = Window::person(&tollgate, Role::Member, Some(own)).await;
    member.issue_key("", "notebook").await;
    tollgate.in_force().await;
    let page = member.visit("/quota-tree").await;
    let names = names(page);
    assert!(names[0].starts_with("You"), "{names:?}");
    let link = "a[href='/explain'][aria-label='Explain requests of You']";
    assert_eq!(page.texts(link).len(), 1, "{:?}", page.links());
    let page = member.visit("/explain").await;
    // The only key is the one that is meant.
    assert!(page.content().contains("notebook of Research"), "{}", page.content());
    assert_ne!(page.form("/explain").value("key"), "");
    member.issue_key("", "desktop").await;
    let page = member.visit("/explain").await;
    assert_eq!(page.form("/explain").value("key"), "");
}

#[tokio::test]
async fn a_long_list_is_cut_and_found_by_name() {
    let tollgate = Tollgate::start().await;
    for number in 0..NODES_SHOWN_MAX + 3 {
        tollgate
            .tenant(&format!("Team {number:03}"), NodeLimits::default())
            .await;
    }
    tollgate.in_force().await;
    let mut operator = Window::operator(&tollgate).await;
    let page = operator.visit("/quota-tree").await.clone();
    assert!(page.content().contains("3 more. Find them by name."));
    let shown = |page: &Page| names(page).iter().filter(|name| name.starts_with("Team")).count();
    assert_eq!(shown(&page), NODES_SHOWN_MAX);
    let form = page.form("/quota-tree").fill("find", "team 052");
    let page = operator.send(&form).await;
    assert_eq!((shown(page), page.link("Show all").as_str()), (1, "/quota-tree"));
    let page = operator.visit("/quota-tree?find=nobody").await;
    assert!(
        page.content().contains("None has “nobody” in its name."),
        "{}",
        page.content()
    );
}

#[tokio::test]
async fn a_parent_says_where_its_children_may_use_more_than_it_has() {
    let tollgate = Tollgate::start().await;
    limit(&tollgate, Target::Node(Scope::Global), &requests(50)).await;
    for name in ["Research", "Support"] {
        let limits = NodeLimits {
            requests_per_minute: Some(30),
            ..NodeLimits::default()
        };
        tollgate.tenant(name, limits).await;
    }
    tollgate.in_force().await;
    let mut operator = Window::operator(&tollgate).await;
    let page = operator.visit("/quota-tree").await;
    let warnings = page.texts(".node .notice");
    assert_eq!(
        warnings,
        ["Requests per minute: 2 tenants may use 60 together, more than the 50 here."]
    );
}

#[tokio::test]
async fn the_page_of_an_installation_without_tenants_says_what_comes_next() {
    let options = Options {
        is_empty: true,
        ..Options::default()
    };
    let tollgate = Tollgate::start_with(options).await;
    let mut operator = Window::operator(&tollgate).await;
    let page = operator.visit("/quota-tree").await;
    assert!(page.content().contains("No limit holds for everybody together."));
    assert_eq!(page.link("New tenant"), "/tenants/new");
}

#[tokio::test]
async fn a_process_that_serves_no_requests_says_so_instead_of_showing_zeros() {
    let tollgate = Tollgate::start().await;
    let key = SecretKey::from_bytes([7; 32]);
    let control = Control::new(tollgate.running.store.clone(), key, Arc::new(SystemRandom));
    let tree = control
        .quota_tree(&tollgate.actor(), &TreeFilter::default(), Utc::now())
        .await;
    assert!(
        matches!(tree, Err(ControlError::Live(LiveError::NoGateway))),
        "{tree:?}"
    );
}

#[tokio::test]
async fn keys_that_have_ended_are_left_out() {
    let tollgate = Tollgate::start().await;
    let (tenant, _) = tollgate.named_tenant_with_key("Research", NodeLimits::default()).await;
    limit(&tollgate, Target::OfTenant(tenant, Class::Key), &requests(10)).await;
    let now = Utc::now();
    let draft = KeyDraft {
        name: "short-lived".into(),
        priority: Priority::Default,
        allowed_models: None,
        may_name_users: false,
        degrades: false,
        expiry: Expiry::At(now + chrono::Duration::hours(1)),
    };
    let (control, actor) = (tollgate.control(), tollgate.actor());
    control
        .issue_key(&actor, tenant, KeyOwner::Service, &draft, now)
        .await
        .expect("a key");
    tollgate.in_force().await;
    let filter = TreeFilter {
        open: Some(tenant),
        ..TreeFilter::default()
    };
    for (at, expected) in [(now, 2), (now + chrono::Duration::hours(2), 1)] {
        let tree = control.quota_tree(&actor, &filter, at).await.expect("the tree");
        let control::quota_tree::TreePart::Tenant { keys, .. } = tree.part else {
            panic!("a tenant was opened");
        };
        assert_eq!(keys.shown.len(), expected);
    }
}

//! The list of keys: its orders, its pages, and that each order is led by an index.

use std::path::Path;

use chrono::{DateTime, Duration, Utc};
use control::limits::NodeLimits;
use control::people::PersonDraft;
use control::rows::{KeyFilter, KeyOrder, KeyRow};
use domain::ids::{KeyId, TenantId};
use domain::people::Role;
use domain::priority::Priority;
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection};
use test_support::console::Window;
use test_support::html::Page;
use test_support::postgres;
use test_support::tollgate::Tollgate;

const ORDERS: [KeyOrder; 5] = [
    KeyOrder::Newest,
    KeyOrder::Name,
    KeyOrder::NameBackwards,
    KeyOrder::Unused,
    KeyOrder::Used,
];
const TENANT: &str = "0198c5e2-1b5a-7c3e-9d0f-2a4b6c8d0e1f";

async fn listed(tollgate: &Tollgate, filter: &KeyFilter) -> Vec<KeyRow> {
    let keys = tollgate.control().keys(&tollgate.actor(), filter.clone()).await;
    keys.expect("keys")
}

async fn all_in(tollgate: &Tollgate, order: KeyOrder) -> Vec<KeyRow> {
    let filter = KeyFilter {
        order,
        count: 100,
        ..KeyFilter::default()
    };
    listed(tollgate, &filter).await
}

async fn used(sql: &mut PgConnection, key: KeyId, at: DateTime<Utc>) {
    sqlx::query("insert into key_uses (key_id, last_used_at) values ($1, $2)")
        .bind(key.0)
        .bind(at)
        .execute(sql)
        .await
        .expect("a use");
}

/// Keys of which some have the same name, but for its case, were last used at the same instant, or never.
async fn with_keys() -> (Tollgate, TenantId) {
    let tollgate = Tollgate::start().await;
    let tenant = tollgate.tenant("Acme", NodeLimits::default()).await;
    let mut sql = tollgate.sql().await;
    let now = Utc::now();
    for (name, used_hours_ago) in [
        ("beta", Some(3)),
        ("Alpha", None),
        ("alpha", Some(1)),
        ("gamma_1", Some(3)),
        ("Beta", None),
        ("delta", Some(7)),
        ("alpha", None),
    ] {
        let key = tollgate.issue_at(tenant, name, Priority::Default).await.row;
        if let Some(hours) = used_hours_ago {
            used(&mut sql, key.id, now - Duration::hours(hours)).await;
        }
    }
    (tollgate, tenant)
}

#[tokio::test]
async fn every_order_meets_each_key_once_on_pages_of_any_length() {
    let (tollgate, _) = with_keys().await;
    for order in ORDERS {
        let all: Vec<KeyId> = all_in(&tollgate, order).await.iter().map(|key| key.id).collect();
        assert_eq!(all.len(), 7, "{order:?}");
        for count in 1..=7 {
            let mut met = Vec::new();
            let mut after = None;
            loop {
                let filter = KeyFilter {
                    order,
                    after,
                    count,
                    ..KeyFilter::default()
                };
                let page = listed(&tollgate, &filter).await;
                let Some(last) = page.last() else { break };
                after = Some(order.place(last));
                met.extend(page.iter().map(|key| key.id));
                assert!(met.len() <= all.len(), "{order:?} {count}: it ends");
            }
            assert_eq!(met, all, "{order:?} {count}");
        }
    }
}

#[tokio::test]
async fn orders_are_what_they_say_and_the_other_way_round() {
    let (tollgate, _) = with_keys().await;
    let by_name = all_in(&tollgate, KeyOrder::Name).await;
    let names: Vec<String> = by_name.iter().map(|key| key.name.to_lowercase()).collect();
    assert_eq!(names, ["alpha", "alpha", "alpha", "beta", "beta", "delta", "gamma_1"]);
    let unused = all_in(&tollgate, KeyOrder::Unused).await;
    let issued: Vec<DateTime<Utc>> = unused[..3].iter().map(|key| key.created_at).collect();
    assert!(unused[..3].iter().all(|key| key.last_used_at.is_none()));
    assert!(
        issued.is_sorted(),
        "the oldest of those that were never used first: {issued:?}"
    );
    let uses: Vec<DateTime<Utc>> = unused[3..].iter().filter_map(|key| key.last_used_at).collect();
    assert!(uses.len() == 4 && uses.is_sorted(), "then the longest unused: {uses:?}");
    assert_eq!(unused[3].name, "delta");
    for (order, backwards) in [
        (KeyOrder::Name, KeyOrder::NameBackwards),
        (KeyOrder::Unused, KeyOrder::Used),
    ] {
        let mut turned = all_in(&tollgate, backwards).await;
        turned.reverse();
        assert_eq!(all_in(&tollgate, order).await, turned);
    }
}

#[tokio::test]
async fn keys_are_found_by_their_owners_and_tenants_names_in_every_order() {
    let (tollgate, _) = with_keys().await;
    let other = tollgate.tenant("Other", NodeLimits::default()).await;
    let draft = PersonDraft {
        name: "Mia Malone".to_owned(),
        email: "mia@example.com".to_owned(),
        role: Role::Member,
        tenant_id: Some(other),
    };
    let control = tollgate.control();
    let mia = control.invite_person(&tollgate.actor(), &draft, Utc::now()).await;
    let mia = mia.expect("an invitation").person.id;
    let service = tollgate.issue_at(other, "service", Priority::Default).await.row.id;
    let own = tollgate.issue_at(other, "own", Priority::Default).await.row.id;
    sqlx::query("update keys set owner_id = $1 where id = $2")
        .bind(mia.0)
        .bind(own.0)
        .execute(&mut tollgate.sql().await)
        .await
        .expect("an owner");
    for order in ORDERS {
        let found = async |containing: &str| {
            let filter = KeyFilter {
                order,
                containing: Some(containing.to_owned()),
                count: 100,
                ..KeyFilter::default()
            };
            let mut found: Vec<KeyId> = listed(&tollgate, &filter).await.iter().map(|key| key.id).collect();
            found.sort();
            found
        };
        let mut of_other = [service, own];
        of_other.sort();
        assert_eq!(found("mALONE").await, [own], "{order:?}");
        assert_eq!(found("oTHER").await, of_other, "{order:?}");
        assert_eq!(found("lph").await.len(), 3, "{order:?}");
        assert!(found("nobody").await.is_empty(), "{order:?}");
    }
}

fn names(page: &Page) -> Vec<String> {
    page.table(&["Name", "Last used"]).column("Name")
}

#[tokio::test]
async fn the_page_is_ordered_by_its_headings_and_says_so() {
    let (tollgate, _) = with_keys().await;
    let mut operator = Window::operator(&tollgate).await;
    let page = operator.visit("/keys").await;
    let newest = names(page);
    assert_eq!(newest[0], "alpha");
    assert_eq!(page.texts("th[aria-sort]"), Vec::<String>::new());
    let link = page.link("Name");
    let page = operator.visit(&link).await;
    assert_eq!(page.texts("th[aria-sort=ascending]"), ["Name"]);
    assert_eq!(names(page).last().map(String::as_str), Some("gamma_1"));
    let link = page.link("Name");
    let page = operator.visit(&link).await;
    assert_eq!(page.texts("th[aria-sort=descending]"), ["Name"]);
    assert_eq!(names(page)[0], "gamma_1");

    // A search keeps the order, and headings keep the search.
    let form = page.form("/keys").fill("find", "A");
    let page = operator.send(&form).await;
    assert_eq!(page.texts("th[aria-sort=descending]"), ["Name"]);
    let form = page.form("/keys").fill("find", "ALPHA");
    let page = operator.send(&form).await;
    let link = page.link("Last used");
    let page = operator.visit(&link).await;
    assert_eq!(page.texts("th[aria-sort=ascending]"), ["Last used"]);
    let uses = page.table(&["Name", "Last used"]).column("Last used");
    assert_eq!(
        (uses.len(), uses[0].as_str(), uses[1].as_str()),
        (3, "not yet", "not yet")
    );
    let link = page.link("The newest first");
    let page = operator.visit(&link).await;
    assert_eq!((names(page).len(), page.texts("th[aria-sort]").len()), (3, 0));

    for wrong in [
        "sort=colour",
        "sort=name&dir=up",
        "after=nonsense",
        "sort=used&after=soon_0198c5e2-1b5a-7c3e-9d0f-2a4b6c8d0e1f",
        "sort=name&after=alpha",
    ] {
        assert_eq!(operator.visit(&format!("/keys?{wrong}")).await.status, 404, "{wrong}");
    }
}

#[tokio::test]
async fn pages_go_on_in_the_order_of_the_first() {
    let (tollgate, tenant) = with_keys().await;
    sqlx::query(
        "insert into keys (id, public_id, tenant_id, name, priority, created_at, created_by, policy_version)
         select gen_random_uuid(), 'bulk' || n, $1, 'Bulk ' || n % 10, 'default', now(), 'test', 0
         from generate_series(1, 120) as n",
    )
    .bind(tenant.0)
    .execute(&mut tollgate.sql().await)
    .await
    .expect("keys");
    let mut operator = Window::operator(&tollgate).await;
    for (address, next) in [
        ("/keys", "Older keys"),
        ("/keys?sort=name", "Next page"),
        ("/keys?sort=name&dir=desc", "Next page"),
        ("/keys?sort=used", "Next page"),
        ("/keys?sort=used&dir=desc", "Next page"),
    ] {
        let page = operator.visit(address).await;
        let keys = |page: &Page| page.table(&["Name", "Key"]).column("Key");
        let mut met = keys(page);
        assert_eq!(met.len(), 100, "{address}");
        let link = page.link(next);
        met.extend(keys(operator.visit(&link).await));
        assert_eq!(met.len(), 127, "{address}");
        met.sort();
        met.dedup();
        assert_eq!(met.len(), 127, "{address}: each once");
    }
}

/// The text of the query that lists keys, as it was checked when the store was compiled.
fn query() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/store/.sqlx");
    let files = std::fs::read_dir(folder).expect("the descriptions of queries");
    let mut queries = files.map(|file| {
        let text = std::fs::read_to_string(file.expect("a file").path()).expect("its text");
        let description: Value = serde_json::from_str(&text).expect("a description");
        description["query"].as_str().expect("a query").to_owned()
    });
    let found = queries.find(|query| query.contains("'never_used_desc'"));
    found.expect("the query that lists keys")
}

#[tokio::test]
async fn an_index_leads_through_every_order_without_sorting_all_keys() {
    let database = postgres::database().await;
    let mut sql = database.connect().await;
    let prepared = format!(
        "insert into tenants (id, name, created_at, policy_version) values ('{TENANT}', 'Acme', now(), 0);
         insert into keys (id, public_id, tenant_id, name, priority, created_at, created_by, policy_version)
             select gen_random_uuid(), n::text, '{TENANT}', 'Key ' || n % 50, 'default', now() - n * interval '1 minute',
                 'test', 0
             from generate_series(1, 5000) as n;
         insert into key_uses (key_id, last_used_at)
             select id, created_at + interval '1 second' from keys where public_id::int % 2 = 0;
         analyze;
         set plan_cache_mode = force_custom_plan;
         prepare listed as {}",
        query()
    );
    sqlx::raw_sql(AssertSqlSafe(prepared))
        .execute(&mut sql)
        .await
        .expect("keys and the query");
    for (stretch, index) in [
        ("newest", "keys_created_at"),
        ("name", "keys_name"),
        ("name_desc", "keys_name"),
        ("used", "key_uses_last_used_at"),
        ("used_desc", "key_uses_last_used_at"),
        ("never_used", "keys_created_at"),
        ("never_used_desc", "keys_created_at"),
    ] {
        for after in [
            "null, null, null".to_owned(),
            format!("'{TENANT}', 'key 2', now() - interval '1 day'"),
        ] {
            let explain = format!("explain execute listed(null, null, false, null, '{stretch}', {after}, 101)");
            let plan: Vec<String> = sqlx::query_scalar(AssertSqlSafe(explain))
                .fetch_all(&mut sql)
                .await
                .expect("a plan");
            let plan = plan.join("\n");
            let is_led =
                plan.contains(&format!(" {index} on ")) && !plan.contains("Sort") && !plan.contains("Seq Scan");
            assert!(is_led, "{stretch} {after}:\n{plan}");
        }
    }
}

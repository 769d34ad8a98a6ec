//! What limits in rehearsal would have refused: counted with the ledger, shown by level, limit and key.

use chrono::Utc;
use control::limits::{LimitDraft, NodeLimits};
use domain::budget_events::Thresholds;
use domain::ids::TenantId;
use domain::limits::{Class, DEFAULT_WINDOW_SECONDS, Dimension, Mode, Scope, Target};
use domain::people::Role;
use domain::periods::{BUCKET_MINUTES, Period, Span, bucket_start};
use store::Store;
use test_support::console::Window;
use test_support::tollgate::Tollgate;

const BY_LEVEL: [&str; 2] = ["Level", "Would be refused"];
const BY_LIMIT: [&str; 4] = ["Limit of", "Limit", "Would be refused", "As"];
const BY_KEY: [&str; 4] = ["Key", "Tenant", "Would be refused", "Of its requests"];

/// Rehearses so many requests a minute.
async fn rehearse(tollgate: &Tollgate, target: &Target, requests_per_minute: u64) {
    let draft = LimitDraft {
        dimension: Dimension::Requests,
        value: requests_per_minute,
        window_seconds: DEFAULT_WINDOW_SECONDS,
        burst: None,
        period: Period::Month,
        model: None,
        priority: None,
        mode: Mode::Rehearse,
        gates: None,
        thresholds: Thresholds::default(),
    };
    tollgate
        .control()
        .set_limit(&tollgate.actor(), target, 0, &draft, Utc::now())
        .await
        .expect("a limit");
    tollgate.in_force().await;
}

async fn ask(tollgate: &Tollgate, key: &str, times: usize) {
    for _ in 0..times {
        assert_eq!(tollgate.chat(key, "Hello.").await.status, 200);
    }
    tollgate.shipped().await;
}

/// What the roll-ups say is what the entries add up to.
async fn check_totals(tollgate: &Tollgate) {
    let now = bucket_start(Utc::now());
    let span = Span {
        start: now - chrono::Duration::days(1),
        end: now + chrono::Duration::minutes(BUCKET_MINUTES),
    };
    let store = Store::connect_lazily(tollgate.database.url()).expect("a store");
    assert_eq!(store.rollup_differences(span).await.expect("sums"), []);
}

async fn acme() -> (Tollgate, TenantId, String) {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.named_tenant_with_key("Acme", NodeLimits::default()).await;
    (tollgate, tenant, key)
}

#[tokio::test]
async fn an_empty_page_says_how_to_begin() {
    let (tollgate, _, _) = acme().await;
    let mut operator = Window::operator(&tollgate).await;
    let page = operator.visit("/rehearsal").await.clone();
    assert!(page.content().contains("Nothing is rehearsed"), "{}", page.content());
    for (text, leads_to) in [
        ("Limits of the whole installation", "/limits?of=global"),
        ("Settings", "/settings"),
    ] {
        assert!(page.links().contains(&leads_to.to_owned()), "no link leads to {text}");
        assert_eq!(operator.visit(leads_to).await.status, 200, "{leads_to}");
    }
}

#[tokio::test]
async fn a_request_that_several_limits_would_have_refused_counts_in_each_and_once_in_all() {
    let (tollgate, tenant, key) = acme().await;
    let (_, other) = tollgate.named_tenant_with_key("Other", NodeLimits::default()).await;
    rehearse(&tollgate, &Target::Node(Scope::Tenant(tenant)), 2).await;
    rehearse(&tollgate, &Target::OfTenant(tenant, Class::Key), 1).await;
    rehearse(&tollgate, &Target::Node(Scope::Global), 1_000).await;
    ask(&tollgate, &key, 5).await;
    ask(&tollgate, &other, 3).await;
    check_totals(&tollgate).await;

    let mut operator = Window::operator(&tollgate).await;
    let page = operator.visit("/rehearsal").await.clone();
    assert_eq!(page.figure("Would have been refused"), "4");
    assert!(page.fact("Would have been refused").contains("of 8 requests (50 %)"));
    assert!(
        page.content().contains("3 limits are in rehearsal"),
        "{}",
        page.content()
    );
    assert!(page.content().contains("Only requests that ran are counted"));
    let levels = page.table(&BY_LEVEL);
    assert_eq!(
        levels.column("Would be refused"),
        ["0", "0", "0", "3", "0", "4", "0"],
        "{:?}",
        levels.column("Level")
    );
    let limits = page.table(&BY_LIMIT);
    assert_eq!(
        limits.rows,
        [
            [
                "each key of Acme",
                "Requests per minute",
                "1",
                "rehearsed",
                "4",
                "50 %",
                "rate limit exceeded",
                "Keys"
            ],
            [
                "the tenant Acme",
                "Requests per minute",
                "2",
                "rehearsed",
                "3",
                "38 %",
                "rate limit exceeded",
                "Keys"
            ],
            [
                "the whole installation",
                "Requests per minute",
                "1,000",
                "rehearsed",
                "0",
                "0 %",
                "never",
                ""
            ],
        ]
    );
    let keys = page.table(&BY_KEY);
    assert_eq!(keys.rows, [["application", "Acme", "4", "5", "80 %"]]);

    // One limit's keys.
    let href = limits_link(&page.source, &tollgate, tenant).await;
    let page = operator.visit(&href).await;
    assert_eq!(page.table(&BY_KEY).column("Would be refused"), ["3"]);
    assert!(
        page.content().contains("By requests per minute of the tenant Acme."),
        "{}",
        page.content()
    );

    // One request's page says it in words.
    let entry: String =
        sqlx::query_scalar("select id::text from settlements where tenant_id = $1 order by id desc limit 1")
            .bind(tenant.0)
            .fetch_one(&mut tollgate.sql().await)
            .await
            .expect("the last request");
    let verdicts = operator.visit(&format!("/ledger/{entry}")).await.texts("main li");
    assert_eq!(
        verdicts,
        [
            "It would have been refused by requests per minute of the tenant Acme (rate_limit_exceeded).",
            "It would have been refused by requests per minute of the key application (rate_limit_exceeded)."
        ]
    );
}

/// The address of the keys that the tenant's own limit would have refused.
async fn limits_link(source: &str, tollgate: &Tollgate, tenant: TenantId) -> String {
    let id: String = sqlx::query_scalar("select id::text from limits where scope_id = $1 and class is null")
        .bind(tenant.to_string())
        .fetch_one(&mut tollgate.sql().await)
        .await
        .expect("the tenant's limit");
    let href = format!("/rehearsal?limit={id}#keys");
    assert!(source.contains(&href), "no link leads to {href}");
    href
}

#[tokio::test]
async fn a_share_rehearses_every_enforced_limit() {
    let (tollgate, tenant, _) = acme().await;
    let enforced = NodeLimits {
        requests_per_minute: Some(10),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.named_tenant_with_key("Limited", enforced).await;
    let version = tollgate.control().settings().await.expect("settings").version;
    tollgate
        .control()
        .set_rehearsal(&tollgate.actor(), version, Some(20), Utc::now())
        .await
        .expect("a share");
    tollgate.in_force().await;
    ask(&tollgate, &key, 5).await;
    check_totals(&tollgate).await;

    let mut auditor = Window::person(&tollgate, Role::Auditor, None).await;
    let href = auditor.page.link("Rehearsal");
    let page = auditor.visit(&href).await;
    assert!(
        page.content()
            .contains("all enforced limits are rehearsed at 20 % of their value")
    );
    assert_eq!(page.figure("Would have been refused"), "3");
    let limits = page.table(&BY_LIMIT);
    assert_eq!(limits.column("Mode"), ["enforced"]);
    assert_eq!(limits.column("Would be refused"), ["3"]);

    // For those who see everything only, as it tells what shared limits would do.
    for role in [Role::Manager, Role::Member] {
        let mut window = Window::person(&tollgate, role, Some(tenant)).await;
        assert!(!window.page.links().contains(&"/rehearsal".to_owned()), "{role}");
        assert_eq!(window.visit("/rehearsal").await.status, 403, "{role}");
    }
}

#[tokio::test]
async fn tenants_are_told_what_their_own_limits_would_have_done_and_nothing_of_shared_ones() {
    let (tollgate, tenant, key) = acme().await;
    let mut operator = Window::operator(&tollgate).await;
    rehearse(&tollgate, &Target::Node(Scope::Tenant(tenant)), 0).await;
    rehearse(&tollgate, &Target::Node(Scope::Global), 0).await;
    ask(&tollgate, &key, 1).await;
    let mut manager = Window::person(&tollgate, Role::Manager, Some(tenant)).await;
    let entry = manager.visit("/ledger").await.table(&["Time", "Ending"]).links[0].clone();
    assert_eq!(
        manager.visit(&entry).await.texts("main li"),
        ["It would have been refused by requests per minute of the tenant Acme (request_too_large)."]
    );
    let verdicts = operator.visit(&entry).await.texts("main li");
    assert_eq!(verdicts.len(), 2, "{verdicts:?}");
    assert!(verdicts[0].contains("of the whole installation"), "{verdicts:?}");
}

#[tokio::test]
async fn a_limit_that_was_removed_keeps_its_row() {
    let (tollgate, tenant, key) = acme().await;
    let target = Target::Node(Scope::Tenant(tenant));
    rehearse(&tollgate, &target, 1).await;
    ask(&tollgate, &key, 2).await;
    let limits = tollgate
        .control()
        .limits_of(&tollgate.actor(), &target)
        .await
        .expect("limits");
    tollgate
        .control()
        .clear_limit(
            &tollgate.actor(),
            &target,
            limits.version,
            limits.limits[0].id,
            Utc::now(),
        )
        .await
        .expect("it is removed");
    let mut operator = Window::operator(&tollgate).await;
    let table = operator.visit("/rehearsal?back=month").await.table(&BY_LIMIT);
    assert_eq!(table.column("Mode"), ["removed"]);
    assert_eq!(table.column("Would be refused"), ["1"]);
}

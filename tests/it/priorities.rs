//! Who runs at which priority, whom gates refuse, and which keys do not wait: as pages show it.

use bytes::Bytes;
use chrono::Duration;
use control::limits::{LimitDraft, NodeLimits};
use domain::budget_events::Thresholds;
use domain::ids::TenantId;
use domain::limits::{DEFAULT_WINDOW_SECONDS, Dimension, Gates, Mode, Scope, Target};
use domain::people::Role;
use domain::periods::Period;
use domain::priority::Priority;
use http::Method;
use test_support::console::Window;
use test_support::tollgate::{Tollgate, chat_body};

/// The table of who runs at which priority, by tenant.
const BY_TENANT: [&str; 4] = ["Tenant", "Ceiling", "Requests", "Gated"];
/// The same for one tenant.
const BY_KEY: [&str; 4] = ["Key", "Set to", "Requests", "Gated"];
/// The table of keys that do not wait.
const EARLY: [&str; 4] = ["Key", "Refused", "Too early", "Tried before, at most"];

async fn issue(tollgate: &Tollgate, tenant: TenantId, name: &str, priority: Priority) -> String {
    let issued = tollgate.issue_at(tenant, name, priority).await;
    tollgate.in_force().await;
    issued.text.reveal().to_owned()
}

/// Sends so many requests, with a header more, and answers their statuses.
async fn send(tollgate: &Tollgate, key: &str, times: usize, header: (&str, &str)) -> Vec<u16> {
    let bearer = format!("Bearer {key}");
    let headers = [
        ("content-type", "application/json"),
        ("authorization", bearer.as_str()),
        header,
    ];
    let body = Bytes::from(chat_body("Hello.").to_string());
    let mut statuses = Vec::new();
    for _ in 0..times {
        let answer = tollgate
            .browser()
            .send(Method::POST, "/v1/chat/completions", &headers, body.clone())
            .await;
        statuses.push(answer.status.as_u16());
    }
    statuses
}

/// Lets the whole installation have ten requests a minute, with gates at 10 and 20 %.
async fn gate(tollgate: &Tollgate) {
    let gated = LimitDraft {
        dimension: Dimension::Requests,
        value: 10,
        window_seconds: DEFAULT_WINDOW_SECONDS,
        burst: None,
        period: Period::Month,
        model: None,
        priority: None,
        mode: Mode::Enforce,
        gates: Some(Gates {
            lower_percent: 10,
            upper_percent: 20,
            upper_waits: false,
        }),
        thresholds: Thresholds::default(),
    };
    tollgate
        .control()
        .set_limit(
            &tollgate.actor(),
            &Target::Node(Scope::Global),
            0,
            &gated,
            chrono::Utc::now(),
        )
        .await
        .expect("a limit");
    tollgate.in_force().await;
}

const NO_HEADER: (&str, &str) = ("x-test", "none");

#[tokio::test]
async fn shares_are_told_by_tenant_and_key_and_whoever_is_mostly_urgent_is_marked() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let page = operator.visit("/priorities").await;
    assert!(page.content().contains("Nothing ran"), "{}", page.content());
    assert!(page.content().contains("No limit has gates"), "{}", page.content());
    assert!(page.links().contains(&"/limits?of=global".to_owned()));

    let urgent = tollgate.tenant("Urgent", NodeLimits::default()).await;
    let modest = tollgate.tenant("Modest", NodeLimits::default()).await;
    let critical = issue(&tollgate, urgent, "alarm", Priority::Critical).await;
    let low = issue(&tollgate, urgent, "batch", Priority::Low).await;
    let ordinary = issue(&tollgate, modest, "shop", Priority::Default).await;
    send(&tollgate, &critical, 3, NO_HEADER).await;
    // The header lowers one request.
    send(&tollgate, &critical, 1, ("x-tollgate-priority", "high")).await;
    send(&tollgate, &low, 1, NO_HEADER).await;
    send(&tollgate, &ordinary, 6, NO_HEADER).await;
    tollgate.shipped().await;

    let page = operator.visit("/priorities").await.clone();
    let table = page.table(&BY_TENANT);
    assert_eq!(table.column("Tenant"), ["Modest", "Urgent mostly urgent"]);
    let row = |heading| table.cell("Urgent mostly urgent", heading);
    assert_eq!(
        ["Requests", "Low", "Default", "High", "Critical", "Gated", "Ceiling"].map(row),
        [
            "5",
            "20 % cost 20 %",
            "0 %",
            "20 % cost 20 %",
            "60 % cost 60 %",
            "0",
            "critical"
        ]
    );
    assert_eq!(table.cell("Modest", "Default"), "100 % cost 100 %");
    assert_eq!(
        (table.sum("Requests").as_str(), table.sum("Critical").as_str()),
        ("11", "27 % cost 27 %")
    );
    // Four of eleven are urgent: the installation as a whole is fine.
    assert_eq!(page.notices(), Vec::<String>::new());
    assert_eq!(page.figure("At high or critical"), "36 %");

    send(&tollgate, &critical, 4, NO_HEADER).await;
    tollgate.shipped().await;
    let page = operator.visit("/priorities").await.clone();
    assert!(
        page.notices()[0].starts_with("53 % of all requests ran at high or critical."),
        "{:?}",
        page.notices()
    );

    let href = page.link("Urgent");
    let page = operator.visit(&href).await;
    assert_eq!(page.heading(), "Priorities of Urgent");
    assert!(
        page.notices()[0].starts_with("89 % of this tenant's requests"),
        "{:?}",
        page.notices()
    );
    let table = page.table(&BY_KEY);
    assert_eq!(table.column("Key"), ["alarm mostly urgent", "batch"]);
    assert_eq!(table.column("Set to"), ["critical", "low"]);
    assert_eq!(table.cell("alarm mostly urgent", "Requests"), "8");
    assert_eq!(table.cell("batch", "Low"), "100 % cost 100 %");
}

#[tokio::test]
async fn what_gates_refuse_is_counted_in_full_at_its_priority() {
    let tollgate = Tollgate::start().await;
    gate(&tollgate).await;
    let tenant = tollgate.tenant("Acme", NodeLimits::default()).await;
    let high = issue(&tollgate, tenant, "desk", Priority::High).await;
    let low = issue(&tollgate, tenant, "batch", Priority::Low).await;
    let ordinary = issue(&tollgate, tenant, "shop", Priority::Default).await;
    assert_eq!(send(&tollgate, &high, 2, NO_HEADER).await, [200, 200]);
    // More than get rows of their own.
    assert_eq!(send(&tollgate, &low, 27, NO_HEADER).await, [429; 27]);
    assert_eq!(send(&tollgate, &ordinary, 3, NO_HEADER).await, [429; 3]);
    assert_eq!(send(&tollgate, &high, 1, NO_HEADER).await, [200]);
    tollgate.shipped().await;

    let mut operator = Window::operator(&tollgate).await;
    for address in [
        "/priorities",
        "/priorities?back=hour",
        "/priorities?back=month",
        "/priorities?back=nothing",
    ] {
        let page = operator.visit(address).await.clone();
        assert_eq!(page.figure("Refused by gates"), "30", "{address}");
        let table = page.table(&BY_TENANT);
        assert_eq!(table.column("Gated"), ["30 low 27 default 3"], "{address}");
    }
    let page = operator.page.clone();
    let gates = page.table(&["Limit of", "Lower gate", "Upper gate"]);
    assert_eq!(
        gates.rows[0],
        [
            "the whole installation",
            "Requests per minute",
            "10",
            "10 %",
            "20 %",
            "low and default are refused",
            "enforced"
        ]
    );
    assert_eq!(gates.links[0], "/limits?of=global");
    assert_eq!(operator.visit(&gates.links[0]).await.status, 200);

    // The figure leads to the entries.
    let entries = operator.visit(&page.link("30")).await.table(&["Time", "Ending"]);
    assert!(entries.rows.len() > 20, "{}", entries.rows.len());
    assert!(
        entries
            .column("Ending")
            .iter()
            .all(|ending| ending.starts_with("priority gated"))
    );
    let page = operator.visit(&page.link("Acme")).await.clone();
    let table = page.table(&BY_KEY);
    assert_eq!(table.cell("batch", "Gated"), "27 low 27");
    assert_eq!(table.cell("desk mostly urgent", "Gated"), "0");
    let entries = operator.visit(&page.link("3")).await.table(&["Time", "Ending", "Key"]);
    assert_eq!(entries.column("Key"), ["shop"; 3]);
}

#[tokio::test]
async fn managers_see_their_own_tenant_and_members_nothing() {
    let tollgate = Tollgate::start().await;
    gate(&tollgate).await;
    let own = tollgate.tenant("Own", NodeLimits::default()).await;
    let other = tollgate.tenant("Other", NodeLimits::default()).await;
    for (tenant, name) in [(own, "own key"), (other, "other key")] {
        let key = issue(&tollgate, tenant, name, Priority::High).await;
        assert_eq!(send(&tollgate, &key, 1, NO_HEADER).await, [200]);
    }
    tollgate.shipped().await;

    let mut manager = Window::person(&tollgate, Role::Manager, Some(own)).await;
    let page = manager.visit("/priorities").await.clone();
    assert_eq!(page.heading(), "Priorities of Own");
    assert_eq!(page.table(&BY_KEY).column("Key"), ["own key mostly urgent"]);
    assert!(!page.source.contains("Other") && !page.source.contains("other key"));
    // How shared limits are gated is not a tenant's business.
    assert_eq!(page.find_table(&["Limit of", "Lower gate"]), None);
    assert_eq!(manager.visit(&format!("/priorities?tenant={own}")).await.status, 200);
    assert_eq!(manager.visit(&format!("/priorities?tenant={other}")).await.status, 403);

    let mut member = Window::person(&tollgate, Role::Member, Some(own)).await;
    assert!(!member.page.links().contains(&"/priorities".to_owned()));
    assert_eq!(member.visit("/priorities").await.status, 403);

    let mut auditor = Window::person(&tollgate, Role::Auditor, None).await;
    let href = auditor.page.link("Priorities");
    assert_eq!(auditor.visit(&href).await.table(&BY_TENANT).rows.len(), 2);
    for address in [
        "/priorities?tenant=nobody",
        "/priorities?tenant=01890000-0000-7000-8000-000000000000",
    ] {
        assert_eq!(auditor.visit(address).await.status, 404, "{address}");
    }
}

#[tokio::test]
async fn keys_that_come_back_before_their_wait_is_over_are_shown_and_those_that_wait_are_not() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let one_a_minute = NodeLimits {
        requests_per_minute: Some(1),
        ..NodeLimits::default()
    };
    let hasty = tollgate.tenant("Hasty", one_a_minute.clone()).await;
    let patient = tollgate.tenant("Patient", one_a_minute).await;
    let mut member = Window::person(&tollgate, Role::Member, Some(hasty)).await;
    let hammer = member.issue_key("", "hammer").await;
    let waiter = issue(&tollgate, patient, "waiter", Priority::Default).await;
    tollgate.in_force().await;
    let later = |seconds| tollgate.clock.set(tollgate.clock.wall() + Duration::seconds(seconds));
    for (key, pause_seconds) in [(&hammer, 3), (&waiter, 120)] {
        assert_eq!(send(&tollgate, key, 1, NO_HEADER).await, [200]);
        for tries in ["0", "1", "2", "3"] {
            assert_eq!(send(&tollgate, key, 1, ("x-stainless-retry-count", tries)).await, [429]);
            later(pause_seconds);
        }
    }
    tollgate.shipped().await;

    for address in ["/priorities", "/"] {
        let table = operator.visit(address).await.table(&EARLY);
        assert_eq!(table.rows, [["hammer", "Hasty", "4", "3", "75 %", "3"]], "{address}");
    }
    let entries = operator.page.link("3");
    let entries = operator.visit(&entries).await.table(&["Time", "Ending"]);
    let mut early = Vec::new();
    for entry in entries.links {
        early.push(operator.visit(&entry).await.fact("Before the wait was over"));
    }
    assert_eq!(early, ["yes", "yes", "yes", "no"]);
    // Whoever can mend it is told, too; others are not.
    assert_eq!(member.visit("/").await.table(&EARLY).column("Too early"), ["3"]);
    let mut manager = Window::person(&tollgate, Role::Manager, Some(patient)).await;
    assert_eq!(manager.page.find_table(&EARLY), None);
    let page = manager.visit("/priorities").await;
    assert_eq!(page.find_table(&EARLY), None);
    assert!(
        page.content().contains("has waited as long as it was told"),
        "{}",
        page.content()
    );
}

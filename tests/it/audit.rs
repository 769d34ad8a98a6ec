//! The audit log as people read it: found by its filters, followed from what it is about, and not further than each may see.

use std::collections::BTreeSet;

use chrono::Utc;
use control::limits::NodeLimits;
use control::people::PersonDraft;
use control::plans::PlanDraft;
use domain::people::Role;
use domain::priority::Priority;
use test_support::console::{OPERATOR, Window};
use test_support::html::Page;
use test_support::tollgate::Tollgate;

const COLUMNS: [&str; 3] = ["Time", "Who", "Action"];

fn actions(page: &Page) -> Vec<String> {
    page.find_table(&COLUMNS)
        .map(|table| table.column("Action"))
        .unwrap_or_default()
}

/// The page of the newest entry with this action.
async fn entry<'a>(window: &'a mut Window, action: &str) -> &'a Page {
    let page = window.visit(&format!("/audit?action={action}")).await;
    let link = page.links().into_iter().find(|link| link.starts_with("/audit/"));
    let link = link.unwrap_or_else(|| panic!("no entry of {action}: {}", page.content()));
    window.visit(&link).await
}

#[tokio::test]
async fn an_entry_says_who_did_what_from_where_and_what_was_different() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let plan = PlanDraft {
        name: "Paid".to_owned(),
        priority_ceiling: Priority::Default,
    };
    let control = tollgate.control();
    let plan = control.create_plan(&tollgate.actor(), &plan, Utc::now()).await.unwrap();

    let form = operator
        .visit(&format!("/plans/{plan}"))
        .await
        .form("/console/plans/edit");
    let form = form.fill("name", "Paid <b>well</b>").choose("priority_ceiling", "high");
    operator.send(&form).await;
    let page = entry(&mut operator, "plan.edit").await;
    assert_eq!(page.heading(), "plan.edit");
    assert_eq!(page.fact("Who"), OPERATOR);
    assert_eq!(page.fact("By"), "console");
    assert_eq!(page.fact("From"), "127.0.0.1");
    // By the name that it has now.
    assert_eq!(page.fact("Done to"), "plan Paid <b>well</b>");
    assert_eq!(page.link("plan Paid <b>well</b>"), format!("/plans/{plan}"));
    let changed = page.table(&["Field", "What happened", "Before", "After"]);
    assert_eq!(changed.column("Field"), ["name", "priority ceiling"]);
    assert_eq!(changed.column("What happened"), ["→ changed", "→ changed"]);
    assert_eq!(changed.column("Before"), ["Paid", "default"]);
    assert_eq!(changed.column("After"), ["Paid <b>well</b>", "high"]);

    // What the program did itself came from nowhere.
    let page = entry(&mut operator, "plan.create").await;
    assert_eq!(page.fact("By"), "command line");
    let changed = page.table(&["Field", "What happened"]);
    assert_eq!(changed.column("What happened"), ["+ set", "+ set"]);
    assert_eq!(changed.column("Before"), ["nothing", "nothing"]);
}

#[tokio::test]
async fn money_and_what_stayed_are_written_as_elsewhere() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let limits = NodeLimits {
        monthly_cost: Some(domain::money::Nanos(12_500_000_000)),
        requests_per_minute: Some(60),
        ..NodeLimits::default()
    };
    tollgate.tenant("Research", limits).await;
    let page = entry(&mut operator, "limits.set").await;
    assert_eq!(page.fact("Done to"), "tenant Research");
    let changed = page.table(&["Field", "After"]);
    assert_eq!(changed.cell("monthly cost", "After"), "USD 12.50");
    assert_eq!(changed.cell("requests per minute", "After"), "60");
}

#[tokio::test]
async fn entries_are_found_by_who_what_whose_when_and_from_where() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let research = tollgate.tenant("Research", NodeLimits::default()).await;
    tollgate.tenant("Sales", NodeLimits::default()).await;
    let issued = tollgate.issue(research).await;
    let id = issued.row.id;
    let edit = operator.visit(&format!("/keys/{id}")).await.form("/console/keys/edit");
    operator.send(&edit.fill("name", "nightly")).await;

    let found = |page: &Page| -> BTreeSet<String> { actions(page).into_iter().collect() };
    let all = found(operator.visit("/audit").await);
    for action in [
        "tenant.create",
        "key.issue",
        "key.edit",
        "person.set_up",
        "upstream.create",
    ] {
        assert!(all.contains(action), "{action} is missing in {all:?}");
    }
    let by_her = found(operator.visit("/audit?who=OLGA").await);
    assert!(
        by_her.contains("key.edit") && !by_her.contains("key.issue"),
        "{by_her:?}"
    );
    // A dot or percent sign is itself and no pattern.
    assert_eq!(actions(operator.visit("/audit?who=%25").await), Vec::<String>::new());
    let keys = found(operator.visit("/audit?action=key").await);
    assert_eq!(keys, BTreeSet::from(["key.edit".to_owned(), "key.issue".to_owned()]));
    let here = operator.visit("/audit?address=127.0.0.1&action=key").await;
    assert_eq!(actions(here), ["key.edit"]);
    let of_tenant = operator.visit(&format!("/audit?tenant={research}&action=tenant")).await;
    assert_eq!(
        of_tenant.table(&COLUMNS).column("What it was done to"),
        ["tenant Research"]
    );
    assert_eq!(
        actions(operator.visit("/audit?until=2020-01-01").await),
        Vec::<String>::new()
    );
    assert_eq!(
        actions(operator.visit("/audit?from=2100-01-01").await),
        Vec::<String>::new()
    );
    assert!(!actions(operator.visit("/audit?from=2020-01-01").await).is_empty());

    let refused = operator.visit("/audit?from=yesterday").await;
    assert!(
        refused.content().contains("write a date such as"),
        "{}",
        refused.content()
    );
    assert_eq!(operator.visit("/audit?before=nonsense").await.status, 404);
    assert_eq!(
        operator
            .visit("/audit/00000000-0000-0000-0000-000000000000")
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn pages_of_the_log_follow_each_other_and_keep_the_filter() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    for number in 0..53 {
        tollgate.tenant(&format!("T{number:02}"), NodeLimits::default()).await;
    }
    let page = operator.visit("/audit?action=tenant.create").await;
    let mut seen = page.table(&COLUMNS).column("What it was done to");
    let older = page.link("Older entries");
    let page = operator.visit(&older).await;
    seen.extend(page.table(&COLUMNS).column("What it was done to"));
    assert!(!page.content().contains("Older entries"));
    let expected: Vec<String> = (0..53).rev().map(|number| format!("tenant T{number:02}")).collect();
    assert_eq!(seen, expected);
    let newest = page.link("Back to the newest");
    assert_eq!(operator.visit(&newest).await.table(&COLUMNS).rows.len(), 50);
}

#[tokio::test]
async fn pages_of_things_lead_to_their_history() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let research = tollgate.tenant("Research", NodeLimits::default()).await;
    tollgate.tenant("Sales", NodeLimits::default()).await;
    let key = tollgate.issue(research).await.row.id;

    // Limits of each key of the tenant are part of the tenant's history.
    let of_keys = format!("/limits?of=tenant:{research}&each=key");
    let link = operator.visit(&of_keys).await.link("Add a limit");
    let link = format!("{link}&dimension=concurrency");
    let form = operator
        .visit(&link)
        .await
        .form("/console/limits/add")
        .fill("value", "3");
    operator.save(&form).await;
    let history = operator.visit(&format!("/tenants/{research}")).await.link("History");
    let page = operator.visit(&history).await;
    assert_eq!(actions(page), ["limit.set", "tenant.create"]);

    let page = operator.visit(&format!("/keys/{key}")).await;
    let history = page.link("History");
    assert_eq!(actions(operator.visit(&history).await), ["key.issue"]);
    let model = operator.visit("/models").await.links();
    let model = model.into_iter().find(|link| link.starts_with("/models/edit")).unwrap();
    let history = operator.visit(&model).await.link("History");
    assert!(actions(operator.visit(&history).await).contains(&"model.create".to_owned()));
}

#[tokio::test]
async fn managers_read_their_tenants_part_without_others_addresses_and_members_nothing() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let research = tollgate.tenant("Research", NodeLimits::default()).await;
    let sales = tollgate.tenant("Sales", NodeLimits::default()).await;
    let key = tollgate.issue(research).await.row.id;
    let edit = operator.visit(&format!("/keys/{key}")).await.form("/console/keys/edit");
    operator.send(&edit.fill("name", "nightly")).await;
    let limit = format!("/limits/edit?of=key:{key}&dimension=concurrency");
    let form = operator
        .visit(&limit)
        .await
        .form("/console/limits/add")
        .fill("value", "3");
    operator.save(&form).await;

    let mut manager = Window::person(&tollgate, Role::Manager, Some(research)).await;
    let page = manager.visit("/audit").await;
    let listed = page.table(&COLUMNS);
    // Also what was done to a key's limits, which do not say whose the key is.
    for action in [
        "tenant.create",
        "key.issue",
        "key.edit",
        "limit.set",
        "person.choose_password",
    ] {
        assert!(listed.column("Action").contains(&action.to_owned()), "{action}");
    }
    assert!(listed.column("Tenant").iter().all(|tenant| tenant == "Research"));
    for (who, from) in listed.column("Who").iter().zip(listed.column("From")) {
        assert_eq!(
            from.contains("127.0.0.1"),
            who == "manager@example.com",
            "{who} from {from}"
        );
    }
    let link = page
        .links()
        .into_iter()
        .find(|link| link.starts_with("/audit/"))
        .unwrap();
    assert_eq!(manager.visit(&link).await.status, 200);
    // To look for an address finds one's own entries alone.
    let here = manager.visit("/audit?address=127.0.0.1").await.table(&COLUMNS);
    assert!(here.column("Who").iter().all(|who| who == "manager@example.com"));
    assert_eq!(manager.visit(&format!("/audit?tenant={sales}")).await.status, 403);
    let of_others = operator.visit(&format!("/audit?tenant={sales}")).await.links();
    let of_others = of_others.into_iter().find(|link| link.starts_with("/audit/")).unwrap();
    assert_eq!(manager.visit(&of_others).await.status, 404);

    let mut auditor = Window::person(&tollgate, Role::Auditor, None).await;
    assert_eq!(auditor.visit(&of_others).await.status, 200);
    let mut member = Window::person(&tollgate, Role::Member, Some(research)).await;
    for address in ["/audit", link.as_str(), "/audit?from=nonsense"] {
        assert_eq!(member.visit(address).await.status, 403, "{address}");
    }
    assert!(
        !member
            .visit(&format!("/keys/{key}"))
            .await
            .content()
            .contains("History")
    );
    assert!(!member.visit("/").await.links().contains(&"/audit".to_owned()));
}

#[tokio::test]
async fn what_was_done_to_somebody_leads_to_their_page() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let research = tollgate.tenant("Research", NodeLimits::default()).await;
    let mut manager = Window::person(&tollgate, Role::Manager, Some(research)).await;
    let person = PersonDraft {
        name: "Mia".to_owned(),
        email: "mia@example.com".to_owned(),
        role: Role::Member,
        tenant_id: Some(research),
    };
    let invited = tollgate
        .control()
        .invite_person(&tollgate.actor(), &person, Utc::now())
        .await;
    let address = format!("/people/{}", invited.unwrap().person.id);
    for window in [&mut operator, &mut manager] {
        let page = window.visit("/audit?action=person.invite").await;
        assert_eq!(page.link("person Mia"), address);
        assert_eq!(window.visit(&address).await.heading(), "Mia");
    }
}

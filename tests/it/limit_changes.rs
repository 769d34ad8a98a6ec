//! What limits would change is shown before it is saved, and nothing that was entered is lost on the way.

use chrono::{Days, Utc};
use control::limits::NodeLimits;
use control::plans::PlanDraft;
use control::tenants::TenantDraft;
use domain::limits::{Class, Dimension, Scope, Target};
use domain::money::Nanos;
use domain::people::Role;
use domain::priority::Priority;
use test_support::console::Window;
use test_support::html::Page;
use test_support::tollgate::{Tollgate, limit};

const CHANGES: [&str; 4] = ["Limit", "Now", "Then", "That is"];

fn budget(units: i64) -> NodeLimits {
    NodeLimits {
        monthly_cost: Some(Nanos::from_units(units)),
        ..NodeLimits::default()
    }
}

fn asked(page: &Page) -> Vec<Vec<String>> {
    page.table(&CHANGES).rows
}

fn stored(page: &Page, action: &str) -> (String, String) {
    let form = page.form(action);
    (
        form.value("monthly_cost").to_owned(),
        form.value("requests_per_minute").to_owned(),
    )
}

#[tokio::test]
async fn a_tenants_changes_are_shown_first_and_saved_when_confirmed() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let tenant = tollgate.tenant("Research", budget(50)).await;
    tollgate.issue(tenant).await;
    let address = format!("/tenants/{tenant}");
    let action = "/console/tenants/edit";
    let form = operator.visit(&address).await.form(action);
    let form = form
        .fill("name", "Research & Co")
        .fill("monthly_cost", "20")
        .fill("requests_per_minute", "0");
    let page = operator.send(&form).await.clone();
    assert_eq!((page.path(), page.status.as_u16()), (address.as_str(), 200));
    assert_eq!(
        asked(&page),
        [
            ["Name", "Research", "Research & Co", ""],
            ["Budget per month", "USD 50.00", "USD 20.00", "↓ less"],
            ["Requests per minute", "no limit", "0: admits nothing", "+ new limit"],
        ]
    );
    let text = page.text("#confirm");
    assert!(text.contains("Nothing is saved yet."), "{text}");
    assert!(text.contains("with 1 working key."), "{text}");

    // Back to the form with everything in it; and nothing was saved.
    let back = page.forms(action).swap_remove(1);
    let page = operator.send(&back).await.clone();
    let kept = page.form(action);
    for name in ["name", "monthly_cost", "requests_per_minute"] {
        assert_eq!(kept.value(name), form.value(name), "{name}");
    }
    assert_eq!(page.notices(), Vec::<String>::new());
    let fresh = operator.visit(&address).await;
    assert_eq!(stored(fresh, action), ("50.00".to_owned(), String::new()));

    // From there it goes on as before, and is saved in the second step.
    let page = operator.send(&kept).await;
    let confirm = page.forms(action).swap_remove(0);
    let page = operator.send(&confirm).await;
    assert_eq!(page.notices(), ["Saved."]);
    assert_eq!(page.heading(), "Research & Co");
    assert_eq!(stored(page, action), ("20.00".to_owned(), "0".to_owned()));

    // What changes no limit is saved at once, and what changes nothing too.
    let form = operator.page.form(action).fill("name", "Research");
    assert_eq!(operator.send(&form).await.notices(), ["Saved."]);
    let form = operator.page.form(action);
    assert_eq!(operator.send(&form).await.notices(), ["Saved."]);
}

#[tokio::test]
async fn whoever_saved_meanwhile_is_not_overwritten_by_a_confirmation() {
    let tollgate = Tollgate::start().await;
    let mut first = Window::operator(&tollgate).await;
    let mut second = Window::person(&tollgate, Role::Operator, None).await;
    let tenant = tollgate.tenant("Research", budget(50)).await;
    let address = format!("/limits?of=tenant:{tenant}");
    let action = "/console/limits/set";
    let late = second
        .visit(&address)
        .await
        .form(action)
        .fill("requests_per_minute", "30");
    let confirm = second.send(&late).await.forms(action).swap_remove(0);
    let form = first.visit(&address).await.form(action).fill("monthly_cost", "20");
    first.save(&form).await;
    assert_eq!(first.page.notices(), ["Saved."]);

    let page = second.send(&confirm).await.clone();
    assert!(
        page.notices()[0].contains("Somebody else changed this"),
        "{:?}",
        page.notices()
    );
    // Both are there to be seen; the field with the same value says nothing.
    assert_eq!(page.text("#monthly_cost-now"), "Now: 20.00");
    assert_eq!(page.texts(".now").len(), 2);
    let described = page.texts("#monthly_cost[aria-describedby~=monthly_cost-now]");
    assert_eq!(described.len(), 1);
    // What is then confirmed is told against what is stored now.
    let again = page.form(action).fill("monthly_cost", "20");
    let page = second.send(&again).await;
    assert_eq!(asked(page), [["Requests per minute", "no limit", "30", "+ new limit"]]);
    let confirm = page.forms(action).swap_remove(0);
    second.send(&confirm).await;
    assert_eq!(
        stored(first.visit(&address).await, action),
        ("20.00".to_owned(), "30".to_owned())
    );
}

#[tokio::test]
async fn a_plans_change_says_for_how_many_and_where_budgets_then_add_up_to_more() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let (control, actor, now) = (tollgate.control(), tollgate.actor(), Utc::now());
    let draft = PlanDraft {
        name: "Paid".to_owned(),
        priority_ceiling: Priority::High,
    };
    let plan = control.create_plan(&actor, &draft, now).await.unwrap();
    let global = Target::Node(Scope::Global);
    control.set_limits(&actor, &global, 0, &budget(100), now).await.unwrap();
    let each = Target::OfPlan(plan, Class::Tenant);
    control.set_limits(&actor, &each, 0, &budget(30), now).await.unwrap();
    for (name, limits) in [
        ("One", NodeLimits::default()),
        ("Two", NodeLimits::default()),
        ("Three", budget(5)),
    ] {
        let tenant = tollgate.tenant(name, limits).await;
        let form = operator.visit(&format!("/tenants/{tenant}")).await;
        let form = form.form("/console/tenants/edit").choose("plan_id", "Paid");
        let page = operator.send(&form).await;
        // A plan changes what is in force for the tenant.
        assert_eq!(asked(page)[0][..3], ["Plan", "none", "Paid"]);
        let confirm = page.forms("/console/tenants/edit").swap_remove(0);
        operator.send(&confirm).await;
    }

    let address = format!("/limits?of=plan:{plan}&each=tenant");
    let form = operator.visit(&address).await.form("/console/limits/set");
    assert_eq!(operator.page.notices(), Vec::<String>::new(), "30 + 30 + 5 of 100");
    let page = operator.send(&form.fill("monthly_cost", "60")).await;
    let text = page.text("#confirm");
    assert!(text.contains("It concerns 3 tenants on the plan."), "{text}");
    assert!(
        text.contains("One tenant has a limit of its own here and keeps it."),
        "{text}"
    );
    let notices = page.notices();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(
        notices[0].starts_with("Budget per month: 3 tenants may use USD 125.00 together"),
        "{notices:?}"
    );
}

#[tokio::test]
async fn one_limits_changes_are_told_field_by_field() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let tenant = tollgate.tenant("Research", NodeLimits::default()).await;
    let target = Target::Node(Scope::Tenant(tenant));
    let tokens = limit(Dimension::InputTokens, 1_000);
    tollgate.set_limit(target, 0, &tokens).await;
    operator.visit(&format!("/limits?of=tenant:{tenant}")).await;
    let edit = operator.page.link("Edit");
    let form = operator.visit(&edit).await.form("/console/limits/edit");
    let form = form
        .fill("value", "2000")
        .fill("burst", "500")
        .choose("mode", "Rehearse: refuses nothing");
    let page = operator.send(&form).await;
    assert_eq!(
        asked(page),
        [
            ["Input tokens per minute", "1,000", "2,000", "↑ more"],
            [
                "Input tokens per minute: mode",
                "enforced",
                "rehearsed: refuses nothing",
                ""
            ],
            ["Input tokens per minute: burst", "as usual", "500", ""],
        ]
    );
    let back = page.forms("/console/limits/edit").swap_remove(1);
    let kept = operator.send(&back).await.form("/console/limits/edit");
    assert_eq!((kept.value("value"), kept.value("burst")), ("2000", "500"));
    operator.save(&kept).await;
    assert_eq!(operator.page.notices(), ["Saved."]);
}

#[tokio::test]
async fn a_budget_that_is_spent_already_is_pointed_out() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
    tollgate.shipped().await;
    let form = operator
        .visit(&format!("/tenants/{tenant}"))
        .await
        .form("/console/tenants/edit");
    let page = operator.send(&form.fill("monthly_tokens", "1")).await;
    let notices = page.notices();
    assert!(
        notices
            .iter()
            .any(|notice| notice.contains("is spent this month already")),
        "{notices:?}"
    );
}

#[tokio::test]
async fn a_limit_that_was_removed_can_be_added_again_as_it_was() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let tenant = tollgate.tenant("Research", budget(50)).await;
    let target = Target::Node(Scope::Tenant(tenant));
    let weekly = control::limits::LimitDraft {
        period: domain::periods::Period::Week,
        gates: Some(domain::limits::Gates {
            lower_percent: 60,
            upper_percent: 80,
            upper_waits: true,
        }),
        ..limit(Dimension::BudgetCost, 12_500_000_000)
    };
    tollgate.set_limit(target, 1, &weekly).await;
    let columns = ["Limit", "Per", "Gates", "Mode"];
    let before = operator
        .visit(&format!("/limits?of=tenant:{tenant}"))
        .await
        .table(&columns);
    let place = before
        .column("Per")
        .iter()
        .position(|per| per == "week")
        .expect("a row");
    let remove = operator.page.forms("/console/limits/remove").swap_remove(place);
    let page = operator.send(&remove).await;
    assert!(
        page.notices()[0].starts_with("The limit was removed"),
        "{:?}",
        page.notices()
    );
    assert_eq!(page.table(&columns).rows.len(), 1);
    let again = page.link("Add it again");
    // The monthly budget beside it is another limit.
    let form = operator.visit(&again).await.form("/console/limits/add");
    assert_eq!(
        (form.value("value"), form.choice("period")),
        ("12.50", "Week, from Monday")
    );
    let page = operator.save(&form).await;
    assert_eq!(page.notices(), ["The limit was added."]);
    let after = page.table(&columns);
    let texts = |table: &test_support::html::Table| -> Vec<Vec<String>> {
        ["Limit", "Per", "Gates", "Mode"]
            .map(|column| table.column(column))
            .to_vec()
    };
    assert_eq!(texts(&after), texts(&before));
}

const ADD: &str = "/console/limits/add";
const ADDED: &str = "The limit was added.";

#[tokio::test]
async fn a_new_limit_is_shown_first_with_where_children_then_have_more_than_their_parent() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let (control, actor, now) = (tollgate.control(), tollgate.actor(), Utc::now());
    let global = Target::Node(Scope::Global);
    control.set_limits(&actor, &global, 0, &budget(100), now).await.unwrap();
    tollgate.tenant("Sales", budget(80)).await;
    let research = tollgate.tenant("Research", NodeLimits::default()).await;
    let stored = async || {
        let target = Target::Node(Scope::Tenant(research));
        control.limits_of(&actor, &target).await.unwrap().limits.len()
    };

    let address = format!("/limits/edit?of=tenant:{research}&dimension=budget_cost");
    let form = operator.visit(&address).await.form(ADD);
    let form = form
        .fill("value", "30")
        .fill("gate_lower_percent", "60")
        .fill("gate_upper_percent", "80");
    let page = operator.send(&form).await.clone();
    assert_eq!(
        asked(&page),
        [
            ["Budget per month", "no limit", "USD 30.00", "+ new limit"],
            ["Budget per month: gates", "", "60 % and 80 %", ""],
        ]
    );
    let text = page.text("#confirm");
    assert!(text.contains("Nothing is saved yet."), "{text}");
    assert!(text.contains("as a whole, with 0 working keys."), "{text}");
    let notices = page.texts("#confirm .notice");
    assert_eq!(notices.len(), 1, "{notices:?}");
    let sum =
        "Budget per month: 2 tenants may use USD 110.00 together, and the whole installation has only USD 100.00.";
    assert!(notices[0].starts_with(sum), "{notices:?}");
    assert_eq!(stored().await, 0, "nothing was saved");

    let back = page.forms(ADD).swap_remove(1);
    let kept = operator.send(&back).await.form(ADD);
    for name in ["value", "gate_lower_percent", "gate_upper_percent"] {
        assert_eq!(kept.value(name), form.value(name), "{name}");
    }
    assert_eq!(operator.page.notices(), Vec::<String>::new());
    let page = operator.send(&kept).await;
    let confirm = page.forms(ADD).swap_remove(0);
    let page = operator.send(&confirm).await;
    assert!(page.notices().contains(&ADDED.to_owned()), "{:?}", page.notices());
    assert_eq!(stored().await, 1);

    // What cannot be added is said before anything is asked.
    let page = operator.send(&form).await;
    assert_eq!(page.texts("#confirm"), Vec::<String>::new());
    assert!(page.notices()[0].contains("Somebody else changed this"));
    let page = operator.visit(&address).await;
    let again = page.form(ADD).fill("value", "40");
    let page = operator.send(&again).await;
    assert_eq!(page.texts("#confirm"), Vec::<String>::new());
    assert!(page.content().contains("There is a limit for exactly this already"));
}

#[tokio::test]
async fn a_proposal_is_shown_first_like_any_other_limit() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    tollgate.tenant("Research", NodeLimits::default()).await;
    tollgate.tenant("Sales", NodeLimits::default()).await;
    let capacity = "/limits/edit?of=global&dimension=requests&capacity=1000";
    let form = operator.visit(capacity).await.form(ADD);
    let page = operator.send(&form).await;
    assert_eq!(
        asked(page),
        [
            ["Requests per minute", "no limit", "800", "+ new limit"],
            ["Requests per minute: gates", "", "70 % and 90 %", ""],
        ]
    );
    let text = page.text("#confirm");
    assert!(
        text.contains("It concerns 2 tenants: all requests count here"),
        "{text}"
    );
    operator.save(&form).await;
    assert_eq!(operator.page.notices(), [ADDED]);

    // Where there is one, the same proposal changes it.
    let capacity = "/limits/edit?of=global&dimension=requests&capacity=500";
    let form = operator.visit(capacity).await.form("/console/limits/edit");
    let page = operator.send(&form).await;
    assert_eq!(asked(page), [["Requests per minute", "800", "400", "↓ less"]]);
}

#[tokio::test]
async fn whoever_adds_a_limit_is_told_when_somebody_else_was_faster() {
    let tollgate = Tollgate::start().await;
    let mut first = Window::operator(&tollgate).await;
    let mut second = Window::person(&tollgate, Role::Operator, None).await;
    let new = |dimension: &str| format!("/limits/edit?of=global&dimension={dimension}");
    let form = second.visit(&new("requests")).await.form(ADD).fill("value", "60");
    let confirm = second.send(&form).await.forms(ADD).swap_remove(0);
    let other = first.visit(&new("concurrency")).await.form(ADD).fill("value", "9");
    first.save(&other).await;
    assert_eq!(first.page.notices(), [ADDED]);

    let page = second.send(&confirm).await;
    let notices = page.notices();
    assert!(notices[0].contains("Somebody else changed this"), "{notices:?}");
    assert_eq!(page.texts(".now"), Vec::<String>::new(), "nothing of it is stored yet");
    let again = page.form(ADD);
    assert_eq!(again.value("value"), "60");
    second.save(&again).await;
    assert_eq!(second.page.notices(), [ADDED]);
}

#[tokio::test]
async fn what_holds_without_a_limit_of_its_own_is_what_a_new_one_replaces() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let (control, actor, now) = (tollgate.control(), tollgate.actor(), Utc::now());
    let draft = PlanDraft {
        name: "Paid".to_owned(),
        priority_ceiling: Priority::High,
    };
    let plan = control.create_plan(&actor, &draft, now).await.unwrap();
    let each_tenant = NodeLimits {
        requests_per_minute: Some(60),
        ..NodeLimits::default()
    };
    let target = Target::OfPlan(plan, Class::Tenant);
    control.set_limits(&actor, &target, 0, &each_tenant, now).await.unwrap();
    let draft = TenantDraft {
        name: "Research".to_owned(),
        plan_id: Some(plan),
        priority_ceiling: None,
        has_strict_budgets: false,
        limits: NodeLimits::default(),
    };
    let tenant = control.create_tenant(&actor, &draft, now).await.unwrap();
    let target = Target::OfTenant(tenant, Class::Key);
    tollgate.set_limit(target, 0, &limit(Dimension::Concurrency, 5)).await;
    let key = tollgate.issue(tenant).await.row.id;

    for (of, dimension, value, told) in [
        (
            format!("tenant:{tenant}"),
            "requests",
            "30",
            ["Requests per minute", "60, from the plan", "30", "↓ less"],
        ),
        (
            format!("key:{key}"),
            "concurrency",
            "9",
            ["Requests at once", "5, set for each key", "9", "↑ more"],
        ),
    ] {
        let form = operator
            .visit(&format!("/limits/edit?of={of}&dimension={dimension}"))
            .await;
        let form = form.form(ADD).fill("value", value);
        let page = operator.send(&form).await;
        assert_eq!(asked(page), [told], "{of}");
        operator.save(&form).await;
        assert!(operator.page.notices().contains(&ADDED.to_owned()), "{of}");
    }

    // Taken away, the plan's holds again.
    let form = operator.visit(&format!("/limits?of=tenant:{tenant}")).await;
    let form = form.form("/console/limits/set").fill("requests_per_minute", "");
    let page = operator.send(&form).await;
    assert_eq!(
        asked(page),
        [["Requests per minute", "30", "60, from the plan", "↑ more"]]
    );
}

#[tokio::test]
async fn an_increase_is_shown_first_with_its_reason() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let tenant = tollgate.tenant("Research", budget(50)).await;
    let target = Target::Node(Scope::Tenant(tenant));
    let increased = async || {
        let view = tollgate.control().limits_of(&tollgate.actor(), &target).await;
        view.unwrap().limits[0]
            .increase_at(Utc::now())
            .map(|increase| increase.value)
    };
    operator.visit(&format!("/limits?of=tenant:{tenant}")).await;
    let edit = operator.page.link("Edit");
    let action = "/console/limits/increase";
    let form = operator.visit(&edit).await.form(action);
    let last_day = (Utc::now() + Days::new(2)).date_naive().to_string();
    let form = form
        .fill("increase_value", "70")
        .fill("increase_last_day", &last_day)
        .fill("increase_reason", "a fair");
    let page = operator.send(&form).await.clone();
    let rows = asked(&page);
    assert_eq!(rows[0], ["Why", "", "a fair", ""]);
    assert_eq!(rows[1][..2], ["Budget per month: increase", "none"]);
    assert!(rows[1][2].starts_with("USD 70.00 until "), "{rows:?}");
    assert_eq!((rows.len(), rows[1][3].as_str()), (2, "↑ more"));
    assert_eq!(increased().await, None, "nothing was saved");

    let back = page.forms(action).swap_remove(1);
    let kept = operator.send(&back).await.form(action);
    for name in ["increase_value", "increase_last_day", "increase_reason"] {
        assert_eq!(kept.value(name), form.value(name), "{name}");
    }
    operator.save(&kept).await;
    assert!(operator.page.notices()[0].starts_with("Increased"));
    assert_eq!(increased().await, Some(70_000_000_000));
}

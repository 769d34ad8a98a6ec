//! Plans and limits as operators set them in the console, and what callers then meet.

use chrono::Utc;
use control::keys::{Expiry, KeyDraft, KeyOwner};
use control::limits::{LimitDraft, LimitText, NodeLimits};
use control::people::PersonDraft;
use control::plans::PlanDraft;
use control::tenants::TenantDraft;
use control::{Actor, ControlError};
use domain::ids::{PlanId, TenantId};
use domain::limits::{Class, Dimension, Scope, Target};
use domain::money::Nanos;
use domain::people::Role;
use domain::periods::Period;
use domain::priority::Priority;
use sqlx::Row as _;
use test_support::console::Window;
use test_support::html::Page;
use test_support::tollgate::{MODEL, Options, Tollgate};

/// The columns of the table of a node's limits.
const LIMITS: [&str; 3] = ["Limit", "Value", "Gates"];
/// The columns of a tenant's limits in force.
const IN_FORCE: [&str; 4] = ["For", "Limit", "Value", "From"];

async fn empty() -> Tollgate {
    let options = Options {
        is_empty: true,
        ..Options::default()
    };
    Tollgate::start_with(options).await
}

fn requests_per_minute(value: u64) -> NodeLimits {
    NodeLimits {
        requests_per_minute: Some(value),
        ..NodeLimits::default()
    }
}

async fn plan(tollgate: &Tollgate, name: &str, ceiling: Priority) -> PlanId {
    let draft = PlanDraft {
        name: name.into(),
        priority_ceiling: ceiling,
    };
    tollgate
        .control()
        .create_plan(&tollgate.actor(), &draft, Utc::now())
        .await
        .expect("a plan")
}

async fn set(tollgate: &Tollgate, target: &Target, limits: &NodeLimits) {
    let (control, actor) = (tollgate.control(), tollgate.actor());
    let version = control.limits_of(&actor, target).await.expect("limits").version;
    control
        .set_limits(&actor, target, version, limits, Utc::now())
        .await
        .expect("set");
}

/// A tenant on this plan, without settings of its own.
async fn tenant_on(tollgate: &Tollgate, name: &str, plan_id: Option<PlanId>) -> TenantId {
    let draft = TenantDraft {
        name: name.into(),
        plan_id,
        priority_ceiling: None,
        has_strict_budgets: false,
        limits: NodeLimits::default(),
    };
    tollgate
        .control()
        .create_tenant(&tollgate.actor(), &draft, Utc::now())
        .await
        .expect("a tenant")
}

/// How many of `count` requests are admitted.
async fn admitted(tollgate: &Tollgate, key: &str, count: usize) -> usize {
    let mut admitted = 0;
    for _ in 0..count {
        match tollgate.chat(key, "Hello.").await {
            answer if answer.status == 200 => admitted += 1,
            answer => assert_eq!(answer.code(), "rate_limit_exceeded"),
        }
    }
    admitted
}

/// Chooses the tenant's plan on its page.
async fn choose_plan(operator: &mut Window, tenant: TenantId, name: &str) {
    let form = operator
        .visit(&format!("/tenants/{tenant}"))
        .await
        .form("/console/tenants/edit");
    operator.save(&form.choose("plan_id", name)).await;
    assert_eq!(operator.page.notices(), ["Saved."]);
}

/// Opens the form of a new limit of this dimension.
async fn new_limit<'a>(operator: &'a mut Window, of: &str, dimension: &str) -> &'a Page {
    operator.visit(&format!("/limits?{of}")).await;
    let add = operator.page.link("Add a limit");
    let form = operator.visit(&add).await.link(dimension);
    operator.visit(&form).await
}

/// What is said beside fields.
fn errors(page: &Page) -> Vec<String> {
    page.texts(".error, .field-error")
}

#[tokio::test]
async fn a_tenant_has_its_plans_limits_and_its_own_replace_them() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let page = operator.visit("/plans").await;
    assert!(page.content().contains("No plans yet"), "{}", page.content());
    let form = operator.visit("/plans/new").await.form("/console/plans/create");
    let form = form.fill("name", "Free").choose("priority_ceiling", "low");
    let page = operator.send(&form).await;
    assert_eq!(page.notices(), ["Free was created. Now set its limits."]);
    let plan = page.path().to_owned();
    let limits = page.table(&["For", "Limits"]).links[0].clone();
    let form = operator.visit(&limits).await.form("/console/limits/set");
    assert_eq!(operator.page.heading(), "Limits of each tenant on the plan Free");
    operator.save(&form.fill("requests_per_minute", "2")).await;

    let tenant = tenant_on(&tollgate, "Small", None).await;
    let key = tollgate.issue(tenant).await.text.reveal().to_owned();
    let other = tenant_on(&tollgate, "Other", None).await;
    let other_key = tollgate.issue(other).await.text.reveal().to_owned();
    choose_plan(&mut operator, tenant, "Free").await;
    tollgate.in_force().await;
    assert_eq!(admitted(&tollgate, &key, 4).await, 2);
    assert_eq!(
        admitted(&tollgate, &other_key, 4).await,
        4,
        "a tenant that is on no plan"
    );
    let page = operator.visit(&plan).await;
    assert!(page.links().contains(&format!("/tenants/{tenant}")), "who is on it");
    let table = operator.visit("/plans").await.table(&["Name", "Tenants"]);
    assert_eq!(
        (table.cell("Free", "Tenants"), table.cell("Free", "Limits")),
        ("1".into(), "1".into())
    );
    let table = operator.visit("/tenants").await.table(&["Name", "Highest priority"]);
    assert_eq!(table.cell("Small", "Highest priority"), "low");
    let table = operator.visit(&format!("/tenants/{tenant}")).await.table(&IN_FORCE);
    assert_eq!(table.rows, [["the tenant", "Requests per minute", "2", "Free"]]);

    // Its own limit takes the plan's place, and goes again.
    let form = operator.page.form("/console/tenants/edit");
    let page = operator.save(&form.fill("requests_per_minute", "3")).await;
    let rows = page.table(&IN_FORCE).rows;
    assert_eq!(
        rows,
        [[
            "the tenant",
            "Requests per minute",
            "3",
            "its own, in place of 2 from Free"
        ]]
    );
    tollgate.in_force().await;
    assert_eq!(admitted(&tollgate, &key, 3).await, 1, "two of three were used before");
    let form = operator.page.form("/console/tenants/edit");
    operator.save(&form.fill("requests_per_minute", "")).await;
    tollgate.in_force().await;
    assert_eq!(admitted(&tollgate, &key, 2).await, 0);

    // So does another plan, or none.
    choose_plan(&mut operator, tenant, "No plan").await;
    tollgate.in_force().await;
    assert_eq!(admitted(&tollgate, &key, 4).await, 4);
}

#[tokio::test]
async fn a_change_of_a_plan_reaches_all_its_tenants_and_every_class_below_them() {
    let tollgate = Tollgate::start().await;
    let free = plan(&tollgate, "Free", Priority::High).await;
    set(&tollgate, &Target::OfPlan(free, Class::Key), &requests_per_minute(1)).await;
    let mut keys = Vec::new();
    for name in ["One", "Two"] {
        let tenant = tenant_on(&tollgate, name, Some(free)).await;
        for _ in 0..2 {
            keys.push(tollgate.issue(tenant).await.text.reveal().to_owned());
        }
    }
    tollgate.in_force().await;
    for key in &keys {
        assert_eq!(admitted(&tollgate, key, 2).await, 1, "each key has one of its own");
    }
    set(&tollgate, &Target::OfPlan(free, Class::Key), &requests_per_minute(3)).await;
    tollgate.in_force().await;
    for key in &keys {
        assert_eq!(admitted(&tollgate, key, 3).await, 2);
    }

    // The plan's priority is the ceiling of its tenants' keys.
    set(&tollgate, &Target::OfPlan(free, Class::Key), &NodeLimits::default()).await;
    let latest = async || -> String {
        assert_eq!(admitted(&tollgate, &keys[0], 1).await, 1);
        tollgate.shipped().await;
        sqlx::query_scalar("select priority from settlements order by admitted_at desc limit 1")
            .fetch_one(&mut tollgate.sql().await)
            .await
            .expect("a row")
    };
    tollgate.in_force().await;
    assert_eq!(latest().await, "default");
    let low = PlanDraft {
        name: "Free".into(),
        priority_ceiling: Priority::Low,
    };
    tollgate
        .control()
        .edit_plan(&tollgate.actor(), free, 1, &low, Utc::now())
        .await
        .expect("edited");
    tollgate.in_force().await;
    assert_eq!(latest().await, "low");
}

#[tokio::test]
async fn a_plan_is_removed_only_when_no_tenant_is_on_it() {
    let tollgate = empty().await;
    let mut operator = Window::operator(&tollgate).await;
    let free = plan(&tollgate, "Free", Priority::Low).await;
    set(&tollgate, &Target::OfPlan(free, Class::Tenant), &requests_per_minute(1)).await;
    let address = format!("/plans/{free}");
    let remove = operator.visit(&address).await.form("/console/plans/remove");
    let tenant = tenant_on(&tollgate, "Small", Some(free)).await;
    let page = operator.send(&remove).await;
    assert_eq!(
        page.notices(),
        ["One tenant is on this plan; give it another one first."]
    );
    assert!(page.forms("/console/plans/remove").is_empty());
    assert!(page.content().contains("1 tenant on this plan"), "{}", page.content());

    choose_plan(&mut operator, tenant, "No plan").await;
    let remove = operator.visit(&address).await.form("/console/plans/remove");
    let page = operator.send(&remove).await;
    assert_eq!(
        (page.path(), page.notices()),
        ("/plans", vec!["The plan was removed.".to_owned()])
    );
    assert_eq!(page.find_table(&["Name", "Tenants"]), None);
    for gone in [address.clone(), format!("/limits?of=plan:{free}&each=tenant")] {
        assert_eq!(operator.visit(&gone).await.status, 404, "{gone}");
    }
    assert_eq!(operator.send(&remove).await.status, 404);
    // A form from before does not bring it back.
    let draft = TenantDraft {
        name: "Late".into(),
        plan_id: Some(free),
        priority_ceiling: None,
        has_strict_budgets: false,
        limits: NodeLimits::default(),
    };
    let late = tollgate
        .control()
        .create_tenant(&tollgate.actor(), &draft, Utc::now())
        .await;
    assert!(
        matches!(&late, Err(ControlError::Invalid(fields)) if fields[0].field == "plan_id"),
        "{late:?}"
    );
    let actions: Vec<String> = sqlx::query("select action from audit_log where subject = $1 order by at")
        .bind(format!("plan:{free}"))
        .fetch_all(&mut tollgate.sql().await)
        .await
        .expect("rows")
        .into_iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(actions, ["plan.create", "plan.remove"]);
}

#[tokio::test]
async fn a_removal_and_a_tenant_that_comes_at_the_same_moment_do_not_both_happen() {
    let tollgate = empty().await;
    let (control, actor) = (tollgate.control(), tollgate.actor());
    for round in 0..10 {
        let free = plan(&tollgate, &format!("Plan {round}"), Priority::Low).await;
        let draft = TenantDraft {
            name: format!("Tenant {round}"),
            plan_id: Some(free),
            priority_ceiling: None,
            has_strict_budgets: false,
            limits: NodeLimits::default(),
        };
        let (removed, created) = tokio::join!(
            control.remove_plan(&actor, free, 1, Utc::now()),
            control.create_tenant(&actor, &draft, Utc::now()),
        );
        assert_ne!(removed.is_ok(), created.is_ok(), "{removed:?}, {created:?}");
    }
}

#[tokio::test]
async fn two_who_edit_a_plan_at_once_are_told() {
    let tollgate = empty().await;
    let mut operator = Window::operator(&tollgate).await;
    let free = plan(&tollgate, "Free", Priority::Low).await;
    plan(&tollgate, "Paid", Priority::High).await;
    let address = format!("/plans/{free}");
    let first = operator.visit(&address).await.form("/console/plans/edit");
    operator.send(&first.clone().fill("name", "Gratis")).await;
    let page = operator.send(&first.fill("name", "Free of charge")).await;
    assert!(
        page.notices()[0].starts_with("Somebody else changed this"),
        "{:?}",
        page.notices()
    );
    let second = page.form("/console/plans/edit");
    assert_eq!(second.value("name"), "Free of charge", "what was entered stays");
    // A name is unique, whatever its case.
    let page = operator.send(&second.fill("name", "PAID")).await;
    assert_eq!(errors(page), ["Another plan has this name."]);
    let form = page.form("/console/plans/edit").fill("name", "Basic");
    assert_eq!(operator.send(&form).await.heading(), "Basic");
}

#[tokio::test]
async fn every_kind_of_limit_is_made_changed_and_removed() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let tenant = tenant_on(&tollgate, "Small", None).await;
    let of = format!("of=tenant:{tenant}&each=key");

    let form = new_limit(&mut operator, &of, "Requests")
        .await
        .form("/console/limits/add");
    let form = form
        .fill("value", "1,000")
        .fill("window_seconds", "3600")
        .choose("model", MODEL)
        .choose("priority", "low")
        .choose("mode", "Rehearse: refuses nothing");
    let page = operator.save(&form).await;
    assert_eq!(page.notices(), ["The limit was added."]);
    let table = page.table(&LIMITS);
    assert_eq!(
        table.rows[0][..7],
        ["Requests", "1,000", "hour", MODEL, "low", "rehearsed", "none"]
    );

    let form = new_limit(&mut operator, &of, "Output tokens")
        .await
        .form("/console/limits/add");
    let form = form
        .fill("value", "90000")
        .fill("burst", "20000")
        .fill("gate_lower_percent", "60")
        .fill("gate_upper_percent", "80")
        .choose("gate_upper", "Let others wait");
    operator.save(&form).await;
    let form = new_limit(&mut operator, &of, "Budget")
        .await
        .form("/console/limits/add");
    operator
        .save(&form.fill("value", "12.50").choose("period", "Week, from Monday"))
        .await;
    for dimension in [
        "Input tokens",
        "All tokens",
        "Requests at once",
        "Token budget",
        "Input tokens of a request",
        "Output tokens of a request",
        "Seconds of a request",
    ] {
        let form = new_limit(&mut operator, &of, dimension)
            .await
            .form("/console/limits/add");
        let page = operator.save(&form.fill("value", "77")).await;
        assert_eq!(page.table(&LIMITS).cell(dimension, "Value"), "77");
    }
    let table = operator.page.table(&LIMITS);
    assert_eq!(table.rows.len(), 10);
    let output = table.rows.iter().find(|row| row[0] == "Output tokens").expect("a row");
    assert_eq!(
        output[..7],
        [
            "Output tokens",
            "90,000",
            "minute burst 20,000",
            "all",
            "all",
            "enforced",
            "60 % and 80 %, waits"
        ]
    );
    assert_eq!(
        (table.cell("Budget", "Value"), table.cell("Budget", "Per")),
        ("USD 12.50".to_owned(), "week".to_owned())
    );

    // A change keeps what tells the limit apart.
    let edit = table.links[table.rows.iter().position(|row| row[0] == "Requests").expect("a row")].clone();
    let form = operator.visit(&edit).await.form("/console/limits/edit");
    assert_eq!(
        (form.value("value"), form.choice("mode")),
        ("1000", "Rehearse: refuses nothing")
    );
    let page = operator
        .save(&form.fill("value", "5").choose("mode", "Enforce: refuses"))
        .await;
    assert_eq!(page.notices(), ["Saved."]);
    let requests = page.table(&LIMITS);
    assert_eq!(requests.rows[..].iter().filter(|row| row[0] == "Requests").count(), 1);
    let row = requests.rows.iter().find(|row| row[0] == "Requests").expect("a row");
    assert_eq!(row[..6], ["Requests", "5", "hour", MODEL, "low", "enforced"]);

    // One more step before it is gone.
    for left in (0..10).rev() {
        let form = operator.page.forms("/console/limits/remove").remove(0);
        let page = operator.send(&form).await;
        assert!(
            page.notices()[0].starts_with("The limit was removed"),
            "{:?}",
            page.notices()
        );
        let rows = page.find_table(&LIMITS).map_or(0, |table| table.rows.len());
        assert_eq!(rows, left);
    }
    assert!(operator.page.content().contains("None yet"));
}

#[tokio::test]
async fn a_limit_of_one_model_and_window_is_what_is_enforced() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let of = format!("of=tenant:{tenant}");
    let form = new_limit(&mut operator, &of, "Requests")
        .await
        .form("/console/limits/add");
    let form = form
        .fill("value", "2")
        .fill("window_seconds", "3600")
        .choose("model", MODEL);
    operator.save(&form).await;
    tollgate.in_force().await;
    assert_eq!(admitted(&tollgate, &key, 3).await, 2);
    let edit = operator.page.table(&LIMITS).links[0].clone();
    let form = operator.visit(&edit).await.form("/console/limits/edit");
    operator.save(&form.choose("mode", "Rehearse: refuses nothing")).await;
    tollgate.in_force().await;
    assert_eq!(admitted(&tollgate, &key, 3).await, 3);
}

#[tokio::test]
async fn what_is_wrong_with_a_limit_is_said_beside_its_field_and_nothing_typed_is_lost() {
    let tollgate = empty().await;
    let mut operator = Window::operator(&tollgate).await;
    let form = new_limit(&mut operator, "of=global", "Input tokens")
        .await
        .form("/console/limits/add");
    let form = form
        .fill("value", "1,5")
        .fill("burst", "0")
        .fill("window_seconds", "90000")
        .fill("gate_upper_percent", "");
    let page = operator.send(&form).await;
    assert!(
        page.notices()[0].starts_with("Nothing was saved yet"),
        "{:?}",
        page.notices()
    );
    assert_eq!(
        errors(page),
        [
            "Write a whole number such as 60 or 200,000.",
            "Write both gates, or none."
        ]
    );
    let form = page.form("/console/limits/add");
    for (name, text) in [
        ("value", "1,5"),
        ("burst", "0"),
        ("window_seconds", "90000"),
        ("gate_lower_percent", "70"),
    ] {
        assert_eq!(form.value(name), text);
    }
    let form = form.fill("value", "100").fill("gate_upper_percent", "60");
    let page = operator.send(&form).await;
    assert_eq!(
        errors(page),
        [
            "At least 1; leave it empty for five seconds' worth.",
            "Between 1 second and one day (86,400 seconds).",
            "The lower gate is at least 1 %, the upper not below it and at most 100 %."
        ]
    );
}

#[tokio::test]
async fn a_second_limit_for_the_same_is_refused_where_it_is_added() {
    let tollgate = empty().await;
    let mut operator = Window::operator(&tollgate).await;
    let mut add = async |window: &str| {
        let form = new_limit(&mut operator, "of=global", "Requests")
            .await
            .form("/console/limits/add");
        operator
            .save(&form.fill("value", "9").fill("window_seconds", window))
            .await
            .clone()
    };
    assert_eq!(add("60").await.notices(), ["The limit was added."]);
    assert_eq!(add("10").await.notices(), ["The limit was added."]);
    let page = add("60").await;
    assert!(
        errors(&page)[0].starts_with("There is a limit for exactly this already"),
        "{:?}",
        errors(&page)
    );
    assert_eq!(page.form("/console/limits/add").value("value"), "9");
}

#[tokio::test]
async fn nodes_that_do_not_exist_have_no_limits() {
    let tollgate = empty().await;
    let mut operator = Window::operator(&tollgate).await;
    let tenant = tenant_on(&tollgate, "Small", None).await;
    let none = uuid::Uuid::nil();
    for of in [
        "model:nope".to_owned(),
        "models:nope".to_owned(),
        format!("tenant:{none}"),
        format!("tenant:{none}&each=key"),
        format!("tenant:{tenant}&each=tenant"),
        format!("tenant:{tenant}&each=nope"),
        format!("user:{none}/ann"),
        format!("user:{tenant}/"),
        format!("key:{none}"),
        format!("upstream:{none}"),
        format!("plan:{none}&each=key"),
        format!("plan:{none}"),
        "plan:nope&each=key".to_owned(),
        "nope".to_owned(),
        String::new(),
    ] {
        for address in [format!("/limits?of={of}"), format!("/limits/edit?of={of}")] {
            assert_eq!(operator.visit(&address).await.status, 404, "{address}");
        }
    }
    for address in [
        "/limits/edit?of=global&dimension=nope".to_owned(),
        format!("/limits/edit?of=global&limit={none}"),
        "/limits/edit?of=global&limit=nope".to_owned(),
        format!("/plans/{none}"),
        "/plans/nope".to_owned(),
    ] {
        assert_eq!(operator.visit(&address).await.status, 404, "{address}");
    }
    assert_eq!(
        operator.visit(&format!("/limits?of=user:{tenant}/ann")).await.status,
        200
    );
}

#[tokio::test]
async fn proposals_fill_in_the_form_and_say_why() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let upstream = tollgate
        .control()
        .upstreams(&tollgate.actor())
        .await
        .expect("upstreams")[0]
        .id;
    let tenant = tenant_on(&tollgate, "Small", None).await;

    let table = operator
        .visit(&format!("/limits?of=upstream:{upstream}"))
        .await
        .table(&["Account", "Requests"]);
    assert_eq!(
        table.rows[0],
        ["Small", "450 of 500", "180,000 of 200,000", "90,000 of 100,000"]
    );
    let form = operator.visit(&table.links[0]).await.form("/console/limits/add");
    assert_eq!(
        ["value", "gate_lower_percent", "gate_upper_percent"].map(|name| form.value(name)),
        ["450", "70", "90"]
    );
    let page = operator.save(&form).await;
    assert_eq!(page.table(&LIMITS).cell("Requests", "Gates"), "70 % and 90 %");
    // Once there is one, a proposal is one to change it.
    let form = operator.visit(&table.links[0]).await.form("/console/limits/edit");
    assert_eq!(form.value("value"), "450");

    for (of, share) in [("global", "800"), (&format!("model:{MODEL}"), "750")] {
        let form = operator.visit(&format!("/limits?of={of}")).await.form("/limits/edit");
        let form = form.choose("dimension", "Requests at once").fill("capacity", "1,000");
        let page = operator.send(&form).await;
        assert_eq!(page.form("/console/limits/add").value("value"), share, "{of}");
        assert!(page.content().contains("% of 1,000"), "{}", page.content());
    }
    let form = operator.visit("/limits?of=global").await.form("/limits/edit");
    let page = operator.send(&form.fill("capacity", "much")).await;
    assert_eq!(errors(page).len(), 1);

    for (each, text, value) in [("user", "Propose 20", "20"), ("key", "Propose 5", "5")] {
        let link = operator
            .visit(&format!("/limits?of=tenant:{tenant}&each={each}"))
            .await
            .link(text);
        let form = operator.visit(&link).await.form("/console/limits/add");
        assert_eq!((form.value("value"), form.value("gate_lower_percent")), (value, ""));
    }
    // A limit that many share and that has no gates is offered some.
    set(&tollgate, &Target::Node(Scope::Global), &requests_per_minute(100)).await;
    let link = operator.visit("/limits?of=global").await.link("add 70 and 90 %");
    let form = operator.visit(&link).await.form("/console/limits/edit");
    assert_eq!((form.value("value"), form.value("gate_upper_percent")), ("100", "90"));
}

#[tokio::test]
async fn children_that_add_up_to_more_than_their_parent_are_pointed_out() {
    let tollgate = empty().await;
    let mut operator = Window::operator(&tollgate).await;
    let budget = |units| NodeLimits {
        monthly_cost: Some(Nanos::from_units(units)),
        ..NodeLimits::default()
    };
    set(&tollgate, &Target::Node(Scope::Global), &budget(100)).await;
    let free = plan(&tollgate, "Free", Priority::High).await;
    set(&tollgate, &Target::OfPlan(free, Class::Tenant), &budget(30)).await;
    let one = tenant_on(&tollgate, "One", Some(free)).await;
    tenant_on(&tollgate, "Two", Some(free)).await;
    let unlimited = tenant_on(&tollgate, "Unlimited", None).await;
    assert_eq!(
        operator.visit("/limits?of=global").await.notices(),
        Vec::<String>::new()
    );

    // The tenant's own replaces the plan's: 80 and 30, not 30 twice and 80.
    set(&tollgate, &Target::Node(Scope::Tenant(one)), &budget(80)).await;
    let notice = "Budget per month: 2 tenants may use USD 110.00 together, and there are only USD 100.00.";
    let notices = operator.visit("/limits?of=global").await.notices();
    assert!(notices.len() == 1 && notices[0].starts_with(notice), "{notices:?}");
    for of in [format!("tenant:{one}"), format!("plan:{free}&each=tenant")] {
        let notices = operator.visit(&format!("/limits?of={of}")).await.notices();
        assert!(
            notices[0].contains("the whole installation has only"),
            "{of}: {notices:?}"
        );
    }
    for of in [format!("tenant:{unlimited}"), format!("tenant:{one}&each=key")] {
        let notices = operator.visit(&format!("/limits?of={of}")).await.notices();
        assert_eq!(notices, Vec::<String>::new(), "{of}");
    }

    // Keys of a tenant, but not those that are gone.
    let mut keys = Vec::new();
    for _ in 0..3 {
        let key = tollgate.issue(one).await.row.id;
        set(&tollgate, &Target::Node(Scope::Key(key)), &budget(30)).await;
        keys.push(key);
    }
    let below = async || {
        let found = tollgate
            .control()
            .oversubscriptions(&tollgate.actor(), Utc::now())
            .await
            .expect("found");
        found
            .into_iter()
            .filter(|one| one.each == Class::Key)
            .map(|one| (one.parent.clone(), one.children_count, one.excess()))
            .collect::<Vec<_>>()
    };
    let excess = Nanos::from_units(10).0.unsigned_abs();
    assert_eq!(below().await, [(Scope::Tenant(one), 3, excess)]);
    tollgate
        .control()
        .revoke_key(&tollgate.actor(), keys[0], Utc::now())
        .await
        .expect("revoked");
    assert_eq!(below().await, []);
    // What each user names counts by user.
    for user in ["ann", "bob"] {
        let scope = Scope::User(one, user.into());
        set(&tollgate, &Target::Node(scope), &budget(41)).await;
    }
    let notices = operator.visit(&format!("/limits?of=tenant:{one}")).await.notices();
    assert!(
        notices
            .iter()
            .any(|notice| notice.contains("2 users may use USD 82.00")),
        "{notices:?}"
    );
}

#[tokio::test]
async fn the_rehearsal_is_set_by_operators_and_refuses_nothing() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let (_, key) = tollgate.tenant_with_key(requests_per_minute(10)).await;
    let form = operator.visit("/settings").await.form("/console/settings/rehearsal");
    for wrong in ["0", "101", "999", "half"] {
        let page = operator.send(&form.clone().fill("percent", wrong)).await;
        assert_eq!(errors(page).len(), 1, "{wrong}");
        assert_eq!(page.form("/console/settings/rehearsal").value("percent"), wrong);
    }
    let page = operator.send(&form.clone().fill("percent", "20")).await;
    assert_eq!(page.notices(), ["All limits are rehearsed at 20 % within a second."]);
    assert!(
        page.content()
            .contains("All limits are rehearsed at 20 % of their value.")
    );
    assert!(operator.send(&form.fill("percent", "30")).await.notices()[0].starts_with("Somebody else changed"));
    tollgate.in_force().await;
    assert_eq!(admitted(&tollgate, &key, 4).await, 4);
    let rehearsed = async || -> i64 {
        tollgate.shipped().await;
        sqlx::query_scalar("select count(*) from settlements where jsonb_array_length(rehearsed) > 0")
            .fetch_one(&mut tollgate.sql().await)
            .await
            .expect("a count")
    };
    assert_eq!(rehearsed().await, 2, "a fifth of ten are two");
    let form = operator.visit("/settings").await.form("/console/settings/rehearsal");
    let page = operator.send(&form.fill("percent", "")).await;
    assert_eq!(page.notices(), ["The rehearsal is off within a second."]);
    tollgate.in_force().await;
    assert_eq!(admitted(&tollgate, &key, 2).await, 2);
    assert_eq!(rehearsed().await, 2);
}

#[tokio::test]
async fn models_without_a_price_are_refused_or_charged_as_the_settings_say() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let upstream = tollgate
        .control()
        .upstreams(&tollgate.actor())
        .await
        .expect("upstreams")[0]
        .id;
    tollgate.model("unpriced", upstream, None).await;
    tollgate.in_force().await;
    let mut body = test_support::tollgate::chat_body("Hello.");
    body["model"] = "unpriced".into();
    let ask = async || tollgate.browser().post_json("/v1/chat/completions", &key, &body).await;
    assert_eq!(ask().await.code(), "model_unpriced");

    let form = operator.visit("/settings").await.form("/console/settings/unpriced");
    let form = form.choose("policy", "Charge the prices below").fill("input", "10");
    let page = operator.send(&form).await;
    assert_eq!(
        errors(page),
        ["Write the price per million tokens; 0 if it costs nothing."]
    );
    let form = page.form("/console/settings/unpriced").fill("output", "20");
    // Before it there may be the alert of the request that was refused.
    let notices = operator.send(&form).await.notices();
    assert_eq!(notices.last().map(String::as_str), Some("Saved."));
    let form = operator.page.form("/console/settings/unpriced");
    assert_eq!(
        ["input", "cache_read", "output"].map(|name| form.value(name)),
        ["10.00", "10.00", "20.00"]
    );
    tollgate.in_force().await;
    assert_eq!(ask().await.status, 200);
    assert!(
        operator
            .visit("/status")
            .await
            .content()
            .contains("are charged USD 10.00 in")
    );
    for (name, value) in [("Billing currency", "USD"), ("Billing time zone", "UTC")] {
        assert!(
            operator.visit("/settings").await.fact(name).starts_with(value),
            "{name}"
        );
    }
}

#[tokio::test]
async fn plans_and_limits_are_changed_by_operators_and_seen_by_those_they_concern() {
    let tollgate = empty().await;
    let (control, system, now) = (tollgate.control(), tollgate.actor(), Utc::now());
    let free = plan(&tollgate, "Free", Priority::Low).await;
    set(&tollgate, &Target::OfPlan(free, Class::User), &requests_per_minute(7)).await;
    let tenant = tenant_on(&tollgate, "Small", Some(free)).await;
    let other = tenant_on(&tollgate, "Other", None).await;
    let node = Target::Node(Scope::Tenant(tenant));
    let draft = PlanDraft {
        name: "Planted".into(),
        priority_ceiling: Priority::Critical,
    };
    let limit = LimitText {
        value: "1".into(),
        ..LimitText::default()
    };
    let limit: LimitDraft = limit.parse(Dimension::Requests, &mut control::fields::Fields::default());
    let people = [
        (Role::Auditor, None),
        (Role::Manager, Some(tenant)),
        (Role::Member, Some(tenant)),
        (Role::Manager, Some(other)),
    ];
    for (index, (role, tenant_id)) in people.into_iter().enumerate() {
        let person = PersonDraft {
            name: format!("Person {index}"),
            email: format!("person{index}@example.com"),
            role,
            tenant_id,
        };
        let invited = control.invite_person(&system, &person, now).await.expect("invited");
        let actor = Actor::person(&invited.person, None);
        let is_refused = |what: &str, answer: Result<(), ControlError>| {
            assert!(
                matches!(answer, Err(ControlError::Forbidden | ControlError::NotFound { .. })),
                "{what} by {role} of {tenant_id:?}: {answer:?}"
            );
        };
        is_refused("create", control.create_plan(&actor, &draft, now).await.map(drop));
        is_refused("edit", control.edit_plan(&actor, free, 1, &draft, now).await);
        is_refused("remove", control.remove_plan(&actor, free, 1, now).await);
        is_refused("rehearsal", control.set_rehearsal(&actor, 1, Some(20), now).await);
        is_refused("add", control.add_limit(&actor, &node, 0, &limit, now).await.map(drop));
        is_refused("set", control.set_limit(&actor, &node, 0, &limit, now).await.map(drop));
        let sees_all = role == Role::Auditor;
        assert_eq!(control.plans(&actor).await.is_ok(), sees_all);
        assert_eq!(control.plan(&actor, free).await.is_ok(), sees_all);
        assert_eq!(control.settings_for(&actor).await.is_ok(), sees_all);
        let of_plan = Target::OfPlan(free, Class::User);
        assert_eq!(control.limits_of(&actor, &of_plan).await.is_ok(), sees_all);
        // A manager knows what holds in the own tenant, wherever it comes from.
        let sees_own = sees_all || (role == Role::Manager && tenant_id == Some(tenant));
        let sources = control.limit_sources(&actor, tenant).await;
        assert_eq!(sources.is_ok(), sees_own, "{role}: {sources:?}");
        if let Ok(sources) = sources {
            let users = sources
                .iter()
                .find(|source| source.class == Class::User)
                .expect("users");
            assert_eq!(users.from_plan().map(|limit| limit.value).collect::<Vec<_>>(), [7]);
        }
        let over = control.oversubscriptions(&actor, now).await;
        assert_eq!(over.is_ok(), role != Role::Member);
    }
    let view = control.plan(&system, free).await.expect("a plan");
    assert_eq!((view.row.version, view.row.plan.name.as_str()), (1, "Free"));
    assert!(
        control
            .limits_of(&system, &node)
            .await
            .expect("limits")
            .limits
            .is_empty()
    );
}

#[tokio::test]
async fn pages_of_plans_and_settings_are_for_those_who_see_everything() {
    let tollgate = empty().await;
    let free = plan(&tollgate, "Free", Priority::Low).await;
    set(&tollgate, &Target::OfPlan(free, Class::Tenant), &requests_per_minute(7)).await;
    let tenant = tenant_on(&tollgate, "Small", Some(free)).await;
    let pages = [
        "/plans".to_owned(),
        format!("/plans/{free}"),
        "/settings".to_owned(),
        format!("/limits?of=plan:{free}&each=key"),
    ];
    let mut auditor = Window::person(&tollgate, Role::Auditor, None).await;
    for address in &pages {
        let page = auditor.visit(address).await;
        assert_eq!(page.status, 200, "{address}");
        assert_eq!(page.writes(), ["/console/sign-out"], "{address}");
    }
    let mut manager = Window::person(&tollgate, Role::Manager, Some(tenant)).await;
    let mut member = Window::person(&tollgate, Role::Member, Some(tenant)).await;
    for address in &pages {
        for window in [&mut manager, &mut member] {
            let status = window.visit(address).await.status;
            assert!(status == 403 || status == 404, "{address}: {status}");
        }
    }
    for window in [&mut auditor, &mut manager, &mut member] {
        let status = window.visit(&format!("/limits/edit?of=tenant:{tenant}")).await.status;
        assert_eq!(status, 403);
        assert_eq!(window.visit("/plans/new").await.status, 403);
    }
    let table = manager.visit(&format!("/tenants/{tenant}")).await.table(&IN_FORCE);
    assert_eq!(table.rows, [["the tenant", "Requests per minute", "7", "Free"]]);
    assert!(!manager.page.links().contains(&format!("/plans/{free}")));
}

#[tokio::test]
async fn a_limit_that_was_changed_meanwhile_is_not_written_over() {
    let tollgate = empty().await;
    let mut operator = Window::operator(&tollgate).await;
    let weekly = LimitText {
        value: "500".into(),
        period: Period::Week.as_str().into(),
        ..LimitText::default()
    };
    let weekly = weekly.parse(Dimension::BudgetTokens, &mut control::fields::Fields::default());
    let node = Target::Node(Scope::Global);
    tollgate
        .control()
        .add_limit(&tollgate.actor(), &node, 0, &weekly, Utc::now())
        .await
        .expect("added");
    let edit = operator.visit("/limits?of=global").await.table(&LIMITS).links[0].clone();
    let remove = operator.page.form("/console/limits/remove");
    let form = operator.visit(&edit).await.form("/console/limits/edit");
    operator.save(&form.clone().fill("value", "600")).await;
    let page = operator.send(&form.fill("value", "700")).await;
    assert!(
        page.notices()[0].starts_with("Somebody else changed this"),
        "{:?}",
        page.notices()
    );
    assert_eq!(page.form("/console/limits/edit").value("value"), "700");
    let page = operator.send(&remove).await;
    assert!(
        page.notices()[0].starts_with("Somebody else changed this"),
        "{:?}",
        page.notices()
    );
    assert_eq!(page.table(&LIMITS).cell("Token budget", "Value"), "600");
}

#[tokio::test]
async fn a_key_owned_by_a_person_counts_for_that_user_of_the_plan() {
    let tollgate = Tollgate::start().await;
    let free = plan(&tollgate, "Free", Priority::High).await;
    set(&tollgate, &Target::OfPlan(free, Class::User), &requests_per_minute(1)).await;
    let tenant = tenant_on(&tollgate, "Small", Some(free)).await;
    let person = PersonDraft {
        name: "Mia".into(),
        email: "mia@example.com".into(),
        role: Role::Member,
        tenant_id: Some(tenant),
    };
    let (control, actor, now) = (tollgate.control(), tollgate.actor(), Utc::now());
    let mia = control
        .invite_person(&actor, &person, now)
        .await
        .expect("invited")
        .person
        .id;
    let draft = KeyDraft {
        name: "laptop".into(),
        priority: Priority::Default,
        allowed_models: None,
        may_name_users: false,
        degrades: false,
        expiry: Expiry::Never,
    };
    let mut keys = Vec::new();
    for _ in 0..2 {
        let issued = control
            .issue_key(&actor, tenant, KeyOwner::Person(mia), &draft, now)
            .await
            .expect("a key");
        keys.push(issued.text.reveal().to_owned());
    }
    tollgate.in_force().await;
    assert_eq!(admitted(&tollgate, &keys[0], 1).await, 1);
    assert_eq!(
        admitted(&tollgate, &keys[1], 1).await,
        0,
        "the same user with another key"
    );
}

//! A limit that is higher for a while: set, changed and ended at the console, over by itself at its instant.

use chrono::{DateTime, Datelike as _, Days, Duration, NaiveDate, Utc};
use chrono_tz::Tz;
use control::limits::{IncreaseDraft, NodeLimits, last_day};
use domain::ids::TenantId;
use domain::limits::{Dimension, Limit, Scope, Target};
use domain::people::Role;
use domain::periods::end_of_day;
use store::audit::AuditFilter;
use test_redis::RedisServer;
use test_support::clock::zone_at_noon;
use test_support::console::Window;
use test_support::fleet::{Fleet, until};
use test_support::http::Browser;
use test_support::tollgate::{CHAT_PATH, Options, Tollgate, chat_body, limit};

use crate::fleet::shared;

/// What one request uses of a budget, and a little more is held for it.
const ASK: &str = "Hello. [[sim: tokens=400]]";

fn monthly_tokens(tokens: u64) -> NodeLimits {
    NodeLimits {
        monthly_tokens: Some(tokens),
        ..NodeLimits::default()
    }
}

async fn budget(tollgate: &Tollgate, tenant: TenantId) -> Limit {
    let target = Target::Node(Scope::Tenant(tenant));
    let limits = tollgate.control().limits_of(&tollgate.actor(), &target).await;
    limits.expect("limits").limits.remove(0)
}

/// Opens the form of the tenant's one limit.
async fn open_limit(operator: &mut Window, tenant: TenantId) {
    operator.visit(&format!("/limits?of=tenant:{tenant}")).await;
    let edit = operator.page.link("Edit");
    operator.visit(&edit).await;
}

/// Increases the tenant's one limit until the end of this day.
async fn increase(operator: &mut Window, tenant: TenantId, value: &str, last_day: &str, reason: &str) {
    open_limit(operator, tenant).await;
    let form = operator.page.form("/console/limits/increase");
    let form = form
        .fill("increase_value", value)
        .fill("increase_last_day", last_day)
        .fill("increase_reason", reason);
    operator.save(&form).await;
}

/// Today, or tomorrow where the month ends with today: the budget must not start again with the end of the increase.
fn day_within_month(zone: Tz) -> NaiveDate {
    let today = Utc::now().with_timezone(&zone).date_naive();
    let tomorrow = today + Days::new(1);
    if tomorrow.day() == 1 { tomorrow } else { today }
}

fn day_after(days: u64, zone: Tz) -> String {
    let today = Utc::now().with_timezone(&zone).date_naive();
    (today + Days::new(days)).to_string()
}

#[tokio::test]
async fn a_budget_is_increased_at_the_console_and_over_at_the_end_of_the_day_without_postgres() {
    let zone = zone_at_noon();
    let tollgate = Tollgate::start_with(Options {
        time_zone: Some(zone),
        has_wire: true,
        ..Options::default()
    })
    .await;
    let last = day_within_month(zone);
    let end = end_of_day(last, zone);
    tollgate.clock.set(end - Duration::hours(12));
    let mut operator = Window::operator(&tollgate).await;
    let (tenant, key) = tollgate.tenant_with_key(monthly_tokens(700)).await;
    assert_eq!(tollgate.chat(&key, ASK).await.status, 200);
    assert_eq!(tollgate.chat(&key, ASK).await.code(), "budget_exhausted");

    increase(&mut operator, tenant, "3,000", &last.to_string(), "a hackathon").await;
    assert_eq!(
        operator.page.notices(),
        ["Increased: Token budget per month. Every gateway knows within a second."]
    );
    until("the increase is in force", async || {
        tollgate.chat(&key, ASK).await.status == 200
    })
    .await;
    let raised = budget(&tollgate, tenant).await.increase.expect("an increase");
    assert_eq!((raised.value, raised.until, last_day(raised, zone)), (3_000, end, last));

    // Both values, and until when, wherever the budget is shown.
    let note = format!("until {}, then 700 again", last.format("%-d %b %Y"));
    for address in [
        format!("/limits?of=tenant:{tenant}"),
        format!("/tenants/{tenant}"),
        format!("/quota-tree?open=tenant:{tenant}"),
    ] {
        let page = operator.visit(&address).await;
        assert!(page.content().contains(&note), "{address}: {}", page.content());
        assert!(page.content().contains("3,000"), "{address}");
    }
    let entries = tollgate
        .control()
        .audit_entries(
            &tollgate.actor(),
            AuditFilter {
                count: 1,
                ..AuditFilter::default()
            },
        )
        .await
        .expect("the audit log");
    assert_eq!(entries[0].action, "limit.increase");
    assert_eq!(entries[0].actor, "olga@example.com");
    let after = entries[0].after.as_ref().expect("what it is now");
    assert_eq!(
        (&after["reason"], &after["limit"]["increase"]["value"]),
        (&"a hackathon".into(), &3_000.into())
    );

    // The kept policy knows the end; nothing has to run then, and nobody has to be asked.
    tollgate.shipped().await;
    tollgate.wire().cut();
    tollgate.clock.set(end - Duration::seconds(20));
    assert_eq!(tollgate.chat(&key, ASK).await.status, 200);
    tollgate.clock.set(end);
    assert_eq!(tollgate.chat(&key, ASK).await.code(), "budget_exhausted");
    tollgate.wire().mend();
}

#[tokio::test]
async fn an_increase_is_changed_and_ended_early_on_every_gateway() {
    let redis = RedisServer::start().await;
    let fleet = Fleet::start(2, shared(redis.url())).await;
    let tollgate = &fleet.first;
    let mut operator = Window::operator(tollgate).await;
    let (tenant, key) = fleet.tenant_with_key(monthly_tokens(700)).await;
    let browsers = fleet.browsers();
    let answers = async |browser: &Browser| browser.post_json(CHAT_PATH, &key, &chat_body(ASK)).await;
    assert_eq!(answers(&browsers[0]).await.status, 200);
    for browser in &browsers {
        assert_eq!(answers(browser).await.code(), "budget_exhausted");
    }

    let day = day_after(3, Tz::UTC);
    increase(&mut operator, tenant, "5000", &day, "a launch").await;
    for browser in &browsers {
        until("increased here", async || answers(browser).await.status == 200).await;
    }
    open_limit(&mut operator, tenant).await;
    let form = operator.page.form("/console/limits/increase");
    assert_eq!(
        (form.value("increase_value"), form.value("increase_last_day")),
        ("5000", day.as_str()),
        "it is changed from what it is"
    );
    // The limit itself is edited beside it, and keeps it.
    let edit = operator.page.form("/console/limits/edit").fill("value", "800");
    operator.save(&edit).await;
    assert_eq!(operator.page.notices(), ["Saved."]);
    assert_eq!(budget(tollgate, tenant).await.value_at(Utc::now()), 5_000);

    open_limit(&mut operator, tenant).await;
    let end = operator.page.form("/console/limits/end-increase");
    operator.send(&end).await;
    assert_eq!(
        operator.page.notices(),
        ["The increase is over; every gateway knows within a second."]
    );
    assert_eq!(budget(tollgate, tenant).await.value_at(Utc::now()), 800);
    for browser in &browsers {
        until("over here", async || {
            answers(browser).await.code() == "budget_exhausted"
        })
        .await;
    }
    open_limit(&mut operator, tenant).await;
    assert!(
        operator.page.forms("/console/limits/end-increase").is_empty(),
        "it is gone"
    );
    operator.send(&end).await;
    let problem = "Somebody else changed this meanwhile";
    assert!(operator.page.content().contains(problem), "{}", operator.page.content());
}

#[tokio::test]
async fn what_is_wrong_with_an_increase_is_said_and_only_operators_set_one() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let tenant = tollgate.tenant("Tenant", monthly_tokens(700)).await;
    let days = |days| day_after(days, Tz::UTC);
    let cases = [
        (
            "700",
            days(1),
            "why",
            "Write more than the ordinary value; to lower it, change that.",
        ),
        ("800", "2020-01-01".to_owned(), "why", "This day is over already."),
        (
            "800",
            days(400),
            "why",
            "At most 366 days ahead; for longer, change the limit itself.",
        ),
        ("800", "soon".to_owned(), "why", "Write a date such as 2026-12-15."),
        ("800", days(1), " ", "Say why; the audit log keeps it with your name."),
    ];
    for (value, day, reason, message) in cases {
        increase(&mut operator, tenant, value, &day, reason).await;
        assert_eq!(operator.page.texts(".error"), [message], "{}", operator.page.content());
        let form = operator.page.form("/console/limits/increase");
        assert_eq!(form.value("increase_last_day"), day, "what was typed stays");
    }
    assert_eq!(budget(&tollgate, tenant).await.increase, None);

    // Two who edit at once are told.
    open_limit(&mut operator, tenant).await;
    let stale = operator.page.form("/console/limits/increase");
    increase(&mut operator, tenant, "900", &days(1), "first").await;
    let stale = stale
        .fill("increase_value", "950")
        .fill("increase_last_day", &days(1))
        .fill("increase_reason", "second");
    operator.send(&stale).await;
    assert!(
        operator.page.content().contains("Somebody else changed this"),
        "{}",
        operator.page.content()
    );
    assert_eq!(budget(&tollgate, tenant).await.value_at(Utc::now()), 900);

    for role in [Role::Auditor, Role::Manager] {
        let mut window = Window::person(&tollgate, role, (role == Role::Manager).then_some(tenant)).await;
        window.send(&stale).await;
        assert_eq!(budget(&tollgate, tenant).await.value_at(Utc::now()), 900, "{role}");
    }
}

#[tokio::test]
async fn an_increase_that_is_over_vanishes_from_the_pages_and_does_not_count_as_oversubscribed() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let tenant = tollgate.tenant("Tenant", monthly_tokens(700)).await;
    let user = Target::Node(Scope::User(tenant, "anna".into()));
    let limits = monthly_tokens(600);
    tollgate
        .control()
        .set_limits(&tollgate.actor(), &user, 0, &limits, Utc::now())
        .await
        .expect("set");
    let oversubscribed = async |at: DateTime<Utc>| {
        let found = tollgate.control().oversubscriptions(&tollgate.actor(), at).await;
        found.expect("warnings").len()
    };
    let target = Target::Node(Scope::User(tenant, "anna".into()));
    let view = tollgate
        .control()
        .limits_of(&tollgate.actor(), &target)
        .await
        .expect("limits");
    let today = Utc::now().date_naive();
    let draft = control::limits::IncreaseDraft {
        value: 900,
        last_day: today,
        reason: "a day of tests".to_owned(),
    };
    tollgate
        .control()
        .increase_limit(
            &tollgate.actor(),
            &target,
            view.version,
            view.limits[0].id,
            &draft,
            Utc::now(),
        )
        .await
        .expect("increased");
    let end = end_of_day(today, Tz::UTC);
    assert_eq!(oversubscribed(end - Duration::seconds(1)).await, 1);
    assert_eq!(oversubscribed(end).await, 0);

    // As if it had ended a while ago.
    sqlx::query("update limits set increase_until = now() - interval '1 second' where increase_until is not null")
        .execute(&mut tollgate.sql().await)
        .await
        .expect("it is over");
    let page = operator.visit(&format!("/limits?of=user:{tenant}/anna")).await;
    assert!(!page.content().contains("900"), "{}", page.content());
    assert!(page.content().contains("600"));
}

#[tokio::test]
async fn a_lowered_value_holds_at_once_and_an_increase_that_was_passed_does_not_come_back() {
    let tollgate = Tollgate::start().await;
    let (tenant, _) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let target = Target::Node(Scope::Tenant(tenant));
    let in_force = async || budget(&tollgate, tenant).await.value_at(Utc::now());
    let actor = tollgate.actor();
    let mut version = 0;
    // Set, increased, then set to this: what is in force, and after one more to 150.
    for (value, with_it, later) in [
        (120, 200, 200),
        (80, 80, 150),
        (0, 0, 150),
        (200, 200, 150),
        (300, 300, 150),
    ] {
        version = tollgate
            .set_limit(target.clone(), version, &limit(Dimension::BudgetTokens, 100))
            .await;
        let id = budget(&tollgate, tenant).await.id;
        let draft = IncreaseDraft {
            value: 200,
            last_day: Utc::now().date_naive() + Days::new(3),
            reason: "a fair".into(),
        };
        let increased = tollgate
            .control()
            .increase_limit(&actor, &target, version, id, &draft, Utc::now());
        version = increased.await.expect("an increase");
        // Each version that is answered is the one to go on with.
        version = tollgate
            .set_limit(target.clone(), version, &limit(Dimension::BudgetTokens, value))
            .await;
        assert_eq!(in_force().await, with_it, "{value}");
        version = tollgate
            .set_limit(target.clone(), version, &limit(Dimension::BudgetTokens, 150))
            .await;
        assert_eq!(in_force().await, later, "{value}");
        let cleared = tollgate.control().clear_limit(&actor, &target, version, id, Utc::now());
        version = cleared.await.expect("it is cleared");
    }
}

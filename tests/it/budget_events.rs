//! Thresholds of budgets: told once in each period, whoever sees them, and to those whom they concern.

use std::collections::BTreeMap;

use chrono::{DateTime, Duration, Utc};
use control::budget_events::{BudgetEvent, BudgetEventFilter};
use control::limits::{LimitDraft, NodeLimits};
use domain::budget_events::Thresholds;
use domain::ids::{AdjustmentId, LimitId, TenantId};
use domain::ledger::Adjustment;
use domain::limits::{Class, Dimension, Mode, Scope, Target};
use domain::money::Nanos;
use domain::people::Role;
use domain::periods::Period;
use domain::priority::Priority;
use futures_util::future::join_all;
use store::Store;
use store::adjustments::insert_adjustment;
use test_redis::RedisServer;
use test_support::clock::zone_at_noon;
use test_support::console::Window;
use test_support::fleet::{Fleet, flood, until};
use test_support::tollgate::{CHAT_PATH, Options, Tollgate, chat_body, limit};
use uuid::Uuid;

use crate::fleet::{asks_for, shared};
use crate::receiver::{Receiver, set_webhook};

const COLUMNS: [&str; 5] = ["Reached", "By", "Budget", "Spent", "Of"];

fn thresholds(percents: &[u8]) -> Thresholds {
    Thresholds::new(percents).expect("percentages")
}

/// A budget of tokens that tells when these parts of it are spent.
fn budget(tokens: u64, percents: &[u8]) -> LimitDraft {
    LimitDraft {
        thresholds: thresholds(percents),
        ..limit(Dimension::BudgetTokens, tokens)
    }
}

fn of_tenant(tenant: TenantId) -> Target {
    Target::Node(Scope::Tenant(tenant))
}

/// Everything that was told, the earliest first.
async fn events(tollgate: &Tollgate) -> Vec<BudgetEvent> {
    let filter = BudgetEventFilter {
        count: 200,
        ..BudgetEventFilter::default()
    };
    let events = tollgate.control().budget_events(&tollgate.actor(), &filter).await;
    let mut events: Vec<BudgetEvent> = events.expect("events").into_iter().map(|row| row.event).collect();
    events.reverse();
    events.sort_by_key(|event| (event.at, event.percent));
    events
}

/// The thresholds that this node has told.
async fn told(tollgate: &Tollgate, scope: &Scope) -> Vec<u8> {
    let events = events(tollgate).await.into_iter();
    events
        .filter(|event| event.scope == *scope)
        .map(|event| event.percent)
        .collect()
}

async fn until_told(tollgate: &Tollgate, scope: &Scope, percents: &[u8]) {
    until("the thresholds are told", async || {
        told(tollgate, scope).await == percents
    })
    .await;
}

/// Spends a budget of its own to its first threshold, and waits for that: whatever was seen before is told by then.
async fn settle_down(tollgate: &Tollgate, name: &str) {
    let (tenant, key) = tollgate.named_tenant_with_key(name, NodeLimits::default()).await;
    tollgate.set_limit(of_tenant(tenant), 0, &budget(1_000, &[10])).await;
    open_budgets(tollgate, &Scope::Tenant(tenant)).await;
    let answer = tollgate.browser().post_json(CHAT_PATH, &key, &asks_for(400)).await;
    assert_eq!(answer.status, 200);
    until_told(tollgate, &Scope::Tenant(tenant), &[10]).await;
}

async fn open_budgets(tollgate: &Tollgate, scope: &Scope) {
    until("the budgets are open", async || {
        let readings = tollgate.running.gateway.readings(std::slice::from_ref(scope)).await;
        readings
            .expect("a policy")
            .limits
            .iter()
            .all(|live| live.reading.is_known)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_tell_each_threshold_once_and_the_webhook_hears_it_signed() {
    let redis = RedisServer::start().await;
    let fleet = Fleet::start(
        2,
        Options {
            time_zone: Some(zone_at_noon()),
            currency: Some("EUR".to_owned()),
            ..shared(redis.url())
        },
    )
    .await;
    let tollgate = &fleet.first;
    let receiver = Receiver::start(&[]).await;
    let secret = set_webhook(tollgate, &receiver).await;
    let (tenant, key) = fleet.tenant_with_key(NodeLimits::default()).await;
    let scope = Scope::Tenant(tenant);
    let version = tollgate
        .set_limit(of_tenant(tenant), 0, &budget(10_000, &[50, 80]))
        .await;
    fleet.in_force().await;
    fleet.open(&scope).await;
    let browsers = fleet.browsers();
    flood(&browsers, &key, 200, &asks_for(100)).await;
    until_told(tollgate, &scope, &[50, 80]).await;
    until("the webhook hears both", async || receiver.received().len() >= 2).await;

    // Raised and reached again in the same period, by both gateways at once: nothing is told twice.
    let version = tollgate
        .set_limit(of_tenant(tenant), version, &budget(20_000, &[50, 80]))
        .await;
    fleet.in_force().await;
    flood(&browsers, &key, 200, &asks_for(100)).await;
    let booked = fleet.booked(tenant).await;
    assert!(booked.tokens > 16_000, "{booked:?}");
    // Nor when it is taken away and set again.
    let target = of_tenant(tenant);
    let view = tollgate
        .control()
        .limits_of(&tollgate.actor(), &target)
        .await
        .expect("limits");
    assert_eq!(view.version, version);
    tollgate
        .control()
        .clear_limit(&tollgate.actor(), &target, version, view.limits[0].id, Utc::now())
        .await
        .expect("cleared");
    tollgate
        .set_limit(target, version + 1, &budget(18_000, &[50, 80]))
        .await;
    fleet.in_force().await;
    fleet.open(&scope).await;
    settle_down(tollgate, "Another").await;
    until("the webhook hears of that", async || receiver.received().len() >= 3).await;
    assert_eq!(told(tollgate, &scope).await, [50, 80]);
    assert_eq!(receiver.received().len(), 3);

    let told = events(tollgate).await;
    let span = Period::Month.span(tollgate.clock.wall(), zone_at_noon());
    let mut heard = BTreeMap::new();
    for received in receiver.received() {
        assert!(received.is_signed_with(&secret).is_some(), "{received:?}");
        assert_eq!(received.text("/event"), "budget.threshold");
        heard.insert(received.text("/id"), received.json());
    }
    assert_eq!(heard.len(), 3, "each under an id of its own");
    for event in told.iter().filter(|event| event.scope == scope) {
        let json = &heard[&event.id.to_string()];
        let budget = &json["budget"];
        assert_eq!(budget["scope"], scope.to_string());
        assert_eq!(
            (&budget["tenant"], &budget["tenant_id"]),
            (&"Tenant".into(), &tenant.to_string().into())
        );
        assert_eq!(
            (&budget["dimension"], &budget["period"]),
            (&"budget_tokens".into(), &"month".into())
        );
        assert_eq!(
            budget["period_start"].as_str().and_then(|at| at.parse().ok()),
            Some(span.start)
        );
        assert_eq!(
            budget["period_end"].as_str().and_then(|at| at.parse().ok()),
            Some(span.end)
        );
        assert_eq!(
            (&budget["threshold_percent"], &budget["value"]),
            (&event.percent.into(), &"10000".into())
        );
        let spent: u64 = budget["spent"]
            .as_str()
            .and_then(|spent| spent.parse().ok())
            .expect("a count");
        assert!(spent * 100 >= 10_000 * u64::from(event.percent), "{spent}");
        assert!(budget["currency"].is_null());
    }
    let metrics = tollgate.browser().get("/metrics").await.text();
    assert!(
        metrics.contains(r#"tollgate_budget_thresholds_total{percent="50"}"#),
        "{metrics}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_cut_off_tells_nothing_that_is_not_spent() {
    let mut redis = RedisServer::start().await;
    let fleet = Fleet::start(
        1,
        Options {
            time_zone: Some(zone_at_noon()),
            ..shared(redis.url())
        },
    )
    .await;
    let tollgate = &fleet.first;
    let (tenant, key) = fleet.tenant_with_key(NodeLimits::default()).await;
    let scope = Scope::Tenant(tenant);
    tollgate
        .set_limit(of_tenant(tenant), 0, &budget(10_000, &[5, 50, 80]))
        .await;
    fleet.open(&scope).await;
    let browser = tollgate.browser();
    assert_eq!(browser.post_json(CHAT_PATH, &key, &asks_for(100)).await.status, 200);
    until("a part is set aside", async || {
        redis.command(&["KEYS", "*:aside"]).await.contains(&tenant.to_string())
    })
    .await;

    // By its own counters everything is spent but that part.
    redis.kill();
    until("it is admitted by its own counters", async || {
        let answer = browser.post_json(CHAT_PATH, &key, &asks_for(100)).await;
        answer.status == 200 && answer.header("x-ratelimit-mode") == "degraded"
    })
    .await;
    redis.restart().await;
    until("the counters are shared again", async || {
        fleet.gateways().all(|gateway| gateway.status().counters == "redis")
    })
    .await;
    fleet.open(&scope).await;
    let booked = fleet.booked(tenant).await;
    assert!((200..5_000).contains(&booked.tokens), "{booked:?}");
    settle_down(tollgate, "Another").await;
    let expected: &[u8] = if booked.tokens >= 500 { &[5] } else { &[] };
    until_told(tollgate, &scope, expected).await;
}

#[tokio::test]
async fn of_many_who_write_the_same_threshold_at_once_one_tells_it() {
    let tollgate = Tollgate::start().await;
    let receiver = Receiver::start(&[]).await;
    set_webhook(&tollgate, &receiver).await;
    let tenant = tollgate.tenant("Tenant", NodeLimits::default()).await;
    let now = Utc::now();
    let event = |id, percent, model: Option<&str>| BudgetEvent {
        id: Uuid::from_u128(id),
        scope: Scope::Tenant(tenant),
        tenant_id: Some(tenant),
        limit_id: LimitId(Uuid::from_u128(1)),
        dimension: Dimension::BudgetCost,
        period: Period::Month,
        model: model.map(Into::into),
        priority: None,
        span: Period::Month.span(now, chrono_tz::UTC),
        percent,
        value: 100,
        spent: 90,
        at: now,
    };
    let store = Store::connect_lazily(tollgate.database.url()).expect("a store");
    let written = join_all((0..20).map(async |number| {
        let mut events = vec![
            event(10 * number, 50, None),
            event(10 * number + 1, 80, None),
            event(10 * number + 2, 50, Some("m")),
        ];
        if number % 2 == 0 {
            events.reverse();
        }
        let written = store
            .write_budget_events(&events, |event| event.body(None, "USD"))
            .await;
        written.expect("written").len()
    }))
    .await;
    assert_eq!(written.iter().sum::<usize>(), 3, "{written:?}");
    assert_eq!(told(&tollgate, &Scope::Tenant(tenant)).await, [50, 50, 80]);
    let deliveries: i64 = sqlx::query_scalar("select count(*) from alert_deliveries where event = 'budget.threshold'")
        .fetch_one(&mut tollgate.sql().await)
        .await
        .expect("a count");
    assert_eq!(deliveries, 3);
}

#[tokio::test]
async fn a_jump_tells_every_threshold_and_a_restart_none_again() {
    let tollgate = Tollgate::start_with(Options {
        time_zone: Some(zone_at_noon()),
        ..Options::default()
    })
    .await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let scope = Scope::Tenant(tenant);
    tollgate
        .set_limit(of_tenant(tenant), 0, &budget(1_000, &[40, 50, 99]))
        .await;
    open_budgets(&tollgate, &scope).await;
    let ask = async |tollgate: &Tollgate| {
        let answer = tollgate.browser().post_json(CHAT_PATH, &key, &asks_for(550)).await;
        assert_eq!(answer.status, 200);
    };
    ask(&tollgate).await;
    until_told(&tollgate, &scope, &[40, 50]).await;

    let tollgate = tollgate.restart().await;
    settle_down(&tollgate, "Another").await;
    assert_eq!(told(&tollgate, &scope).await, [40, 50]);
    // Without a limit in the way, the rest.
    let raised = LimitDraft {
        mode: Mode::Rehearse,
        ..budget(1_000, &[40, 50, 99])
    };
    tollgate.set_limit(of_tenant(tenant), 1, &raised).await;
    ask(&tollgate).await;
    until_told(&tollgate, &scope, &[40, 50, 99]).await;
}

#[tokio::test]
async fn what_was_spent_before_or_comes_by_adjustment_is_told_with_the_next_reading() {
    let tollgate = Tollgate::start_with(Options {
        time_zone: Some(zone_at_noon()),
        ..Options::default()
    })
    .await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let scope = Scope::Tenant(tenant);
    let answer = tollgate.browser().post_json(CHAT_PATH, &key, &asks_for(600)).await;
    assert_eq!(answer.status, 200);
    tollgate.shipped().await;
    tollgate
        .set_limit(of_tenant(tenant), 0, &budget(1_000, &[50, 80, 100]))
        .await;
    until_told(&tollgate, &scope, &[50]).await;

    let now = tollgate.clock.wall();
    let adjustment = Adjustment {
        id: AdjustmentId(Uuid::from_u128(1)),
        request_id: None,
        admitted_at: now,
        created_at: now,
        tenant_id: tenant,
        user_id: None,
        key_id: None,
        model: None,
        upstream_id: None,
        priority: Priority::Default,
        input_tokens: 0,
        output_tokens: 400,
        cost_nanos: Nanos::ZERO,
        reason: "counted by hand".to_owned(),
        author: "olga@example.com".to_owned(),
        reference: None,
    };
    let store = Store::connect_lazily(tollgate.database.url()).expect("a store");
    let mut transaction = store.begin().await.expect("a transaction");
    assert!(
        insert_adjustment(&mut transaction, &adjustment)
            .await
            .expect("inserted")
    );
    transaction.commit().await.expect("committed");
    // A new budget has all of them read again soon.
    tollgate
        .tenant(
            "Another",
            NodeLimits {
                monthly_tokens: Some(1),
                ..NodeLimits::default()
            },
        )
        .await;
    until_told(&tollgate, &scope, &[50, 80, 100]).await;
}

#[tokio::test]
async fn the_next_period_tells_anew_and_a_late_end_the_period_of_its_admission() {
    let zone = chrono_tz::Asia::Kolkata;
    let tollgate = Tollgate::start_with(Options {
        time_zone: Some(zone),
        ..Options::default()
    })
    .await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let scope = Scope::Tenant(tenant);
    let end = Period::Hour.span(tollgate.clock.wall(), zone).end;
    tollgate.clock.set(end - Duration::seconds(60));
    let hourly = LimitDraft {
        period: Period::Hour,
        ..budget(1_000, &[50, 90])
    };
    tollgate.set_limit(of_tenant(tenant), 0, &hourly).await;
    open_budgets(&tollgate, &scope).await;
    let browser = tollgate.browser();
    assert_eq!(browser.post_json(CHAT_PATH, &key, &asks_for(600)).await.status, 200);
    until_told(&tollgate, &scope, &[50]).await;
    // Admitted before the hour is over, and ended after.
    tollgate.simulator.hold();
    let late = tokio::spawn({
        let (browser, key) = (tollgate.browser(), key.clone());
        async move { browser.post_json(CHAT_PATH, &key, &asks_for(300)).await.status }
    });
    tollgate.simulator.wait_parked(1).await;
    tollgate.clock.set(end);
    tollgate.simulator.release_all();
    assert_eq!(late.await.expect("it ends"), 200);
    until_told(&tollgate, &scope, &[50, 90]).await;
    assert_eq!(browser.post_json(CHAT_PATH, &key, &asks_for(600)).await.status, 200);
    until_told(&tollgate, &scope, &[50, 90, 50]).await;
    let ends: Vec<DateTime<Utc>> = events(&tollgate).await.iter().map(|event| event.span.end).collect();
    assert_eq!(ends, [end, end, end + Duration::hours(1)]);
}

#[tokio::test]
async fn each_user_of_a_class_tells_of_itself_and_a_budget_without_thresholds_nothing() {
    let tollgate = Tollgate::start_with(Options {
        time_zone: Some(zone_at_noon()),
        ..Options::default()
    })
    .await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let every = Target::OfTenant(tenant, Class::EndUser);
    tollgate.set_limit(every, 0, &budget(1_000, &[50])).await;
    tollgate.set_limit(of_tenant(tenant), 0, &budget(1_500, &[])).await;
    open_budgets(&tollgate, &Scope::Tenant(tenant)).await;
    let browser = tollgate.browser();
    for (user, tokens) in [("anna", 300), ("bert", 300), ("anna", 300)] {
        let mut body = asks_for(tokens);
        body["user"] = user.into();
        until("the user's budget is read", async || {
            browser.post_json(CHAT_PATH, &key, &body).await.status == 200
        })
        .await;
    }
    let anna = Scope::User(tenant, "anna".into());
    until_told(&tollgate, &anna, &[50]).await;
    settle_down(&tollgate, "Another").await;
    assert_eq!(told(&tollgate, &Scope::User(tenant, "bert".into())).await, [0_u8; 0]);
    assert_eq!(told(&tollgate, &Scope::Tenant(tenant)).await, [0_u8; 0]);
}

#[tokio::test]
async fn a_budget_tells_of_what_operators_have_set_and_not_of_what_the_owner_holds_a_key_below() {
    let tollgate = Tollgate::start_with(Options {
        time_zone: Some(zone_at_noon()),
        ..Options::default()
    })
    .await;
    let tenant = tollgate.tenant("Tenant", NodeLimits::default()).await;
    let mut member = Window::person(&tollgate, Role::Member, Some(tenant)).await;
    let every_key = Target::OfTenant(tenant, Class::Key);
    tollgate.set_limit(every_key, 0, &budget(10_000, &[10, 50])).await;
    let key = member.issue_key("", "laptop").await;
    let id = member.visit("/keys").await.table(&["Name"]).links[0].clone();
    let scope = Scope::Key(id.trim_start_matches("/keys/").parse().expect("an id"));
    let hold_below = async |member: &mut Window, tokens: &str| {
        let form = member.visit(&id).await.form("/console/keys/own-limits");
        member.send(&form.fill("monthly_tokens", tokens)).await;
        tollgate.in_force().await;
        open_budgets(&tollgate, &scope).await;
    };
    let browser = tollgate.browser();
    let spend = async |tokens| browser.post_json(CHAT_PATH, &key, &asks_for(tokens)).await.status;

    hold_below(&mut member, "1000").await;
    assert_eq!(spend(600).await, 200);
    assert_eq!(spend(600).await, 429, "what the owner has set holds");
    settle_down(&tollgate, "Another").await;
    assert_eq!(told(&tollgate, &scope).await, [0_u8; 0], "6 % of the operators' budget");

    hold_below(&mut member, "").await;
    assert_eq!(spend(600).await, 200);
    until_told(&tollgate, &scope, &[10]).await;
    let values: Vec<u64> = events(&tollgate)
        .await
        .into_iter()
        .filter(|event| event.scope == scope)
        .map(|event| event.value)
        .collect();
    assert_eq!(values, [10_000]);
}

#[tokio::test]
async fn managers_see_their_tenants_events_and_members_their_own() {
    let tollgate = Tollgate::start_with(Options {
        time_zone: Some(zone_at_noon()),
        ..Options::default()
    })
    .await;
    let mut operator = Window::operator(&tollgate).await;
    let ours = tollgate.tenant("Ours", NodeLimits::default()).await;
    let mut manager = Window::person(&tollgate, Role::Manager, Some(ours)).await;
    let mut member = Window::person(&tollgate, Role::Member, Some(ours)).await;
    let key = member.issue_key(&ours.to_string(), "laptop").await;
    tollgate.in_force().await;
    let theirs = tollgate.tenant("Theirs", NodeLimits::default()).await;
    let other = tollgate.issue(theirs).await.text.reveal().to_owned();
    for tenant in [ours, theirs] {
        tollgate
            .set_limit(of_tenant(tenant), 0, &budget(1_000, &[10, 50]))
            .await;
    }
    let every_user = Target::OfTenant(ours, Class::User);
    tollgate.set_limit(every_user, 0, &budget(4_000, &[10])).await;
    for tenant in [ours, theirs] {
        open_budgets(&tollgate, &Scope::Tenant(tenant)).await;
    }
    let browser = tollgate.browser();
    for key in [&key, &other] {
        until("it is admitted", async || {
            let body = chat_body("Hello. [[sim: tokens=550]]");
            browser.post_json(CHAT_PATH, key, &body).await.status == 200
        })
        .await;
    }
    until_told(&tollgate, &Scope::Tenant(ours), &[10, 50]).await;
    until_told(&tollgate, &Scope::Tenant(theirs), &[10, 50]).await;
    until("the member's is told", async || events(&tollgate).await.len() == 5).await;
    tollgate.shipped().await;

    let by = |window: &Window| {
        let mut by = window.page.table(&COLUMNS).column("By");
        by.sort();
        by
    };
    operator.visit("/alerts").await;
    assert_eq!(
        by(&operator),
        [
            "the tenant Ours",
            "the tenant Ours",
            "the tenant Theirs",
            "the tenant Theirs",
            "the user The member of Ours"
        ]
    );
    operator.visit(&format!("/tenants/{theirs}")).await;
    assert_eq!(by(&operator), ["the tenant Theirs", "the tenant Theirs"]);
    assert!(
        operator.page.content().contains("50 % reached"),
        "the badge at the budget"
    );
    let own = ["the tenant Ours", "the tenant Ours", "the user The member of Ours"];
    for address in ["/".to_owned(), "/budget-events".to_owned(), format!("/tenants/{ours}")] {
        manager.visit(&address).await;
        assert_eq!(by(&manager), own, "{address}");
    }
    for address in ["/", "/budget-events"] {
        member.visit(address).await;
        assert_eq!(by(&member), ["the user The member of Ours"], "{address}");
    }
    for window in [&mut manager, &mut member] {
        let page = window.visit(&format!("/budget-events?tenant={theirs}")).await;
        assert!(page.find_table(&COLUMNS).is_none(), "{}", page.content());
    }
}

#[tokio::test]
async fn thresholds_are_set_at_the_console_and_what_is_wrong_is_said() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let tenant = tollgate.tenant("Tenant", NodeLimits::default()).await;
    let address = format!("/limits/edit?of=tenant:{tenant}&each=&dimension=budget_cost");
    let form = operator.visit(&address).await.form("/console/limits/add");
    assert_eq!(form.value("thresholds"), "50, 80, 100", "the default");
    for bad in ["0", "101", "50, 50", "1 2 3 4 5 6", "half"] {
        let form = operator.visit(&address).await.form("/console/limits/add");
        let page = operator.send(&form.fill("value", "10").fill("thresholds", bad)).await;
        assert_eq!(
            page.texts(".error"),
            ["Write at most 5 different percentages from 1 to 100, such as 50, 80, 100; or none."],
            "{bad}"
        );
    }
    let form = operator.visit(&address).await.form("/console/limits/add");
    operator
        .save(&form.fill("value", "10").fill("thresholds", "90 %; 25"))
        .await;
    assert_eq!(operator.page.notices(), ["The limit was added."]);
    let view = tollgate
        .control()
        .limits_of(&tollgate.actor(), &of_tenant(tenant))
        .await;
    assert_eq!(view.expect("limits").limits[0].thresholds, thresholds(&[25, 90]));
    let edit = operator.page.link("Edit");
    let form = operator.visit(&edit).await.form("/console/limits/edit");
    assert_eq!(form.value("thresholds"), "25, 90");
    operator.save(&form.fill("thresholds", "")).await;
    let view = tollgate
        .control()
        .limits_of(&tollgate.actor(), &of_tenant(tenant))
        .await;
    assert_eq!(view.expect("limits").limits[0].thresholds, Thresholds::NONE);
}

#[tokio::test]
async fn events_are_kept_for_a_while_after_their_period_and_not_for_ever() {
    let tollgate = Tollgate::start().await;
    settle_down(&tollgate, "Tenant").await;
    let end = events(&tollgate).await[0].span.end;
    for (days, left) in [(30, 1), (31, 0)] {
        while tollgate
            .control()
            .delete_expired(end + Duration::days(days))
            .await
            .expect("deleted")
            > 0
        {}
        assert_eq!(events(&tollgate).await.len(), left, "{days} days later");
    }
}

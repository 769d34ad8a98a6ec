//! What goes wrong with shared limits in practice, each as a test that it does not here.

use std::time::Duration;

use bytes::Bytes;
use control::limits::{LimitDraft, NodeLimits};
use control::models::ModelDraft;
use domain::budget_events::Thresholds;
use domain::limits::{Class, DEFAULT_WINDOW_SECONDS, Dimension, Mode, Scope, Target};
use domain::money::Nanos;
use domain::periods::Period;
use domain::policy::{Encoding, Route};
use domain::prices::Rates;
use futures_util::future::join_all;
use http::Method;
use limits::{Limits, RedisSettings};
use serde_json::json;
use test_redis::RedisServer;
use test_support::console::Window;
use test_support::fleet::{Fleet, count_of, flood, until};
use test_support::http::{Answer, Browser};
use test_support::tollgate::{CHAT_PATH, Options, Tollgate, chat_body};
use tokio::time::{Instant, timeout};

use crate::fleet::{asks_for, shared};

/// How long a call to Redis may take in tests of one that does not answer: far above what a busy machine needs.
const TIME_OUT: Duration = Duration::from_millis(400);
/// What a busy machine may need besides.
const SLACK: Duration = Duration::from_millis(1_500);
/// How long the share of every rate rises once Redis is back, in milliseconds.
const RISE_MS: u32 = 30_000;
/// The longest that a counter is kept which is no budget, in milliseconds: a request's own record, for as long as its hold
/// may count.
const KEPT_MS_MAX: i64 = 60_000 + 3_600_000;
const MONTH_MS: i64 = 31 * 86_400_000;

fn plain(dimension: Dimension, value: u64) -> LimitDraft {
    LimitDraft {
        dimension,
        value,
        window_seconds: DEFAULT_WINDOW_SECONDS,
        burst: None,
        period: Period::Month,
        model: None,
        priority: None,
        mode: Mode::Enforce,
        gates: None,
        thresholds: Thresholds::default(),
    }
}

async fn set(tollgate: &Tollgate, target: Target, limit: LimitDraft) {
    tollgate
        .control()
        .set_limit(&tollgate.actor(), &target, 0, &limit, chrono::Utc::now())
        .await
        .expect("a limit");
}

/// A request for this end user.
fn for_user(user: &str) -> serde_json::Value {
    let mut body = asks_for(5);
    body["user"] = user.into();
    body
}

#[tokio::test]
async fn two_gateways_do_not_admit_twice_the_limit() {
    let redis = RedisServer::start().await;
    let fleet = Fleet::start(2, shared(redis.url())).await;
    let (tenant, key) = fleet.tenant_with_key(NodeLimits::default()).await;
    let limit = LimitDraft {
        burst: Some(1_000),
        ..plain(Dimension::TotalTokens, 1_000)
    };
    set(&fleet.first, Target::Node(Scope::Tenant(tenant)), limit).await;
    fleet.in_force().await;
    let (browsers, begun) = (fleet.browsers(), Instant::now());
    let mut answers = Vec::new();
    for number in 0..30 {
        let browser = &browsers[number % 2];
        answers.push(browser.post_json(CHAT_PATH, &key, &asks_for(100)).await);
    }
    let refilled = (begun.elapsed().as_secs_f64() * 1_000.0 / 60.0) as i64;
    let booked = fleet.booked(tenant).await;
    assert_eq!(booked.ran as usize, count_of(&answers, 200));
    let one_request = booked.tokens / booked.ran;
    assert!(booked.tokens <= 1_000 + refilled + one_request, "{booked:?}");
    assert!(booked.tokens > 1_000 - one_request, "{booked:?}");
}

fn seldom_answered(url: String) -> Options {
    let time_out_ms = TIME_OUT.as_millis() as u64;
    Options {
        redis: Some(RedisSettings {
            connect_timeout_ms: time_out_ms,
            command_timeout_ms: time_out_ms,
            ..RedisSettings::new(url)
        }),
        ..Options::default()
    }
}

/// Redis is asked, and without it a share of this is still enough.
fn many_at_once() -> NodeLimits {
    NodeLimits {
        concurrency: Some(1_000),
        ..NodeLimits::default()
    }
}

async fn timed(browser: &Browser, key: &str) -> (Answer, Duration) {
    let begun = Instant::now();
    let answer = browser.post_json(CHAT_PATH, key, &asks_for(5)).await;
    (answer, begun.elapsed())
}

#[tokio::test]
async fn a_redis_that_is_stopped_costs_its_time_out_three_times_and_then_nothing() {
    let redis = RedisServer::start().await;
    let tollgate = Tollgate::start_with(seldom_answered(redis.url())).await;
    let (_, key) = tollgate.tenant_with_key(many_at_once()).await;
    let browser = tollgate.browser();
    let (answer, _) = timed(&browser, &key).await;
    assert_eq!((answer.status.as_u16(), answer.header("x-ratelimit-mode")), (200, ""));

    redis.pause();
    let mut spent = Duration::ZERO;
    let mut waits = Vec::new();
    for _ in 0..20 {
        let (answer, took) = timed(&browser, &key).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        spent += took;
        waits.push(took);
        if answer.header("x-ratelimit-mode") == "degraded" {
            break;
        }
    }
    // Admission and end of the first, admission of the second: then the gateway knows.
    assert!(waits.len() <= 3, "{waits:?}");
    assert!(spent <= 3 * TIME_OUT + SLACK, "{waits:?}");
    let mut later = Vec::new();
    for _ in 0..10 {
        let (answer, took) = timed(&browser, &key).await;
        assert_eq!(
            (answer.status.as_u16(), answer.header("x-ratelimit-mode")),
            (200, "degraded")
        );
        later.push(took);
    }
    later.sort_unstable();
    assert!(later[5] < TIME_OUT / 2, "nobody waits any more: {later:?}");
    redis.resume();
}

#[tokio::test]
async fn whoever_waits_when_redis_is_stopped_waits_no_longer_than_twice_its_time_out() {
    let redis = RedisServer::start().await;
    let tollgate = Tollgate::start_with(seldom_answered(redis.url())).await;
    let (_, key) = tollgate.tenant_with_key(many_at_once()).await;
    let browser = tollgate.browser();
    timed(&browser, &key).await;
    redis.pause();
    let answers = join_all((0..50).map(|_| timed(&browser, &key))).await;
    for (answer, took) in answers {
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(took <= 2 * TIME_OUT + SLACK, "{took:?}");
    }
    redis.resume();
}

#[tokio::test]
async fn a_redis_that_is_stopped_is_named_everywhere_until_it_is_back() {
    let redis = RedisServer::start().await;
    let tollgate = Tollgate::start_with(seldom_answered(redis.url())).await;
    let (tenant, key) = tollgate.tenant_with_key(many_at_once()).await;
    let mut operator = Window::operator(&tollgate).await;
    let mut probe = tollgate.browser();
    assert_eq!(degraded(&mut probe).await, ("redis".to_owned(), Vec::new()));

    redis.pause();
    until("the gateway goes by its own counters", async || {
        tollgate.chat(&key, "Hello.").await.header("x-ratelimit-mode") == "degraded"
    })
    .await;
    let (counters, named) = degraded(&mut probe).await;
    assert_eq!(counters, "degraded");
    assert_eq!(named.len(), 1, "{named:?}");
    assert!(named[0].contains("Redis does not answer"), "{named:?}");
    assert!(named[0].contains("45 %"), "{named:?}");
    until("metrics say so", async || {
        gauge(&mut probe, "tollgate_counters_degraded").await == "1"
            && gauge(&mut probe, "tollgate_counters_share_percent").await == "45"
    })
    .await;
    until("the console says so", async || {
        let table = operator.visit("/status").await.table(&["Gateway", "State", "Counters"]);
        table.column("Counters") == ["degraded"] && table.column("State")[0].contains("Redis does not answer")
    })
    .await;

    redis.resume();
    until("the gateway goes by the shared counters", async || {
        tollgate
            .chat(&key, "Hello.")
            .await
            .header("x-ratelimit-mode")
            .is_empty()
    })
    .await;
    let (counters, named) = degraded(&mut probe).await;
    assert_eq!(counters, "redis");
    assert!(named[0].contains("Redis answers again"), "{named:?}");
    // Its share of every rate rises for a while.
    tollgate.clock.skip(RISE_MS);
    until("nothing is degraded", async || {
        degraded(&mut probe).await == ("redis".to_owned(), Vec::new())
    })
    .await;
    until("metrics say so", async || {
        gauge(&mut probe, "tollgate_counters_degraded").await == "0"
            && gauge(&mut probe, "tollgate_counters_share_percent").await == "100"
    })
    .await;
    until("the console says so", async || {
        let table = operator.visit("/status").await.table(&["Gateway", "State", "Counters"]);
        table.column("Counters") == ["redis"] && table.column("State") == ["well"]
    })
    .await;
    // Calls that waited in the stopped server have taken nothing.
    tollgate.shipped().await;
    let node = Scope::Tenant(tenant);
    let readings = tollgate.running.gateway.readings(&[node]).await.expect("a policy");
    assert_eq!(readings.limits[0].reading.held, 0);
}

/// Where counters are, and what is degraded, as load balancers are told.
async fn degraded(probe: &mut Browser) -> (String, Vec<String>) {
    let answer = probe.get("/readyz").await;
    assert_eq!(answer.status, 200, "it serves: {}", answer.text());
    let said = answer.json();
    let named = said["degraded"].as_array().expect("a list");
    let named = named.iter().filter_map(|name| name.as_str().map(str::to_owned));
    (
        said["counters"].as_str().unwrap_or_default().to_owned(),
        named.collect(),
    )
}

async fn gauge(probe: &mut Browser, name: &str) -> String {
    let text = probe.get("/metrics").await.text();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .map(str::to_owned);
    value.unwrap_or_else(|| panic!("no {name} in {text}"))
}

#[tokio::test]
async fn failed_requests_leave_nothing_held_in_redis() {
    let redis = RedisServer::start().await;
    let options = Options {
        upstream_timeouts: upstream::Timeouts {
            first_byte_ms: 300,
            chunk_ms: 300,
            ..upstream::Timeouts::default()
        },
        ..shared(redis.url())
    };
    let fleet = Fleet::start(2, options).await;
    let limits = NodeLimits {
        concurrency: Some(40),
        monthly_tokens: Some(1_000_000),
        ..NodeLimits::default()
    };
    let (tenant, key) = fleet.tenant_with_key(limits).await;
    let browsers = fleet.browsers();
    // Others are served, so that one tenant's failures do not open a breaker.
    let (_, others) = fleet.named_tenant_with_key("Others", NodeLimits::default()).await;
    for browser in &browsers {
        assert_eq!(browser.post_json(CHAT_PATH, &others, &asks_for(5)).await.status, 200);
    }
    let orders = [
        "status=500",
        "status=400",
        "reset",
        "silence",
        "tokens=20 reset-after-chunks=2",
        "tokens=20 error-after-chunks=2",
        "tokens=20 close-after-chunks=2",
        "tokens=20 silence-after-chunks=2",
    ];
    let fails = async |number: usize, orders: &str| {
        let mut body = chat_body(&format!("Hello. [[sim: {orders}]]"));
        body["stream"] = json!(orders.contains("chunks"));
        let stream = browsers[number % 2].stream_json(CHAT_PATH, &key, &body).await;
        stream.rest().await.contains("\"error\"")
    };
    let failed = join_all(orders.iter().enumerate().map(|(number, orders)| fails(number, orders))).await;
    assert_eq!(failed, [true; 8]);
    assert!(fails(0, "status=429 retry-after=2").await);
    fleet.first.clock.skip(2_000);
    // Callers that leave, before the first byte and after it.
    let mut left = Vec::new();
    for browser in &browsers {
        let mut body = chat_body("Hello. [[sim: tokens=20 hold-after-chunks=2]]");
        body["stream"] = json!(true);
        left.push(browser.stream_json(CHAT_PATH, &key, &body).await);
        let parked = chat_body("Hello. [[sim: hold]]");
        let gone = timeout(Duration::from_millis(50), browser.post_json(CHAT_PATH, &key, &parked));
        assert!(gone.await.is_err(), "the provider holds it");
    }
    drop(left);
    fleet.first.simulator.release_all();

    let booked = fleet.booked(tenant).await;
    assert_eq!((booked.ran, booked.refused), (13, 0));
    for place in 0..2 {
        assert_eq!(fleet.gateways().nth(place).map(|gateway| gateway.open_holds()), Some(0));
        for reading in fleet.readings(place, &Scope::Tenant(tenant)).await {
            assert_eq!(reading.held, 0, "{reading:?}");
        }
    }
    for browser in &browsers {
        assert_eq!(browser.post_json(CHAT_PATH, &key, &asks_for(5)).await.status, 200);
    }
}

#[tokio::test]
async fn every_key_in_redis_expires() {
    let redis = RedisServer::start().await;
    let fleet = Fleet::start(2, shared(redis.url())).await;
    let limits = NodeLimits {
        monthly_cost: Some(Nanos(1_000_000_000)),
        monthly_tokens: Some(1_000_000),
        requests_per_minute: Some(60),
        input_tokens_per_minute: Some(1_000_000),
        total_tokens_per_minute: Some(1_000_000),
        concurrency: Some(30),
        ..NodeLimits::default()
    };
    let tenant = fleet.first.tenant("Tenant", limits).await;
    let key = fleet.first.issue(tenant).await.text.reveal().to_owned();
    for dimension in [Dimension::Requests, Dimension::Concurrency, Dimension::BudgetTokens] {
        let class = Target::OfTenant(tenant, Class::EndUser);
        let version = fleet.first.control().limits_of(&fleet.first.actor(), &class).await;
        let version = version.expect("a class").version;
        fleet
            .first
            .control()
            .set_limit(
                &fleet.first.actor(),
                &class,
                version,
                &plain(dimension, 10_000),
                chrono::Utc::now(),
            )
            .await
            .expect("a limit");
    }
    set(
        &fleet.first,
        Target::Node(Scope::Global),
        plain(Dimension::Requests, 10_000),
    )
    .await;
    fleet.in_force().await;
    fleet.open(&Scope::Tenant(tenant)).await;

    // Everything at once: whole answers and streams, failures, callers who leave, end users, refusals, and requests that
    // are still under way.
    let browsers = fleet.browsers();
    let under_way = fleet
        .first
        .chat_stream(&key, "Hello. [[sim: tokens=20 hold-after-chunks=2]]")
        .await;
    for user in ["anna", "berta", "carla"] {
        until("the user's budget is open", async || {
            browsers[0].post_json(CHAT_PATH, &key, &for_user(user)).await.status == 200
        })
        .await;
    }
    for orders in ["status=500", "reset", "tokens=20"] {
        browsers[1]
            .post_json(CHAT_PATH, &key, &chat_body(&format!("Hello. [[sim: {orders}]]")))
            .await;
    }
    drop(
        fleet.others[0]
            .chat_stream(&key, "Hello. [[sim: tokens=20 chunk-ms=5]]")
            .await,
    );
    let answers = flood(&browsers, &key, 100, &asks_for(5)).await;
    assert!(count_of(&answers, 429) > 0 && count_of(&answers, 200) > 0);

    let keys = redis.command(&["KEYS", "*"]).await;
    let (mut seen, mut kinds) = (0, [0; 5]);
    for name in keys.lines() {
        let ttl_ms: i64 = redis.command(&["PTTL", name]).await.parse().expect("a number");
        // It may have gone since.
        if ttl_ms == -2 {
            continue;
        }
        let is_budget = name.contains(":budget_");
        let most_ms = if is_budget { 2 * MONTH_MS } else { KEPT_MS_MAX };
        assert!((0..=most_ms).contains(&ttl_ms), "{name} stays for {ttl_ms} ms");
        for (kind, part) in kinds
            .iter_mut()
            .zip([":requests", "_tokens:60", ":concurrency", ":budget_", ":request:"])
        {
            *kind += usize::from(name.contains(part));
        }
        seen += 1;
    }
    assert!(seen > 50 && kinds.iter().all(|&count| count > 0), "{kinds:?} of {seen}");
    fleet.first.simulator.release_all();
    under_way.rest().await;
}

#[tokio::test]
async fn counters_in_memory_of_users_who_are_gone_are_dropped() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    set(
        &tollgate,
        Target::OfTenant(tenant, Class::EndUser),
        plain(Dimension::Requests, 100),
    )
    .await;
    tollgate.in_force().await;
    let limits = tollgate.running.gateway.limits();
    let before = limits.scope_count();
    let browser = tollgate.browser();
    for number in 0..50 {
        let answer = browser
            .post_json(CHAT_PATH, &key, &for_user(&format!("user-{number}")))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(limits.scope_count(), before + 50);
    tollgate.shipped().await;
    // Twice the window, and a cell of it.
    tollgate.clock.skip(2 * 60_000 + 3_000);
    for _ in 0..Limits::SWEEPS_PER_ROUND {
        limits.sweep(gateway::clock::Clock::now(&*tollgate.clock));
    }
    assert_eq!(limits.scope_count(), before);
}

#[tokio::test]
async fn a_hot_model_starves_its_group_and_no_other() {
    let redis = RedisServer::start().await;
    let fleet = Fleet::start(3, shared(redis.url())).await;
    let upstream = fleet
        .first
        .upstream("provider", &fleet.first.simulator.base_url())
        .await;
    for (name, group) in [
        ("hot", Some("hot-ones")),
        ("hot-mini", Some("hot-ones")),
        ("cold", None),
    ] {
        let draft = ModelDraft {
            name: name.into(),
            group: group.map(Into::into),
            context_tokens: 128_000,
            output_cap_tokens: 4_096,
            output_default_tokens: 500,
            encoding: Encoding::Ratio,
            is_disabled: false,
            routes: vec![Route {
                upstream_id: upstream,
                upstream_model: name.into(),
                position: 0,
                weight: 1,
            }],
        };
        let control = fleet.first.control();
        control
            .create_model(&fleet.first.actor(), &draft, chrono::Utc::now())
            .await
            .expect("a model");
        let price = control::prices::PriceDraft {
            valid_from: Some(chrono::Utc::now() - chrono::Duration::days(1)),
            rates: Rates::flat(1_000, 1_000),
            tiers: Vec::new(),
        };
        control
            .add_price(&fleet.first.actor(), name, &price, chrono::Utc::now())
            .await
            .expect("a price");
    }
    let group = Scope::ModelGroup("hot-ones".into());
    set(
        &fleet.first,
        Target::Node(group.clone()),
        plain(Dimension::Concurrency, 6),
    )
    .await;
    set(
        &fleet.first,
        Target::Node(Scope::Model("hot".into())),
        plain(Dimension::Concurrency, 5),
    )
    .await;
    let (tenant, key) = fleet.tenant_with_key(NodeLimits::default()).await;
    let browsers = fleet.browsers();
    let ask = |place: usize, model: &str, orders: &str| {
        let mut body = chat_body(&format!("Hello. [[sim: tokens=5 {orders}]]"));
        body["model"] = model.into();
        let (browser, key) = (browsers[place].clone(), key.clone());
        async move { browser.post_json(CHAT_PATH, &key, &body).await }
    };

    // The model is full, its group has one place left.
    let mut stuck: Vec<_> = (0..5)
        .map(|number| tokio::spawn(ask(number % 3, "hot", "hold")))
        .collect();
    fleet.first.simulator.wait_parked(5).await;
    for place in 0..3 {
        let refused = ask(place, "hot", "").await;
        assert_eq!(refused.code(), "concurrency_limit_exceeded");
        assert_eq!(refused.header("x-ratelimit-reason"), "model:hot concurrency");
        assert_eq!(ask(place, "hot-mini", "").await.status, 200, "the group has room");
        assert_eq!(ask(place, "cold", "").await.status, 200, "it is none of its business");
    }
    // The group is full.
    stuck.push(tokio::spawn(ask(1, "hot-mini", "hold")));
    fleet.first.simulator.wait_parked(6).await;
    for place in 0..3 {
        let refused = ask(place, "hot-mini", "").await;
        assert_eq!(refused.header("x-ratelimit-reason"), "models:hot-ones concurrency");
        assert_eq!(ask(place, "cold", "").await.status, 200);
    }
    let reading = fleet.reading(2, &group, Dimension::Concurrency).await;
    assert_eq!((reading.held, reading.remaining), (6, 0));
    fleet.first.simulator.release_all();
    for answer in stuck {
        assert_eq!(answer.await.expect("it ends").status, 200);
    }
    assert_eq!(ask(0, "hot", "").await.status, 200);
    let booked = fleet.booked(tenant).await;
    assert_eq!((booked.ran, booked.refused), (6 + 3 * 2 + 3 + 1, 3 + 3));
}

#[tokio::test]
async fn clients_that_do_not_wait_cost_a_row_a_minute_and_are_shown() {
    let redis = RedisServer::start().await;
    let fleet = Fleet::start(3, shared(redis.url())).await;
    let limits = NodeLimits {
        requests_per_minute: Some(1),
        ..NodeLimits::default()
    };
    let tenant = fleet.first.tenant("Hasty", limits).await;
    let key = fleet.first.issue(tenant).await.text.reveal().to_owned();
    fleet.in_force().await;
    // All of it within one minute.
    let clock = &fleet.first.clock;
    let minute = clock.wall().timestamp().div_euclid(60) * 60;
    clock.set(chrono::DateTime::from_timestamp(minute, 0).expect("a time"));
    let browsers = fleet.browsers();
    let answers = flood(&browsers, &key, 300, &asks_for(5)).await;
    assert_eq!((count_of(&answers, 200), count_of(&answers, 429)), (1, 299));
    clock.skip(2_000);
    let answers = flood(&browsers, &key, 300, &asks_for(5)).await;
    assert_eq!(count_of(&answers, 429), 300);
    for refused in &answers {
        let wait: u64 = refused.header("retry-after").parse().expect("whole seconds");
        assert!(wait >= 1);
    }
    let booked = fleet.booked(tenant).await;
    assert_eq!((booked.ran, booked.refused), (1, 599));
    assert!(
        booked.refusal_rows <= 3 * (20 + 1),
        "twenty of each gateway, and one for the rest: {booked:?}"
    );

    let mut operator = Window::operator(&fleet.first).await;
    let table = operator
        .visit("/priorities")
        .await
        .table(&["Key", "Refused", "Too early", "Tried before, at most"]);
    assert_eq!(table.rows.len(), 1);
    assert_eq!(table.column("Key"), ["application"]);
    assert_eq!(table.column("Refused"), ["599"]);
    let early: i64 = table.column("Too early")[0].parse().expect("a count");
    assert!((200..=300).contains(&early), "{early}");
}

#[tokio::test]
async fn one_user_in_flight_at_once_is_one_over_all_gateways() {
    let redis = RedisServer::start().await;
    let fleet = Fleet::start(3, shared(redis.url())).await;
    let (tenant, key) = fleet.tenant_with_key(NodeLimits::default()).await;
    let user = Scope::User(tenant, "anna".into());
    set(
        &fleet.first,
        Target::Node(user.clone()),
        plain(Dimension::Concurrency, 1),
    )
    .await;
    fleet.in_force().await;
    let browsers = fleet.browsers();
    fleet.first.simulator.hold();
    let body = for_user("anna");
    let all = flood(&browsers, &key, 50, &body);
    let release = async {
        fleet.first.simulator.wait_parked(1).await;
        until("the others are refused", async || {
            fleet.gateways().map(|gateway| gateway.in_flight()).sum::<u64>() == 1
        })
        .await;
        fleet.first.simulator.release_all();
    };
    let (answers, ()) = tokio::join!(all, release);
    assert_eq!((count_of(&answers, 200), count_of(&answers, 429)), (1, 49));
    let refused = answers.iter().find(|answer| answer.status == 429).expect("a refusal");
    assert_eq!(refused.code(), "concurrency_limit_exceeded");
    assert_eq!(refused.header("x-ratelimit-reason"), format!("{user} concurrency"));
    // The next one passes, wherever it arrives.
    for browser in &browsers {
        assert_eq!(browser.post_json(CHAT_PATH, &key, &body).await.status, 200);
    }
}

#[tokio::test]
async fn fifty_requests_of_one_user_at_once_pass_as_often_as_the_window_says() {
    let redis = RedisServer::start().await;
    let fleet = Fleet::start(3, shared(redis.url())).await;
    let (tenant, key) = fleet.tenant_with_key(NodeLimits::default()).await;
    set(
        &fleet.first,
        Target::OfTenant(tenant, Class::EndUser),
        plain(Dimension::Requests, 5),
    )
    .await;
    fleet.in_force().await;
    let browsers = fleet.browsers();
    for user in ["anna", "berta"] {
        let answers = flood(&browsers, &key, 50, &for_user(user)).await;
        assert_eq!((count_of(&answers, 200), count_of(&answers, 429)), (5, 45), "{user}");
    }
    let header = [
        ("content-type", "application/json"),
        ("authorization", &format!("Bearer {key}")),
        ("x-tollgate-user", "anna"),
    ];
    let body = Bytes::from(asks_for(5).to_string());
    let named = browsers[0].clone().send(Method::POST, CHAT_PATH, &header, body).await;
    assert_eq!(named.status, 429, "a header names the same user");
}

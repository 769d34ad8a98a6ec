//! Alerts: raised once, over once, heard of by the webhook, and shown to those who may act.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use control::alerts::{Alert, PastAlertFilter};
use control::limits::NodeLimits;
use domain::alerts::{AlertKind, DELIVERY_ATTEMPTS_MAX};
use domain::instances::{BreakerState, BreakerStatus, InstanceStatus};
use domain::people::Role;
use limits::RedisSettings;
use test_redis::RedisServer;
use test_support::console::Window;
use test_support::fleet::until;
use test_support::http::Browser;
use test_support::tollgate::{CHAT_PATH, INSTANCE, Options, Tollgate};

use crate::receiver::{Receiver, set_webhook};

/// What the first pause between two attempts is surely shorter than, in milliseconds.
const PAUSE_MS: u32 = 6_000;
/// What a wait is passed by, in milliseconds.
const SLACK_MS: u32 = 1_000;

/// How long the share of every rate rises once Redis is back, in milliseconds.
const RISE_MS: u32 = 30_000;

async fn open(tollgate: &Tollgate) -> Vec<Alert> {
    let open = tollgate.control().open_alerts(&tollgate.actor(), None).await;
    open.expect("alerts")
}

async fn over(tollgate: &Tollgate) -> Vec<Alert> {
    let filter = PastAlertFilter {
        count: 100,
        ..PastAlertFilter::default()
    };
    let over = tollgate.control().past_alerts(&tollgate.actor(), &filter).await;
    over.expect("alerts")
}

/// Events that are neither delivered nor given up.
async fn on_their_way(tollgate: &Tollgate) -> i64 {
    sqlx::query_scalar("select count(*) from alert_deliveries where delivered_at is null and given_up_at is null")
        .fetch_one(&mut tollgate.sql().await)
        .await
        .expect("a count")
}

/// Whether an event was sent in vain.
async fn has_failed(tollgate: &Tollgate) -> bool {
    sqlx::query_scalar(
        "select exists (select from alert_deliveries where last_error is not null and delivered_at is null)",
    )
    .fetch_one(&mut tollgate.sql().await)
    .await
    .expect("a word")
}

/// When a gateway last said that an open alert is its own.
async fn kept_at(tollgate: &Tollgate) -> DateTime<Utc> {
    sqlx::query_scalar("select max(kept_at) from alerts where cleared_at is null")
        .fetch_one(&mut tollgate.sql().await)
        .await
        .expect("a time")
}

/// Waits until the gateway has looked at itself, found nothing wrong, and said so.
async fn well_again(tollgate: &Tollgate) {
    let since = tollgate.clock.wall();
    until("nothing is degraded", async || {
        let instances = tollgate
            .control()
            .instances(&tollgate.actor())
            .await
            .expect("instances");
        instances
            .iter()
            .all(|instance| instance.seen_at > since && instance.status.degraded.is_empty())
    })
    .await;
}

/// Models without a price, in force.
async fn unpriced_models(tollgate: &Tollgate, count: usize) -> Vec<String> {
    let upstream = tollgate.upstream("another", &tollgate.simulator.base_url()).await;
    let names: Vec<String> = (0..count).map(|number| format!("unpriced-{number}")).collect();
    for name in &names {
        tollgate.model(name, upstream, None).await;
    }
    tollgate.in_force().await;
    names
}

/// Asks for a model without a price, and is refused.
async fn ask(browser: &Browser, key: &str, model: &str) {
    let body = serde_json::json!({ "model": model, "messages": [{ "role": "user", "content": "Hello." }] });
    let answer = browser.post_json(CHAT_PATH, key, &body).await;
    assert_eq!(answer.code(), "model_unpriced", "{}", answer.text());
}

#[tokio::test]
async fn a_redis_that_is_stopped_raises_one_alert_which_is_over_when_it_is_back() {
    let redis = RedisServer::start().await;
    let options = Options {
        redis: Some(RedisSettings {
            connect_timeout_ms: 400,
            command_timeout_ms: 400,
            ..RedisSettings::new(redis.url())
        }),
        ..Options::default()
    };
    let tollgate = Tollgate::start_with(options).await;
    let receiver = Receiver::start(&[]).await;
    let secret = set_webhook(&tollgate, &receiver).await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let mut operator = Window::operator(&tollgate).await;
    assert!(operator.page.texts("aside.notice").is_empty(), "all is well");
    assert!(operator.visit("/alerts").await.content().contains("Nothing is open"));

    redis.pause();
    until("the gateway goes by its own counters", async || {
        tollgate.chat(&key, "Hello.").await.header("x-ratelimit-mode") == "degraded"
    })
    .await;
    until("an alert is raised", async || !open(&tollgate).await.is_empty()).await;
    until("the webhook hears of it", async || !receiver.events().is_empty()).await;
    let alert = open(&tollgate).await.remove(0);
    assert_eq!((alert.kind, alert.instance.as_str()), (AlertKind::Counters, INSTANCE));
    let page = operator.visit("/alerts").await;
    let table = page.table(&["Alert", "What it means, and what to do", "Gateway", "Times"]);
    assert_eq!(table.column("Times"), ["1"]);
    assert!(table.column("What it means, and what to do")[0].contains("Redis does not answer"));
    assert!(
        page.text("nav a[href='/alerts']").contains('1'),
        "the navigation counts"
    );
    let notices = operator.visit("/tenants").await.texts("aside.notice");
    assert_eq!(notices.len(), 1, "one story: {notices:?}");
    assert!(notices[0].contains("1 alert is open"), "{notices:?}");
    assert_eq!(notices[0].matches("Redis does not answer").count(), 1, "{notices:?}");

    redis.resume();
    until("the gateway goes by the shared counters", async || {
        let answer = tollgate.chat(&key, "Hello.").await;
        answer.header("x-ratelimit-mode").is_empty()
    })
    .await;
    assert_eq!(open(&tollgate).await.len(), 1, "its share of every rate rises yet");
    tollgate.clock.skip(RISE_MS);
    well_again(&tollgate).await;
    assert_eq!(open(&tollgate).await.len(), 1, "it may come back");
    tollgate.clock.skip(RISE_MS + SLACK_MS);
    until("it is over", async || open(&tollgate).await.is_empty()).await;
    until("the webhook hears of that, too", async || receiver.received().len() > 1).await;
    assert_eq!(receiver.events(), ["alert.raised counters", "alert.cleared counters"]);
    for received in receiver.received() {
        assert!(received.is_signed_with(&secret).is_some(), "{received:?}");
        assert_eq!(received.text("/alert/id"), alert.id.to_string());
    }
    let over = over(&tollgate).await;
    assert_eq!((over.len(), over[0].id, over[0].count), (1, alert.id, 1));
    let page = operator.visit("/alerts?kind=counters").await;
    assert_eq!(page.table(&["Alert", "Lasted"]).column("Alert").len(), 1);
    let page = operator.visit("/alerts?kind=unpriced").await;
    assert!(page.content().contains("No alert of this kind is open"));
    assert!(page.find_table(&["Alert", "Lasted"]).is_none());
}

#[tokio::test]
async fn an_event_that_is_not_taken_is_sent_again_the_same_and_signed_anew() {
    let tollgate = Tollgate::start().await;
    let receiver = Receiver::start(&[500, 302]).await;
    let mut operator = Window::operator(&tollgate).await;
    let form = operator.visit("/settings/webhook").await.form("/console/webhook/set");
    let page = operator.send(&form.fill("url", &receiver.url)).await;
    assert_eq!(page.path(), "/settings/webhook/secret", "{}", page.content());
    let secret = page.text("#secret");
    let again = operator.visit("/settings/webhook/secret").await;
    assert!(again.texts("#secret").is_empty(), "it is shown once");

    let form = operator.visit("/settings/webhook").await.form("/console/webhook/test");
    operator.send(&form).await;
    let twice = operator.send(&form).await;
    let is_on_its_way = twice.notices().iter().any(|notice| notice.contains("on its way"));
    assert!(is_on_its_way, "{:?}", twice.notices());
    for attempts in 1..=3 {
        until("it is sent", async || receiver.received().len() == attempts).await;
        until("the page says what became of it", async || {
            let table = operator
                .visit("/settings/webhook")
                .await
                .table(&["Event", "State", "Attempts"]);
            let state = &table.column("State")[0];
            table.column("Attempts") == [attempts.to_string()]
                && match attempts {
                    1 => state.contains("status 500"),
                    2 => state.contains("status 302"),
                    _ => state.contains("delivered"),
                }
        })
        .await;
        tollgate.clock.skip(PAUSE_MS * 2);
    }
    let received = receiver.received();
    let bodies: HashSet<&[u8]> = received.iter().map(|received| received.body.as_slice()).collect();
    assert_eq!(bodies.len(), 1, "the same event each time");
    assert_eq!(received[0].text("/event"), "alert.test");
    let times: Vec<DateTime<Utc>> = received
        .iter()
        .map(|received| received.is_signed_with(&secret).expect("signed with the secret"))
        .collect();
    assert!(times.is_sorted() && times[0] < times[2], "{times:?}");
    assert!(received[0].is_signed_with("whsec_another").is_none());

    // A new secret signs what comes after it.
    let form = operator
        .visit("/settings/webhook")
        .await
        .form("/console/webhook/replace-secret");
    let new = operator.send(&form).await.text("#secret");
    assert_ne!(new, secret);
    let form = operator.visit("/settings/webhook").await.form("/console/webhook/test");
    operator.send(&form).await;
    until("it is sent", async || receiver.received().len() == 4).await;
    let last = receiver.received().remove(3);
    assert!(last.is_signed_with(&new).is_some() && last.is_signed_with(&secret).is_none());
    // And what is removed hears of nothing any more.
    let form = operator
        .visit("/settings/webhook")
        .await
        .form("/console/webhook/remove");
    operator.send(&form).await;
    assert!(
        operator
            .visit("/settings")
            .await
            .content()
            .contains("alerts are in the console only")
    );
    assert!(
        operator
            .visit("/settings/webhook")
            .await
            .forms("/console/webhook/test")
            .is_empty()
    );
}

#[tokio::test]
async fn an_event_that_is_never_taken_is_given_up_and_everybody_can_see_it() {
    let tollgate = Tollgate::start().await;
    let receiver = Receiver::start(&[503; 50]).await;
    set_webhook(&tollgate, &receiver).await;
    let mut operator = Window::operator(&tollgate).await;
    tollgate
        .control()
        .test_webhook(&tollgate.actor(), tollgate.clock.wall())
        .await
        .expect("sent");
    until("it failed", async || has_failed(&tollgate).await).await;
    // Eleven times would take hours.
    sqlx::query("update alert_deliveries set attempts = $1")
        .bind(DELIVERY_ATTEMPTS_MAX as i32 - 1)
        .execute(&mut tollgate.sql().await)
        .await
        .expect("changed");
    tollgate.clock.skip(PAUSE_MS);
    until("it is given up", async || on_their_way(&tollgate).await == 0).await;
    tollgate.clock.skip(3_600_000);
    assert_eq!(receiver.received().len(), 2);
    let page = operator.visit("/alerts").await;
    assert!(page.content().contains("did not take 1 event"), "{}", page.content());
    let table = operator
        .visit("/settings/webhook")
        .await
        .table(&["Event", "State", "Attempts"]);
    assert!(
        table.column("State")[0].contains("given up"),
        "{:?}",
        table.column("State")
    );
}

#[tokio::test]
async fn two_gateways_send_each_event_once() {
    let tollgate = Tollgate::start().await;
    let another = tollgate.another("second").await;
    let receiver = Receiver::start(&[]).await;
    set_webhook(&tollgate, &receiver).await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let models = unpriced_models(&tollgate, 10).await;
    another.running.gateway.refresh_policy().await.expect("a policy");
    for (number, model) in models.iter().enumerate() {
        let browser = if number % 2 == 0 {
            tollgate.browser()
        } else {
            another.browser()
        };
        ask(&browser, &key, model).await;
        ask(&browser, &key, model).await;
    }
    until("all of them are written", async || {
        open(&tollgate).await.len() == models.len()
    })
    .await;
    until("all of them are sent", async || on_their_way(&tollgate).await == 0).await;
    let subjects: Vec<String> = receiver
        .received()
        .iter()
        .map(|received| received.text("/alert/subject"))
        .collect();
    assert_eq!(subjects.len(), models.len(), "{subjects:?}");
    let different: HashSet<&String> = subjects.iter().collect();
    assert_eq!(different.len(), models.len());
}

#[tokio::test]
async fn a_restart_goes_on_with_its_alerts_and_tells_nobody_again() {
    let tollgate = Tollgate::start().await;
    let receiver = Receiver::start(&[]).await;
    set_webhook(&tollgate, &receiver).await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let models = unpriced_models(&tollgate, 1).await;
    ask(&tollgate.browser(), &key, &models[0]).await;
    until("the webhook hears of it", async || receiver.received().len() == 1).await;
    let before = open(&tollgate).await.remove(0);

    let tollgate = tollgate.restart().await;
    ask(&tollgate.browser(), &key, &models[0]).await;
    // Figures are written now and then.
    tollgate.clock.skip(10_000 + SLACK_MS);
    until("it counts on", async || open(&tollgate).await[0].count == 2).await;
    let after = open(&tollgate).await;
    assert_eq!(
        (after.len(), after[0].id, after[0].raised_at),
        (1, before.id, before.raised_at)
    );
    assert_eq!((receiver.received().len(), on_their_way(&tollgate).await), (1, 0));

    // Over while nobody asks for the model: also when only the run before had seen it.
    let tollgate = tollgate.restart().await;
    let restarted_at = tollgate.clock.wall();
    until("it is this run's", async || kept_at(&tollgate).await > restarted_at).await;
    tollgate.clock.skip(3_600_000 + SLACK_MS);
    until("it is over", async || open(&tollgate).await.is_empty()).await;
    until("the webhook hears of that, too", async || {
        receiver.received().len() == 2
    })
    .await;
    assert_eq!(receiver.events()[1], "alert.cleared unpriced");
}

#[tokio::test]
async fn what_is_raised_while_postgres_is_away_is_written_and_sent_when_it_is_back() {
    let tollgate = Tollgate::start_with(Options {
        has_wire: true,
        ..Options::default()
    })
    .await;
    let receiver = Receiver::start(&[]).await;
    set_webhook(&tollgate, &receiver).await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let models = unpriced_models(&tollgate, 2).await;

    tollgate.wire().cut();
    for model in &models {
        ask(&tollgate.browser(), &key, model).await;
    }
    let asked_at = tollgate.clock.wall();
    // Longer than a policy may be old before somebody is told.
    until("the policy is stale", async || {
        tollgate.clock.skip(1_000);
        let text = tollgate.browser().get("/metrics").await.text();
        text.lines()
            .any(|line| line.starts_with("tollgate_alerts_open{kind=\"policy\"} 1"))
    })
    .await;
    assert_eq!(receiver.received().len(), 0, "nobody can know yet");
    tollgate.wire().mend();

    until("the webhook hears of all of it", async || {
        receiver.received().len() >= 3
    })
    .await;
    until("all of it", async || {
        let events = receiver.events();
        let count = |name: &str| events.iter().filter(|event| *event == name).count();
        (count("alert.raised policy"), count("alert.raised unpriced")) == (1, 2)
    })
    .await;
    well_again(&tollgate).await;
    tollgate.clock.skip(10_000 + SLACK_MS);
    until("the policy is fresh for a while", async || {
        over(&tollgate)
            .await
            .iter()
            .any(|alert| alert.kind == AlertKind::Policy)
    })
    .await;
    let mut unpriced = open(&tollgate).await;
    unpriced.retain(|alert| alert.kind == AlertKind::Unpriced);
    assert_eq!(unpriced.len(), 2);
    assert!(
        unpriced.iter().all(|alert| alert.raised_at <= asked_at),
        "when it happened, not when it was written"
    );
}

#[tokio::test]
async fn an_alert_of_a_gateway_that_is_gone_is_cleared_by_the_others() {
    let tollgate = Tollgate::start().await;
    let receiver = Receiver::start(&[]).await;
    set_webhook(&tollgate, &receiver).await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let models = unpriced_models(&tollgate, 2).await;
    let mortal = tollgate.mortal("mortal").await;
    ask(&tollgate.browser(), &key, &models[0]).await;
    ask(&Browser::new(mortal.url()), &key, &models[1]).await;
    until("both are raised", async || open(&tollgate).await.len() == 2).await;
    mortal.kill();
    tollgate.clock.skip(60_000 + SLACK_MS);
    // The other one has to report again after that minute.
    until("only the one that is there has an alert", async || {
        let open = open(&tollgate).await;
        open.len() == 1 && open[0].instance == INSTANCE
    })
    .await;
    assert!(over(&tollgate).await.iter().any(|alert| alert.instance == "mortal"));
    // On a busy machine an event may come twice.
    until("the webhook hears of it", async || {
        receiver.events().iter().any(|event| event == "alert.cleared unpriced")
    })
    .await;
}

#[tokio::test]
async fn operators_and_auditors_see_alerts_and_only_operators_the_webhooks_address() {
    let tollgate = Tollgate::start().await;
    let receiver = Receiver::start(&[]).await;
    let secret = set_webhook(&tollgate, &receiver).await;
    let tenant = tollgate.tenant("Tenant", NodeLimits::default()).await;
    let mut auditor = Window::person(&tollgate, Role::Auditor, None).await;
    assert_eq!(auditor.visit("/alerts").await.heading(), "Alerts");
    let page = auditor.visit("/settings/webhook").await;
    assert!(
        page.fact("Address").starts_with("http://127.0.0.1:"),
        "{}",
        page.content()
    );
    assert!(!page.content().contains("of-the-hook"));
    assert!(page.forms("/console/webhook/set").is_empty() && page.forms("/console/webhook/remove").is_empty());
    for action in ["set", "replace-secret", "remove", "test"] {
        let address = format!("/console/webhook/{action}");
        let answer = auditor
            .browser
            .post_form(&address, &[("version", "1"), ("url", "https://example.com/")])
            .await;
        assert_eq!(answer.status, 403, "{action}");
    }
    for role in [Role::Manager, Role::Member] {
        let mut person = Window::person(&tollgate, role, Some(tenant)).await;
        assert!(!person.page.links().iter().any(|link| link == "/alerts"), "{role}");
        for address in ["/alerts", "/settings/webhook"] {
            assert_eq!(person.browser.get(address).await.status, 403, "{role} {address}");
        }
    }
    assert_eq!(receiver.received().len(), 0);

    // Neither secret nor address stand anywhere in clear.
    for table in ["alert_webhook", "alert_deliveries", "audit_log"] {
        let text: String = sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
            "select coalesce(string_agg(rows::text, ' '), '') || coalesce(string_agg(encode(rows::text::bytea, 'hex'), ' '), '')
             from {table} as rows"
        )))
        .fetch_one(&mut tollgate.sql().await)
        .await
        .expect("text");
        for clear in [secret.as_str(), "of-the-hook"] {
            assert!(
                !text.contains(clear) && !text.contains(&hex::encode(clear)),
                "{clear} in {table}"
            );
        }
    }
}

#[tokio::test]
async fn the_console_says_what_every_gateways_breakers_do() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let upstreams = tollgate
        .control()
        .upstreams(&tollgate.actor())
        .await
        .expect("upstreams");
    let upstream = &upstreams[0];
    let page = operator.visit("/status").await;
    assert!(page.content().contains("Every breaker is closed"));
    let status = InstanceStatus {
        breakers: vec![BreakerStatus {
            upstream_id: upstream.id,
            upstream_model: Some("sim-model".to_owned()),
            state: BreakerState::Open,
            since: Utc::now(),
            until: Some(Utc::now() + chrono::Duration::seconds(60)),
            reason: "5 failures in a row, the last: status 500".to_owned(),
        }],
        ..InstanceStatus::default()
    };
    tollgate
        .running
        .store
        .report_instance("another", Utc::now(), &status)
        .await
        .expect("a report");
    let columns = ["Model", "Breaker", "Tried again", "Reason", "Seen by"];
    for address in ["/status".to_owned(), format!("/upstreams/{}", upstream.id)] {
        let table = operator.visit(&address).await.table(&columns);
        assert_eq!(table.column("Breaker"), ["open"], "{address}");
        assert_eq!(table.column("Seen by"), ["another"], "{address}");
        assert_eq!(table.column("Reason"), ["5 failures in a row, the last: status 500"]);
    }
    let table = operator.visit("/upstreams").await.table(&["Name", "State"]);
    assert!(table.column("State")[0].contains("open"), "{:?}", table.column("State"));
    assert!(
        table.column("State")[0].contains("1 of 2 gateways"),
        "{:?}",
        table.column("State")
    );
}

#[tokio::test]
async fn an_upstream_that_fails_again_and_again_is_an_alert_that_names_it() {
    let tollgate = Tollgate::start().await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    until("its breaker opens", async || {
        tollgate.chat(&key, "Hello. [[sim: status=500]]").await;
        !open(&tollgate).await.is_empty()
    })
    .await;
    let alert = open(&tollgate).await.remove(0);
    assert_eq!((alert.kind, alert.count), (AlertKind::Breaker, 1));
    assert!(
        alert.message.starts_with("simulator takes no requests for sim-model: "),
        "{}",
        alert.message
    );
    let mut operator = Window::operator(&tollgate).await;
    until("the gateway's status says so, too", async || {
        let page = operator.visit("/status").await;
        page.find_table(&["Upstream", "Breaker"])
            .is_some_and(|table| table.column("Breaker") == ["open"])
    })
    .await;
    assert_eq!(open(&tollgate).await[0].count, 1, "told twice, it is one opening");
}

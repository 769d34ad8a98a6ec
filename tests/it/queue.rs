//! Requests that find no room wait for it: how long, in which order, and what they are told.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use chrono::Utc;
use control::limits::{LimitDraft, NodeLimits};
use domain::limits::{Dimension, Gates, Scope, Target};
use domain::prices::Rates;
use domain::priority::Priority;
use futures_util::future::join_all;
use gateway::QueueSettings;
use http::Method;
use sqlx::Row as _;
use test_redis::RedisServer;
use test_support::fleet::until;
use test_support::tollgate::{CHAT_PATH, MODEL, Options, Tollgate, chat_body, limit};
use tokio::spawn;
use tokio::task::JoinHandle;

const QUEUE: QueueSettings = QueueSettings {
    places: 8,
    waiting_tokens_max: 1_000_000,
    timeout_ms: 10_000,
};

async fn start(queue: QueueSettings) -> Tollgate {
    Tollgate::start_with(Options {
        queue: Some(queue),
        ..Options::default()
    })
    .await
}

fn one_at_once() -> NodeLimits {
    NodeLimits {
        concurrency: Some(1),
        ..NodeLimits::default()
    }
}

/// Sets a limit of the whole installation, of which there was version `version`.
async fn set_global(tollgate: &Tollgate, version: i64, limit: LimitDraft) -> i64 {
    tollgate.set_limit(Target::Node(Scope::Global), version, &limit).await
}

/// Waits until so many wait.
async fn waiting(tollgate: &Tollgate, count: usize) {
    until("so many wait", async || tollgate.running.gateway.waiting() == count).await;
}

#[tokio::test]
async fn a_request_waits_for_its_place_and_has_it_as_soon_as_another_ends() {
    let tollgate = start(QUEUE).await;
    let (_, key) = tollgate.tenant_with_key(one_at_once()).await;
    let first = tollgate.park(&key).await;
    let second = tollgate.chat_beside(&key);
    waiting(&tollgate, 1).await;
    let models = tollgate.browser().get("/v1/models").await;
    assert_eq!(models.header("x-ratelimit-queue-depth"), "1");
    tollgate.simulator.release_all();
    for answer in [first.await.expect("an answer"), second.await.expect("an answer")] {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(tollgate.running.gateway.waiting(), 0);
    tollgate.shipped().await;
    let rows = sqlx::query("select queue_ms, outcome, first_byte_ms from settlements order by admitted_at")
        .fetch_all(&mut tollgate.sql().await)
        .await
        .expect("rows");
    assert_eq!(rows.len(), 2);
    let queue_ms = rows[1].get::<i64, _>("queue_ms");
    assert!(queue_ms > 0 && queue_ms <= rows[1].get::<i64, _>("first_byte_ms"));
    assert_eq!(tollgate.running.gateway.open_holds(), 0);
    let metrics = tollgate.browser().get("/metrics").await.text();
    let told = r#"tollgate_queue_waits_total{scope="tenant",dimension="concurrency",result="admitted"}"#;
    assert!(metrics.contains(told), "{metrics}");
}

#[tokio::test]
async fn whoever_waits_in_vain_is_told_what_for() {
    let tollgate = start(QueueSettings {
        timeout_ms: 300,
        ..QUEUE
    })
    .await;
    let (_, key) = tollgate.tenant_with_key(one_at_once()).await;
    let first = tollgate.park(&key).await;
    let refused = tollgate.chat(&key, "Hello.").await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (503, "queue_timeout")
    );
    let error = &refused.json()["error"];
    assert_eq!(
        error["message"],
        "There was no room for 1 s. Too many requests at once: your tenant allows 1 in flight. Retry in 1 s."
    );
    assert!(
        error["scope"]
            .as_str()
            .is_some_and(|scope| scope.starts_with("tenant:"))
    );
    assert_eq!(error["retry_after"], 1);
    assert_eq!(refused.header("retry-after"), "1");
    assert!(refused.header("x-ratelimit-reason").ends_with(" concurrency"));
    tollgate.simulator.release_all();
    first.await.expect("an answer");
    tollgate.shipped().await;
    let row = sqlx::query("select code, queue_ms, jsonb_array_length(chain) as checked, dimension from rejections")
        .fetch_one(&mut tollgate.sql().await)
        .await
        .expect("one row");
    assert_eq!(row.get::<String, _>("code"), "queue_timeout");
    assert!(row.get::<i64, _>("queue_ms") >= 300);
    assert!(row.get::<i32, _>("checked") > 0, "the scopes that were checked");
    assert_eq!(row.get::<String, _>("dimension"), "concurrency");
}

#[tokio::test]
async fn when_no_more_may_wait_the_next_is_told_at_once() {
    let tollgate = start(QueueSettings { places: 1, ..QUEUE }).await;
    let (_, key) = tollgate.tenant_with_key(one_at_once()).await;
    let first = tollgate.park(&key).await;
    let second = tollgate.chat_beside(&key);
    waiting(&tollgate, 1).await;
    let refused = tollgate.chat(&key, "Hello.").await;
    assert_eq!((refused.status.as_u16(), refused.code().as_str()), (503, "queue_full"));
    assert_eq!(refused.header("x-backpressure"), "high");
    assert_eq!(refused.header("x-ratelimit-queue-depth"), "1");
    assert!(refused.header("retry-after").parse::<u64>().is_ok_and(|wait| wait >= 1));
    assert!(refused.header("x-ratelimit-reason").ends_with(" concurrency"));
    tollgate.simulator.release_all();
    assert_eq!(first.await.expect("an answer").status, 200);
    let second = second.await.expect("an answer");
    assert_eq!(second.status, 200);
    assert_eq!(second.header("x-backpressure"), "", "there are places again");
}

#[tokio::test]
async fn a_caller_who_leaves_gives_its_place_away_at_once() {
    let tollgate = start(QueueSettings { places: 1, ..QUEUE }).await;
    let (_, key) = tollgate.tenant_with_key(one_at_once()).await;
    let first = tollgate.park(&key).await;
    let second = tollgate.chat_beside(&key);
    waiting(&tollgate, 1).await;
    second.abort();
    waiting(&tollgate, 0).await;
    let third = tollgate.chat_beside(&key);
    waiting(&tollgate, 1).await;
    tollgate.simulator.release_all();
    assert_eq!(first.await.expect("an answer").status, 200);
    assert_eq!(third.await.expect("an answer").status, 200);
    tollgate.shipped().await;
    let outcomes: Vec<String> = sqlx::query_scalar("select outcome from settlements order by settled_at")
        .fetch_all(&mut tollgate.sql().await)
        .await
        .expect("rows");
    assert_eq!(outcomes, ["client_closed", "completed", "completed"]);
}

#[tokio::test]
async fn nobody_waits_for_what_is_known_to_come_too_late() {
    let tollgate = start(QUEUE).await;
    let limits = NodeLimits {
        requests_per_minute: Some(1),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.tenant_with_key(limits).await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
    let refused = tollgate.chat(&key, "Hello.").await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (429, "rate_limit_exceeded")
    );
    assert!(refused.header("retry-after").parse::<u64>().is_ok_and(|wait| wait > 10));
}

#[tokio::test]
async fn whoever_waits_for_time_alone_is_admitted_when_it_has_passed() {
    let tollgate = start(QUEUE).await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let window = LimitDraft {
        window_seconds: 8,
        ..limit(Dimension::Requests, 2)
    };
    set_global(&tollgate, 0, window).await;
    for _ in 0..2 {
        assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
    }
    let others: Vec<_> = (0..4).map(|_| tollgate.chat_beside(&key)).collect();
    waiting(&tollgate, 4).await;
    tollgate.clock.skip(8_500);
    // Two are admitted at once; the others wait for the next window, which comes too late for them.
    waiting(&tollgate, 2).await;
    tollgate.clock.skip(2_000);
    let answers = join_all(others).await;
    let statuses = answers
        .into_iter()
        .map(|answer| answer.expect("an answer").status.as_u16());
    let mut counts = HashMap::new();
    statuses.for_each(|status| *counts.entry(status).or_insert(0) += 1);
    assert_eq!(counts, HashMap::from([(200, 2), (503, 2)]));
}

#[tokio::test]
async fn whoever_is_held_up_by_its_own_limit_holds_up_nobody_else() {
    let tollgate = start(QUEUE).await;
    let (_, slow) = tollgate.named_tenant_with_key("Slow", one_at_once()).await;
    let (_, other) = tollgate.named_tenant_with_key("Other", NodeLimits::default()).await;
    let first = tollgate.park(&slow).await;
    let second = tollgate.chat_beside(&slow);
    waiting(&tollgate, 1).await;
    let third = tollgate.chat_beside(&other);
    tollgate.simulator.wait_parked(2).await;
    assert_eq!(tollgate.running.gateway.waiting(), 1);
    tollgate.simulator.release_all();
    for answer in [first, second, third] {
        assert_eq!(answer.await.expect("an answer").status, 200);
    }
}

#[tokio::test]
async fn the_highest_class_is_served_first() {
    let tollgate = start(QUEUE).await;
    set_global(&tollgate, 0, limit(Dimension::Concurrency, 1)).await;
    let tenant = tollgate.tenant("Tenant", NodeLimits::default()).await;
    let order = [Priority::Low, Priority::Default, Priority::Critical, Priority::High];
    let mut keys = Vec::new();
    for priority in order {
        keys.push(tollgate.key_at(tenant, priority).await);
    }
    let first = tollgate.park(&keys[0]).await;
    let mut others = Vec::new();
    for (number, key) in keys.iter().enumerate() {
        others.push(tollgate.chat_beside(key));
        waiting(&tollgate, number + 1).await;
    }
    tollgate.simulator.release_all();
    first.await.expect("an answer");
    for other in others {
        assert_eq!(other.await.expect("an answer").status, 200);
    }
    tollgate.shipped().await;
    let served: Vec<String> = sqlx::query_scalar("select priority from settlements order by settled_at")
        .fetch_all(&mut tollgate.sql().await)
        .await
        .expect("rows");
    assert_eq!(served, ["low", "critical", "high", "default", "low"]);
}

#[tokio::test]
async fn a_flood_of_high_does_not_keep_low_waiting_beyond_its_bound() {
    let tollgate = Tollgate::start_with(Options {
        queue: Some(QueueSettings {
            places: 40,
            timeout_ms: 4_000,
            ..QUEUE
        }),
        ..Options::default()
    })
    .await;
    set_global(&tollgate, 0, limit(Dimension::Concurrency, 1)).await;
    let tenant = tollgate.tenant("Flood", NodeLimits::default()).await;
    let high = tollgate.key_at(tenant, Priority::High).await;
    let modest = tollgate.tenant("Modest", NodeLimits::default()).await;
    let low = tollgate.key_at(modest, Priority::Low).await;
    // Thirty callers who come back at once, as long as the low one waits.
    let flood: Vec<_> = (0..30)
        .map(|_| {
            let (browser, key) = (tollgate.browser(), high.clone());
            spawn(async move {
                loop {
                    browser
                        .post_json(CHAT_PATH, &key, &chat_body("Hello. [[sim: first-byte-ms=20]]"))
                        .await;
                }
            })
        })
        .collect();
    until("the flood waits", async || tollgate.running.gateway.waiting() >= 25).await;
    let answer = tollgate.chat(&low, "Hello.").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    flood.iter().for_each(JoinHandle::abort);
    tollgate.shipped().await;
    let wait_ms: i64 = sqlx::query_scalar("select queue_ms from settlements where priority = 'low'")
        .fetch_one(&mut tollgate.sql().await)
        .await
        .expect("one row");
    // The others were served before it, until it counted as much as they.
    assert!(wait_ms > 2_000, "{wait_ms}");
}

#[tokio::test]
async fn after_half_of_its_wait_a_gate_judges_it_a_class_higher() {
    let tollgate = start(QUEUE).await;
    let gated = LimitDraft {
        gates: Some(Gates {
            lower_percent: 10,
            upper_percent: 90,
            upper_waits: false,
        }),
        ..limit(Dimension::Requests, 10)
    };
    set_global(&tollgate, 0, gated).await;
    let tenant = tollgate.tenant("Tenant", NodeLimits::default()).await;
    let low = tollgate.key_at(tenant, Priority::Low).await;
    let ordinary = tollgate.key_at(tenant, Priority::Default).await;
    assert_eq!(tollgate.chat(&low, "Hello.").await.status, 200);
    let gated = tollgate.chat_beside(&low);
    waiting(&tollgate, 1).await;
    assert_eq!(tollgate.chat(&ordinary, "Hello.").await.status, 200, "it is not gated");
    assert_eq!(tollgate.running.gateway.waiting(), 1);
    tollgate.clock.skip(5_000);
    let answer = gated.await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    tollgate.shipped().await;
    let priorities: Vec<String> = sqlx::query_scalar("select priority from settlements order by settled_at")
        .fetch_all(&mut tollgate.sql().await)
        .await
        .expect("rows");
    assert_eq!(priorities, ["low", "default", "low"], "its row says what it is");
}

#[tokio::test]
async fn a_raised_limit_lets_those_in_who_wait() {
    let tollgate = start(QUEUE).await;
    let version = set_global(&tollgate, 0, limit(Dimension::Concurrency, 1)).await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let first = tollgate.park(&key).await;
    let second = tollgate.chat_beside(&key);
    waiting(&tollgate, 1).await;
    set_global(&tollgate, version, limit(Dimension::Concurrency, 2)).await;
    tollgate.simulator.wait_parked(2).await;
    tollgate.simulator.release_all();
    assert_eq!(first.await.expect("an answer").status, 200);
    assert_eq!(second.await.expect("an answer").status, 200);
}

#[tokio::test]
async fn a_key_that_is_revoked_while_it_waits_is_refused() {
    let tollgate = start(QUEUE).await;
    let tenant = tollgate.tenant("Tenant", one_at_once()).await;
    let (one, other) = (tollgate.issue(tenant).await, tollgate.issue(tenant).await);
    tollgate.in_force().await;
    let first = tollgate.park(one.text.reveal()).await;
    let second = tollgate.chat_beside(other.text.reveal());
    waiting(&tollgate, 1).await;
    let control = tollgate.control();
    control
        .revoke_key(&tollgate.actor(), other.row.id, Utc::now())
        .await
        .expect("revoked");
    tollgate.in_force().await;
    let refused = second.await.expect("an answer");
    assert_eq!((refused.status.as_u16(), refused.code().as_str()), (403, "key_revoked"));
    tollgate.simulator.release_all();
    assert_eq!(first.await.expect("an answer").status, 200);
}

#[tokio::test]
async fn an_account_without_room_is_waited_for_by_whoever_was_told_and_by_whoever_comes() {
    let tollgate = start(QUEUE).await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let script = tollgate.simulator.script(["status=429 retry-after=1"]);
    script.expect("orders");
    let first = tollgate.chat_beside(&key);
    until("the account cools", async || {
        !tollgate.running.gateway.status().breakers.is_empty()
    })
    .await;
    let second = tollgate.chat_beside(&key);
    waiting(&tollgate, 1).await;
    for answer in [first, second] {
        let answer = answer.await.expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    tollgate.shipped().await;
    let attempts: Vec<i32> =
        sqlx::query_scalar("select jsonb_array_length(attempts) from settlements order by admitted_at")
            .fetch_all(&mut tollgate.sql().await)
            .await
            .expect("rows");
    assert_eq!(attempts, [2, 1]);

    // Nobody waits for a minute: the caller knows better what to do meanwhile.
    let script = tollgate.simulator.script(["status=429 retry-after=60"]);
    script.expect("orders");
    let told = tollgate.chat(&key, "Hello.").await;
    assert_eq!(told.status, 429);
    assert_eq!(told.header("retry-after"), "60");
    let refused = tollgate.chat(&key, "Hello.").await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (503, "upstream_unavailable")
    );
    assert!(refused.header("retry-after").parse::<u64>().is_ok_and(|wait| wait > 10));
    assert_eq!(tollgate.running.gateway.open_holds(), 0);
}

#[tokio::test]
async fn a_model_that_is_left_alone_holds_up_no_other_at_the_same_provider() {
    let tollgate = start(QUEUE).await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let policy = tollgate.running.gateway.policy().expect("a policy");
    let upstream = policy.find_model(MODEL).expect("the model").model.routes[0].upstream_id;
    tollgate.model("other", upstream, Some(Rates::flat(1, 1))).await;
    tollgate.in_force().await;
    let script = tollgate.simulator.script(["status=429 retry-after=3"]);
    script.expect("orders");
    let first = tollgate.chat_beside(&key);
    until("the model cools", async || {
        !tollgate.running.gateway.status().breakers.is_empty()
    })
    .await;
    let second = tollgate.chat_beside(&key);
    waiting(&tollgate, 1).await;
    let mut body = chat_body("Hello.");
    body["model"] = "other".into();
    let other = tollgate.browser().post_json(CHAT_PATH, &key, &body).await;
    assert_eq!(other.status, 200, "{}", other.text());
    assert_eq!(tollgate.running.gateway.waiting(), 1, "the others wait still");
    for answer in [first, second] {
        assert_eq!(answer.await.expect("an answer").status, 200);
    }
}

/// A streamed request that wants to hear how many wait.
async fn stream(tollgate: &Tollgate, key: &str) -> test_support::http::Stream {
    let mut body = chat_body("Hello.");
    body["stream"] = true.into();
    let headers = [("x-tollgate-queue-comments", "on")];
    tollgate
        .browser()
        .stream_json_with(CHAT_PATH, key, &headers, &body)
        .await
}

#[tokio::test]
async fn a_stream_hears_how_many_wait_and_then_its_answer() {
    let tollgate = start(QUEUE).await;
    let (_, key) = tollgate.tenant_with_key(one_at_once()).await;
    let alone = stream(&tollgate, &key).await.rest().await;
    assert!(!alone.contains("queued"), "it did not wait: {alone}");
    let first = tollgate.park(&key).await;
    let mut waits = stream(&tollgate, &key).await;
    assert_eq!(waits.status, 200);
    assert_eq!(waits.headers["content-type"], "text/event-stream");
    assert!(waits.headers.contains_key("x-tollgate-request-id"));
    let piece = waits.next().await.expect("a comment");
    assert_eq!(piece, Bytes::from_static(b": queued 1\n\n"));
    tollgate.simulator.release_all();
    assert_eq!(first.await.expect("an answer").status, 200);
    let rest = waits.rest().await;
    let events: String = rest
        .split_inclusive("\n\n")
        .filter(|event| !event.starts_with(": queued"))
        .collect();
    let said = |stream: &str| {
        let events = stream.lines().filter_map(|line| line.strip_prefix("data: "));
        let events = events.filter_map(|data| serde_json::from_str::<serde_json::Value>(data).ok());
        let deltas = events.filter_map(|event| event["choices"][0]["delta"]["content"].as_str().map(str::to_owned));
        deltas.collect::<String>()
    };
    assert_eq!(said(&events), said(&alone));
    assert!(events.ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn a_stream_that_waits_in_vain_ends_with_the_refusal_as_an_event() {
    let tollgate = start(QueueSettings {
        timeout_ms: 200,
        ..QUEUE
    })
    .await;
    let (_, key) = tollgate.tenant_with_key(one_at_once()).await;
    let first = tollgate.park(&key).await;
    let (all, is_whole) = stream(&tollgate, &key).await.to_end().await;
    assert!(is_whole);
    let data = all
        .lines()
        .find_map(|line| line.strip_prefix("data: "))
        .expect("an event");
    let event: serde_json::Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(event["error"]["code"], "queue_timeout");
    assert_eq!(event["error"]["retry_after"], 1);
    tollgate.simulator.release_all();
    first.await.expect("an answer");
    tollgate.shipped().await;
    let rows: i64 = sqlx::query_scalar("select count(*) from rejections where code = 'queue_timeout'")
        .fetch_one(&mut tollgate.sql().await)
        .await
        .expect("a count");
    assert_eq!(rows, 1);
}

#[tokio::test]
async fn a_stream_whose_caller_leaves_while_it_waits_gives_its_place_away() {
    let tollgate = start(QUEUE).await;
    let (_, key) = tollgate.tenant_with_key(one_at_once()).await;
    let first = tollgate.park(&key).await;
    let waits = stream(&tollgate, &key).await;
    waiting(&tollgate, 1).await;
    drop(waits);
    waiting(&tollgate, 0).await;
    tollgate.simulator.release_all();
    assert_eq!(first.await.expect("an answer").status, 200);
    tollgate.shipped().await;
    assert_eq!(tollgate.running.gateway.open_holds(), 0);
}

#[tokio::test]
async fn those_who_wait_when_the_process_stops_are_told_to_come_back() {
    let tollgate = Tollgate::start_with(Options {
        queue: Some(QUEUE),
        ..Options::default()
    })
    .await
    .restart_with(|settings| server::wiring::Settings {
        grace: Duration::from_millis(200),
        ..settings
    })
    .await;
    let (_, key) = tollgate.tenant_with_key(one_at_once()).await;
    let first = tollgate.park(&key).await;
    let second = tollgate.chat_beside(&key);
    waiting(&tollgate, 1).await;
    let tollgate = tollgate.restart().await;
    let second = second.await.expect("an answer");
    assert_eq!((second.status.as_u16(), second.code().as_str()), (503, "overloaded"));
    assert_eq!(first.await.expect("an answer").status, 503);
    tollgate.simulator.release_all();
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
}

#[tokio::test]
async fn a_queue_that_outlasts_the_requests_is_refused_at_the_start() {
    let tollgate = Tollgate::start().await;
    let data_dir = tempfile::tempdir().expect("a directory");
    let started = server::wiring::start(server::wiring::Settings {
        queue: QueueSettings {
            timeout_ms: 600_000,
            ..QUEUE
        },
        ..tollgate.settings("too-patient", data_dir.path())
    })
    .await;
    let error = started.err().expect("it does not start").to_string();
    assert!(error.contains("TOLLGATE_QUEUE_TIMEOUT_SECONDS"), "{error}");
}

#[tokio::test]
async fn whoever_waits_for_what_another_gateway_holds_is_admitted_when_it_is_due() {
    let redis = RedisServer::start().await;
    let tollgate = Tollgate::start_with(Options {
        queue: Some(QUEUE),
        redis: Some(limits::RedisSettings::new(redis.url())),
        ..Options::default()
    })
    .await;
    let other = tollgate.another("gateway-2").await;
    let (_, key) = tollgate.tenant_with_key(one_at_once()).await;
    other.running.gateway.refresh_policy().await.expect("the policy");
    let first = tollgate.park(&key).await;
    let (browser, of) = (other.browser(), key.clone());
    let second = spawn(async move { browser.post_json(CHAT_PATH, &of, &chat_body("Hello.")).await });
    until("it waits there", async || other.running.gateway.waiting() == 1).await;
    tollgate.simulator.release_all();
    assert_eq!(first.await.expect("an answer").status, 200);
    assert_eq!(second.await.expect("an answer").status, 200);
}

#[tokio::test]
async fn the_console_and_the_status_say_who_waits_for_what() {
    let tollgate = start(QUEUE).await;
    let (tenant, key) = tollgate.tenant_with_key(one_at_once()).await;
    let first = tollgate.park(&key).await;
    let second = tollgate.chat_beside(&key);
    waiting(&tollgate, 1).await;
    let queue = tollgate.running.gateway.status().queue;
    assert_eq!((queue.depth, queue.places, queue.timeout_ms), (1, 8, 10_000));
    assert!(queue.waiting_tokens > 0);
    let [reason] = &queue.reasons[..] else {
        panic!("{:?}", queue.reasons)
    };
    assert_eq!(reason.scope, Scope::Tenant(tenant));
    assert_eq!((reason.dimension, reason.count), (Dimension::Concurrency, 1));
    tollgate.simulator.release_all();
    assert_eq!(first.await.expect("an answer").status, 200);
    assert_eq!(second.await.expect("an answer").status, 200);
}

#[tokio::test]
async fn other_methods_and_paths_never_wait() {
    let tollgate = start(QUEUE).await;
    let (_, key) = tollgate.tenant_with_key(one_at_once()).await;
    let first = tollgate.park(&key).await;
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str())];
    let mut browser = tollgate.browser();
    let answer = browser.send(Method::GET, "/v1/models", &headers, Bytes::new()).await;
    assert_eq!(answer.status, 200);
    tollgate.simulator.release_all();
    first.await.expect("an answer");
}

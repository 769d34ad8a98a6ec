//! A request with an idempotency key runs once, however often it is sent, and is answered again from the record.

use bytes::Bytes;
use chrono::Utc;
use control::limits::NodeLimits;
use control::reports::ReportFilter;
use domain::ids::TenantId;

use http::Method;
use serde_json::{Value, json};
use test_redis::RedisServer;
use test_support::fleet::{Fleet, until};
use test_support::http::{Answer, Browser, Stream};
use test_support::tollgate::{CHAT_PATH, Options, Tollgate, chat_body};

use crate::fleet::shared;

const NAME: &str = "order-7";

async fn ask(browser: &Browser, key: &str, name: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str()), ("idempotency-key", name)];
    let body = Bytes::from(body.to_string());
    browser.clone().send(Method::POST, CHAT_PATH, &headers, body).await
}

async fn stream(browser: &Browser, key: &str, body: &Value) -> Stream {
    let more = [("idempotency-key", NAME)];
    browser.stream_json_with(CHAT_PATH, key, &more, body).await
}

fn streamed(text: &str) -> Value {
    let mut body = chat_body(text);
    body["stream"] = json!(true);
    body
}

/// What the ledger has of a tenant: settlements by outcome, refusals by code and status.
async fn booked(tollgate: &Tollgate, tenant: TenantId) -> (Vec<String>, Vec<(String, i16)>) {
    tollgate.shipped().await;
    let mut sql = tollgate.sql().await;
    let outcomes = sqlx::query_scalar("select outcome from settlements where tenant_id = $1 order by admitted_at, id")
        .bind(tenant.0)
        .fetch_all(&mut sql)
        .await
        .expect("rows");
    let refused = sqlx::query_as("select code, status from rejections where tenant_id = $1 order by refused_at, id")
        .bind(tenant.0)
        .fetch_all(&mut sql)
        .await
        .expect("rows");
    (outcomes, refused)
}

fn replayed() -> (String, i16) {
    ("replayed".to_owned(), 200)
}

#[tokio::test]
async fn the_same_request_sent_again_is_answered_from_the_record_and_charged_once() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let body = chat_body("Hello. [[sim: tokens=25]]");
    let first = ask(&tollgate.browser(), &key, NAME, &body).await;
    let again = ask(&tollgate.browser(), &key, NAME, &body).await;
    assert_eq!((first.status, again.status), (again.status, http::StatusCode::OK));
    assert_eq!(first.body, again.body);
    assert_eq!(
        (
            first.header("idempotency-replayed"),
            again.header("idempotency-replayed")
        ),
        ("", "true")
    );
    assert_eq!(again.header("content-type"), first.header("content-type"));
    assert_eq!(
        again.header("x-tollgate-request-id"),
        first.header("x-tollgate-request-id")
    );
    // Another name, and none, are other requests.
    assert_eq!(
        ask(&tollgate.browser(), &key, "order-8", &body)
            .await
            .header("idempotency-replayed"),
        ""
    );
    assert_eq!(tollgate.chat(&key, "Hello. [[sim: tokens=25]]").await.status, 200);
    let (outcomes, refused) = booked(&tollgate, tenant).await;
    assert_eq!((outcomes.len(), refused), (3, vec![replayed()]));
    // What was answered again was neither charged nor refused.
    let overview = tollgate
        .control()
        .overview(&tollgate.actor(), &ReportFilter::default(), Utc::now())
        .await
        .expect("an overview");
    let totals = overview.overview.totals;
    assert_eq!((totals.requests, totals.refused_requests()), (3, 0));
    assert_eq!(tollgate.simulator.stats().requests_received, 3);
}

#[tokio::test]
async fn another_body_under_the_same_key_is_a_mistake_and_another_callers_key_is_its_own() {
    let tollgate = Tollgate::start().await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let (_, other) = tollgate.named_tenant_with_key("Other", NodeLimits::default()).await;
    let first = ask(&tollgate.browser(), &key, NAME, &chat_body("Hello.")).await;
    let mistaken = ask(&tollgate.browser(), &key, NAME, &chat_body("Good evening.")).await;
    assert_eq!(
        (mistaken.status.as_u16(), mistaken.code().as_str()),
        (422, "idempotency_key_reused")
    );
    assert!(
        mistaken.text().contains(first.header("x-tollgate-request-id")),
        "{}",
        mistaken.text()
    );
    let theirs = ask(&tollgate.browser(), &other, NAME, &chat_body("Good evening.")).await;
    assert_eq!(
        (theirs.status.as_u16(), theirs.header("idempotency-replayed")),
        (200, "")
    );
    let nameless = ask(&tollgate.browser(), &key, " ", &chat_body("Hello.")).await;
    assert_eq!(
        (nameless.status.as_u16(), nameless.code().as_str()),
        (400, "invalid_request")
    );
}

#[tokio::test]
async fn while_it_runs_a_duplicate_is_told_to_come_back() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    tollgate.simulator.hold();
    let running = {
        let (browser, key) = (tollgate.browser(), key.clone());
        tokio::spawn(async move { ask(&browser, &key, NAME, &chat_body("Hello.")).await })
    };
    tollgate.simulator.wait_parked(1).await;
    let early = ask(&tollgate.browser(), &key, NAME, &chat_body("Hello.")).await;
    assert_eq!(
        (early.status.as_u16(), early.code().as_str()),
        (409, "idempotency_in_progress")
    );
    let wait: u64 = early.header("retry-after").parse().expect("whole seconds");
    assert!((1..=7).contains(&wait), "{wait}");
    tollgate.simulator.release_all();
    let first = running.await.expect("an answer");
    let late = ask(&tollgate.browser(), &key, NAME, &chat_body("Hello.")).await;
    assert_eq!(
        (first.status.as_u16(), late.header("idempotency-replayed")),
        (200, "true")
    );
    let (outcomes, refused) = booked(&tollgate, tenant).await;
    assert_eq!(outcomes, ["completed"]);
    assert_eq!(refused, [("idempotency_in_progress".to_owned(), 409), replayed()]);
}

#[tokio::test]
async fn a_stream_whose_caller_was_cut_off_is_there_whole_when_it_comes_back() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let body = streamed("Hello. [[sim: tokens=40 hold-after-chunks=5]]");
    let mut cut = stream(&tollgate.browser(), &key, &body).await;
    assert!(cut.next().await.is_some());
    tollgate.simulator.wait_parked(1).await;
    drop(cut);
    tollgate.simulator.release_all();
    tollgate.shipped().await;
    let again = stream(&tollgate.browser(), &key, &body).await;
    assert_eq!(again.headers["idempotency-replayed"], "true");
    let text = again.rest().await;
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    // The first says who speaks.
    assert_eq!(text.matches("\"content\":").count(), 41, "{text}");
    let (outcomes, refused) = booked(&tollgate, tenant).await;
    assert_eq!(
        (outcomes, refused),
        (vec!["client_closed".to_owned()], vec![replayed()])
    );
}

#[tokio::test]
async fn an_answer_too_long_to_keep_names_the_request_instead() {
    let tollgate = Tollgate::start().await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    // A chunk of a stream has some two hundred bytes.
    let mut body = streamed("Hello. [[sim: tokens=9000]]");
    body["max_tokens"] = json!(9_000);
    let first = stream(&tollgate.browser(), &key, &body).await;
    let id = first.headers["x-tollgate-request-id"].clone();
    assert!(first.rest().await.len() > 1 << 20);
    let again = ask(&tollgate.browser(), &key, NAME, &body).await;
    assert_eq!(
        (again.status.as_u16(), again.code().as_str()),
        (409, "idempotency_answer_lost")
    );
    assert!(again.text().contains(id.to_str().expect("an id")), "{}", again.text());
    assert_eq!(again.header("retry-after"), "");
}

#[tokio::test]
async fn what_was_refused_or_cost_nothing_may_run_under_the_same_key() {
    let tollgate = Tollgate::start().await;
    let limits = NodeLimits {
        requests_per_minute: Some(1),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.tenant_with_key(limits).await;
    tollgate.simulator.script(["status=400"]).expect("an order");
    let failed = ask(&tollgate.browser(), &key, NAME, &chat_body("Hello.")).await;
    assert_eq!(failed.status, 400, "{}", failed.text());
    let refused = ask(&tollgate.browser(), &key, NAME, &chat_body("Hello.")).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (429, "rate_limit_exceeded")
    );
    tollgate.clock.skip(70_000);
    let ran = ask(&tollgate.browser(), &key, NAME, &chat_body("Hello.")).await;
    assert_eq!((ran.status.as_u16(), ran.header("idempotency-replayed")), (200, ""));
}

#[tokio::test]
async fn an_error_that_may_have_cost_something_is_given_again() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let body = streamed("Hello. [[sim: tokens=20 close-after-chunks=3]]");
    let first = stream(&tollgate.browser(), &key, &body).await.rest().await;
    let again = stream(&tollgate.browser(), &key, &body).await;
    assert_eq!(again.headers["idempotency-replayed"], "true");
    let again = again.rest().await;
    assert_eq!(first, again);
    assert!(again.contains("broke inside its answer"), "{again}");
    assert_eq!(booked(&tollgate, tenant).await.0, ["upstream_error"]);
}

#[tokio::test]
async fn a_request_that_became_a_job_is_the_same_job_when_it_is_sent_again() {
    let tollgate = Tollgate::start().await;
    let limits = NodeLimits {
        requests_per_minute: Some(1),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.tenant_with_key(limits).await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
    let later = async || {
        let bearer = format!("Bearer {key}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("idempotency-key", NAME),
            ("prefer", "respond-async"),
        ];
        let body = Bytes::from(chat_body("Hello.").to_string());
        tollgate.browser().send(Method::POST, CHAT_PATH, &headers, body).await
    };
    let (first, again) = (later().await, later().await);
    assert_eq!(
        (first.status.as_u16(), again.status.as_u16()),
        (202, 202),
        "{}",
        again.text()
    );
    assert_eq!(first.json()["id"], again.json()["id"]);
    assert_eq!(again.header("idempotency-replayed"), "true");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_that_share_redis_run_it_once_between_them() {
    let redis = RedisServer::start().await;
    let fleet = Fleet::start(2, shared(redis.url())).await;
    let (tenant, key) = fleet.tenant_with_key(NodeLimits::default()).await;
    let browsers = fleet.browsers();
    let body = chat_body("Hello. [[sim: tokens=25]]");
    let calls = (0..20).map(|place| {
        let (browser, key, body) = (browsers[place % 2].clone(), key.clone(), body.clone());
        tokio::spawn(async move { ask(&browser, &key, NAME, &body).await })
    });
    let mut texts = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        let answer = call.await.expect("an answer");
        match answer.status.as_u16() {
            200 => texts.push(answer.text()),
            status => assert_eq!((status, answer.code().as_str()), (409, "idempotency_in_progress")),
        }
    }
    for browser in &browsers {
        let mut last = None;
        until("the answer is kept", async || {
            let answer = ask(browser, &key, NAME, &body).await;
            let is_there = answer.status == 200;
            last = Some(answer);
            is_there
        })
        .await;
        texts.push(last.expect("an answer").text());
    }
    assert!(texts.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(fleet.booked(tenant).await.ran, 1);
}

#[tokio::test]
async fn what_is_kept_of_an_answer_cannot_be_read_in_redis() {
    let redis = RedisServer::start().await;
    let tollgate = Tollgate::start_with(Options { ..shared(redis.url()) }).await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let answer = ask(&tollgate.browser(), &key, NAME, &chat_body("Hello. [[sim: tokens=25]]")).await;
    let said = answer.json()["choices"][0]["message"]["content"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let word = said.split(' ').max_by_key(|word| word.len()).expect("words").to_owned();
    let names = redis.command(&["keys", "*:claim:*"]).await;
    assert_eq!(names.lines().count(), 1, "{names}");
    assert!(!names.contains(NAME));
    // The values are bytes, so Redis looks for the words itself.
    let look = "local bytes, found = 0, 0
        for _, value in ipairs(redis.call('hgetall', KEYS[1])) do
            bytes = bytes + #value
            for _, word in ipairs(ARGV) do
                if string.find(value, word, 1, true) then found = found + 1 end
            end
        end
        return {bytes, found}";
    let looked = redis.command(&["eval", look, "1", names.trim(), &word, NAME]).await;
    let (bytes, found) = looked.split_once('\n').expect("two figures");
    assert_eq!(found.trim(), "0");
    assert!(
        bytes.trim().parse::<usize>().is_ok_and(|bytes| bytes > said.len()),
        "{bytes}"
    );
}

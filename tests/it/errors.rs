//! What a caller is told when it asks for what it cannot have, and that every such request leaves one row.

use chrono::{Duration, Utc};
use control::keys::{Expiry, KeyDraft, KeyOwner};
use control::limits::NodeLimits;
use domain::limits::{Class, Dimension, Scope, Target};
use domain::periods::Period;
use domain::prices::Rates;
use domain::priority::Priority;
use http::Method;
use serde_json::json;
use test_support::http::Answer;
use test_support::tollgate::{MODEL, Tollgate, chat_body};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn assert_refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (status, code),
        "{}",
        answer.text()
    );
    let error = &answer.json()["error"];
    assert!(
        error["message"].as_str().is_some_and(|message| message.len() > 10),
        "{error}"
    );
    assert!(error["type"].is_string(), "{error}");
}

async fn post(tollgate: &Tollgate, key: &str, body: &str) -> Answer {
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    tollgate
        .browser()
        .send(Method::POST, "/v1/chat/completions", &headers, body.to_owned().into())
        .await
}

async fn rejection_codes(tollgate: &Tollgate) -> Vec<String> {
    tollgate.shipped().await;
    sqlx::query_scalar("select code from rejections order by refused_at, id")
        .fetch_all(&mut tollgate.sql().await)
        .await
        .expect("rows")
}

#[tokio::test]
async fn bodies_that_cannot_be_read_are_400_and_too_long_ones_413() {
    let tollgate = Tollgate::start().await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    assert_refused(&post(&tollgate, &key, "{not json").await, 400, "invalid_request");
    assert_refused(&post(&tollgate, &key, "[]").await, 400, "invalid_request");
    assert_refused(
        &post(&tollgate, &key, r#"{"model":"sim-model"}"#).await,
        400,
        "invalid_request",
    );
    let long = " ".repeat(gateway::body::BODY_BYTES_MAX + 1);
    assert_refused(&post(&tollgate, &key, &long).await, 413, "body_too_large");
    assert_eq!(
        rejection_codes(&tollgate).await,
        [
            "invalid_request",
            "invalid_request",
            "invalid_request",
            "body_too_large"
        ]
    );
}

#[tokio::test]
async fn fields_that_change_the_bill_are_refused_and_named() {
    let tollgate = Tollgate::start().await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let before = tollgate.simulator.stats().requests_received;
    for (field, value) in [
        ("service_tier", json!("priority")),
        ("models", json!(["dear-model"])),
        ("provider", json!({ "order": ["dear"] })),
        ("modalities", json!(["text", "audio"])),
        ("web_search_options", json!({})),
    ] {
        let mut body = chat_body("Hello.");
        body[field] = value;
        let answer = tollgate.browser().post_json("/v1/chat/completions", &key, &body).await;
        assert_refused(&answer, 400, "invalid_request");
        assert_eq!(answer.json()["error"]["param"], field);
    }
    assert_eq!(tollgate.simulator.stats().requests_received, before);
    let mut harmless = chat_body("Hello.");
    harmless["service_tier"] = json!("auto");
    assert_eq!(
        tollgate
            .browser()
            .post_json("/v1/chat/completions", &key, &harmless)
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_user_that_postgres_cannot_keep_is_refused_and_closes_no_budget() {
    let tollgate = Tollgate::start().await;
    let limits = NodeLimits {
        monthly_tokens: Some(1_000_000),
        ..NodeLimits::default()
    };
    let (tenant, key) = tollgate.tenant_with_key(limits.clone()).await;
    let every_user = Target::OfTenant(tenant, Class::EndUser);
    tollgate
        .control()
        .set_limits(&tollgate.actor(), &every_user, 0, &limits, Utc::now())
        .await
        .expect("set");
    tollgate.in_force().await;
    let ask = async |user: &str| {
        let mut body = chat_body("Hello.");
        body["user"] = json!(user);
        tollgate.browser().post_json("/v1/chat/completions", &key, &body).await
    };
    assert_refused(&ask("a\0b").await, 400, "invalid_request");
    // A name's own budget is read when it is first met.
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    while ask("somebody").await.status != 200 {
        assert!(tokio::time::Instant::now() < deadline, "the budget stays closed");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn one_budget_that_cannot_be_read_keeps_no_other_closed() {
    let tollgate = Tollgate::start().await;
    let (tenant, _) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let directory = tempfile::tempdir().expect("a directory");
    let (journal, _) = ledger::Journal::open(
        directory.path(),
        "another-gateway",
        ledger::JournalSettings::default(),
        Utc::now(),
    )
    .expect("a journal");
    let limits = limits::Limits::memory(limits::Settings::default());
    let budgets = gateway::budgets::Budgets::new(
        tollgate.running.store.clone(),
        limits.clone(),
        journal,
        std::sync::Arc::<test_support::clock::TestClock>::clone(&tollgate.clock),
        "another-gateway".to_owned(),
        0,
    );
    let of = |user: &str| limits::BudgetKey {
        scope: Scope::User(tenant, user.into()),
        limit_id: domain::ids::LimitId(uuid::Uuid::nil()),
        tenant: None,
        dimension: Dimension::BudgetTokens,
        period: Period::Month,
        model: None,
        priority: None,
        span: Period::Month.span(tollgate.clock.wall(), chrono_tz::UTC),
    };
    let names = ["a", "b", "wrong\0", "c", "d"];
    budgets.want(&names.map(of));
    let policy = tollgate.running.gateway.policy().expect("a policy");
    budgets.read_wanted(&policy).await.expect("the others are read");
    let mut open = Vec::new();
    for name in names {
        let now = gateway::clock::Clock::now(&*tollgate.clock);
        if limits.closed_budgets(&[of(name)], chrono_tz::UTC, now).await.is_empty() {
            open.push(name);
        }
    }
    assert_eq!(open, ["a", "b", "c", "d"]);
}

#[tokio::test]
async fn a_key_revoked_while_its_body_is_on_the_way_is_refused() {
    let tollgate = Tollgate::start().await;
    let (tenant, _) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let issued = tollgate.issue(tenant).await;
    tollgate.in_force().await;
    let body = chat_body("Hello.").to_string();
    let (first, second) = body.split_at(body.len() / 2);
    let mut connection = tokio::net::TcpStream::connect(tollgate.running.address)
        .await
        .expect("a connection");
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: test\r\nconnection: close\r\nauthorization: Bearer {}\r\n\
         content-length: {}\r\n\r\n",
        issued.text.reveal(),
        body.len()
    );
    connection
        .write_all(format!("{head}{first}").as_bytes())
        .await
        .expect("the first half is sent");
    while tollgate.running.gateway.in_flight() == 0 {
        tokio::task::yield_now().await;
    }
    tollgate
        .control()
        .revoke_key(&tollgate.actor(), issued.row.id, Utc::now())
        .await
        .expect("revoked");
    tollgate.in_force().await;
    connection
        .write_all(second.as_bytes())
        .await
        .expect("the second half is sent");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.expect("an answer");
    assert!(
        answer.starts_with("HTTP/1.1 403") && answer.contains("key_revoked"),
        "{answer}"
    );
    assert_eq!(rejection_codes(&tollgate).await, ["key_revoked"]);
}

#[tokio::test]
async fn a_wrong_key_is_401_and_repeats_nothing_of_it() {
    let tollgate = Tollgate::start().await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let mut mistyped = key.clone();
    mistyped.pop();
    let unknown = domain::key_text::KeyText::generate(&[9; domain::key_text::KEY_RANDOM_BYTES]);
    for wrong in [mistyped.as_str(), unknown.reveal(), "sk-proj-something"] {
        let answer = tollgate.chat(wrong, "Hello.").await;
        assert_refused(&answer, 401, "invalid_key");
        let shown = format!("{} {:?}", answer.text(), answer.headers);
        assert!(!shown.contains(&wrong[6..]), "{shown}");
    }
    let answer = tollgate
        .browser()
        .send(Method::POST, "/v1/chat/completions", &[], "{}".into())
        .await;
    assert_refused(&answer, 401, "invalid_key");
    assert!(
        rejection_codes(&tollgate).await.is_empty(),
        "nobody can be held to account for these"
    );
}

#[tokio::test]
async fn keys_that_ended_say_which_way_and_leave_a_row() {
    let tollgate = Tollgate::start().await;
    let (tenant, _) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let revoked = tollgate.issue(tenant).await;
    tollgate
        .control()
        .revoke_key(&tollgate.actor(), revoked.row.id, Utc::now())
        .await
        .expect("revoked");
    let draft = KeyDraft {
        name: "short".into(),
        priority: Priority::Default,
        allowed_models: Some(vec![MODEL.into()]),
        may_name_users: false,
        degrades: false,
        expiry: Expiry::At(Utc::now() + Duration::hours(1)),
    };
    let short = tollgate
        .control()
        .issue_key(&tollgate.actor(), tenant, KeyOwner::Service, &draft, Utc::now())
        .await
        .expect("issued");
    tollgate.in_force().await;
    assert_refused(
        &tollgate.chat(revoked.text.reveal(), "Hello.").await,
        403,
        "key_revoked",
    );
    assert_eq!(tollgate.chat(short.text.reveal(), "Hello.").await.status, 200);
    tollgate.clock.set(Utc::now() + Duration::hours(2));
    let expired = tollgate.chat(short.text.reveal(), "Hello.").await;
    assert_refused(&expired, 403, "key_expired");
    assert!(!expired.text().contains(&short.text.reveal()[20..]));

    let live = tollgate.issue(tenant).await;
    let row = tollgate
        .control()
        .tenant(&tollgate.actor(), tenant, Utc::now())
        .await
        .expect("a tenant")
        .row;
    tollgate
        .control()
        .suspend_tenant(&tollgate.actor(), tenant, row.version, Utc::now())
        .await
        .expect("suspended");
    tollgate.in_force().await;
    assert_refused(
        &tollgate.chat(live.text.reveal(), "Hello.").await,
        403,
        "tenant_suspended",
    );
    assert_eq!(rejection_codes(&tollgate).await.len(), 3);
}

#[tokio::test]
async fn models_are_not_found_not_allowed_or_unpriced() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let upstream = tollgate.upstream("second", &tollgate.simulator.base_url()).await;
    tollgate.model("other", upstream, Some(Rates::flat(1, 1))).await;
    tollgate.model("unpriced", upstream, None).await;
    tollgate.model("free", upstream, Some(Rates::default())).await;
    let draft = KeyDraft {
        name: "narrow".into(),
        priority: Priority::Default,
        allowed_models: Some(vec![MODEL.into()]),
        may_name_users: false,
        degrades: false,
        expiry: Expiry::Never,
    };
    let narrow = tollgate
        .control()
        .issue_key(&tollgate.actor(), tenant, KeyOwner::Service, &draft, Utc::now())
        .await
        .expect("issued");
    tollgate.in_force().await;
    let ask = async |key: &str, model: &str| {
        let mut body = chat_body("Hello.");
        body["model"] = json!(model);
        tollgate.browser().post_json("/v1/chat/completions", key, &body).await
    };
    assert_refused(&ask(&key, "nothing").await, 404, "model_not_found");
    assert_refused(&ask(narrow.text.reveal(), "other").await, 403, "model_not_allowed");
    assert_refused(&ask(&key, "unpriced").await, 404, "model_unpriced");
    assert_eq!(ask(&key, "free").await.status, 200);

    let bearer = format!("Bearer {}", narrow.text.reveal());
    let mut browser = tollgate.browser();
    let headers = [("authorization", bearer.as_str())];
    let listed = browser
        .send(Method::GET, "/v1/models", &headers, bytes::Bytes::new())
        .await
        .json();
    let names: Vec<&str> = listed["data"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|m| m["id"].as_str())
        .collect();
    assert_eq!(names, [MODEL]);
}

#[tokio::test]
async fn a_route_without_metering_is_closed() {
    let tollgate = Tollgate::start().await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let before = tollgate.simulator.stats().requests_received;
    for path in ["/v1/images/generations", "/v1/audio/speech", "/v1/chat/completions/x"] {
        let answer = tollgate
            .browser()
            .post_json(path, &key, &json!({ "model": MODEL }))
            .await;
        assert_refused(&answer, 404, "unmetered_route");
    }
    assert_eq!(tollgate.simulator.stats().requests_received, before);
    let long = format!("/v1/{}", "x".repeat(5_000));
    let answer = tollgate.browser().post_json(&long, &key, &json!({})).await;
    assert_refused(&answer, 404, "unmetered_route");
    assert!(answer.body.len() < 800, "{}", answer.text());
    assert_eq!(rejection_codes(&tollgate).await.len(), 4);
}

#[tokio::test]
async fn refusals_repeated_too_often_are_folded_and_still_counted() {
    let tollgate = Tollgate::start().await;
    let limits = NodeLimits {
        monthly_tokens: Some(0),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.tenant_with_key(limits).await;
    for _ in 0..60 {
        assert_eq!(tollgate.chat(&key, "Hello.").await.status, 429);
    }
    // The fold is written when its minute is over.
    tollgate.clock.set(tollgate.clock.wall() + Duration::minutes(2));
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        let (rows, refusals): (i64, i64) =
            sqlx::query_as("select count(*), coalesce(sum(refusal_count), 0)::bigint from rejections")
                .fetch_one(&mut tollgate.sql().await)
                .await
                .expect("counts");
        if refusals == 60 {
            // A minute that turned during the loop makes a second streak of twenty rows.
            assert!((21..=42).contains(&rows), "{rows} rows");
            break;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "{rows} rows stand for {refusals} refusals"
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let rolled: i64 = sqlx::query_scalar("select sum(refusals)::bigint from rejection_rollups")
        .fetch_one(&mut tollgate.sql().await)
        .await
        .expect("a sum");
    assert_eq!(rolled, 60);
}

//! Requests that find no room and become jobs: what their callers are told, that they run once and are answered, what the
//! ledger says of them, and that nobody else hears of them.

use bytes::Bytes;
use chrono::{Duration, Utc};
use control::keys::{Expiry, KeyDraft, KeyOwner};
use control::limits::NodeLimits;
use domain::ids::{JobId, TenantId};
use domain::jobs::JOBS_WAITING_MAX;
use domain::limits::{Dimension, Scope};
use domain::people::Role;
use domain::priority::Priority;
use gateway::JOBS_RUNNING_MAX;
use http::Method;
use serde_json::{Value, json};
use sqlx::{PgConnection, Row as _};
use test_support::booked::Booked;
use test_support::console::Window;
use test_support::fleet::until;
use test_support::http::{Answer, Browser};
use test_support::tollgate::{CHAT_PATH, Options, Tollgate, chat_body};

/// What a caller sends who would rather have an answer later than none.
const LATER: (&str, &str) = ("prefer", "respond-async");
/// Longer than a limit of requests a minute, with the jitter of its retry hint, keeps a job waiting; in milliseconds.
const MINUTE_AND_MORE_MS: u32 = 90_000;

/// Sends a body with this key and these headers besides.
async fn post(browser: &Browser, path: &str, key: &str, more: &[(&str, &str)], body: &Value) -> Answer {
    send(browser, Method::POST, path, key, more, body.to_string().into()).await
}

async fn send(browser: &Browser, method: Method, path: &str, key: &str, more: &[(&str, &str)], body: Bytes) -> Answer {
    let authorization = format!("Bearer {key}");
    let mut headers = vec![
        ("authorization", authorization.as_str()),
        ("content-type", "application/json"),
    ];
    headers.extend_from_slice(more);
    browser.clone().send(method, path, &headers, body).await
}

async fn get(browser: &Browser, path: &str, key: &str) -> Answer {
    send(browser, Method::GET, path, key, &[], Bytes::new()).await
}

/// What is told of a job.
async fn job(browser: &Browser, key: &str, id: &str) -> Value {
    let answer = get(browser, &format!("/v1/jobs/{id}"), key).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Waits until a job stands there.
async fn stands(browser: &Browser, key: &str, id: &str, status: &str) -> Value {
    let mut seen = Value::Null;
    until(&format!("the job is {status}"), async || {
        seen = job(browser, key, id).await;
        seen["status"] == status
    })
    .await;
    seen
}

fn id_of(accepted: &Answer) -> String {
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    let id = accepted.json()["id"].as_str().expect("an id").to_owned();
    assert_eq!(accepted.header("location"), format!("/v1/jobs/{id}"));
    id
}

fn requests_a_minute(count: u64) -> NodeLimits {
    NodeLimits {
        requests_per_minute: Some(count),
        ..NodeLimits::default()
    }
}

/// A tenant that has just used its one request of the minute, with its key.
async fn busy_tenant(tollgate: &Tollgate, name: &str) -> (TenantId, String) {
    let (tenant, key) = tollgate.named_tenant_with_key(name, requests_a_minute(1)).await;
    assert_eq!(tollgate.chat(&key, "The first.").await.status, 200);
    (tenant, key)
}

/// Makes a job of a request with this text; it is due in a minute.
async fn make_job(browser: &Browser, key: &str, text: &str) -> String {
    id_of(&post(browser, CHAT_PATH, key, &[LATER], &chat_body(text)).await)
}

/// Of one job, the endings of its settlements and the codes of its rejections, in the order of time.
async fn rows_of(sql: &mut PgConnection, id: &str) -> Vec<String> {
    let id: JobId = id.parse().expect("an id");
    sqlx::query_scalar(
        "select word from (
             select admitted_at as at, outcome as word from settlements where job_id = $1
             union all
             select refused_at, code from rejections where job_id = $1) as rows
         order by at",
    )
    .bind(id.0)
    .fetch_all(sql)
    .await
    .expect("rows")
}

/// Makes every claim lapse, as if its gateway had been silent for long.
async fn lapse(sql: &mut PgConnection) {
    let done =
        sqlx::query("update jobs set heartbeat_at = heartbeat_at - interval '1 minute' where status = 'running'")
            .execute(sql)
            .await
            .expect("claims lapse");
    assert_eq!(done.rows_affected(), 1);
}

/// Lets so much time pass that jobs run, and so many of them be parked at the provider.
async fn park_jobs(tollgate: &Tollgate, ms: u32, count: u64) {
    tollgate.simulator.hold();
    tollgate.clock.skip(ms);
    tollgate.simulator.wait_parked(count).await;
}

#[tokio::test]
async fn a_request_without_room_becomes_a_job_and_is_answered_later() {
    let tollgate = Tollgate::start().await;
    let limits = NodeLimits {
        monthly_tokens: Some(1_000_000),
        ..requests_a_minute(1)
    };
    let (tenant, key) = tollgate.tenant_with_key(limits).await;
    assert_eq!(tollgate.chat(&key, "The first.").await.status, 200);
    let browser = tollgate.browser();

    let refused = post(&browser, CHAT_PATH, &key, &[], &chat_body("Why?")).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (429, "rate_limit_exceeded")
    );
    let headers = [("prefer", "respond-async, wait=5"), ("x-tollgate-tags", "team=search")];
    let accepted = post(&browser, CHAT_PATH, &key, &headers, &chat_body("Why?")).await;
    let id = id_of(&accepted);
    assert_eq!(accepted.header("preference-applied"), "respond-async");
    assert!(!accepted.header("retry-after").is_empty());
    let told = accepted.json();
    assert_eq!((&told["object"], &told["status"]), (&json!("job"), &json!("waiting")));
    assert_eq!(told["error"]["code"], "rate_limit_exceeded");
    assert_eq!(told["response"], Value::Null);
    assert_eq!(job(&browser, &key, &id).await, told);

    tollgate.clock.skip(MINUTE_AND_MORE_MS);
    let done = stands(&browser, &key, &id, "completed").await;
    assert_eq!((&done["attempts"], &done["error"]), (&json!(1), &Value::Null));
    assert!(done["started_at"].is_i64() && done["finished_at"].is_i64());
    assert_eq!(done["response"]["status_code"], 200);

    // The provider answers the same question the same way.
    tollgate.clock.skip(MINUTE_AND_MORE_MS);
    let direct = tollgate.chat(&key, "Why?").await.json();
    assert_eq!(done["response"]["body"]["choices"], direct["choices"]);
    assert_eq!(done["response"]["body"]["usage"], direct["usage"]);

    // The request that became a job left no row of its own, its run one like any other.
    tollgate.shipped().await;
    let mut sql = tollgate.sql().await;
    assert_eq!(rows_of(&mut sql, &id).await, ["completed"]);
    let row = sqlx::query("select priority, tags, status from settlements where job_id is not null")
        .fetch_one(&mut sql)
        .await
        .expect("a row");
    assert_eq!(row.get::<String, _>("priority"), "low");
    assert_eq!(row.get::<Value, _>("tags"), json!({"team": "search"}));
    assert_eq!(row.get::<i16, _>("status"), 200);
    let booked = Booked::of(tenant, &mut sql).await;
    assert_eq!((booked.ran, booked.refused), (3, 1));

    // Nothing is held any more, and the budget was charged once for each.
    assert_eq!(tollgate.running.gateway.open_holds(), 0);
    let scopes = [Scope::Tenant(tenant)];
    let readings = tollgate.running.gateway.readings(&scopes).await.expect("readings");
    let budget = readings
        .limits
        .iter()
        .find(|live| live.reading.dimension == Dimension::BudgetTokens)
        .expect("the budget");
    assert_eq!(budget.reading.used, booked.tokens);
}

#[tokio::test]
async fn jobs_are_listed_and_called_off_by_their_tenant_alone() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = busy_tenant(&tollgate, "One").await;
    let (_, stranger) = busy_tenant(&tollgate, "Another").await;
    let browser = tollgate.browser();
    let mut ids = Vec::new();
    for text in ["a", "b", "c"] {
        ids.push(make_job(&browser, &key, text).await);
    }
    ids.reverse();
    let listed = |answer: &Answer| -> Vec<String> {
        let list = answer.json();
        let jobs = list["data"].as_array().expect("a list");
        jobs.iter()
            .map(|job| job["id"].as_str().expect("an id").to_owned())
            .collect()
    };

    // The newest first, in pages.
    let all = get(&browser, "/v1/jobs", &key).await;
    assert_eq!((listed(&all), &all.json()["has_more"]), (ids.clone(), &json!(false)));
    let first = get(&browser, "/v1/jobs?limit=2", &key).await;
    assert_eq!(
        (listed(&first), &first.json()["has_more"]),
        (ids[..2].to_vec(), &json!(true))
    );
    let rest = get(&browser, &format!("/v1/jobs?limit=2&after={}", ids[1]), &key).await;
    assert_eq!(
        (listed(&rest), &rest.json()["has_more"]),
        (ids[2..].to_vec(), &json!(false))
    );
    assert_eq!(
        listed(&get(&browser, "/v1/jobs?status=running", &key).await),
        Vec::<String>::new()
    );
    for wrong in ["limit=0", "limit=101", "after=7", "status=lost"] {
        let answer = get(&browser, &format!("/v1/jobs?{wrong}"), &key).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (400, "invalid_request"),
            "{wrong}"
        );
    }

    // To another tenant there is no such job, in the same words as for one that never was.
    let id = &ids[0];
    let unknown = "/v1/jobs/019a0000-0000-7000-8000-000000000000";
    let nothing = get(&browser, unknown, &stranger).await;
    assert_eq!(
        (nothing.status.as_u16(), nothing.code().as_str()),
        (404, "job_not_found")
    );
    for path in [format!("/v1/jobs/{id}"), "/v1/jobs/no-id".to_owned()] {
        let answer = get(&browser, &path, &stranger).await;
        assert_eq!(
            (answer.status, answer.text()),
            (nothing.status, nothing.text()),
            "{path}"
        );
    }
    let cancel = format!("/v1/jobs/{id}/cancel");
    let answer = post(&browser, &cancel, &stranger, &[], &json!({})).await;
    assert_eq!((answer.status, answer.text()), (nothing.status, nothing.text()));
    assert_eq!(
        listed(&get(&browser, "/v1/jobs", &stranger).await),
        Vec::<String>::new()
    );
    assert_eq!(get(&browser, "/v1/jobs", "sk-tg-nobody").await.status, 401);

    // Called off, it stays so, and leaves one row that used nothing.
    let answer = post(&browser, &cancel, &key, &[], &json!({})).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.json()["status"]),
        (200, &json!("cancelled"))
    );
    let again = post(&browser, &cancel, &key, &[], &json!({})).await;
    assert_eq!(again.json(), answer.json());
    let mut sql = tollgate.sql().await;
    until("it is in the ledger", async || !rows_of(&mut sql, id).await.is_empty()).await;
    tollgate.clock.skip(MINUTE_AND_MORE_MS);
    until("one of the others has run", async || {
        listed(&get(&browser, "/v1/jobs?status=completed", &key).await).len() == 1
    })
    .await;
    tollgate.shipped().await;
    assert_eq!(rows_of(&mut sql, id).await, ["client_closed"]);
    let kept: Option<Vec<u8>> = sqlx::query_scalar("select request from jobs where status = 'cancelled'")
        .fetch_one(&mut sql)
        .await
        .expect("the job");
    assert_eq!(kept, None);
    assert_eq!(Booked::of(tenant, &mut sql).await.refused, 0);
}

#[tokio::test]
async fn a_job_that_runs_is_called_off_with_its_run() {
    let tollgate = Tollgate::start().await;
    let (_, key) = busy_tenant(&tollgate, "Tenant").await;
    let browser = tollgate.browser();
    let id = make_job(&browser, &key, "Why?").await;
    park_jobs(&tollgate, MINUTE_AND_MORE_MS, 1).await;
    assert_eq!(job(&browser, &key, &id).await["status"], "running");
    assert_eq!(tollgate.running.gateway.status().jobs_running, 1);

    let cancelled = post(&browser, &format!("/v1/jobs/{id}/cancel"), &key, &[], &json!({})).await;
    assert_eq!(cancelled.json()["status"], "cancelled");
    until("the run has ended", async || {
        tollgate.running.gateway.status().jobs_running == 0
    })
    .await;
    tollgate.simulator.release_all();
    tollgate.shipped().await;
    let mut sql = tollgate.sql().await;
    assert_eq!(rows_of(&mut sql, &id).await, ["client_closed"]);
    let is_left: bool = sqlx::query_scalar("select claim_token is null and is_booked and response is null from jobs")
        .fetch_one(&mut sql)
        .await
        .expect("the job");
    assert!(is_left);
    assert_eq!(job(&browser, &key, &id).await["status"], "cancelled");
}

#[tokio::test]
async fn what_jobs_ask_and_are_answered_is_sealed() {
    let tollgate = Tollgate::start().await;
    let (_, key) = busy_tenant(&tollgate, "Tenant").await;
    let browser = tollgate.browser();
    let prompt = "Xylophones in the moonlight";
    let id = make_job(&browser, &key, prompt).await;
    let mut sql = tollgate.sql().await;
    let before = everything(&mut sql).await;
    tollgate.clock.skip(MINUTE_AND_MORE_MS);
    let done = stands(&browser, &key, &id, "completed").await;
    let answer = done["response"]["body"]["choices"][0]["message"]["content"]
        .as_str()
        .expect("a text");
    assert!(answer.len() > 8, "a text that can be looked for: {answer}");
    tollgate.shipped().await;
    let after = everything(&mut sql).await;
    // Only so does the search mean anything.
    assert!(before.contains(&id) && after.contains(&id));
    for secret in [prompt, answer, &key] {
        for text in [&before, &after] {
            assert!(!text.contains(secret), "{secret} is in the database");
            assert!(!text.contains(&hex(secret)), "{secret} is in the database");
        }
    }
    let lengths = sqlx::query("select request is null as is_gone, length(response) as length from jobs")
        .fetch_one(&mut sql)
        .await
        .expect("the job");
    assert!(lengths.get::<bool, _>("is_gone") && lengths.get::<i32, _>("length") > 0);
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// Every column of every table, as text.
async fn everything(sql: &mut PgConnection) -> String {
    let tables: Vec<String> = sqlx::query_scalar(
        "select table_name from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE'",
    )
    .fetch_all(&mut *sql)
    .await
    .expect("tables");
    let mut all = String::new();
    for table in tables {
        let query = format!("select coalesce(string_agg(to_jsonb(\"{table}\")::text, '|'), '') from \"{table}\"");
        let rows: String = sqlx::query_scalar(sqlx::AssertSqlSafe(query))
            .fetch_one(&mut *sql)
            .await
            .expect("rows");
        all.push_str(&rows);
    }
    all
}

#[tokio::test]
async fn the_jobs_of_one_tenant_do_not_starve_anothers() {
    let tollgate = Tollgate::start().await;
    let room = JOBS_RUNNING_MAX as u64;
    let (_, many) = tollgate.named_tenant_with_key("Many", requests_a_minute(room)).await;
    let (_, one) = busy_tenant(&tollgate, "One").await;
    for _ in 0..room {
        assert_eq!(tollgate.chat(&many, "The first.").await.status, 200);
    }
    let browser = tollgate.browser();
    for number in 0..3 * JOBS_RUNNING_MAX {
        make_job(&browser, &many, &format!("Number {number}")).await;
    }
    let last = make_job(&browser, &one, "The last of all").await;
    park_jobs(&tollgate, 2 * MINUTE_AND_MORE_MS, room).await;
    assert_eq!(job(&browser, &one, &last).await["status"], "running");
    tollgate.simulator.release_all();
    stands(&browser, &one, &last, "completed").await;
}

#[tokio::test]
async fn a_gateway_that_is_killed_leaves_its_job_to_another() {
    let tollgate = Tollgate::start().await;
    // Only the mortal one works.
    tollgate.running.gateway.stop_jobs();
    let (_, key) = busy_tenant(&tollgate, "Tenant").await;
    let browser = tollgate.browser();
    let id = make_job(&browser, &key, "Why?").await;
    let mortal = tollgate.mortal("mortal").await;
    park_jobs(&tollgate, MINUTE_AND_MORE_MS, 1).await;
    mortal.kill();
    assert_eq!(job(&browser, &key, &id).await["status"], "running");

    let heir = tollgate.another("heir").await;
    let mut sql = tollgate.sql().await;
    lapse(&mut sql).await;
    tollgate.simulator.release_all();
    let done = stands(&browser, &key, &id, "completed").await;
    assert_eq!(done["attempts"], 2);
    assert_eq!(done["response"]["status_code"], 200);
    heir.shipped().await;
    assert_eq!(rows_of(&mut sql, &id).await, ["completed"]);
    heir.running.stop().await;
}

#[tokio::test]
async fn the_late_result_of_a_lost_claim_is_not_taken() {
    let tollgate = Tollgate::start().await;
    let (_, key) = busy_tenant(&tollgate, "Tenant").await;
    let browser = tollgate.browser();
    let id = make_job(&browser, &key, "Why?").await;
    park_jobs(&tollgate, MINUTE_AND_MORE_MS, 1).await;
    let mut sql = tollgate.sql().await;
    sqlx::query("update jobs set claim_token = gen_random_uuid(), claim_instance = 'another', heartbeat_at = now()")
        .execute(&mut sql)
        .await
        .expect("another takes it over");
    tollgate.simulator.release_all();
    until("the run has ended", async || {
        tollgate.running.gateway.status().jobs_running == 0
    })
    .await;
    let seen = job(&browser, &key, &id).await;
    assert_eq!((&seen["status"], &seen["response"]), (&json!("running"), &Value::Null));

    // The other one goes silent, too. The job is run again, and has one result.
    lapse(&mut sql).await;
    tollgate.clock.skip(MINUTE_AND_MORE_MS);
    let done = stands(&browser, &key, &id, "completed").await;
    assert_eq!(done["response"]["status_code"], 200);
}

#[tokio::test]
async fn jobs_survive_a_restart_of_every_gateway() {
    let tollgate = Tollgate::start().await;
    let limits = requests_a_minute(2);
    let (_, key) = tollgate.tenant_with_key(limits).await;
    for _ in 0..2 {
        assert_eq!(tollgate.chat(&key, "The first.").await.status, 200);
    }
    let browser = tollgate.browser();
    let id = make_job(&browser, &key, "Why?").await;
    // One waits for room when everything stops.
    let tollgate = tollgate.restart().await;
    park_jobs(&tollgate, MINUTE_AND_MORE_MS, 1).await;
    // And it is at the provider when everything stops again: for longer than the grace.
    let tollgate = tollgate.restart().await;
    tollgate.simulator.release_all();
    tollgate.clock.skip(MINUTE_AND_MORE_MS);
    let browser = tollgate.browser();
    let done = stands(&browser, &key, &id, "completed").await;
    assert_eq!(
        (&done["attempts"], &done["response"]["status_code"]),
        (&json!(1), &json!(200))
    );
    tollgate.shipped().await;
    let mut sql = tollgate.sql().await;
    assert_eq!(rows_of(&mut sql, &id).await, ["gateway_error", "completed"]);
}

#[tokio::test]
async fn only_what_goes_by_itself_becomes_a_job() {
    let tollgate = Tollgate::start().await;
    let browser = tollgate.browser();
    let spent = NodeLimits {
        monthly_tokens: Some(530),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.named_tenant_with_key("Spent", spent).await;
    let mut body = chat_body("The first. [[sim: tokens=100]]");
    assert_eq!(post(&browser, CHAT_PATH, &key, &[LATER], &body).await.status, 200);
    body["messages"][0]["content"] = "Why?".into();
    let refused = post(&browser, CHAT_PATH, &key, &[LATER], &body).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (429, "budget_exhausted")
    );

    let small = NodeLimits {
        request_output_tokens: Some(10),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.named_tenant_with_key("Small", small).await;
    let refused = post(&browser, CHAT_PATH, &key, &[LATER], &chat_body("Why?")).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (413, "request_too_large")
    );

    // Nobody is there to be streamed to.
    let (_, key) = busy_tenant(&tollgate, "Tenant").await;
    let mut streamed = chat_body("Why?");
    streamed["stream"] = json!(true);
    let refused = post(&browser, CHAT_PATH, &key, &[LATER], &streamed).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (429, "rate_limit_exceeded")
    );
    assert_eq!(refused.header("preference-applied"), "");

    // Nor does whoever did not agree get one.
    let refused = post(&browser, CHAT_PATH, &key, &[("prefer", "wait=1")], &chat_body("Why?")).await;
    assert_eq!(refused.status, 429);
    let mut sql = tollgate.sql().await;
    let jobs: i64 = sqlx::query_scalar("select count(*) from jobs")
        .fetch_one(&mut sql)
        .await
        .expect("a count");
    assert_eq!(jobs, 0);
}

#[tokio::test]
async fn a_key_may_have_its_requests_answered_with_jobs() {
    let tollgate = Tollgate::start().await;
    let tenant = tollgate.tenant("Tenant", requests_a_minute(1)).await;
    let draft = KeyDraft {
        name: "batch".into(),
        priority: Priority::Default,
        allowed_models: None,
        may_name_users: false,
        degrades: true,
        expiry: Expiry::Never,
    };
    let issued = tollgate
        .control()
        .issue_key(&tollgate.actor(), tenant, KeyOwner::Service, &draft, Utc::now())
        .await
        .expect("a key");
    tollgate.in_force().await;
    let key = issued.text.reveal();
    let browser = tollgate.browser();
    assert_eq!(tollgate.chat(key, "The first.").await.status, 200);
    let accepted = post(&browser, CHAT_PATH, key, &[], &chat_body("Why?")).await;
    let id = id_of(&accepted);
    assert_eq!(accepted.header("preference-applied"), "");
    tollgate.clock.skip(MINUTE_AND_MORE_MS);
    stands(&browser, key, &id, "completed").await;
}

#[tokio::test]
async fn a_tenant_has_so_many_jobs_waiting_and_no_more() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = busy_tenant(&tollgate, "Tenant").await;
    let (_, other) = busy_tenant(&tollgate, "Another").await;
    let mut sql = tollgate.sql().await;
    sqlx::query(
        "insert into jobs (id, tenant_id, key_id, model, dialect, endpoint, tags, status, created_at, expires_at, not_before)
         select gen_random_uuid(), $1, gen_random_uuid(), 'm', 'openai', 'chat/completions', '{}', 'waiting', now(),
                now() + interval '1 day', now() + interval '1 hour'
         from generate_series(1, $2)",
    )
    .bind(tenant.0)
    .bind(JOBS_WAITING_MAX - 1)
    .execute(&mut sql)
    .await
    .expect("jobs");
    let browser = tollgate.browser();
    let id = make_job(&browser, &key, "The last that may wait").await;
    let refused = post(&browser, CHAT_PATH, &key, &[LATER], &chat_body("One more")).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (429, "rate_limit_exceeded")
    );
    make_job(&browser, &other, "Another tenant's").await;
    post(&browser, &format!("/v1/jobs/{id}/cancel"), &key, &[], &json!({})).await;
    make_job(&browser, &key, "There is a place again").await;
}

#[tokio::test]
async fn without_postgres_the_refusal_stands() {
    let tollgate = Tollgate::start_with(Options {
        has_wire: true,
        ..Options::default()
    })
    .await;
    let (_, key) = busy_tenant(&tollgate, "Tenant").await;
    tollgate.wire().silence();
    let refused = post(&tollgate.browser(), CHAT_PATH, &key, &[LATER], &chat_body("Why?")).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (429, "rate_limit_exceeded")
    );
    assert_eq!(get(&tollgate.browser(), "/v1/jobs", &key).await.status, 503);
    tollgate.wire().mend();
}

#[tokio::test]
async fn the_providers_refusal_is_the_answer_and_its_failure_another_try() {
    let tollgate = Tollgate::start().await;
    let (_, key) = busy_tenant(&tollgate, "Tenant").await;
    let browser = tollgate.browser();
    let id = make_job(&browser, &key, "Why? [[sim: status=422]]").await;
    tollgate.clock.skip(MINUTE_AND_MORE_MS);
    let failed = stands(&browser, &key, &id, "failed").await;
    assert_eq!(
        (&failed["attempts"], &failed["response"]["status_code"]),
        (&json!(1), &json!(422))
    );
    assert!(failed["response"]["body"]["error"]["message"].is_string());
    assert!(failed["error"]["code"].is_string());

    let id = make_job(&browser, &key, "Why?").await;
    // More than one run tries, and less than makes the upstream be left alone.
    tollgate.simulator.script(["status=500"; 4]).expect("orders");
    let mut done = Value::Null;
    until("it is answered", async || {
        // Through all its waits, one after the other.
        tollgate.clock.skip(1_000);
        done = job(&browser, &key, &id).await;
        done["status"] == "completed"
    })
    .await;
    tollgate.shipped().await;
    let mut sql = tollgate.sql().await;
    let rows = rows_of(&mut sql, &id).await;
    assert_eq!(rows.last().map(String::as_str), Some("completed"));
    assert!(rows.len() > 1, "it was tried again as a request of its own: {rows:?}");
    assert_eq!(done["attempts"], json!(rows.len()));
}

#[tokio::test]
async fn a_job_that_waits_too_long_is_expired_and_its_traces_are_deleted_on_time() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = busy_tenant(&tollgate, "Tenant").await;
    let browser = tollgate.browser();
    let answered = make_job(&browser, &key, "Why?").await;
    tollgate.clock.skip(MINUTE_AND_MORE_MS);
    stands(&browser, &key, &answered, "completed").await;
    let waiting = make_job(&browser, &key, "When?").await;
    let mut sql = tollgate.sql().await;
    sqlx::query("update jobs set not_before = expires_at where status = 'waiting'")
        .execute(&mut sql)
        .await
        .expect("there is no room for a day");

    let control = tollgate.control();
    let start = tollgate.clock.wall();
    assert_eq!(
        control
            .delete_expired(start + Duration::hours(23))
            .await
            .expect("nothing"),
        0
    );
    tollgate.clock.set(start + Duration::hours(25));
    let expired = stands(&browser, &key, &waiting, "expired").await;
    assert_eq!(expired["error"]["code"], "queue_timeout");
    until("it is in the ledger", async || {
        !rows_of(&mut sql, &waiting).await.is_empty()
    })
    .await;
    assert_eq!(rows_of(&mut sql, &waiting).await, ["queue_timeout"]);
    assert_eq!(Booked::of(tenant, &mut sql).await.refused, 1);

    // The answer goes after a day, the job after a week.
    while control.delete_expired(tollgate.clock.wall()).await.expect("answers") > 0 {}
    let seen = job(&browser, &key, &answered).await;
    assert_eq!(
        (&seen["status"], &seen["response"]),
        (&json!("completed"), &Value::Null)
    );
    let kept: i64 = sqlx::query_scalar("select count(*) from jobs where request is not null or response is not null")
        .fetch_one(&mut sql)
        .await
        .expect("a count");
    assert_eq!(kept, 0);
    tollgate.clock.set(start + Duration::days(9));
    while control.delete_expired(tollgate.clock.wall()).await.expect("jobs") > 0 {}
    let gone = get(&browser, &format!("/v1/jobs/{answered}"), &key).await;
    assert_eq!(gone.status, 404);
}

#[tokio::test]
async fn a_job_whose_key_is_revoked_fails() {
    let tollgate = Tollgate::start().await;
    let tenant = tollgate.tenant("Tenant", requests_a_minute(1)).await;
    let (doomed, other) = (tollgate.issue(tenant).await, tollgate.issue(tenant).await);
    tollgate.in_force().await;
    let (key, other) = (doomed.text.reveal(), other.text.reveal());
    assert_eq!(tollgate.chat(key, "The first.").await.status, 200);
    let browser = tollgate.browser();
    let id = make_job(&browser, key, "Why?").await;
    tollgate
        .control()
        .revoke_key(&tollgate.actor(), doomed.row.id, tollgate.clock.wall())
        .await
        .expect("it is revoked");
    tollgate.in_force().await;
    tollgate.clock.skip(MINUTE_AND_MORE_MS);
    let failed = stands(&browser, other, &id, "failed").await;
    assert_eq!(
        (&failed["error"]["code"], &failed["attempts"]),
        (&json!("key_revoked"), &json!(0))
    );
    assert_eq!(failed["started_at"], Value::Null);
    tollgate.shipped().await;
    let mut sql = tollgate.sql().await;
    assert_eq!(rows_of(&mut sql, &id).await, ["key_revoked"]);
}

#[tokio::test]
async fn a_job_does_not_begin_while_there_is_no_room() {
    let tollgate = Tollgate::start().await;
    let limits = NodeLimits {
        concurrency: Some(1),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.tenant_with_key(limits).await;
    tollgate.simulator.hold();
    let browser = tollgate.browser();
    let first = tokio::spawn({
        let (browser, key) = (browser.clone(), key.clone());
        async move { post(&browser, CHAT_PATH, &key, &[], &chat_body("The first.")).await }
    });
    tollgate.simulator.wait_parked(1).await;
    let id = make_job(&browser, &key, "Why?").await;
    let mut sql = tollgate.sql().await;
    // The clock stays as it is: the first one's place would be given away when its lease ends.
    until("it was tried in vain", async || {
        let denials: i32 = sqlx::query_scalar("select denials from jobs")
            .fetch_one(&mut sql)
            .await
            .expect("the job");
        denials >= 2
    })
    .await;
    let waiting = job(&browser, &key, &id).await;
    assert_eq!(
        (&waiting["attempts"], &waiting["started_at"]),
        (&json!(0), &Value::Null)
    );
    assert_eq!(waiting["error"]["code"], "concurrency_limit_exceeded");
    tollgate.simulator.release_all();
    assert_eq!(first.await.expect("an answer").status, 200);
    until("it is answered", async || {
        tollgate.clock.skip(1_000);
        job(&browser, &key, &id).await["status"] == "completed"
    })
    .await;
    // What was denied left no row: nobody was refused.
    tollgate.shipped().await;
    assert_eq!(rows_of(&mut sql, &id).await, ["completed"]);
}

#[tokio::test]
async fn the_console_shows_jobs_to_whom_they_concern() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = busy_tenant(&tollgate, "Harbor").await;
    let (other, stranger) = busy_tenant(&tollgate, "Quarry").await;
    let browser = tollgate.browser();
    let id = make_job(&browser, &key, "A question nobody sees").await;
    make_job(&browser, &stranger, "Another").await;

    let mut operator = Window::operator(&tollgate).await;
    let page = operator.visit("/queue").await;
    let table = page.table(&["Accepted", "Status", "Tenant"]);
    assert_eq!(table.column("Tenant"), ["Quarry", "Harbor"]);
    assert_eq!(table.column("Status"), ["waiting", "waiting"]);
    assert!(table.column("Last error")[0].contains("rate limit exceeded"));
    assert!(!page.content().contains("A question nobody sees"));
    assert!(page.find_table(&["Gateway", "Waiting"]).is_some());
    let none = operator.visit("/queue?status=failed").await;
    assert!(none.content().contains("No job stands here."), "{}", none.content());

    let mut auditor = Window::person(&tollgate, Role::Auditor, None).await;
    let page = auditor.visit("/queue").await;
    assert_eq!(page.table(&["Accepted", "Tenant"]).column("Tenant").len(), 2);
    assert!(page.forms("/console/jobs/cancel").is_empty());
    let mut manager = Window::person(&tollgate, Role::Manager, Some(other)).await;
    let page = manager.visit("/queue").await;
    assert_eq!(page.table(&["Accepted", "Status"]).column("Status").len(), 1);
    assert!(page.find_table(&["Gateway", "Waiting"]).is_none());
    // The keys are the tenant's own, not the member's.
    let mut member = Window::person(&tollgate, Role::Member, Some(tenant)).await;
    assert!(member.visit("/queue").await.content().contains("There are no jobs."));

    let forged = [("id", id.as_str())];
    for window in [&mut auditor, &mut manager, &mut member] {
        let answer = window.browser.post_form("/console/jobs/cancel", &forged).await;
        assert!([403, 404].contains(&answer.status.as_u16()), "{}", answer.status);
    }
    assert_eq!(job(&browser, &key, &id).await["status"], "waiting");
    let page = operator.visit("/queue?status=waiting").await;
    let form = page
        .forms("/console/jobs/cancel")
        .into_iter()
        .find(|form| form.value("id") == id)
        .expect("its button");
    let page = operator.send(&form).await;
    assert_eq!((page.path(), page.notices()), ("/queue", vec!["Cancelled.".to_owned()]));
    assert_eq!(job(&browser, &key, &id).await["status"], "cancelled");
    let mut sql = tollgate.sql().await;
    let audited: i64 =
        sqlx::query_scalar("select count(*) from audit_log where action = 'job.cancel' and subject = $1")
            .bind(format!("job:{id}"))
            .fetch_one(&mut sql)
            .await
            .expect("a count");
    assert_eq!(audited, 1);
    until("it is in the ledger", async || !rows_of(&mut sql, &id).await.is_empty()).await;
}

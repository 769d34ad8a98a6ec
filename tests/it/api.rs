//! The JSON API: who is let in, what it says beside the console's pages and files, and what it books.

mod bootstrap;
mod nouns;
mod schema;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use chrono::{DateTime, Duration, Utc};
use control::ControlError;
use control::limits::NodeLimits;
use control::management_tokens::ManagementTokenDraft;
use domain::ids::TenantId;
use domain::management_tokens::Permission;
use domain::money::Nanos;
use domain::people::Role;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use server::wiring::Settings;
use test_support::clock::zone_at_noon;
use test_support::console::Window;
use test_support::http::{Answer, Browser};
use test_support::tollgate::{Options, Tollgate, chat_body};
use tokio::sync::OnceCell;

const EVERYTHING: [Permission; 23] = Permission::ALL;
const READ: [Permission; 2] = [Permission::ReportsRead, Permission::LedgerRead];
/// Routes that a token is needed for, all of them reading.
const READING: [&str; 4] = [
    "/api/v1/reports/monthly",
    "/api/v1/settlements",
    "/api/v1/rejections",
    "/api/v1/adjustments",
];

async fn start() -> Tollgate {
    let options = Options {
        time_zone: Some(zone_at_noon()),
        ..Options::default()
    };
    Tollgate::start_with(options).await
}

/// A token that was issued at this time, for a day.
async fn token_of(tollgate: &Tollgate, tenant: Option<TenantId>, may: &[Permission], at: DateTime<Utc>) -> String {
    let draft = ManagementTokenDraft {
        name: "Finance".to_owned(),
        tenant_id: tenant,
        permissions: may.to_vec(),
        lifetime_days: 1,
    };
    let issued = tollgate
        .control()
        .issue_management_token(&tollgate.actor(), &draft, at)
        .await;
    issued.expect("a token").text.reveal().to_owned()
}

async fn token(tollgate: &Tollgate, tenant: Option<TenantId>, may: &[Permission]) -> String {
    token_of(tollgate, tenant, may, Utc::now()).await
}

/// A call with this token.
async fn call(tollgate: &Tollgate, token: &str, path: &str) -> Answer {
    send(tollgate, token, Method::GET, path, &[], Bytes::new()).await
}

/// The description: the same of every gateway.
async fn described(browser: &mut Browser) -> &'static Value {
    static DOCUMENT: OnceCell<Value> = OnceCell::const_new();
    DOCUMENT
        .get_or_init(async || browser.get("/api/openapi.json").await.json())
        .await
}

/// The same of any kind. What is answered has to be what the description says.
async fn send(
    tollgate: &Tollgate,
    token: &str,
    method: Method,
    path: &str,
    more: &[(&str, &str)],
    body: Bytes,
) -> Answer {
    let bearer = format!("Bearer {token}");
    let mut headers = vec![("authorization", bearer.as_str()), ("content-type", "application/json")];
    headers.extend(more);
    let mut browser = tollgate.browser();
    let answer = browser.send(method.clone(), path, &headers, body).await;
    let is_known = ![StatusCode::METHOD_NOT_ALLOWED, StatusCode::UNAUTHORIZED].contains(&answer.status)
        && path.starts_with("/api/v1/")
        && path != "/api/v1/nothing";
    if is_known {
        schema::assert_described(described(&mut browser).await, &method, path, &answer);
    }
    answer
}

/// The JSON of a call that is answered.
async fn read(tollgate: &Tollgate, token: &str, path: &str) -> Value {
    let answer = call(tollgate, token, path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    assert_eq!(answer.header("content-type"), "application/json", "{path}");
    assert_eq!(answer.header("cache-control"), "no-store", "{path}");
    answer.json()
}

/// Books an adjustment under this idempotency key.
async fn book(tollgate: &Tollgate, token: &str, key: &str, body: &Value) -> Answer {
    let key = [("idempotency-key", key)];
    let body = body.to_string().into();
    send(tollgate, token, Method::POST, "/api/v1/adjustments", &key, body).await
}

/// The answer is a problem with this status; what it says, and the fields that it names.
fn problem(answer: &Answer, status: u16) -> (String, BTreeSet<String>) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.header("content-type"), "application/problem+json");
    assert_eq!(answer.header("cache-control"), "no-store");
    let problem = answer.json();
    assert_eq!(
        (&problem["type"], &problem["status"]),
        (&json!("about:blank"), &json!(status))
    );
    assert!(!problem["title"].as_str().unwrap_or_default().is_empty(), "{problem}");
    let errors = problem["errors"].as_array().into_iter().flatten();
    let fields = errors.map(|error| error["field"].as_str().expect("a field").to_owned());
    let detail = problem["detail"].as_str().expect("a detail").to_owned();
    (detail, fields.collect())
}

async fn ask(tollgate: &Tollgate, key: &str, tokens: u64) {
    let answer = tollgate.chat(key, &format!("Hello. [[sim: tokens={tokens}]]")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

fn amount(value: &Value, name: &str) -> Nanos {
    let text = value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"));
    text.parse().unwrap_or_else(|error| panic!("{name} {text}: {error}"))
}

fn ids(page: &Value) -> Vec<String> {
    let entries = page["entries"].as_array().expect("entries");
    entries
        .iter()
        .map(|entry| entry["id"].as_str().expect("an id").to_owned())
        .collect()
}

#[tokio::test]
async fn nobody_and_no_session_is_answered() {
    let tollgate = start().await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let mut operator = Window::operator(&tollgate).await;
    assert_eq!(operator.visit("/reports").await.status, 200);
    for path in READING {
        // The operator's session is no token, and neither is a key.
        for answer in [operator.browser.get(path).await, call(&tollgate, &key, path).await] {
            problem(&answer, 401);
            assert!(answer.header("www-authenticate").starts_with("Bearer"), "{path}");
        }
    }
    let answer = operator.browser.get("/api/openapi.json").await;
    assert_eq!(answer.status, 200, "the description is open");
    let paths = answer.json()["paths"].clone();
    for path in READING {
        assert!(paths[path].is_object(), "{path}");
    }

    let good = token(&tollgate, None, &READ).await;
    for path in ["/api", "/api/v2/settlements", "/api/v1/nothing"] {
        problem(&call(&tollgate, &good, path).await, 404);
    }
    let headers = [("authorization", format!("Bearer {good}"))];
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let answer = tollgate
        .browser()
        .send(Method::DELETE, "/api/v1/settlements", &headers, Bytes::new())
        .await;
    problem(&answer, 405);
    assert_eq!(answer.header("allow"), "GET,HEAD");
}

#[tokio::test]
async fn a_token_works_until_it_ends_or_is_revoked_and_within_its_permissions() {
    let tollgate = start().await;
    let now = Utc::now();
    let good = token(&tollgate, None, &[Permission::ReportsRead]).await;
    read(&tollgate, &good, "/api/v1/reports/monthly").await;
    let (detail, _) = problem(&call(&tollgate, &good, "/api/v1/settlements").await, 403);
    assert!(detail.contains("ledger:read"), "{detail}");

    // Mistyped, unknown, expired.
    let last = if good.ends_with('0') { "1" } else { "0" };
    let mistyped = format!("{}{last}", &good[..good.len() - 1]);
    let (detail, _) = problem(&call(&tollgate, &mistyped, READING[0]).await, 401);
    assert!(detail.contains("mistyped"), "{detail}");
    let elsewhere = domain::management_tokens::TokenText::generate(&[7; domain::management_tokens::TOKEN_RANDOM_BYTES]);
    problem(&call(&tollgate, elsewhere.reveal(), READING[0]).await, 401);
    let expired = token_of(&tollgate, None, &READ, now - Duration::hours(25)).await;
    let (detail, _) = problem(&call(&tollgate, &expired, READING[0]).await, 401);
    assert!(detail.contains("expired"), "{detail}");

    // It is noted that it is used, once a minute.
    let used = async |sql: &mut sqlx::PgConnection| -> Option<DateTime<Utc>> {
        sqlx::query_scalar("select max(last_used_at) from management_tokens")
            .fetch_one(sql)
            .await
            .expect("an instant")
    };
    let mut sql = tollgate.sql().await;
    let first = used(&mut sql).await.expect("it was used");
    assert!(first >= now - Duration::seconds(1), "{first}");
    read(&tollgate, &good, READING[0]).await;
    assert_eq!(used(&mut sql).await, Some(first));

    let control = tollgate.control();
    let tokens = control.management_tokens(&tollgate.actor(), now).await.expect("tokens");
    assert_eq!(tokens.len(), 2);
    let row = tokens
        .iter()
        .find(|row| row.last_used_at.is_some())
        .expect("the good one");
    for _ in 0..2 {
        let revoked = control
            .revoke_management_token(&tollgate.actor(), row.id, Utc::now())
            .await;
        revoked.expect("revoked, however often");
    }
    let (detail, _) = problem(&call(&tollgate, &good, READING[0]).await, 401);
    assert!(detail.contains("revoked"), "{detail}");
    let noted: Vec<String> =
        sqlx::query_scalar("select action from audit_log where subject like 'management_token:%' order by at, action")
            .fetch_all(&mut sql)
            .await
            .expect("notes");
    let issued = "management_token.issue";
    assert_eq!(noted, [issued, issued, "management_token.revoke"]);
    let kept: String = sqlx::query_scalar("select string_agg(t::text, ' ') from management_tokens t")
        .fetch_one(&mut sql)
        .await
        .expect("rows");
    let secret = good.rsplit('-').next().expect("a secret");
    assert!(!kept.contains(&secret[..12]), "only its hash is kept");
}

#[tokio::test]
async fn operators_issue_tokens_in_the_console_and_nobody_else() {
    let tollgate = start().await;
    let (tenant, _) = tollgate.named_tenant_with_key("Acme", NodeLimits::default()).await;
    let mut operator = Window::operator(&tollgate).await;
    let list = operator.visit("/settings").await.link("Management tokens");
    let new = operator.visit(&list).await.link("Issue a token");
    let form = operator.visit(&new).await.form("/console/settings/tokens/issue");
    assert_eq!(form.value("lifetime_days"), "90");
    let page = operator
        .send(&form.clone().fill("name", "Export").fill("lifetime_days", "400"))
        .await;
    assert!(!page.text("#lifetime_days-error").is_empty(), "{}", page.content());
    let form = page.form("/console/settings/tokens/issue");
    assert_eq!(form.value("name"), "Export", "what was entered stays");
    let form = form.fill("lifetime_days", "30").choose("tenant_id", "Acme");
    let writing = form.clone().tick("permissions[]", "adjustments:write");
    let page = operator.send(&writing).await;
    assert!(page.content().contains("operators alone"), "{}", page.content());
    let page = operator.send(&form.tick("permissions[]", "reports:read")).await;
    assert_eq!(page.path(), "/settings/tokens/issued", "{}", page.content());
    let secret = page.text("#secret");
    assert!(
        !operator
            .visit("/settings/tokens/issued")
            .await
            .content()
            .contains(&secret),
        "once"
    );
    let report = read(&tollgate, &secret, "/api/v1/reports/monthly?by=tenant").await;
    assert_eq!(report["state"], "open");

    let page = operator.visit(&list).await;
    let table = page.table(&["Name", "Token", "State", "May", "Tenant"]);
    assert_eq!(table.cell("Export", "Tenant"), "Acme");
    assert_eq!(table.cell("Export", "State"), "active");
    assert_eq!(table.cell("Export", "May"), "reports:read");
    let revoke = page.link("Revoke");
    let form = operator.visit(&revoke).await.form("/console/settings/tokens/revoke");
    let page = operator.send(&form).await;
    assert_eq!(page.table(&["Name", "State"]).cell("Export", "State"), "revoked");
    problem(&call(&tollgate, &secret, READING[0]).await, 401);

    for (role, of) in [
        (Role::Auditor, None),
        (Role::Manager, Some(tenant)),
        (Role::Member, Some(tenant)),
    ] {
        let mut other = Window::person(&tollgate, role, of).await;
        for path in [&list, &new] {
            assert_eq!(other.visit(path).await.status, 403, "{role} {path}");
        }
        let sent = form.clone();
        assert_eq!(other.send(&sent).await.status, 403, "{role}");
    }
}

#[tokio::test]
async fn a_report_says_what_page_and_file_say() {
    let tollgate = start().await;
    let (acme, first) = tollgate
        .named_tenant_with_key(
            "Acme",
            NodeLimits {
                monthly_cost: Some(Nanos::from_units(10)),
                ..NodeLimits::default()
            },
        )
        .await;
    let (_, second) = tollgate
        .named_tenant_with_key(
            "=Other",
            NodeLimits {
                requests_per_minute: Some(2),
                ..NodeLimits::default()
            },
        )
        .await;
    tollgate.in_force().await;
    for tokens in [5, 70, 800] {
        ask(&tollgate, &first, tokens).await;
    }
    for tokens in [9, 11] {
        ask(&tollgate, &second, tokens).await;
    }
    assert_eq!(
        tollgate.chat(&second, "Hello.").await.status,
        StatusCode::TOO_MANY_REQUESTS
    );
    tollgate.shipped().await;
    let all = token(&tollgate, None, &EVERYTHING).await;
    let month = read(&tollgate, &all, READING[0]).await["month"]
        .as_str()
        .expect("a month")
        .to_owned();
    let credit = json!({ "tenant": acme.to_string(), "month": month, "cost": "-0.000000001", "reason": "A nano." });
    assert_eq!(book(&tollgate, &all, "credit", &credit).await.status, 201);

    let mut operator = Window::operator(&tollgate).await;
    for divided in [
        "by=tenant",
        "by=key&by=model",
        "by=user",
        "by=priority",
        "by=tenant&model=none",
        &format!("by=model&tenant={acme}"),
    ] {
        let query = format!("{divided}&month={month}");
        let report = read(&tollgate, &all, &format!("/api/v1/reports/monthly?{query}")).await;
        let file = call(&tollgate, &all, &format!("/api/v1/reports/monthly?{query}&format=csv")).await;
        let console = operator.browser.get(&format!("/reports/monthly.csv?{query}")).await;
        assert_eq!((console.status, file.status), (StatusCode::OK, StatusCode::OK));
        for header in ["content-type", "content-disposition"] {
            assert_eq!(file.header(header), console.header(header));
        }
        let mut lines = csv_lines(&file);
        // They were made at different instants.
        let without_time = |lines: &mut Vec<BTreeMap<String, String>>| {
            lines.iter_mut().for_each(|line| {
                line.remove("complete_until");
            });
        };
        let mut of_console = csv_lines(&console);
        without_time(&mut lines);
        without_time(&mut of_console);
        assert_eq!(lines, of_console, "{query}");
        let totals = lines.pop().expect("a line of totals");
        assert_eq!(totals["rows"], report["row_count"].to_string(), "{query}");
        let rows = report["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), lines.len(), "{query}");
        for (row, line) in rows
            .iter()
            .chain([&report["totals"]])
            .zip(lines.iter().chain([&totals]))
        {
            for name in ["cost", "adjusted_cost", "charged", "expected_cost", "overrun"] {
                assert_eq!(row[name], line[&format!("{name}_usd")], "{query} {name}");
            }
            assert_eq!(row["month_before"]["charged"], line["month_before_charged_usd"]);
            for name in [
                "requests",
                "refused_requests",
                "input_fresh_tokens",
                "output_tokens",
                "adjusted_input_tokens",
            ] {
                assert_eq!(row[name].to_string(), line[name], "{query} {name}");
            }
            let limited = row["refusals"]["rate_limit_exceeded"].as_u64().unwrap_or(0);
            assert_eq!(limited.to_string(), line["refused_rate_limit_exceeded"], "{query}");
            assert_eq!(
                row["budget"].as_str().unwrap_or_default(),
                line["budget_usd"],
                "{query}"
            );
            let p95 = row["total_ms"]["p95"]
                .as_i64()
                .map(|ms| ms.to_string())
                .unwrap_or_default();
            assert_eq!(p95, line["total_ms_p95"], "{query}");
        }
        let sum: i64 = rows.iter().map(|row| amount(row, "charged").0).sum();
        assert_eq!(Nanos(sum), amount(&report["totals"], "charged"), "{query}");
    }
    let report = read(&tollgate, &all, "/api/v1/reports/monthly?by=tenant").await;
    let names: Vec<&Value> = report["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| &row["tenant"])
        .collect();
    let page = operator
        .visit("/reports?by=tenant")
        .await
        .table(&["Tenant", "Requests", "Charged"]);
    assert_eq!(
        names,
        page.column("Tenant").iter().collect::<Vec<_>>(),
        "in the order of the page"
    );
    assert_eq!(page.sum("Requests"), report["totals"]["requests"].to_string());
    assert_eq!(report["currency"], "USD");
}

fn csv_lines(file: &Answer) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_reader(file.body.as_ref());
    let columns = reader.headers().expect("a header").clone();
    let line = |record: csv::StringRecord| {
        let names = columns.iter().map(str::to_owned);
        names.zip(record.iter().map(str::to_owned)).collect()
    };
    reader.records().map(|record| line(record.expect("cells"))).collect()
}

#[tokio::test]
async fn a_report_by_tag_has_the_values_and_what_has_none() {
    let tollgate = start().await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let authorization = format!("Bearer {key}");
    for tags in ["project=search", "project=search", "project=mail", ""] {
        let headers = [
            ("authorization", authorization.as_str()),
            ("content-type", "application/json"),
            ("x-tollgate-tags", tags),
        ];
        let body = Bytes::from(chat_body("Hello.").to_string());
        let answer = tollgate
            .browser()
            .send(
                Method::POST,
                "/v1/chat/completions",
                &headers[..if tags.is_empty() { 2 } else { 3 }],
                body,
            )
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    tollgate.shipped().await;
    let all = token(&tollgate, None, &READ).await;
    let report = read(&tollgate, &all, "/api/v1/reports/monthly?tag=project").await;
    let rows: BTreeMap<&str, u64> = report["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| {
            (
                row["value"].as_str().expect("a value"),
                row["requests"].as_u64().expect("a count"),
            )
        })
        .collect();
    assert_eq!(rows, BTreeMap::from([("search", 2), ("mail", 1)]));
    assert_eq!(report["totals"]["untagged"]["requests"], 1);
    assert_eq!(report["totals"]["requests"], 4);
    let (_, fields) = problem(
        &call(&tollgate, &all, "/api/v1/reports/monthly?tag=project&by=key&user=u").await,
        422,
    );
    assert_eq!(fields, BTreeSet::from(["by".to_owned(), "user".to_owned()]));
    let tagged = read(&tollgate, &all, "/api/v1/settlements?tag=project%3Dsearch").await;
    assert_eq!(ids(&tagged).len(), 2);
}

#[tokio::test]
async fn pages_meet_every_entry_once_while_others_arrive() {
    const BEFORE: usize = 11;
    let tollgate = start().await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    for _ in 0..BEFORE {
        ask(&tollgate, &key, 3).await;
    }
    for _ in 0..3 {
        let mut body = chat_body("Hello.");
        body["model"] = json!("nothing-of-the-kind");
        let answer = tollgate.browser().post_json("/v1/chat/completions", &key, &body).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{}", answer.text());
    }
    tollgate.shipped().await;
    let all = token(&tollgate, None, &READ).await;
    let expected: BTreeSet<String> = ids(&read(&tollgate, &all, "/api/v1/settlements?limit=200").await)
        .into_iter()
        .collect();
    assert_eq!(expected.len(), BEFORE);

    let mut met = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = read(&tollgate, &all, &format!("/api/v1/settlements?limit=3{cursor}")).await;
        assert!(ids(&page).len() <= 3);
        met.extend(ids(&page));
        let Some(next) = page["next_cursor"].as_str() else {
            break;
        };
        cursor = format!("&cursor={next}");
        // Somebody is served between two pages.
        ask(&tollgate, &key, 3).await;
        tollgate.shipped().await;
    }
    assert_eq!(met.len(), BEFORE, "each once: {met:?}");
    assert_eq!(met.iter().cloned().collect::<BTreeSet<_>>(), expected);

    let page = read(&tollgate, &all, "/api/v1/rejections?limit=2").await;
    let next = page["next_cursor"].as_str().expect("there is more").to_owned();
    let last = read(&tollgate, &all, &format!("/api/v1/rejections?limit=2&cursor={next}")).await;
    assert_eq!(
        (ids(&page).len(), ids(&last).len(), &last["next_cursor"]),
        (2, 1, &Value::Null)
    );
}

#[tokio::test]
async fn one_request_is_told_with_how_its_cost_was_made_or_why_it_was_refused() {
    let tollgate = start().await;
    let (tenant, key) = tollgate
        .named_tenant_with_key(
            "Acme",
            NodeLimits {
                requests_per_minute: Some(1),
                ..NodeLimits::default()
            },
        )
        .await;
    tollgate.in_force().await;
    ask(&tollgate, &key, 37).await;
    let refused = tollgate.chat(&key, "Hello.").await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    tollgate.shipped().await;
    let all = token(&tollgate, None, &READ).await;
    let own = token(&tollgate, Some(tenant), &READ).await;

    let list = read(&tollgate, &all, "/api/v1/settlements?outcome=completed").await;
    let listed = &list["entries"][0];
    assert_eq!(
        (&listed["tenant_name"], &list["currency"]),
        (&json!("Acme"), &json!("USD"))
    );
    let path = format!("/api/v1/settlements/{}", ids(&list)[0]);
    let one = read(&tollgate, &all, &path).await;
    assert_eq!(amount(&one, "cost").0, one["cost_nanos"].as_i64().expect("nanos"));
    assert_eq!(one["attempts"].as_array().map(Vec::len), Some(1));
    let arithmetic = &one["arithmetic"];
    assert_eq!(arithmetic["rounded_up"], one["cost"]);
    assert_eq!(arithmetic["is_cost_as_priced"], true);
    let output = arithmetic["lines"]
        .as_array()
        .expect("lines")
        .iter()
        .find(|line| line["class"] == "output");
    assert_eq!(output.expect("output")["tokens"], 37);

    // A tenant's own token does not see who serves, nor what shared limits said.
    let seen = read(&tollgate, &own, &path).await;
    assert_eq!(
        (&seen["upstream_id"], &seen["arithmetic"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(seen["attempts"], json!([]));

    let list = read(&tollgate, &all, "/api/v1/rejections?code=rate_limit_exceeded").await;
    let path = format!("/api/v1/rejections/{}", ids(&list)[0]);
    let one = read(&tollgate, &all, &path).await;
    let chain = one["chain"].as_array().expect("a chain");
    assert!(chain.iter().any(|check| check["has_room"] == false), "{one}");
    assert_eq!(one["tenant_id"], tenant.to_string());
    let (detail, _) = problem(
        &call(&tollgate, &all, &path.replace("rejections", "settlements")).await,
        404,
    );
    assert!(detail.contains("rejections"), "{detail}");
    problem(&call(&tollgate, &all, "/api/v1/settlements/42").await, 404);
}

#[tokio::test]
async fn a_tenants_token_sees_that_tenant_and_changes_nothing() {
    let tollgate = start().await;
    let (acme, first) = tollgate.named_tenant_with_key("Acme", NodeLimits::default()).await;
    let (other, second) = tollgate.named_tenant_with_key("Other", NodeLimits::default()).await;
    ask(&tollgate, &first, 3).await;
    ask(&tollgate, &second, 4).await;
    tollgate.shipped().await;
    let (all, own) = (
        token(&tollgate, None, &READ).await,
        token(&tollgate, Some(acme), &READ).await,
    );
    let list = read(&tollgate, &own, "/api/v1/settlements").await;
    assert_eq!(ids(&list).len(), 1);
    assert_eq!(list["entries"][0]["tenant_id"], acme.to_string());
    let report = read(&tollgate, &own, "/api/v1/reports/monthly?by=tenant").await;
    assert_eq!(report["row_count"], 1);
    for path in READING {
        problem(&call(&tollgate, &own, &format!("{path}?tenant={other}")).await, 403);
    }
    let foreign = read(&tollgate, &all, &format!("/api/v1/settlements?tenant={other}")).await;
    problem(
        &call(&tollgate, &own, &format!("/api/v1/settlements/{}", ids(&foreign)[0])).await,
        404,
    );
    let credit = json!({ "tenant": acme.to_string(), "month": "2026-01", "cost": "-1", "reason": "Mine." });
    problem(&book(&tollgate, &own, "one", &credit).await, 403);
    // And nobody can be given one that could.
    let draft = ManagementTokenDraft {
        name: "Greedy".to_owned(),
        tenant_id: Some(acme),
        permissions: vec![Permission::AdjustmentsWrite],
        lifetime_days: 1,
    };
    let refused = tollgate
        .control()
        .issue_management_token(&tollgate.actor(), &draft, Utc::now())
        .await;
    assert!(matches!(refused, Err(ControlError::Invalid(_))), "{refused:?}");
}

#[tokio::test]
async fn an_adjustment_that_is_sent_again_is_booked_once() {
    let tollgate = start().await;
    let (acme, key) = tollgate.named_tenant_with_key("Acme", NodeLimits::default()).await;
    ask(&tollgate, &key, 37).await;
    tollgate.shipped().await;
    let all = token(&tollgate, None, &EVERYTHING).await;
    let another = token(&tollgate, None, &EVERYTHING).await;
    let credit = json!({
        "tenant": acme.to_string(), "month": "2026-03", "cost": "-12.50", "output_tokens": -5, "reason": "Credit.",
        "reference": "CN-7",
    });
    let mut booked = BTreeSet::new();
    for _ in 0..3 {
        let answer = book(&tollgate, &all, "march", &credit).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
        let answer = answer.json();
        assert_eq!(
            (&answer["cost"], &answer["reference"]),
            (&json!("-12.500000000"), &json!("CN-7"))
        );
        booked.insert(answer["id"].to_string());
    }
    assert_eq!(booked.len(), 1);
    // Any other figure under the same key is refused; the same under another key, or another token's, is another one.
    for (name, value) in [
        ("cost", json!("-12.51")),
        ("output_tokens", json!(-6)),
        ("month", json!("2026-02")),
    ] {
        let mut other = credit.clone();
        other[name] = value;
        problem(&book(&tollgate, &all, "march", &other).await, 422);
    }
    assert_eq!(
        book(&tollgate, &another, "march", &credit).await.status,
        StatusCode::CREATED
    );
    let list = read(&tollgate, &all, "/api/v1/adjustments?month=2026-03").await;
    assert_eq!(ids(&list).len(), 2);
    let author = list["entries"][0]["author"].as_str().expect("an author");
    assert!(author.starts_with("Finance (tg-mgmt-"), "{author}");

    // One request, by its version.
    let id = ids(&read(&tollgate, &all, "/api/v1/settlements").await).remove(0);
    let path = format!("/api/v1/settlements/{id}");
    let before = read(&tollgate, &all, &path).await;
    assert_eq!(before["version"], 0);
    let right = json!({ "request": id, "version": 0, "output": 7, "reason": "The provider counted 7." });
    for _ in 0..2 {
        let answer = book(&tollgate, &all, "seven", &right).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
        assert_eq!(answer.json()["output_tokens"], -30);
    }
    let mut other = right.clone();
    other["output"] = json!(8);
    problem(&book(&tollgate, &all, "seven", &other).await, 422);
    problem(&book(&tollgate, &all, "eight", &other).await, 409);
    let after = read(&tollgate, &all, &path).await;
    assert_eq!(
        (&after["version"], &after["adjusted"]["output_tokens"]),
        (&json!(1), &json!(7))
    );
    let difference = amount(&after["adjustments"][0], "cost");
    assert_eq!(amount(&before, "cost") + difference, amount(&after["adjusted"], "cost"));
    assert_eq!(difference, Nanos(-60_000));
}

#[tokio::test]
async fn what_is_wrong_with_a_call_is_said_by_field() {
    let tollgate = start().await;
    let (acme, _) = tollgate.named_tenant_with_key("Acme", NodeLimits::default()).await;
    let all = token(&tollgate, None, &EVERYTHING).await;
    for (path, named) in [
        ("reports/monthly?months=2026-11&by=tenant", "months"),
        ("reports/monthly?month=2026-13", "month"),
        ("reports/monthly?by=colour", "by"),
        ("reports/monthly?format=xml", "format"),
        ("settlements?tenant=acme", "tenant"),
        ("settlements?code=queue_full", "code"),
        ("settlements?limit=201", "limit"),
        ("settlements?cursor=1", "cursor"),
        ("settlements?from=yesterday", "from"),
        ("settlements?outcome=good", "outcome"),
        ("settlements?tenant=&tenant=x", "tenant"),
        ("rejections?code=bad", "code"),
        ("rejections?tag=project", "tag"),
        ("adjustments?author=me", "author"),
    ] {
        let (_, fields) = problem(&call(&tollgate, &all, &format!("/api/v1/{path}")).await, 422);
        assert_eq!(fields, BTreeSet::from([named.to_owned()]), "{path}");
    }
    let right = json!({ "tenant": acme.to_string(), "month": "2026-03", "cost": "-1", "reason": "Right." });
    for (name, value) in [
        ("cost", json!(-1.5)),
        ("output_tokens", json!("7")),
        ("tenant", json!("acme")),
        ("month", json!("2026-3")),
        ("at", json!("2026-03-01T00:00:00Z")),
        ("reason", json!("  ")),
        ("colour", json!("red")),
        ("user", json!(7)),
    ] {
        let mut wrong = right.clone();
        wrong[name] = value;
        let (_, fields) = problem(&book(&tollgate, &all, "wrong", &wrong).await, 422);
        let named = if name == "at" { "month" } else { name };
        assert_eq!(fields, BTreeSet::from([named.to_owned()]), "{name}");
    }
    let (_, fields) = problem(&book(&tollgate, &all, "", &right).await, 422);
    assert_eq!(
        fields,
        BTreeSet::from(["Idempotency-Key".to_owned()]),
        "an adjustment is named by its caller"
    );
    let bearer = format!("Bearer {all}");
    let headers = [("authorization", bearer.as_str())];
    for body in ["", "[]", "{\"cost\": "] {
        let answer = tollgate
            .browser()
            .send(Method::POST, "/api/v1/adjustments", &headers, body.into())
            .await;
        problem(&answer, 422);
    }
    let long = "x".repeat(65 * 1024);
    let answer = tollgate
        .browser()
        .send(Method::POST, "/api/v1/adjustments", &headers, long.into())
        .await;
    problem(&answer, 413);
    assert!(
        ids(&read(&tollgate, &all, "/api/v1/adjustments").await).is_empty(),
        "nothing was booked"
    );
}

#[tokio::test]
async fn an_address_of_its_own_has_the_api_too_and_the_proxys_has_none() {
    let tollgate = Tollgate::start().await;
    let apart = |settings| Settings {
        admin_listen: Some(([127, 0, 0, 1], 0).into()),
        ..settings
    };
    let tollgate = tollgate.restart_with(apart).await;
    let all = token(&tollgate, None, &READ).await;
    let admin = format!("http://{}", tollgate.running.admin_address);
    let proxy = format!("http://{}", tollgate.running.address);
    for (base, status) in [(admin, StatusCode::OK), (proxy, StatusCode::NOT_FOUND)] {
        let answer = call(&tollgate, &all, &format!("{base}/api/v1/settlements")).await;
        assert_eq!(answer.status, status, "{base}");
    }
}

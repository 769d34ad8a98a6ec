//! The official SDKs against the gateway. `cargo xtask test` says in `TOLLGATE_TEST_PYTHON`, `TOLLGATE_TEST_NODE` and
//! `TOLLGATE_TEST_NODE_MODULES` where they are.

mod description;

use std::process::Stdio;

use control::limits::{LimitDraft, NodeLimits};
use domain::ids::TenantId;
use domain::limits::{Dimension, Scope, Target};
use serde_json::Value;
use test_support::tollgate::{ANTHROPIC_MODEL, CREDENTIAL, MODEL, Tollgate, limit};
use tokio::process::Command;

/// Ready to run a script in the language that its name tells.
fn script(name: &str) -> Command {
    let set = |variable: &str| {
        std::env::var_os(variable).unwrap_or_else(|| {
            panic!("{variable} is not set; run `cargo xtask test`, which installs the SDKs and sets it")
        })
    };
    let mut command = if name.ends_with(".py") {
        Command::new(set("TOLLGATE_TEST_PYTHON"))
    } else {
        let mut node = Command::new(set("TOLLGATE_TEST_NODE"));
        node.env("NODE_PATH", set("TOLLGATE_TEST_NODE_MODULES"));
        node
    };
    command.arg(format!("{}/sdk/{name}", env!("CARGO_MANIFEST_DIR")));
    // Compiled modules would lie in the clone.
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Runs one script with the gateway's address and key; gives the last line of what it prints, which is shown when it fails.
async fn run_script(tollgate: &Tollgate, key: &str, name: &str) -> String {
    run_script_with(tollgate, key, name, &[]).await
}

/// The same with more in the environment.
async fn run_script_with(tollgate: &Tollgate, key: &str, name: &str, more: &[(&str, &str)]) -> String {
    let output = script(name)
        .env("OPENAI_BASE_URL", format!("{}/v1", tollgate.url()))
        .env("OPENAI_API_KEY", key)
        .env("ANTHROPIC_BASE_URL", tollgate.url())
        .env("ANTHROPIC_API_KEY", key)
        .env("SIMULATOR_BASE_URL", tollgate.simulator.base_url())
        .env("SIMULATOR_API_KEY", CREDENTIAL)
        .env("MODEL", MODEL)
        .env("ANTHROPIC_MODEL", ANTHROPIC_MODEL)
        .envs(more.iter().copied())
        .stdin(Stdio::null())
        .output()
        .await
        .expect("the interpreter starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{name}\n{printed}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    printed.lines().last().unwrap_or_default().to_owned()
}

/// Every request of the tenant that ran, as a script tells of its calls. All of them have to be completed, at the figures that
/// the provider reported, in the dialect of their endpoint.
async fn booked(tollgate: &Tollgate, tenant: TenantId) -> Value {
    tollgate.shipped().await;
    let sql = &mut tollgate.sql().await;
    let odd: Vec<(String, String, String, String)> = sqlx::query_as(
        "select endpoint, dialect, outcome, usage_source from settlements
         where tenant_id = $1
           and (outcome <> 'completed' or usage_source <> 'reported'
                or dialect <> case when endpoint like 'messages%' then 'anthropic' else 'openai' end)",
    )
    .bind(tenant.0)
    .fetch_all(&mut *sql)
    .await
    .expect("rows");
    assert_eq!(odd, [], "completed, reported, and of the endpoint's dialect");
    sqlx::query_scalar(
        "select coalesce(jsonb_agg(jsonb_build_object(
             'endpoint', endpoint, 'is_streamed', is_streamed, 'input_fresh', input_fresh_tokens,
             'cache_read', cache_read_tokens, 'cache_write_5m', cache_write_5m_tokens,
             'cache_write_1h', cache_write_1h_tokens, 'output', output_tokens, 'reasoning', reasoning_tokens
         ) order by admitted_at, id), '[]')
         from settlements where tenant_id = $1",
    )
    .bind(tenant.0)
    .fetch_one(sql)
    .await
    .expect("rows")
}

/// The codes of the tenant's refusals, in their order.
async fn refusals(tollgate: &Tollgate, tenant: TenantId) -> Vec<String> {
    tollgate.shipped().await;
    sqlx::query_scalar("select code from rejections where tenant_id = $1 order by refused_at, id")
        .bind(tenant.0)
        .fetch_all(&mut tollgate.sql().await)
        .await
        .expect("rows")
}

/// Runs a script of calls that all succeed: what it was told by the answers is what the ledger says.
async fn check_calls(name: &str) {
    let tollgate = Tollgate::start().await;
    // Who lists models must find one of them only.
    if name.starts_with("anthropic") {
        tollgate.anthropic_model().await;
    }
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let told = run_script(&tollgate, &key, name).await;
    let told: Value = serde_json::from_str(&told).expect("a list of calls");
    assert_ne!(told, Value::Array(Vec::new()), "{name} makes calls");
    let booked = booked(&tollgate, tenant).await;
    assert_eq!(booked, told, "{name}: the ledger, and what the answers said");
}

#[tokio::test]
async fn the_openai_package_for_python_chats() {
    check_calls("openai_chat.py").await;
}

#[tokio::test]
async fn the_openai_package_for_python_asks_for_responses() {
    check_calls("openai_responses.py").await;
}

#[tokio::test]
async fn the_openai_package_for_python_embeds_and_completes() {
    check_calls("openai_others.py").await;
}

#[tokio::test]
async fn the_openai_package_for_nodejs_makes_its_ordinary_calls() {
    check_calls("openai_calls.mjs").await;
}

#[tokio::test]
async fn the_anthropic_package_for_python_makes_its_ordinary_calls() {
    check_calls("anthropic_messages.py").await;
}

#[tokio::test]
async fn the_openai_package_for_python_repeats_a_call_without_repeating_it() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let told = run_script(&tollgate, &key, "openai_idempotency.py").await;
    let told: Value = serde_json::from_str(&told).expect("a list of calls");
    assert_eq!(booked(&tollgate, tenant).await, told, "each ran once");
    assert_eq!(
        refusals(&tollgate, tenant).await,
        ["replayed", "idempotency_key_reused", "replayed"]
    );
}

/// Runs a script of calls that fail, by a key that may make one request a minute, which the provider fails.
async fn check_errors(name: &str, expected: &[&str]) {
    let tollgate = Tollgate::start().await;
    tollgate.anthropic_model().await;
    let limits = NodeLimits {
        requests_per_minute: Some(1),
        total_tokens_per_minute: Some(2_000),
        ..NodeLimits::default()
    };
    let (tenant, key) = tollgate.tenant_with_key(limits).await;
    run_script(&tollgate, &key, name).await;
    assert_eq!(refusals(&tollgate, tenant).await, expected, "{name}");
}

#[tokio::test]
async fn the_openai_package_for_python_tells_refusals_apart() {
    let expected = [
        "model_not_found",
        "unmetered_route",
        "invalid_request",
        "invalid_request",
        "request_too_large",
        "rate_limit_exceeded",
    ];
    check_errors("openai_errors.py", &expected).await;
}

#[tokio::test]
async fn the_openai_package_for_nodejs_tells_refusals_apart() {
    let expected = [
        "model_not_found",
        "unmetered_route",
        "invalid_request",
        "request_too_large",
        "rate_limit_exceeded",
    ];
    check_errors("openai_errors.mjs", &expected).await;
}

#[tokio::test]
async fn the_anthropic_package_for_python_tells_refusals_apart() {
    let expected = [
        "model_not_found",
        "route_not_found",
        "invalid_request",
        "invalid_request",
        "request_too_large",
        "rate_limit_exceeded",
    ];
    check_errors("anthropic_errors.py", &expected).await;
}

/// Runs a script under a limit of one request a second, with a key whose budget is spent besides.
async fn check_waits(name: &str) {
    let tollgate = Tollgate::start().await;
    tollgate.anthropic_model().await;
    let one_a_second = LimitDraft {
        window_seconds: 1,
        ..limit(Dimension::Requests, 1)
    };
    tollgate.set_limit(Target::Node(Scope::Global), 0, &one_a_second).await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let nothing_left = NodeLimits {
        monthly_tokens: Some(0),
        ..NodeLimits::default()
    };
    let (_, spent) = tollgate.named_tenant_with_key("Spent", nothing_left).await;
    run_script_with(&tollgate, &key, name, &[("SPENT_API_KEY", &spent)]).await;
}

#[tokio::test]
async fn the_openai_package_for_python_waits_out_what_time_heals() {
    check_waits("openai_waits.py").await;
}

#[tokio::test]
async fn the_openai_package_for_nodejs_waits_out_what_time_heals() {
    check_waits("openai_waits.mjs").await;
}

#[tokio::test]
async fn the_anthropic_package_for_python_waits_out_what_time_heals() {
    check_waits("anthropic_waits.py").await;
}

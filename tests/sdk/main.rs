//! The official SDKs against the gateway. `cargo xtask test` says in `TOLLGATE_TEST_PYTHON` which Python has them.

use std::process::Stdio;

use chrono::Utc;
use control::limits::{LimitDraft, NodeLimits};
use domain::limits::{Dimension, Mode, Scope, Target};
use domain::periods::Period;
use test_support::tollgate::{MODEL, Tollgate};
use tokio::process::Command;

/// Runs one script with the gateway's address and key; what it prints is shown when it fails.
async fn run_script(tollgate: &Tollgate, key: &str, script: &str) {
    run_script_with(tollgate, key, script, &[]).await;
}

/// The same with more in the environment.
async fn run_script_with(tollgate: &Tollgate, key: &str, script: &str, more: &[(&str, &str)]) {
    let Some(python) = std::env::var_os("TOLLGATE_TEST_PYTHON") else {
        panic!("TOLLGATE_TEST_PYTHON is not set; run `cargo xtask test`, which installs the SDKs and sets it");
    };
    let output = Command::new(python)
        .arg(format!("{}/sdk/{script}", env!("CARGO_MANIFEST_DIR")))
        .env("OPENAI_BASE_URL", format!("{}/v1", tollgate.url()))
        .env("OPENAI_API_KEY", key)
        .env("SIMULATOR_BASE_URL", tollgate.simulator.base_url())
        .env("SIMULATOR_API_KEY", test_support::tollgate::CREDENTIAL)
        .env("MODEL", MODEL)
        .envs(more.iter().copied())
        .stdin(Stdio::null())
        .output()
        .await
        .expect("Python starts");
    let shown = format!(
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{shown}");
}

#[tokio::test]
async fn the_openai_package_for_python_makes_its_ordinary_calls() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    run_script(&tollgate, &key, "openai_chat.py").await;
    tollgate.shipped().await;
    let ended: Vec<(String, String, bool)> = sqlx::query_as(
        "select outcome, usage_source, is_streamed from settlements where tenant_id = $1 order by admitted_at",
    )
    .bind(tenant.0)
    .fetch_all(&mut tollgate.sql().await)
    .await
    .expect("rows");
    let completed = |is_streamed| ("completed".to_owned(), "reported".to_owned(), is_streamed);
    assert_eq!(
        ended[..4],
        [completed(false), completed(true), completed(true), completed(false)]
    );
}

#[tokio::test]
async fn the_openai_package_for_python_tells_refusals_apart() {
    let tollgate = Tollgate::start().await;
    let limits = NodeLimits {
        requests_per_minute: Some(1),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.tenant_with_key(limits).await;
    run_script(&tollgate, &key, "openai_errors.py").await;
}

#[tokio::test]
async fn the_openai_package_for_python_waits_out_what_time_heals() {
    let tollgate = Tollgate::start().await;
    let one_a_second = LimitDraft {
        dimension: Dimension::Requests,
        value: 1,
        window_seconds: 1,
        burst: None,
        period: Period::Month,
        model: None,
        priority: None,
        mode: Mode::Enforce,
        gates: None,
    };
    tollgate
        .control()
        .set_limit(
            &tollgate.actor(),
            &Target::Node(Scope::Global),
            0,
            &one_a_second,
            Utc::now(),
        )
        .await
        .expect("a limit");
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let nothing_left = NodeLimits {
        monthly_tokens: Some(0),
        ..NodeLimits::default()
    };
    let (_, spent) = tollgate.named_tenant_with_key("Spent", nothing_left).await;
    run_script_with(&tollgate, &key, "openai_waits.py", &[("SPENT_API_KEY", &spent)]).await;
}

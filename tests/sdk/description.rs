//! The management API against its own description: schemathesis makes calls of what `/api/openapi.json` says, good ones and
//! bad ones, and finds no answer that is not described, no fault, and nothing let through that the description refuses.

use std::process::Stdio;

use chrono::Utc;
use control::limits::NodeLimits;
use control::management_tokens::ManagementTokenDraft;
use control::people::PersonDraft;
use control::plans::PlanDraft;
use domain::management_tokens::Permission;
use domain::people::Role;
use domain::priority::Priority;
use test_support::tollgate::Tollgate;

/// The same calls each time.
const SEED: &str = "20261201";
/// Calls made up for each route and phase, at most: the whole takes about a minute.
const EXAMPLES_MAX: &str = "12";

#[tokio::test]
async fn schemathesis_finds_no_fault_with_the_api() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
    let mut unknown = test_support::tollgate::chat_body("Hello.");
    unknown["model"] = serde_json::json!("nothing");
    let refused = tollgate.browser().post_json("/v1/chat/completions", &key, &unknown).await;
    assert_eq!(refused.status, 404);
    tollgate.shipped().await;
    let (control, actor, now) = (tollgate.control(), tollgate.actor(), Utc::now());
    let plan = PlanDraft {
        name: "Paid".to_owned(),
        priority_ceiling: Priority::High,
    };
    control.create_plan(&actor, &plan, now).await.expect("a plan");
    let person = PersonDraft {
        name: "Ada".to_owned(),
        email: "ada@example.com".to_owned(),
        role: Role::Member,
        tenant_id: Some(tenant),
    };
    control.invite_person(&actor, &person, now).await.expect("a person");
    let token = ManagementTokenDraft {
        name: "Everything".to_owned(),
        tenant_id: None,
        permissions: Permission::ALL.to_vec(),
        lifetime_days: 1,
    };
    let token = control.issue_management_token(&actor, &token, now).await.expect("a token");

    let folder = tempfile::tempdir().expect("a directory");
    let python = std::env::var_os("TOLLGATE_TEST_PYTHON")
        .expect("TOLLGATE_TEST_PYTHON is not set; run `cargo xtask test`, which installs schemathesis and sets it");
    let output = tokio::process::Command::new(python)
        .args(["-m", "schemathesis.cli"])
        .arg("--config-file")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/sdk/schemathesis.toml"))
        .arg("run")
        .arg(format!("{}/api/openapi.json", tollgate.url()))
        .args(["--seed", SEED, "--max-examples", EXAMPLES_MAX, "--generation-deterministic"])
        .args(["--generation-database", "none", "--no-color"])
        .arg("--header")
        .arg(format!("Authorization: Bearer {}", token.text.reveal()))
        // What it keeps beside.
        .current_dir(folder.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .expect("schemathesis starts");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{said}");
    println!("{said}");
}

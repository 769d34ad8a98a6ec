//! The management API against its own description: schemathesis makes calls of what `/api/openapi.json` says, good ones and
//! bad ones, and finds no answer that is not described, no fault, and nothing let through that the description refuses.
//!
//! It makes the same calls each time. The first run calls routes with an id in their path by ids that exist, so that it comes
//! past "there is no such thing"; the second knows nothing but the description.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;

use bytes::Bytes;
use chrono::Utc;
use control::limits::NodeLimits;
use control::management_tokens::ManagementTokenDraft;
use control::people::PersonDraft;
use control::plans::PlanDraft;
use domain::management_tokens::Permission;
use domain::people::Role;
use domain::priority::Priority;
use http::Method;
use serde_json::json;
use test_support::tollgate::{MODEL, Tollgate, chat_body};

/// Which checks there are, and what is expected of them.
const SETTINGS: &str = include_str!("schemathesis.toml");
/// Calls made up for each route and phase, at most: the whole takes about a minute.
const EXAMPLES_MAX: &str = "12";
/// What has ids of its own.
const NOUNS: [&str; 11] = [
    "tenants",
    "plans",
    "people",
    "keys",
    "limits",
    "prices",
    "upstreams",
    "settlements",
    "rejections",
    "jobs",
    "audit",
];

#[tokio::test]
async fn schemathesis_finds_no_fault_with_the_api() {
    let tollgate = Tollgate::start().await;
    furnish(&tollgate).await;
    let draft = ManagementTokenDraft {
        name: "Everything".to_owned(),
        tenant_id: None,
        permissions: Permission::ALL.to_vec(),
        lifetime_days: 1,
    };
    let issued = tollgate
        .control()
        .issue_management_token(&tollgate.actor(), &draft, Utc::now())
        .await
        .expect("a token");
    let bearer = format!("Bearer {}", issued.text.reveal());
    let folder = tempfile::tempdir().expect("a directory");

    let mut settings = SETTINGS.to_owned();
    for noun in NOUNS {
        let id = id_of_one(&tollgate, &bearer, noun).await;
        write!(
            settings,
            "\n[[operations]]\ninclude-path-regex = \"^/api/v1/{noun}/[{{]\"\nparameters = {{ \"path.id\" = \"{id}\" }}\n"
        )
        .expect("a text");
    }
    write!(
        settings,
        "\n[[operations]]\ninclude-path-regex = \"^/api/v1/models/[{{]\"\nparameters = {{ \"path.name\" = \"{MODEL}\" }}\n"
    )
    .expect("a text");
    let with_ids = ["--include-path-regex", "[{]", "--phases", "examples,coverage,fuzzing"];
    run(&tollgate, folder.path(), &bearer, &settings, &with_ids).await;
    run(&tollgate, folder.path(), &bearer, SETTINGS, &[]).await;
}

/// One thing of each noun at least.
async fn furnish(tollgate: &Tollgate) {
    let limits = NodeLimits {
        requests_per_minute: Some(1),
        ..NodeLimits::default()
    };
    let (tenant, key) = tollgate.tenant_with_key(limits).await;
    tollgate.in_force().await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 429);
    let authorization = format!("Bearer {key}");
    let headers = [
        ("authorization", authorization.as_str()),
        ("content-type", "application/json"),
        ("prefer", "respond-async"),
    ];
    let body = Bytes::from(chat_body("Hello.").to_string());
    let later = tollgate
        .browser()
        .send(Method::POST, "/v1/chat/completions", &headers, body)
        .await;
    assert_eq!(later.status, 202, "{}", later.text());
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
}

/// The id of the first of a list.
async fn id_of_one(tollgate: &Tollgate, bearer: &str, noun: &str) -> String {
    let path = format!("/api/v1/{noun}?limit=1");
    let headers = [("authorization", bearer)];
    let answer = tollgate
        .browser()
        .send(Method::GET, &path, &headers, Bytes::new())
        .await;
    let id = &answer.json()["entries"][0]["id"];
    assert_ne!(*id, json!(null), "{noun}: {}", answer.text());
    id.as_str().expect("an id").to_owned()
}

/// Runs it with these settings and arguments.
async fn run(tollgate: &Tollgate, folder: &Path, bearer: &str, settings: &str, more: &[&str]) {
    let python = std::env::var_os("TOLLGATE_TEST_PYTHON")
        .expect("TOLLGATE_TEST_PYTHON is not set; run `cargo xtask test`, which installs schemathesis and sets it");
    let file = folder.join("schemathesis.toml");
    std::fs::write(&file, settings).expect("written");
    let output = tokio::process::Command::new(python)
        .args(["-m", "schemathesis.cli", "--config-file"])
        .arg(&file)
        .arg("run")
        .arg(format!("{}/api/openapi.json", tollgate.url()))
        .args([
            "--generation-deterministic",
            "--max-examples",
            EXAMPLES_MAX,
            "--no-color",
        ])
        .arg("--header")
        .arg(format!("Authorization: {bearer}"))
        .args(more)
        // What it keeps beside.
        .current_dir(folder)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .expect("schemathesis starts");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{said}");
}

//! The list for production: the same on the page of the settings and from `tollgate doctor`, whose exit code is for scripts.

use chrono::Utc;
use domain::error_chain::chain;
use domain::people::Role;
use server::data_dir::DataDir;
use server::wiring::Settings;
use store::Store;
use test_support::console::Window;
use test_support::fleet::until;
use test_support::http::Browser;
use test_support::program::{Printed, Program, run};
use test_support::tollgate::Tollgate;

use crate::receiver::{Receiver, set_webhook};

async fn doctor(url: &str) -> Printed {
    let data_dir = tempfile::tempdir().expect("a directory");
    run(&["doctor"], data_dir.path(), &[("DATABASE_URL", url)]).await
}

/// A gateway that tells of itself as one in production does, but for its data directory, which tests have under `/tmp`.
async fn fit() -> Tollgate {
    let tollgate = Tollgate::start().await;
    tollgate
        .restart_with(|settings| Settings {
            public_url: Some("https://tollgate.example.com".parse().expect("a URL")),
            ..settings
        })
        .await
}

async fn told(tollgate: &Tollgate) {
    let (control, actor) = (tollgate.control(), tollgate.actor());
    until("the gateway has compared the clocks", async || {
        let instances = control.instances(&actor).await.expect("gateways");
        instances
            .iter()
            .any(|instance| instance.status.clock_ahead_ms.is_some())
    })
    .await;
}

#[tokio::test]
async fn what_is_to_be_done_is_said_with_what_it_means_and_by_the_exit_code() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    told(&tollgate).await;
    let page = operator.visit("/settings").await;
    let listed = page.table(&["What", "State", "What to do"]);
    assert_eq!(listed.cell("Console over TLS", "State"), "to do");
    assert!(
        listed
            .cell("Console over TLS", "What to do")
            .contains("TOLLGATE_PUBLIC_URL")
    );
    assert_eq!(listed.cell("Alerts reach somebody", "State"), "to do");
    let good = page.text("#production details");
    for subject in [
        "Clocks",
        "Postgres of its own",
        "Secret key",
        "Shared counters",
        "Waiting for room",
    ] {
        assert!(good.contains(subject), "{subject} is missing: {good}");
    }

    let printed = doctor(tollgate.database.url()).await;
    assert_eq!(printed.code, Some(1), "{}", printed.stdout);
    assert!(
        printed.stdout.contains("[to do] Console over TLS: "),
        "{}",
        printed.stdout
    );
    assert!(printed.stdout.contains("[good] Clocks: "), "{}", printed.stdout);

    // The list is for those who see everything.
    let mut auditor = Window::person(&tollgate, Role::Auditor, None).await;
    assert!(
        auditor
            .visit("/settings")
            .await
            .content()
            .contains("Production checklist")
    );
    let tenant = tollgate.tenant("Research", Default::default()).await;
    let mut manager = Window::person(&tollgate, Role::Manager, Some(tenant)).await;
    assert_eq!(manager.visit("/settings").await.status, 403);
}

#[tokio::test]
async fn what_was_done_is_not_asked_for_again() {
    let tollgate = fit().await;
    let receiver = Receiver::start(&[]).await;
    set_webhook(&tollgate, &receiver).await;
    told(&tollgate).await;
    let mut operator = Window::operator(&tollgate).await;
    let unused = operator.visit("/settings").await.text("#production");
    assert!(unused.contains("nothing was ever sent to it"), "{unused}");
    tollgate
        .control()
        .test_webhook(&tollgate.actor(), Utc::now())
        .await
        .expect("a test event");
    until("the receiver has it", async || {
        let good = operator.visit("/settings").await.texts("#production details");
        good.concat().contains("The last event was taken")
    })
    .await;
    let good = operator.page.text("#production details");
    assert!(
        good.contains("People reach the console at https://tollgate.example.com."),
        "{good}"
    );
}

#[tokio::test]
async fn whoever_cannot_look_says_so() {
    let printed = doctor("postgres://nobody@127.0.0.1:1/none").await;
    assert_eq!(printed.code, Some(2), "{}", printed.stdout);
    assert!(printed.stdout.is_empty());
    assert!(
        printed.stderr.contains("the database cannot be read"),
        "{}",
        printed.stderr
    );
}

#[tokio::test]
async fn whoever_looks_at_a_private_postgres_leaves_it_to_the_gateway_that_runs_on_it() {
    let data_dir = tempfile::tempdir().expect("a directory");
    let mut program = Program::start("serve", data_dir.path(), &[]);
    let console = program.says("Console: ").await;
    let running = || std::fs::read_to_string(data_dir.path().join("postgres/postmaster.pid")).expect("a server runs");
    let before = running();
    // A private one is nothing for production.
    until("the gateway has told of itself, and doctor has read it", async || {
        let printed = run(&["doctor"], data_dir.path(), &[]).await;
        assert_eq!(printed.stderr, "");
        let is_told = printed.stdout.contains("[to do] Postgres of its own: ");
        assert!(!is_told || printed.code == Some(1), "{printed:?}");
        is_told
    })
    .await;
    assert_eq!(running(), before, "the same server");
    let answer = Browser::new(&console).get("/healthz").await;
    assert_eq!(answer.status, 200, "the gateway goes on: {}", answer.text());
    program.signal("TERM").await;
    assert!(program.ends().await.success());

    // Without a gateway it starts one for as long as it looks.
    let printed = run(&["doctor"], data_dir.path(), &[]).await;
    assert!(
        printed.stdout.contains("] Postgres of its own: "),
        "{} {}",
        printed.stdout,
        printed.stderr
    );
    assert!(!data_dir.path().join("postgres/postmaster.pid").exists());
}

#[tokio::test]
async fn whoever_cannot_tell_which_postgres_a_gateway_uses_says_so() {
    let data_dir = tempfile::tempdir().expect("a directory");
    let _taken = DataDir::open(data_dir.path()).expect("a data directory");
    let printed = run(&["doctor"], data_dir.path(), &[]).await;
    assert_eq!(printed.code, Some(2), "{}", printed.stdout);
    assert!(
        printed.stderr.contains("no private Postgres runs there") && printed.stderr.contains("DATABASE_URL"),
        "{}",
        printed.stderr
    );
    assert!(!data_dir.path().join("postgres").exists(), "nothing was made");
}

#[tokio::test]
async fn whoever_only_looks_can_change_nothing() {
    let tollgate = Tollgate::start().await;
    let store = Store::connect_read_only(tollgate.database.url()).expect("a URL");
    assert!(store.find_webhook().await.expect("an answer").is_none());
    let refused = store.delete_expired_links(Utc::now()).await.expect_err("a change");
    assert!(chain(&refused).contains("read-only"), "{refused:?}");
}

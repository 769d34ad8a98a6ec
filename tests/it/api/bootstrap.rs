//! The token that automation brings to a first start: adopted once, for a while, and never shown.

use chrono::{DateTime, Duration, Utc};
use control::management_tokens::{Adopted, LIFETIME_DAYS_DEFAULT};
use domain::management_tokens::TokenText;
use http::Method;
use test_support::http::{Answer, Browser};
use test_support::installation::Installation;
use test_support::postgres;
use test_support::program::Program;
use test_support::tollgate::Tollgate;

async fn tenants(url: &str, token: &str) -> Answer {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let mut browser = Browser::new(url);
    browser
        .send(Method::GET, "/api/v1/tenants", &headers, bytes::Bytes::new())
        .await
}

/// What `tollgate token generate` prints.
async fn generated() -> String {
    let output = Program::run(&["token", "generate"], &[]).await;
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text").trim().to_owned();
    TokenText::parse(&text).expect("a token");
    text
}

#[tokio::test]
async fn a_token_given_at_the_first_start_works_and_no_later_one_does() {
    let (first, second) = (generated().await, generated().await);
    assert_ne!(first, second);
    let database = postgres::database().await;
    let installation = Installation::over(database.url()).await;
    let directory = || tempfile::tempdir().expect("a directory");
    let (one, two, three) = (directory(), directory(), directory());

    let variables = [("TOLLGATE_BOOTSTRAP_TOKEN", first.as_str())];
    let mut program = installation.begin_gateway(one.path(), &variables);
    let url = program.says("Tollgate serves on ").await;
    let said = program.says("The management token ").await;
    let secret = first.rsplit('-').next().expect("a secret");
    assert!(said.contains("is adopted") && !said.contains(secret), "{said}");
    assert_eq!(tenants(&url, &first).await.status, 200);
    let (permissions, expires_at): (i32, DateTime<Utc>) =
        sqlx::query_as("select cardinality(permissions), expires_at from management_tokens")
            .fetch_one(&mut installation.sql().await)
            .await
            .expect("one token");
    assert_eq!(permissions, 23);
    let life = expires_at - Utc::now();
    assert!(life <= Duration::days(i64::from(LIFETIME_DAYS_DEFAULT)) && life > Duration::days(1));

    // The same again means nothing new, and another one means nothing.
    let (_program, url) = installation.gateway(two.path(), &variables).await;
    assert_eq!(tenants(&url, &first).await.status, 200);
    let mut program = installation.begin_gateway(three.path(), &[("TOLLGATE_BOOTSTRAP_TOKEN", second.as_str())]);
    let url = program.says("Tollgate serves on ").await;
    let said = program.says("The management token ").await;
    assert!(said.contains("means nothing"), "{said}");
    assert_eq!(tenants(&url, &second).await.status, 401);
    let noted: Vec<(String, String)> =
        sqlx::query_as("select action, actor from audit_log where subject like 'management_token:%'")
            .fetch_all(&mut installation.sql().await)
            .await
            .expect("notes");
    assert_eq!(noted, [("management_token.adopt".to_owned(), "first start".to_owned())]);
}

#[tokio::test]
async fn a_token_that_is_mistyped_stops_the_start_and_is_not_shown() {
    let mut mistyped = generated().await;
    let last = if mistyped.ends_with('0') { '1' } else { '0' };
    mistyped.pop();
    mistyped.push(last);
    let data_dir = tempfile::tempdir().expect("a directory");
    let data_dir = data_dir.path().to_str().expect("a path");
    for (arguments, variables) in [
        (
            vec!["serve", "--data-dir", data_dir],
            vec![("TOLLGATE_BOOTSTRAP_TOKEN", mistyped.as_str())],
        ),
        (
            vec!["serve", "--data-dir", data_dir, "--bootstrap-token", &mistyped],
            vec![],
        ),
        (
            vec!["serve", "--help"],
            vec![("TOLLGATE_BOOTSTRAP_TOKEN", mistyped.as_str())],
        ),
    ] {
        let output = Program::run(&arguments, &variables).await;
        assert_eq!(output.status.success(), arguments.contains(&"--help"), "{arguments:?}");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("TOLLGATE_BOOTSTRAP_TOKEN"), "{said}");
        assert!(!said.contains(&mistyped[16..]), "{said}");
    }
}

#[tokio::test]
async fn a_token_that_was_revoked_is_not_adopted_again() {
    let tollgate = Tollgate::start().await;
    let control = tollgate.control();
    let text = TokenText::parse(&generated().await).expect("a token");
    let now = Utc::now();
    assert!(matches!(
        control.adopt_management_token(&text, now).await.expect("an answer"),
        Adopted::Now(_)
    ));
    let tokens = control.management_tokens(&tollgate.actor(), now).await.expect("tokens");
    let revoked = control
        .revoke_management_token(&tollgate.actor(), tokens[0].id, now)
        .await;
    revoked.expect("revoked");
    let again = control.adopt_management_token(&text, now).await.expect("an answer");
    assert_eq!(again, Adopted::Before);
    assert_eq!(tenants(&tollgate.url(), text.reveal()).await.status, 401);
}

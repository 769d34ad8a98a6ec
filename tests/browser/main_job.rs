//! The main job in a browser, with scripts and without: sign in, issue a key, use it, find the call, take the month away.

use std::time::{Duration, Instant};

use domain::money::Nanos;
use test_support::console::{OPERATOR, PASSWORD};

use crate::chromium::{Chromium, Scripts};
use crate::installation;

/// A change is in force within a second; a slow machine gets some more.
const IN_FORCE_WITHIN: Duration = Duration::from_secs(5);
/// The part of a page that holds the secret and its button.
const SECRET_COPY: &str = "leptos-island .copy";

#[tokio::test]
async fn a_browser_does_the_main_job() {
    main_job(Scripts::On).await;
}

#[tokio::test]
async fn a_browser_without_scripts_does_the_main_job() {
    main_job(Scripts::Off).await;
}

async fn main_job(scripts: Scripts) {
    let tollgate = installation::start().await;
    let chromium = Chromium::start(&tollgate.url(), scripts).await;

    chromium.sign_in(OPERATOR, PASSWORD).await;

    // A key, and its secret.
    chromium.go("/keys").await;
    chromium
        .click("main a[href^='/keys/new']", "form[action='/keys/new']")
        .await;
    chromium.choose("/keys/new", "tenant", "Research").await;
    chromium.send("/keys/new", "form[action='/console/keys/issue']").await;
    chromium.fill("/console/keys/issue", "name", "notebook").await;
    let secret = chromium.send("/console/keys/issue", "#secret").await;
    let key = secret.text().await.expect("the secret");
    copy(&chromium, scripts, &key).await;
    chromium.open("/keys/issued").await;
    assert!(!chromium.source().await.contains(&key), "the secret is shown twice");

    // A call, and its entry.
    let started = Instant::now();
    while tollgate.chat(&key, "Hello. [[sim: tokens=25]]").await.status != 200 {
        assert!(started.elapsed() < IN_FORCE_WITHIN, "the key is not in force");
    }
    tollgate.shipped().await;
    chromium.go("/ledger").await;
    let row = chromium.find("main tbody tr").await.text().await.expect("the row");
    assert!(row.contains("completed") && row.contains("notebook"), "{row}");
    assert_eq!(chromium.count("main tbody tr").await, 1);
    chromium.click("main tbody tr a[href^='/ledger/']", "main dl dd").await;
    let cost = chromium.fact("Cost").await;
    let cost: Nanos = cost.trim_start_matches("USD").trim().parse().expect("an amount");
    assert!(cost > Nanos::ZERO);

    // The month, taken away.
    chromium.go("/reports").await;
    let button = chromium.find("a[href^='/reports/monthly.csv']").await;
    button.click().await.expect("a click");
    let (name, file) = chromium.downloaded().await;
    assert!(name.starts_with("tollgate-usage-"), "{name}");
    let mut reader = csv::Reader::from_reader(file.as_slice());
    let columns = reader.headers().expect("a header").clone();
    let lines: Vec<csv::StringRecord> = reader.records().map(|line| line.expect("a line")).collect();
    let cell = |line: usize, name: &str| {
        let column = columns.iter().position(|column| column == name).expect("the column");
        lines[line][column].to_owned()
    };
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(
        (cell(0, "tenant"), cell(0, "requests")),
        ("Research".to_owned(), "1".to_owned())
    );
    for line in 0..2 {
        assert_eq!(cell(line, "charged_usd"), cost.to_decimal(9));
    }

    // The other rooms, and out.
    for place in [
        "/",
        "/tenants",
        "/models",
        "/upstreams",
        "/people",
        "/connect",
        "/status",
    ] {
        chromium.go(place).await;
    }
    chromium
        .send("/console/sign-out", "form[action='/console/sign-in']")
        .await;
    chromium.end().await;
}

/// With scripts the island comes to life and copies; without them there is no button that does nothing.
async fn copy(chromium: &Chromium, scripts: Scripts, key: &str) {
    let button = format!("{SECRET_COPY} button");
    if scripts == Scripts::Off {
        assert!(!chromium.find(&button).await.is_displayed().await.expect("an answer"));
        return;
    }
    chromium.wait_until_shown(&button).await.click().await.expect("a click");
    chromium
        .wait_for_text(&format!("{SECRET_COPY} [role='status']"), "Copied")
        .await;
    assert_eq!(chromium.clipboard().await, key);
}

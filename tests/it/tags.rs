//! Callers' tags in the console: reports by their values, and the requests behind a value.

use bytes::Bytes;
use control::limits::NodeLimits;
use domain::people::Role;
use http::Method;
use test_support::console::Window;
use test_support::tollgate::{Tollgate, chat_body};

/// A request with these tags.
async fn chat(tollgate: &Tollgate, key: &str, tags: &str) {
    let authorization = format!("Bearer {key}");
    let headers = [
        ("authorization", authorization.as_str()),
        ("content-type", "application/json"),
        ("x-tollgate-tags", tags),
    ];
    let body = Bytes::from(chat_body("Hello.").to_string());
    let answer = tollgate
        .browser()
        .send(Method::POST, "/v1/chat/completions", &headers, body)
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test]
async fn a_month_is_divided_by_the_values_of_a_tag() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let mut operator = Window::operator(&tollgate).await;
    let page = operator.visit("/reports").await;
    assert!(!page.content().contains("By a tag instead"), "there is none yet");
    for tags in [
        "project=search,cost_centre=42",
        "project=search",
        "project=",
        "cost_centre=42",
    ] {
        chat(&tollgate, &key, tags).await;
    }
    tollgate.shipped().await;

    let page = operator.visit("/reports").await;
    let requests = page.table(&["Tenant", "Requests", "Cost"]);
    let form = page.form("/reports");
    assert_eq!(form.options("tag"), ["None", "cost_centre", "project"]);
    let page = operator.send(&form.choose("tag", "project")).await;
    assert!(page.heading().ends_with("by project"), "{}", page.heading());
    let table = page.table(&["Value", "Requests", "Cost"]);
    let mut values = table.column("Value");
    values.sort();
    assert_eq!(values, ["(empty)", "Without project", "search"]);
    assert_eq!(table.cell("search", "Requests"), "2");
    assert_eq!(table.cell("Without project", "Requests"), "1");
    for column in ["Requests", "Failed", "Input", "From cache", "Output", "Cost"] {
        assert_eq!(table.sum(column), requests.sum(column), "{column}");
    }

    let csv = page.link("Download CSV");
    let previous = page
        .links()
        .into_iter()
        .find(|link| link.contains("tag=project") && !link.contains("csv"));
    assert!(previous.is_some(), "the month before is divided by the tag, too");
    let behind = table.links[table.rows.iter().position(|row| row[0] == "search").unwrap()].clone();
    let file = operator.visit(&csv).await;
    assert_eq!(file.status, 200);
    let lines: Vec<&str> = file.source.lines().collect();
    assert_eq!(lines.len(), 5, "{lines:?}");
    assert!(lines[4].starts_with("total,3,"), "{}", lines[4]);

    let entries = operator.visit(&behind).await.table(&["Time", "Ending"]);
    assert_eq!(entries.rows.len(), 2);
    let form = operator.visit("/ledger").await.form("/ledger");
    let page = operator.send(&form.clone().fill("tag", "cost_centre=42")).await;
    assert_eq!(page.table(&["Time", "Ending"]).rows.len(), 2);
    let page = operator.send(&form.clone().fill("tag", "cost_centre=4")).await;
    assert!(page.content().contains("No entry matches."));
    let page = operator.send(&form.fill("tag", "project")).await;
    assert!(page.content().contains("such as project=search"), "{}", page.content());

    let mut manager = Window::person(&tollgate, Role::Manager, Some(tenant)).await;
    let table = manager
        .visit("/reports?tag=cost_centre")
        .await
        .table(&["Value", "Requests"]);
    assert_eq!(table.cell("42", "Requests"), "2");
    let other = tollgate.tenant("Other", NodeLimits::default()).await;
    let mut stranger = Window::person(&tollgate, Role::Member, Some(other)).await;
    let page = stranger.visit("/reports?tag=project").await;
    assert!(page.content().contains("No request ran in this month."));
    let file = stranger.visit("/reports/monthly.csv?tag=project").await;
    assert_eq!(
        file.source.lines().count(),
        3,
        "the header, nothing without it, and the total"
    );
    let address = format!("/reports?tag=project&tenant={tenant}");
    assert_eq!(stranger.visit(&address).await.status, 403);
}

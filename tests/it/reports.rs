//! The monthly report in the console: beside the month before and the budgets, by theme, and down to what rows are made of.

use chrono::{Duration, Utc};
use control::limits::NodeLimits;
use domain::limits::{Class, Dimension, Target};
use domain::money::Nanos;
use domain::periods::Month;
use domain::prices::Rates;
use test_support::console::Window;
use test_support::html::Page;
use test_support::tollgate::{CHAT_PATH, Tollgate, chat_body, limit};

const DEAR: &str = "dear";

/// Money of a cell.
fn money(text: &str) -> f64 {
    let digits: String = text
        .chars()
        .filter(|character| character.is_ascii_digit() || *character == '.')
        .collect();
    digits.parse().unwrap_or_else(|_| panic!("no amount: {text:?}"))
}

/// Copies what ran this month into the month before.
async fn run_last_month_too(tollgate: &Tollgate) {
    let before = Month::containing(Utc::now(), chrono_tz::UTC)
        .previous()
        .span(chrono_tz::UTC);
    let copy = "insert into settlements
        select (jsonb_populate_record(null::settlements, to_jsonb(settlements)
            || jsonb_build_object('id', gen_random_uuid(), 'admitted_at', $1::timestamptz))).*
        from settlements";
    sqlx::query(copy)
        .bind(before.start + Duration::hours(30))
        .execute(&mut tollgate.sql().await)
        .await
        .expect("a copy");
    tollgate.running.store.rebuild_rollups(before).await.expect("roll-ups");
}

/// A model of which a request costs two units and more.
async fn dear_model(tollgate: &Tollgate) {
    let upstream = tollgate.upstream("Dear", &tollgate.simulator.base_url()).await;
    let rates = Rates::flat(1_000_000_000_000, 2_000_000_000_000);
    tollgate.model(DEAR, upstream, Some(rates)).await;
    tollgate.in_force().await;
}

async fn chat(tollgate: &Tollgate, key: &str, times: usize) {
    let mut body = chat_body("Hello. [[sim: tokens=1000]]");
    body["model"] = DEAR.into();
    for _ in 0..times {
        let answer = tollgate.browser().post_json(CHAT_PATH, key, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

fn tab(page: &Page, name: &str) -> String {
    page.link(name)
}

#[tokio::test]
async fn a_month_stands_beside_the_month_before_and_the_budgets() {
    let tollgate = Tollgate::start().await;
    dear_model(&tollgate).await;
    let budget = NodeLimits {
        monthly_cost: Some(Nanos::from_units(100)),
        ..NodeLimits::default()
    };
    let (_, rich) = tollgate.named_tenant_with_key("Rich", budget).await;
    let (free, plain) = tollgate.named_tenant_with_key("Free", NodeLimits::default()).await;
    tollgate
        .set_limit(
            Target::OfTenant(free, Class::Key),
            0,
            &limit(Dimension::BudgetCost, 40_000_000_000),
        )
        .await;
    chat(&tollgate, &rich, 2).await;
    chat(&tollgate, &plain, 1).await;
    tollgate.shipped().await;
    run_last_month_too(&tollgate).await;
    chat(&tollgate, &rich, 2).await;
    tollgate.shipped().await;

    let mut operator = Window::operator(&tollgate).await;
    let page = operator.visit("/reports").await;
    let table = page.table(&["Tenant", "Charged", "Change", "Budget", "Used"]);
    let charged = money(&table.cell("Rich", "Charged"));
    assert_eq!(table.cell("Rich", "Change"), "+100 %");
    assert_eq!(table.cell("Free", "Change"), "0 %");
    assert_eq!(money(&table.cell("Rich", "Budget")), 100.0);
    assert_eq!(table.cell("Rich", "Used"), format!("{} %", charged.floor()));
    assert_eq!(
        table.cell("Free", "Budget"),
        "",
        "each of its keys has one, it has none itself"
    );
    assert!(page.content().contains("Charged by day"));

    let by_money = tab(page, "Money and budgets");
    let by_key = format!("{by_money}&by=key");
    let table = operator
        .visit(&by_money)
        .await
        .table(&["Tenant", "Month before", "Change", "Estimate off by"]);
    let difference = money(&table.cell("Rich", "Month before")) * 2.0 - charged;
    assert!(difference.abs() < 0.02, "half as much ran: {difference}");
    let table = operator
        .visit(&by_key.replace("by=tenant", ""))
        .await
        .table(&["Key", "Budget", "Used"]);
    let row = table.rows.iter().find(|row| row[0] == "Free").expect("its key");
    assert!(row.iter().any(|cell| cell == "40.00"), "its class has it: {row:?}");
    let row = table.rows.iter().find(|row| row[0] == "Rich").expect("its key");
    assert!(
        !row.iter().any(|cell| cell == "100.00"),
        "a tenant's budget is not its key's: {row:?}"
    );

    // The file says the same, row by row, whichever figures the page shows.
    let page = operator.visit(&by_money).await;
    let file = page.link("Download CSV");
    let file = operator.visit(&file).await;
    let mut reader = csv::Reader::from_reader(file.source.as_bytes());
    let header = reader.headers().expect("a header").clone();
    let at = |name: &str| header.iter().position(|column| column == name).expect(name);
    let lines: Vec<csv::StringRecord> = reader.records().map(|line| line.expect("a line")).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(&lines[0][at("tenant")], "Rich");
    let amount = |name: &str| money(&lines[0][at(name)]);
    assert_eq!(amount("month_before_charged_usd") * 2.0, amount("charged_usd"));
    assert_eq!(&lines[0][at("budget_usd")], "100.000000000");
    assert_eq!(&lines[0][at("month_before_requests")], "2");
    assert_eq!(&lines[2][at("row")], "total");
    assert_eq!(&lines[2][at("month_before_requests")], "3");

    // Whoever has gone stands beside what there was of them.
    let next = Month::containing(Utc::now(), chrono_tz::UTC).next();
    let page = operator.visit(&format!("/reports?month={next}&show=money")).await;
    let table = page.table(&["Tenant", "Charged", "Month before", "Change"]);
    assert_eq!(table.cell("Rich", "Change"), "\u{2212}100 %");
    assert_eq!(money(&table.cell("Rich", "Month before")), charged);
    let later = next.next();
    let page = operator.visit(&format!("/reports?month={later}")).await;
    assert!(
        page.content().contains("Nothing happened in this month."),
        "{}",
        page.content()
    );
}

#[tokio::test]
async fn rows_lead_to_what_they_are_made_of_and_filters_can_be_taken_away() {
    let tollgate = Tollgate::start().await;
    dear_model(&tollgate).await;
    let (tenant, key) = tollgate.named_tenant_with_key("Acme", NodeLimits::default()).await;
    let (_, other) = tollgate.named_tenant_with_key("Other", NodeLimits::default()).await;
    chat(&tollgate, &key, 2).await;
    chat(&tollgate, &other, 1).await;
    for _ in 0..3 {
        let refused = tollgate
            .browser()
            .post_json(CHAT_PATH, &key, &serde_json::json!({"model": "nope", "messages": []}))
            .await;
        assert_eq!(refused.code(), "model_not_found");
    }
    tollgate.running.gateway.book_folded();
    tollgate.shipped().await;
    let mut operator = Window::operator(&tollgate).await;

    let reasons = tab(operator.visit("/reports").await, "Refused, by reason");
    let table = operator
        .visit(&reasons)
        .await
        .table(&["Tenant", "Refused", "model not found"]);
    assert_eq!(
        (table.cell("Acme", "model not found"), table.cell("Other", "Refused")),
        ("3".to_owned(), "0".to_owned())
    );
    let service = tab(&operator.page, "Latency and failures");
    let table = operator.visit(&service).await.table(&[
        "Tenant",
        "Failed",
        "First byte, median",
        "Duration, median",
        "Wait, mean",
    ]);
    assert!(table.cell("Acme", "Duration, median").contains('s'), "{:?}", table.rows);
    let tokens = tab(&operator.page, "Tokens");
    let table = operator
        .visit(&tokens)
        .await
        .table(&["Tenant", "Fresh input", "Output", "Of it reasoning", "All"]);
    assert_eq!(table.sum("Output"), "3,000");

    // From the tenant to its keys, from the key to its models; each narrows what is shown.
    let page = operator.visit("/reports").await;
    let keys = page.link("Acme");
    assert!(
        keys.contains(&format!("tenant={tenant}")) && keys.contains("by=key"),
        "{keys}"
    );
    let page = operator.visit(&keys).await;
    assert_eq!(page.table(&["Key", "Requests"]).sum("Requests"), "2");
    let models = page
        .links()
        .into_iter()
        .find(|link| link.contains("&key="))
        .expect("its key leads on");
    let page = operator.visit(&models).await;
    let table = page.table(&["Model", "Requests"]);
    assert_eq!(table.cell(DEAR, "Requests"), "2");
    assert!(page.content().contains("Only Key:"), "{}", page.content());
    let file = page.link("Download CSV");
    assert!(file.contains("&key="), "the file is narrowed as the page is");
    let form = page.form("/reports");
    let page = operator.send(&form).await;
    assert_eq!(
        page.table(&["Model", "Requests"]).sum("Requests"),
        "2",
        "the form keeps what it has no field for"
    );
    let all = page.link("remove");
    let page = operator.visit(&all).await;
    assert!(!page.content().contains("Only Key:"));

    for wrong in ["key=1", "priority=urgent", "month=2026-13", "tenant=x"] {
        let page = operator.visit(&format!("/reports?{wrong}")).await;
        assert_eq!((page.status.as_u16(), page.notices().len()), (200, 1), "{wrong}");
        let file = operator.visit(&format!("/reports/monthly.csv?{wrong}")).await;
        assert_eq!(file.status, 400, "no file of something else: {wrong}");
    }
}

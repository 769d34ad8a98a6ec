//! What was expected of requests beside what they used, as the console shows it.

use chrono::Utc;
use control::limits::NodeLimits;
use control::lookback::Lookback;
use control::reports::ReportFilter;
use domain::people::Role;
use domain::reports::Estimated;
use test_support::console::Window;
use test_support::tollgate::{MODEL, Tollgate};

const PATH: &str = "/reports/estimates";
const COLUMNS: [&str; 3] = ["Model", "Requests", "Input tokens"];

#[tokio::test]
async fn estimates_are_compared_with_use_by_model_for_those_concerned() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let other = tollgate.tenant("Other", NodeLimits::default()).await;
    let mut operator = Window::operator(&tollgate).await;
    let page = operator.visit(PATH).await;
    assert!(page.content().contains("No request has ended in this time."));
    let model_page = format!("/models/edit?name={MODEL}");
    let page = operator.visit(&model_page).await;
    assert!(
        page.content()
            .contains("No request for this model has ended in the last 30 days.")
    );

    for _ in 0..2 {
        assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
    }
    tollgate.shipped().await;
    let actor = tollgate.actor();
    let now = Utc::now();
    let estimates = tollgate
        .control()
        .estimates(&actor, &ReportFilter::default(), Lookback::Day, now)
        .await
        .expect("the estimates");
    let entries = tollgate
        .control()
        .settlements(&actor, &Default::default(), None, 10)
        .await;
    let entries = entries.expect("the entries").entries;
    let sum = |part: fn(&domain::ledger::Settlement) -> u64| entries.iter().map(|named| part(&named.entry)).sum();
    assert_eq!(estimates.all.requests, 2);
    assert_eq!(
        estimates.all.input,
        Estimated {
            expected: sum(|entry| entry.expected_input_tokens),
            used: sum(|entry| entry.usage.input_tokens()),
        }
    );
    assert_eq!(
        estimates.all.output,
        Estimated {
            expected: sum(|entry| entry.expected_output_tokens),
            used: sum(|entry| entry.usage.output_tokens),
        }
    );

    let page = operator.visit(&format!("{PATH}?back=week")).await;
    let table = page.table(&COLUMNS);
    assert_eq!(table.cell(MODEL, "Requests"), "2");
    assert!(table.cell(MODEL, "Input tokens").contains('/'), "{table:?}");
    assert_eq!(table.sum("Requests"), "2");
    let page = operator.visit(&model_page).await;
    assert_eq!(page.table(&["Time", "Requests"]).column("Requests"), ["2", "2", "2"]);

    let mut manager = Window::person(&tollgate, Role::Manager, Some(tenant)).await;
    assert_eq!(manager.visit(PATH).await.table(&COLUMNS).column("Requests"), ["2"]);
    manager.sign_out().await;
    let mut stranger = Window::person(&tollgate, Role::Member, Some(other)).await;
    let page = stranger.visit(PATH).await;
    assert!(
        page.content().contains("No request has ended in this time."),
        "{}",
        page.content()
    );
}

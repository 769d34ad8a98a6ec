//! Tables keep their order, search and page in the address, and say their order to those who do not see it.

use control::limits::NodeLimits;
use domain::money::Nanos;
use test_support::console::Window;
use test_support::html::Page;
use test_support::tollgate::Tollgate;

fn names(page: &Page) -> Vec<String> {
    page.find_table(&["Name"])
        .map(|table| table.column("Name"))
        .unwrap_or_default()
}

async fn with_tenants(count: u32) -> (Tollgate, Window) {
    let tollgate = Tollgate::start().await;
    let operator = Window::operator(&tollgate).await;
    for number in 0..count {
        let limits = NodeLimits {
            // Not in the order of the names.
            monthly_cost: (number % 3 > 0).then(|| Nanos::from_units(i64::from(number % 7))),
            ..NodeLimits::default()
        };
        tollgate.tenant(&format!("T{number:03}"), limits).await;
    }
    (tollgate, operator)
}

#[tokio::test]
async fn headings_order_a_table_there_and_back_and_say_so() {
    let (_tollgate, mut operator) = with_tenants(9).await;
    let page = operator.visit("/tenants").await;
    let in_order = names(page);
    assert_eq!(page.texts("th[aria-sort=ascending]"), ["Name"]);
    let link = page.link("Name");
    let page = operator.visit(&link).await;
    assert_eq!(page.texts("th[aria-sort=descending]"), ["Name"]);
    assert_eq!(names(page), in_order.iter().rev().cloned().collect::<Vec<_>>());

    let link = page.link("Budget");
    let page = operator.visit(&link).await;
    assert_eq!(page.texts("th[aria-sort]"), ["Budget"]);
    let budgets = page.table(&["Budget"]).column("Budget");
    assert_eq!(
        budgets,
        [
            "none", "none", "none", "USD 0.00", "USD 1.00", "USD 1.00", "USD 2.00", "USD 4.00", "USD 5.00"
        ]
    );
    // Those alike keep their order, in both directions.
    assert_eq!(names(page)[..3], ["T000", "T003", "T006"]);
    let link = page.link("Budget");
    let page = operator.visit(&link).await;
    assert_eq!(names(page)[6..], ["T000", "T003", "T006"]);
    for wrong in ["sort=colour", "sort=name&dir=up", "page=two"] {
        assert_eq!(
            operator.visit(&format!("/tenants?{wrong}")).await.status,
            404,
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn a_search_keeps_the_order_and_is_kept_by_it() {
    let (tollgate, mut operator) = with_tenants(9).await;
    tollgate.tenant("Sales & more", NodeLimits::default()).await;
    let form = operator.visit("/tenants?sort=name&dir=desc").await.form("/tenants");
    let page = operator.send(&form.fill("find", "t00")).await;
    assert_eq!(names(page).len(), 9);
    assert_eq!(names(page)[0], "T008");
    assert!(page.content().contains("9 of 10 tenants"), "{}", page.content());
    let link = page.link("Spent");
    let page = operator.visit(&link).await;
    assert_eq!(names(page).len(), 9, "the search stays");
    assert_eq!(page.form("/tenants").value("find"), "t00");
    let form = page.form("/tenants").fill("find", "MORE sales &");
    assert_eq!(names(operator.send(&form).await), ["Sales & more"]);
    let page = operator.visit("/tenants?find=nobody").await;
    assert!(
        page.content().contains("None of the 10 tenants matches."),
        "{}",
        page.content()
    );
    let all = page.link("Show all");
    assert_eq!(names(operator.visit(&all).await).len(), 10);
}

#[tokio::test]
async fn a_long_list_has_pages_that_follow_each_other() {
    let (_tollgate, mut operator) = with_tenants(103).await;
    let page = operator.visit("/tenants?sort=name&dir=desc").await;
    assert_eq!(names(page).len(), 100);
    assert!(page.content().contains("Page 1 of 2"));
    let link = page.link("Next page");
    let page = operator.visit(&link).await;
    assert_eq!(names(page), ["T002", "T001", "T000"]);
    let link = page.link("Previous page");
    let page = operator.visit(&link).await;
    assert_eq!(names(page)[0], "T102");
    // A page that is no more is the last one.
    assert_eq!(names(operator.visit("/tenants?page=99").await).len(), 3);
}

#[tokio::test]
async fn every_bounded_list_can_be_ordered() {
    let (_tollgate, mut operator) = with_tenants(1).await;
    for (address, sorts) in [
        (
            "/tenants",
            vec!["name", "state", "plan", "priority", "spent", "budget", "used", "tokens"],
        ),
        (
            "/models",
            vec![
                "name",
                "state",
                "group",
                "context",
                "output_cap",
                "input",
                "output",
                "routes",
            ],
        ),
        (
            "/upstreams",
            vec!["name", "state", "dialect", "address", "credential", "since"],
        ),
        ("/people", vec!["name", "email", "role", "tenant", "state", "signed_in"]),
    ] {
        for sort in sorts {
            for dir in ["asc", "desc"] {
                let page = operator.visit(&format!("{address}?sort={sort}&dir={dir}")).await;
                assert_eq!(page.status, 200, "{address} by {sort}");
                assert_eq!(page.texts("th[aria-sort]").len(), 1, "{address} by {sort}");
            }
        }
    }
}

#[tokio::test]
async fn each_value_of_a_table_that_becomes_lists_in_a_narrow_window_says_its_column() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
    tollgate.shipped().await;
    for (address, count) in [("/audit", 7), ("/ledger", 9)] {
        let page = operator.visit(address).await;
        assert_eq!(page.texts(".table-stacked").len(), 1, "{address}");
        let columns = page.table(&["Time"]).columns;
        assert_eq!(columns.len(), count, "{address}");
        for (place, column) in columns.iter().enumerate() {
            let cell = format!(
                "tbody > tr:first-child > :nth-child({})[data-label='{column}']",
                place + 1
            );
            assert_eq!(page.texts(&cell).len(), 1, "{address}: {column}");
        }
    }
}

//! The report as JSON: rows in order, sums at the end, and no end without all of it.

use domain::reports::MonthState;
use futures_util::stream::{self, StreamExt};
use proptest::prelude::*;
use store::StoreError;

use super::*;

fn row(model: &str, cost: i64) -> ReportRow {
    ReportRow {
        tenant_id: None,
        tenant_name: None,
        user_id: None,
        user_name: None,
        key_id: None,
        key_name: None,
        key_public_id: None,
        model: Some(model.to_owned()),
        priority: None,
        totals: Totals {
            requests: 1,
            cost: Nanos(cost),
            ..Totals::default()
        },
        before: Before::default(),
        budget: Some(Nanos(4 * cost)),
    }
}

async fn collected(rows: Vec<Result<ReportRow, StoreError>>, cost: i64) -> (String, bool) {
    let report = ReportStream {
        totals: Totals {
            cost: Nanos(cost),
            ..Totals::default()
        },
        before: Before::default(),
        completeness: Completeness {
            state: MonthState::Open,
            complete_until: "2026-11-15T12:00:00Z".parse().unwrap(),
            waiting_for: Vec::new(),
        },
        rows: stream::iter(rows).boxed(),
    };
    let head = Head {
        month: "2026-11".parse().unwrap(),
        time_zone: "Europe/Berlin".to_owned(),
        currency: "EUR".to_owned(),
    };
    let by_model = Grouping {
        model: true,
        ..Grouping::NONE
    };
    let mut pieces = usage(&head, by_model, report);
    let (mut bytes, mut has_failed) = (Vec::new(), false);
    while let Some(piece) = pieces.next().await {
        match piece {
            Ok(piece) => bytes.extend(piece),
            Err(_) => has_failed = true,
        }
    }
    (String::from_utf8(bytes).unwrap(), has_failed)
}

#[tokio::test]
async fn it_says_what_it_is_about_and_has_every_figure() {
    let (text, has_failed) = collected(vec![Ok(row("a \"quoted\" one", 7)), Ok(row("b", 1))], 8).await;
    assert!(!has_failed);
    let report: Value = serde_json::from_str(&text).unwrap();
    for (name, value) in [
        ("month", json!("2026-11")),
        ("time_zone", json!("Europe/Berlin")),
        ("currency", json!("EUR")),
        ("state", json!("open")),
        ("by", json!(["model"])),
        ("row_count", json!(2)),
    ] {
        assert_eq!(report[name], value, "{name}");
    }
    let first = &report["rows"][0];
    assert_eq!(first["model"], "a \"quoted\" one");
    assert_eq!(first["cost"], "0.000000007");
    assert_eq!(first["budget_share_percent"], 25.0);
    assert!(first.get("tenant").is_none(), "it is not divided by tenant");
    assert_eq!(report["totals"]["charged"], "0.000000008");
    // Whoever reads it piece by piece finds the sums last.
    assert!(text.find("\"totals\"") > text.rfind("\"model\""));
}

#[tokio::test]
async fn a_report_without_rows_is_a_whole_one() {
    let (text, _) = collected(Vec::new(), 0).await;
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&report["rows"], &report["row_count"]), (&json!([]), &json!(0)));
}

#[tokio::test]
async fn a_report_that_breaks_off_is_no_json() {
    let broken = StoreError::Value { column: "any" };
    let (text, has_failed) = collected(vec![Ok(row("a", 1)), Err(broken)], 1).await;
    assert!(has_failed);
    assert!(!text.contains("totals"), "{text}");
    assert!(serde_json::from_str::<Value>(&text).is_err(), "{text}");
}

proptest! {
    #[test]
    fn rows_keep_their_order_and_add_up(costs in prop::collection::vec(0_i64..1_000_000_000_000, 0..700)) {
        let rows = costs.iter().enumerate().map(|(at, cost)| Ok(row(&at.to_string(), *cost))).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (text, _) = runtime.block_on(collected(rows, costs.iter().sum()));
        let report: Value = serde_json::from_str(&text).unwrap();
        let amount = |value: &Value| value["cost"].as_str().unwrap().parse::<Nanos>().unwrap();
        let read: Vec<i64> = report["rows"].as_array().unwrap().iter().map(|row| amount(row).0).collect();
        prop_assert_eq!(&read, &costs);
        prop_assert_eq!(amount(&report["totals"]).0, costs.iter().sum::<i64>());
        prop_assert_eq!(&report["row_count"], costs.len());
    }
}

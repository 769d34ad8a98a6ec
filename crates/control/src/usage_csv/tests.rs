use domain::ids::TenantId;
use domain::reports::MonthState;
use domain::usage::TokenUsage;
use futures_util::stream::{self, StreamExt};
use uuid::Uuid;

use super::*;

const BY_TENANT: Grouping = Grouping {
    tenant: true,
    ..Grouping::NONE
};

fn totals(requests: u64, cost: i64) -> Totals {
    Totals {
        requests,
        cost: Nanos(cost),
        usage: TokenUsage {
            input_fresh_tokens: 10 * requests,
            output_tokens: requests,
            ..TokenUsage::default()
        },
        ..Totals::default()
    }
}

fn row(tenant_name: &str, totals: Totals) -> ReportRow {
    ReportRow {
        tenant_id: Some(TenantId(Uuid::nil())),
        tenant_name: Some(tenant_name.to_owned()),
        user_id: None,
        user_name: None,
        key_id: None,
        key_name: None,
        key_public_id: None,
        model: None,
        priority: None,
        totals,
        before: Before::default(),
        budget: None,
    }
}

async fn collected(rows: Vec<Result<ReportRow, StoreError>>, all: Totals) -> (String, bool) {
    let report = ReportStream {
        totals: all,
        before: Before::default(),
        completeness: Completeness {
            state: MonthState::Open,
            complete_until: "2026-11-15T12:00:00Z".parse().unwrap(),
            waiting_for: Vec::new(),
        },
        rows: stream::iter(rows).boxed(),
    };
    let mut csv = UsageCsv::new("2026-11".parse().unwrap(), BY_TENANT, "USD", report);
    let mut bytes = Vec::new();
    let mut failed = false;
    while let Some(chunk) = csv.bytes.next().await {
        match chunk {
            Ok(chunk) => bytes.extend(chunk),
            Err(_) => failed = true,
        }
    }
    (String::from_utf8(bytes).unwrap(), failed)
}

#[tokio::test]
async fn rows_are_numbered_and_the_last_line_has_totals_and_their_number() {
    let rows = vec![
        Ok(row("Acme", totals(2, 1_500_000_000))),
        Ok(row("Zoë & \"Co\"", totals(1, 1))),
    ];
    let (text, failed) = collected(rows, totals(3, 1_500_000_001)).await;
    assert!(!failed);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().unwrap().clone();
    let at = |name: &str| header.iter().position(|column| column == name).expect(name);
    let lines: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(&lines[0][at("row")], "1");
    assert_eq!(&lines[0][at("tenant")], "Acme");
    assert_eq!(&lines[0][at("cost_usd")], "1.500000000");
    assert_eq!(&lines[1][at("tenant")], "Zoë & \"Co\"");
    assert_eq!(&lines[1][at("charged_usd")], "0.000000001");
    assert_eq!(&lines[2][at("row")], "total");
    assert_eq!(&lines[2][at("rows")], "2");
    assert_eq!(&lines[2][at("requests")], "3");
    assert_eq!(&lines[2][at("input_fresh_tokens")], "30");
    assert_eq!(&lines[2][at("cost_usd")], "1.500000001");
    assert_eq!(&lines[2][at("month_state")], "open");
    assert_eq!(&lines[2][at("complete_until")], "2026-11-15T12:00:00Z");
    assert!(text.ends_with("\r\n"));
}

#[tokio::test]
async fn refusals_have_a_column_for_each_reason_and_figures_that_nobody_has_are_empty() {
    let mut some = totals(4, 2_000_000_000);
    some.expected_cost = Nanos(2_500_000_000);
    some.refusals = [("rate_limit_exceeded".to_owned(), 7), ("replayed".to_owned(), 5)].into();
    some.total_latencies.0[3] = 4;
    some.queue_ms = 10;
    let mut measured = row("Acme", some.clone());
    measured.budget = Some(Nanos(8_000_000_000));
    measured.before = Before {
        requests: 3,
        charged: Nanos(1_000_000_000),
    };
    let (text, _) = collected(vec![Ok(measured), Ok(row("Empty", Totals::default()))], some).await;
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().unwrap().clone();
    let at = |name: &str| header.iter().position(|column| column == name).expect(name);
    let lines: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let cells = |line: usize, names: &[&str]| {
        names
            .iter()
            .map(|name| lines[line][at(name)].to_owned())
            .collect::<Vec<_>>()
    };
    let columns = [
        "estimate_error_percent",
        "budget_usd",
        "budget_share_percent",
        "month_before_requests",
        "month_before_charged_usd",
        "first_byte_ms_p50",
        "total_ms_p50",
        "mean_queue_ms",
        "refused_rate_limit_exceeded",
        "refused_budget_exhausted",
    ];
    assert_eq!(
        cells(0, &columns),
        [
            "25.0",
            "8.000000000",
            "25.0",
            "3",
            "1.000000000",
            "",
            "75",
            "2",
            "7",
            "0"
        ]
    );
    assert_eq!(
        cells(1, &columns),
        ["", "", "", "0", "0.000000000", "", "", "", "0", "0"]
    );
    assert!(!header.iter().any(|column| column == "refused_replayed"));
}

#[tokio::test]
async fn a_report_that_breaks_off_has_no_line_of_totals() {
    let broken = StoreError::Value { column: "any" };
    let (text, failed) = collected(vec![Ok(row("Acme", totals(1, 1))), Err(broken)], totals(2, 2)).await;
    assert!(failed);
    assert!(!text.contains("total,"), "{text}");
}

#[tokio::test]
async fn many_rows_are_all_there_in_order() {
    let count = 1_000;
    let rows = (0..count).map(|_| Ok(row("Acme", totals(1, 1)))).collect();
    let (text, _) = collected(rows, totals(count as u64, count as i64)).await;
    let numbers: Vec<String> = csv::Reader::from_reader(text.as_bytes())
        .records()
        .map(|record| record.unwrap()[0].to_owned())
        .collect();
    let mut expected: Vec<String> = (1..=count).map(|number| number.to_string()).collect();
    expected.push("total".to_owned());
    assert_eq!(numbers, expected);
}

#[test]
fn names_cannot_become_formulas() {
    for text in ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "＝1+1", "＠SUM(A1)"] {
        assert_eq!(safe_text(text), format!("'{text}"));
    }
    assert_eq!(safe_text("Acme = good"), "Acme = good");
    assert_eq!(safe_text(""), "");
}

#[test]
fn the_file_is_named_by_month_and_division() {
    let month = "2026-11".parse().unwrap();
    assert_eq!(
        file_name(month, BY_TENANT, MonthState::Final),
        "tollgate-usage-2026-11-by-tenant.csv"
    );
    assert_eq!(
        file_name(month, Grouping::NONE, MonthState::Final),
        "tollgate-usage-2026-11.csv"
    );
    assert_eq!(
        file_name(month, Grouping::NONE, MonthState::Closing),
        "tollgate-usage-2026-11-closing.csv"
    );
    assert_eq!(
        file_name(month, BY_TENANT, MonthState::Open),
        "tollgate-usage-2026-11-open-by-tenant.csv"
    );
    let both = Grouping {
        model: true,
        ..BY_TENANT
    };
    assert_eq!(
        file_name(month, both, MonthState::Final),
        "tollgate-usage-2026-11-by-tenant-model.csv"
    );
}

#[test]
fn every_line_has_as_many_cells_as_the_header() {
    let lines = |grouping| UsageLines {
        grouping,
        month: "2026-11".to_owned(),
        completeness: Completeness {
            state: MonthState::Final,
            complete_until: "2026-12-01T00:00:00Z".parse().unwrap(),
            waiting_for: Vec::new(),
        },
        totals: totals(1, 1),
        before: Before::default(),
        rows_written: 0,
    };
    for bits in 0..32_u8 {
        let grouping = Grouping {
            tenant: bits & 1 != 0,
            user: bits & 2 != 0,
            key: bits & 4 != 0,
            model: bits & 8 != 0,
            priority: bits & 16 != 0,
        };
        let columns = header(grouping, "EUR").len();
        assert_eq!(
            lines(grouping).row(&row("Acme", totals(1, 1))).len(),
            columns,
            "{grouping:?}"
        );
        let end = lines(grouping).end();
        assert_eq!((end.len(), end[0].len()), (1, columns), "{grouping:?}");
    }
}

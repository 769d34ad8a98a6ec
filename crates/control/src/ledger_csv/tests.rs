//! Files of entries: every line has every column, sums agree, names are no formulas, and a broken file has no end.

use std::collections::BTreeMap;

use domain::ids::{AdjustmentId, KeyId, RequestId};
use domain::ledger::Outcome;
use domain::policy::Dialect;
use domain::priority::Priority;
use domain::usage::{TokenUsage, UsageSource};
use futures_util::stream::{self, StreamExt};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn named<T>(entry: T, name: &str) -> Named<T> {
    Named {
        entry,
        tenant_name: Some(name.to_owned()),
        key_name: Some(name.to_owned()),
        key_public_id: None,
        user_name: None,
    }
}

fn settlement(text: &str, tokens: u64, cost: i64) -> Settlement {
    Settlement {
        identity: Identity {
            id: RequestId(Uuid::nil()),
            tenant_id: TenantId(Uuid::nil()),
            user_id: Some(text.to_owned()),
            key_id: KeyId(Uuid::nil()),
            model: Some(text.into()),
            dialect: Dialect::Openai,
            endpoint: "chat/completions".to_owned(),
            priority: Priority::Default,
            is_streamed: false,
            tags: BTreeMap::from([(text.to_owned(), text.to_owned())]),
            instance: "one".to_owned(),
            user_agent: Some(text.to_owned()),
            job_id: None,
        },
        admitted_at: DateTime::UNIX_EPOCH,
        settled_at: DateTime::UNIX_EPOCH,
        upstream_id: None,
        upstream_model: None,
        upstream_request_id: None,
        outcome: Outcome::Completed,
        status: Some(200),
        attempts: Vec::new(),
        usage: TokenUsage {
            output_tokens: tokens,
            ..TokenUsage::default()
        },
        usage_source: UsageSource::Reported,
        expected_input_tokens: 0,
        expected_output_tokens: 0,
        expected_cost_nanos: Nanos::ZERO,
        ceiling_input_tokens: 0,
        ceiling_output_tokens: 0,
        ceiling_cost_nanos: Nanos::ZERO,
        cost_nanos: Nanos(cost),
        overrun_nanos: Nanos::ZERO,
        price_id: None,
        is_unpriced: false,
        queue_ms: 0,
        first_byte_ms: None,
        total_ms: 1,
        rehearsed: Vec::new(),
    }
}

fn adjustment(text: &str, tokens: i64, cost: i64) -> Adjustment {
    Adjustment {
        id: AdjustmentId(Uuid::nil()),
        admitted_at: DateTime::UNIX_EPOCH,
        created_at: DateTime::UNIX_EPOCH,
        request_id: None,
        tenant_id: TenantId(Uuid::nil()),
        user_id: None,
        key_id: None,
        model: None,
        upstream_id: None,
        priority: Priority::Default,
        input_tokens: 0,
        output_tokens: tokens,
        cost_nanos: Nanos(cost),
        reason: text.to_owned(),
        author: text.to_owned(),
        reference: Some(text.to_owned()),
    }
}

async fn collected<T: Send + 'static>(
    columns: Vec<Column<T>>,
    rows: Vec<Result<Named<T>, StoreError>>,
) -> (String, bool) {
    let mut pieces = file("EUR", columns, stream::iter(rows).boxed());
    let (mut bytes, mut has_failed) = (Vec::new(), false);
    while let Some(piece) = pieces.next().await {
        match piece {
            Ok(piece) => bytes.extend(piece),
            Err(_) => has_failed = true,
        }
    }
    (String::from_utf8(bytes).expect("UTF-8"), has_failed)
}

/// Lines by column; whatever is not as long as the header is an error.
fn read(text: &str) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let columns = reader.headers().expect("a header").clone();
    let names: Vec<String> = columns.iter().map(str::to_owned).collect();
    let line = |record: csv::StringRecord| names.iter().cloned().zip(record.iter().map(str::to_owned)).collect();
    reader
        .records()
        .map(|record| line(record.expect("as long as the header")))
        .collect()
}

fn wait<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(work)
}

proptest! {
    #[test]
    fn lines_have_every_column_and_add_up(
        rows in prop::collection::vec(("[-+=@\"',;\r\n a-z＝é]{0,12}", 0_u64..1_000_000_000, 0_i64..i64::MAX / 2), 0..40),
    ) {
        let entries = rows.iter().map(|(text, tokens, cost)| Ok(named(settlement(text, *tokens, *cost), text)));
        let (text, has_failed) = wait(collected(settlements(), entries.collect()));
        prop_assert!(!has_failed);
        let mut lines = read(&text);
        let total = lines.pop().expect("a line of totals");
        prop_assert_eq!(&total["row"], "total");
        prop_assert_eq!(&total["rows"], &rows.len().to_string());
        let sum: i128 = rows.iter().map(|(_, _, cost)| i128::from(*cost)).sum();
        prop_assert_eq!(&total["cost_eur"], &decimal(sum, 9));
        let tokens: u64 = rows.iter().map(|(_, tokens, _)| tokens).sum();
        prop_assert_eq!(&total["output_tokens"], &tokens.to_string());
        for (at, (line, (text, _, cost))) in lines.iter().zip(&rows).enumerate() {
            prop_assert_eq!(&line["row"], &(at + 1).to_string());
            prop_assert_eq!(line["cost_eur"].parse(), Ok(Nanos(*cost)));
            prop_assert_eq!(line["tenant"].strip_prefix('\'').unwrap_or(&line["tenant"]), text.strip_prefix('\'').unwrap_or(text));
            for cell in line.values() {
                prop_assert!(!cell.starts_with(['=', '+', '-', '@', '\r', '\n', '＝']), "{cell:?}");
            }
        }
    }

    #[test]
    fn signed_amounts_add_up(rows in prop::collection::vec((-1_000_000_i64..1_000_000, any::<i32>()), 0..40)) {
        let entries = rows.iter().map(|(tokens, cost)| Ok(named(adjustment("=1+1", *tokens, i64::from(*cost)), "Acme")));
        let (text, _) = wait(collected(adjustments(), entries.collect()));
        let mut lines = read(&text);
        let total = lines.pop().expect("a line of totals");
        let sum: i64 = rows.iter().map(|(_, cost)| i64::from(*cost)).sum();
        prop_assert_eq!(total["cost_eur"].parse(), Ok(Nanos(sum)));
        let tokens: i64 = rows.iter().map(|(tokens, _)| tokens).sum();
        prop_assert_eq!(&total["output_tokens"], &tokens.to_string());
        for line in lines {
            prop_assert_eq!([&line["reason"], &line["author"], &line["reference"]], ["'=1+1"; 3]);
        }
    }
}

#[test]
fn a_file_that_breaks_off_has_no_line_of_totals() {
    let broken = StoreError::Value { column: "any" };
    let rows = vec![Ok(named(settlement("a", 1, 1), "Acme")), Err(broken)];
    let (text, has_failed) = wait(collected(settlements(), rows));
    assert!(has_failed);
    assert!(!text.contains("total,"), "{text}");
}

#[test]
fn columns_have_names_of_their_own() {
    let mut headers = [
        EntryLines::new(settlements()).header("USD"),
        EntryLines::new(rejections()).header("USD"),
        EntryLines::new(adjustments()).header("USD"),
    ];
    for header in &mut headers {
        let all = header.len();
        header.sort();
        header.dedup();
        assert_eq!(header.len(), all);
        assert!(header.iter().any(|name| name.ends_with("cost_usd")));
    }
}

use chrono::DateTime;
use domain::money::Nanos;
use domain::reports::MonthState;
use domain::usage::TokenUsage;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::*;

fn totals(requests: u64) -> TagTotals {
    TagTotals {
        requests,
        failed_requests: 0,
        usage: TokenUsage {
            input_fresh_tokens: 10 * requests,
            output_tokens: requests,
            ..TokenUsage::default()
        },
        cost: Nanos(1_500_000_000 * requests as i64),
    }
}

fn query(name: &str) -> MonthlyTagQuery {
    MonthlyTagQuery {
        month: "2026-11".parse().unwrap(),
        tenant: None,
        name: name.to_owned(),
    }
}

async fn lines(name: &str, values: &[&str]) -> Vec<String> {
    let rows: Vec<_> = values
        .iter()
        .map(|value| {
            Ok(TagRow {
                value: (*value).to_owned(),
                totals: totals(2),
            })
        })
        .collect();
    let all = 2 * values.len() as u64 + 1;
    let report = TagStream {
        without: totals(1),
        totals: totals(all),
        completeness: Completeness {
            state: MonthState::Final,
            complete_until: DateTime::UNIX_EPOCH,
            waiting_for: Vec::new(),
        },
        rows: stream::iter(rows).boxed(),
    };
    let bytes = file(&query(name), "EUR", report).bytes.try_concat().await.unwrap();
    String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn values_come_first_then_what_has_none_then_the_months_total() {
    assert_eq!(
        lines("project", &["search", ""]).await,
        [
            "row,rows,month,tag,tagged,value,requests,failed_requests,input_fresh_tokens,cache_read_tokens,\
             cache_write_5m_tokens,cache_write_1h_tokens,output_tokens,reasoning_tokens,cost_eur,month_state,complete_until",
            "1,,2026-11,project,yes,search,2,0,20,0,0,0,2,0,3.000000000,final,1970-01-01T00:00:00Z",
            "2,,2026-11,project,yes,,2,0,20,0,0,0,2,0,3.000000000,final,1970-01-01T00:00:00Z",
            "3,,2026-11,project,no,,1,0,10,0,0,0,1,0,1.500000000,final,1970-01-01T00:00:00Z",
            "total,3,2026-11,project,,,5,0,50,0,0,0,5,0,7.500000000,final,1970-01-01T00:00:00Z",
        ]
    );
}

#[tokio::test]
async fn a_tag_cannot_become_a_formula_or_a_header() {
    let made = lines("=1+1", &["=cmd()"]).await;
    assert!(made[1].starts_with("1,,2026-11,'=1+1,yes,'=cmd(),"), "{}", made[1]);
    let name = file_name(&query("a\"; b\r\n/ü"), MonthState::Final);
    assert_eq!(name, "tollgate-usage-2026-11-by-tag-a---b----.csv");
}

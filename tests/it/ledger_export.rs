//! `tollgate ledger export`, by the program itself: whole files, which say so, and none that are not whole.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

use chrono::Utc;
use control::adjustments::{AdjustmentDraft, Booking, When};
use control::limits::NodeLimits;
use domain::adjustments::Figures;
use domain::ids::AdjustmentId;
use domain::money::Nanos;
use http::StatusCode;
use serde_json::json;
use test_support::program::Program;
use test_support::tollgate::{Tollgate, chat_body};
use uuid::Uuid;

async fn export(tollgate: &Tollgate, arguments: &[&str]) -> Output {
    let arguments: Vec<&str> = ["ledger", "export"].iter().chain(arguments).copied().collect();
    Program::run(&arguments, &[("DATABASE_URL", tollgate.database.url())]).await
}

/// The lines of a file that is whole, and its sums.
fn whole(file: &[u8]) -> (Vec<BTreeMap<String, String>>, BTreeMap<String, String>) {
    let mut reader = csv::Reader::from_reader(file);
    let columns = reader.headers().expect("a header").clone();
    let line = |record: csv::StringRecord| {
        let names = columns.iter().map(str::to_owned);
        names.zip(record.iter().map(str::to_owned)).collect()
    };
    let mut lines: Vec<BTreeMap<String, String>> =
        reader.records().map(|record| line(record.expect("cells"))).collect();
    let total = lines.pop().expect("a line of totals");
    assert_eq!(
        (total["row"].as_str(), total["rows"].clone()),
        ("total", lines.len().to_string())
    );
    (lines, total)
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn every_kind_of_entry_is_exported_and_adds_up() {
    const REQUESTS: usize = 600;
    let tollgate = Tollgate::start().await;
    let (acme, first) = tollgate
        .named_tenant_with_key("=Acme, \"Ltd\"", NodeLimits::default())
        .await;
    let (other, second) = tollgate.named_tenant_with_key("Other", NodeLimits::default()).await;
    for key in [&first, &second, &first] {
        let answer = tollgate.chat(key, "Hello. [[sim: tokens=5]]").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let mut unknown = chat_body("Hello.");
    unknown["model"] = json!("nothing-of-the-kind");
    let answer = tollgate
        .browser()
        .post_json("/v1/chat/completions", &second, &unknown)
        .await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    let draft = AdjustmentDraft {
        tenant_id: acme,
        user: None,
        key_id: None,
        model: None,
        when: When::Month("2026-03".parse().expect("a month")),
        figures: Figures {
            cost_nanos: Nanos(-1),
            ..Figures::default()
        },
    };
    let booking = Booking {
        id: AdjustmentId(Uuid::from_u128(1)),
        reason: "+1".to_owned(),
        reference: String::new(),
    };
    let booked = tollgate
        .control()
        .book_adjustment(&tollgate.actor(), &draft, &booking, Utc::now())
        .await;
    booked.expect("it is booked");
    tollgate.shipped().await;
    // More than one piece of the file.
    let mut sql = tollgate.sql().await;
    sqlx::query(
        "insert into settlements
         select (jsonb_populate_record(null::settlements, to_jsonb(s) || jsonb_build_object('id', gen_random_uuid()))).*
         from (select * from settlements limit 1) s, generate_series(1, $1)",
    )
    .bind(REQUESTS as i32 - 3)
    .execute(&mut sql)
    .await
    .expect("more of them");
    let (count, cost): (i64, i64) = sqlx::query_as("select count(*), sum(cost_nanos)::bigint from settlements")
        .fetch_one(&mut sql)
        .await
        .expect("sums");
    assert_eq!(count, REQUESTS as i64);

    let written = export(&tollgate, &[]).await;
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let (lines, total) = whole(&written.stdout);
    assert_eq!(lines.len(), REQUESTS);
    assert_eq!(total["cost_usd"].parse(), Ok(Nanos(cost)));
    assert!(
        lines.is_sorted_by_key(|line| line["admitted_at"].clone()),
        "the oldest first"
    );
    assert!(
        lines.iter().any(|line| line["tenant"] == "'=Acme, \"Ltd\""),
        "no formula"
    );

    let (lines, _) = whole(&export(&tollgate, &["--tenant", &other.to_string()]).await.stdout);
    assert!(!lines.is_empty() && lines.iter().all(|line| line["tenant"] == "Other"));
    let month = Utc::now().format("%Y-%m").to_string();
    let (lines, _) = whole(
        &export(&tollgate, &["--kind", "rejections", "--month", &month])
            .await
            .stdout,
    );
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["code"], "model_not_found");
    for (span, rows) in [
        (vec!["--month", "2026-03"], 1),
        (vec!["--month", "2026-04"], 0),
        (vec!["--from", "2026-03-01", "--until", "2026-03-02"], 1),
        (vec!["--from", "2026-03-02"], 0),
    ] {
        let arguments: Vec<&str> = ["--kind", "adjustments"]
            .into_iter()
            .chain(span.iter().copied())
            .collect();
        let (lines, total) = whole(&export(&tollgate, &arguments).await.stdout);
        assert_eq!(lines.len(), rows, "{span:?}");
        let sum = if rows == 1 { "-0.000000001" } else { "0.000000000" };
        assert_eq!(total["cost_usd"], sum, "{span:?}");
        assert!(lines.iter().all(|line| line["reason"] == "'+1"), "no formula");
    }
}

#[tokio::test]
async fn a_file_is_there_once_it_is_whole() {
    let tollgate = Tollgate::start().await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
    tollgate.shipped().await;
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("november.csv");
    let output = place.to_str().expect("a path");
    std::fs::write(&place, "an older one").expect("a file");

    // A row that cannot be read ends the export, and leaves what was there.
    let mut sql = tollgate.sql().await;
    let set = async |sql: &mut sqlx::PgConnection, outcome: &str| {
        let updated = sqlx::query("update settlements set outcome = $1")
            .bind(outcome)
            .execute(sql)
            .await;
        assert_eq!(updated.expect("an update").rows_affected(), 1);
    };
    set(&mut sql, "unheard_of").await;
    let failed = export(&tollgate, &["--output", output]).await;
    assert!(!failed.status.success());
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(said.contains("could not be read to its end"), "{said}");
    assert_eq!(std::fs::read_to_string(&place).expect("a file"), "an older one");
    assert_eq!(names(directory.path()), ["november.csv"], "nothing else is left");
    let failed = export(&tollgate, &[]).await;
    assert!(!failed.status.success());
    assert!(!String::from_utf8_lossy(&failed.stdout).contains("total,"));

    set(&mut sql, "completed").await;
    let written = export(&tollgate, &["--output", output]).await;
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    assert!(written.stdout.is_empty());
    let (lines, _) = whole(&std::fs::read(&place).expect("a file"));
    assert_eq!(lines.len(), 1);
    assert_eq!(names(directory.path()), ["november.csv"]);

    let bad = export(&tollgate, &["--month", "2026-11", "--from", "2026-11-01"]).await;
    assert!(!bad.status.success(), "a month or days, not both");
    let bad = export(&tollgate, &["--from", "2026-11-02", "--until", "2026-11-02"]).await;
    assert!(String::from_utf8_lossy(&bad.stderr).contains("--until"), "{bad:?}");
}

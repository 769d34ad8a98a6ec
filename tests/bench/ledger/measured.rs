//! What is asked of the ledger, and how long it takes.

use std::time::{Duration, Instant};

use chrono::Utc;
use control::reports::{MonthlyQuery, ReportFilter};
use domain::periods::Month;
use domain::reports::Grouping;
use futures_util::StreamExt as _;
use test_support::console::Window;
use test_support::tollgate::Tollgate;

/// How often each page is loaded.
const TIMES: usize = 15;
/// Pages that are gone back in the ledger.
const PAGES_BACK: usize = 1_000;

/// Prints a table.
pub(crate) async fn measure(tollgate: &Tollgate, operator: &mut Window, month: Month) -> anyhow::Result<()> {
    sizes(tollgate).await?;
    println!("| page | median | slowest of {TIMES} |\n|---|---|---|");
    for (what, address) in [
        ("monthly report by tenant", format!("/reports?month={month}&by=tenant")),
        (
            "by model and priority",
            format!("/reports?month={month}&by=model&by=priority"),
        ),
        ("by key", format!("/reports?month={month}&by=key")),
        (
            "by user, key and model",
            format!("/reports?month={month}&by=user&by=key&by=model"),
        ),
        ("ledger", "/ledger".to_owned()),
        (
            "ledger, one reason of refusal",
            "/ledger?ending=code:budget_exhausted".to_owned(),
        ),
        (
            "ledger, one outcome",
            "/ledger?ending=outcome:upstream_error".to_owned(),
        ),
        ("ledger, one model", "/ledger?model=model-11".to_owned()),
        ("overview", "/".to_owned()),
    ] {
        let mut times = Vec::new();
        for _ in 0..TIMES {
            times.push(load(operator, &address).await?);
        }
        row(what, &mut times);
    }
    let (mut first, mut last) = page_back(operator).await?;
    row("ledger, pages 1 to 20", &mut first);
    row(&format!("ledger, the last 20 of {PAGES_BACK} pages"), &mut last);
    csv(tollgate, month).await
}

async fn sizes(tollgate: &Tollgate) -> anyhow::Result<()> {
    let mut sql = tollgate.sql().await;
    let tables = "select
            (select count(*) from settlements) as settlements, (select count(*) from rejections) as rejections,
            (select count(*) from settlement_rollups) as quarters, (select count(*) from settlement_month_rollups) as months";
    let (settlements, rejections, quarters, months): (i64, i64, i64, i64) =
        sqlx::query_as(tables).fetch_one(&mut sql).await?;
    println!(
        "{settlements} settlements, {rejections} rejections; roll-ups: {quarters} by 15 minutes, {months} by month\n"
    );
    Ok(())
}

async fn load(operator: &mut Window, address: &str) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let answer = operator.browser.get(address).await;
    anyhow::ensure!(answer.status == 200, "{address}: {}", answer.status);
    Ok(begun.elapsed())
}

/// Goes back page by page, and times the first and the last twenty.
async fn page_back(operator: &mut Window) -> anyhow::Result<(Vec<Duration>, Vec<Duration>)> {
    let mut times = Vec::new();
    operator.visit("/ledger").await;
    for _ in 0..PAGES_BACK {
        let older = operator.page.link("Older entries");
        let begun = Instant::now();
        operator.visit(&older).await;
        times.push(begun.elapsed());
    }
    let last = times.split_off(PAGES_BACK - 20);
    times.truncate(20);
    Ok((times, last))
}

fn row(what: &str, times: &mut [Duration]) {
    times.sort();
    let ms = |duration: Duration| duration.as_secs_f64() * 1_000.0;
    println!(
        "| {what} | {:.1} ms | {:.1} ms |",
        ms(times[times.len() / 2]),
        ms(times[times.len() - 1])
    );
}

/// The month's file by everything there is, and how much memory the process takes meanwhile.
async fn csv(tollgate: &Tollgate, month: Month) -> anyhow::Result<()> {
    let query = MonthlyQuery {
        month,
        filter: ReportFilter::default(),
        grouping: Grouping {
            tenant: true,
            user: true,
            key: true,
            model: true,
            priority: true,
        },
    };
    let before = resident_kib()?;
    let begun = Instant::now();
    let mut file = tollgate
        .control()
        .monthly_csv(&tollgate.actor(), &query, Utc::now())
        .await?;
    let (mut bytes, mut lines, mut most, mut first) = (0, 0, 0, None);
    while let Some(piece) = file.bytes.next().await {
        let piece = piece?;
        first.get_or_insert_with(|| begun.elapsed());
        bytes += piece.len();
        lines += piece.iter().filter(|byte| **byte == b'\n').count();
        most = most.max(resident_kib()?);
    }
    println!(
        "\nCSV by everything: {} rows, {} MB in {:.1?}, the first piece after {:.1?}; memory of the process {} MiB before, {} \
         MiB at most",
        lines - 2,
        bytes / 1_000_000,
        begun.elapsed(),
        first.unwrap_or_default(),
        before / 1_024,
        most / 1_024
    );
    Ok(())
}

/// What the process has in memory.
fn resident_kib() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let figure = line.and_then(|line| line.split_whitespace().next()).unwrap_or("0");
    Ok(figure.parse()?)
}

//! Folding: every refusal is counted, in a row of its own or in one that says how many it stands for.

use std::sync::Arc;

use chrono::{DateTime, Duration, Utc};
use domain::ids::{KeyId, RequestId, TenantId};
use domain::ledger::{Identity, Rejection};
use domain::limits::Scope;
use domain::money::Nanos;
use domain::policy::Dialect;
use domain::priority::Priority;
use domain::refusals::RefusalCode;
use proptest::prelude::*;
use uuid::Uuid;

use ledger::{FsyncPolicy, Journal, JournalSettings};

use super::{KEPT_COARSE_MAX, KEPT_MAX, ROWS_PER_MINUTE, Rejections};

pub(crate) fn start() -> DateTime<Utc> {
    "2026-11-30T10:00:00Z".parse().expect("an instant")
}

/// A journal with room for so many bytes.
fn journal(directory: &tempfile::TempDir, bytes_max: u64) -> Arc<Journal> {
    let settings = JournalSettings {
        segment_bytes: 4_000,
        bytes_max,
        fsync: FsyncPolicy::Os,
        ..JournalSettings::default()
    };
    Journal::open(directory.path(), "i", settings, start())
        .expect("a journal")
        .0
}

/// Refusals that the journal's rows stand for: entries are JSON on disk.
fn journalled(directory: &tempfile::TempDir) -> i64 {
    let files = std::fs::read_dir(directory.path()).expect("files");
    let segments = files
        .map(|file| file.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "journal"));
    segments
        .map(|path| {
            let text = String::from_utf8_lossy(&std::fs::read(path).expect("a segment")).into_owned();
            text.split("\"refusal_count\":")
                .skip(1)
                .filter_map(|rest| rest.split([',', '}']).next()?.parse::<i64>().ok())
                .sum::<i64>()
        })
        .sum()
}

/// Refusals that the rows waiting in memory stand for.
fn kept(rejections: &Rejections) -> i64 {
    rejections.kept.lock().rows.values().map(|row| row.refusal_count).sum()
}

pub(crate) fn rejection(key: u128, code: RefusalCode, refused_at: DateTime<Utc>) -> Rejection {
    Rejection {
        identity: Identity {
            id: RequestId(Uuid::nil()),
            tenant_id: TenantId(Uuid::nil()),
            user_id: None,
            key_id: KeyId(Uuid::from_u128(key)),
            model: None,
            dialect: Dialect::Openai,
            endpoint: "chat/completions".into(),
            priority: Priority::Default,
            is_streamed: false,
            tags: Default::default(),
            instance: "i".into(),
            user_agent: None,
            job_id: None,
        },
        refused_at,
        code,
        status: code.status(),
        scope: None,
        dimension: None,
        limit_id: None,
        limit_key: None,
        chain: Vec::new(),
        message: String::new(),
        retry_after_seconds: None,
        caller_retries: None,
        refusal_count: 1,
        early_count: 0,
        expected_input_tokens: 0,
        expected_output_tokens: 0,
        expected_cost_nanos: Nanos::ZERO,
        queue_ms: 0,
    }
}

/// Rows that are still folded.
fn folded(rejections: &Rejections) -> i64 {
    rejections
        .streaks
        .lock()
        .values()
        .filter_map(|streak| streak.folded.as_ref())
        .map(|row| row.refusal_count)
        .sum()
}

#[test]
fn from_the_twenty_first_in_a_minute_on_they_share_a_row() {
    let rejections = Rejections::default();
    let at = start();
    let rows: usize = (0..50)
        .map(|_| rejections.count(rejection(1, RefusalCode::RateLimitExceeded, at)).len())
        .sum();
    assert_eq!(rows, ROWS_PER_MINUTE as usize);
    assert_eq!(folded(&rejections), 30);
    let due = rejections.count(rejection(1, RefusalCode::RateLimitExceeded, at + Duration::minutes(1)));
    assert_eq!(due.iter().map(|row| row.refusal_count).collect::<Vec<_>>(), [30, 1]);
}

#[test]
fn a_folded_row_counts_the_early_ones_and_keeps_the_most_that_a_caller_tried() {
    let directory = tempfile::tempdir().expect("a directory");
    let roomy = journal(&directory, 1 << 20);
    let rejections = Rejections::default();
    for number in 0..ROWS_PER_MINUTE + 5 {
        let at = start() + Duration::seconds(2 * i64::from(number));
        let mut row = rejection(1, RefusalCode::BudgetExhausted, at);
        row.retry_after_seconds = Some(600);
        row.caller_retries = Some(if number == ROWS_PER_MINUTE + 1 { 7 } else { 1 });
        rejections.book(&roomy, row);
    }
    let streaks = rejections.streaks.lock();
    let folded = streaks
        .values()
        .find_map(|streak| streak.folded.as_ref())
        .expect("a folded row");
    assert_eq!(
        (folded.refusal_count, folded.early_count, folded.caller_retries),
        (5, 5, Some(7))
    );
}

proptest! {
    #[test]
    fn nothing_is_lost_whatever_is_refused_when(
        events in prop::collection::vec((0_u128..3, 0_usize..3, 0_i64..200), 0..400),
    ) {
        let rejections = Rejections::default();
        let mut booked = 0;
        for (key, code, second) in &events {
            let at = start() + Duration::seconds(*second);
            let rows = rejections.count(rejection(*key, RefusalCode::ALL[*code], at));
            booked += rows.iter().map(|row| row.refusal_count).sum::<i64>();
        }
        prop_assert_eq!(booked + folded(&rejections), events.len() as i64);
    }
}

#[test]
fn refusals_of_different_users_models_and_scopes_are_not_equal() {
    let rejections = Rejections::default();
    let refuse = |change: &dyn Fn(&mut Rejection)| {
        let mut rejection = rejection(1, RefusalCode::RateLimitExceeded, start());
        change(&mut rejection);
        rejections.count(rejection).len()
    };
    for _ in 0..ROWS_PER_MINUTE {
        assert_eq!(refuse(&|_| {}), 1);
    }
    assert_eq!(refuse(&|_| {}), 0);
    assert_eq!(refuse(&|rejection| rejection.identity.user_id = Some("ann".into())), 1);
    assert_eq!(refuse(&|rejection| rejection.identity.model = Some("m".into())), 1);
    assert_eq!(refuse(&|rejection| rejection.scope = Some(Scope::Global)), 1);
}

#[test]
fn what_a_full_journal_does_not_take_is_counted_and_booked_when_there_is_room() {
    let directory = tempfile::tempdir().expect("a directory");
    let rejections = Rejections::default();
    let full = journal(&directory, 20_000);
    let mut booked = 0;
    for second in 0..300 {
        for key in 0..3 {
            let at = start() + Duration::seconds(second * 10);
            rejections.book(&full, rejection(key, RefusalCode::LedgerFull, at));
            booked += 1;
            assert_eq!(journalled(&directory) + kept(&rejections) + folded(&rejections), booked);
        }
    }
    assert!(kept(&rejections) > 800, "the journal was full early on");
    // Three keys, and a row for each quarter of an hour, so that no report counts one in the wrong place.
    assert_eq!(rejections.kept.lock().rows.len(), 3 * 4);
    rejections.flush(&full, None);
    assert_eq!(kept(&rejections) + journalled(&directory), booked);
    drop(full);

    let roomy = journal(&directory, 1 << 20);
    rejections.flush(&roomy, Some(0));
    assert_eq!((kept(&rejections), journalled(&directory)), (0, booked));
}

#[test]
fn too_many_kinds_of_refusals_are_told_apart_by_key_and_code_alone() {
    let rejections = Rejections::default();
    let total = KEPT_MAX + 500;
    for number in 0..total {
        let mut row = rejection((number % 7) as u128, RefusalCode::LedgerFull, start());
        row.identity.user_id = Some(format!("user {number}"));
        rejections.keep(row, &ledger::AppendError::Full);
    }
    assert_eq!(kept(&rejections), total as i64);
    let rows = rejections.kept.lock().rows.len();
    assert_eq!(rows, KEPT_MAX + 7);
    assert!(rows < KEPT_MAX + KEPT_COARSE_MAX);
    rejections.kept.lock().rows.clear();
}

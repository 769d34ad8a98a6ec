//! Books refusals: each is a row, until a key is refused for the same reason so often that they are folded into one.
//!
//! What the journal has no room for is folded further and waits in memory: a full journal refuses every request, and
//! those refusals are counted, too, once Postgres has caught up.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use domain::error_chain::chain;
use domain::ids::{KeyId, LimitId};
use domain::ledger::{JournalRecord, Rejection};
use domain::limits::Scope;
use domain::periods::BUCKET_MINUTES;
use domain::refusals::RefusalCode;
use ledger::{AppendError, Journal};
use parking_lot::Mutex;

use crate::clock::minute_of;
use crate::metrics;
use crate::waits::Waits;

/// Equal refusals of one key within a minute that get rows of their own.
pub(crate) const ROWS_PER_MINUTE: u32 = 20;
/// Streaks that are followed at once. Beyond it every refusal is a row.
const STREAKS_MAX: usize = 10_000;
/// Rows that wait for room in the journal. Beyond it they are told apart by key and code alone.
const KEPT_MAX: usize = 10_000;
/// Rows told apart by key and code alone that wait besides. Beyond it they are lost, and logged in full.
const KEPT_COARSE_MAX: usize = 10_000;

/// What makes refusals equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreakKey {
    key_id: KeyId,
    code: RefusalCode,
    limit_id: Option<LimitId>,
    scope: Option<Scope>,
    model: Option<Arc<str>>,
    user_id: Option<String>,
}

impl StreakKey {
    pub(crate) fn of(rejection: &Rejection) -> Self {
        Self {
            key_id: rejection.identity.key_id,
            code: rejection.code,
            limit_id: rejection.limit_id,
            scope: rejection.scope.clone(),
            model: rejection.identity.model.clone(),
            user_id: rejection.identity.user_id.clone(),
        }
    }
}

/// Equal refusals of one key within one minute.
struct Streak {
    minute: i64,
    rows: u32,
    /// The last refusal that got no row, with the count of them all.
    folded: Option<Rejection>,
}

/// The streaks under way, and the rows that wait for room in the journal.
#[derive(Default)]
pub(crate) struct Rejections {
    waits: Mutex<Waits>,
    streaks: Mutex<HashMap<StreakKey, Streak>>,
    kept: Mutex<Kept>,
}

/// Rows that wait for room in the journal.
#[derive(Default)]
struct Kept {
    /// By the roll-up's quarter of an hour, so that each counts in the right one.
    rows: HashMap<(StreakKey, i64), Rejection>,
    /// Whether the log has told that rows wait.
    is_told: bool,
}

impl Rejections {
    /// Books one refusal.
    pub(crate) fn book(&self, journal: &Journal, mut rejection: Rejection) {
        rejection.early_count = i64::from(self.waits.lock().note(&rejection));
        log_rejection(&rejection);
        for row in self.count(rejection) {
            self.append_or_keep(journal, row);
        }
    }

    /// Writes out what was folded in minutes that are over, or everything when the process stops. What the journal does not
    /// take waits for the next time.
    pub(crate) fn flush(&self, journal: &Journal, current_minute: Option<i64>) {
        self.append_kept(journal);
        if let Some(minute) = current_minute {
            self.waits.lock().forget(minute);
        }
        let done: Vec<Streak> = {
            let mut streaks = self.streaks.lock();
            streaks
                .extract_if(|_, streak| current_minute.is_none_or(|minute| streak.minute < minute))
                .map(|(_, streak)| streak)
                .collect()
        };
        for folded in done.into_iter().filter_map(|streak| streak.folded) {
            self.append_or_keep(journal, folded);
        }
    }

    /// The rows that are due now that `rejection` happened.
    fn count(&self, mut rejection: Rejection) -> Vec<Rejection> {
        let minute = minute_of(rejection.refused_at);
        let key = StreakKey::of(&rejection);
        let mut streaks = self.streaks.lock();
        if streaks.len() >= STREAKS_MAX && !streaks.contains_key(&key) {
            return vec![rejection];
        }
        let streak = streaks.entry(key).or_insert(Streak {
            minute,
            rows: 0,
            folded: None,
        });
        let mut due = Vec::new();
        if streak.minute != minute {
            due.extend(streak.folded.take());
            *streak = Streak {
                minute,
                rows: 0,
                folded: None,
            };
        }
        if streak.rows < ROWS_PER_MINUTE {
            streak.rows += 1;
            due.push(rejection);
        } else {
            if let Some(folded) = streak.folded.take() {
                add(&mut rejection, &folded);
            }
            streak.folded = Some(rejection);
        }
        due
    }

    /// Journals a row, or keeps it in memory where the journal is full or the disk refuses. Answers whether it is done with.
    fn append_or_keep(&self, journal: &Journal, row: Rejection) -> bool {
        let record = JournalRecord::Rejection(Box::new(row));
        match (journal.append(&record), record) {
            (Ok(_), _) => true,
            (Err(error @ (AppendError::Full | AppendError::Io(_))), JournalRecord::Rejection(row)) => {
                self.keep(*row, &error);
                false
            }
            (Err(error), record) => {
                lost(&record, &error);
                true
            }
        }
    }

    /// Journals what waits, up to the first that finds no room.
    fn append_kept(&self, journal: &Journal) {
        let mut rows = std::mem::take(&mut self.kept.lock().rows).into_values();
        if rows.all(|row| self.append_or_keep(journal, row)) {
            if std::mem::take(&mut self.kept.lock().is_told) {
                tracing::info!("the journal takes refusals again; those that waited are booked");
            }
            return;
        }
        for row in rows {
            self.keep(row, &AppendError::Full);
        }
    }

    /// Folds a row that the journal did not take into the others like it.
    fn keep(&self, mut row: Rejection, error: &AppendError) {
        let quarter = row.refused_at.timestamp().div_euclid(BUCKET_MINUTES * 60);
        let mut kept = self.kept.lock();
        if !std::mem::replace(&mut kept.is_told, true) {
            tracing::warn!(
                error = chain(error),
                "refusals cannot be journalled; they are counted in memory meanwhile"
            );
        }
        let mut key = (StreakKey::of(&row), quarter);
        let count = kept.rows.len();
        if count >= KEPT_MAX && !kept.rows.contains_key(&key) {
            make_coarse(&mut row);
            key = (StreakKey::of(&row), quarter);
        }
        match kept.rows.entry(key) {
            Entry::Occupied(mut folded) => {
                let folded = folded.get_mut();
                if folded.refused_at <= row.refused_at {
                    std::mem::swap(folded, &mut row);
                }
                add(folded, &row);
            }
            Entry::Vacant(place) if count < KEPT_MAX + KEPT_COARSE_MAX => {
                place.insert(row);
            }
            Entry::Vacant(_) => lost(&JournalRecord::Rejection(Box::new(row)), error),
        }
    }
}

impl Drop for Rejections {
    /// What waited in vain until the process stopped.
    fn drop(&mut self) {
        let kept = self.kept.get_mut().rows.drain().map(|(_, row)| row);
        let folded = self.streaks.get_mut().drain().filter_map(|(_, streak)| streak.folded);
        for row in kept.chain(folded) {
            let entry = serde_json::to_string(&row).unwrap_or_default();
            tracing::error!(
                entry,
                "refusals were not booked before the end; book them by hand from this line"
            );
        }
    }
}

/// Makes `row` stand for what `other` stands for, too.
fn add(row: &mut Rejection, other: &Rejection) {
    row.refusal_count += other.refusal_count;
    row.early_count += other.early_count;
    row.caller_retries = row.caller_retries.max(other.caller_retries);
}

/// Forgets whom and what the refusal was about, but for key and code.
fn make_coarse(row: &mut Rejection) {
    row.identity.user_id = None;
    row.identity.model = None;
    row.scope = None;
    row.dimension = None;
    row.limit_id = None;
    row.limit_key = None;
    row.chain.clear();
}

/// Journals an ending, which must not be lost, and answers its number. Should the disk refuse it, it waits in the journal's
/// memory under the number it will have.
pub(crate) fn append_or_log(journal: &Journal, record: &JournalRecord) -> Option<u64> {
    match journal.append(record) {
        Ok(seq) => Some(seq),
        Err(AppendError::Deferred { seq, source }) => {
            tracing::error!(
                error = chain(&source),
                request_id = %record.request_id(),
                seq,
                "the disk refuses the journal; an ending waits in memory"
            );
            Some(seq)
        }
        Err(error) => {
            lost(record, &error);
            None
        }
    }
}

/// The whole entry goes to the log, and a counter that must stay zero is raised.
fn lost(record: &JournalRecord, error: &AppendError) {
    metrics::ledger_lost();
    let entry = serde_json::to_string(record).unwrap_or_default();
    tracing::error!(
        error = chain(error),
        entry,
        "the journal did not take an entry; book it by hand from this line"
    );
}

pub(crate) fn log_rejection(rejection: &Rejection) {
    tracing::info!(
        target: "tollgate::ledger",
        request_id = %rejection.identity.id,
        tenant_id = %rejection.identity.tenant_id,
        key_id = %rejection.identity.key_id,
        user_id = rejection.identity.user_id.as_deref(),
        model = rejection.identity.model.as_deref(),
        priority = rejection.identity.priority.as_str(),
        code = rejection.code.as_str(),
        status = rejection.status,
        scope = rejection.scope.as_ref().map(tracing::field::display),
        dimension = rejection.dimension.map(|dimension| dimension.as_str()),
        retry_after_seconds = rejection.retry_after_seconds,
        is_early = rejection.early_count > 0,
        "quota_exceeded"
    );
}

#[cfg(test)]
pub(crate) mod tests;

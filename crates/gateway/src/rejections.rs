//! Books refusals: each is a row, until a key is refused for the same reason so often that they are folded into one.

use std::collections::HashMap;

use domain::error_chain::chain;
use domain::ids::{KeyId, LimitId};
use domain::ledger::{JournalRecord, Rejection};
use domain::refusals::RefusalCode;
use ledger::{AppendError, Journal};
use parking_lot::Mutex;

use crate::clock::minute_of;
use crate::metrics;

/// Equal refusals of one key within a minute that get rows of their own.
pub(crate) const ROWS_PER_MINUTE: u32 = 20;
/// Streaks that are followed at once. Beyond it every refusal is a row.
const STREAKS_MAX: usize = 10_000;

type StreakKey = (KeyId, RefusalCode, Option<LimitId>);

/// Equal refusals of one key within one minute.
struct Streak {
    minute: i64,
    rows: u32,
    /// The last refusal that got no row, with the count of them all.
    folded: Option<Rejection>,
}

/// The streaks under way.
#[derive(Default)]
pub(crate) struct Rejections {
    streaks: Mutex<HashMap<StreakKey, Streak>>,
}

impl Rejections {
    /// Books one refusal.
    pub(crate) fn book(&self, journal: &Journal, rejection: Rejection) {
        log_rejection(&rejection);
        for row in self.count(rejection) {
            append_or_log(journal, &JournalRecord::Rejection(Box::new(row)));
        }
    }

    /// Writes out what was folded in minutes that are over, or everything when the process stops.
    pub(crate) fn flush(&self, journal: &Journal, current_minute: Option<i64>) {
        let done: Vec<Streak> = {
            let mut streaks = self.streaks.lock();
            let keys: Vec<StreakKey> = streaks
                .iter()
                .filter(|(_, streak)| current_minute.is_none_or(|minute| streak.minute < minute))
                .map(|(key, _)| *key)
                .collect();
            keys.iter().filter_map(|key| streaks.remove(key)).collect()
        };
        for folded in done.into_iter().filter_map(|streak| streak.folded) {
            append_or_log(journal, &JournalRecord::Rejection(Box::new(folded)));
        }
    }

    /// The rows that are due now that `rejection` happened.
    fn count(&self, mut rejection: Rejection) -> Vec<Rejection> {
        let minute = minute_of(rejection.refused_at);
        let key = (rejection.identity.key_id, rejection.code, rejection.limit_id);
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
            rejection.refusal_count = streak.folded.as_ref().map_or(1, |folded| folded.refusal_count + 1);
            streak.folded = Some(rejection);
        }
        due
    }
}

/// Journals an entry that must not be lost. Should the disk refuse it, the whole entry goes to the log and a counter
/// that must stay zero is raised.
pub(crate) fn append_or_log(journal: &Journal, record: &JournalRecord) -> Option<u64> {
    match journal.append(record) {
        Ok(seq) => Some(seq),
        // It waits in memory, and is written before anything else is.
        Err(error @ AppendError::Deferred(_)) => {
            tracing::error!(error = chain(&error), request_id = %record.request_id(), "the disk refuses the journal");
            None
        }
        Err(error) => {
            metrics::ledger_lost();
            let entry = serde_json::to_string(record).unwrap_or_default();
            tracing::error!(
                error = chain(&error),
                entry,
                "the journal did not take an entry; book it by hand from this line"
            );
            None
        }
    }
}

fn log_rejection(rejection: &Rejection) {
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
        "quota_exceeded"
    );
}

#[cfg(test)]
mod tests;

//! The shipper: brings the journal to Postgres in batches, each exactly once, for as long as it takes.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use domain::ledger::{JournalRecord, Rejection, Settlement};
use store::ledger::{QuarantinedRecord, ShipBatch, Shipped};
use store::{Store, StoreError};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::journal::{Content, Entry, Journal};
use crate::settings::ShipperSettings;

/// How often the partitions of the months ahead are looked after.
const PARTITIONS_INTERVAL: Duration = Duration::from_secs(6 * 3_600);

/// Ships one journal. Keeps nothing between steps that journal and Postgres do not have: it may be dropped anywhere, and
/// two of them do no harm.
#[derive(Clone, Debug)]
pub struct Shipper {
    journal: Arc<Journal>,
    store: Store,
    settings: ShipperSettings,
}

/// Not everything could be shipped in time; the journal still has the rest.
#[derive(Debug, thiserror::Error)]
#[error("{depth} records of the journal are not in Postgres yet; they stay on disk and are shipped at the next start")]
pub struct DrainError {
    /// How many.
    pub depth: u64,
    /// What was last in the way.
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

#[derive(Debug, thiserror::Error)]
enum StepError {
    #[error("the ledger's batch could not be written")]
    Store(#[from] StoreError),
    #[error("the journal could not be read")]
    Journal(#[from] io::Error),
}

/// What one step has done.
enum Step {
    /// Everything was shipped already.
    Idle,
    /// The mark has moved, or the next step tries less.
    Advanced,
}

/// How many records the next batch takes: halved while Postgres refuses the content, doubled while it does not.
struct Pace {
    records: usize,
    partitions_at: Option<Instant>,
}

impl Shipper {
    /// A shipper with the default bounds.
    pub fn new(journal: Arc<Journal>, store: Store) -> Self {
        Self::with_settings(journal, store, ShipperSettings::default())
    }

    /// A shipper with these bounds.
    pub fn with_settings(journal: Arc<Journal>, store: Store, settings: ShipperSettings) -> Self {
        Self {
            journal,
            store,
            settings,
        }
    }

    /// Ships until `stop`. A batch that is under way then is rolled back or recognised later.
    pub async fn run(self, stop: CancellationToken) {
        self.ship_until(&stop).await;
    }

    /// Ships everything that is in the journal now, trying again until `within` is over.
    pub async fn drain(&self, within: Duration) -> Result<(), DrainError> {
        let mut last_error: Option<Box<dyn Error + Send + Sync>> = None;
        let draining = async {
            let mut pace = self.pace();
            let mut failures = 0;
            loop {
                match self.step(&mut pace).await {
                    Ok(Step::Idle) => return,
                    Ok(Step::Advanced) => failures = 0,
                    Err(error) => {
                        last_error = Some(error.into());
                        sleep(self.pause_after(failures)).await;
                        failures += 1;
                    }
                }
            }
        };
        match timeout(within, draining).await {
            Ok(()) => Ok(()),
            Err(_) => Err(DrainError {
                depth: self.journal.depth(),
                source: last_error,
            }),
        }
    }

    async fn ship_until(&self, stop: &CancellationToken) {
        let mut pace = self.pace();
        let mut failures = 0;
        loop {
            let step = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                step = self.step(&mut pace) => step,
            };
            let pause = match step {
                Ok(Step::Advanced) => {
                    failures = 0;
                    continue;
                }
                Ok(Step::Idle) => {
                    failures = 0;
                    None
                }
                Err(error) => {
                    let pause = self.pause_after(failures);
                    failures += 1;
                    let depth = self.journal.depth();
                    let pause_ms = pause.as_millis() as u64;
                    tracing::warn!(error = %chain(&error), depth, pause_ms, "the ledger is not being shipped");
                    Some(pause)
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.wait(pause) => {}
            }
        }
    }

    /// After a failure its pause; otherwise until there is an entry, plus a moment for others to join it.
    async fn wait(&self, pause: Option<Duration>) {
        match pause {
            Some(pause) => sleep(pause).await,
            None => {
                if timeout(self.settings.interval, self.journal.appended.notified())
                    .await
                    .is_ok()
                {
                    sleep(self.settings.linger).await;
                }
            }
        }
    }

    async fn step(&self, pace: &mut Pace) -> Result<Step, StepError> {
        let outcome = self.try_step(pace).await;
        self.journal
            .set_shipping_error(outcome.as_ref().err().map(|error| chain(error)));
        outcome
    }

    async fn try_step(&self, pace: &mut Pace) -> Result<Step, StepError> {
        self.blocking(|journal| {
            journal.retry_owed();
            journal.keep_mark();
            Ok(())
        })
        .await?;
        if !self.journal.has_compared() {
            let mark = self.store.ledger_mark(self.journal.instance()).await?;
            self.adopt_mark(mark).await?;
        }
        let previous_seq = self.journal.shipped_seq();
        let entries = self.read_after(previous_seq, pace.records).await?;
        let Some(first) = entries.first() else {
            return Ok(Step::Idle);
        };
        self.look_after_partitions(pace).await?;
        if let Content::Unreadable { bytes, reason } = &first.content {
            self.quarantine(previous_seq, first.seq, bytes, reason).await?;
            return Ok(Step::Advanced);
        }
        self.journal.note_attempt(last_readable(&entries));
        match self
            .store
            .ship_ledger(self.journal.instance(), &batch(previous_seq, &entries))
            .await
        {
            Ok(shipped) => {
                self.take_note(shipped, last_readable(&entries)).await?;
                pace.records = (pace.records * 2).min(self.settings.batch_records_max);
                Ok(Step::Advanced)
            }
            Err(error) if error.is_content() => {
                let count = readable(&entries).count();
                if count > 1 {
                    pace.records = count / 2;
                    return Ok(Step::Advanced);
                }
                let Content::Record(record) = &first.content else {
                    return Err(error.into());
                };
                let bytes = serde_json::to_vec(record).map_err(io::Error::from)?;
                self.quarantine(previous_seq, first.seq, &bytes, &chain(&error)).await?;
                Ok(Step::Advanced)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn quarantine(&self, previous_seq: u64, seq: u64, bytes: &[u8], reason: &str) -> Result<(), StepError> {
        tracing::error!(
            instance = self.journal.instance(),
            seq,
            reason,
            "a record of the journal goes to quarantine; it is kept whole in ledger_quarantine"
        );
        let record = QuarantinedRecord {
            previous_seq,
            seq,
            bytes,
            reason,
        };
        self.journal.note_attempt(seq);
        let shipped = self.store.quarantine_record(self.journal.instance(), &record).await?;
        self.take_note(shipped, seq).await
    }

    async fn take_note(&self, shipped: Shipped, last_seq: u64) -> Result<(), StepError> {
        match shipped {
            Shipped::Committed { .. } => self.mark_shipped(last_seq).await,
            Shipped::Elsewhere { mark } => self.adopt_mark(mark).await,
        }
    }

    async fn look_after_partitions(&self, pace: &mut Pace) -> Result<(), StoreError> {
        if pace.partitions_at.is_some_and(|at| at.elapsed() < PARTITIONS_INTERVAL) {
            return Ok(());
        }
        match self.store.ensure_partitions(Utc::now()).await {
            Err(error) if error.is_transient() => return Err(error),
            // Entries without a partition of their own go to the default one, so shipping goes on.
            Err(error) => tracing::error!(error = %chain(&error), "the ledger's partitions could not be made"),
            Ok(()) => {}
        }
        pace.partitions_at = Some(Instant::now());
        Ok(())
    }

    async fn read_after(&self, after_seq: u64, records_max: usize) -> io::Result<Vec<Entry>> {
        let bytes_max = self.settings.batch_bytes_max;
        self.blocking(move |journal| journal.read_after(after_seq, records_max, bytes_max))
            .await
    }

    /// Goes on from Postgres's mark. What neither Postgres nor the disk has is told first, so that a failure in between
    /// tells it again instead of never.
    async fn adopt_mark(&self, mark: u64) -> Result<(), StepError> {
        for hole in self.journal.holes(mark) {
            let (instance, first_seq, last_seq) = (self.journal.instance(), *hole.seqs.start(), *hole.seqs.end());
            tracing::error!(
                instance,
                first_seq,
                last_seq,
                reason = hole.reason,
                "entries of the ledger are missing"
            );
            self.store
                .note_ledger_gap(instance, first_seq, last_seq, hole.reason)
                .await?;
        }
        Ok(self.blocking(move |journal| journal.adopt_mark(mark)).await?)
    }

    async fn mark_shipped(&self, seq: u64) -> Result<(), StepError> {
        Ok(self
            .blocking(move |journal| {
                journal.mark_shipped(seq);
                Ok(())
            })
            .await?)
    }

    /// File work, off the async threads.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Journal) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let journal = Arc::clone(&self.journal);
        tokio::task::spawn_blocking(move || work(&journal))
            .await
            .map_err(io::Error::other)?
    }

    fn pace(&self) -> Pace {
        Pace {
            records: self.settings.batch_records_max,
            partitions_at: None,
        }
    }

    fn pause_after(&self, failures: u32) -> Duration {
        let pause = self.settings.retry_first.saturating_mul(1 << failures.min(16));
        pause.min(self.settings.retry_max)
    }
}

/// The entries before the first unreadable one, which then comes alone.
fn readable(entries: &[Entry]) -> impl Iterator<Item = (u64, &JournalRecord)> {
    entries.iter().map_while(|entry| match &entry.content {
        Content::Record(record) => Some((entry.seq, record)),
        Content::Unreadable { .. } => None,
    })
}

fn last_readable(entries: &[Entry]) -> u64 {
    readable(entries).last().map_or(0, |(seq, _)| seq)
}

fn batch(previous_seq: u64, entries: &[Entry]) -> ShipBatch<'_> {
    let mut settlements: Vec<&Settlement> = Vec::new();
    let mut rejections: Vec<&Rejection> = Vec::new();
    for (_, record) in readable(entries) {
        match record {
            JournalRecord::Hold(_) => {}
            JournalRecord::Settlement(settlement) => settlements.push(settlement),
            JournalRecord::Rejection(rejection) => rejections.push(rejection),
        }
    }
    ShipBatch {
        previous_seq,
        last_seq: last_readable(entries),
        settlements,
        rejections,
    }
}

/// An error with everything beneath it, in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(beneath) = source {
        text.push_str(": ");
        text.push_str(&beneath.to_string());
        source = beneath.source();
    }
    text
}

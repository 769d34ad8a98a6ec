//! The journal: appended to before a request goes on, read by the shipper, deleted once Postgres has it.

mod recovery;
mod shipping;

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use domain::ledger::{HoldRecord, JournalRecord, Settlement};
use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use self::recovery::Found;
use self::shipping::Cursor;
pub(crate) use self::shipping::{Content, Entry};
use crate::directory::{Directory, OpenError};
use crate::frame;
use crate::segment::{self, Segment};
use crate::settings::{FsyncPolicy, JournalSettings};
use crate::shipping_rate::ShippingRate;
use crate::state::{Facts, Meaning, State};

/// What an ending says beyond its hold, in bytes: use, attempts, verdicts of rehearsed limits. With the length of its hold,
/// which names caller and tags, it is the room kept for every ending, so that a full journal still takes them.
pub(crate) const ENDING_BYTES_BEYOND_HOLD: u64 = 4_096;
/// Room for a request of usual size with its ending, in bytes: with less the status says that the journal is full.
const REQUEST_BYTES: u64 = 8_192;
/// Closed segments that may wait for their sync. With more, whoever appends waits for the disk.
const FILES_UNSYNCED_MAX: usize = 8;

/// Why a record was not appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The journal has reached its size: no new request may be taken on until Postgres has caught up. Never said of a
    /// settlement.
    #[error("the journal is full; Postgres has to catch up first")]
    Full,
    /// The record is longer than one may be.
    #[error("the record is longer than the journal takes")]
    TooLarge,
    /// The disk refused. A request that was not begun must not begin.
    #[error("the journal cannot be written")]
    Io(#[source] io::Error),
    /// The disk refused a settlement. It is kept in memory and written before anything else is; should the process be
    /// killed before, its hold is settled as abandoned.
    #[error("the journal cannot be written; the settlement waits in memory")]
    Deferred {
        /// The number it will have once it is written.
        seq: u64,
        /// What the disk said.
        #[source]
        source: io::Error,
    },
}

/// What was found on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Holds of an earlier life without an ending, in the order they were written. [`Journal::settle_abandoned`] ends them.
    pub open_holds: Vec<HoldRecord>,
    /// Records that may not be in Postgres yet.
    pub unshipped: u64,
    /// Bytes of a record that was being written when the process was killed; cut off.
    pub torn_bytes: u64,
    /// Places where the journal is damaged. They are quarantined when the shipper comes to them.
    pub damaged_places: u64,
    /// Segments that were there and are not any more. What they may have held is told in quarantine.
    pub missing_segments: u64,
}

/// How the journal stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalStatus {
    /// The number of the next record.
    pub next_seq: u64,
    /// The number of the last record on disk; `shipped_seq` when nothing waits. Numbers have gaps, so it is not
    /// `next_seq - 1`.
    pub last_seq: u64,
    /// Everything up to this number is in Postgres.
    pub shipped_seq: u64,
    /// Records not yet in Postgres.
    pub depth: u64,
    /// Size on disk.
    pub bytes: u64,
    /// The size at which new requests are refused.
    pub bytes_max: u64,
    /// Records shipped a second lately, holds included; 0 while nothing is.
    pub shipped_per_second: u64,
    /// How long the oldest record waits to be shipped; `None` when none does. May be a little high while the journal is
    /// being drained.
    pub oldest_unshipped_age: Option<Duration>,
    /// Holds without an ending.
    pub open_holds: u64,
    /// Every entry that was admitted or refused before is in Postgres.
    pub complete_until: DateTime<Utc>,
    /// Whether new requests are refused with `ledger_full`.
    pub is_full: bool,
    /// What last went wrong with disk or shipping, while it lasts.
    pub last_error: Option<String>,
}

/// A journal in a directory of its own. Appends from any thread; each is one write to a file.
#[derive(Debug)]
pub struct Journal {
    directory: Directory,
    instance: String,
    settings: JournalSettings,
    state: Mutex<State>,
    /// Held while the mark is written, so that no older one replaces a newer. Taken before `state`.
    marking: Mutex<()>,
    /// The number up to which the disk was asked to have everything.
    synced_seq: Mutex<u64>,
    cursor: Mutex<Cursor>,
    abandoned: Mutex<Vec<HoldRecord>>,
    pub(crate) appended: Notify,
    shipped: watch::Sender<u64>,
}

impl Journal {
    /// Opens the journal in `directory`, which belongs to `instance` alone and is made at first, and reads what an earlier
    /// life has left. Takes about a second for each gigabyte that was not shipped.
    pub fn open(
        directory: &Path,
        instance: &str,
        settings: JournalSettings,
        now: DateTime<Utc>,
    ) -> Result<(Arc<Self>, Recovered), OpenError> {
        let io = |source| OpenError::Io {
            directory: directory.to_owned(),
            source,
        };
        let locked = Directory::open(directory, instance)?;
        let mark = locked.mark();
        let found = Found::read(&locked, &mark).map_err(io)?;
        // Numbers start at the microsecond of opening, so that they are new even when the directory was lost or restored
        // and Postgres, which would know, is away.
        let clock_seq = u64::try_from(now.timestamp_micros()).unwrap_or(1);
        let inherited_seq = mark.next_seq.max(found.next_seq).saturating_sub(1);
        let next_seq = clock_seq.max(inherited_seq + 1);
        if found.empty.contains(&next_seq) {
            segment::remove(directory, next_seq).map_err(io)?;
        }
        let file = segment::create(directory, next_seq).map_err(io)?;
        let mut state = State {
            sealed: found.segments.into(),
            active: Segment {
                first_seq: next_seq,
                last_seq: next_seq - 1,
                bytes: 0,
            },
            file: Arc::new(file),
            must_roll: false,
            next_seq,
            shipped_seq: mark.shipped_seq,
            has_met_postgres: mark.has_met_postgres,
            has_compared: false,
            inherited_seq,
            attempted: BTreeSet::new(),
            missing: found.missing,
            is_mark_stale: false,
            rate: ShippingRate::default(),
            holds: found.holds,
            ages: found.ages,
            owed: VecDeque::new(),
            ending_seq: 0,
            renumbered_seq: 0,
            unsynced: Vec::new(),
            has_new_names: true,
            disk_error: None,
            shipping_error: None,
        };
        state.ending_seq = state.last_seq();
        let finished = state.take_finished().into_iter().map(|segment| segment.first_seq);
        let needless: Vec<u64> = finished.chain(found.empty).filter(|&first| first != next_seq).collect();
        let recovered = Recovered {
            open_holds: found.open_holds,
            unshipped: state.depth(),
            torn_bytes: found.torn_bytes,
            damaged_places: found.damaged_places,
            missing_segments: state.missing.len() as u64,
        };
        let journal = Self {
            directory: locked,
            instance: instance.to_owned(),
            settings,
            shipped: watch::Sender::new(state.shipped_seq),
            state: Mutex::new(state),
            marking: Mutex::default(),
            synced_seq: Mutex::new(next_seq - 1),
            cursor: Mutex::default(),
            abandoned: Mutex::new(recovered.open_holds.clone()),
            appended: Notify::new(),
        };
        journal.write_mark().map_err(io)?;
        for first_seq in needless {
            segment::remove(directory, first_seq).map_err(io)?;
        }
        Ok((Arc::new(journal), recovered))
    }

    /// Whose journal it is.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Appends a record and returns its number. When this returns, the record outlives the process; under
    /// [`FsyncPolicy::Each`] also the machine. Blocks for one write (microseconds), under that policy for the disk.
    pub fn append(&self, record: &JournalRecord) -> Result<u64, AppendError> {
        let mut frame = frame::encode(record).ok_or(AppendError::TooLarge)?;
        let facts = Facts::of(record);
        let (seq, must_sync) = {
            let mut state = self.state.lock();
            let paid = self.pay_owed(&mut state);
            let seq = if facts.meaning == Meaning::Ending {
                // Behind one that the disk would not take, so that each has the number it was promised.
                match paid.and_then(|()| self.write(&mut state, facts, &mut frame)) {
                    Ok(seq) => seq,
                    Err(source) => {
                        return Err(match state.owe(facts, frame) {
                            Some(seq) => AppendError::Deferred { seq, source },
                            None => AppendError::Io(source),
                        });
                    }
                }
            } else {
                paid.map_err(AppendError::Io)?;
                let length = frame.len() as u64;
                let more = length + ending_bytes(length);
                let is_for_refusals = facts.meaning == Meaning::Refusal && self.is_full_for_refusals(&state, more);
                if is_for_refusals || self.is_full(&state, more) {
                    return Err(AppendError::Full);
                }
                self.write(&mut state, facts, &mut frame).map_err(AppendError::Io)?
            };
            let is_behind = state.unsynced.len() > FILES_UNSYNCED_MAX;
            (seq, self.settings.fsync == FsyncPolicy::Each || is_behind)
        };
        if must_sync {
            handing_over(|| self.sync_through(seq));
        }
        // Holds alone are no reason to bother Postgres.
        if facts.meaning != Meaning::Hold {
            self.appended.notify_one();
        }
        Ok(seq)
    }

    /// Ends every hold that an earlier life has left open, at its expected use. Returns what was appended, with its
    /// numbers; nothing when called again.
    pub fn settle_abandoned(&self, now: DateTime<Utc>) -> Result<Vec<(u64, Settlement)>, AppendError> {
        let mut abandoned = self.abandoned.lock();
        let mut settled = Vec::with_capacity(abandoned.len());
        while let Some(hold) = abandoned.last() {
            let settlement = Settlement::abandoned(hold.clone(), now);
            let seq = self.append(&JournalRecord::Settlement(Box::new(settlement.clone())))?;
            settled.push((seq, settlement));
            abandoned.pop();
        }
        Ok(settled)
    }

    /// How it stands. Cheap: no disk, no allocation to speak of.
    pub fn status(&self, now: DateTime<Utc>) -> JournalStatus {
        let state = self.state.lock();
        JournalStatus {
            next_seq: state.next_seq,
            last_seq: state.last_seq(),
            shipped_seq: state.shipped_seq,
            depth: state.depth(),
            bytes: state.bytes(),
            bytes_max: self.settings.bytes_max,
            shipped_per_second: state.rate.per_second(Instant::now()),
            oldest_unshipped_age: state
                .ages
                .oldest_written_at()
                .map(|at| (now - at).to_std().unwrap_or_default()),
            open_holds: state.holds.len(),
            complete_until: state.complete_until(now),
            is_full: self.is_full(&state, REQUEST_BYTES),
            last_error: state.disk_error.clone().or_else(|| state.shipping_error.clone()),
        }
    }

    /// The number of the last settlement, or of the last one that the disk has yet to take. What Postgres has up to here
    /// lacks nothing that was settled so far.
    pub fn last_ending_seq(&self) -> u64 {
        self.state.lock().ending_seq
    }

    /// Whether Postgres's mark tells which of the numbers given here it contains. Not while it is the mark of an earlier
    /// life whose directory was lost, nor until it has passed everything that was numbered anew because of that.
    pub fn can_compare(&self, mark: u64) -> bool {
        let state = self.state.lock();
        !state.is_foreign(mark) && mark >= state.renumbered_seq
    }

    /// Tells each new mark, once what it stands for is committed.
    pub fn shipped(&self) -> watch::Receiver<u64> {
        self.shipped.subscribe()
    }

    /// Asks for the disk at the interval of [`FsyncPolicy::Interval`], until `stop`, and once more then. Under the other
    /// policies it only waits.
    pub async fn keep_synced(self: &Arc<Self>, stop: &CancellationToken) {
        if self.settings.fsync != FsyncPolicy::Interval {
            stop.cancelled().await;
            return;
        }
        let mut is_last = false;
        while !is_last {
            is_last = tokio::time::timeout(self.settings.fsync_interval, stop.cancelled())
                .await
                .is_ok();
            let journal = Arc::clone(self);
            // Only a panic keeps it from finishing, and there is none to pass on that the next round would not repeat.
            let _ = tokio::task::spawn_blocking(move || journal.sync_through(u64::MAX)).await;
        }
    }

    /// New work is refused above the size, less what the open holds' endings will need.
    fn is_full(&self, state: &State, more: u64) -> bool {
        let endings = state.holds.ending_bytes();
        state.bytes().saturating_add(endings).saturating_add(more) > self.settings.bytes_max
    }

    /// Refusals leave room for requests that run: what of them has none is counted in memory.
    fn is_full_for_refusals(&self, state: &State, more: u64) -> bool {
        let share = self
            .settings
            .bytes_max
            .saturating_mul(self.settings.refusals_percent.into())
            / 100;
        let taken = state.bytes().saturating_add(state.holds.ending_bytes());
        taken.saturating_add(more) > share
    }

    fn pay_owed(&self, state: &mut State) -> io::Result<()> {
        while let Some(mut owed) = state.owed.pop_front() {
            if let Err(error) = self.write(state, owed.facts, &mut owed.frame) {
                state.owed.push_front(owed);
                return Err(error);
            }
        }
        Ok(())
    }

    fn write(&self, state: &mut State, facts: Facts, frame: &mut [u8]) -> io::Result<u64> {
        let written = self.try_write(state, frame);
        match &written {
            Ok(seq) => {
                state.disk_error = None;
                state.note(facts, *seq, state.active.first_seq, ending_bytes(frame.len() as u64));
            }
            Err(error) => state.disk_error = Some(format!("the journal cannot be written: {error}")),
        }
        written
    }

    fn try_write(&self, state: &mut State, frame: &mut [u8]) -> io::Result<u64> {
        let length = frame.len() as u64;
        let is_over = state.active.bytes > 0 && state.active.bytes + length > self.settings.segment_bytes;
        if state.must_roll || is_over {
            self.roll(state, state.next_seq)?;
        }
        let seq = state.next_seq;
        frame::seal(frame, seq);
        if let Err(error) = (&*state.file).write_all(frame) {
            // Half a record may be there (the disk is full, say): cut it off, or leave the segment at what is whole.
            state.must_roll = state.file.set_len(state.active.bytes).is_err();
            return Err(error);
        }
        state.next_seq = seq + 1;
        state.active.last_seq = seq;
        state.active.bytes += length;
        Ok(seq)
    }

    /// Closes the active segment and begins the one whose first record is `first_seq`.
    fn roll(&self, state: &mut State, first_seq: u64) -> io::Result<()> {
        if state.active.bytes == 0 && state.active.first_seq == first_seq {
            segment::remove(self.directory.path(), first_seq)?;
        }
        let file = Arc::new(segment::create(self.directory.path(), first_seq)?);
        let closed = std::mem::replace(
            &mut state.active,
            Segment {
                first_seq,
                last_seq: first_seq - 1,
                bytes: 0,
            },
        );
        if closed.bytes > 0 {
            state.sealed.push_back(closed);
        }
        let closed = std::mem::replace(&mut state.file, file);
        if self.settings.fsync != FsyncPolicy::Os {
            // By whoever asks for the disk next, who does not hold the lock meanwhile.
            state.unsynced.push(closed);
            state.has_new_names = true;
        }
        state.next_seq = first_seq;
        state.must_roll = false;
        // Written by the shipper: whoever appends does not wait for it.
        state.is_mark_stale = true;
        Ok(())
    }

    /// Asks for the disk unless somebody else has done so for everything up to `seq`.
    fn sync_through(&self, seq: u64) {
        let mut synced = self.synced_seq.lock();
        if *synced >= seq {
            return;
        }
        let (closed, file, has_new_names, last_seq) = {
            let mut state = self.state.lock();
            if *synced >= state.next_seq - 1 {
                return;
            }
            (
                std::mem::take(&mut state.unsynced),
                Arc::clone(&state.file),
                std::mem::take(&mut state.has_new_names),
                state.next_seq - 1,
            )
        };
        // All of them, whatever one says: a sync that was asked for and failed cannot be made up for.
        let mut outcome = Ok(());
        for file in closed.iter().chain(std::iter::once(&file)) {
            outcome = file.sync_data().and(outcome);
        }
        if has_new_names {
            outcome = self.directory.sync().and(outcome);
        }
        match outcome {
            Ok(()) => *synced = last_seq,
            Err(error) => {
                tracing::error!(%error, "the disk did not confirm the journal");
                let mut state = self.state.lock();
                state.disk_error = Some(format!("the disk did not confirm the journal: {error}"));
                state.has_new_names |= has_new_names;
                // What a file's failed sync has lost is not told again by its next one, so go on in another file.
                state.must_roll = true;
            }
        }
    }

    /// Writes down where the journal stands now.
    fn write_mark(&self) -> io::Result<()> {
        let _order = self.marking.lock();
        let mark = {
            let mut state = self.state.lock();
            state.is_mark_stale = false;
            state.mark()
        };
        let written = self.directory.set_mark(&mark);
        if written.is_err() {
            self.state.lock().is_mark_stale = true;
        }
        written
    }
}

/// The room to keep for the ending of a hold whose frame is so long.
pub(crate) fn ending_bytes(hold_bytes: u64) -> u64 {
    hold_bytes.saturating_add(ENDING_BYTES_BEYOND_HOLD)
}

/// Does what waits for the disk. On a thread that runs other tasks, too, those move to another one first.
fn handing_over(work: impl FnOnce()) {
    let can_hand_over =
        Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if can_hand_over {
        tokio::task::block_in_place(work);
    } else {
        work();
    }
}

#[cfg(test)]
mod tests;

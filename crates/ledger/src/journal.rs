//! The journal: appended to before a request goes on, read by the shipper, deleted once Postgres has it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use domain::ids::RequestId;
use domain::ledger::{HoldRecord, JournalRecord, Settlement};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::directory::{Directory, Mark, OpenError};
use crate::frame::{self, FRAME_BYTES_MAX, Piece};
use crate::segment::{self, Segment};
use crate::settings::{FsyncPolicy, JournalSettings};
use crate::state::{Ages, Facts, Meaning, OpenHolds, State};

/// Room kept for the ending of every open hold, in bytes, so that a full journal still takes them.
const ENDING_BYTES: u64 = 2_048;
/// Segments that may wait for the end of an old hold. With more, the hold is written again at the end of the journal.
const SEGMENTS_HELD_MAX: usize = 8;

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
    Deferred(#[source] io::Error),
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
}

/// How the journal stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalStatus {
    /// The number of the next record.
    pub next_seq: u64,
    /// Everything up to this number is in Postgres.
    pub shipped_seq: u64,
    /// Records not yet in Postgres.
    pub depth: u64,
    /// Size on disk.
    pub bytes: u64,
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
    /// The number up to which the disk was asked to have everything.
    synced_seq: Mutex<u64>,
    cursor: Mutex<Cursor>,
    abandoned: Mutex<Vec<HoldRecord>>,
    pub(crate) appended: Notify,
    shipped: watch::Sender<u64>,
}

/// Where the record behind `after_seq` starts.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    after_seq: u64,
    segment: u64,
    offset: u64,
}

/// What the shipper reads.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) seq: u64,
    pub(crate) content: Content,
}

#[derive(Debug)]
pub(crate) enum Content {
    Record(JournalRecord),
    /// Damaged on disk, or written by a version that knows other records.
    Unreadable {
        bytes: Vec<u8>,
        reason: String,
    },
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
        let found = Found::read(&locked, mark).map_err(io)?;
        // Numbers start at the microsecond of opening, so that they are new even when the directory was lost or restored
        // and Postgres, which would know, is away.
        let clock_seq = u64::try_from(now.timestamp_micros()).unwrap_or(1);
        let next_seq = mark.next_seq.max(found.next_seq).max(clock_seq);
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
            holds: found.holds,
            ages: found.ages,
            owed: std::collections::VecDeque::new(),
            disk_error: None,
            shipping_error: None,
        };
        for finished in state.take_finished() {
            segment::remove(directory, finished.first_seq).map_err(io)?;
        }
        let recovered = Recovered {
            open_holds: found.open_holds,
            unshipped: state.depth(),
            torn_bytes: found.torn_bytes,
            damaged_places: found.damaged_places,
        };
        let journal = Self {
            directory: locked,
            instance: instance.to_owned(),
            settings,
            shipped: watch::Sender::new(state.shipped_seq),
            state: Mutex::new(state),
            synced_seq: Mutex::new(next_seq - 1),
            cursor: Mutex::default(),
            abandoned: Mutex::new(recovered.open_holds.clone()),
            appended: Notify::new(),
        };
        journal.write_mark().map_err(io)?;
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
        let seq = {
            let mut state = self.state.lock();
            let paid = self.pay_owed(&mut state);
            if facts.meaning != Meaning::Ending {
                paid.map_err(AppendError::Io)?;
                if self.is_full(&state, frame.len() as u64) {
                    return Err(AppendError::Full);
                }
            }
            match self.write(&mut state, facts, &mut frame) {
                Ok(seq) => seq,
                Err(error) => {
                    let JournalRecord::Settlement(settlement) = record else {
                        return Err(AppendError::Io(error));
                    };
                    if !state.holds.contains(facts.id) {
                        return Err(AppendError::Io(error));
                    }
                    state.owed.push_back(Settlement::clone(settlement));
                    return Err(AppendError::Deferred(error));
                }
            }
        };
        if self.settings.fsync == FsyncPolicy::Each {
            self.sync_through(seq);
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
            shipped_seq: state.shipped_seq,
            depth: state.depth(),
            bytes: state.bytes(),
            oldest_unshipped_age: state
                .ages
                .oldest_written_at()
                .map(|at| (now - at).to_std().unwrap_or_default()),
            open_holds: state.holds.len(),
            complete_until: state.complete_until(now),
            is_full: self.is_full(&state, 0),
            last_error: state.disk_error.clone().or_else(|| state.shipping_error.clone()),
        }
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
        let endings = (state.holds.len() + 1).saturating_mul(ENDING_BYTES);
        state.bytes().saturating_add(endings).saturating_add(more) > self.settings.bytes_max
    }

    fn pay_owed(&self, state: &mut State) -> io::Result<()> {
        while let Some(settlement) = state.owed.front() {
            let record = JournalRecord::Settlement(Box::new(settlement.clone()));
            if let Some(mut frame) = frame::encode(&record) {
                self.write(state, Facts::of(&record), &mut frame)?;
            }
            state.owed.pop_front();
        }
        Ok(())
    }

    fn write(&self, state: &mut State, facts: Facts, frame: &mut [u8]) -> io::Result<u64> {
        let written = self.try_write(state, frame);
        match &written {
            Ok(seq) => {
                state.disk_error = None;
                state.note(facts, *seq, state.active.first_seq);
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
        let file = segment::create(self.directory.path(), first_seq)?;
        if self.settings.fsync != FsyncPolicy::Os {
            state.file.sync_data()?;
        }
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
        state.file = Arc::new(file);
        state.next_seq = first_seq;
        state.must_roll = false;
        Ok(())
    }

    /// Asks for the disk unless somebody else has done so for everything up to `seq`.
    fn sync_through(&self, seq: u64) {
        let mut synced = self.synced_seq.lock();
        if *synced >= seq {
            return;
        }
        let (file, last_seq) = {
            let state = self.state.lock();
            (Arc::clone(&state.file), state.next_seq - 1)
        };
        if *synced >= last_seq {
            return;
        }
        match file.sync_data() {
            Ok(()) => *synced = last_seq,
            Err(error) => {
                tracing::error!(%error, "the disk did not confirm the journal");
                let mut state = self.state.lock();
                state.disk_error = Some(format!("the disk did not confirm the journal: {error}"));
                // What a file's failed sync has lost is not told again by its next one, so go on in another file.
                state.must_roll = true;
            }
        }
    }

    fn write_mark(&self) -> io::Result<()> {
        let mark = {
            let state = self.state.lock();
            Mark {
                shipped_seq: state.shipped_seq,
                next_seq: state.next_seq,
                has_met_postgres: state.has_met_postgres,
            }
        };
        self.directory.set_mark(mark)
    }
}

/// The shipper's side.
impl Journal {
    /// Whether this journal's numbers were ever compared with Postgres's mark.
    pub(crate) fn has_met_postgres(&self) -> bool {
        self.state.lock().has_met_postgres
    }

    /// The mark as known here.
    pub(crate) fn shipped_seq(&self) -> u64 {
        self.state.lock().shipped_seq
    }

    /// Records not yet in Postgres.
    pub(crate) fn depth(&self) -> u64 {
        self.state.lock().depth()
    }

    /// Notes what keeps the shipper from shipping, or that nothing does any more.
    pub(crate) fn set_shipping_error(&self, error: Option<String>) {
        self.state.lock().shipping_error = error;
    }

    /// Writes what the disk would not take before, if there is any.
    pub(crate) fn retry_owed(&self) {
        // A failure is noted in the status, and this is called again.
        let _ = self.pay_owed(&mut self.state.lock());
    }

    /// Takes over Postgres's mark, which is the truth: after a lost answer it is ahead, after a restored backup behind. A
    /// mark of an earlier life whose directory was lost lies above numbers given here: those are given anew above it.
    pub(crate) fn adopt_mark(&self, mark: u64) -> io::Result<()> {
        {
            let mut state = self.state.lock();
            let first_seq = state
                .segments()
                .next()
                .map_or(state.next_seq, |oldest| oldest.first_seq);
            let is_foreign = mark >= state.next_seq || (!state.has_met_postgres && mark >= first_seq);
            if is_foreign {
                self.renumber_above(&mut state, mark)?;
            }
            if mark < state.shipped_seq {
                tracing::error!(
                    mark,
                    shipped_seq = state.shipped_seq,
                    "Postgres contains less than was shipped, as after restoring a backup; shipping again what is still here"
                );
                self.recount_ages(&mut state, mark)?;
            }
            state.has_met_postgres = true;
        }
        self.mark_shipped(mark);
        Ok(())
    }

    /// Everything up to `seq` is in Postgres: deletes what nobody needs any more and tells who waits.
    pub(crate) fn mark_shipped(&self, seq: u64) {
        let finished = {
            let mut state = self.state.lock();
            state.shipped_seq = seq;
            state.ages.shipped(seq);
            self.carry_old_holds(&mut state);
            state.take_finished()
        };
        for segment in finished {
            if let Err(error) = segment::remove(self.directory.path(), segment.first_seq) {
                // It is looked at and removed again at the next start.
                tracing::warn!(%error, first_seq = segment.first_seq, "a shipped segment of the journal stays");
            }
        }
        if let Err(error) = self.write_mark() {
            tracing::warn!(%error, "the journal's mark cannot be written; the next start ships a little again");
        }
        self.shipped.send_replace(seq);
    }

    /// Records behind `after_seq`, in order, from one segment: at most `records_max`, and at most `bytes_max` if that lets
    /// one through. Nothing when everything is shipped.
    pub(crate) fn read_after(&self, after_seq: u64, records_max: usize, bytes_max: usize) -> io::Result<Vec<Entry>> {
        let segments: Vec<Segment> = {
            let state = self.state.lock();
            state
                .segments()
                .filter(|segment| segment.last_seq > after_seq)
                .copied()
                .collect()
        };
        for segment in segments {
            let entries = self.read_segment(segment, after_seq, records_max.max(1), bytes_max)?;
            if !entries.is_empty() {
                return Ok(entries);
            }
        }
        Ok(Vec::new())
    }

    fn read_segment(
        &self,
        segment: Segment,
        after_seq: u64,
        records_max: usize,
        bytes_max: usize,
    ) -> io::Result<Vec<Entry>> {
        let cursor = *self.cursor.lock();
        let is_known = cursor.segment == segment.first_seq && cursor.after_seq == after_seq;
        let (mut offset, mut previous_seq) = if is_known {
            (cursor.offset, after_seq)
        } else {
            (0, segment.first_seq.saturating_sub(1))
        };
        let mut file = File::open(segment::path(self.directory.path(), segment.first_seq))?;
        let mut entries = Vec::new();
        let chunk_bytes = bytes_max.saturating_add(FRAME_BYTES_MAX) as u64;
        while offset < segment.bytes && entries.is_empty() {
            file.seek(SeekFrom::Start(offset))?;
            let chunk_end = segment.bytes.min(offset + chunk_bytes);
            let mut bytes = vec![0; (chunk_end - offset) as usize];
            file.read_exact(&mut bytes)?;
            let is_whole = chunk_end == segment.bytes;
            let mut start = 0;
            loop {
                let is_enough = entries.len() >= records_max || (start >= bytes_max && !entries.is_empty());
                if is_enough {
                    break;
                }
                match frame::piece(&bytes, start, previous_seq) {
                    Piece::Record { seq, json, end } => {
                        if seq > after_seq {
                            entries.push(Entry {
                                seq,
                                content: content(&bytes[json]),
                            });
                        }
                        previous_seq = seq;
                        start = end;
                    }
                    Piece::Damage {
                        bytes: damage,
                        next_seq,
                    } => {
                        let lost_seq = previous_seq + 1;
                        start = damage.end;
                        // Without a missing number nothing was lost here: the bytes are what a failed write has left.
                        if lost_seq < next_seq {
                            previous_seq = lost_seq;
                            if lost_seq > after_seq {
                                entries.push(unreadable(lost_seq, &bytes[damage]));
                            }
                        }
                    }
                    Piece::Tail { start: tail } => {
                        // In a chunk that was cut, the next one starts here. At the end of a segment it is damage.
                        start = tail;
                        let is_damage = is_whole && tail < bytes.len();
                        let is_stuck = !is_whole && tail == 0;
                        if is_damage || is_stuck {
                            let lost_seq = if is_whole { segment.last_seq } else { previous_seq + 1 };
                            start = bytes.len();
                            if lost_seq > after_seq && lost_seq > previous_seq {
                                entries.push(unreadable(lost_seq, &bytes[tail..]));
                                previous_seq = lost_seq;
                            }
                        }
                        break;
                    }
                }
            }
            offset += start as u64;
        }
        if let Some(last) = entries.last() {
            *self.cursor.lock() = Cursor {
                after_seq: last.seq,
                segment: segment.first_seq,
                offset,
            };
        }
        Ok(entries)
    }

    /// A hold that stays open keeps its segment and all behind it. When these become many, what is still open in the oldest
    /// is written again at the end.
    fn carry_old_holds(&self, state: &mut State) {
        while state.sealed.len() > SEGMENTS_HELD_MAX
            && let Some(oldest) = state.sealed.front().copied()
            && oldest.last_seq <= state.shipped_seq
            && state.holds.oldest_segment() == Some(oldest.first_seq)
        {
            if let Err(error) = self.append_again(state, oldest, |facts, state| {
                facts.meaning == Meaning::Hold && state.holds.contains(facts.id)
            }) {
                tracing::warn!(%error, "old holds keep their segment of the journal");
                return;
            }
            for finished in state.take_finished() {
                if let Err(error) = segment::remove(self.directory.path(), finished.first_seq) {
                    tracing::warn!(%error, first_seq = finished.first_seq, "a shipped segment of the journal stays");
                }
            }
        }
    }

    /// Writes everything again with numbers above `mark`. What Postgres has already, it recognises by the entries' keys.
    fn renumber_above(&self, state: &mut State, mark: u64) -> io::Result<()> {
        tracing::warn!(
            mark,
            next_seq = state.next_seq,
            "numbering the journal anew above Postgres's mark"
        );
        let old: Vec<Segment> = state.segments().copied().collect();
        self.roll(state, state.next_seq.max(mark.saturating_add(1)))?;
        state.sealed.clear();
        state.ages.clear();
        state.shipped_seq = mark;
        for &segment in &old {
            if segment.bytes > 0 {
                self.append_again(state, segment, |_, _| true)?;
            }
        }
        for segment in old {
            segment::remove(self.directory.path(), segment.first_seq)?;
        }
        Ok(())
    }

    fn append_again(
        &self,
        state: &mut State,
        segment: Segment,
        is_wanted: impl Fn(Facts, &State) -> bool,
    ) -> io::Result<()> {
        let bytes = read_whole(self.directory.path(), segment)?;
        let mut outcome = Ok(());
        segment::for_each_piece(&bytes, segment.first_seq, |piece| {
            let Piece::Record { json, .. } = piece else {
                return;
            };
            let Ok(record) = serde_json::from_slice::<JournalRecord>(&bytes[json.clone()]) else {
                return;
            };
            let facts = Facts::of(&record);
            if outcome.is_ok()
                && is_wanted(facts, state)
                && let Some(mut frame) = frame::encode(&record)
            {
                outcome = self.write(state, facts, &mut frame).map(drop);
            }
        });
        outcome
    }

    /// Reads again how old the records behind `mark` are.
    fn recount_ages(&self, state: &mut State, mark: u64) -> io::Result<()> {
        state.ages.clear();
        state.shipped_seq = mark;
        let segments: Vec<Segment> = state.segments().copied().collect();
        for segment in segments {
            let bytes = read_whole(self.directory.path(), segment)?;
            segment::for_each_piece(&bytes, segment.first_seq, |piece| {
                if let Piece::Record { seq, json, .. } = piece
                    && *seq > mark
                    && let Some(facts) = glance(&bytes[json.clone()])
                {
                    state.ages.push(facts, *seq);
                }
            });
        }
        Ok(())
    }
}

/// What an earlier life has left.
#[derive(Default)]
struct Found {
    segments: Vec<Segment>,
    /// The first number above all of them; 0 without any.
    next_seq: u64,
    holds: OpenHolds,
    ages: Ages,
    open_holds: Vec<HoldRecord>,
    torn_bytes: u64,
    damaged_places: u64,
}

impl Found {
    fn read(directory: &Directory, mark: Mark) -> io::Result<Self> {
        let mut found = Self::default();
        let mut open: HashMap<RequestId, (u64, HoldRecord)> = HashMap::new();
        let names = segment::list(directory.path())?;
        for (at, &first_seq) in names.iter().enumerate() {
            found.read_segment(directory.path(), first_seq, names.get(at + 1).copied(), mark, &mut open)?;
        }
        let mut open: Vec<(u64, HoldRecord)> = open.into_values().collect();
        open.sort_by_key(|(seq, _)| *seq);
        found.open_holds = open.into_iter().map(|(_, hold)| hold).collect();
        Ok(found)
    }

    fn read_segment(
        &mut self,
        directory: &Path,
        first_seq: u64,
        next_first_seq: Option<u64>,
        mark: Mark,
        open: &mut HashMap<RequestId, (u64, HoldRecord)>,
    ) -> io::Result<()> {
        let path = segment::path(directory, first_seq);
        let bytes = fs::read(&path)?;
        let mut segment = Segment {
            first_seq,
            last_seq: first_seq.saturating_sub(1),
            bytes: 0,
        };
        segment::for_each_piece(&bytes, first_seq, |piece| match piece {
            Piece::Record { seq, json, end } => {
                segment.last_seq = *seq;
                segment.bytes = *end as u64;
                let Some(facts) = glance(&bytes[json.clone()]) else {
                    return;
                };
                match facts.meaning {
                    Meaning::Hold => {
                        if let Ok(JournalRecord::Hold(hold)) = serde_json::from_slice(&bytes[json.clone()]) {
                            self.holds.open(facts.id, first_seq, facts.counts_at);
                            open.insert(facts.id, (*seq, *hold));
                        }
                    }
                    Meaning::Ending => {
                        self.holds.end(facts.id);
                        open.remove(&facts.id);
                    }
                    Meaning::Refusal => {}
                }
                if *seq > mark.shipped_seq {
                    self.ages.push(facts, *seq);
                }
            }
            Piece::Damage { bytes, .. } => {
                self.damaged_places += 1;
                tracing::error!(
                    first_seq,
                    offset = bytes.start,
                    length = bytes.len(),
                    "the journal is damaged here"
                );
            }
            Piece::Tail { start } => {
                let left_over = (bytes.len() - start) as u64;
                if left_over == 0 {
                    return;
                }
                if next_first_seq.is_none() {
                    // Nobody was told that this record is there: its append never returned.
                    self.torn_bytes = left_over;
                    tracing::warn!(
                        first_seq,
                        offset = start,
                        left_over,
                        "cutting off a record that was not written whole"
                    );
                } else if next_first_seq.is_some_and(|next| segment.last_seq + 1 < next) {
                    self.damaged_places += 1;
                    segment.last_seq += 1;
                    segment.bytes = bytes.len() as u64;
                    tracing::error!(
                        first_seq,
                        offset = start,
                        left_over,
                        "the journal is damaged up to a segment's end"
                    );
                }
            }
        });
        if next_first_seq.is_none() && segment.bytes < bytes.len() as u64 {
            fs::OpenOptions::new().write(true).open(&path)?.set_len(segment.bytes)?;
        }
        self.next_seq = self.next_seq.max(segment.last_seq + 1).max(first_seq);
        if segment.bytes == 0 {
            segment::remove(directory, first_seq)?;
        } else {
            self.segments.push(segment);
        }
        Ok(())
    }
}

/// The facts of a record, without reading the rest of it.
fn glance(json: &[u8]) -> Option<Facts> {
    #[derive(Deserialize)]
    struct Glance {
        kind: Kind,
        entry: Times,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        Hold,
        Settlement,
        Rejection,
    }
    #[derive(Deserialize)]
    struct Times {
        id: RequestId,
        admitted_at: Option<DateTime<Utc>>,
        settled_at: Option<DateTime<Utc>>,
        refused_at: Option<DateTime<Utc>>,
    }
    let Glance { kind, entry } = serde_json::from_slice(json).ok()?;
    let counts_at = entry.admitted_at.or(entry.refused_at)?;
    Some(Facts {
        meaning: match kind {
            Kind::Hold => Meaning::Hold,
            Kind::Settlement => Meaning::Ending,
            Kind::Rejection => Meaning::Refusal,
        },
        id: entry.id,
        counts_at,
        written_at: entry.settled_at.unwrap_or(counts_at),
    })
}

fn content(json: &[u8]) -> Content {
    match serde_json::from_slice(json) {
        Ok(record) => Content::Record(record),
        Err(error) => Content::Unreadable {
            bytes: json.to_vec(),
            reason: format!("this version cannot read the record: {error}"),
        },
    }
}

fn unreadable(seq: u64, bytes: &[u8]) -> Entry {
    Entry {
        seq,
        content: Content::Unreadable {
            bytes: bytes.to_vec(),
            reason: "the journal is damaged here".to_owned(),
        },
    }
}

fn read_whole(directory: &Path, segment: Segment) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(segment.bytes as usize);
    File::open(segment::path(directory, segment.first_seq))?
        .take(segment.bytes)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;

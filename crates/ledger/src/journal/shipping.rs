//! The shipper's side of the journal: reading what is not in Postgres yet, and forgetting what is.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::time::Instant;

use domain::ledger::JournalRecord;
use uuid::Uuid;

use super::recovery::glance;
use super::{Journal, REQUEST_BYTES, ending_bytes};
use crate::directory::Mark;
use crate::frame::{self, FRAME_BYTES_MAX, Piece};
use crate::segment::{self, Segment};
use crate::settings::FsyncPolicy;
use crate::state::{Facts, Hole, Meaning, OpenHolds, State};

/// Segments that may wait for the end of an old hold. With more, the hold is written again at the end of the journal.
pub(super) const SEGMENTS_HELD_MAX: usize = 8;

/// The end of [`distance`].
const DISTANCE_MAX: u64 = 1_000_000;

/// Where the record behind `after_seq` starts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
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
    /// Whether this journal's numbers were compared with Postgres's mark since it was opened.
    pub(crate) fn has_compared(&self) -> bool {
        self.state.lock().has_compared
    }

    /// A batch is about to be sent that moves the mark to `seq`: should its answer be lost, that is where it may be.
    pub(crate) fn note_attempt(&self, seq: u64) {
        self.state.lock().attempted.insert(seq);
    }

    /// Numbers beyond Postgres's mark that were given to records and are not on disk any more.
    pub(crate) fn holes(&self, mark: u64) -> Vec<Hole> {
        self.state.lock().holes(mark)
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

    /// Writes down which segments there are, where that has changed.
    pub(crate) fn keep_mark(&self) {
        let is_stale = self.state.lock().is_mark_stale;
        if is_stale && let Err(error) = self.write_mark() {
            tracing::debug!(%error, "the journal's mark cannot be written; it is tried again");
        }
    }

    /// Writes what the disk would not take before, if there is any.
    pub(crate) fn retry_owed(&self) {
        let written_seq = {
            let mut state = self.state.lock();
            if state.owed.is_empty() {
                return;
            }
            // A failure is noted in the status, and this is called again.
            let _ = self.pay_owed(&mut state);
            state.next_seq - 1
        };
        if self.settings.fsync == FsyncPolicy::Each {
            self.sync_through(written_seq);
        }
    }

    /// Takes over Postgres's mark, which is the truth: after a lost answer it is ahead, after a restored backup behind. A
    /// mark that nothing from here has set is that of another directory under the same name, which was lost or is still in
    /// use: everything here is then numbered anew above it.
    pub(crate) fn adopt_mark(&self, mark: u64) -> io::Result<()> {
        {
            let _order = self.marking.lock();
            let mut state = self.state.lock();
            if state.is_foreign(mark) {
                self.renumber_above(&mut state, mark)?;
            } else if mark < state.shipped_seq {
                tracing::error!(
                    mark,
                    shipped_seq = state.shipped_seq,
                    "Postgres contains less than was shipped, as after restoring a backup; shipping again what is still here"
                );
                self.recount(&mut state, mark)?;
            }
            state.has_met_postgres = true;
            state.has_compared = true;
            state.missing.clear();
        }
        self.mark_shipped(mark);
        Ok(())
    }

    /// Everything up to `seq` is in Postgres: deletes what nobody needs any more and tells who waits.
    pub(crate) fn mark_shipped(&self, seq: u64) {
        let finished = {
            let mut state = self.state.lock();
            let depth = state.depth();
            state.shipped_seq = seq;
            let records = depth.saturating_sub(state.depth());
            state.rate.note(records, Instant::now());
            state.attempted.clear();
            state.ages.shipped(seq);
            // The last segment is the only one, perhaps, where room is short.
            let is_short_of_room = state.disk_error.is_some() || self.is_full(&state, REQUEST_BYTES);
            if is_short_of_room && state.active.bytes > 0 && state.active.last_seq <= seq {
                let next_seq = state.next_seq;
                if let Err(error) = self.roll(&mut state, next_seq) {
                    tracing::warn!(%error, "the disk takes no new segment of the journal");
                }
            }
            let mut finished = self.carry_old_holds(&mut state);
            finished.extend(state.take_finished());
            finished
        };
        // Before they are removed: a segment that the mark tells of and that is not there has gone astray.
        if let Err(error) = self.write_mark() {
            tracing::warn!(%error, "the journal's mark cannot be written; the next start ships a little again");
        }
        for segment in finished {
            if let Err(error) = segment::remove(self.directory.path(), segment.first_seq) {
                // It is looked at and removed again at the next start.
                tracing::warn!(%error, first_seq = segment.first_seq, "a shipped segment of the journal stays");
            }
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
    /// is written again at the end. Answers the segments that nobody needs any more because of that.
    fn carry_old_holds(&self, state: &mut State) -> Vec<Segment> {
        let mut finished = Vec::new();
        // What the disk would not take before has been promised the next numbers.
        while state.owed.is_empty()
            && state.sealed.len() > SEGMENTS_HELD_MAX
            && let Some(oldest) = state.sealed.front().copied()
            && oldest.last_seq <= state.shipped_seq
            && state.holds.oldest_segment() == Some(oldest.first_seq)
        {
            if let Err(error) = self.append_again(state, oldest, |facts, _, state| {
                facts.meaning == Meaning::Hold && state.holds.contains(facts.id)
            }) {
                tracing::warn!(%error, "old holds keep their segment of the journal");
                return finished;
            }
            finished.extend(state.take_finished());
        }
        finished
    }

    /// Writes everything again with numbers well above `mark`. What Postgres has already, it recognises by the entries' keys.
    fn renumber_above(&self, state: &mut State, mark: u64) -> io::Result<()> {
        tracing::error!(
            mark,
            next_seq = state.next_seq,
            "Postgres's mark was set from another directory under this gateway's name, which was lost or is still in use; \
             everything in this one is shipped again, and nothing is counted twice"
        );
        // First what has been promised its numbers: they are given anew with the others.
        self.pay_owed(state)?;
        let first_seq = state.next_seq.max(mark.saturating_add(1)).saturating_add(distance());
        // Killed before the end, the next start does all of it again, instead of taking the old numbers for shipped.
        state.has_met_postgres = false;
        self.directory.set_mark(&Mark {
            next_seq: first_seq,
            ..state.mark()
        })?;
        // The active segment, while it is empty, may be the new one already.
        let old: Vec<Segment> = state
            .segments()
            .filter(|old| old.first_seq < first_seq)
            .copied()
            .collect();
        let shipped_seq = state.shipped_seq;
        let written = self.write_above(state, mark, first_seq, &old);
        if let Err(error) = written {
            // The disk is full, perhaps, and takes it another time: until then the old ones are all there is.
            self.take_back(state, shipped_seq, first_seq, old)?;
            return Err(error);
        }
        state.has_met_postgres = true;
        self.directory.set_mark(&state.mark())?;
        for segment in old {
            segment::remove(self.directory.path(), segment.first_seq)?;
        }
        Ok(())
    }

    fn write_above(&self, state: &mut State, mark: u64, first_seq: u64, old: &[Segment]) -> io::Result<()> {
        self.roll(state, first_seq)?;
        state.sealed.clear();
        state.ages.clear();
        let shipped_seq = std::mem::replace(&mut state.shipped_seq, mark);
        for &segment in old {
            if segment.bytes > 0 {
                // What is known to be in Postgres need not go again, where months that were dropped would count it twice.
                self.append_again(state, segment, |facts, seq, state| {
                    seq > shipped_seq || (facts.meaning == Meaning::Hold && state.holds.contains(facts.id))
                })?;
            }
        }
        state.renumbered_seq = state.last_seq();
        state.ending_seq = state.renumbered_seq;
        if self.settings.fsync != FsyncPolicy::Os {
            // The only copy is about to be the new one. This happens when a lost directory meets Postgres, and never again.
            for file in state.unsynced.drain(..).chain([Arc::clone(&state.file)]) {
                file.sync_data()?;
            }
            self.directory.sync()?;
            state.has_new_names = false;
        }
        Ok(())
    }

    /// Forgets what was written of the segments from `first_seq` on, and goes by the old ones again.
    fn take_back(&self, state: &mut State, shipped_seq: u64, first_seq: u64, old: Vec<Segment>) -> io::Result<()> {
        if self.roll(state, state.next_seq).is_err() {
            state.file.set_len(0)?;
            state.active.bytes = 0;
            state.active.last_seq = state.active.first_seq - 1;
            state.must_roll = true;
        }
        let copies: Vec<Segment> = state
            .sealed
            .drain(..)
            .filter(|copy| copy.first_seq >= first_seq)
            .collect();
        for copy in copies {
            segment::remove(self.directory.path(), copy.first_seq)?;
        }
        state.sealed = old.into_iter().filter(|segment| segment.bytes > 0).collect();
        self.recount(state, shipped_seq)
    }

    fn append_again(
        &self,
        state: &mut State,
        segment: Segment,
        is_wanted: impl Fn(Facts, u64, &State) -> bool,
    ) -> io::Result<()> {
        let bytes = segment::read(self.directory.path(), segment)?;
        let mut outcome = Ok(());
        segment::for_each_piece(&bytes, segment.first_seq, |piece| {
            let Piece::Record { seq, json, .. } = piece else {
                return;
            };
            let Ok(record) = serde_json::from_slice::<JournalRecord>(&bytes[json.clone()]) else {
                return;
            };
            let facts = Facts::of(&record);
            if outcome.is_ok()
                && is_wanted(facts, *seq, state)
                && let Some(mut frame) = frame::encode(&record)
            {
                outcome = self.write(state, facts, &mut frame).map(drop);
            }
        });
        outcome
    }

    /// Reads again which holds are open, and how old the records behind `mark` are.
    fn recount(&self, state: &mut State, mark: u64) -> io::Result<()> {
        state.ages.clear();
        state.holds = OpenHolds::default();
        state.shipped_seq = mark;
        let segments: Vec<Segment> = state.segments().copied().collect();
        for segment in segments {
            let bytes = segment::read(self.directory.path(), segment)?;
            segment::for_each_piece(&bytes, segment.first_seq, |piece| {
                if let Piece::Record { seq, json, .. } = piece
                    && let Some(facts) = glance(&bytes[json.clone()])
                {
                    state.note(facts, *seq, segment.first_seq, ending_bytes(json.len() as u64));
                }
            });
        }
        Ok(())
    }
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

/// How far above a foreign mark numbers begin anew, by chance: of two that count on from the same mark, one would come to the
/// other's marks and take them for its own. Numbers are microseconds, so this is less than a second of them.
fn distance() -> u64 {
    // Unit tests go by exact numbers.
    if cfg!(test) {
        return 0;
    }
    // The low bits of a version 7 UUID are random.
    Uuid::now_v7().as_u128() as u64 % DISTANCE_MAX
}

//! What the journal knows about its own content without reading it again.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fs::File;
use std::ops::RangeInclusive;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use domain::ids::RequestId;
use domain::ledger::JournalRecord;

use crate::directory::Mark;
use crate::segment::Segment;
use crate::shipping_rate::ShippingRate;

/// Records that share one note about their age.
const RECORDS_PER_AGE: u64 = 256;

/// What a record means to the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Needs an ending.
    Hold,
    /// Ends a hold.
    Ending,
    /// Neither.
    Refusal,
}

/// The little of a record that bookkeeping needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) meaning: Meaning,
    pub(crate) id: RequestId,
    /// The instant that decides its month.
    pub(crate) counts_at: DateTime<Utc>,
    /// When it was written, as its own fields tell.
    pub(crate) written_at: DateTime<Utc>,
}

impl Facts {
    pub(crate) fn of(record: &JournalRecord) -> Self {
        match record {
            JournalRecord::Hold(hold) => Self {
                meaning: Meaning::Hold,
                id: hold.identity.id,
                counts_at: hold.admitted_at,
                written_at: hold.admitted_at,
            },
            JournalRecord::Settlement(settlement) => Self {
                meaning: Meaning::Ending,
                id: settlement.identity.id,
                counts_at: settlement.admitted_at,
                written_at: settlement.settled_at,
            },
            JournalRecord::Rejection(rejection) => Self {
                meaning: Meaning::Refusal,
                id: rejection.identity.id,
                counts_at: rejection.refused_at,
                written_at: rejection.refused_at,
            },
        }
    }
}

/// An ending that waits for the disk.
#[derive(Debug)]
pub(crate) struct Owed {
    pub(crate) facts: Facts,
    /// Not sealed yet.
    pub(crate) frame: Vec<u8>,
}

/// Numbers of records that neither Postgres nor the disk has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hole {
    pub(crate) seqs: RangeInclusive<u64>,
    /// What happened, and what may be done.
    pub(crate) reason: &'static str,
}

/// Everything behind the journal's lock.
#[derive(Debug)]
pub(crate) struct State {
    /// Closed segments, ascending; the oldest first.
    pub(crate) sealed: VecDeque<Segment>,
    /// The one that is written.
    pub(crate) active: Segment,
    pub(crate) file: Arc<File>,
    /// Set when the active segment may end in half a record: the next append begins another.
    pub(crate) must_roll: bool,
    pub(crate) next_seq: u64,
    pub(crate) shipped_seq: u64,
    pub(crate) has_met_postgres: bool,
    /// Whether that was done since the directory was opened.
    pub(crate) has_compared: bool,
    /// The last number that an earlier life of this directory may have given.
    pub(crate) inherited_seq: u64,
    /// Marks that Postgres may have come to by batches whose outcome is not known.
    pub(crate) attempted: BTreeSet<u64>,
    /// Numbers of segments that were written and are not there any more.
    pub(crate) missing: Vec<RangeInclusive<u64>>,
    /// Whether there are segments that the mark on disk does not tell of yet.
    pub(crate) is_mark_stale: bool,
    pub(crate) rate: ShippingRate,
    pub(crate) holds: OpenHolds,
    pub(crate) ages: Ages,
    /// Endings that the disk would not take; at most one for each open hold. Nothing else is written before them, so that
    /// each gets the number it was promised.
    pub(crate) owed: VecDeque<Owed>,
    /// The last number given or promised to an ending.
    pub(crate) ending_seq: u64,
    /// The last number of those given anew above a foreign mark; 0 without.
    pub(crate) renumbered_seq: u64,
    /// Closed segments whose sync has not been asked for yet.
    pub(crate) unsynced: Vec<Arc<File>>,
    /// Whether a segment was made since the directory was last synced.
    pub(crate) has_new_names: bool,
    pub(crate) disk_error: Option<String>,
    pub(crate) shipping_error: Option<String>,
}

impl State {
    /// All segments, the oldest first.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.sealed.iter().chain(std::iter::once(&self.active))
    }

    /// Size of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments().map(|segment| segment.bytes).sum()
    }

    /// Records not yet in Postgres. Numbers have gaps only between segments.
    pub(crate) fn depth(&self) -> u64 {
        self.segments()
            .map(|segment| {
                let before = self.shipped_seq.max(segment.first_seq.saturating_sub(1));
                segment.last_seq.saturating_sub(before)
            })
            .sum()
    }

    /// The number of the last record on disk, or the mark if that is beyond.
    pub(crate) fn last_seq(&self) -> u64 {
        self.segments()
            .filter(|segment| segment.bytes > 0)
            .map(|segment| segment.last_seq)
            .fold(self.shipped_seq, u64::max)
    }

    /// Whether `mark` was not set by what was shipped from here, and so says nothing about numbers given here: another
    /// directory was or is used under the same name. To believe such a mark would be to pass over what lies below it.
    pub(crate) fn is_foreign(&self, mark: u64) -> bool {
        if self.attempted.contains(&mark) {
            return false;
        }
        if !self.has_met_postgres {
            let first_seq = self.segments().next().map_or(self.next_seq, |oldest| oldest.first_seq);
            return mark >= self.next_seq || mark >= first_seq;
        }
        // An earlier life may have been killed before it heard of its last batch.
        let is_inherited = !self.has_compared && mark <= self.inherited_seq;
        mark > self.shipped_seq && !is_inherited
    }

    /// Numbers beyond `mark` that were given to records and are not on disk any more, and why.
    pub(crate) fn holes(&self, mark: u64) -> Vec<Hole> {
        let is_foreign = self.is_foreign(mark);
        let from = |start: u64| if is_foreign { start } else { start.max(mark + 1) };
        let missing = self.missing.iter().map(|range| Hole {
            seqs: from(*range.start())..=*range.end(),
            reason: "a segment of the journal is not there any more: what it held is lost, unless the file is put back \
                     before the next start",
        });
        let first_here = self
            .segments()
            .find(|segment| segment.last_seq > mark)
            .map_or(self.next_seq, |segment| segment.first_seq);
        let restored = (!is_foreign && mark < self.shipped_seq).then(|| Hole {
            seqs: mark + 1..=first_here.saturating_sub(1).min(self.shipped_seq),
            reason: "Postgres lacks entries that it had, as after restoring a backup, and the journal has deleted them since: \
                     what lies between the backup and the restore is lost, unless a newer backup has it",
        });
        missing.chain(restored).filter(|hole| !hole.seqs.is_empty()).collect()
    }

    /// What is noted of it beside the segments.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            shipped_seq: self.shipped_seq,
            next_seq: self.next_seq,
            has_met_postgres: self.has_met_postgres,
            segments: self.segments().map(|segment| segment.first_seq).collect(),
        }
    }

    /// Keeps an ending for later, and answers the number it will have; `None` where no open hold waits for it.
    pub(crate) fn owe(&mut self, facts: Facts, frame: Vec<u8>) -> Option<u64> {
        if !self.holds.contains(facts.id) {
            return None;
        }
        let seq = self.next_seq + self.owed.len() as u64;
        self.owed.push_back(Owed { facts, frame });
        self.ending_seq = self.ending_seq.max(seq);
        Some(seq)
    }

    /// Takes note of a record in the segment that begins with `segment`. Should it be a hold, its ending will need up to
    /// `ending_bytes`.
    pub(crate) fn note(&mut self, facts: Facts, seq: u64, segment: u64, ending_bytes: u64) {
        match facts.meaning {
            Meaning::Hold => self.holds.open(facts.id, segment, facts.counts_at, ending_bytes),
            Meaning::Ending => {
                self.holds.end(facts.id);
                self.ending_seq = self.ending_seq.max(seq);
            }
            Meaning::Refusal => {}
        }
        if seq > self.shipped_seq {
            self.ages.push(facts, seq);
        }
    }

    /// Takes segments off the list that nobody needs any more. Only from the oldest on: a hold's ending, which lies behind
    /// it, must not vanish before the hold does.
    pub(crate) fn take_finished(&mut self) -> Vec<Segment> {
        let mut finished = Vec::new();
        while let Some(oldest) = self.sealed.front() {
            let has_open_holds = self.holds.oldest_segment().is_some_and(|held| held <= oldest.first_seq);
            if oldest.last_seq > self.shipped_seq || has_open_holds {
                break;
            }
            finished.extend(self.sealed.pop_front());
        }
        finished
    }
}

/// Holds without an ending.
#[derive(Debug, Default)]
pub(crate) struct OpenHolds {
    by_request: HashMap<RequestId, OpenHold>,
    by_segment: BTreeMap<u64, u64>,
    ending_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct OpenHold {
    segment: u64,
    admitted_at: DateTime<Utc>,
    ending_bytes: u64,
}

impl OpenHolds {
    pub(crate) fn open(&mut self, id: RequestId, segment: u64, admitted_at: DateTime<Utc>, ending_bytes: u64) {
        self.end(id);
        let hold = OpenHold {
            segment,
            admitted_at,
            ending_bytes,
        };
        self.by_request.insert(id, hold);
        self.ending_bytes += ending_bytes;
        *self.by_segment.entry(segment).or_default() += 1;
    }

    pub(crate) fn end(&mut self, id: RequestId) {
        let Some(hold) = self.by_request.remove(&id) else {
            return;
        };
        self.ending_bytes -= hold.ending_bytes;
        if let Some(count) = self.by_segment.get_mut(&hold.segment) {
            *count -= 1;
            if *count == 0 {
                self.by_segment.remove(&hold.segment);
            }
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.by_request.len() as u64
    }

    /// Room that the endings of all of them may need.
    pub(crate) fn ending_bytes(&self) -> u64 {
        self.ending_bytes
    }

    pub(crate) fn contains(&self, id: RequestId) -> bool {
        self.by_request.contains_key(&id)
    }

    /// The segment that holds the oldest of them.
    pub(crate) fn oldest_segment(&self) -> Option<u64> {
        self.by_segment.keys().next().copied()
    }

    fn oldest_admitted_at(&self) -> Option<DateTime<Utc>> {
        self.by_request.values().map(|hold| hold.admitted_at).min()
    }
}

/// How old the records are that are not in Postgres yet, in groups of [`RECORDS_PER_AGE`].
#[derive(Debug, Default)]
pub(crate) struct Ages {
    groups: VecDeque<AgeGroup>,
}

#[derive(Clone, Copy, Debug)]
struct AgeGroup {
    records: u64,
    last_seq: u64,
    counts_at: DateTime<Utc>,
    written_at: DateTime<Utc>,
}

impl Ages {
    pub(crate) fn push(&mut self, facts: Facts, seq: u64) {
        match self.groups.back_mut() {
            Some(group) if group.records < RECORDS_PER_AGE => {
                group.records += 1;
                group.last_seq = seq;
                group.counts_at = group.counts_at.min(facts.counts_at);
                group.written_at = group.written_at.min(facts.written_at);
            }
            _ => self.groups.push_back(AgeGroup {
                records: 1,
                last_seq: seq,
                counts_at: facts.counts_at,
                written_at: facts.written_at,
            }),
        }
    }

    /// Forgets what is shipped. A group that is shipped in part still tells its oldest record's age.
    pub(crate) fn shipped(&mut self, seq: u64) {
        while self.groups.front().is_some_and(|group| group.last_seq <= seq) {
            self.groups.pop_front();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.groups.clear();
    }

    /// When the oldest of them was written.
    pub(crate) fn oldest_written_at(&self) -> Option<DateTime<Utc>> {
        self.groups.iter().map(|group| group.written_at).min()
    }

    fn oldest_counts_at(&self) -> Option<DateTime<Utc>> {
        self.groups.iter().map(|group| group.counts_at).min()
    }
}

impl State {
    /// Everything that counts before this instant is in Postgres; `now` when nothing is pending.
    pub(crate) fn complete_until(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        [self.holds.oldest_admitted_at(), self.ages.oldest_counts_at()]
            .into_iter()
            .flatten()
            .fold(now, DateTime::min)
    }
}

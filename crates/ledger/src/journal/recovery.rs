//! What an earlier life has left: every segment is read once when the journal is opened.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;

use chrono::{DateTime, Utc};
use domain::ids::RequestId;
use domain::ledger::{HoldRecord, JournalRecord};
use serde::Deserialize;

use crate::directory::{Directory, Mark};
use crate::frame::{self, Piece};
use crate::segment::{self, Segment};
use crate::state::{Ages, Facts, Meaning, OpenHolds};

/// What an earlier life has left.
#[derive(Default)]
pub(super) struct Found {
    pub(super) segments: Vec<Segment>,
    /// The first number above all of them; 0 without any.
    pub(super) next_seq: u64,
    pub(super) holds: OpenHolds,
    pub(super) ages: Ages,
    pub(super) open_holds: Vec<HoldRecord>,
    pub(super) torn_bytes: u64,
    pub(super) damaged_places: u64,
    /// Segments without a record, which are in nobody's way until the mark is written.
    pub(super) empty: Vec<u64>,
    /// Numbers of segments that the mark tells of and that are not there.
    pub(super) missing: Vec<RangeInclusive<u64>>,
}

impl Found {
    pub(super) fn read(directory: &Directory, mark: &Mark) -> io::Result<Self> {
        let mut found = Self::default();
        let mut open: HashMap<RequestId, (u64, HoldRecord)> = HashMap::new();
        let names = segment::list(directory.path())?;
        for (at, &first_seq) in names.iter().enumerate() {
            found.read_segment(directory.path(), first_seq, names.get(at + 1).copied(), mark, &mut open)?;
        }
        found.missing = missing(&names, mark);
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
        mark: &Mark,
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
                            let room = super::ending_bytes(json.len() as u64);
                            self.holds.open(facts.id, first_seq, facts.counts_at, room);
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
                if next_first_seq.is_none() && frame::is_torn(&bytes[*start..]) {
                    // Nobody was told that this record is there: its append never returned.
                    self.torn_bytes = left_over;
                    tracing::warn!(
                        first_seq,
                        offset = start,
                        left_over,
                        "cutting off a record that was not written whole"
                    );
                } else if next_first_seq.is_none_or(|next| segment.last_seq + 1 < next) {
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
            self.empty.push(first_seq);
        } else {
            self.segments.push(segment);
        }
        Ok(())
    }
}

/// The numbers that may have been in segments that the mark tells of and that are not there: up to the next segment, or
/// to the last number that was known to be given.
fn missing(names: &[u64], mark: &Mark) -> Vec<RangeInclusive<u64>> {
    let is_there = |first_seq: &u64| names.binary_search(first_seq).is_ok();
    let gone = mark.segments.iter().filter(|first_seq| !is_there(first_seq));
    gone.map(|&first_seq| {
        let others = names.iter().chain(&mark.segments);
        let next = others.filter(|&&other| other > first_seq).min();
        let end = next.map_or(mark.next_seq.saturating_sub(1).max(first_seq), |next| next - 1);
        tracing::error!(first_seq, end, "a segment of the journal is not there any more");
        first_seq..=end
    })
    .collect()
}

/// The facts of a record, without reading the rest of it.
pub(super) fn glance(json: &[u8]) -> Option<Facts> {
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

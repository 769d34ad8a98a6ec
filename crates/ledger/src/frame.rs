//! How a record lies in a segment: length, checksum, number, JSON.
//!
//! `u32` length of the payload, `u32` CRC-32 of the payload, payload; the payload is the record's number as `u64`, then its
//! JSON. All numbers are little-endian.

use std::ops::Range;

use domain::ledger::JournalRecord;

/// Length and checksum.
const HEADER_BYTES: usize = 8;
/// The record's number.
const SEQ_BYTES: usize = 8;
/// The longest payload. An entry's texts are bounded far below it; a longer length on disk is damage.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// The longest frame.
pub(crate) const FRAME_BYTES_MAX: usize = HEADER_BYTES + PAYLOAD_BYTES_MAX;
/// Numbers within one segment follow each other; a jump larger than this is damage. Lost records may leave a gap.
const SEQ_JUMP_MAX: u64 = 1 << 24;

/// The record as a frame that still lacks its number; `None` when it is too long.
pub(crate) fn encode(record: &JournalRecord) -> Option<Vec<u8>> {
    let mut frame = Vec::with_capacity(1_536);
    frame.resize(HEADER_BYTES + SEQ_BYTES, 0);
    serde_json::to_writer(&mut frame, record).ok()?;
    let payload = frame.len() - HEADER_BYTES;
    (payload <= PAYLOAD_BYTES_MAX).then_some(frame)
}

/// Writes number, length and checksum into an encoded frame.
pub(crate) fn seal(frame: &mut [u8], seq: u64) {
    let (header, payload) = frame.split_at_mut(HEADER_BYTES);
    payload[..SEQ_BYTES].copy_from_slice(&seq.to_le_bytes());
    header[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    header[4..].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
}

/// What is found when segments are read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A whole record.
    Record {
        /// Its number.
        seq: u64,
        /// Where its JSON lies.
        json: Range<usize>,
        /// Where the next piece starts.
        end: usize,
    },
    /// Bytes that are no record, up to the next one.
    Damage {
        /// Where they lie.
        bytes: Range<usize>,
        /// The number of the record behind them.
        next_seq: u64,
    },
    /// Bytes behind which no whole record follows: the end of what can be read.
    Tail {
        /// Where they start; the end of `bytes` when nothing is left over.
        start: usize,
    },
}

/// The piece of `bytes` that starts at `start`, behind a record numbered `previous_seq`.
pub(crate) fn piece(bytes: &[u8], start: usize, previous_seq: u64) -> Piece {
    if let Some((seq, json)) = record(bytes, start, previous_seq) {
        let end = json.end;
        return Piece::Record { seq, json, end };
    }
    for next in start + 1..bytes.len() {
        if let Some((next_seq, _)) = record(bytes, next, previous_seq) {
            return Piece::Damage {
                bytes: start..next,
                next_seq,
            };
        }
    }
    Piece::Tail { start }
}

/// Whether `rest`, the end of a file, is the beginning of a frame: what a process leaves that is killed while it writes.
/// Anything else there is damage to something that was written whole.
pub(crate) fn is_torn(rest: &[u8]) -> bool {
    let Some(length) = rest.get(..4).and_then(|length| length.try_into().ok()) else {
        return true;
    };
    let length = u32::from_le_bytes(length) as usize;
    (SEQ_BYTES + 1..=PAYLOAD_BYTES_MAX).contains(&length) && rest.len() < HEADER_BYTES + length
}

/// A whole record at `start`. What is cheap to see is looked at before the checksum, because after damage every position
/// is tried.
fn record(bytes: &[u8], start: usize, previous_seq: u64) -> Option<(u64, Range<usize>)> {
    let rest = bytes.get(start..)?;
    let length = u32::from_le_bytes(rest.get(..4)?.try_into().ok()?) as usize;
    if length <= SEQ_BYTES || length > PAYLOAD_BYTES_MAX {
        return None;
    }
    let payload = rest.get(HEADER_BYTES..HEADER_BYTES + length)?;
    let seq = u64::from_le_bytes(payload.get(..SEQ_BYTES)?.try_into().ok()?);
    if seq <= previous_seq || seq - previous_seq > SEQ_JUMP_MAX || payload[SEQ_BYTES] != b'{' {
        return None;
    }
    let checksum = u32::from_le_bytes(rest[4..HEADER_BYTES].try_into().ok()?);
    if crc32fast::hash(payload) != checksum {
        return None;
    }
    let json = start + HEADER_BYTES + SEQ_BYTES..start + HEADER_BYTES + length;
    Some((seq, json))
}

#[cfg(test)]
mod tests;

//! Segments: the journal's files, each named by the number of its first record.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::directory::file_options;
use crate::frame::{self, Piece};

const EXTENSION: &str = "journal";

/// One file of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The number of its first record.
    pub(crate) first_seq: u64,
    /// The number of its last one; `first_seq - 1` while it is empty.
    pub(crate) last_seq: u64,
    /// How many bytes of it are whole records.
    pub(crate) bytes: u64,
}

/// Where a segment lies. Numbers are padded, so that names sort as numbers do.
pub(crate) fn path(directory: &Path, first_seq: u64) -> PathBuf {
    directory.join(format!("{first_seq:020}.{EXTENSION}"))
}

/// The first numbers of all segments, ascending.
pub(crate) fn list(directory: &Path) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == EXTENSION)
            && let Some(first_seq) = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok())
        {
            found.push(first_seq);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Makes an empty segment.
pub(crate) fn create(directory: &Path, first_seq: u64) -> io::Result<File> {
    file_options()
        .append(true)
        .create_new(true)
        .open(path(directory, first_seq))
}

/// The whole records of a segment, as bytes.
pub(crate) fn read(directory: &Path, segment: Segment) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(segment.bytes as usize);
    File::open(path(directory, segment.first_seq))?
        .take(segment.bytes)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Removes a segment.
pub(crate) fn remove(directory: &Path, first_seq: u64) -> io::Result<()> {
    match fs::remove_file(path(directory, first_seq)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Calls `see` with every piece of a segment's bytes, in order, the tail included. Numbers start behind `first_seq - 1`.
pub(crate) fn for_each_piece(bytes: &[u8], first_seq: u64, mut see: impl FnMut(&Piece)) {
    let mut start = 0;
    let mut previous_seq = first_seq.saturating_sub(1);
    loop {
        let piece = frame::piece(bytes, start, previous_seq);
        see(&piece);
        match piece {
            Piece::Record { seq, end, .. } => {
                previous_seq = seq;
                start = end;
            }
            Piece::Damage { bytes, .. } => start = bytes.end,
            Piece::Tail { .. } => return,
        }
    }
}

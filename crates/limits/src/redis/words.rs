//! Keys or arguments of a script's call, in one buffer.

use std::fmt::Display;
use std::io::Write as _;

/// A list of texts and bytes. Numbers are written out in full.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Words {
    pub(crate) fn push(&mut self, word: impl Display) {
        // Writing to memory cannot fail.
        let _ = write!(self.bytes, "{word}");
        self.ends.push(self.bytes.len());
    }

    /// As they are.
    pub(crate) fn push_bytes(&mut self, word: &[u8]) {
        self.bytes.extend_from_slice(word);
        self.ends.push(self.bytes.len());
    }

    /// Nothing is an empty word.
    pub(crate) fn push_some(&mut self, word: Option<impl Display>) {
        match word {
            Some(word) => self.push(word),
            None => self.ends.push(self.bytes.len()),
        }
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.ends.iter().enumerate().map(|(index, &end)| {
            let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
            &self.bytes[start..end]
        })
    }
}

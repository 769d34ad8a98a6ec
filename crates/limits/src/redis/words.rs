//! Keys or arguments of a script's call, in one buffer.

use std::fmt::{Display, Write as _};

/// A list of short texts. Numbers are written out in full.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    text: String,
    ends: Vec<usize>,
}

impl Words {
    pub(crate) fn push(&mut self, word: impl Display) {
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{word}");
        self.ends.push(self.text.len());
    }

    /// Nothing is an empty word.
    pub(crate) fn push_some(&mut self, word: Option<impl Display>) {
        match word {
            Some(word) => self.push(word),
            None => self.ends.push(self.text.len()),
        }
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.ends.iter().enumerate().map(|(index, &end)| {
            let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
            &self.text.as_bytes()[start..end]
        })
    }
}

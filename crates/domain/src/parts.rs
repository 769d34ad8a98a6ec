//! What a request is made of, as far as counting its tokens goes.

use std::borrow::Cow;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

/// The size of a text. Bytes of ASCII and of other scripts are kept apart, because they weigh differently in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextSize {
    /// Bytes below 128.
    pub ascii_bytes: u64,
    /// All other bytes of the UTF-8 form.
    pub other_bytes: u64,
}

impl TextSize {
    /// The size of `text`.
    pub fn of(text: &str) -> Self {
        let ascii_bytes = text.bytes().filter(u8::is_ascii).count();
        Self {
            ascii_bytes: ascii_bytes as u64,
            other_bytes: (text.len() - ascii_bytes) as u64,
        }
    }

    /// All bytes.
    pub fn bytes(&self) -> u64 {
        self.ascii_bytes.saturating_add(self.other_bytes)
    }
}

impl Add for TextSize {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            ascii_bytes: self.ascii_bytes.saturating_add(other.ascii_bytes),
            other_bytes: self.other_bytes.saturating_add(other.other_bytes),
        }
    }
}

impl AddAssign for TextSize {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// What a part of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartKind {
    /// Text of a message: content, a name, arguments of a tool call.
    Text,
    /// A definition that the provider renders into the prompt: a tool, a response format. Its text is JSON.
    Definition,
    /// Tokens that the caller has made of a text itself.
    Tokens {
        /// How many.
        count: u64,
    },
    /// What only the provider can read: reasoning of an earlier answer, encrypted.
    Opaque,
    /// An image.
    Image {
        /// Whether the caller asked for the provider's small, cheap rendering.
        is_low_detail: bool,
    },
    /// A recording.
    Audio,
    /// A document.
    File,
}

/// One part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// What it is.
    pub kind: PartKind,
    /// Its size in the request, in bytes: of the text, or of the encoded medium. Zero for a medium that is only named.
    pub bytes: u64,
    /// Its text; empty for media.
    pub text: Cow<'a, str>,
}

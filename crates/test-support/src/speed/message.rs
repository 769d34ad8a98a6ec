//! One HTTP/1.1 message as it arrives: where it ends and what its body holds, for as little as that can cost.
//!
//! Not a parser for foreign peers: what it does not know is an error, and ends the measurement.

use anyhow::{Context as _, bail, ensure};

#[cfg(test)]
mod tests;

/// The longest head that is read, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// How much is kept of the body of an answer that is not as it should be.
const FAILURE_BYTES_MAX: usize = 2_048;
/// How a body of OpenAI's events ends.
const LAST_EVENT: [u8; 14] = *b"data: [DONE]\n\n";
const HEAD_END: &[u8] = b"\r\n\r\n";

/// A request or an answer, fed piece by piece.
#[derive(Debug, Default)]
pub struct Message {
    head: Vec<u8>,
    place: Place,
    is_answer: bool,
    body_bytes: u64,
    newlines: u64,
    /// The body's last bytes.
    tail: [u8; LAST_EVENT.len()],
    /// The body's first bytes.
    kept: Vec<u8>,
    kept_max: usize,
    keeps_body: bool,
}

/// What comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Head,
    /// So many bytes of the body.
    Body(u64),
    /// The size of a chunk, so far this.
    ChunkSize(u64),
    /// The rest of that line.
    ChunkSizeEnd(u64),
    /// So many bytes of a chunk.
    Chunk(u64),
    /// The end of the line behind a chunk.
    ChunkEnd,
    /// A line behind the last chunk; whether there was anything in it yet.
    Trailer {
        is_blank: bool,
    },
    End,
}

impl Message {
    /// One that keeps its body.
    pub fn keeping() -> Self {
        Self {
            keeps_body: true,
            ..Self::default()
        }
    }

    /// Makes room for the next one.
    pub fn reset(&mut self) {
        self.head.clear();
        self.kept.clear();
        self.place = Place::Head;
        self.body_bytes = 0;
        self.newlines = 0;
        self.tail = [0; LAST_EVENT.len()];
    }

    /// Reads what has come; true at the message's end.
    ///
    /// # Errors
    /// When it is no message, or more than one.
    pub fn feed(&mut self, mut bytes: &[u8]) -> anyhow::Result<bool> {
        while !bytes.is_empty() {
            bytes = self.step(bytes)?;
        }
        Ok(self.place == Place::End)
    }

    /// From its first line to the blank one.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// An answer's status; 0 of a request.
    pub fn status(&self) -> u16 {
        let digits = self.head.get(9..12).filter(|_| self.is_answer);
        let text = digits.and_then(|digits| str::from_utf8(digits).ok());
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// How much of the body has come.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// The body of a message that keeps it; the beginning of that of an answer with another status than 200; else nothing.
    pub fn kept(&self) -> &[u8] {
        &self.kept
    }

    /// How many events of one line each the answer's body holds.
    pub fn events(&self) -> u64 {
        self.newlines / 2
    }

    /// Whether the answer's body ends as a stream of events has to.
    pub fn ends_with_last_event(&self) -> bool {
        self.tail == LAST_EVENT
    }

    /// Reads up to the end of what it is in; answers what is left.
    fn step<'a>(&mut self, bytes: &'a [u8]) -> anyhow::Result<&'a [u8]> {
        let (first, rest) = (bytes[0], &bytes[1..]);
        match self.place {
            Place::Head => self.read_head(bytes),
            Place::Body(left) => {
                let (body, rest) = split(bytes, left);
                self.take(body);
                self.place = match left - body.len() as u64 {
                    0 => Place::End,
                    left => Place::Body(left),
                };
                Ok(rest)
            }
            Place::ChunkSize(size) => {
                let digit = char::from(first).to_digit(16);
                self.place = match digit {
                    Some(digit) if size < 1 << 56 => Place::ChunkSize(size << 4 | u64::from(digit)),
                    Some(_) => bail!("a chunk is longer than can be"),
                    None => Place::ChunkSizeEnd(size),
                };
                // What ends the number belongs to the rest of the line.
                Ok(if digit.is_some() { rest } else { bytes })
            }
            Place::ChunkSizeEnd(size) => {
                if first == b'\n' {
                    self.place = match size {
                        0 => Place::Trailer { is_blank: true },
                        size => Place::Chunk(size),
                    };
                }
                Ok(rest)
            }
            Place::Chunk(left) => {
                let (body, rest) = split(bytes, left);
                self.take(body);
                self.place = match left - body.len() as u64 {
                    0 => Place::ChunkEnd,
                    left => Place::Chunk(left),
                };
                Ok(rest)
            }
            Place::ChunkEnd => {
                match first {
                    b'\r' => {}
                    b'\n' => self.place = Place::ChunkSize(0),
                    _ => bail!("a chunk is longer than it says"),
                }
                Ok(rest)
            }
            Place::Trailer { is_blank } => {
                self.place = match first {
                    b'\n' if is_blank => Place::End,
                    b'\n' => Place::Trailer { is_blank: true },
                    b'\r' => Place::Trailer { is_blank },
                    _ => Place::Trailer { is_blank: false },
                };
                Ok(rest)
            }
            Place::End => bail!("more came than one message"),
        }
    }

    fn read_head<'a>(&mut self, bytes: &'a [u8]) -> anyhow::Result<&'a [u8]> {
        let before = self.head.len();
        // Its end may have begun in what came before.
        let from = before.saturating_sub(HEAD_END.len() - 1);
        self.head.extend_from_slice(&bytes[..bytes.len().min(HEAD_BYTES_MAX)]);
        let found = self.head[from..]
            .windows(HEAD_END.len())
            .position(|window| window == HEAD_END);
        let Some(found) = found else {
            ensure!(self.head.len() < HEAD_BYTES_MAX, "a head is longer than is read");
            return Ok(&[]);
        };
        let end = from + found + HEAD_END.len();
        self.head.truncate(end);
        self.is_answer = self.head.starts_with(b"HTTP/");
        self.kept_max = match self.keeps_body {
            true => usize::MAX,
            false if self.is_answer && self.status() != 200 => FAILURE_BYTES_MAX,
            false => 0,
        };
        self.place = self.framing()?;
        Ok(&bytes[end - before..])
    }

    /// What follows the head.
    fn framing(&self) -> anyhow::Result<Place> {
        for line in self.head.split(|byte| *byte == b'\n').skip(1) {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else {
                continue;
            };
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            if name.eq_ignore_ascii_case(b"content-length") {
                let text = str::from_utf8(value).unwrap_or_default();
                return match text.parse().context("a length that is no number")? {
                    0 => Ok(Place::End),
                    length => Ok(Place::Body(length)),
                };
            }
            if name.eq_ignore_ascii_case(b"transfer-encoding") && value.eq_ignore_ascii_case(b"chunked") {
                return Ok(Place::ChunkSize(0));
            }
        }
        ensure!(!self.is_answer, "an answer does not say where it ends");
        Ok(Place::End)
    }

    fn take(&mut self, body: &[u8]) {
        self.body_bytes += body.len() as u64;
        let room = self.kept_max.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&body[..body.len().min(room)]);
        if !self.is_answer {
            return;
        }
        self.newlines += body.iter().filter(|byte| **byte == b'\n').count() as u64;
        let newest = &body[body.len().saturating_sub(LAST_EVENT.len())..];
        self.tail.copy_within(newest.len().., 0);
        self.tail[LAST_EVENT.len() - newest.len()..].copy_from_slice(newest);
    }
}

/// The first `length` bytes at most, and what is behind them.
fn split(bytes: &[u8], length: u64) -> (&[u8], &[u8]) {
    bytes.split_at(usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len()))
}

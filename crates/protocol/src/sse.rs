//! Frames server-sent events on bytes: whatever the network's chunks, the events that come out are the same, and their
//! raw bytes together are exactly what went in.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

/// The longest event that is framed, in bytes, terminator included.
pub const EVENT_BYTES_MAX: usize = 4 * 1024 * 1024;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// An event with this data: a line of it for each of the data's, so that a reader puts them together again.
pub fn data_event(data: &[u8]) -> Bytes {
    let mut event = BytesMut::with_capacity(data.len() + 8);
    put_data(&mut event, data);
    event.freeze()
}

/// The same with a name, of one line.
pub fn named_event(name: &str, data: &[u8]) -> Bytes {
    let mut event = BytesMut::with_capacity(name.len() + data.len() + 16);
    event.extend_from_slice(b"event: ");
    event.extend_from_slice(name.as_bytes());
    event.extend_from_slice(b"\n");
    put_data(&mut event, data);
    event.freeze()
}

fn put_data(event: &mut BytesMut, data: &[u8]) {
    for line in data.split(|byte| *byte == b'\n') {
        event.extend_from_slice(b"data: ");
        event.extend_from_slice(line.strip_suffix(b"\r").unwrap_or(line));
        event.extend_from_slice(b"\n");
    }
    event.extend_from_slice(b"\n");
}

/// An event is longer than [`EVENT_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is longer than {EVENT_BYTES_MAX} bytes")]
pub struct EventTooLong;

/// One block of a stream, up to and including its blank line. Blocks without data (comments, keep-alives, spare blank
/// lines) are events here too, so that they can be passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SseEvent {
    /// The bytes as they came.
    pub raw: Bytes,
    /// The value of `event:`.
    pub name: Option<Bytes>,
    /// The value of `data:`; several lines are joined by a line feed.
    pub data: Option<Bytes>,
    /// Where the data lies in `raw`; absent when it was joined from several lines.
    data_range: Option<Range<usize>>,
}

impl SseEvent {
    /// The raw bytes without `cut`, a range of the data: what is before it and what is after it. `None` when the data is
    /// not one piece of the raw bytes, or the range does not lie in it.
    pub fn without(&self, cut: &Range<usize>) -> Option<(Bytes, Bytes)> {
        let data = self.data_range.as_ref()?;
        if cut.start > cut.end || cut.end > data.len() {
            return None;
        }
        Some((
            self.raw.slice(..data.start + cut.start),
            self.raw.slice(data.start + cut.end..),
        ))
    }

    fn parse(raw: Bytes, is_first: bool) -> Self {
        let mut name = None;
        let mut first: Option<Range<usize>> = None;
        let mut joined: Option<BytesMut> = None;
        let start = if is_first && raw.starts_with(BOM) { BOM.len() } else { 0 };
        for line in lines(&raw, start) {
            let (field, value) = split_field(&raw, line);
            match &raw[field] {
                b"event" => name = Some(raw.slice(value)),
                b"data" => match (&first, &mut joined) {
                    (None, _) => first = Some(value),
                    (Some(first), None) => {
                        let mut text = BytesMut::from(&raw[first.clone()]);
                        text.extend_from_slice(b"\n");
                        text.extend_from_slice(&raw[value]);
                        joined = Some(text);
                    }
                    (Some(_), Some(text)) => {
                        text.extend_from_slice(b"\n");
                        text.extend_from_slice(&raw[value]);
                    }
                },
                _ => {}
            }
        }
        let data = match (&joined, &first) {
            (Some(_), _) => joined.map(BytesMut::freeze),
            (None, Some(range)) => Some(raw.slice(range.clone())),
            (None, None) => None,
        };
        // Joined data is no piece of the raw bytes.
        let is_one_piece = data
            .as_ref()
            .zip(first.as_ref())
            .is_some_and(|(data, range)| data.as_ptr() == raw[range.clone()].as_ptr());
        Self {
            name,
            data,
            data_range: first.filter(|_| is_one_piece),
            raw,
        }
    }
}

/// The ranges of the lines of `raw` from `start` on, without their ends.
fn lines(raw: &[u8], start: usize) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut at = start;
    std::iter::from_fn(move || {
        if at >= raw.len() {
            return None;
        }
        let end = raw[at..]
            .iter()
            .position(|byte| matches!(byte, b'\n' | b'\r'))
            .map_or(raw.len(), |length| at + length);
        let line = at..end;
        at = if raw[end..].starts_with(b"\r\n") {
            end + 2
        } else {
            end + 1
        };
        Some(line)
    })
}

/// The field's name and its value: after the colon, without one blank.
fn split_field(raw: &[u8], line: Range<usize>) -> (Range<usize>, Range<usize>) {
    match raw[line.clone()].iter().position(|byte| *byte == b':') {
        None => (line.clone(), line.end..line.end),
        Some(colon) => {
            let colon = line.start + colon;
            let value = if raw[colon + 1..line.end].starts_with(b" ") {
                colon + 2
            } else {
                colon + 1
            };
            (line.start..colon, value..line.end)
        }
    }
}

/// Cuts a stream of bytes into events. Push a chunk, then take events until there is none.
#[derive(Debug, Default)]
pub struct SseFramer {
    buffer: BytesMut,
    /// How much of the buffer was looked at.
    scanned: usize,
    /// Whether the line at `scanned` has bytes already.
    line_has_bytes: bool,
    /// Whether the byte before `scanned` is a carriage return that a line feed may still belong to.
    after_return: bool,
    /// Whether an event was cut before, so that there is no byte order mark any more.
    has_started: bool,
}

impl SseFramer {
    /// A framer at the beginning of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds what the network brought. Nothing is copied when nothing was left over from before.
    pub fn push(&mut self, chunk: Bytes) {
        if self.buffer.is_empty() {
            self.buffer = chunk
                .try_into_mut()
                .unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        } else {
            self.buffer.extend_from_slice(&chunk);
        }
    }

    /// The next whole event.
    ///
    /// # Errors
    /// When it is longer than [`EVENT_BYTES_MAX`]. What was pushed can still be had from [`Self::finish`].
    pub fn next_event(&mut self) -> Result<Option<SseEvent>, EventTooLong> {
        let Some(end) = self.find_end() else {
            return if self.buffer.len() > EVENT_BYTES_MAX {
                Err(EventTooLong)
            } else {
                Ok(None)
            };
        };
        if end > EVENT_BYTES_MAX {
            self.scanned = 0;
            return Err(EventTooLong);
        }
        let raw = self.buffer.split_to(end).freeze();
        self.scanned = 0;
        let is_first = !std::mem::replace(&mut self.has_started, true);
        Ok(Some(SseEvent::parse(raw, is_first)))
    }

    /// What is left when the stream has ended: an event without its blank line, as some providers end theirs.
    pub fn finish(self) -> Option<SseEvent> {
        (!self.buffer.is_empty()).then(|| SseEvent::parse(self.buffer.freeze(), !self.has_started))
    }

    /// Where the first event ends. A carriage return ends a line at once, without waiting for a line feed that may
    /// belong to it; one that comes later begins the next event's raw bytes, where it means nothing.
    fn find_end(&mut self) -> Option<usize> {
        if !self.has_started && self.scanned == 0 {
            if self.buffer.starts_with(BOM) {
                self.scanned = BOM.len();
            } else if BOM.starts_with(&self.buffer) {
                return None;
            }
        }
        while self.scanned < self.buffer.len() {
            if std::mem::take(&mut self.after_return) && self.buffer[self.scanned] == b'\n' {
                self.scanned += 1;
                continue;
            }
            let rest = &self.buffer[self.scanned..];
            let Some(length) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                self.line_has_bytes = true;
                self.scanned = self.buffer.len();
                return None;
            };
            let is_blank = length == 0 && !self.line_has_bytes;
            let ending = if rest[length..].starts_with(b"\r\n") { 2 } else { 1 };
            self.after_return = &rest[length..] == b"\r";
            self.scanned += length + ending;
            self.line_has_bytes = false;
            if is_blank {
                return Some(self.scanned);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;

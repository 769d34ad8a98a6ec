//! Of the framing of streams.

use bytes::Bytes;

use crate::sse::{SseEvent, SseFramer};

/// However the bytes are cut into chunks, they are the same events, and those are made of exactly these bytes.
pub fn check_sse(data: &[u8]) {
    let whole = framed(data, [data.len()]);
    let raw: Vec<u8> = whole.iter().flat_map(|event| event.raw.to_vec()).collect();
    assert_eq!(raw, data, "the events are made of what came");
    for event in &whole {
        check_cuts(event);
    }

    let expected = dispatched(whole);
    assert_eq!(dispatched(framed(data, 1..=data.len())), expected, "byte by byte");
    // Chunks as long as the bytes themselves say.
    let mut end = 0;
    let lengths = data.iter().map(|byte| usize::from(*byte % 64));
    let ends = lengths.map(|length| {
        end = (end + length).min(data.len());
        end
    });
    assert_eq!(dispatched(framed(data, ends)), expected, "in chunks");
}

/// The events of `data` in chunks that end there; what is behind the last end is a chunk, too.
fn framed(data: &[u8], ends: impl IntoIterator<Item = usize>) -> Vec<SseEvent> {
    let mut framer = SseFramer::new();
    let mut events = Vec::new();
    let mut start = 0;
    for end in ends.into_iter().chain([data.len()]) {
        framer.push(Bytes::copy_from_slice(&data[start..end]));
        start = end;
        while let Some(event) = framer.next_event().expect("inputs are shorter than the longest event") {
            assert!(!event.raw.is_empty(), "an event is made of something");
            events.push(event);
        }
    }
    events.extend(framer.finish());
    events
}

/// What a reader gets. A line feed that comes after its carriage return begins the next event's bytes, so blocks that say
/// nothing are no part of it.
fn dispatched(events: Vec<SseEvent>) -> Vec<(Option<Bytes>, Option<Bytes>)> {
    events
        .into_iter()
        .map(|event| (event.name, event.data))
        .filter(|(name, data)| name.is_some() || data.is_some())
        .collect()
}

/// Cutting nothing out leaves all bytes, cutting all data out leaves the others, and what is not there cannot be cut.
fn check_cuts(event: &SseEvent) {
    let length = event.data.as_ref().map_or(0, Bytes::len);
    assert_eq!(event.without(&(0..length + 1)), None, "cut past the end");
    if let Some((before, after)) = event.without(&(length..length)) {
        assert_eq!([before, after].concat(), event.raw, "nothing was cut");
    }
    if let Some((before, after)) = event.without(&(0..length)) {
        let data = event.data.as_deref().unwrap_or_default();
        assert_eq!([&before[..], data, &after[..]].concat(), event.raw, "the data was cut");
    }
}

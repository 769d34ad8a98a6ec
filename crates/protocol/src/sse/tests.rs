//! Whatever the chunks, the events are the same and their bytes are what came in.

use bytes::Bytes;
use proptest::prelude::*;

use super::{EVENT_BYTES_MAX, EventTooLong, SseEvent, SseFramer, data_event};

/// Frames `input` in chunks that end at `cuts`; checks that nothing is lost, and returns the events that have a name or
/// data, as a browser would dispatch them.
fn events(input: &[u8], cuts: impl IntoIterator<Item = usize>) -> Vec<(Option<Bytes>, Option<Bytes>)> {
    let mut framer = SseFramer::new();
    let mut framed = Vec::new();
    let mut start = 0;
    for end in cuts.into_iter().chain([input.len()]) {
        framer.push(Bytes::copy_from_slice(&input[start..end]));
        start = end;
        while let Some(event) = framer.next_event().expect("short events") {
            framed.push(event);
        }
    }
    framed.extend(framer.finish());
    let raw: Vec<u8> = framed.iter().flat_map(|event| event.raw.to_vec()).collect();
    assert_eq!(raw, input, "output equals input");
    framed
        .into_iter()
        .filter(|event| event.data.is_some() || event.name.is_some())
        .map(|event| (event.name, event.data))
        .collect()
}

fn data(input: &[u8]) -> Vec<Bytes> {
    events(input, []).into_iter().filter_map(|(_, data)| data).collect()
}

#[test]
fn data_of_several_lines_is_one_event_that_reads_back() {
    assert_eq!(data_event(b"{}"), Bytes::from_static(b"data: {}\n\n"));
    let pretty = b"{\r\n  \"a\": 1\r\n}";
    assert_eq!(data(&data_event(pretty)), [Bytes::from_static(b"{\n  \"a\": 1\n}")]);
}

/// For any input: every split into two, and byte by byte.
fn check_every_split(input: &[u8]) {
    let whole = events(input, []);
    for cut in 0..=input.len() {
        assert_eq!(events(input, [cut]), whole, "cut at {cut}");
    }
    assert_eq!(events(input, 0..input.len()), whole, "byte by byte");
}

const STREAMS: [&[u8]; 8] = [
    "data: {\"content\":\"数据🙂正在\"}\n\ndata: 到达\n\ndata: [DONE]\n\n".as_bytes(),
    "data: один\r\n\r\nevent: ping\r\ndata: два\r\n\r\n".as_bytes(),
    "data: 流れる\r\rdata: 水🚀\r\r".as_bytes(),
    b"\xef\xbb\xbfdata: first\n\n: a comment\n\ndata: second\n\n",
    b"event: e\ndata: a\ndata:b\ndata\ndata:  c\nid: 7\nretry: 10\n\n",
    b"data: a\r\ndata: b\r\n\r\n\r\n\n\ndata: mixed\n\r\ndata: ends\r\n\n",
    b"data: unfinished\n\ndata: [DONE]",
    b": queued 3\n\n\xef\xbb\xbfdata: no mark here\n\ndata: \xff\xfe bytes\n\n",
];

#[test]
fn events_do_not_depend_on_the_chunks() {
    for stream in STREAMS {
        check_every_split(stream);
    }
}

#[test]
fn lines_fields_and_values_are_read_as_the_standard_says() {
    assert_eq!(data(STREAMS[0]).len(), 3);
    assert_eq!(data(STREAMS[1]), ["один", "два"]);
    assert_eq!(events(STREAMS[1], [])[1].0.as_deref(), Some(&b"ping"[..]));
    assert_eq!(data(STREAMS[2]), ["流れる", "水🚀"]);
    assert_eq!(data(STREAMS[3]), ["first", "second"]);
    assert_eq!(data(STREAMS[4]), ["a\nb\n\n c"]);
    assert_eq!(data(STREAMS[5]), ["a\nb", "mixed", "ends"]);
    assert_eq!(
        data(STREAMS[6]),
        ["unfinished", "[DONE]"],
        "some providers forget the last blank line"
    );
    assert_eq!(data(STREAMS[7]).len(), 1, "a byte order mark is one only at the start");
    assert_eq!(data(b"data\n\ndata:\n\n"), ["", ""]);
}

#[test]
fn an_event_comes_out_as_soon_as_its_blank_line_has_come() {
    for ending in ["\n\n", "\r\r", "\r\n\r\n", "\r\n\r"] {
        let mut framer = SseFramer::new();
        framer.push(Bytes::from(format!("data: a{ending}")));
        assert!(matches!(framer.next_event(), Ok(Some(_))), "{ending:?}");
    }
}

#[test]
fn an_event_in_one_chunk_is_not_copied() {
    let chunk = Bytes::from_static(b"data: a\n\n").to_vec();
    let address = chunk.as_ptr() as usize;
    let mut framer = SseFramer::new();
    framer.push(Bytes::from(chunk));
    let event = framer.next_event().ok().flatten().expect("an event");
    assert_eq!(event.raw.as_ptr() as usize, address);
}

#[test]
fn an_event_that_never_ends_is_an_error_and_its_bytes_are_not_lost() {
    let mut framer = SseFramer::new();
    framer.push(Bytes::from(vec![b'x'; EVENT_BYTES_MAX]));
    assert_eq!(framer.next_event(), Ok(None));
    framer.push(Bytes::from_static(b"x"));
    assert_eq!(framer.next_event(), Err(EventTooLong));
    assert_eq!(framer.next_event(), Err(EventTooLong));
    assert_eq!(framer.finish().map(|event| event.raw.len()), Some(EVENT_BYTES_MAX + 1));

    let mut framer = SseFramer::new();
    let mut long = vec![b'x'; EVENT_BYTES_MAX];
    long.extend_from_slice(b"\n\n");
    framer.push(Bytes::from(long));
    assert_eq!(framer.next_event(), Err(EventTooLong), "also when it came in one chunk");
}

fn one(raw: &'static [u8]) -> SseEvent {
    let mut framer = SseFramer::new();
    framer.push(Bytes::from_static(raw));
    framer.next_event().ok().flatten().expect("an event")
}

#[test]
fn a_range_of_the_data_can_be_cut_out_of_the_raw_bytes() {
    let event = one(b"event: e\ndata: 0123456\n\n");
    let (before, after) = event.without(&(2..5)).expect("one piece");
    assert_eq!((&before[..], &after[..]), (&b"event: e\ndata: 01"[..], &b"56\n\n"[..]));
    assert_eq!(event.without(&(2..8)), None, "beyond the data");
    assert_eq!(
        one(b"data: a\ndata: b\n\n").without(&(0..1)),
        None,
        "joined from two lines"
    );
    assert_eq!(one(b": a\n\n").without(&(0..0)), None, "no data");
}

proptest! {
    #[test]
    fn any_bytes_are_framed_alike_however_they_are_cut(
        input in prop::collection::vec(prop::sample::select(b"data: e\r\n:\xef\xbb\xbf\xe6\x95\xb0".to_vec()), 0..60),
        cuts in prop::collection::btree_set(0_usize..60, 0..8),
    ) {
        let cuts = cuts.into_iter().filter(|cut| *cut <= input.len());
        prop_assert_eq!(events(&input, cuts), events(&input, []));
    }
}

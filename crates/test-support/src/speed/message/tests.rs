//! Messages whole, in single bytes, and wrong ones.

use super::Message;

const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
    9\r\ndata: a\n\n\r\n17;x=y\r\ndata: b\n\ndata: [DONE]\n\n\r\n0\r\nx: y\r\n\r\n";

/// Fed in pieces of every length, it ends with the last one and not before.
fn check(bytes: &[u8], body: &[u8]) {
    for length in 1..=bytes.len() {
        let mut message = Message::keeping();
        let mut pieces = bytes.chunks(length).peekable();
        while let Some(piece) = pieces.next() {
            let is_whole = message.feed(piece).expect("it is a message");
            assert_eq!(is_whole, pieces.peek().is_none(), "in pieces of {length}");
        }
        assert_eq!(message.kept(), body, "in pieces of {length}");
        assert_eq!(message.body_bytes(), body.len() as u64);
    }
}

#[test]
fn ends_where_its_length_says() {
    check(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", b"hello");
    check(
        b"POST / HTTP/1.1\r\nhost: here\r\nContent-Length:5\r\n\r\nhello",
        b"hello",
    );
    check(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b"");
    check(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n", b"");
}

#[test]
fn ends_with_its_last_chunk() {
    check(STREAM, b"data: a\n\ndata: b\n\ndata: [DONE]\n\n");
}

#[test]
fn counts_events_and_sees_the_last() {
    let mut message = Message::default();
    assert!(message.feed(STREAM).expect("it is a message"));
    assert_eq!(message.status(), 200);
    assert_eq!(message.events(), 3);
    assert!(message.ends_with_last_event());
    assert!(message.kept().is_empty());

    message.reset();
    let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 18\r\n\r\ndata: a\n\ndata: b\n\n";
    assert!(message.feed(cut).expect("it is a message"));
    assert_eq!(message.events(), 2);
    assert!(!message.ends_with_last_event());
}

#[test]
fn keeps_what_a_failure_says() {
    let mut message = Message::default();
    let refusal = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 7\r\n\r\nrefused";
    assert!(message.feed(refusal).expect("it is a message"));
    assert_eq!(message.status(), 429);
    assert_eq!(message.kept(), b"refused");
}

#[test]
fn what_is_no_message_is_an_error() {
    for wrong in [
        "HTTP/1.1 200 OK\r\n\r\nuntil it closes",
        "HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nmore",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nmore\r\n0\r\n\r\n",
    ] {
        assert!(Message::default().feed(wrong.as_bytes()).is_err(), "{wrong:?}");
    }
    let endless = vec![b'x'; 70_000];
    assert!(Message::default().feed(&endless).is_err());
}

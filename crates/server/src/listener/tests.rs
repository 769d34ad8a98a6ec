//! Connections: how many, and how long a silent one lasts.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use futures_util::stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{CONNECTIONS_MAX, CONNECTIONS_MIN, Closing, DoorSettings, connections_for, descriptors, serve};
use crate::trusted_proxies::TrustedProxies;

/// What waits for something that must happen, at most.
const PATIENCE: Duration = Duration::from_secs(20);
const IDLE: Duration = Duration::from_millis(300);

#[test]
fn connections_follow_the_file_descriptors_that_the_system_grants() {
    let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                  Max cpu time              unlimited            unlimited            seconds   \n\
                  Max open files            1024                 524288               files     \n";
    assert_eq!(descriptors(limits), Some(1_024));
    assert_eq!(connections_for(1_024), (1_024 - 128) / 2);
    assert_eq!(connections_for(10), CONNECTIONS_MIN);
    assert_eq!(
        descriptors("Max open files            unlimited            unlimited            files"),
        Some(usize::MAX)
    );
    assert_eq!(connections_for(usize::MAX), CONNECTIONS_MAX);
    assert_eq!(descriptors("nothing of the kind"), None);
}

/// A door whose `/slow` answers with what is sent into the channel.
async fn door() -> (TcpStream, mpsc::Sender<Bytes>, Closing) {
    let (pieces, slow) = mpsc::channel::<Bytes>(1);
    let slow = std::sync::Arc::new(std::sync::Mutex::new(Some(slow)));
    let router = Router::new().route("/", get(|| async { "fast" })).route(
        "/slow",
        get(move || async move {
            let receiver = slow.lock().ok().and_then(|mut slow| slow.take());
            Body::from_stream(stream::unfold(receiver, |receiver| async {
                let mut receiver = receiver?;
                let piece = receiver.recv().await?;
                Some((Ok::<_, std::convert::Infallible>(piece), Some(receiver)))
            }))
        }),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let closing = Closing::default();
    let settings = DoorSettings {
        connections_max: 4,
        idle: IDLE,
        trusted_proxies: TrustedProxies::default(),
    };
    tokio::spawn(serve(listener, router, settings, closing.clone()));
    let stream = TcpStream::connect(address).await.expect("a connection");
    (stream, pieces, closing)
}

async fn read_until(stream: &mut TcpStream, word: &str) {
    let mut buffer = [0; 1_024];
    let mut seen = String::new();
    while !seen.contains(word) {
        let read = timeout(PATIENCE, stream.read(&mut buffer)).await.expect("in time");
        let read = read.expect("an answer");
        assert!(read > 0, "closed: {seen}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
}

async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    // A reset ends it as well as a close.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut read))
        .await
        .expect("the connection is closed");
    String::from_utf8_lossy(&read).into_owned()
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_closed() {
    let (mut stream, _pieces, _closing) = door().await;
    assert_eq!(read_to_end(&mut stream).await, "");
}

#[tokio::test]
async fn a_connection_that_stops_inside_its_first_word_is_closed() {
    for beginning in ["P", "PRI * HTTP/2.0\r\n", "GET / HT"] {
        let (mut stream, _pieces, _closing) = door().await;
        stream.write_all(beginning.as_bytes()).await.expect("written");
        let text = read_to_end(&mut stream).await;
        assert!(!text.contains("200 OK"), "{beginning:?}: {text}");
    }
}

#[tokio::test]
async fn a_peer_that_answers_pings_and_asks_nothing_is_closed() {
    let (mut stream, _pieces, _closing) = door().await;
    // The preface of HTTP/2 and empty settings; then the peer acknowledges whatever it is asked.
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .expect("written");
    let closed = async {
        let mut head = [0; 9];
        while stream.read_exact(&mut head).await.is_ok() {
            let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            let mut payload = vec![0; length];
            if stream.read_exact(&mut payload).await.is_err() {
                return;
            }
            const PING: u8 = 6;
            if head[3] == PING && head[4] & 1 == 0 {
                head[4] = 1;
                let answered = async {
                    stream.write_all(&head).await?;
                    stream.write_all(&payload).await
                };
                if answered.await.is_err() {
                    return;
                }
            }
        }
    };
    timeout(PATIENCE, closed).await.expect("the connection is closed");
}

#[tokio::test]
async fn an_answer_under_way_is_not_idle_however_long_it_is_silent() {
    let (mut stream, pieces, _closing) = door().await;
    stream
        .write_all(b"GET /slow HTTP/1.1\r\nhost: here\r\n\r\n")
        .await
        .expect("written");
    pieces.send(Bytes::from_static(b"first")).await.expect("taken");
    read_until(&mut stream, "first").await;
    // Silence for longer than a connection may idle.
    assert!(
        timeout(IDLE * 3, stream.read_u8()).await.is_err(),
        "it was closed in the middle of an answer"
    );
    pieces.send(Bytes::from_static(b"last")).await.expect("taken");
    drop(pieces);
    let rest = read_to_end(&mut stream).await;
    assert!(rest.contains("last"), "{rest}");
}

#[tokio::test]
async fn a_stop_lets_the_answer_under_way_finish_and_an_end_does_not() {
    for is_ended in [false, true] {
        let (mut stream, pieces, closing) = door().await;
        stream
            .write_all(b"GET /slow HTTP/1.1\r\nhost: here\r\n\r\n")
            .await
            .expect("written");
        pieces.send(Bytes::from_static(b"first")).await.expect("taken");
        read_until(&mut stream, "first").await;
        closing.stop.cancel();
        if is_ended {
            closing.end.cancel();
        } else {
            pieces.send(Bytes::from_static(b"last")).await.expect("taken");
            drop(pieces);
        }
        let text = read_to_end(&mut stream).await;
        assert_eq!(text.contains("last"), !is_ended, "{text}");
    }
}

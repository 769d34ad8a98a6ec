//! Callers, upstream and simulator together.

use std::time::Duration;

use serde_json::json;
use simulator::{Simulator, SimulatorConfig};

use super::{Recorded, Script, Upstream, events, uneven};
use crate::speed::callers::{Identity, NUMBER, Question, call, introduce};

const EVENTS: u64 = 10;

fn identities() -> [Identity; 2] {
    ["first", "second"].map(|name| Identity {
        key: name.to_owned(),
        user: name.to_owned(),
    })
}

fn question(is_streamed: bool) -> Question {
    let mut body = json!({
        "model": "sim",
        "messages": [{ "role": "user", "content": format!("Request {NUMBER}. [[sim: tokens=6]]") }],
    });
    if is_streamed {
        body["stream"] = json!(true);
        body["stream_options"] = json!({ "include_usage": true });
    }
    let events = is_streamed.then_some(EVENTS);
    Question::new("/v1/chat/completions", body.to_string(), events).expect("it has a number")
}

async fn recorded(question: &Question) -> Recorded {
    let simulator = Simulator::start(SimulatorConfig::default()).await.expect("it starts");
    let recorded = Recorded::of(simulator.address(), &identities()[0], question).await;
    simulator.stop().await;
    recorded.expect("the simulator answers")
}

#[tokio::test]
async fn whole_answers_are_those_of_the_simulator() {
    let question = question(false);
    let recorded = recorded(&question).await;
    let upstream = Upstream::start(Script::whole(&recorded)).expect("it listens");
    let (to, who) = (upstream.address(), identities());
    let introduced = introduce(to, &who, &question, Duration::ZERO).await;
    assert_eq!(introduced.expect("both are answered"), 2);
    let calls = call(to, &who, &question, 3, Duration::from_millis(50)).await;
    let calls = calls.expect("all are answered");
    assert!(calls.count() >= 3);
    assert!(calls.whole.percentile(50.0) <= calls.whole.percentile(99.0));
    let again = Recorded::of(to, &who[1], &question).await.expect("it answers");
    assert_eq!(again.body, recorded.body);
}

#[tokio::test]
async fn streams_have_every_event_with_and_without_pauses() {
    let question = question(true);
    let recorded = recorded(&question).await;
    for pause in [Duration::ZERO, Duration::from_millis(1)] {
        let script = Script::streamed(&recorded, pause);
        assert_eq!(script.pieces() as u64, EVENTS);
        let upstream = Upstream::start(script).expect("it listens");
        let calls = call(
            upstream.address(),
            &identities(),
            &question,
            3,
            Duration::from_millis(20),
        )
        .await;
        let calls = calls.expect("all are answered");
        assert!(calls.first.percentile(50.0) <= calls.whole.percentile(50.0));
    }
}

#[tokio::test]
async fn an_answer_that_is_not_as_it_should_be_ends_the_measurement() {
    let recorded = recorded(&question(true)).await;
    let mut script = Script::streamed(&recorded, Duration::ZERO);
    script.writes.remove(4);
    let upstream = Upstream::start(script).expect("it listens");
    let who = identities();
    let error = call(upstream.address(), &who, &question(true), 1, Duration::from_millis(20)).await;
    let error = error.expect_err("an event is missing").to_string();
    assert!(error.contains("10 events had 9"), "{error}");

    let refusal = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 7\r\n\r\nrefused".to_vec();
    upstream.answer(Script {
        writes: vec![refusal],
        pause: Duration::ZERO,
    });
    let error = call(upstream.address(), &who, &question(false), 1, Duration::from_millis(20)).await;
    let error = error.expect_err("it is refused").to_string();
    assert_eq!(error, "status 429: refused");
}

#[test]
fn pauses_are_uneven_and_as_long_as_they_should_be() {
    let wanted = Duration::from_millis(8);
    let pauses: Vec<Duration> = (0..1_000).map(|_| uneven(wanted)).collect();
    assert!(pauses.iter().all(|pause| (wanted / 2..wanted * 3 / 2).contains(pause)));
    assert!(pauses.windows(2).all(|pair| pair[0] != pair[1]));
    let mean = pauses.iter().sum::<Duration>() / 1_000;
    assert!((wanted * 9 / 10..wanted * 11 / 10).contains(&mean), "{mean:?}");
}

#[test]
fn events_end_with_a_blank_line() {
    let found: Vec<&[u8]> = events(b"data: a\n\ndata: b\n\nrest").collect();
    assert_eq!(found, [&b"data: a\n\n"[..], b"data: b\n\n", b"rest"]);
}

//! Orders are read from words and from the text of messages; what is unknown is refused.

use super::{Behaviour, UnknownOrder};

#[test]
fn orders_are_read() {
    let mut behaviour = Behaviour::default();
    assert_eq!(behaviour.apply("status=429 retry-after=7, hold"), Ok(()));
    assert_eq!(
        behaviour,
        Behaviour {
            status: Some(429),
            retry_after: Some("7".into()),
            holds: true,
            ..Behaviour::default()
        }
    );
}

#[test]
fn orders_are_found_in_a_text() {
    let mut behaviour = Behaviour::default();
    let text = "hello [[sim: tokens=40]] and [[sim:chunk-ms=5 no-usage]] goodbye [[sim: open";
    assert_eq!(behaviour.apply_text(text), Ok(()));
    assert_eq!(
        (behaviour.output_tokens, behaviour.chunk_ms, behaviour.hides_usage),
        (Some(40), 5, true)
    );
}

#[test]
fn an_unknown_order_is_refused() {
    for order in [
        "statos=500",
        "status=200",
        "tokens=many",
        "hold=yes",
        "tokens",
        "fail-share=20",
        "fail-share=NaN",
    ] {
        assert_eq!(Behaviour::default().apply(order), Err(UnknownOrder(order.into())));
    }
}

#[test]
fn a_share_is_a_number_up_to_one() {
    let mut behaviour = Behaviour::default();
    assert_eq!(behaviour.apply("fail-share=0.125 status=503"), Ok(()));
    assert_eq!((behaviour.fail_permille, behaviour.status), (Some(125), Some(503)));
    assert_eq!(behaviour.without_failures().status, None);
}

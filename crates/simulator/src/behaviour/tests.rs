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
    for order in ["statos=500", "status=200", "tokens=many", "hold=yes", "tokens"] {
        assert_eq!(Behaviour::default().apply(order), Err(UnknownOrder(order.into())));
    }
}

//! Callers that do not wait for the server's answer.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use domain::limits::Dimension;
use test_redis::RedisServer;

use super::fixture::{Asking, Gateway, Way, patient, until};
use crate::fixture::{limit, on, tenant};

#[tokio::test]
async fn a_caller_that_leaves_while_the_answer_is_on_its_way_leaves_nothing_taken() {
    let server = RedisServer::start().await;
    let way = Way::to(&server).await;
    let dimensions = [Dimension::Requests, Dimension::Concurrency, Dimension::BudgetCost];
    let asking = Asking::of(vec![on(
        tenant(1),
        dimensions.map(|dimension| limit(dimension, 1_000_000_000)).to_vec(),
    )]);
    let one = Gateway::start(&patient(way.url()), "one").await;
    let other = Gateway::start(&patient(server.url()), "other").await;
    assert!(other.read_budgets(&asking, 0, &[]).await);

    way.hold();
    for _ in 0..20 {
        let mut leaving = pin!(one.admit(&asking));
        // Until it is sent, and for a while longer.
        for _ in 0..100 {
            let polled = leaving.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(polled, Poll::Pending), "nobody can have answered");
            tokio::task::yield_now().await;
        }
    }
    way.mend();

    // What was sent is run before its cancellation, on the same connection.
    let stayed = one.admitted(&asking).await;
    one.until_told().await;
    until("only who has stayed is counted", async || {
        let requests = other.reading(&asking, Dimension::Requests).await.used;
        let in_flight = other.reading(&asking, Dimension::Concurrency).await.held;
        let held = other.reading(&asking, Dimension::BudgetCost).await.held;
        (requests, in_flight, held) == (1, 1, 1_000_000)
    })
    .await;
    one.refund(stayed).await;
}

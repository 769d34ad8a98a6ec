//! Servers that forget everything while requests are under way.

use domain::limits::Dimension;
use domain::refusals::RefusalCode;
use test_redis::RedisServer;

use super::fixture::{Asking, Gateway, is_local, patient, until};
use crate::Hold;
use crate::fixture::{amounts, limit, on, tenant};

/// What each request holds of the budget, and spends.
const EACH: i64 = 1_000_000;

/// A budget for ten requests at once.
fn asking() -> Asking {
    let limits = vec![
        limit(Dimension::Concurrency, 100),
        limit(Dimension::BudgetCost, 10 * EACH.unsigned_abs()),
    ];
    Asking::of(vec![on(tenant(1), limits)])
}

/// Admits until the budget refuses.
async fn admit_all(gateway: &Gateway, asking: &Asking) -> Vec<Hold> {
    let mut holds = Vec::new();
    while let Ok(hold) = gateway.admit(asking).await {
        assert!(!is_local(&hold));
        holds.push(hold);
    }
    holds
}

#[tokio::test]
async fn a_spent_budget_does_not_open() {
    let server = RedisServer::start().await;
    let asking = asking();
    let one = Gateway::start(&patient(server.url()), "one").await;
    assert!(one.read_budgets(&asking, 10 * EACH, &[]).await);
    let denial = one.admit(&asking).await.expect_err("it is spent");
    assert_eq!(denial.code, RefusalCode::BudgetExhausted);

    server.command(&["FLUSHALL"]).await;
    for _ in 0..10 {
        let denial = one.admit(&asking).await.expect_err("it is closed");
        assert_eq!(denial.code, RefusalCode::BudgetUnknown);
        assert_eq!(denial.unknown_budgets, asking.budgets(one.now()));
    }
    until("it is read", async || one.read_budgets(&asking, 10 * EACH, &[]).await).await;
    let denial = one.admit(&asking).await.expect_err("it is spent");
    assert_eq!(denial.code, RefusalCode::BudgetExhausted);
}

#[tokio::test]
async fn a_budget_opens_when_everybody_has_put_back_what_they_hold() {
    let server = RedisServer::start().await;
    let asking = asking();
    let one = Gateway::start(&patient(server.url()), "one").await;
    let other = Gateway::start(&patient(server.url()), "other").await;
    assert!(one.read_budgets(&asking, 0, &[]).await);
    until("they know of each other", async || {
        one.limits.gateways() == 2 && other.limits.gateways() == 2
    })
    .await;
    let mut held = Vec::new();
    for _ in 0..6 {
        held.push(other.admitted(&asking).await);
    }
    for round in 0..4 {
        server.command(&["FLUSHALL"]).await;
        until("it is read", async || one.read_budgets(&asking, 0, &[]).await).await;
        let holds = admit_all(&one, &asking).await;
        assert!(holds.len() <= 4, "{} in round {round}", holds.len());
        let in_flight = one.reading(&asking, Dimension::Concurrency).await.held;
        assert_eq!(in_flight, (held.len() + holds.len()) as u64);
        for hold in holds {
            one.refund(hold).await;
        }
    }
}

#[tokio::test]
async fn a_budget_that_is_new_opens_when_everybody_holds_in_it() {
    let server = RedisServer::start().await;
    let asking = asking();
    let without = Asking::of(vec![on(tenant(1), vec![limit(Dimension::Concurrency, 100)])]);
    let one = Gateway::start(&patient(server.url()), "one").await;
    let other = Gateway::start(&patient(server.url()), "other").await;
    until("they know of each other", async || one.limits.gateways() == 2).await;
    let _held = [other.admitted(&without).await, other.admitted(&without).await];
    // The policy that brings it is known to both.
    for gateway in [&one, &other] {
        gateway.limits.count_budgets(&asking.budgets(gateway.now()));
    }
    assert!(one.read_budgets(&asking, 0, &[]).await);
    assert_eq!(
        one.reading(&asking, Dimension::BudgetCost).await.held,
        2 * EACH.unsigned_abs()
    );
    assert_eq!(admit_all(&one, &asking).await.len(), 8);
}

#[tokio::test]
async fn whoever_does_not_come_back_is_not_waited_for_for_ever() {
    let server = RedisServer::start().await;
    let asking = asking();
    let one = Gateway::start(&patient(server.url()), "one").await;
    let mut other = Gateway::start(&patient(server.url()), "other").await;
    assert!(one.read_budgets(&asking, 0, &[]).await);
    until("they know of each other", async || one.limits.gateways() == 2).await;
    other.fall_silent();
    server.command(&["FLUSHALL"]).await;
    until("it is read", async || one.read_budgets(&asking, 0, &[]).await).await;
    assert!(one.admit(&asking).await.is_ok());
}

#[tokio::test]
async fn what_was_settled_is_neither_lost_nor_counted_twice() {
    let server = RedisServer::start().await;
    let asking = asking();
    let one = Gateway::start(&patient(server.url()), "one").await;
    let other = Gateway::start(&patient(server.url()), "other").await;
    assert!(one.read_budgets(&asking, 0, &[]).await);
    until("they know of each other", async || one.limits.gateways() == 2).await;
    let spend = amounts(100, 100, EACH);
    let [first, second, third] = [
        one.admitted(&asking).await,
        one.admitted(&asking).await,
        other.admitted(&asking).await,
    ];
    one.settle(first, spend, 7).await;
    server.command(&["FLUSHALL"]).await;
    one.settle(second, spend, 8).await;

    let spent = async || one.reading(&asking, Dimension::BudgetCost).await.used;
    assert!(
        !one.read_budgets(&asking, EACH, &[("one", 7)]).await,
        "what was settled before is not in the base"
    );
    until("it is read", async || {
        one.read_budgets(&asking, 2 * EACH, &[("one", 8)]).await
    })
    .await;
    assert_eq!(spent().await, 2 * EACH);
    other.settle(third, spend, 3).await;
    assert_eq!(spent().await, 3 * EACH);
    // Read again, first as it was and then as it is.
    assert!(one.read_budgets(&asking, 2 * EACH, &[("one", 8), ("other", 2)]).await);
    assert_eq!(spent().await, 3 * EACH);
    assert!(one.read_budgets(&asking, 3 * EACH, &[("one", 8), ("other", 3)]).await);
    assert_eq!(spent().await, 3 * EACH);
    assert_eq!(one.reading(&asking, Dimension::BudgetCost).await.held, 0);
}

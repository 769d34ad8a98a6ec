//! Gateways that are gone without having ended what they held.

use domain::limits::Dimension;
use domain::refusals::RefusalCode;
use test_redis::RedisServer;

use super::fixture::{Asking, Gateway, patient, until};
use crate::fixture::{limit, on, tenant};
use crate::redis::TimeOf;
use crate::redis::allowances::KEPT_MS;
use crate::{Hold, Settings};

const EACH: u64 = 1_000_000;
const PLACES: u64 = 200;

fn asking(limits: Vec<domain::limits::Limit>) -> Asking {
    Asking::of(vec![on(tenant(1), limits)])
}

async fn admit_all(gateway: &Gateway, asking: &Asking) -> Vec<Hold> {
    let mut holds = Vec::new();
    while let Ok(hold) = gateway.admit(asking).await {
        holds.push(hold);
    }
    holds
}

/// Ends with everything that it holds, as a process that is killed.
fn kill(mut gateway: Gateway, holds: Vec<Hold>) {
    gateway.fall_silent();
    holds.into_iter().for_each(std::mem::forget);
}

#[tokio::test]
async fn places_in_flight_are_free_again_when_the_lease_is_over() {
    let server = RedisServer::start().await;
    let lease_ms = Settings::default().lease_ms;
    let asking = asking(vec![limit(Dimension::Concurrency, 3)]);
    let one = Gateway::start_by(&patient(server.url()), "one", TimeOf::Caller).await;
    let other = Gateway::start_by(&patient(server.url()), "other", TimeOf::Caller).await;
    let holds = vec![one.admitted(&asking).await, one.admitted(&asking).await];
    one.signs.pass(lease_ms / 2);
    other.signs.pass(lease_ms / 2);
    one.store().renew_now(holds[0].id(), one.now()).await;
    kill(one, holds);

    other.signs.pass(lease_ms / 2 - 1);
    assert_eq!(admit_all(&other, &asking).await.len(), 1);
    other.signs.pass(1);
    assert_eq!(admit_all(&other, &asking).await.len(), 2);
    other.signs.pass(lease_ms / 2);
    assert_eq!(admit_all(&other, &asking).await.len(), 3);
}

#[tokio::test]
async fn a_budget_counts_lost_requests_until_nobody_will_book_them() {
    let server = RedisServer::start().await;
    let Settings { lease_ms, orphan_ms } = Settings::default();
    let asking = asking(vec![limit(Dimension::BudgetCost, PLACES * EACH)]);
    let mut one = Gateway::start_by(&patient(server.url()), "one", TimeOf::Caller).await;
    let mut other = Gateway::start_by(&patient(server.url()), "other", TimeOf::Caller).await;
    assert!(one.read_budgets(&asking, 0, &[]).await);
    // It sets nothing aside.
    other.fall_silent();
    let lost = vec![one.admitted(&asking).await, one.admitted(&asking).await];
    let budget = &asking.budgets(one.now())[0];
    until("a part is set aside", async || {
        one.store().allowance(budget, one.now()) > Some(0)
    })
    .await;
    let part = one.store().allowance(budget, one.now()).expect("a part");
    let part = (part * 1_000).div_ceil(EACH);
    one.fall_silent();
    one.signs.pass(lease_ms / 2);
    for hold in &lost {
        one.store().renew_now(hold.id(), one.now()).await;
    }
    kill(one, lost);

    let room = async || {
        let holds = admit_all(&other, &asking).await;
        let denial = other.admit(&asking).await.expect_err("it is full");
        assert_eq!(denial.code, RefusalCode::BudgetHeld, "only holds are in the way");
        let count = holds.len() as u64;
        for hold in holds {
            other.refund(hold).await;
        }
        count
    };
    other.signs.pass(lease_ms / 2 + lease_ms);
    assert_eq!(room().await, PLACES - 2 - part);
    // What was set aside is free after an hour, or a minute later.
    other.signs.pass(KEPT_MS - lease_ms / 2);
    assert_eq!(room().await, PLACES - 2);
    other.signs.pass(orphan_ms - KEPT_MS + lease_ms / 2);
    assert_eq!(room().await, PLACES);
    let reading = other.reading(&asking, Dimension::BudgetCost).await;
    assert_eq!((reading.used, reading.held), (0, 0));
}

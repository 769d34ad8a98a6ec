//! Servers that are killed, stopped, full, or replaced by another, and callers that do not wait for an answer.

use std::time::Duration;

use domain::limits::{Dimension, Scope};
use futures_util::future::join_all;
use test_redis::{Options, RedisServer};
use tokio::time::Instant;

use super::fixture::{Asking, Gateway, Way, is_local, patient, short, until};
use crate::fixture::{amounts, limit, on, tenant};
use crate::redis::health::{FAILURES_MAX, RISE_MS};
use crate::redis::{Mode, RedisSettings};

/// What a busy machine may add to any time.
const SLACK: Duration = Duration::from_secs(2);
/// Admissions that would take much longer than [`SLACK`] if each waited for the server.
const MANY: usize = 1_000;

/// A tenant with requests, concurrency and a budget of 1,000 requests.
fn asking() -> Asking {
    Asking::of(vec![on(
        tenant(1),
        vec![
            limit(Dimension::Requests, 100_000),
            limit(Dimension::Concurrency, 100_000),
            limit(Dimension::BudgetCost, 1_000_000_000),
        ],
    )])
}

#[tokio::test]
async fn a_killed_server_is_gone_on_without_and_hears_of_what_is_still_open_when_it_is_back() {
    let mut server = RedisServer::start().await;
    let asking = asking();
    let one = Gateway::start(&short(server.url()), "one").await;
    let other = Gateway::start(&short(server.url()), "other").await;
    assert!(one.read_budgets(&asking, 0, &[]).await);
    until("both know of each other", async || one.limits.gateways() == 2).await;

    let mut holds = Vec::new();
    for _ in 0..3 {
        let hold = one.admitted(&asking).await;
        assert!(!is_local(&hold));
        holds.push(hold);
    }
    until("a part of the budget is set aside", async || {
        one.store().allowance(&asking.budgets(one.now())[0], one.now()) > Some(0)
    })
    .await;
    server.kill();

    for _ in 0..FAILURES_MAX {
        holds.push(one.admitted(&asking).await);
        // Counters of one's own begin as if just used up.
        one.signs.pass(6_000);
    }
    assert_eq!(one.mode(), Mode::Degraded { share_percent: 45 });
    assert!(holds[3..].iter().all(is_local));
    // One that the server knew, and one that it has never heard of.
    one.settle(holds.swap_remove(0), amounts(100, 100, 1_000_000), 1).await;
    one.settle(holds.pop().expect("a hold"), amounts(100, 100, 1_000_000), 2)
        .await;
    assert_eq!(holds.len(), 4);

    server.restart().await;
    // By itself.
    until("it goes by the shared counters", async || !one.is_degraded()).await;
    assert!(
        matches!(one.mode(), Mode::Returning { share_percent: 45.. }),
        "{:?}",
        one.mode()
    );
    other.until_back().await;
    assert_eq!(other.reading(&asking, Dimension::Concurrency).await.held, 4);
    assert!(!other.reading(&asking, Dimension::BudgetCost).await.is_known);
    assert!(
        !other.read_budgets(&asking, 0, &[("one", 1)]).await,
        "a base lacks what was settled"
    );
    assert!(other.read_budgets(&asking, 2_000_000, &[("one", 2)]).await);
    let budget = other.reading(&asking, Dimension::BudgetCost).await;
    assert_eq!((budget.used, budget.held), (2_000_000, 4_000_000));

    one.signs.pass(RISE_MS);
    assert_eq!(one.mode(), Mode::Normal);
    for hold in holds {
        one.refund(hold).await;
    }
    assert_eq!(other.reading(&asking, Dimension::Concurrency).await.held, 0);
    assert_eq!(other.reading(&asking, Dimension::BudgetCost).await.held, 0);
}

#[tokio::test]
async fn a_stopped_server_costs_a_time_out_three_times_then_nothing_and_takes_nothing_late() {
    let server = RedisServer::start().await;
    let asking = asking();
    let settings = RedisSettings::new(server.url());
    let timeout = Duration::from_millis(settings.command_timeout_ms);
    let one = Gateway::start(&settings, "one").await;
    let other = Gateway::start(&patient(server.url()), "other").await;
    assert!(other.read_budgets(&asking, 0, &[]).await);
    until("it admits by the shared counters", async || {
        one.admit(&asking).await.is_ok_and(|hold| !is_local(&hold))
    })
    .await;
    one.until_told().await;
    let taken = calls_of(&server, "hincrby").await;

    server.pause();
    let mut calls = 0;
    while !one.is_degraded() {
        calls += 1;
        let began_at = Instant::now();
        let _ = one.admit(&asking).await;
        // A call that came too late by a wrong idea of the server's time is made once more.
        assert!(began_at.elapsed() < 2 * timeout + SLACK, "{:?}", began_at.elapsed());
    }
    // One may wait side by side with a beat.
    assert!(calls <= FAILURES_MAX + 1, "{calls}");
    let began_at = Instant::now();
    for _ in 0..MANY {
        one.signs.pass(10);
        let _ = one.admit(&asking).await;
    }
    assert!(began_at.elapsed() < SLACK, "{:?}", began_at.elapsed());

    server.resume();
    one.until_back().await;
    one.until_told().await;
    let used: Vec<_> = other
        .peek(&asking)
        .await
        .iter()
        .map(|reading| (reading.used, reading.held))
        .collect();
    assert_eq!(used[..2], [(0, 0), (0, 0)], "requests, and requests in flight");
    assert_eq!(used[2], (0, 0), "the budget");
    assert_eq!(
        calls_of(&server, "hincrby").await,
        taken,
        "nothing was held in the meantime"
    );
}

/// How often a command has run.
async fn calls_of(server: &RedisServer, command: &str) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]).await;
    let begin = format!("cmdstat_{command}:calls=");
    let calls = stats
        .lines()
        .find_map(|line| line.strip_prefix(&begin)?.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

#[tokio::test]
async fn a_server_that_stands_still_for_a_moment_is_not_given_up_however_many_wait() {
    let server = RedisServer::start().await;
    let asking = asking();
    let settings = short(server.url());
    let one = Gateway::start(&settings, "one").await;
    assert!(one.read_budgets(&asking, 0, &[]).await);
    server.pause();
    let _answers = join_all((0..MANY).map(|_| one.admit(&asking))).await;
    server.resume();
    one.until_told().await;
    assert_eq!(one.mode(), Mode::Normal);
    until("it admits by the shared counters", async || {
        one.admit(&asking).await.is_ok_and(|hold| !is_local(&hold))
    })
    .await;
}

#[tokio::test]
async fn counters_say_what_was_admitted_by_them_however_often_the_server_stops() {
    const CALLERS: usize = 20;
    const STOPS: u32 = 4;
    let server = RedisServer::start().await;
    let asking = asking();
    let one = Gateway::start(&short(server.url()), "one").await;
    let other = Gateway::start(&patient(server.url()), "other").await;
    assert!(other.read_budgets(&asking, 0, &[]).await);

    let (done, is_done) = tokio::sync::watch::channel(false);
    let callers = (0..CALLERS).map(|caller| {
        let (one, asking, is_done) = (&one, &asking, is_done.clone());
        async move {
            let (mut kept, mut local) = (0, 0);
            while !*is_done.borrow() {
                one.signs.pass(1);
                tokio::time::sleep(Duration::from_millis(2)).await;
                // Some do not wait for long.
                let admission = asking.admission();
                let asked = one.limits.admit(&admission, one.now());
                let patience = Duration::from_millis(if caller % 3 == 0 { 1 } else { 1_000 });
                let Ok(Ok(mut hold)) = tokio::time::timeout(patience, asked).await else {
                    continue;
                };
                match (is_local(&hold), caller % 2 == 0) {
                    (true, _) => local += 1,
                    (false, true) => {
                        kept += 1;
                        hold.mark_sent();
                    }
                    (false, false) => {}
                }
            }
            (kept, local)
        }
    });
    let stops = async {
        for _ in 0..STOPS {
            one.until_back().await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            server.pause();
            one.until_degraded().await;
            server.resume();
        }
        done.send_replace(true);
    };
    let (counts, ()) = futures_util::join!(join_all(callers), stops);
    let kept: i64 = counts.iter().map(|(kept, _)| kept).sum();
    let local: i64 = counts.iter().map(|(_, local)| local).sum();
    assert!(kept > 0 && local > 0, "{kept} {local}");

    one.until_back().await;
    one.until_told().await;
    assert_eq!(other.reading(&asking, Dimension::Requests).await.used, kept);
    assert_eq!(other.reading(&asking, Dimension::Concurrency).await.held, 0);
    assert_eq!(other.reading(&asking, Dimension::BudgetCost).await.held, 0);
    assert_eq!(one.limits.open_holds(), 0);
}

#[tokio::test]
async fn callers_that_leave_before_the_answer_leave_nothing_behind() {
    let server = RedisServer::start().await;
    let asking = asking();
    let one = Gateway::start(&patient(server.url()), "one").await;
    assert!(one.read_budgets(&asking, 0, &[]).await);
    // The server knows the script then.
    let hold = one.admitted(&asking).await;
    one.refund(hold).await;
    let taken = calls_of(&server, "hincrby").await;
    for polls in 1..=4 {
        server.pause();
        let admission = asking.admission();
        let mut asked = Box::pin(one.limits.admit(&admission, one.now()));
        for _ in 0..polls {
            let answer = futures_util::poll!(&mut asked);
            assert!(answer.is_pending(), "the server is stopped");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        drop(asked);
        server.resume();
        one.until_told().await;
        let now: Vec<_> = one
            .peek(&asking)
            .await
            .iter()
            .map(|reading| (reading.used, reading.held))
            .collect();
        assert_eq!(now, [(0, 0); 3], "after {polls} polls");
    }
    // They ran, as nobody can be too late within five seconds, and were given back.
    assert_eq!(calls_of(&server, "hincrby").await, taken + 4 * 2);
    assert!(!one.is_degraded());
}

#[tokio::test]
async fn a_request_whose_caller_left_may_be_asked_for_again() {
    let server = RedisServer::start().await;
    let asking = asking();
    let one = Gateway::start(&patient(server.url()), "one").await;
    assert!(one.read_budgets(&asking, 0, &[]).await);
    let admission = asking.admission();
    for _ in 0..3 {
        server.pause();
        let asked = one.limits.admit(&admission, one.now());
        let left = tokio::time::timeout(Duration::from_millis(20), asked).await;
        assert!(left.is_err(), "the server is stopped");
        server.resume();
        one.until_told().await;
    }
    let hold = one.limits.admit(&admission, one.now()).await.expect("room");
    assert!(!is_local(&hold));
    assert_eq!(one.reading(&asking, Dimension::Concurrency).await.held, 1);
    one.settle(hold, amounts(100, 100, 1_000_000), 1).await;
    assert_eq!(one.reading(&asking, Dimension::Concurrency).await.held, 0);
    let budget = one.reading(&asking, Dimension::BudgetCost).await;
    assert_eq!((budget.used, budget.held), (1_000_000, 0));
}

#[tokio::test]
async fn a_request_that_ended_without_the_server_may_be_asked_for_again() {
    let server = RedisServer::start().await;
    let asking = Asking::of(vec![on(tenant(1), vec![limit(Dimension::Concurrency, 100)])]);
    let one = Gateway::start(&short(server.url()), "one").await;
    // By the gateway's own counters both times; the server hears of the first end, and then of the second hold.
    let admission = asking.admission();
    let mut open = None;
    for ends in [true, false] {
        server.pause();
        one.until_degraded().await;
        let hold = one.limits.admit(&admission, one.now()).await.expect("room");
        assert!(is_local(&hold));
        match ends {
            true => one.refund(hold).await,
            false => open = Some(hold),
        }
        server.resume();
        one.until_back().await;
        one.until_told().await;
    }
    assert_eq!(one.reading(&asking, Dimension::Concurrency).await.held, 1);
    drop(open);
}

#[tokio::test]
async fn many_requests_under_way_are_put_back_although_no_call_may_take_long() {
    const UNDER_WAY: usize = 5_000;
    let mut server = RedisServer::start().await;
    let limits = || {
        vec![
            limit(Dimension::Concurrency, 100_000),
            limit(Dimension::BudgetCost, 100_000_000_000),
            limit(Dimension::BudgetTokens, 100_000_000_000),
        ]
    };
    let asking = Asking::of(vec![on(Scope::Global, limits()), on(tenant(1), limits())]);
    let one = Gateway::start(&RedisSettings::new(server.url()), "one").await;
    until("they are read", async || one.read_budgets(&asking, 0, &[]).await).await;
    let mut holds = Vec::new();
    while holds.len() < UNDER_WAY {
        one.until_back().await;
        let answers = join_all((0..50).map(|_| one.admit(&asking))).await;
        holds.extend(answers.into_iter().flatten());
    }
    server.kill();
    one.until_degraded().await;
    server.restart().await;
    one.until_back().await;
    let other = Gateway::start(&patient(server.url()), "other").await;
    let in_flight = other.reading(&asking, Dimension::Concurrency).await.held;
    assert_eq!(in_flight, holds.len() as u64);
    assert_eq!(one.limits.open_holds(), in_flight);
}

#[tokio::test]
async fn a_full_server_is_seen_and_gone_on_without_until_it_has_room() {
    let server = RedisServer::start().await;
    let asking = asking();
    let one = Gateway::start(&patient(server.url()), "one").await;
    let other = Gateway::start(&patient(server.url()), "other").await;
    assert!(one.read_budgets(&asking, 0, &[]).await);
    let hold = one.admitted(&asking).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1kb"]).await;
    one.until_degraded().await;
    one.signs.pass(6_000);
    // The part of the budget may not have been set aside before.
    if let Ok(local) = one.admit(&asking).await {
        assert!(is_local(&local));
    }
    one.settle(hold, amounts(100, 100, 1_000_000), 1).await;
    assert!(one.limits.unheard() > 0);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    one.until_back().await;
    other.until_back().await;
    one.until_told().await;
    assert_eq!(other.reading(&asking, Dimension::Concurrency).await.held, 0);
    let budget = other.reading(&asking, Dimension::BudgetCost).await;
    assert_eq!((budget.used, budget.held, budget.is_known), (1_000_000, 0, true));
    assert!(!is_local(&one.admitted(&asking).await));
}

#[tokio::test]
async fn a_replica_that_takes_over_gets_to_know_what_is_held() {
    let (first, second) = (RedisServer::start().await, RedisServer::start().await);
    let asking = asking();
    let way = Way::to(&first).await;
    let one = Gateway::start(&patient(way.url()), "one").await;
    assert!(one.read_budgets(&asking, 0, &[]).await);
    second.replica_of(&first).await;
    let holds = [one.admitted(&asking).await, one.admitted(&asking).await];
    assert!(!holds.iter().any(is_local));

    // It has missed everything, and the way still leads to the first, which takes nothing any more.
    second.promote().await;
    second.command(&["FLUSHALL"]).await;
    first.replica_of(&second).await;
    one.until_degraded().await;
    way.lead_to(&second);
    one.until_back().await;
    let other = Gateway::start(&patient(second.url()), "other").await;
    assert_eq!(other.reading(&asking, Dimension::Concurrency).await.held, 2);
    assert!(other.read_budgets(&asking, 0, &[]).await);
    assert_eq!(other.reading(&asking, Dimension::BudgetCost).await.held, 2_000_000);
    for hold in holds {
        one.refund(hold).await;
    }
    assert_eq!(other.reading(&asking, Dimension::Concurrency).await.held, 0);
}

#[tokio::test]
async fn nobody_notices_that_a_server_forgets_scripts() {
    let server = RedisServer::start().await;
    let asking = asking();
    let one = Gateway::start(&patient(server.url()), "one").await;
    assert!(one.read_budgets(&asking, 0, &[]).await);
    for _ in 0..20 {
        let calls = (0..10).map(async |_| {
            let hold = one.admitted(&asking).await;
            assert!(!is_local(&hold));
            one.settle(hold, amounts(1, 1, 1_000), 1).await;
        });
        let flush = server.command(&["SCRIPT", "FLUSH"]);
        futures_util::join!(join_all(calls), flush);
    }
    assert_eq!(one.mode(), Mode::Normal);
    assert_eq!(one.reading(&asking, Dimension::Requests).await.used, 200);
    assert_eq!(one.reading(&asking, Dimension::BudgetCost).await.used, 200_000);
}

#[tokio::test]
async fn a_user_who_may_not_load_scripts_or_ask_about_the_server_is_enough() {
    let options = Options::default().user(
        "limited",
        "secret",
        "~rate_limit:* +@all -@admin -@dangerous -script|load -ping",
    );
    let server = RedisServer::start_with(options).await;
    let asking = asking();
    let one = Gateway::start(&patient(server.url_as("limited")), "one").await;
    assert!(one.read_budgets(&asking, 0, &[]).await);
    let hold = one.admitted(&asking).await;
    assert!(!is_local(&hold));
    one.settle(hold, amounts(100, 100, 1_000_000), 1).await;
    assert_eq!(one.reading(&asking, Dimension::BudgetCost).await.used, 1_000_000);
    assert_eq!(one.mode(), Mode::Normal);
}

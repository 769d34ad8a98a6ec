//! Rates that several gateways share: by clocks that step back, and without bursts when the server is lost or found.

use domain::limits::{Dimension, Limit};
use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use test_redis::RedisServer;

use super::fixture::{Asking, Gateway, is_local, patient, until};
use crate::fixture::{amounts, limit, on, tenant};
use crate::redis::health::RISE_MS;
use crate::redis::{Mode, TimeOf};

const REQUESTS: u64 = 600;
const TOKENS: u64 = 100_000;
const BURST: u64 = 8_000;
const WINDOW_MS: u64 = 60_000;
const CELL_MS: u64 = 3_000;

/// What was admitted, and when.
#[derive(Clone, Copy, Debug)]
struct Admitted {
    at_ms: u64,
    tokens: u64,
    is_local: bool,
}

/// The most in any window.
fn most(admitted: &[Admitted], amount: impl Fn(&Admitted) -> u64) -> u64 {
    most_within(WINDOW_MS, admitted, amount)
}

fn most_within(window_ms: u64, admitted: &[Admitted], amount: impl Fn(&Admitted) -> u64) -> u64 {
    let windows = admitted.iter().map(|first| {
        let ends_ms = first.at_ms + window_ms;
        let within = admitted
            .iter()
            .filter(|one| (first.at_ms..ends_ms).contains(&one.at_ms));
        within.map(&amount).sum()
    });
    windows.max().unwrap_or(0)
}

fn asking(tokens: u64) -> Asking {
    let limits = vec![
        limit(Dimension::Requests, REQUESTS),
        Limit {
            burst: Some(BURST),
            ..limit(Dimension::TotalTokens, TOKENS)
        },
    ];
    let mut asking = Asking::of(vec![on(tenant(1), limits)]);
    asking.estimate.expected = amounts(tokens, 0, 0);
    asking.estimate.ceiling = amounts(tokens, 0, 0);
    asking
}

async fn gateways(server: &RedisServer, names: &[&'static str]) -> Vec<Gateway> {
    let settings = patient(server.url());
    join_all(
        names
            .iter()
            .map(|name| Gateway::start_by(&settings, name, TimeOf::Caller)),
    )
    .await
}

/// Some requests at once on one gateway, a while after those before.
#[derive(Clone, Debug)]
struct Burst {
    gateway: usize,
    count: usize,
    tokens: u64,
    /// Of what each expected, in percent.
    used_percent: u64,
    after_ms: u64,
    /// By how much the clock has been set back meanwhile.
    back_ms: u64,
}

fn bursts() -> impl Strategy<Value = Vec<Burst>> {
    // Uneven: most goes to the first.
    let gateway = prop_oneof![6 => Just(0_usize), 3 => Just(1), 1 => Just(2)];
    let tokens = prop_oneof![6 => 0_u64..100, 1 => 0_u64..3_000, 1 => 0..2 * BURST];
    let burst = (gateway, 1_usize..60, tokens, 0_u64..=100, 0_u64..2_500, 0_u64..10_000).prop_map(
        |(gateway, count, tokens, used_percent, after_ms, back_ms)| Burst {
            gateway,
            count,
            tokens,
            used_percent,
            after_ms,
            back_ms,
        },
    );
    prop::collection::vec(burst, 100..200)
}

/// The clock is set back every so many bursts; never, if absent.
async fn check_windows(back_every: Option<usize>) {
    let server = RedisServer::start().await;
    let gateways = gateways(&server, &["one", "two", "three"]).await;
    let mut runner = TestRunner::default();
    for case in 0..3 {
        let history = bursts().new_tree(&mut runner).expect("a history").current();
        server.command(&["FLUSHALL"]).await;
        for gateway in &gateways {
            gateway.store().beat_now().await;
            // What was counted is lost, and may have been all of it.
            assert!(matches!(gateway.mode(), Mode::Returning { .. }), "{:?}", gateway.mode());
            gateway.signs.pass(RISE_MS);
            assert_eq!(gateway.mode(), Mode::Normal);
        }
        // Time as it passes, and as the server's clock tells it.
        let (mut time_ms, mut clock) = (0, gateways[0].now());
        clock.monotonic_ms += 100_000_000;
        let (mut admitted, mut asked) = (Vec::new(), 0);
        for (number, burst) in history.iter().enumerate() {
            time_ms += burst.after_ms;
            clock.monotonic_ms += burst.after_ms;
            if back_every.is_some_and(|every| number % every == 0) {
                clock.monotonic_ms -= burst.back_ms;
            }
            let gateway = &gateways[burst.gateway];
            gateway.signs.pass_to(clock);
            let asking = asking(burst.tokens);
            asked += burst.count;
            let answers = join_all((0..burst.count).map(|_| gateway.admit(&asking))).await;
            for mut hold in answers.into_iter().flatten() {
                assert!(!is_local(&hold));
                hold.mark_sent();
                let tokens = burst.tokens * burst.used_percent / 100;
                hold.settle(amounts(tokens, 0, 0), None, clock).await;
                admitted.push(Admitted {
                    at_ms: time_ms,
                    tokens,
                    is_local: false,
                });
            }
            for reading in gateway.peek(&asking).await {
                assert!(reading.used >= 0, "{reading:?}");
            }
        }
        let requests = most(&admitted, |_| 1);
        assert!(requests <= REQUESTS, "{requests} in case {case}: {history:?}");
        let tokens = most(&admitted, |one| one.tokens);
        assert!(tokens <= TOKENS + 3 * BURST, "{tokens} in case {case}: {history:?}");
        // The bucket's own rule, which is the stricter one for less than a window.
        let tokens = most_within(WINDOW_MS / 2, &admitted, |one| one.tokens);
        assert!(tokens <= TOKENS / 2 + 3 * BURST, "{tokens} in case {case}: {history:?}");
        assert!(admitted.len() > asked / 10, "{} of {asked}", admitted.len());
    }
}

#[tokio::test]
async fn no_window_admits_more_than_the_limit_on_all_gateways_together() {
    check_windows(None).await;
}

#[tokio::test]
async fn no_window_admits_more_when_the_server_s_clock_steps_back() {
    check_windows(Some(7)).await;
}

/// Asks on each gateway until it refuses.
async fn ask_all(gateways: &[Gateway], asking: &Asking, time_ms: u64, admitted: &mut Vec<Admitted>) {
    for gateway in gateways {
        while let Ok(mut hold) = gateway.admit(asking).await {
            hold.mark_sent();
            admitted.push(Admitted {
                at_ms: time_ms,
                tokens: asking.estimate.expected.total_tokens(),
                is_local: is_local(&hold),
            });
            hold.settle(asking.estimate.expected, None, gateway.now()).await;
        }
    }
}

/// Everything that two gateways can get at any time: with the server for a minute, without for one and a half, and with
/// a new one that knows nothing. The times of the loss and the return are told.
async fn admit_through_an_outage(tokens: u64) -> (Vec<Admitted>, u64, u64) {
    const STEP_MS: u64 = 500;
    let mut server = RedisServer::start().await;
    let gateways = gateways(&server, &["one", "two"]).await;
    until("they know of each other", async || {
        gateways.iter().all(|gateway| gateway.limits.gateways() == 2)
    })
    .await;
    let asking = asking(tokens);
    let (mut admitted, mut time_ms) = (Vec::new(), 0);
    let (lost_ms, back_ms, end_ms) = (WINDOW_MS + STEP_MS, 3 * WINDOW_MS, 6 * WINDOW_MS);
    while time_ms < end_ms {
        if time_ms == lost_ms {
            server.kill();
        }
        if time_ms == back_ms {
            server.restart().await;
            for gateway in &gateways {
                gateway.until_back().await;
                assert_eq!(gateway.mode(), Mode::Returning { share_percent: 45 });
            }
        }
        ask_all(&gateways, &asking, time_ms, &mut admitted).await;
        time_ms += STEP_MS;
        gateways.iter().for_each(|gateway| gateway.signs.pass(STEP_MS));
    }
    assert!(gateways.iter().all(|gateway| gateway.mode() == Mode::Normal));
    (admitted, lost_ms, back_ms)
}

fn between(admitted: &[Admitted], from_ms: u64, to_ms: u64) -> Vec<Admitted> {
    let within = admitted.iter().filter(|one| (from_ms..to_ms).contains(&one.at_ms));
    within.copied().collect()
}

/// 45 % of `value` on each of two gateways.
fn shares(value: u64) -> u64 {
    value * 90 / 100
}

#[tokio::test]
async fn losing_and_finding_the_server_makes_no_burst_of_requests() {
    let (admitted, lost_ms, back_ms) = admit_through_an_outage(0).await;
    let count = |from_ms, to_ms| between(&admitted, from_ms, to_ms).len() as u64;
    let most_of = |from_ms, to_ms| most(&between(&admitted, from_ms, to_ms), |_| 1);

    // One each, and then as fast as the shares are used up.
    let own: Vec<Admitted> = admitted.iter().filter(|one| one.is_local).copied().collect();
    assert!(own.iter().all(|one| (lost_ms..back_ms).contains(&one.at_ms)));
    assert_eq!(own.iter().filter(|one| one.at_ms == lost_ms).count(), 2);
    assert!(count(lost_ms, lost_ms + CELL_MS) > 2);
    let soon = count(lost_ms, lost_ms + 2 * CELL_MS);
    let room = shares(REQUESTS) * CELL_MS / WINDOW_MS;
    assert!((2 + room..=2 + 2 * room).contains(&soon), "{soon}");
    assert!(most(&own, |_| 1) <= shares(REQUESTS));
    let minute = count(lost_ms + WINDOW_MS, lost_ms + 2 * WINDOW_MS);
    assert!(minute >= shares(REQUESTS) * 95 / 100, "{minute}");

    // The whole limit may have been used up just before.
    assert!(most_of(0, back_ms) <= REQUESTS + shares(REQUESTS) + 2);
    // The new server begins with 45 %; when it gives the whole, half of the window before had the shares.
    let before = shares(REQUESTS) * (WINDOW_MS - RISE_MS + CELL_MS) / WINDOW_MS;
    let around = most_of(lost_ms + WINDOW_MS, u64::MAX);
    assert!(around <= REQUESTS + before, "{around}");
    assert!(count(back_ms, back_ms + 1) <= REQUESTS * 45 / 100);
    assert!(most_of(back_ms, u64::MAX) <= REQUESTS);
    let minute = count(back_ms + 2 * WINDOW_MS, back_ms + 3 * WINDOW_MS);
    assert!(minute >= REQUESTS * 95 / 100, "{minute}");
}

#[tokio::test]
async fn losing_and_finding_the_server_makes_no_burst_of_tokens() {
    const EACH: u64 = 1_000;
    let (admitted, lost_ms, back_ms) = admit_through_an_outage(EACH).await;
    let sum = |from_ms, to_ms| {
        between(&admitted, from_ms, to_ms)
            .iter()
            .map(|one| one.tokens)
            .sum::<u64>()
    };
    let most_of = |from_ms, to_ms| most(&between(&admitted, from_ms, to_ms), |one| one.tokens);

    // Buckets begin empty.
    assert_eq!(sum(lost_ms, lost_ms + 1_000), 0);
    let soon = sum(lost_ms, lost_ms + 10_000);
    assert!(soon <= shares(TOKENS) / 6 + 2 * EACH, "{soon}");
    let minute = sum(lost_ms + WINDOW_MS, lost_ms + 2 * WINDOW_MS);
    assert!(minute >= shares(TOKENS) * 95 / 100, "{minute}");

    let whole = TOKENS + BURST + EACH;
    assert!(most_of(0, back_ms) <= whole + shares(TOKENS) + 2 * EACH);
    assert!(sum(back_ms, back_ms + 1) <= BURST * 45 / 100 + EACH);
    assert!(most_of(lost_ms + WINDOW_MS, u64::MAX) <= whole);
    let minute = sum(back_ms + 2 * WINDOW_MS, back_ms + 3 * WINDOW_MS);
    assert!(minute >= TOKENS * 95 / 100, "{minute}");
}

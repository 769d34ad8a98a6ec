//! Claims on idempotency keys against real servers.

mod alike;

use bytes::Bytes;
use domain::ids::{KeyId, RequestId, TenantId};
use futures_util::future::join_all;
use test_redis::{Options, RedisServer};
use uuid::Uuid;

use super::fixture::{Gateway, Servers, patient, short, until};
use crate::redis::TimeOf;
use crate::{
    Claim, IDEMPOTENCY_KEPT_MS, IDEMPOTENT_ANSWER_BYTES_MAX, IdempotencyKey, SealedAnswer, Settings, Unclaimed,
};

const LEASE_MS: u64 = 60_000;
const BODY: [u8; 32] = [1; 32];

fn key(number: u8) -> IdempotencyKey {
    IdempotencyKey {
        tenant: TenantId(Uuid::from_u128(u128::from(number % 3))),
        key: KeyId(Uuid::from_u128(7)),
        hash: [number; 32],
    }
}

fn request(number: u128) -> RequestId {
    RequestId(Uuid::from_u128(number))
}

fn answer(text: &'static [u8]) -> SealedAnswer {
    SealedAnswer::new(Bytes::from_static(text)).expect("it fits")
}

/// Any bytes, as sealed ones are.
fn large(bytes: usize) -> SealedAnswer {
    let bytes: Vec<u8> = (0..bytes).map(|place| (place * 31 % 256) as u8).collect();
    SealedAnswer::new(Bytes::from(bytes)).expect("it fits")
}

async fn claim(gateway: &Gateway, key: &IdempotencyKey, number: u128) -> Result<Claim, Unclaimed> {
    gateway.limits.claim(key, BODY, request(number), gateway.now()).await
}

/// The same where the key is free.
async fn claimed(gateway: &Gateway, key: &IdempotencyKey, number: u128) -> Claim {
    let claimed = claim(gateway, key, number).await;
    claimed.unwrap_or_else(|unclaimed| panic!("{} may run: {unclaimed:?}", gateway.name))
}

/// Why it is not.
async fn unclaimed(gateway: &Gateway, key: &IdempotencyKey) -> Unclaimed {
    claim(gateway, key, 999).await.expect_err("it is taken")
}

async fn finish(gateway: &Gateway, claim: Claim, answer: SealedAnswer) {
    claim.finish(Some(answer), gateway.now()).await;
}

fn is_running(unclaimed: &Unclaimed, number: u128) -> bool {
    matches!(unclaimed, Unclaimed::Running { request: found, lease_left_ms: 1..=LEASE_MS } if *found == request(number))
}

fn answered(number: u128, answer: SealedAnswer) -> Unclaimed {
    Unclaimed::Answered {
        request: request(number),
        answer,
    }
}

async fn two(server: &RedisServer) -> (Gateway, Gateway) {
    let one = Gateway::start(&patient(server.url()), "one").await;
    let other = Gateway::start(&patient(server.url()), "other").await;
    (one, other)
}

#[tokio::test]
async fn one_of_many_at_two_gateways_runs_and_all_are_told_its_answer() {
    let server = RedisServer::start().await;
    let (one, other) = two(&server).await;
    let asked = (0..100_u128).map(|number| {
        let gateway = if number % 2 == 0 { &one } else { &other };
        async move { claim(gateway, &key(1), number).await }
    });
    let (mut run, told): (Vec<_>, Vec<_>) = join_all(asked).await.into_iter().partition(Result::is_ok);
    assert_eq!(run.len(), 1);
    let run = run.pop().expect("one").expect("it runs");
    let number = run.request().0.as_u128();
    for told in told {
        let told = told.expect_err("it is taken");
        assert!(is_running(&told, number), "{told:?}");
    }
    let sealed = large(IDEMPOTENT_ANSWER_BYTES_MAX);
    let owner = if number % 2 == 0 { &one } else { &other };
    finish(owner, run, sealed.clone()).await;
    for gateway in [&one, &other] {
        let told = unclaimed(gateway, &key(1)).await;
        assert_eq!(told, answered(number, sealed.clone()), "{}", gateway.name);
        let other_body = gateway
            .limits
            .claim(&key(1), [2; 32], request(999), gateway.now())
            .await;
        let refused = Unclaimed::OtherBody {
            request: request(number),
        };
        assert_eq!(other_body.expect_err("it is taken"), refused);
    }
}

#[tokio::test]
async fn a_claim_that_is_released_or_dropped_unsent_is_free_everywhere() {
    let server = RedisServer::start().await;
    let (one, other) = two(&server).await;
    claimed(&one, &key(1), 1).await.release(one.now()).await;
    let again = claimed(&other, &key(1), 2).await;
    drop(again);
    until("others hear of it", async || other.limits.unheard() == 0).await;
    let mut sent = claimed(&one, &key(1), 3).await;
    sent.mark_sent();
    drop(sent);
    until("others hear of it", async || one.limits.unheard() == 0).await;
    let lost = Unclaimed::AnswerLost { request: request(3) };
    assert_eq!(unclaimed(&other, &key(1)).await, lost);
    assert_eq!(unclaimed(&one, &key(1)).await, lost);
}

#[tokio::test]
async fn an_end_that_nobody_waits_for_is_told() {
    let server = RedisServer::start().await;
    let (one, other) = two(&server).await;
    let run = claimed(&one, &key(1), 1).await;
    run.finish_later(Some(answer(b"sealed")), one.now());
    // Here at once.
    assert_eq!(unclaimed(&one, &key(1)).await, answered(1, answer(b"sealed")));
    until("others hear of it", async || one.limits.unheard() == 0).await;
    assert_eq!(unclaimed(&other, &key(1)).await, answered(1, answer(b"sealed")));
}

#[tokio::test]
async fn a_stopped_server_is_gone_on_without_and_hears_of_everything_when_it_is_back() {
    let server = RedisServer::start().await;
    let one = Gateway::start(&short(server.url()), "one").await;
    let other = Gateway::start(&patient(server.url()), "other").await;
    let [known, kept_open] = [claimed(&one, &key(1), 1).await, claimed(&one, &key(2), 2).await];
    server.pause();
    // Known here, so nobody waits.
    assert!(is_running(&unclaimed(&one, &key(1)).await, 1));
    // The server may have heard of the first, and not of the second.
    let unknown = claimed(&one, &key(3), 3).await;
    assert!(is_running(&unclaimed(&one, &key(3)).await, 3));
    one.until_degraded().await;
    let unheard = claimed(&one, &key(4), 4).await;
    let released = claimed(&one, &key(5), 5).await;
    let open_here = claimed(&one, &key(6), 6).await;
    for (number, claim, sealed) in [(1, known, b"one"), (3, unknown, b"san"), (4, unheard, b"yon")] {
        finish(&one, claim, answer(sealed)).await;
        let told = unclaimed(&one, &key(number)).await;
        assert_eq!(told, answered(number.into(), answer(sealed)), "{number}");
    }
    released.release(one.now()).await;

    server.resume();
    one.until_back().await;
    one.until_told().await;
    until("the other goes on", async || other.store().beat_now().await).await;
    for (number, sealed) in [(1, b"one"), (3, b"san"), (4, b"yon")] {
        for gateway in [&one, &other] {
            let told = unclaimed(gateway, &key(number)).await;
            assert_eq!(told, answered(number.into(), answer(sealed)), "{number}");
        }
    }
    for number in [2, 6] {
        assert!(
            is_running(&unclaimed(&other, &key(number)).await, number.into()),
            "{number}"
        );
    }
    drop(claimed(&other, &key(5), 7).await);
    drop((kept_open, open_here));
}

#[tokio::test]
async fn what_has_ended_without_the_server_is_nobodys_to_run_once_it_is_back() {
    let server = RedisServer::start().await;
    let mut one = Gateway::start(&short(server.url()), "one").await;
    let other = Gateway::start(&patient(server.url()), "other").await;
    // Nothing is told by itself.
    one.fall_silent();
    server.pause();
    one.until_degraded().await;
    let run = claimed(&one, &key(1), 1).await;
    finish(&one, run, answer(b"sealed")).await;
    server.resume();
    one.until_back().await;
    // Before the answer, that it runs.
    assert_eq!(one.limits.unheard(), 1);
    assert!(is_running(&unclaimed(&other, &key(1)).await, 1));
    assert!(one.store().claims.tell_all(&*one.signs).await);
    assert_eq!(unclaimed(&other, &key(1)).await, answered(1, answer(b"sealed")));
}

#[tokio::test]
async fn a_server_that_has_lost_everything_is_told_what_runs() {
    let mut server = RedisServer::start().await;
    let one = Gateway::start(&short(server.url()), "one").await;
    let run = claimed(&one, &key(1), 1).await;
    server.kill();
    one.until_degraded().await;
    assert!(is_running(&unclaimed(&one, &key(1)).await, 1));
    server.restart().await;
    one.until_back().await;
    let other = Gateway::start(&patient(server.url()), "other").await;
    assert!(is_running(&unclaimed(&other, &key(1)).await, 1));

    server.command(&["FLUSHALL"]).await;
    one.store()
        .claims
        .renew_there(one.now())
        .await
        .expect("the server answers");
    assert!(is_running(&unclaimed(&other, &key(1)).await, 1));
    server.command(&["FLUSHALL"]).await;
    finish(&one, run, answer(b"sealed")).await;
    assert_eq!(unclaimed(&other, &key(1)).await, answered(1, answer(b"sealed")));
}

#[tokio::test]
async fn of_two_runs_without_the_server_everybody_is_told_of_the_first_it_hears_of() {
    let server = RedisServer::start().await;
    let one = Gateway::start(&short(server.url()), "one").await;
    let other = Gateway::start(&short(server.url()), "other").await;
    server.pause();
    one.until_degraded().await;
    other.until_degraded().await;
    let runs = [claimed(&one, &key(1), 1).await, claimed(&other, &key(1), 2).await];
    server.resume();
    one.until_back().await;
    other.until_back().await;
    for (number, run) in (1..).zip(runs) {
        let gateway = if number == 1 { &one } else { &other };
        assert!(is_running(&unclaimed(gateway, &key(1)).await, number));
        finish(gateway, run, answer(b"sealed")).await;
    }
    one.until_told().await;
    other.until_told().await;
    for gateway in [&one, &other] {
        let told = unclaimed(gateway, &key(1)).await;
        assert_eq!(told, answered(1, answer(b"sealed")), "{}", gateway.name);
    }
}

#[tokio::test]
async fn callers_that_leave_before_the_answer_claim_nothing() {
    let server = RedisServer::start().await;
    let (one, other) = two(&server).await;
    // The server knows the script then.
    claimed(&one, &key(9), 9).await.release(one.now()).await;
    for polls in 1..=4_u8 {
        server.pause();
        let key = key(polls);
        let mut asked = Box::pin(claim(&one, &key, polls.into()));
        for _ in 0..polls {
            assert!(futures_util::poll!(&mut asked).is_pending(), "the server is stopped");
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        drop(asked);
        server.resume();
        one.until_told().await;
        drop(claimed(&other, &key, 100).await);
    }
    assert!(!one.is_degraded());
}

#[tokio::test]
async fn a_claim_that_comes_too_late_claims_nothing() {
    let server = RedisServer::start().await;
    let mut one = Gateway::start(&short(server.url()), "one").await;
    let other = Gateway::start(&patient(server.url()), "other").await;
    // It knows the server's time then, and tells nothing by itself.
    claimed(&one, &key(9), 9).await.release(one.now()).await;
    one.fall_silent();
    server.pause();
    drop(claimed(&one, &key(1), 1).await);
    assert_eq!(one.limits.unheard(), 1, "the server may have run it");
    server.resume();
    drop(claimed(&other, &key(1), 2).await);
}

#[tokio::test]
async fn an_end_whose_caller_leaves_is_told() {
    let server = RedisServer::start().await;
    let (one, other) = two(&server).await;
    let run = claimed(&one, &key(1), 1).await;
    server.pause();
    let mut ending = Box::pin(run.finish(Some(answer(b"sealed")), one.now()));
    assert!(futures_util::poll!(&mut ending).is_pending(), "the server is stopped");
    drop(ending);
    server.resume();
    one.until_told().await;
    assert_eq!(unclaimed(&other, &key(1)).await, answered(1, answer(b"sealed")));
}

#[tokio::test]
async fn a_late_renewal_does_not_claim_what_was_given_back() {
    let server = RedisServer::start().await;
    let (one, other) = two(&server).await;
    let run = claimed(&one, &key(1), 1).await;
    let late = one.store().claims.claimants_here();
    run.release(one.now()).await;
    let shared = &one.store().shared;
    shared.renew_claims(&late, one.now()).await.expect("the server answers");
    drop(claimed(&other, &key(1), 2).await);
}

#[tokio::test]
async fn nobody_notices_that_a_server_forgets_scripts() {
    let server = RedisServer::start().await;
    let (one, other) = two(&server).await;
    for round in 0..20_u8 {
        let calls = async {
            let run = claimed(&one, &key(round), 1).await;
            assert!(is_running(&unclaimed(&other, &key(round)).await, 1));
            finish(&one, run, answer(b"sealed")).await;
            assert_eq!(unclaimed(&other, &key(round)).await, answered(1, answer(b"sealed")));
        };
        let flushes = async {
            for _ in 0..4 {
                server.command(&["SCRIPT", "FLUSH"]).await;
            }
        };
        futures_util::join!(calls, flushes);
    }
    assert!(!one.is_degraded() && !other.is_degraded());
}

#[tokio::test]
async fn answers_beyond_a_gateways_room_are_told_by_it_alone() {
    const KEYS: u8 = 66;
    let server = RedisServer::start().await;
    let (one, other) = two(&server).await;
    let sealed = large(1 << 20);
    let mut lost = 0;
    for number in 0..KEYS {
        let run = claimed(&one, &key(number), 1).await;
        finish(&one, run, sealed.clone()).await;
        assert_eq!(
            unclaimed(&one, &key(number)).await,
            answered(1, sealed.clone()),
            "{number}"
        );
        let told = unclaimed(&other, &key(number)).await;
        if told == (Unclaimed::AnswerLost { request: request(1) }) {
            lost += 1;
        } else {
            assert_eq!(told, answered(1, sealed.clone()), "{number}");
        }
    }
    assert_eq!(lost, 3, "with what claims take beside their answers, 63 have room");
}

#[tokio::test]
async fn an_answer_that_never_arrives_is_told_to_be_lost() {
    // It breaks the connection of whoever sends a longer word.
    let options = Options::default().config("proto-max-bulk-len 1mb");
    let server = RedisServer::start_with(options).await;
    let (one, other) = two(&server).await;
    let sealed = large((1 << 20) + 1);
    let run = claimed(&one, &key(1), 1).await;
    finish(&one, run, sealed.clone()).await;
    assert_eq!(one.limits.unheard(), 1);
    one.until_told().await;
    let lost = Unclaimed::AnswerLost { request: request(1) };
    assert_eq!(unclaimed(&other, &key(1)).await, lost);
    assert_eq!(unclaimed(&one, &key(1)).await, answered(1, sealed));
}

#[tokio::test]
async fn a_full_server_keeps_nobody_from_running_once() {
    let server = RedisServer::start().await;
    let (mut one, other) = two(&server).await;
    let [run, released] = [claimed(&one, &key(1), 1).await, claimed(&one, &key(2), 2).await];
    one.fall_silent();
    server.command(&["CONFIG", "SET", "maxmemory", "1kb"]).await;
    finish(&one, run, answer(b"sealed")).await;
    assert_eq!(one.limits.unheard(), 1);
    released.release(one.now()).await;
    assert_eq!(one.limits.unheard(), 1, "what makes room is taken");
    assert_eq!(unclaimed(&one, &key(1)).await, answered(1, answer(b"sealed")));
    let third = claimed(&one, &key(3), 3).await;
    assert!(is_running(&unclaimed(&one, &key(3)).await, 3));
    drop(third);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    one.until_back().await;
    other.until_back().await;
    assert!(one.store().claims.tell_all(&*one.signs).await);
    assert_eq!(unclaimed(&other, &key(1)).await, answered(1, answer(b"sealed")));
    drop(claimed(&other, &key(2), 3).await);
}

/// The names of all claims, each of which expires.
async fn expiring(servers: &Servers) -> Vec<(String, u64)> {
    let mut claims = Vec::new();
    for node in servers.nodes() {
        for name in node.command(&["KEYS", "*:claim:*"]).await.lines() {
            let expires_ms = node.command(&["PTTL", name]).await.parse();
            claims.push((name.to_owned(), expires_ms.expect("it expires")));
        }
    }
    claims.sort();
    claims
}

async fn check_that_claims_stand_with_their_tenant_and_expire(servers: Servers) {
    let one = Gateway::start(&patient(servers.url()), "one").await;
    let mut claims = Vec::new();
    for number in 0..4 {
        claims.push(claimed(&one, &key(number), number.into()).await);
    }
    one.store().claims.renew_there(one.now()).await.expect("they answer");
    let name = |number: u8| {
        let hash = format!("{number:02x}").repeat(32);
        let IdempotencyKey { tenant, key, .. } = key(number);
        format!("rate_limit:{{{tenant}}}:claim:{key}:{hash}")
    };
    let mut names: Vec<String> = (0..4).map(name).collect();
    names.sort();
    let found = expiring(&servers).await;
    assert_eq!(found.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), names);
    for (name, expires_ms) in found {
        assert!(
            expires_ms > IDEMPOTENCY_KEPT_MS && expires_ms <= LEASE_MS + IDEMPOTENCY_KEPT_MS,
            "{name}"
        );
    }
    claims.pop().expect("one").release(one.now()).await;
    claims.pop().expect("one").finish(None, one.now()).await;
    for claim in claims {
        finish(&one, claim, answer(b"sealed")).await;
    }
    let found = expiring(&servers).await;
    assert_eq!(found.len(), 4);
    for (found, expires_ms) in found {
        let most = if found == name(3) { 10_000 } else { IDEMPOTENCY_KEPT_MS };
        assert!(
            expires_ms > most - 10_000 && expires_ms <= most,
            "{found}: {expires_ms}"
        );
    }
    // Nothing of them is kept twice.
    assert!(one.store().claims.claimants_here().is_empty());
}

#[tokio::test]
async fn claims_stand_with_their_tenant_and_expire() {
    check_that_claims_stand_with_their_tenant_and_expire(Servers::one().await).await;
}

#[tokio::test]
async fn claims_stand_with_their_tenant_and_expire_in_a_cluster() {
    check_that_claims_stand_with_their_tenant_and_expire(Servers::cluster().await).await;
}

#[tokio::test]
async fn a_gateway_that_is_gone_leaves_lost_answers_and_then_free_keys() {
    let server = RedisServer::start().await;
    let one = Gateway::start_by(&patient(server.url()), "one", TimeOf::Caller).await;
    let other = Gateway::start_by(&patient(server.url()), "other", TimeOf::Caller).await;
    std::mem::forget(claimed(&one, &key(1), 1).await);
    drop(one);
    other.signs.pass(LEASE_MS - 1);
    assert!(is_running(&unclaimed(&other, &key(1)).await, 1));
    other.signs.pass(1);
    let lost = Unclaimed::AnswerLost { request: request(1) };
    assert_eq!(unclaimed(&other, &key(1)).await, lost);
    other.signs.pass(IDEMPOTENCY_KEPT_MS - 1);
    assert_eq!(unclaimed(&other, &key(1)).await, lost);
    other.signs.pass(1);
    drop(claimed(&other, &key(1), 2).await);
}

#[tokio::test]
async fn what_is_left_to_be_told_is_told_before_a_gateway_leaves() {
    let servers = Servers::one().await;
    let mut one = Gateway::start(&patient(servers.url()), "one").await;
    let other = Gateway::start(&patient(servers.url()), "other").await;
    one.fall_silent();
    let run = claimed(&one, &key(1), 1).await;
    run.finish_later(Some(answer(b"sealed")), one.now());
    assert_eq!(one.limits.unheard(), 1);
    one.limits.leave().await;
    assert_eq!(unclaimed(&other, &key(1)).await, answered(1, answer(b"sealed")));
}

#[test]
fn leases_are_as_long_as_those_of_holds() {
    assert_eq!(Settings::default().lease_ms, LEASE_MS);
}

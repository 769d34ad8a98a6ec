use bytes::Bytes;
use domain::ids::{KeyId, TenantId};
use proptest::prelude::*;
use uuid::Uuid;

use super::super::IDEMPOTENT_ANSWER_BYTES_MAX;
use super::*;
use crate::fixture::at;
use crate::{Limits, Settings};

const LEASE_MS: u64 = 60_000;
/// Of claims and of bytes, where bounds are tested.
const FEW: usize = 4;
const FEW_BYTES: usize = 100;

fn now(monotonic_ms: u64) -> Now {
    Now {
        monotonic_ms,
        wall: at("2026-11-29T12:00:00Z"),
    }
}

fn key(number: u8) -> IdempotencyKey {
    IdempotencyKey {
        tenant: TenantId(Uuid::from_u128(1)),
        key: KeyId(Uuid::from_u128(1)),
        hash: [number; 32],
    }
}

fn request(number: u128) -> RequestId {
    RequestId(Uuid::from_u128(number))
}

/// The request of this number with the body of that.
fn claimant(key_number: u8, number: u128, body: u8) -> Claimant {
    Claimant {
        key: key(key_number),
        body_hash: [body; 32],
        request: request(number),
    }
}

fn answer(bytes: usize) -> Option<SealedAnswer> {
    SealedAnswer::new(Bytes::from(vec![7; bytes]))
}

fn claims() -> MemoryClaims {
    MemoryClaims::new(LEASE_MS)
}

/// So many keys run, each for the request of its number.
fn few(count: u8) -> MemoryClaims {
    let claims = MemoryClaims::bounded(LEASE_MS, FEW, FEW_BYTES);
    for number in 0..count {
        let claimant = claimant(number, number.into(), 1);
        assert_eq!(claims.claim(&claimant, now(0)), Ok(()));
    }
    claims
}

#[test]
fn one_request_runs_and_others_are_told_which_and_how_long() {
    let claims = claims();
    assert_eq!(claims.claim(&claimant(1, 1, 1), now(1_000)), Ok(()));
    assert_eq!(
        claims.claim(&claimant(1, 2, 1), now(11_000)),
        Err(Unclaimed::Running {
            request: request(1),
            lease_left_ms: 50_000
        })
    );
    let others = [claimant(2, 2, 1)];
    for other in others {
        assert_eq!(claims.claim(&other, now(11_000)), Ok(()), "another key");
    }
}

#[test]
fn keys_of_another_api_key_are_others() {
    let claims = claims();
    let one = claimant(1, 1, 1);
    let mut other = claimant(1, 2, 1);
    other.key.key = KeyId(Uuid::from_u128(2));
    assert_eq!(claims.claim(&one, now(0)), Ok(()));
    assert_eq!(claims.claim(&other, now(0)), Ok(()));
}

#[test]
fn an_answer_is_told_for_its_time_and_then_the_key_is_free() {
    let claims = claims();
    assert_eq!(claims.claim(&claimant(1, 1, 1), now(0)), Ok(()));
    claims.finish(&claimant(1, 1, 1), answer(10), Some(now(5_000)));
    let kept_until_ms = 5_000 + IDEMPOTENCY_KEPT_MS;
    assert_eq!(
        claims.claim(&claimant(1, 2, 1), now(kept_until_ms - 1)),
        Err(Unclaimed::Answered {
            request: request(1),
            answer: answer(10).expect("it fits")
        })
    );
    assert_eq!(claims.claim(&claimant(1, 3, 1), now(kept_until_ms)), Ok(()));
}

#[test]
fn another_body_is_told_so_whatever_became_of_the_first() {
    let refused = Err(Unclaimed::OtherBody { request: request(1) });
    let claims = claims();
    assert_eq!(claims.claim(&claimant(1, 1, 1), now(0)), Ok(()));
    assert_eq!(claims.claim(&claimant(1, 2, 2), now(0)), refused);
    assert_eq!(claims.claim(&claimant(1, 2, 2), now(LEASE_MS)), refused, "lapsed");
    claims.finish(&claimant(1, 1, 1), answer(10), Some(now(LEASE_MS)));
    assert_eq!(claims.claim(&claimant(1, 2, 2), now(LEASE_MS)), refused, "answered");
}

#[test]
fn a_lease_that_ends_loses_the_answer_and_does_not_free_the_key() {
    let claims = claims();
    let lost = Err(Unclaimed::AnswerLost { request: request(1) });
    assert_eq!(claims.claim(&claimant(1, 1, 1), now(0)), Ok(()));
    assert_eq!(claims.claim(&claimant(1, 2, 1), now(LEASE_MS)), lost);
    let free_ms = LEASE_MS + IDEMPOTENCY_KEPT_MS;
    assert_eq!(claims.claim(&claimant(1, 2, 1), now(free_ms - 1)), lost);
    assert_eq!(claims.claim(&claimant(1, 2, 1), now(free_ms)), Ok(()));
}

#[test]
fn a_renewal_extends_the_lease_even_one_that_has_ended() {
    let claims = claims();
    let one = claimant(1, 1, 1);
    assert_eq!(claims.claim(&one, now(0)), Ok(()));
    for at_ms in [50_000, 200_000] {
        assert!(claims.renew(&one, now(at_ms)));
        assert_eq!(
            claims.claim(&claimant(1, 2, 1), now(at_ms)),
            Err(Unclaimed::Running {
                request: request(1),
                lease_left_ms: LEASE_MS
            })
        );
    }
}

#[test]
fn whoever_comes_late_changes_nothing_of_anothers() {
    let claims = claims();
    let (late, owner) = (claimant(1, 1, 1), claimant(1, 2, 1));
    assert_eq!(claims.claim(&late, now(0)), Ok(()));
    let free_ms = LEASE_MS + IDEMPOTENCY_KEPT_MS;
    assert_eq!(claims.claim(&owner, now(free_ms)), Ok(()));
    assert!(!claims.renew(&late, now(free_ms + 10)));
    claims.release(&late);
    claims.finish(&late, answer(1), Some(now(free_ms + 10)));
    assert_eq!(
        claims.claim(&claimant(1, 3, 1), now(free_ms + 10)),
        Err(Unclaimed::Running {
            request: request(2),
            lease_left_ms: LEASE_MS - 10
        })
    );
}

#[test]
fn an_answer_that_comes_after_the_lease_is_kept() {
    for ends_ms in [LEASE_MS + 1, LEASE_MS + IDEMPOTENCY_KEPT_MS + 1] {
        let claims = claims();
        assert_eq!(claims.claim(&claimant(1, 1, 1), now(0)), Ok(()));
        claims.finish(&claimant(1, 1, 1), answer(1), Some(now(ends_ms)));
        let told = claims.claim(&claimant(1, 2, 1), now(ends_ms));
        assert!(matches!(told, Err(Unclaimed::Answered { .. })), "{ends_ms}: {told:?}");
    }
}

#[test]
fn the_first_ending_stands() {
    let claims = claims();
    let one = claimant(1, 1, 1);
    assert_eq!(claims.claim(&one, now(0)), Ok(()));
    claims.finish(&one, None, Some(now(0)));
    claims.finish(&one, answer(1), Some(now(1)));
    claims.release(&one);
    claims.renew(&one, now(1));
    assert_eq!(
        claims.claim(&claimant(1, 2, 1), now(1)),
        Err(Unclaimed::AnswerLost { request: request(1) })
    );
}

#[test]
fn an_answer_that_is_too_large_is_none() {
    assert!(answer(IDEMPOTENT_ANSWER_BYTES_MAX).is_some());
    assert_eq!(answer(IDEMPOTENT_ANSWER_BYTES_MAX + 1), None);
}

#[test]
fn the_oldest_answers_are_lost_when_there_are_too_many_bytes() {
    let claims = few(3);
    for number in 0..3 {
        let claimant = claimant(number, number.into(), 1);
        claims.finish(&claimant, answer(40), Some(now(number.into())));
    }
    let told = |number: u8| claims.claim(&claimant(number, 99, 1), now(3));
    assert_eq!(told(0), Err(Unclaimed::AnswerLost { request: request(0) }));
    for number in 1..3 {
        assert!(matches!(told(number), Err(Unclaimed::Answered { .. })), "{number}");
    }
}

#[test]
fn the_oldest_that_have_ended_make_room_and_those_that_run_do_not() {
    let claims = few(4);
    assert_eq!(claims.claim(&claimant(9, 9, 1), now(1)), Err(Unclaimed::NoRoom));
    // The second has ended first.
    claims.finish(&claimant(1, 1, 1), None, Some(now(1)));
    claims.finish(&claimant(0, 0, 1), answer(1), Some(now(2)));
    assert_eq!(claims.claim(&claimant(9, 9, 1), now(3)), Ok(()));
    let told = claims.claim(&claimant(0, 98, 1), now(3));
    assert!(matches!(told, Err(Unclaimed::Answered { .. })), "{told:?}");
    assert_eq!(claims.claim(&claimant(1, 98, 1), now(3)), Ok(()), "it was forgotten");
    // The last that had ended has made room for that.
    assert_eq!(claims.claim(&claimant(8, 8, 1), now(3)), Err(Unclaimed::NoRoom));
    for number in [2, 3] {
        let told = claims.claim(&claimant(number, 97, 1), now(3));
        assert!(matches!(told, Err(Unclaimed::Running { .. })), "{number}: {told:?}");
    }
}

#[test]
fn one_whose_lease_has_ended_makes_room() {
    let claims = few(4);
    for number in 1..4 {
        claims.renew(&claimant(number, number.into(), 1), now(LEASE_MS - 1));
    }
    assert_eq!(
        claims.claim(&claimant(9, 9, 1), now(LEASE_MS - 1)),
        Err(Unclaimed::NoRoom)
    );
    assert_eq!(claims.claim(&claimant(9, 9, 1), now(LEASE_MS)), Ok(()));
}

#[derive(Clone, Debug)]
enum Step {
    Claim(u8, u128, u8),
    Finish(u8, u128, u8, Option<usize>),
    Release(u8, u128, u8),
    Renew(u8, u128, u8),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let who = || (0_u8..7, 0_u128..9, 0_u8..2);
    prop_oneof![
        6 => who().prop_map(|(key, request, body)| Step::Claim(key, request, body)),
        3 => (who(), prop::option::of(0_usize..60)).prop_map(|((key, request, body), bytes)| {
            Step::Finish(key, request, body, bytes)
        }),
        1 => who().prop_map(|(key, request, body)| Step::Release(key, request, body)),
        1 => who().prop_map(|(key, request, body)| Step::Renew(key, request, body)),
        2 => (0_u64..2 * LEASE_MS).prop_map(Step::Pass),
        1 => (0_u64..2 * IDEMPOTENCY_KEPT_MS).prop_map(Step::Pass),
    ]
}

fn running(claims: &MemoryClaims) -> Vec<(IdempotencyKey, RequestId)> {
    let kept = claims.kept.lock();
    let runs = |record: &Record| {
        let lease_ends_ms = record.place.forgotten_ms - IDEMPOTENCY_KEPT_MS;
        matches!(record.state, State::Running) && lease_ends_ms > kept.now_ms
    };
    let records = kept.by_key.iter().filter(|(_, record)| runs(record));
    records.map(|(key, record)| (*key, record.request)).collect()
}

proptest! {
    /// What is counted is what is kept, within its bounds, and what runs is never forgotten.
    #[test]
    fn bounds_hold_and_sums_agree(steps in prop::collection::vec(step(), 1..200)) {
        let claims = few(0);
        let mut now_ms = 0;
        for step in steps {
            let before = running(&claims);
            let has_passed = matches!(step, Step::Pass(_));
            let mut ended = None;
            match step {
                Step::Claim(key, request, body) => {
                    let _ = claims.claim(&claimant(key, request, body), now(now_ms));
                }
                Step::Finish(key, number, body, bytes) => {
                    ended = Some((super::tests::key(key), request(number)));
                    claims.finish(&claimant(key, number, body), bytes.and_then(answer), Some(now(now_ms)));
                }
                Step::Release(key, number, body) => {
                    ended = Some((super::tests::key(key), request(number)));
                    claims.release(&claimant(key, number, body));
                }
                Step::Renew(key, request, body) => {
                    claims.renew(&claimant(key, request, body), now(now_ms));
                }
                Step::Pass(ms) => now_ms += ms,
            }
            claims.sweep(now(now_ms));
            let after = running(&claims);
            if !has_passed {
                for runs in before.iter().filter(|runs| Some(**runs) != ended) {
                    prop_assert!(after.contains(runs), "{runs:?} is forgotten");
                }
            }
            let kept = claims.kept.lock();
            let bytes = kept.by_key.values().map(|record| match &record.state {
                State::Answered(answer) => answer.bytes().len(),
                State::Running | State::Lost => 0,
            });
            prop_assert_eq!(bytes.sum::<usize>(), kept.answer_bytes);
            let answered = kept.by_key.values().filter(|record| matches!(record.state, State::Answered(_)));
            prop_assert_eq!(answered.count(), kept.answered.len());
            prop_assert_eq!(kept.by_key.len(), kept.order.len());
            prop_assert!(kept.by_key.len() <= FEW && kept.answer_bytes <= FEW_BYTES);
            for (place, key) in &kept.order {
                prop_assert!(kept.by_key[key].place == *place && place.forgotten_ms > now_ms);
            }
        }
    }
}

/// What others are told after a claim of request 1 was dropped.
async fn told_after_drop(is_sent: bool) -> Result<(), Unclaimed> {
    let limits = Limits::memory(Settings::default());
    let mut claim = limits.claim(&key(1), [1; 32], request(1), now(0)).await?;
    if is_sent {
        claim.mark_sent();
    }
    drop(claim);
    let other = limits.claim(&key(1), [1; 32], request(2), now(1)).await?;
    other.release(now(1)).await;
    Ok(())
}

#[tokio::test]
async fn a_claim_that_is_dropped_frees_the_key_unless_its_request_was_sent() {
    assert_eq!(told_after_drop(false).await, Ok(()));
    let lost = Unclaimed::AnswerLost { request: request(1) };
    assert_eq!(told_after_drop(true).await, Err(lost));
}

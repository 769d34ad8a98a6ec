//! A rotation leaves one new secret and at most one old one, whose end never moves back.

use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;

use super::{OVERLAP_SECONDS_MAX, Overlap, OverlapTooLong, Rotation};
use crate::key_text::SecretHash;
use crate::policy::KeySecret;

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000 + seconds, 0).expect("in range")
}

fn secret(number: u8, valid_until: Option<DateTime<Utc>>) -> KeySecret {
    KeySecret {
        hash: SecretHash([number; 32]),
        valid_until,
    }
}

/// What a key has afterwards, as the store does it.
fn rotated(mut secrets: Vec<KeySecret>, rotation: &Rotation, new: KeySecret) -> Vec<KeySecret> {
    secrets.retain(|secret| !rotation.removed.contains(&secret.hash));
    for secret in &mut secrets {
        if let Some((hash, until)) = rotation.kept
            && secret.hash == hash
        {
            secret.valid_until = Some(until);
        }
    }
    secrets.insert(0, new);
    secrets
}

fn works(secrets: &[KeySecret], at: DateTime<Utc>) -> Vec<SecretHash> {
    let valid = secrets
        .iter()
        .filter(|secret| secret.valid_until.is_none_or(|until| at < until));
    valid.map(|secret| secret.hash).collect()
}

#[test]
fn both_secrets_work_until_the_overlap_ends() {
    let before = vec![secret(1, None)];
    let rotation = Rotation::new(&before, Overlap::default(), None, at(0));
    assert_eq!(rotation.kept, Some((SecretHash([1; 32]), at(24 * 3_600))));
    assert!(rotation.removed.is_empty() && !rotation.replaces_pending);
    let after = rotated(before, &rotation, secret(2, None));
    assert_eq!(works(&after, at(24 * 3_600 - 1)).len(), 2);
    assert_eq!(works(&after, at(24 * 3_600)), [SecretHash([2; 32])]);
}

#[test]
fn no_secret_outlives_the_end_that_the_key_had_with_it() {
    let before = vec![secret(1, None)];
    let rotation = Rotation::new(&before, Overlap::default(), Some(at(3_600)), at(0));
    assert_eq!(rotation.kept, Some((SecretHash([1; 32]), at(3_600))));
    let rotation = Rotation::new(&before, Overlap::default(), Some(at(48 * 3_600)), at(0));
    assert_eq!(rotation.kept, Some((SecretHash([1; 32]), at(24 * 3_600))));
}

#[test]
fn a_lost_answer_is_made_good_by_another_secret_in_its_place() {
    let lost = vec![secret(2, None), secret(1, Some(at(100)))];
    let rotation = Rotation::new(&lost, Overlap::OFFERED[4], None, at(50));
    assert!(rotation.replaces_pending);
    assert_eq!(rotation.removed, [SecretHash([2; 32])], "the pending one is replaced");
    assert_eq!(
        rotation.kept,
        Some((SecretHash([1; 32]), at(100))),
        "the old one keeps its end"
    );
    // An overlap that is over is none.
    let rotation = Rotation::new(&lost, Overlap::OFFERED[1], None, at(100));
    assert!(!rotation.replaces_pending);
    assert_eq!(rotation.removed, [SecretHash([1; 32])]);
    assert_eq!(rotation.kept, Some((SecretHash([2; 32]), at(100 + 3_600))));
}

#[test]
fn at_once_ends_whatever_was_before() {
    let during = vec![secret(2, None), secret(1, Some(at(100)))];
    let rotation = Rotation::new(&during, Overlap::AT_ONCE, None, at(50));
    assert_eq!(rotation.removed.len(), 2);
    assert_eq!(rotation.kept, None);
    assert!(!rotation.replaces_pending);
}

#[test]
fn an_overlap_has_a_longest() {
    assert_eq!(Overlap::of_seconds(OVERLAP_SECONDS_MAX), Ok(Overlap::OFFERED[4]));
    assert_eq!(Overlap::of_seconds(OVERLAP_SECONDS_MAX + 1), Err(OverlapTooLong));
    assert_eq!(Overlap::of_seconds(u64::MAX), Err(OverlapTooLong));
}

proptest! {
    #[test]
    fn any_row_of_rotations_keeps_one_current_secret_and_no_old_end_moves(
        steps in prop::collection::vec((0_i64..200_000, 0..=OVERLAP_SECONDS_MAX / 10), 1..20),
    ) {
        let mut secrets = vec![secret(0, None)];
        let mut now = 0;
        for (number, (pause, overlap)) in (1_u8..).zip(steps) {
            now += pause;
            let overlap = Overlap::of_seconds(overlap).expect("in range");
            let old: Vec<_> = secrets.iter().filter(|secret| secret.valid_until.is_some()).cloned().collect();
            let rotation = Rotation::new(&secrets, overlap, None, at(now));
            secrets = rotated(secrets, &rotation, secret(number, None));
            prop_assert!(secrets.len() <= 2);
            prop_assert_eq!(secrets.iter().filter(|secret| secret.valid_until.is_none()).count(), 1);
            prop_assert_eq!(secrets[0].hash, SecretHash([number; 32]));
            for before in old {
                let is_lengthened = secrets.iter().any(|after| {
                    after.hash == before.hash && after.valid_until != before.valid_until
                });
                prop_assert!(!is_lengthened, "the end of an old secret moved");
            }
            for after in &secrets {
                prop_assert!(after.valid_until.is_none_or(|until| until <= at(now) + TimeDelta::days(30)));
            }
        }
    }
}

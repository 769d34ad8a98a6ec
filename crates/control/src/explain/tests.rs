//! Who sees which limit of an explanation, and what stands for those that are hidden.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use domain::estimate::Estimate;
use domain::ids::{KeyId, LimitId, PersonId, TenantId, UpstreamId};
use domain::limits::{Dimension, Mode, Scope};
use domain::priority::Priority;
use domain::questions::{Answer, Question, ToldRefusal};
use domain::readings::{CounterStore, Explanation, LimitAnswer, LimitRefusal, Reading};
use domain::refusals::RefusalCode;
use store::keys::KeyRow;
use uuid::Uuid;

use super::{Explained, SharedLimits, check, explained};
use crate::ControlError;

const TENANT: TenantId = TenantId(Uuid::from_u128(1));
const KEY: KeyId = KeyId(Uuid::from_u128(2));
const OWNER: PersonId = PersonId(Uuid::from_u128(3));
const UPSTREAM: UpstreamId = UpstreamId(Uuid::from_u128(4));

fn key() -> KeyRow {
    KeyRow {
        id: KEY,
        public_id: "abcd".into(),
        tenant_id: TENANT,
        tenant_name: "Research".into(),
        owner_id: Some(OWNER),
        owner_name: Some("Ann".into()),
        owner_email: None,
        name: "notebook".into(),
        priority: Priority::Default,
        allowed_models: None,
        may_name_users: false,
        degrades: false,
        expires_at: None,
        revoked_at: None,
        created_at: DateTime::UNIX_EPOCH,
        created_by: "test".into(),
        rotated_at: None,
        old_secret_until: None,
        old_secret_used_at: None,
        last_used_at: None,
        bounds: domain::key_rules::KeyBounds::default(),
        own_limits: domain::own_limits::OwnLimits::default(),
        version: 1,
    }
}

fn limit(scope: Scope, mode: Mode, refuses: bool) -> LimitAnswer {
    LimitAnswer {
        reading: Reading {
            scope,
            limit_id: LimitId(Uuid::nil()),
            dimension: Dimension::Requests,
            window_seconds: Some(60),
            period: None,
            model: None,
            priority: None,
            mode,
            limit_value: 10,
            used: 10,
            held: 0,
            remaining: 0,
            utilisation_percent: 100.0,
            reset_ms: Some(1_000),
            is_known: true,
        },
        need: 1,
        refusal: refuses.then_some(LimitRefusal {
            code: RefusalCode::RateLimitExceeded,
            retry_after_ms: Some(1_000),
            gate: None,
        }),
    }
}

fn asked(answers: Vec<LimitAnswer>, told: Option<usize>, sees_shared: bool) -> Explained {
    let answer = Answer {
        store: CounterStore::Memory,
        asked_at: Utc::now(),
        priority: Priority::Default,
        user_id: Some(OWNER.to_string()),
        estimate: Some(Estimate::default()),
        refusal: told.map(|_| ToldRefusal {
            code: RefusalCode::RateLimitExceeded,
            message: "The service is busy.".into(),
            retry_after_seconds: Some(1),
        }),
        explanation: Explanation {
            answers,
            told,
            upstream: told.is_none().then_some(UPSTREAM),
        },
        is_upstream_drawn: true,
    };
    explained(
        key(),
        answer,
        sees_shared,
        &HashMap::from([(UPSTREAM, "Provider".to_owned())]),
    )
}

fn names(explained: &Explained) -> Vec<&str> {
    explained.asked.iter().map(|asked| asked.name.as_str()).collect()
}

#[test]
fn whoever_sees_everything_sees_every_limit_by_name() {
    let user = Scope::User(TENANT, OWNER.to_string().into());
    let scopes = [
        Scope::Global,
        Scope::Model("m".into()),
        Scope::Tenant(TENANT),
        user,
        Scope::Key(KEY),
        Scope::Upstream(UPSTREAM),
    ];
    let answers = scopes.map(|scope| limit(scope, Mode::Enforce, false)).into();
    let seen = asked(answers, None, true);
    assert_eq!(
        names(&seen),
        ["The installation", "m", "Research", "Ann", "notebook", "Provider"]
    );
    assert_eq!((seen.upstream.as_deref(), seen.shared), (Some("Provider"), None));
    assert!(seen.is_upstream_drawn);
}

#[test]
fn people_of_a_tenant_see_their_own_limits_and_whether_the_service_is_busy() {
    let own = || limit(Scope::Tenant(TENANT), Mode::Enforce, false);
    let shared = |mode, refuses| limit(Scope::Global, mode, refuses);
    let upstream = |refuses| limit(Scope::Upstream(UPSTREAM), Mode::Enforce, refuses);
    for (answers, told, is_busy) in [
        (vec![shared(Mode::Enforce, false), own(), upstream(false)], None, false),
        (vec![shared(Mode::Enforce, true), own()], Some(0), true),
        (vec![shared(Mode::Rehearse, true), own()], None, false),
        // The next upstream takes it.
        (vec![own(), upstream(true), upstream(false)], None, false),
        (vec![own(), upstream(true)], Some(1), true),
    ] {
        let seen = asked(answers, told, false);
        assert_eq!(names(&seen), ["Research"]);
        assert_eq!((seen.upstream.as_deref(), seen.is_upstream_drawn), (None, false));
        let expected = if is_busy {
            SharedLimits::AreBusy
        } else {
            SharedLimits::HaveRoom
        };
        assert_eq!(seen.shared, Some(expected));
        assert!(seen.asked.iter().all(|asked| !asked.is_told));
        assert_eq!(seen.refusal.is_some(), told.is_some(), "what the caller is told stays");
    }
}

#[test]
fn the_limit_that_is_told_is_marked_wherever_the_hidden_ones_stood() {
    let answers = vec![
        limit(Scope::Global, Mode::Enforce, false),
        limit(Scope::Tenant(TENANT), Mode::Enforce, false),
        limit(Scope::Key(KEY), Mode::Enforce, true),
    ];
    let seen = asked(answers, Some(2), false);
    let told: Vec<bool> = seen.asked.iter().map(|asked| asked.is_told).collect();
    assert_eq!(told, [false, true]);
    assert_eq!(seen.shared, Some(SharedLimits::HaveRoom));
}

#[test]
fn sizes_beyond_reason_and_a_nameless_model_are_refused_by_field() {
    let question = Question {
        key_id: KEY,
        model: String::new(),
        input_tokens: u64::MAX,
        output_cap_tokens: Some(u64::MAX),
        priority: None,
        user: Some("x".repeat(1_000)),
    };
    let Err(ControlError::Invalid(errors)) = check(&question) else {
        panic!("it is refused");
    };
    let fields: Vec<&str> = errors.iter().map(|error| &*error.field).collect();
    assert_eq!(fields, ["model", "input_tokens", "output_cap_tokens", "user"]);
}

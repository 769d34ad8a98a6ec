//! Tenants see their own scopes and no provider's names; operators see everything.

use chrono::Utc;
use domain::ids::{KeyId, LimitId, RequestId, TenantId, UpstreamId};
use domain::ledger::{Attempt, Identity, Outcome, RehearsedVerdict, Rejection, ScopeCheck, Settlement};
use domain::limits::{Dimension, Scope};
use domain::money::Nanos;
use domain::policy::Dialect;
use domain::priority::Priority;
use domain::refusals::RefusalCode;
use domain::usage::{TokenUsage, UsageSource};
use uuid::Uuid;

use super::{hide_shared_scopes, hide_upstream};

const TENANT: TenantId = TenantId(Uuid::from_u128(1));

fn identity() -> Identity {
    Identity {
        id: RequestId(Uuid::from_u128(2)),
        tenant_id: TENANT,
        user_id: None,
        key_id: KeyId(Uuid::from_u128(3)),
        model: Some("m".into()),
        dialect: Dialect::Openai,
        endpoint: "chat/completions".into(),
        priority: Priority::Default,
        is_streamed: false,
        tags: std::collections::BTreeMap::new(),
        instance: "i".into(),
        user_agent: None,
        job_id: None,
    }
}

fn check(scope: Scope) -> ScopeCheck {
    ScopeCheck {
        scope,
        dimension: Dimension::Requests,
        limit_id: LimitId(Uuid::nil()),
        limit_value: 1,
        utilisation_percent: 99.0,
        has_room: false,
    }
}

fn rejection(scope: Scope) -> Rejection {
    Rejection {
        identity: identity(),
        refused_at: Utc::now(),
        code: RefusalCode::RateLimitExceeded,
        status: 429,
        chain: vec![check(Scope::Global), check(Scope::Tenant(TENANT)), check(scope.clone())],
        scope: Some(scope),
        dimension: Some(Dimension::Requests),
        limit_id: Some(LimitId(Uuid::nil())),
        limit_key: Some("rate_limit".into()),
        message: "m".into(),
        retry_after_seconds: Some(1),
        caller_retries: None,
        refusal_count: 1,
        early_count: 0,
        expected_input_tokens: 0,
        expected_output_tokens: 0,
        expected_cost_nanos: Nanos::ZERO,
        queue_ms: 0,
    }
}

#[test]
fn what_shared_scopes_had_left_is_hidden_and_own_scopes_stay() {
    let mut shared = rejection(Scope::Upstream(UpstreamId(Uuid::nil())));
    hide_shared_scopes(&mut shared);
    let scopes: Vec<&Scope> = shared.chain.iter().map(|check| &check.scope).collect();
    assert_eq!(scopes, [&Scope::Tenant(TENANT)]);
    assert_eq!((shared.limit_id, shared.limit_key), (None, None));

    let mut own = rejection(Scope::Key(KeyId(Uuid::nil())));
    hide_shared_scopes(&mut own);
    assert_eq!(own.chain.len(), 2);
    assert!(own.limit_id.is_some() && own.limit_key.is_some());
}

#[test]
fn who_served_a_request_and_what_shared_limits_would_have_said_is_hidden() {
    let verdict = |scope| RehearsedVerdict {
        scope,
        dimension: Dimension::Requests,
        limit_id: LimitId(Uuid::nil()),
        code: RefusalCode::RateLimitExceeded,
    };
    let own = verdict(Scope::Tenant(TENANT));
    let mut settlement = Settlement {
        identity: identity(),
        admitted_at: Utc::now(),
        settled_at: Utc::now(),
        upstream_id: Some(UpstreamId(Uuid::nil())),
        upstream_model: Some("dear-model".into()),
        upstream_request_id: None,
        outcome: Outcome::Completed,
        status: Some(200),
        attempts: vec![Attempt {
            upstream_id: UpstreamId(Uuid::nil()),
            upstream_model: "dear-model".into(),
            status: Some(200),
            error: None,
            first_byte_ms: 1,
        }],
        usage: TokenUsage::default(),
        usage_source: UsageSource::Reported,
        expected_input_tokens: 0,
        expected_output_tokens: 0,
        expected_cost_nanos: Nanos::ZERO,
        ceiling_input_tokens: 0,
        ceiling_output_tokens: 0,
        ceiling_cost_nanos: Nanos::ZERO,
        cost_nanos: Nanos(7),
        overrun_nanos: Nanos::ZERO,
        price_id: None,
        is_unpriced: false,
        queue_ms: 0,
        first_byte_ms: None,
        total_ms: 1,
        rehearsed: vec![
            own.clone(),
            verdict(Scope::Global),
            verdict(Scope::Upstream(UpstreamId(Uuid::nil()))),
        ],
    };
    hide_upstream(&mut settlement);
    assert!(!format!("{settlement:?}").contains("dear-model"));
    assert_eq!((settlement.upstream_id, settlement.cost_nanos), (None, Nanos(7)));
    assert_eq!(settlement.rehearsed, [own]);
}

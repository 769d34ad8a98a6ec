//! The snapshot answers as the rows say, whatever order they came in.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use domain::budget_events::Thresholds;
use domain::ids::{KeyId, LimitId, PersonId, PlanId, PriceId, TenantId};
use domain::key_text::SecretHash;
use domain::limits::{Class, Dimension, Limit, Mode, Scope, Target};
use domain::periods::Period;
use domain::policy::{Encoding, Key, KeySecret, LimitRow, Model, Plan, PolicyChanges, PriceRow, Settings, Tenant};
use domain::prices::{Price, Rates, Unpriced};
use domain::priority::Priority;
use uuid::Uuid;

use super::{OpenCredential, PolicyRows, PolicySnapshot, RequestUser};

const TENANT: TenantId = TenantId(Uuid::from_u128(1));
const PLAN: PlanId = PlanId(Uuid::from_u128(2));
const KEY: KeyId = KeyId(Uuid::from_u128(3));
const OWNER: PersonId = PersonId(Uuid::from_u128(4));

fn at(text: &str) -> DateTime<Utc> {
    text.parse().expect("an instant")
}

fn limit(number: u128, target: Target, value: u64) -> LimitRow {
    LimitRow {
        limit: Limit {
            id: LimitId(Uuid::from_u128(number)),
            target,
            dimension: Dimension::Requests,
            value,
            increase: None,
            window_seconds: 60,
            burst: None,
            period: Period::Month,
            model: None,
            priority: None,
            mode: Mode::Enforce,
            gates: None,
            thresholds: Thresholds::default(),
        },
        removed_at: None,
    }
}

fn price(number: u128, from: &str, until: Option<&str>) -> PriceRow {
    PriceRow {
        price: Price {
            id: PriceId(Uuid::from_u128(number)),
            model: "m".into(),
            valid_from: at(from),
            valid_until: until.map(at),
            rates: Rates::flat(1, 1),
            tiers: Vec::new(),
        },
        removed_at: None,
    }
}

fn changes() -> PolicyChanges {
    PolicyChanges {
        version: 1,
        adjusted_version: 0,
        settings: Settings {
            time_zone: chrono_tz::UTC,
            currency: "USD".into(),
            unpriced: Unpriced::Refuse,
            rehearsal_percent: None,
        },
        tenants: vec![Tenant {
            id: TENANT,
            name: "t".into(),
            plan_id: Some(PLAN),
            priority_ceiling: None,
            suspended_at: None,
            has_strict_budgets: false,
            key_rules: domain::key_rules::KeyRules::default(),
            removed_at: None,
        }],
        plans: vec![Plan {
            id: PLAN,
            name: "p".into(),
            priority_ceiling: Priority::Default,
            removed_at: None,
        }],
        keys: vec![key(1)],
        models: vec![Model {
            name: "m".into(),
            group: Some("g".into()),
            context_tokens: 1,
            output_cap_tokens: 1,
            output_default_tokens: 1,
            encoding: Encoding::Ratio,
            disabled_at: None,
            routes: Vec::new(),
        }],
        prices: vec![
            price(20, "2026-01-01T00:00:00Z", Some("2026-06-01T00:00:00Z")),
            price(21, "2026-06-01T00:00:00Z", None),
        ],
        upstreams: Vec::new(),
        limits: Vec::new(),
    }
}

fn key(secret: u8) -> Key {
    Key {
        id: KEY,
        public_id: "k".into(),
        tenant_id: TENANT,
        owner_id: Some(OWNER),
        name: "k".into(),
        priority: Priority::High,
        allowed_models: None,
        may_name_users: true,
        degrades: false,
        expires_at: None,
        revoked_at: None,
        own_limits: domain::own_limits::OwnLimits::default(),
        secrets: vec![KeySecret {
            hash: SecretHash([secret; 32]),
            valid_until: None,
        }],
    }
}

fn snapshot(rows: &PolicyRows) -> PolicySnapshot {
    let open: OpenCredential = Arc::new(|_| None);
    rows.snapshot(&open).expect("settings are there")
}

fn with(limits: Vec<LimitRow>) -> PolicySnapshot {
    let mut rows = PolicyRows::default();
    rows.apply(PolicyChanges { limits, ..changes() });
    snapshot(&rows)
}

/// The scopes of a request by `user` that have limits, with the limits' values.
fn values(policy: &PolicySnapshot, user: &RequestUser) -> Vec<(String, Vec<u64>)> {
    let (key, _) = policy.find_key(&SecretHash([1; 32]), Utc::now()).expect("the key");
    let tenant = policy.find_tenant(TENANT).expect("the tenant");
    let model = policy.find_model("m").expect("the model");
    policy
        .scopes(key, tenant, user, model)
        .iter()
        .filter(|node| !node.limits.is_empty())
        .map(|node| {
            (
                node.scope.kind().to_owned(),
                node.limits.iter().map(|limit| limit.value).collect(),
            )
        })
        .collect()
}

#[test]
fn scopes_come_in_tree_order() {
    let policy = with(vec![
        limit(1, Target::Node(Scope::Key(KEY)), 6),
        limit(2, Target::Node(Scope::Global), 1),
        limit(3, Target::Node(Scope::Model("m".into())), 3),
        limit(4, Target::Node(Scope::ModelGroup("g".into())), 2),
        limit(5, Target::Node(Scope::Tenant(TENANT)), 4),
        limit(6, Target::OfTenant(TENANT, Class::User), 5),
    ]);
    let owner = RequestUser::Owner(OWNER.to_string().into());
    let expected = [
        ("global", 1),
        ("models", 2),
        ("model", 3),
        ("tenant", 4),
        ("user", 5),
        ("key", 6),
    ];
    let expected: Vec<(String, Vec<u64>)> = expected.map(|(kind, value)| (kind.to_owned(), vec![value])).into();
    assert_eq!(values(&policy, &owner), expected);
    assert!(values(&with(Vec::new()), &owner).is_empty());
}

#[test]
fn a_nodes_own_limit_replaces_the_tenants_class_and_that_the_plans() {
    let user = Scope::User(TENANT, "anna".into());
    let policy = with(vec![
        limit(1, Target::OfPlan(PLAN, Class::User), 100),
        limit(2, Target::OfPlan(PLAN, Class::Tenant), 1_000),
        limit(3, Target::OfTenant(TENANT, Class::User), 50),
        limit(4, Target::Node(user), 5),
    ]);
    let end_user = |name: &str| values(&policy, &RequestUser::EndUser(name.into()));
    assert_eq!(
        end_user("anna"),
        [("tenant".to_owned(), vec![1_000]), ("user".to_owned(), vec![5])]
    );
    assert_eq!(
        end_user("bert"),
        [("tenant".to_owned(), vec![1_000]), ("user".to_owned(), vec![50])]
    );
}

#[test]
fn the_class_of_end_users_comes_before_that_of_all_users() {
    let policy = with(vec![
        limit(1, Target::OfTenant(TENANT, Class::User), 50),
        limit(2, Target::OfTenant(TENANT, Class::EndUser), 7),
    ]);
    assert_eq!(
        values(&policy, &RequestUser::EndUser("x".into())),
        [("user".to_owned(), vec![7])]
    );
    assert_eq!(
        values(&policy, &RequestUser::Owner("x".into())),
        [("user".to_owned(), vec![50])]
    );
    assert!(values(&policy, &RequestUser::Nobody).is_empty());
}

#[test]
fn a_node_alone_has_the_limits_that_it_has_in_a_request() {
    let policy = with(vec![
        limit(1, Target::OfPlan(PLAN, Class::Tenant), 1),
        limit(2, Target::OfTenant(TENANT, Class::User), 2),
        limit(3, Target::OfTenant(TENANT, Class::EndUser), 3),
        limit(4, Target::OfTenant(TENANT, Class::Key), 4),
        limit(5, Target::Node(Scope::ModelGroup("g".into())), 5),
        limit(6, Target::Node(Scope::Model("m".into())), 6),
        limit(7, Target::Node(Scope::Global), 7),
    ]);
    let key = policy.find_key_by_id(KEY).expect("the key");
    let (tenant, model) = (policy.find_tenant(TENANT), policy.find_model("m"));
    for user in [
        RequestUser::Owner(OWNER.to_string().into()),
        RequestUser::EndUser("anna".into()),
    ] {
        let nodes = policy.scopes(key, tenant.expect("the tenant"), &user, model.expect("the model"));
        assert_eq!(nodes.len(), 6);
        for node in nodes {
            assert_eq!(policy.limits_on(&node.scope).limits, node.limits, "{}", node.scope);
            assert_eq!(node.limits.len(), 1, "{}", node.scope);
        }
    }
    let stranger = Scope::Tenant(TenantId(Uuid::from_u128(9)));
    assert!(policy.limits_on(&stranger).limits.is_empty());
}

#[test]
fn a_rotated_secret_ends_and_a_new_one_is_found() {
    let mut rows = PolicyRows::default();
    rows.apply(changes());
    let overlap_ends = at("2026-11-30T12:00:00Z");
    let mut rotated = key(2);
    rotated.secrets.push(KeySecret {
        hash: SecretHash([1; 32]),
        valid_until: Some(overlap_ends),
    });
    rows.apply(PolicyChanges {
        version: 2,
        keys: vec![rotated],
        ..changes()
    });
    let policy = snapshot(&rows);
    let finds = |secret: u8, at| policy.find_key(&SecretHash([secret; 32]), at).is_some();
    assert!(finds(1, at("2026-11-30T11:59:59Z")) && finds(2, at("2026-11-30T11:59:59Z")));
    assert!(!finds(1, overlap_ends) && finds(2, overlap_ends));
    // The next change drops the old secret for good.
    rows.apply(PolicyChanges {
        version: 3,
        keys: vec![key(2)],
        ..changes()
    });
    assert!(
        snapshot(&rows)
            .find_key(&SecretHash([1; 32]), at("2026-11-30T00:00:00Z"))
            .is_none()
    );
}

#[test]
fn removed_rows_are_gone_and_what_is_kept_is_the_whole() {
    let mut rows = PolicyRows::default();
    let row = limit(1, Target::Node(Scope::Global), 1);
    rows.apply(PolicyChanges {
        limits: vec![row.clone()],
        ..changes()
    });
    let kept = rows.whole().expect("a policy");
    let mut again = PolicyRows::default();
    again.apply(kept);
    assert_eq!(
        values(&snapshot(&again), &RequestUser::Nobody),
        values(&snapshot(&rows), &RequestUser::Nobody)
    );

    let removed = LimitRow {
        removed_at: Some(Utc::now()),
        ..row
    };
    rows.apply(PolicyChanges {
        version: 2,
        limits: vec![removed],
        ..changes()
    });
    assert!(values(&snapshot(&rows), &RequestUser::Nobody).is_empty());
}

#[test]
fn the_price_in_force_is_the_one_of_the_moment_of_admission() {
    let policy = with(Vec::new());
    let model = policy.find_model("m").expect("the model");
    let id_at = |instant: &str| model.price_at(at(instant)).map(|price| price.id.0.as_u128());
    assert_eq!(id_at("2025-12-31T23:59:59Z"), None);
    assert_eq!(id_at("2026-05-31T23:59:59Z"), Some(20));
    assert_eq!(id_at("2026-06-01T00:00:00Z"), Some(21));
}

#[test]
fn the_ceiling_is_the_tenants_or_else_the_plans() {
    let policy = with(Vec::new());
    assert_eq!(
        policy.find_tenant(TENANT).map(|tenant| tenant.priority_ceiling),
        Some(Priority::Default)
    );
}

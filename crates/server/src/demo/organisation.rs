//! The made-up organisation: three tenants on two plans, their people and keys, three models with prices, one provider.

use anyhow::Context as _;
use chrono::{DateTime, Duration, Utc};
use control::keys::{Expiry, KeyDraft, KeyOwner};
use control::limits::{LimitDraft, NodeLimits};
use control::models::ModelDraft;
use control::people::PersonDraft;
use control::plans::PlanDraft;
use control::prices::PriceDraft;
use control::tenants::TenantDraft;
use control::upstreams::{CredentialChange, UpstreamDraft};
use control::{Actor, Control};
use domain::budget_events::Thresholds;
use domain::ids::{KeyId, LimitId, PersonId, PlanId, TenantId, UpstreamId};
use domain::limits::{Class, DEFAULT_WINDOW_SECONDS, Dimension, Gates, Mode, Scope, Target};
use domain::money::Nanos;
use domain::people::Role;
use domain::periods::Period;
use domain::policy::{Dialect, Encoding, Route};
use domain::prices::{Price, Rates};
use domain::priority::Priority;

use super::{CREDENTIAL, MEMBER_EMAIL, Memory, OPERATOR_EMAIL, PASSWORD};

const UPSTREAM: &str = "Simulator";
/// The same provider where it speaks the other dialect.
const ANTHROPIC_UPSTREAM: &str = "Simulator, as Anthropic";
/// The models whose limit is rehearsed.
pub(super) const REHEARSED_GROUP: &str = "large";

/// A key of the demo, with what its history looks like.
pub(super) struct DemoKey {
    pub(super) id: KeyId,
    pub(super) tenant: TenantId,
    /// What its tenant may spend in a month.
    pub(super) monthly_cost: Nanos,
    pub(super) owner: Option<PersonId>,
    pub(super) priority: Priority,
    /// Requests on a working day.
    pub(super) daily_requests: u32,
    /// Favourite models, the first twice as often as the others.
    pub(super) models: Vec<&'static str>,
}

/// What was made.
pub(super) struct Made {
    pub(super) memory: Memory,
    pub(super) upstream: UpstreamId,
    pub(super) prices: Vec<Price>,
    pub(super) keys: Vec<DemoKey>,
    /// A limit on the models of [`REHEARSED_GROUP`] that only says what it would have refused.
    pub(super) rehearsed: LimitId,
}

struct DemoTenant {
    name: &'static str,
    plan: &'static str,
    monthly_cost_units: i64,
    requests_per_minute: u64,
    total_tokens_per_minute: u64,
    ceiling: Priority,
    people: &'static [(&'static str, &'static str, Role, u32, Priority)],
    service: Option<(&'static str, u32, Priority)>,
}

struct DemoPlan {
    name: &'static str,
    ceiling: Priority,
    user_requests_per_minute: u64,
    key_concurrency: u64,
}

const PLANS: [DemoPlan; 2] = [
    DemoPlan {
        name: "Standard",
        ceiling: Priority::High,
        user_requests_per_minute: 20,
        key_concurrency: 5,
    },
    DemoPlan {
        name: "VIP",
        ceiling: Priority::Critical,
        user_requests_per_minute: 60,
        key_concurrency: 20,
    },
];

const TENANTS: [DemoTenant; 3] = [
    DemoTenant {
        name: "Atlas Search",
        plan: "VIP",
        monthly_cost_units: 60,
        requests_per_minute: 300,
        total_tokens_per_minute: 400_000,
        ceiling: Priority::Critical,
        people: &[
            ("Mira Holm", MEMBER_EMAIL, Role::Member, 24, Priority::Default),
            (
                "Jonas Brandt",
                "jonas@example.com",
                Role::Manager,
                10,
                Priority::Default,
            ),
        ],
        service: Some(("search-frontend", 90, Priority::High)),
    },
    DemoTenant {
        name: "Harbor Support",
        plan: "Standard",
        monthly_cost_units: 25,
        requests_per_minute: 120,
        total_tokens_per_minute: 150_000,
        ceiling: Priority::High,
        people: &[("Ines Duarte", "ines@example.com", Role::Manager, 18, Priority::Default)],
        service: Some(("ticket-triage", 60, Priority::Default)),
    },
    DemoTenant {
        name: "Kite Research",
        plan: "Standard",
        monthly_cost_units: 4,
        requests_per_minute: 30,
        total_tokens_per_minute: 60_000,
        ceiling: Priority::Default,
        people: &[("Tomas Vrba", "tomas@example.com", Role::Manager, 26, Priority::Low)],
        service: None,
    },
];

/// A model's name, group, context, output cap, output default and rates in nano-units per million tokens.
type DemoModel = (&'static str, Option<&'static str>, u64, u64, u64, Rates);

/// What is asked for in Anthropic's dialect. The history has none of it.
fn anthropic_models() -> [DemoModel; 1] {
    let rates = Rates {
        input_nanos_per_mtok: 3_000_000_000,
        cache_read_nanos_per_mtok: 300_000_000,
        cache_write_5m_nanos_per_mtok: 3_750_000_000,
        cache_write_1h_nanos_per_mtok: 6_000_000_000,
        output_nanos_per_mtok: 15_000_000_000,
    };
    [("sim-messages", None, 200_000, 32_768, 4_096, rates)]
}

fn models() -> [DemoModel; 4] {
    let rates = |input: i64, cached: i64, output: i64| Rates {
        input_nanos_per_mtok: input,
        cache_read_nanos_per_mtok: cached,
        cache_write_5m_nanos_per_mtok: input,
        cache_write_1h_nanos_per_mtok: input,
        output_nanos_per_mtok: output,
    };
    [
        (
            "sim-small",
            None,
            128_000,
            16_384,
            1_024,
            rates(150_000_000, 75_000_000, 600_000_000),
        ),
        (
            "sim-large",
            Some(REHEARSED_GROUP),
            200_000,
            16_384,
            2_048,
            rates(2_500_000_000, 1_250_000_000, 10_000_000_000),
        ),
        (
            "sim-reasoning",
            Some(REHEARSED_GROUP),
            200_000,
            32_768,
            4_096,
            rates(1_100_000_000, 275_000_000, 4_400_000_000),
        ),
        ("sim-embedding", None, 8_192, 1, 1, rates(20_000_000, 20_000_000, 0)),
    ]
}

/// Makes the organisation.
pub(super) async fn create(control: &Control, simulator_url: &str, now: DateTime<Utc>) -> anyhow::Result<Made> {
    let actor = Actor::System { name: "demo" };
    let operator = PersonDraft {
        name: "Olga Petrova".into(),
        email: OPERATOR_EMAIL.into(),
        role: Role::Operator,
        tenant_id: None,
    };
    control
        .create_person(&actor, &operator, PASSWORD, now)
        .await
        .context("the operator")?;
    let upstream = control
        .create_upstream(&actor, &upstream_draft(Dialect::Openai, simulator_url), now)
        .await
        .context("the upstream")?;
    let anthropic = control
        .create_upstream(&actor, &upstream_draft(Dialect::Anthropic, simulator_url), now)
        .await
        .context("the upstream that speaks as Anthropic")?;
    let prices = create_models(control, &actor, upstream, &models(), now).await?;
    create_models(control, &actor, anthropic, &anthropic_models(), now).await?;
    create_shared_limits(control, &actor, upstream, now).await?;

    let mut made = Made {
        rehearsed: create_rehearsed_limit(control, &actor, now).await?,
        memory: Memory::default(),
        upstream,
        prices,
        keys: Vec::new(),
    };
    let mut plans = Vec::new();
    for plan in &PLANS {
        let id = create_plan(control, &actor, plan, now)
            .await
            .with_context(|| plan.name)?;
        plans.push((plan.name, id));
    }
    for tenant in &TENANTS {
        create_tenant(control, &actor, tenant, &plans, &mut made, now)
            .await
            .with_context(|| tenant.name)?;
    }
    made.memory.example_key = made.memory.traffic_keys.first().cloned().unwrap_or_default();
    Ok(made)
}

/// The simulator listens elsewhere after each start.
pub(super) async fn point_upstream_at(control: &Control, url: &str, now: DateTime<Utc>) -> anyhow::Result<()> {
    let actor = Actor::System { name: "demo" };
    let upstreams = control.upstreams(&actor).await?;
    for dialect in [Dialect::Openai, Dialect::Anthropic] {
        let draft = upstream_draft(dialect, url);
        // Whoever deleted or renamed it wanted that.
        if let Some(row) = upstreams
            .iter()
            .find(|row| row.name == draft.name && row.base_url != url)
        {
            control.edit_upstream(&actor, row.id, row.version, &draft, now).await?;
        }
    }
    Ok(())
}

fn upstream_draft(dialect: Dialect, url: &str) -> UpstreamDraft {
    let name = match dialect {
        Dialect::Openai => UPSTREAM,
        Dialect::Anthropic => ANTHROPIC_UPSTREAM,
    };
    UpstreamDraft {
        name: name.into(),
        dialect,
        base_url: url.to_owned(),
        // A credential stays with its address, so it is told again with a new one.
        credential: CredentialChange::Replace(CREDENTIAL.to_owned()),
        is_disabled: false,
    }
}

async fn create_models(
    control: &Control,
    actor: &Actor,
    upstream: UpstreamId,
    models: &[DemoModel],
    now: DateTime<Utc>,
) -> anyhow::Result<Vec<Price>> {
    let mut prices = Vec::new();
    for (name, group, context_tokens, output_cap_tokens, output_default_tokens, rates) in models.iter().copied() {
        let draft = ModelDraft {
            name: name.into(),
            group: group.map(Into::into),
            context_tokens,
            output_cap_tokens,
            output_default_tokens,
            encoding: Encoding::Ratio,
            is_disabled: false,
            routes: vec![Route {
                upstream_id: upstream,
                upstream_model: name.into(),
                position: 0,
                weight: 1,
            }],
        };
        control.create_model(actor, &draft, now).await.with_context(|| name)?;
        let valid_from = now - Duration::days(120);
        let price = PriceDraft {
            valid_from: Some(valid_from),
            rates,
            tiers: Vec::new(),
        };
        let id = control
            .add_price(actor, name, &price, now)
            .await
            .with_context(|| name)?;
        prices.push(Price {
            id,
            model: name.into(),
            valid_from,
            valid_until: None,
            rates,
            tiers: Vec::new(),
        });
    }
    Ok(prices)
}

async fn create_shared_limits(
    control: &Control,
    actor: &Actor,
    upstream: UpstreamId,
    now: DateTime<Utc>,
) -> anyhow::Result<()> {
    let account = NodeLimits {
        requests_per_minute: Some(450),
        total_tokens_per_minute: Some(360_000),
        ..NodeLimits::default()
    };
    let target = Target::Node(Scope::Upstream(upstream));
    control
        .set_limits(actor, &target, 0, &account, now)
        .await
        .context("the account's limits")?;
    let gated = LimitDraft {
        dimension: Dimension::Requests,
        value: 400,
        window_seconds: DEFAULT_WINDOW_SECONDS,
        burst: None,
        period: Period::Month,
        model: None,
        priority: None,
        mode: Mode::Enforce,
        gates: Some(Gates {
            lower_percent: 70,
            upper_percent: 90,
            upper_waits: false,
        }),
        thresholds: Thresholds::default(),
    };
    control
        .set_limit(actor, &Target::Node(Scope::Global), 0, &gated, now)
        .await
        .context("the global limit")?;
    Ok(())
}

/// A limit that only says what it would refuse.
async fn create_rehearsed_limit(control: &Control, actor: &Actor, now: DateTime<Utc>) -> anyhow::Result<LimitId> {
    let target = Target::Node(Scope::ModelGroup(REHEARSED_GROUP.into()));
    let rehearsed = LimitDraft {
        dimension: Dimension::Requests,
        value: 6,
        window_seconds: DEFAULT_WINDOW_SECONDS,
        burst: None,
        period: Period::Month,
        model: None,
        priority: None,
        mode: Mode::Rehearse,
        gates: None,
        thresholds: Thresholds::default(),
    };
    control
        .set_limit(actor, &target, 0, &rehearsed, now)
        .await
        .context("the rehearsed limit")?;
    let limits = control.limits_of(actor, &target).await?.limits;
    let limit = limits.first().context("the rehearsed limit is there")?;
    Ok(limit.id)
}

async fn create_plan(control: &Control, actor: &Actor, plan: &DemoPlan, now: DateTime<Utc>) -> anyhow::Result<PlanId> {
    let draft = PlanDraft {
        name: plan.name.into(),
        priority_ceiling: plan.ceiling,
    };
    let id = control.create_plan(actor, &draft, now).await?;
    let of_user = NodeLimits {
        requests_per_minute: Some(plan.user_requests_per_minute),
        ..NodeLimits::default()
    };
    let of_key = NodeLimits {
        concurrency: Some(plan.key_concurrency),
        ..NodeLimits::default()
    };
    for (class, limits) in [(Class::User, of_user), (Class::Key, of_key)] {
        control
            .set_limits(actor, &Target::OfPlan(id, class), 0, &limits, now)
            .await?;
    }
    Ok(id)
}

async fn create_tenant(
    control: &Control,
    actor: &Actor,
    tenant: &DemoTenant,
    plans: &[(&'static str, PlanId)],
    made: &mut Made,
    now: DateTime<Utc>,
) -> anyhow::Result<()> {
    let draft = TenantDraft {
        name: tenant.name.into(),
        plan_id: plans.iter().find(|(name, _)| *name == tenant.plan).map(|(_, id)| *id),
        priority_ceiling: Some(tenant.ceiling),
        has_strict_budgets: false,
        limits: NodeLimits {
            monthly_cost: Some(Nanos::from_units(tenant.monthly_cost_units)),
            requests_per_minute: Some(tenant.requests_per_minute),
            total_tokens_per_minute: Some(tenant.total_tokens_per_minute),
            concurrency: Some(50),
            ..NodeLimits::default()
        },
    };
    let id = control.create_tenant(actor, &draft, now).await?;
    let mut issue = async |owner: KeyOwner, name: &str, priority, daily_requests, models: Vec<&'static str>| {
        let draft = KeyDraft {
            name: name.into(),
            priority,
            allowed_models: None,
            may_name_users: owner == KeyOwner::Service,
            degrades: false,
            expiry: Expiry::Never,
        };
        let issued = control
            .issue_key(actor, id, owner, &draft, now)
            .await
            .with_context(|| name.to_owned())?;
        made.memory.traffic_keys.push(issued.text.reveal().to_owned());
        let owner = match owner {
            KeyOwner::Person(person) => Some(person),
            KeyOwner::Service => None,
        };
        made.keys.push(DemoKey {
            id: issued.row.id,
            tenant: id,
            monthly_cost: Nanos::from_units(tenant.monthly_cost_units),
            owner,
            priority,
            daily_requests,
            models,
        });
        anyhow::Ok(())
    };
    for (name, email, role, daily_requests, priority) in tenant.people {
        let draft = PersonDraft {
            name: (*name).into(),
            email: (*email).into(),
            role: *role,
            tenant_id: Some(id),
        };
        let person = control
            .create_person(actor, &draft, PASSWORD, now)
            .await
            .with_context(|| *email)?;
        let first = name.split(' ').next().unwrap_or(name);
        let models = vec!["sim-large", "sim-small", "sim-reasoning"];
        issue(
            KeyOwner::Person(person.id),
            &format!("{first}'s laptop"),
            *priority,
            *daily_requests,
            models,
        )
        .await?;
    }
    if let Some((name, daily_requests, priority)) = tenant.service {
        issue(
            KeyOwner::Service,
            name,
            priority,
            daily_requests,
            vec!["sim-small", "sim-large"],
        )
        .await?;
    }
    Ok(())
}

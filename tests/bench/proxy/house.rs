//! Tollgate with everything on: keys, limits on every level, ledger in a Postgres of its own, metrics.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use chrono::Utc;
use control::keys::{Expiry, KeyDraft, KeyOwner};
use control::limits::LimitDraft;
use control::models::ModelDraft;
use control::prices::PriceDraft;
use control::tenants::TenantDraft;
use control::upstreams::{CredentialChange, UpstreamDraft};
use control::{Actor, Control};
use domain::budget_events::Thresholds;
use domain::ids::TenantId;
use domain::limits::{Class, DEFAULT_WINDOW_SECONDS, Dimension, Gates, Mode, Scope, Target};
use domain::periods::Period;
use domain::policy::{Dialect, Encoding, Route, Settings};
use domain::prices::{Rates, Unpriced};
use domain::priority::Priority;
use embedded_postgres::Throwaway;
use sqlx::{Connection as _, PgConnection};
use store::Store;
use store::random::SystemRandom;
use store::sealing::SecretKey;
use test_redis::RedisServer;
use test_support::installation::metric;
use test_support::program;
use test_support::speed::callers::Identity;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::loads::MODEL;
use crate::pinned::Process;

const ACTOR: Actor = Actor::System { name: "bench" };
const SECRET_KEY: [u8; 32] = [7; 32];
const TENANTS: usize = 10;
/// Whom keys of one tenant ask for.
const USERS_PER_TENANT: usize = 20;
/// Holds the longest prompt.
const CONTEXT_TOKENS: u64 = 1_000_000;
const OUTPUT_TOKENS: u64 = 4_096;
/// Held for the output of a request that states no cap.
const OUTPUT_DEFAULT_TOKENS: u64 = 500;

const START_WAIT: Duration = Duration::from_secs(60);
/// How long the ledger may take to catch up after a load, on a processor that it shares.
const LEDGER_WAIT: Duration = Duration::from_secs(600);
const LEDGER_POLL: Duration = Duration::from_millis(200);
/// A call to Redis may take as long as can be set: it shares a processor with callers that leave none of it idle, and
/// without its answer a gateway would go on alone and be measured without it.
const REDIS_TIMEOUT_MS: &str = "1000";

/// Each is checked and taken from at every level for every request, and none is ever reached: a minute's requests and
/// tokens, what is under way, and a month's money in nano-units.
const LIMITS: [(Dimension, u64); 4] = [
    (Dimension::Requests, 1_000_000_000),
    (Dimension::TotalTokens, 1_000_000_000_000),
    (Dimension::Concurrency, 1_000_000),
    (Dimension::BudgetCost, 1_000_000_000_000_000),
];
const GATES: Gates = Gates {
    lower_percent: 70,
    upper_percent: 90,
    upper_waits: true,
};

/// What there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Furnishing {
    pub(crate) keys: usize,
    /// Whether input is counted exactly.
    pub(crate) is_exact: bool,
}

/// Where counters are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counters {
    Memory,
    Redis,
}

/// A running gateway with its servers. They end in this order.
pub(crate) struct Tollgate {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
    pub(crate) identities: Vec<Identity>,
    redis: Option<(RedisServer, u32)>,
    postgres: Throwaway,
}

impl Tollgate {
    /// In front of this upstream, with its data in `folder`. Returns once it serves.
    pub(crate) async fn start(
        folder: &Path,
        upstream: SocketAddr,
        counters: Counters,
        furnishing: &Furnishing,
    ) -> anyhow::Result<Self> {
        let postgres = spawn_blocking(Throwaway::start).await?.context("Postgres")?;
        let database_url = postgres.cluster().url();
        let identities = furnish(&database_url, upstream, furnishing)
            .await
            .context("the house")?;
        let redis = match counters {
            Counters::Memory => None,
            Counters::Redis => Some(start_redis().await?),
        };
        let redis_url = redis.as_ref().map(|(server, _)| server.url());
        let secret_key = hex::encode(SECRET_KEY);
        let data_dir = folder.join("data");
        let mut variables = vec![
            ("DATABASE_URL", database_url.as_str()),
            ("TOLLGATE_SECRET_KEY", &secret_key),
            ("TOLLGATE_DATA_DIR", data_dir.to_str().context("a folder's name")?),
            ("TOLLGATE_LISTEN", "127.0.0.1:0"),
            ("TOLLGATE_REDIS_TIMEOUT_MS", REDIS_TIMEOUT_MS),
        ];
        variables.extend(redis_url.as_deref().map(|url| ("REDIS_URL", url)));
        let log = folder.join("tollgate.log");
        let mut process = Process::start(&program::path(), &["serve"], &variables, &log)?;
        let address = process
            .until("Tollgate serves", START_WAIT, |log| {
                let line = log
                    .lines()
                    .find_map(|line| line.strip_prefix("Tollgate serves on http://"));
                line.and_then(|address| address.parse().ok())
            })
            .await?;
        Ok(Self {
            process,
            address,
            identities,
            redis,
            postgres,
        })
    }

    pub(crate) fn redis_id(&self) -> Option<u32> {
        self.redis.as_ref().map(|(_, id)| *id)
    }

    pub(crate) fn postgres_id(&self) -> u32 {
        self.postgres.cluster().process_id()
    }

    /// Waits until every request has ended everywhere and is in the ledger; answers how long that took.
    pub(crate) async fn catch_up(&self) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        let url = format!("http://{}", self.address);
        loop {
            let lost = metric(&url, "tollgate_ledger_lost_total").await;
            ensure!(lost == 0.0, "{lost} entries were lost");
            // Should it count alone, Redis is not measured.
            let is_degraded = metric(&url, "tollgate_counters_degraded").await > 0.0;
            let share_percent = metric(&url, "tollgate_counters_share_percent").await;
            ensure!(
                !is_degraded && share_percent >= 100.0,
                "the shared counters did not answer in time"
            );
            let mut behind = 0.0;
            for name in ["tollgate_holds", "tollgate_counters_unheard", "tollgate_journal_depth"] {
                behind += metric(&url, name).await;
            }
            if behind == 0.0 {
                return Ok(begun.elapsed());
            }
            ensure!(
                begun.elapsed() < LEDGER_WAIT,
                "{behind} entries are not in the ledger after {LEDGER_WAIT:?}"
            );
            sleep(LEDGER_POLL).await;
        }
    }

    /// Stops it; afterwards the ledger must hold a row for each of so many requests that were answered.
    pub(crate) async fn stop(self, answered: u64) -> anyhow::Result<()> {
        self.process.stop().await.context("Tollgate")?;
        let mut sql = PgConnection::connect(&self.postgres.cluster().url()).await?;
        let rows: i64 = sqlx::query_scalar("select count(*) from settlements where status = 200")
            .fetch_one(&mut sql)
            .await?;
        sql.close().await?;
        ensure!(
            rows.unsigned_abs() == answered,
            "{answered} requests were answered, and {rows} are in the ledger"
        );
        Ok(())
    }
}

async fn start_redis() -> anyhow::Result<(RedisServer, u32)> {
    let redis = RedisServer::start().await;
    let id = redis.info("process_id").await;
    let id = id.trim().parse().context("Redis's process id")?;
    Ok((redis, id))
}

/// Schema, settings, an upstream, a model with its price, tenants with limits, and keys.
async fn furnish(database_url: &str, upstream: SocketAddr, furnishing: &Furnishing) -> anyhow::Result<Vec<Identity>> {
    let store = Store::connect_lazily_with(database_url, 4)?;
    store.migrate().await?;
    store.ensure_partitions(Utc::now()).await?;
    let control = Control::new(store.clone(), SecretKey::from_bytes(SECRET_KEY), Arc::new(SystemRandom));
    let settings = Settings {
        time_zone: chrono_tz::UTC,
        currency: "USD".into(),
        unpriced: Unpriced::Refuse,
        rehearsal_percent: None,
    };
    control.create_settings(&ACTOR, &settings, Utc::now()).await?;
    make_model(&control, upstream, furnishing.is_exact).await?;
    set_limits(&control, &Target::Node(Scope::Global)).await?;
    set_limits(&control, &Target::Node(Scope::Model(MODEL.into()))).await?;
    let mut tenants = Vec::new();
    for number in 1..=TENANTS {
        let tenant = make_tenant(&control, &format!("Tenant {number}")).await?;
        set_limits(&control, &Target::Node(Scope::Tenant(tenant))).await?;
        set_limits(&control, &Target::OfTenant(tenant, Class::User)).await?;
        set_limits(&control, &Target::OfTenant(tenant, Class::Key)).await?;
        tenants.push(tenant);
    }
    let mut identities = Vec::new();
    for number in 0..furnishing.keys {
        identities.push(Identity {
            key: issue(&control, tenants[number % TENANTS], number).await?,
            user: format!("user-{}", number / TENANTS % USERS_PER_TENANT),
        });
    }
    store.close().await;
    Ok(identities)
}

async fn make_model(control: &Control, upstream: SocketAddr, is_exact: bool) -> anyhow::Result<()> {
    let draft = UpstreamDraft {
        name: "Provider".into(),
        dialect: Dialect::Openai,
        base_url: format!("http://{upstream}/v1"),
        credential: CredentialChange::Replace("credential-of-the-provider".into()),
        is_disabled: false,
    };
    let upstream_id = control.create_upstream(&ACTOR, &draft, Utc::now()).await?;
    let draft = ModelDraft {
        name: MODEL.into(),
        group: None,
        context_tokens: CONTEXT_TOKENS,
        output_cap_tokens: OUTPUT_TOKENS,
        output_default_tokens: OUTPUT_DEFAULT_TOKENS,
        encoding: if is_exact { Encoding::O200kBase } else { Encoding::Ratio },
        is_disabled: false,
        routes: vec![Route {
            upstream_id,
            upstream_model: MODEL.into(),
            position: 0,
            weight: 1,
        }],
    };
    control.create_model(&ACTOR, &draft, Utc::now()).await?;
    let price = PriceDraft {
        valid_from: Some(Utc::now() - chrono::Duration::days(1)),
        rates: Rates::flat(150_000_000, 600_000_000),
        tiers: Vec::new(),
    };
    control.add_price(&ACTOR, MODEL, &price, Utc::now()).await?;
    Ok(())
}

async fn make_tenant(control: &Control, name: &str) -> anyhow::Result<TenantId> {
    let draft = TenantDraft {
        name: name.into(),
        plan_id: None,
        priority_ceiling: Some(Priority::Critical),
        has_strict_budgets: false,
        limits: control::limits::NodeLimits::default(),
    };
    Ok(control.create_tenant(&ACTOR, &draft, Utc::now()).await?)
}

/// All of [`LIMITS`], those on requests with gates.
async fn set_limits(control: &Control, target: &Target) -> anyhow::Result<()> {
    let mut version = control.limits_of(&ACTOR, target).await?.version;
    for (dimension, value) in LIMITS {
        let draft = LimitDraft {
            dimension,
            value,
            window_seconds: DEFAULT_WINDOW_SECONDS,
            burst: None,
            period: Period::Month,
            model: None,
            priority: None,
            mode: Mode::Enforce,
            gates: (dimension == Dimension::Requests).then_some(GATES),
            thresholds: Thresholds::default(),
        };
        version = control.set_limit(&ACTOR, target, version, &draft, Utc::now()).await?;
    }
    Ok(())
}

async fn issue(control: &Control, tenant: TenantId, number: usize) -> anyhow::Result<String> {
    let draft = KeyDraft {
        name: format!("Application {number}"),
        priority: Priority::Default,
        allowed_models: None,
        may_name_users: true,
        degrades: false,
        expiry: Expiry::Never,
    };
    let issued = control
        .issue_key(&ACTOR, tenant, KeyOwner::Service, &draft, Utc::now())
        .await?;
    Ok(issued.text.reveal().to_owned())
}

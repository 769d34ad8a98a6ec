//! Everything that takes part: provider, database, gateways, tenants and their users' keys.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use chrono::Utc;
use control::keys::{Expiry, KeyDraft, KeyOwner};
use control::limits::NodeLimits;
use control::models::ModelDraft;
use control::prices::PriceDraft;
use control::tenants::TenantDraft;
use control::upstreams::{CredentialChange, UpstreamDraft};
use control::{Actor, Control};
use domain::ids::{TenantId, UpstreamId};
use domain::policy::{Dialect, Encoding, Route};
use domain::prices::Rates;
use domain::priority::Priority;
use gateway::QueueSettings;
use gateway::clock::{Clock as _, SystemClock};
use ledger::JournalSettings;
use limits::{Mode, RedisSettings};
use server::data_dir::DataDir;
use server::wiring::{self, Running, Settings};
use simulator::{Behaviour, Counting, Simulator, SimulatorConfig};
use store::sealing::SecretKey;
use tempfile::TempDir;
use test_redis::RedisServer;
use test_support::fleet::until_within;
use test_support::postgres::{self, TestDatabase};

use crate::callers::{Callers, Sdk, Usual};
use crate::demand::{self, Demand, user_name};
use crate::ledger::{Attempts, attempts};
use crate::protection::{Account, Protection};

const CREDENTIAL: &str = "credential-of-the-provider";
const ACTOR: Actor = Actor::System { name: "bench" };
const TENANTS: usize = 4;
/// What waits for the last request to end and to be in the ledger.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    pub(crate) places: usize,
    pub(crate) timeout_ms: u64,
}

/// As an operator should set it for two hundred users who all want to wait.
pub(crate) const QUEUE: Queue = Queue {
    places: 256,
    timeout_ms: 60_000,
};

/// A house with everything in it.
pub(crate) struct House {
    pub(crate) simulator: Simulator,
    database: TestDatabase,
    gateways: Vec<Running>,
    keys: Vec<String>,
    clock: Arc<SystemClock>,
    /// Held until the gateways have stopped.
    data_dirs: Vec<TempDir>,
    redis: Option<RedisServer>,
}

impl House {
    /// Builds it, with the limits in force.
    pub(crate) async fn start(
        protection: Protection,
        demand: &Demand,
        queue: Queue,
        account: Account,
        has_redis: bool,
    ) -> anyhow::Result<Self> {
        let mut behaviour = Behaviour::default();
        behaviour.apply(demand::LATENCY)?;
        let simulator = Simulator::start(SimulatorConfig {
            credential: Some(CREDENTIAL.to_owned()),
            behaviour,
            requests_per_minute: Some(demand::ACCOUNT_REQUESTS),
            tokens_per_minute: Some(demand::ACCOUNT_TOKENS),
            counting: Counting::SlidingWindow,
            arrivals_kept: 1_000_000,
            ..SimulatorConfig::default()
        })
        .await?;
        let database = postgres::database().await;
        let redis = match has_redis {
            true => Some(RedisServer::start().await),
            false => None,
        };
        let queue = QueueSettings {
            places: if protection == Protection::Everything {
                queue.places
            } else {
                0
            },
            timeout_ms: queue.timeout_ms,
            ..QueueSettings::default()
        };
        let mut house = Self {
            simulator,
            database,
            gateways: Vec::new(),
            keys: Vec::new(),
            clock: Arc::new(SystemClock::start()),
            data_dirs: Vec::new(),
            redis,
        };
        for number in 1..=if has_redis { 2 } else { 1 } {
            house.open_gateway(&format!("bench-{number}"), queue).await?;
        }
        house.furnish(protection, demand, account).await?;
        house.in_step().await;
        Ok(house)
    }

    /// Waits until gateways that share their counters know of each other and admit by the whole of every rate.
    async fn in_step(&self) {
        let count = self.gateways.len() as u64;
        until_within(PATIENCE, "the gateways share their counters", async || {
            self.gateways.iter().all(|gateway| {
                let limits = gateway.gateway.limits();
                limits.gateways() == count && limits.mode(self.clock.now()) == Mode::Normal
            })
        })
        .await;
    }

    async fn open_gateway(&mut self, instance: &str, queue: QueueSettings) -> anyhow::Result<()> {
        let data_dir = tempfile::tempdir()?;
        let settings = Settings {
            listen: ([127, 0, 0, 1], 0).into(),
            admin_listen: None,
            public_url: None,
            gateway_url: None,
            trusted_proxies: server::trusted_proxies::TrustedProxies::default(),
            data_dir: DataDir::open(data_dir.path())?,
            database_url: Some(self.database.url().to_owned()),
            has_private_postgres: false,
            has_given_secret_key: true,
            secret_key: SecretKey::from_bytes([7; 32]),
            time_zone: None,
            currency: None,
            instance: instance.to_owned(),
            site_dir: PathBuf::from("site"),
            journal: JournalSettings::default(),
            redis: self.redis.as_ref().map(|redis| RedisSettings::new(redis.url())),
            limits: limits::Settings::default(),
            queue,
            upstream_timeouts: upstream::Timeouts::default(),
            grace: Duration::from_secs(5),
            clock: Arc::<SystemClock>::clone(&self.clock),
            after_admission: None,
        };
        let running = wiring::start(settings).await.context("a gateway does not start")?;
        self.gateways.push(running);
        self.data_dirs.push(data_dir);
        Ok(())
    }

    /// Upstream, model, tenants, a key for each user, and the limits.
    async fn furnish(&mut self, protection: Protection, demand: &Demand, account: Account) -> anyhow::Result<()> {
        let control = Arc::clone(&self.gateways[0].control);
        let upstream = self.make_upstream(&control).await?;
        make_model(&control, upstream).await?;
        let mut tenants = Vec::new();
        for number in 1..=TENANTS {
            tenants.push(make_tenant(&control, &format!("Tenant {number}")).await?);
        }
        for user in 0..demand.users {
            self.keys.push(issue(&control, tenants[user % TENANTS], user).await?);
        }
        protection.establish(&control, &tenants, upstream, account).await?;
        for gateway in &self.gateways {
            gateway.gateway.refresh_policy().await?;
        }
        Ok(())
    }

    async fn make_upstream(&self, control: &Control) -> anyhow::Result<UpstreamId> {
        let draft = UpstreamDraft {
            name: "Provider".into(),
            dialect: Dialect::Openai,
            base_url: self.simulator.base_url(),
            credential: CredentialChange::Replace(CREDENTIAL.into()),
            is_disabled: false,
        };
        Ok(control.create_upstream(&ACTOR, &draft, Utc::now()).await?)
    }

    /// One caller for each user, evenly over the gateways.
    pub(crate) fn callers(&self, protection: Protection) -> anyhow::Result<Vec<Callers>> {
        let urls: Vec<String> = self
            .gateways
            .iter()
            .map(|gateway| format!("http://{}/v1", gateway.address))
            .collect();
        let mut callers = Vec::new();
        for (user, key) in self.keys.iter().enumerate() {
            let url = &urls[user % urls.len()];
            callers.push(match protection {
                Protection::Everything => Callers::Sdk(Sdk::new(url, key)?),
                Protection::Nothing | Protection::Rates => Callers::Usual(Box::new(Usual::new(url, key))),
            });
        }
        Ok(callers)
    }

    /// What the ledger says of all attempts, once they have ended.
    pub(crate) async fn attempts(&self) -> anyhow::Result<Attempts> {
        for gateway in &self.gateways {
            until_within(PATIENCE, "everything has ended and is in the ledger", async || {
                gateway.gateway.book_folded();
                let status = gateway.gateway.status();
                status.in_flight == 0 && status.journal_depth == 0
            })
            .await;
        }
        attempts(&mut self.database.connect().await).await
    }

    pub(crate) async fn stop(self) {
        for gateway in self.gateways {
            gateway.stop().await;
        }
        self.simulator.stop().await;
        drop(self.data_dirs);
    }
}

async fn make_model(control: &Control, upstream: UpstreamId) -> anyhow::Result<()> {
    let draft = ModelDraft {
        name: demand::MODEL.into(),
        group: None,
        context_tokens: 128_000,
        output_cap_tokens: 4_096,
        output_default_tokens: 500,
        encoding: Encoding::Ratio,
        is_disabled: false,
        routes: vec![Route {
            upstream_id: upstream,
            upstream_model: demand::MODEL.into(),
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
    control.add_price(&ACTOR, demand::MODEL, &price, Utc::now()).await?;
    Ok(())
}

async fn make_tenant(control: &Control, name: &str) -> anyhow::Result<TenantId> {
    let draft = TenantDraft {
        name: name.into(),
        plan_id: None,
        priority_ceiling: Some(Priority::Critical),
        has_strict_budgets: false,
        limits: NodeLimits::default(),
    };
    Ok(control.create_tenant(&ACTOR, &draft, Utc::now()).await?)
}

async fn issue(control: &Control, tenant: TenantId, user: usize) -> anyhow::Result<String> {
    let draft = KeyDraft {
        name: user_name(user),
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

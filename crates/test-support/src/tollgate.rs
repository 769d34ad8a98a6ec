//! The whole product for one test: its own database, a simulated provider, a gateway with console, in this process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use control::keys::{Expiry, IssuedKey, KeyDraft, KeyOwner};
use control::limits::{LimitDraft, NodeLimits};
use control::models::ModelDraft;
use control::prices::PriceDraft;
use control::tenants::TenantDraft;
use control::upstreams::{CredentialChange, UpstreamDraft};
use control::{Actor, Control};
use domain::budget_events::Thresholds;
use domain::ids::{TenantId, UpstreamId};
use domain::limits::{DEFAULT_WINDOW_SECONDS, Dimension, Mode, Target};
use domain::periods::Period;
use domain::policy::{Dialect, Encoding, Route};
use domain::prices::Rates;
use domain::priority::Priority;
use gateway::{AfterAdmission, QueueSettings};
use ledger::JournalSettings;
use serde_json::{Value, json};
use server::data_dir::DataDir;
use server::trusted_proxies::TrustedProxies;
use server::wiring::{self, Running, Settings};
use simulator::{Simulator, SimulatorConfig};
use sqlx::PgConnection;
use store::sealing::SecretKey;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::clock::TestClock;
use crate::cut::Wire;
use crate::http::{Answer, Browser, Stream};
use crate::instance::{Instance, Mortal};
use crate::postgres::{self, TestDatabase};

/// The credential that the simulated provider wants.
pub const CREDENTIAL: &str = "credential-of-the-provider";
/// The model every test has: 1 unit per million input tokens, 2 per million output tokens.
pub const MODEL: &str = "sim-model";
/// The model of [`Tollgate::anthropic_model`].
pub const ANTHROPIC_MODEL: &str = "sim-anthropic";
/// Where chat requests go.
pub const CHAT_PATH: &str = "/v1/chat/completions";
/// The name of the first gateway.
pub const INSTANCE: &str = "test-gateway";
/// The installation's secret key.
pub const SECRET_KEY: [u8; 32] = [7; 32];
/// What waits for something that must happen, at most.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a test wants to be different.
#[derive(Default)]
pub struct Options {
    /// The provider.
    pub simulator: SimulatorConfig,
    /// Called at every step of a request that was admitted.
    pub after_admission: Option<AfterAdmission>,
    /// How long holds are kept.
    pub limits: limits::Settings,
    /// Redis, for counters that all gateways share.
    pub redis: Option<limits::RedisSettings>,
    /// Bounds of the journal.
    pub journal: JournalSettings,
    /// Time-outs towards the provider.
    pub upstream_timeouts: upstream::Timeouts,
    /// Places in the queue and the like; nobody waits, if absent.
    pub queue: Option<QueueSettings>,
    /// The billing time zone.
    pub time_zone: Option<chrono_tz::Tz>,
    /// The billing currency; dollars, if absent.
    pub currency: Option<String>,
    /// How people reach the console; the address it listens on, if absent.
    pub public_url: Option<url::Url>,
    /// Whose word about the caller's address is taken.
    pub trusted_proxies: TrustedProxies,
    /// Starts without the model and its upstream.
    pub is_empty: bool,
    /// Puts a [`Wire`] between the process and Postgres.
    pub has_wire: bool,
}

/// A running product.
pub struct Tollgate {
    /// Its database.
    pub database: TestDatabase,
    /// Its provider.
    pub simulator: Simulator,
    /// The process. Taken by [`Tollgate::restart`] only.
    pub running: Running,
    /// The clock.
    pub clock: Arc<TestClock>,
    /// The way to Postgres, if a test wanted one that can be cut.
    pub wire: Option<Wire>,
    data_dir: TempDir,
    common: Common,
}

/// What all gateways of one installation share.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) database_url: String,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) time_zone: Option<chrono_tz::Tz>,
    pub(crate) currency: Option<String>,
    pub(crate) redis: Option<limits::RedisSettings>,
    pub(crate) limits: limits::Settings,
    pub(crate) upstream_timeouts: upstream::Timeouts,
    pub(crate) queue: QueueSettings,
}

impl Tollgate {
    /// Starts one with the model [`MODEL`].
    pub async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    /// Starts one as wanted.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start_with(options: Options) -> Self {
        let database = postgres::database().await;
        let config = SimulatorConfig {
            credential: Some(CREDENTIAL.to_owned()),
            ..options.simulator
        };
        let simulator = Simulator::start(config).await.expect("the simulator starts");
        let data_dir = tempfile::tempdir().expect("a directory");
        let clock = Arc::new(TestClock::default());
        let wire = match options.has_wire {
            true => Some(Wire::to(host_and_port(database.url())).await),
            false => None,
        };
        let common = Common {
            database_url: match &wire {
                None => database.url().to_owned(),
                Some(wire) => database
                    .url()
                    .replace(&host_and_port(database.url()), &wire.address().to_string()),
            },
            clock: Arc::clone(&clock),
            time_zone: options.time_zone,
            currency: options.currency,
            redis: options.redis,
            limits: options.limits,
            upstream_timeouts: options.upstream_timeouts,
            queue: options.queue.unwrap_or(QueueSettings {
                places: 0,
                timeout_ms: 1,
                ..QueueSettings::default()
            }),
        };
        let settings = Settings {
            after_admission: options.after_admission,
            journal: options.journal,
            public_url: options.public_url,
            trusted_proxies: options.trusted_proxies,
            ..common.settings(INSTANCE, data_dir.path())
        };
        let running = wiring::start(settings).await.expect("the process starts");
        let tollgate = Self {
            database,
            simulator,
            running,
            clock,
            wire,
            data_dir,
            common,
        };
        if !options.is_empty {
            let upstream = tollgate.upstream("simulator", &tollgate.simulator.base_url()).await;
            tollgate
                .model(MODEL, upstream, Some(Rates::flat(1_000_000_000, 2_000_000_000)))
                .await;
            tollgate.in_force().await;
        }
        tollgate
    }

    /// Stops the process in good order and starts it again on the same data.
    pub async fn restart(self) -> Self {
        self.restart_with(|settings| settings).await
    }

    /// The same with other settings.
    pub async fn restart_with(self, change: impl FnOnce(Settings) -> Settings) -> Self {
        let Self {
            running,
            data_dir,
            common,
            ..
        } = self;
        running.stop().await;
        let settings = common.settings(INSTANCE, data_dir.path());
        let running = wiring::start(change(settings)).await.expect("the process starts again");
        Self {
            running,
            data_dir,
            common,
            ..self
        }
    }

    /// One more gateway on the same database, Redis and provider, under a name and with a data directory of its own.
    pub async fn another(&self, name: &str) -> Instance {
        self.another_with(name, |settings| settings).await
    }

    /// The same with other settings.
    pub async fn another_with(&self, name: &str, change: impl FnOnce(Settings) -> Settings) -> Instance {
        Instance::start(self.common.clone(), name, change).await
    }

    /// One more gateway in threads of its own, so that it can be killed.
    pub async fn mortal(&self, name: &str) -> Mortal {
        Mortal::start(self.common.clone(), name).await
    }

    /// What one more gateway would be started with.
    pub fn settings(&self, instance: &str, data_dir: &Path) -> Settings {
        self.common.settings(instance, data_dir)
    }

    /// Its data directory.
    pub fn data_dir(&self) -> &Path {
        self.data_dir.path()
    }

    /// The way to Postgres.
    ///
    /// # Panics
    /// When the test did not ask for one that can be cut.
    pub fn wire(&self) -> &Wire {
        self.wire.as_ref().expect("a wire was asked for")
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://{}", self.running.address)
    }

    /// The control plane.
    pub fn control(&self) -> &Control {
        &self.running.control
    }

    /// Who sets things up.
    pub fn actor(&self) -> Actor {
        Actor::System { name: "test" }
    }

    /// Puts every change made so far in force.
    pub async fn in_force(&self) {
        self.running.gateway.refresh_policy().await.expect("the policy is read");
    }

    /// Makes an OpenAI-compatible upstream.
    pub async fn upstream(&self, name: &str, base_url: &str) -> UpstreamId {
        self.upstream_of(Dialect::Openai, name, base_url).await
    }

    /// Makes a model that is served in Anthropic's dialect, by the same provider as [`MODEL`] and at its price: its name.
    pub async fn anthropic_model(&self) -> &'static str {
        let base_url = self.simulator.base_url();
        let upstream = self.upstream_of(Dialect::Anthropic, "anthropic", &base_url).await;
        self.model(
            ANTHROPIC_MODEL,
            upstream,
            Some(Rates::flat(1_000_000_000, 2_000_000_000)),
        )
        .await;
        self.in_force().await;
        ANTHROPIC_MODEL
    }

    /// Makes an upstream that speaks this dialect.
    pub async fn upstream_of(&self, dialect: Dialect, name: &str, base_url: &str) -> UpstreamId {
        let draft = UpstreamDraft {
            name: name.into(),
            dialect,
            base_url: base_url.into(),
            credential: CredentialChange::Replace(CREDENTIAL.into()),
            is_disabled: false,
        };
        self.control()
            .create_upstream(&self.actor(), &draft, Utc::now())
            .await
            .expect("an upstream")
    }

    /// Makes a model, with a price if it is to have one.
    pub async fn model(&self, name: &str, upstream: UpstreamId, rates: Option<Rates>) {
        let draft = ModelDraft {
            name: name.into(),
            group: None,
            context_tokens: 128_000,
            output_cap_tokens: 4_096,
            output_default_tokens: 500,
            encoding: Encoding::Ratio,
            is_disabled: false,
            routes: vec![Route {
                upstream_id: upstream,
                upstream_model: name.into(),
                position: 0,
                weight: 1,
            }],
        };
        self.control()
            .create_model(&self.actor(), &draft, Utc::now())
            .await
            .expect("a model");
        if let Some(rates) = rates {
            let price = PriceDraft {
                valid_from: Some(Utc::now() - chrono::Duration::days(400)),
                rates,
                tiers: Vec::new(),
            };
            self.control()
                .add_price(&self.actor(), name, &price, Utc::now())
                .await
                .expect("a price");
        }
    }

    /// Makes a tenant.
    pub async fn tenant(&self, name: &str, limits: NodeLimits) -> TenantId {
        let draft = TenantDraft {
            name: name.into(),
            plan_id: None,
            priority_ceiling: Some(Priority::Critical),
            has_strict_budgets: false,
            limits,
        };
        self.control()
            .create_tenant(&self.actor(), &draft, Utc::now())
            .await
            .expect("a tenant")
    }

    /// Issues an application's key.
    pub async fn issue(&self, tenant: TenantId) -> IssuedKey {
        self.issue_at(tenant, "application", Priority::Default).await
    }

    /// The same under a name and at a priority of its own.
    pub async fn issue_at(&self, tenant: TenantId, name: &str, priority: Priority) -> IssuedKey {
        let draft = KeyDraft {
            name: name.into(),
            priority,
            allowed_models: None,
            may_name_users: true,
            degrades: false,
            expiry: Expiry::Never,
        };
        self.control()
            .issue_key(&self.actor(), tenant, KeyOwner::Service, &draft, Utc::now())
            .await
            .expect("a key")
    }

    /// A key of this priority that is in force: its text.
    pub async fn key_at(&self, tenant: TenantId, priority: Priority) -> String {
        let issued = self.issue_at(tenant, priority.as_str(), priority).await;
        self.in_force().await;
        issued.text.reveal().to_owned()
    }

    /// Sets a limit that is in force when this returns, where there was version `version`; answers the next one.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn set_limit(&self, target: Target, version: i64, limit: &LimitDraft) -> i64 {
        let version = self
            .control()
            .set_limit(&self.actor(), &target, version, limit, Utc::now())
            .await
            .expect("a limit");
        self.in_force().await;
        version
    }

    /// A tenant with a key that is in force.
    pub async fn tenant_with_key(&self, limits: NodeLimits) -> (TenantId, String) {
        self.named_tenant_with_key("Tenant", limits).await
    }

    /// The same under a name of its own.
    pub async fn named_tenant_with_key(&self, name: &str, limits: NodeLimits) -> (TenantId, String) {
        let tenant = self.tenant(name, limits).await;
        let key = self.issue(tenant).await.text.reveal().to_owned();
        self.in_force().await;
        (tenant, key)
    }

    /// A browser without JavaScript.
    pub fn browser(&self) -> Browser {
        Browser::new(&self.url())
    }

    /// One chat request with this text, whole.
    pub async fn chat(&self, key: &str, text: &str) -> Answer {
        chat(&self.browser(), key, text).await
    }

    /// One chat request on a task of its own.
    pub fn chat_beside(&self, key: &str) -> JoinHandle<Answer> {
        let (browser, key) = (self.browser(), key.to_owned());
        tokio::spawn(async move { chat(&browser, &key, "Hello.").await })
    }

    /// Parks one chat request at the provider, which fills what has one place. Others that come are parked, too.
    pub async fn park(&self, key: &str) -> JoinHandle<Answer> {
        self.simulator.hold();
        let parked = self.chat_beside(key);
        self.simulator.wait_parked(1).await;
        parked
    }

    /// One streamed chat request with this text.
    pub async fn chat_stream(&self, key: &str, text: &str) -> Stream {
        chat_stream(&self.browser(), key, text).await
    }

    /// Waits until every request has ended and everything journalled is in Postgres.
    ///
    /// # Panics
    /// When that does not happen.
    pub async fn shipped(&self) {
        shipped(&self.running).await;
    }

    /// A connection to its database.
    pub async fn sql(&self) -> PgConnection {
        self.database.connect().await
    }
}

/// Waits until every request of this gateway has ended and everything journalled is in Postgres.
pub(crate) async fn shipped(running: &Running) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        running.gateway.book_folded();
        let status = running.gateway.status();
        if status.in_flight == 0 && status.journal_depth == 0 {
            return;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "not everything ended: {status:?}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) async fn chat(browser: &Browser, key: &str, text: &str) -> Answer {
    browser.post_json(CHAT_PATH, key, &chat_body(text)).await
}

pub(crate) async fn chat_stream(browser: &Browser, key: &str, text: &str) -> Stream {
    let mut body = chat_body(text);
    body["stream"] = json!(true);
    browser.stream_json(CHAT_PATH, key, &body).await
}

/// A limit in enforcement without gates, for every model and priority; a rate in the usual window, a budget a month.
pub fn limit(dimension: Dimension, value: u64) -> LimitDraft {
    LimitDraft {
        dimension,
        value,
        window_seconds: DEFAULT_WINDOW_SECONDS,
        burst: None,
        period: Period::Month,
        model: None,
        priority: None,
        mode: Mode::Enforce,
        gates: None,
        thresholds: Thresholds::default(),
    }
}

/// A chat request for [`MODEL`].
pub fn chat_body(text: &str) -> Value {
    json!({ "model": MODEL, "messages": [{ "role": "user", "content": text }] })
}

impl Common {
    /// Of the gateway `instance` over `data_dir`.
    pub(crate) fn settings(&self, instance: &str, data_dir: &Path) -> Settings {
        Settings {
            listen: "127.0.0.1:0".parse().expect("an address"),
            admin_listen: None,
            public_url: None,
            gateway_url: None,
            trusted_proxies: TrustedProxies::default(),
            data_dir: DataDir::open(data_dir).expect("a data directory"),
            database_url: Some(self.database_url.clone()),
            secret_key: SecretKey::from_bytes(SECRET_KEY),
            has_given_secret_key: true,
            has_private_postgres: false,
            time_zone: self.time_zone,
            currency: self.currency.clone(),
            instance: instance.to_owned(),
            site_dir: site_dir(),
            journal: JournalSettings::default(),
            redis: self.redis.clone(),
            limits: self.limits,
            upstream_timeouts: self.upstream_timeouts,
            queue: self.queue,
            grace: Duration::from_secs(5),
            clock: Arc::<TestClock>::clone(&self.clock),
            after_admission: None,
        }
    }
}

fn host_and_port(url: &str) -> String {
    let url = url::Url::parse(url).expect("a URL");
    format!(
        "{}:{}",
        url.host_str().unwrap_or("127.0.0.1"),
        url.port().unwrap_or(5432)
    )
}

/// The console's files, where `cargo xtask test` has built them; tests of pages without a browser do without.
fn site_dir() -> PathBuf {
    std::env::var_os("TOLLGATE_SITE_DIR").map_or_else(|| PathBuf::from("site"), PathBuf::from)
}

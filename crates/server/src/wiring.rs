//! The process: what is opened, in which order, what runs, and how it all stops.

use std::future::Future;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use admin::state::AdminState;
use anyhow::{Context as _, anyhow, bail};

use chrono::Utc;
use control::{Actor, Control, ControlError};
use domain::error_chain::chain;
use domain::instances::Setup;
use domain::policy::Settings as PolicySettings;
use domain::prices::Unpriced;
use futures_util::FutureExt as _;
use gateway::background::supervise;
use gateway::clock::Clock;
use gateway::{AfterAdmission, Gateway, Parts, QueueSettings};
use ledger::{Journal, JournalSettings, Shipper, ShipperSettings};
use limits::{Limits, RedisSettings};
use store::random::{Random, SystemRandom};
use store::sealing::SecretKey;
use store::sessions::Sessions;
use store::{GATEWAY_CONNECTIONS_MAX, Store, StoreError};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::data_dir::DataDir;
use crate::embedded_postgres::EmbeddedPostgres;
use crate::health;
use crate::listener::{ADMIN_CONNECTIONS_MAX, Closing, DoorSettings, IDLE_MS, connections_max, listen, serve};
use crate::live::GatewayFigures;
use crate::trusted_proxies::TrustedProxies;

/// How long a first start waits for Postgres.
const DATABASE_WAIT: Duration = Duration::from_secs(30);
/// The pause between two attempts to reach it.
const DATABASE_RETRY: Duration = Duration::from_millis(500);
/// How long a start waits for what an earlier run left in the journal to reach Postgres; it goes on afterwards.
const RECOVERY_WAIT: Duration = Duration::from_secs(10);
/// How long a stop waits for the journal to reach Postgres; what is left is shipped by the next start.
const LAST_SHIPMENT_WAIT: Duration = Duration::from_secs(5);
/// How long answers that are broken off after the grace period may take to say so.
const FAREWELL_WAIT: Duration = Duration::from_secs(1);
/// How long a stop waits for the connections to Postgres to close.
const CLOSE_WAIT: Duration = Duration::from_secs(2);
/// Old entries are dropped by a clock that is no further from Postgres's, in hours.
const CLOCKS_APART_HOURS_MAX: i64 = 1;
/// Who writes the first settings.
const FIRST_START: Actor = Actor::System { name: "first start" };
/// How often partitions are made ahead and what has ended deleted.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(600);
/// How often it is looked which keys end soon.
const KEY_WARNINGS_INTERVAL: Duration = Duration::from_secs(60);

/// What a process is started with.
pub struct Settings {
    /// Where the proxy listens.
    pub listen: SocketAddr,
    /// An address of its own for console, API, health and metrics.
    pub admin_listen: Option<SocketAddr>,
    /// How people reach the console; the address it listens on, if absent.
    pub public_url: Option<url::Url>,
    /// How programs reach the proxy; as the console where both share an address, else the one it listens on, if absent.
    pub gateway_url: Option<url::Url>,
    /// Whose word about the caller's address is taken.
    pub trusted_proxies: TrustedProxies,
    /// The data directory.
    pub data_dir: DataDir,
    /// Postgres; a private one under the data directory, if absent.
    pub database_url: Option<String>,
    /// Redis, for counters that all gateways share; counters in memory, if absent.
    pub redis: Option<RedisSettings>,
    /// The installation's secret key.
    pub secret_key: SecretKey,
    /// Whether that was given, and not made here.
    pub has_given_secret_key: bool,
    /// Whether Postgres is a private one under the data directory, by whomever it was started.
    pub has_private_postgres: bool,
    /// The billing time zone; what the database says, or UTC, if absent.
    pub time_zone: Option<chrono_tz::Tz>,
    /// The billing currency; what the database says, or USD, if absent.
    pub currency: Option<String>,
    /// This gateway's name.
    pub instance: String,
    /// Where the console's files are.
    pub site_dir: PathBuf,
    /// Bounds of the journal.
    pub journal: JournalSettings,
    /// How long holds are kept.
    pub limits: limits::Settings,
    /// Time-outs towards providers.
    pub upstream_timeouts: upstream::Timeouts,
    /// Bounds of the queue.
    pub queue: QueueSettings,
    /// How long answers under way may take when the process is told to stop.
    pub grace: Duration,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Fails on purpose in tests.
    pub after_admission: Option<AfterAdmission>,
}

/// A process that serves.
pub struct Running {
    /// Where the proxy listens.
    pub address: SocketAddr,
    /// Where console, API, health and metrics listen.
    pub admin_address: SocketAddr,
    /// How people reach the console, without a slash at the end.
    pub public_url: String,
    /// The data plane.
    pub gateway: Arc<Gateway>,
    /// The control plane.
    pub control: Arc<Control>,
    /// Postgres, as the console reaches it.
    pub store: Store,
    gateway_store: Store,
    grace: Duration,
    shipper: Shipper,
    serving: TaskTracker,
    closing: Closing,
    faults: mpsc::Receiver<anyhow::Error>,
    background: TaskTracker,
    stop_background: CancellationToken,
    instance: String,
    postgres: Option<EmbeddedPostgres>,
    /// Held until everything is closed.
    data_dir: DataDir,
}

/// Starts everything. When this returns, requests are served.
pub async fn start(settings: Settings) -> anyhow::Result<Running> {
    let (queue_ms, total_ms) = (settings.queue.timeout_ms, settings.upstream_timeouts.total_ms);
    if queue_ms >= total_ms {
        bail!(
            "requests may wait {} s for room but take only {} s altogether; set TOLLGATE_QUEUE_TIMEOUT_SECONDS below \
             TOLLGATE_REQUEST_TIMEOUT_SECONDS",
            queue_ms / 1_000,
            total_ms / 1_000
        );
    }
    health::recorder();
    let random: Arc<dyn Random> = Arc::new(SystemRandom);
    let now = settings.clock.now();
    let secret_key = Arc::new(settings.secret_key);

    // Postgres, its schema, and what the installation agreed on.
    let postgres = match settings.database_url {
        Some(_) => None,
        None => Some(EmbeddedPostgres::start(settings.data_dir.path()).await?),
    };
    let url = settings
        .database_url
        .as_deref()
        .or(postgres.as_ref().map(EmbeddedPostgres::url))
        .unwrap_or_default();
    let store = Store::connect_lazily(url)?;
    // Connections of its own: a console full of reports must not keep policy, budgets or ledger waiting.
    let gateway_store = Store::connect_lazily_with(url, GATEWAY_CONNECTIONS_MAX)?;
    let agreed = Agreed {
        time_zone: settings.time_zone,
        currency: settings.currency,
        secret_key: Arc::clone(&secret_key),
    };
    let has_kept_policy = settings.data_dir.path().join(gateway::KEPT_POLICY_FILE).exists();
    let is_prepared = prepare_database(&store, &agreed, &random, now.wall, has_kept_policy).await?;

    // The journal, and what an earlier run left in it.
    let (journal, _) = Journal::open(
        &settings.data_dir.path().join("journal"),
        &settings.instance,
        settings.journal,
        now.wall,
    )?;
    let abandoned = journal.settle_abandoned(now.wall)?;
    if !abandoned.is_empty() {
        tracing::warn!(
            count = abandoned.len(),
            "requests of an earlier run never ended; they are charged as expected"
        );
    }
    let recovered_seq = journal.status(now.wall).last_seq;
    let shipper = Shipper::with_settings(Arc::clone(&journal), gateway_store.clone(), ShipperSettings::default());
    if is_prepared && let Err(error) = shipper.drain(RECOVERY_WAIT).await {
        tracing::warn!(
            error = chain(&error),
            "the journal is not in Postgres yet; budgets open when it is"
        );
    }

    // Data plane and control plane.
    let setup = Setup {
        has_private_postgres: settings.has_private_postgres,
        data_dir: settings.data_dir.kind(),
        has_given_secret_key: settings.has_given_secret_key,
        public_origin: settings
            .public_url
            .as_ref()
            .map(|url| url.origin().ascii_serialization()),
        request_timeout_ms: settings.upstream_timeouts.total_ms,
    };
    let limits = match &settings.redis {
        Some(redis) => Limits::redis(settings.limits, redis, &settings.instance)?,
        None => Limits::memory(settings.limits),
    };
    let gateway = Gateway::new(Parts {
        instance: settings.instance.clone(),
        data_dir: settings.data_dir.path().to_owned(),
        secret_key: Arc::clone(&secret_key),
        store: gateway_store.clone(),
        journal: Arc::clone(&journal),
        limits,
        client: upstream::Client::new(settings.upstream_timeouts),
        queue: settings.queue,
        setup,
        clock: Arc::clone(&settings.clock),
        random: Arc::clone(&random),
        recovered_seq,
        after_admission: settings.after_admission,
    });
    gateway.start_counters().await;
    gateway.start_policy().await;
    gateway.settle_lost(&abandoned).await;
    let control = Control::new(store.clone(), SecretKey::clone(&secret_key), Arc::clone(&random));
    let control = Arc::new(control.with_live(Arc::new(GatewayFigures(Arc::clone(&gateway)))));

    // What runs beside the requests.
    let (background, stop_background) = (TaskTracker::new(), CancellationToken::new());
    let (fault, faults) = mpsc::channel(1);
    gateway.spawn_background(&background, &stop_background);
    background.spawn(supervise("shipper", {
        let (shipper, stop) = (shipper.clone(), stop_background.clone());
        move || shipper.clone().run(stop.clone())
    }));
    background.spawn(supervise("journal sync", {
        let (journal, stop) = (Arc::clone(&journal), stop_background.clone());
        move || {
            let (journal, stop) = (Arc::clone(&journal), stop.clone());
            async move { journal.keep_synced(&stop).await }
        }
    }));
    let house = Arc::new(House {
        store: store.clone(),
        control: Arc::clone(&control),
        agreed,
        clock: Arc::clone(&settings.clock),
        random: Arc::clone(&random),
        fault: fault.clone(),
        is_prepared: AtomicBool::new(is_prepared),
    });
    let key_warnings = supervise("key warnings", {
        let house = Arc::clone(&house);
        move || Arc::clone(&house).warn_of_ending_keys()
    });
    background.spawn(stop_background.clone().run_until_cancelled_owned(key_warnings));
    let housekeeping = supervise("housekeeping", move || Arc::clone(&house).keep());
    background.spawn(stop_background.clone().run_until_cancelled_owned(housekeeping));

    // The doors.
    let (serving, closing) = (TaskTracker::new(), Closing::default());
    let listener = listen(settings.listen).await?;
    let admin_listener = match settings.admin_listen {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    let address = listener.local_addr()?;
    let admin_address = admin_listener.as_ref().map_or(Ok(address), TcpListener::local_addr)?;
    let public_url = settings
        .public_url
        .map_or_else(|| format!("http://{admin_address}"), |url| url.to_string());
    let public_url = public_url.trim_end_matches('/').to_owned();
    let gateway_url = match settings.gateway_url {
        Some(url) => url.as_str().trim_end_matches('/').to_owned(),
        None if address == admin_address => public_url.clone(),
        None => format!("http://{address}"),
    };
    let connections_max = connections_max();
    tracing::info!(connections_max, "connections at once");
    let console_connections_max = match admin_listener {
        Some(_) => ADMIN_CONNECTIONS_MAX.min(connections_max / 4),
        None => connections_max,
    };
    let console = admin::router(
        AdminState {
            control: Arc::clone(&control),
            now: Utc::now,
            site_dir: settings.site_dir,
            options: AdminState::site_options(),
            public_address: public_url.as_str().into(),
            gateway_address: gateway_url.as_str().into(),
            has_secure_cookies: public_url.starts_with("https://"),
            stopping: closing.stop.clone(),
            live_streams_max: console_connections_max / 2,
        },
        Sessions::new(store.clone(), SecretKey::clone(&secret_key), Arc::clone(&random)),
    );
    let console = console.merge(control::api::router(Arc::clone(&control), Utc::now));
    let proxy = gateway::router(Arc::clone(&gateway));
    let probes = health::probes(Arc::clone(&gateway));
    let metrics = health::metrics(Arc::clone(&gateway));
    let open = |name, listener, router, connections_max| {
        let door = DoorSettings {
            connections_max,
            idle: Duration::from_millis(IDLE_MS),
            trusted_proxies: settings.trusted_proxies.clone(),
        };
        let door = serve(listener, router, door, closing.clone());
        serving.spawn(keep_open(name, door, closing.stop.clone(), fault.clone()));
    };
    match admin_listener {
        Some(admin_listener) => {
            open(
                "proxy",
                listener,
                proxy.merge(probes.clone()),
                connections_max - console_connections_max,
            );
            open(
                "console",
                admin_listener,
                console.merge(probes).merge(metrics),
                console_connections_max,
            );
        }
        None => open(
            "proxy and console",
            listener,
            console.merge(proxy).merge(probes).merge(metrics),
            connections_max,
        ),
    }
    Ok(Running {
        address,
        admin_address,
        public_url,
        gateway,
        control,
        store,
        gateway_store,
        grace: settings.grace,
        shipper,
        serving,
        closing,
        faults,
        background,
        stop_background,
        instance: settings.instance,
        postgres,
        data_dir: settings.data_dir,
    })
}

impl Running {
    /// Waits until the process cannot go on, and says why.
    pub async fn fault(&mut self) -> anyhow::Error {
        match self.faults.recv().await {
            Some(fault) => fault,
            // Nobody is left to find a fault.
            None => std::future::pending().await,
        }
    }

    /// Stops in good order: no new connections, answers under way finished within the grace period and broken off after
    /// it, everything journalled and shipped as far as Postgres lets. Every step has a bound. Dropped instead, the private
    /// Postgres is ended at once and the rest is the next start's.
    pub async fn stop(self) {
        self.closing.stop.cancel();
        self.gateway.stop_jobs();
        self.serving.close();
        let mut answers = pin!(async {
            self.serving.wait().await;
            self.gateway.finish().await;
        });
        if timeout(self.grace, &mut answers).await.is_err() {
            tracing::warn!(
                in_flight = self.gateway.in_flight(),
                "the grace period is over; answers under way are broken off"
            );
            self.gateway.end_answers();
            // What is left then has a caller that does not read, or was never sent upstream.
            if timeout(FAREWELL_WAIT, &mut answers).await.is_err() {
                self.closing.end.cancel();
                if timeout(FAREWELL_WAIT, &mut answers).await.is_err() {
                    tracing::warn!(
                        in_flight = self.gateway.in_flight(),
                        "the next start books what is still under way as abandoned"
                    );
                }
            }
        }
        self.gateway.book_folded();
        self.gateway.leave_counters().await;
        self.stop_background.cancel();
        self.background.close();
        self.background.wait().await;
        if let Err(error) = self.shipper.drain(LAST_SHIPMENT_WAIT).await {
            tracing::warn!(error = chain(&error), "the journal keeps what Postgres did not take");
        }
        // Whether the row is removed or goes stale makes no difference to anyone but readers of the status page.
        let _ = self.store.remove_instance(&self.instance).await;
        let closed = async { tokio::join!(self.store.close(), self.gateway_store.close()) };
        if timeout(CLOSE_WAIT, closed).await.is_err() {
            tracing::warn!("connections to Postgres did not close in time");
        }
        if let Some(postgres) = self.postgres {
            postgres.stop().await;
        }
        drop(self.data_dir);
    }
}

/// A process whose door has fallen shut by itself serves nobody, and had better be started again.
async fn keep_open(
    name: &'static str,
    door: impl Future<Output = ()>,
    stop: CancellationToken,
    fault: mpsc::Sender<anyhow::Error>,
) {
    let panicked = AssertUnwindSafe(door).catch_unwind().await.is_err();
    if panicked || !stop.is_cancelled() {
        // A full channel tells of a fault already.
        let _ = fault.try_send(anyhow!("no more connections are accepted for {name}"));
    }
}

/// What every process on one database agrees on.
struct Agreed {
    time_zone: Option<chrono_tz::Tz>,
    currency: Option<String>,
    secret_key: Arc<SecretKey>,
}

/// Migrates, and compares what this process was told with what the database says. False when Postgres is away and a
/// kept policy lets the process serve all the same.
async fn prepare_database(
    store: &Store,
    agreed: &Agreed,
    random: &Arc<dyn Random>,
    now: chrono::DateTime<Utc>,
    has_kept_policy: bool,
) -> anyhow::Result<bool> {
    let started = tokio::time::Instant::now();
    loop {
        match try_prepare_database(store, agreed, random, now).await {
            Ok(()) => return Ok(true),
            Err(PrepareError::Store(error)) if error.is_transient() => {
                if has_kept_policy {
                    tracing::warn!(error = chain(&error), "Postgres is away; serving from the kept policy");
                    return Ok(false);
                }
                if started.elapsed() > DATABASE_WAIT {
                    return Err(error).context("Postgres did not answer; check DATABASE_URL and that it is running");
                }
                tracing::warn!(error = chain(&error), "waiting for Postgres");
                sleep(DATABASE_RETRY).await;
            }
            Err(PrepareError::Store(error)) => return Err(error.into()),
            Err(PrepareError::Disagreement(error)) => return Err(error),
        }
    }
}

enum PrepareError {
    Store(StoreError),
    Disagreement(anyhow::Error),
}

impl From<StoreError> for PrepareError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

async fn try_prepare_database(
    store: &Store,
    agreed: &Agreed,
    random: &Arc<dyn Random>,
    now: chrono::DateTime<Utc>,
) -> Result<(), PrepareError> {
    store.ping().await?;
    store.migrate().await?;
    store.ensure_partitions(now).await?;
    let settings = PolicySettings {
        time_zone: agreed.time_zone.unwrap_or(chrono_tz::UTC),
        currency: agreed.currency.clone().unwrap_or_else(|| "USD".to_owned()),
        unpriced: Unpriced::Refuse,
        rehearsal_percent: None,
    };
    let is_code = settings.currency.len() == 3 && settings.currency.bytes().all(|byte| byte.is_ascii_uppercase());
    if !is_code {
        return Err(PrepareError::Disagreement(anyhow::anyhow!(
            "TOLLGATE_CURRENCY is a code of three capital letters such as USD or EUR"
        )));
    }
    if store.find_settings().await?.is_none() {
        let control = Control::new(store.clone(), SecretKey::clone(&agreed.secret_key), Arc::clone(random));
        match control.create_settings(&FIRST_START, &settings, now).await {
            Ok(()) => {}
            Err(ControlError::Unavailable(error)) => return Err(PrepareError::Store(error)),
            Err(error) => return Err(PrepareError::Disagreement(error.into())),
        }
    }
    let Some(stored) = store.find_settings().await? else {
        return Ok(());
    };
    compare(agreed, &stored).map_err(PrepareError::Disagreement)?;
    store.prepare_calendar(stored.settings.time_zone).await?;
    Ok(())
}

fn compare(agreed: &Agreed, stored: &store::settings::StoredSettings) -> anyhow::Result<()> {
    if !agreed.secret_key.matches_check(&stored.secret_key_check) {
        bail!(
            "this database was started with another secret key, so its provider credentials cannot be opened; give that \
             key in TOLLGATE_SECRET_KEY, or the data directory that holds it"
        );
    }
    if let Some(zone) = agreed.time_zone
        && zone != stored.settings.time_zone
    {
        bail!(
            "TOLLGATE_TIME_ZONE is {zone}, but this database bills in {}; the zone is fixed at first start",
            stored.settings.time_zone
        );
    }
    if let Some(currency) = &agreed.currency
        && *currency != stored.settings.currency
    {
        bail!(
            "TOLLGATE_CURRENCY is {currency}, but this database bills in {}; the currency is fixed at first start",
            stored.settings.currency
        );
    }
    Ok(())
}

/// Makes partitions ahead, drops months that are not kept any more, and deletes sessions and links that have ended. Where the process started without Postgres,
/// prepares the database once it is back.
struct House {
    store: Store,
    control: Arc<Control>,
    agreed: Agreed,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    fault: mpsc::Sender<anyhow::Error>,
    is_prepared: AtomicBool,
}

impl House {
    async fn keep(self: Arc<Self>) {
        loop {
            let pause = if self.is_prepared.load(Ordering::Relaxed) {
                self.tidy_up().await;
                HOUSEKEEPING_INTERVAL
            } else {
                self.prepare().await;
                DATABASE_RETRY
            };
            sleep(pause).await;
        }
    }

    /// Postgres away is noticed and logged by whoever reads the policy.
    async fn warn_of_ending_keys(self: Arc<Self>) {
        loop {
            if self.is_prepared.load(Ordering::Relaxed) {
                let told = self.control.warn_of_ending_keys(self.clock.now().wall).await;
                if let Err(error) = told {
                    tracing::debug!(
                        error = chain(&error),
                        "ends of keys cannot be told of; it is tried again"
                    );
                }
            }
            sleep(KEY_WARNINGS_INTERVAL).await;
        }
    }

    async fn prepare(&self) {
        let now = self.clock.now().wall;
        match try_prepare_database(&self.store, &self.agreed, &self.random, now).await {
            Ok(()) => {
                self.is_prepared.store(true, Ordering::Relaxed);
                tracing::info!("Postgres is back, and the database is as it should be");
            }
            Err(PrepareError::Store(error)) if error.is_transient() => {}
            Err(PrepareError::Store(error)) => {
                tracing::error!(error = chain(&error), "the database cannot be used; it is tried again");
            }
            // Whoever serves on would bill in another zone or currency, or seal under another key, than the others.
            Err(PrepareError::Disagreement(error)) => {
                let _ = self.fault.try_send(error);
            }
        }
    }

    async fn tidy_up(&self) {
        let now = self.clock.now().wall;
        let done = async {
            self.store.ensure_partitions(now).await?;
            while self.control.delete_expired(now).await? > 0 {}
            // What is dropped does not come back: not by a clock that nobody else has.
            let elsewhere = self.store.now().await?;
            if (now - elsewhere).abs() > chrono::Duration::hours(CLOCKS_APART_HOURS_MAX) {
                tracing::error!(%now, %elsewhere, "this clock and Postgres's are far apart; old entries stay");
            } else {
                self.control.tend_ledger(now).await?;
            }
            anyhow::Ok(())
        };
        if let Err(error) = done.await {
            tracing::warn!(error = format!("{error:#}"), "housekeeping failed; it is tried again");
        }
    }
}

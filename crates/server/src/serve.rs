//! `tollgate serve` and `tollgate migrate`.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context as _, bail};
use chrono::Utc;
use control::management_tokens::Adopted;
use domain::management_tokens::{TokenText, masked};
use gateway::clock::SystemClock;
use store::{Store, StoreError};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

use crate::config::{DatabaseArgs, ServeArgs};
use crate::data_dir::DataDir;
use crate::embedded_postgres::{self, EmbeddedPostgres};
use crate::site;
use crate::wiring::{self, Running, Settings};

/// How long a start waits for the set-up link, and for a token to be adopted.
const SETUP_LINK_WAIT: Duration = Duration::from_secs(5);

/// Serves until told to stop.
pub async fn serve(args: ServeArgs) -> anyhow::Result<()> {
    let mut signals = Signals::install()?;
    let (redis, queue, upstream_timeouts) = (args.redis(), args.queue(), args.upstream_timeouts());
    let journal = args.journal();
    let bootstrap_token = args.bootstrap_token()?;
    let data_dir = DataDir::open(&args.database.data_dir)?;
    let settings = Settings {
        listen: args.listen,
        admin_listen: args.admin_listen,
        public_url: args.public_url,
        gateway_url: args.gateway_url,
        trusted_proxies: args.trusted_proxies.unwrap_or_default(),
        has_private_postgres: args.database.database_url.is_none(),
        has_given_secret_key: args.secret_key.is_some(),
        database_url: args.database.database_url,
        secret_key: data_dir.secret_key(args.secret_key.as_deref())?,
        time_zone: args.time_zone,
        currency: args.currency,
        instance: data_dir.instance(args.instance.as_deref())?,
        data_dir,
        site_dir: site::directory(args.site_dir),
        journal,
        redis,
        limits: limits::Settings::default(),
        upstream_timeouts,
        queue,
        grace: Duration::from_secs(args.grace_seconds),
        clock: std::sync::Arc::new(SystemClock::start()),
        after_admission: None,
    };
    let mut running = signals.unless_told(wiring::start(settings)).await?;
    eprintln!("Tollgate serves on http://{}", running.address);
    eprintln!("Console: {}", running.public_url);
    if let Some(token) = &bootstrap_token
        && let Some(said) = adopt(&running, token).await?
    {
        eprintln!("{said}");
    }
    if let Some(link) = setup_link(&running).await? {
        eprintln!("Nobody can sign in yet. Open this link within a day to create the first operator:\n  {link}");
    }
    let outcome = until_told(&mut running, &mut signals).await;
    signals.unless_told_again(running.stop()).await?;
    outcome
}

/// Brings the schema up to date, and stops.
pub async fn migrate(args: DatabaseArgs) -> anyhow::Result<()> {
    let migrating = async {
        let open = OpenStore::open(&args).await?;
        let migrated = open.store.migrate().await;
        open.close().await;
        Ok(migrated?)
    };
    Signals::install()?.unless_told(migrating).await?;
    eprintln!("The database schema is up to date.");
    Ok(())
}

/// Postgres for a command that does one thing: the one given, or the private one while no gateway runs on it.
pub(crate) struct OpenStore {
    pub(crate) store: Store,
    private: Option<(EmbeddedPostgres, DataDir)>,
}

impl OpenStore {
    pub(crate) async fn open(args: &DatabaseArgs) -> anyhow::Result<Self> {
        match &args.database_url {
            Some(url) => Ok(Self::of_others(Store::connect_lazily(url)?)),
            None => Self::private(DataDir::open(&args.data_dir)?, Store::connect_lazily).await,
        }
    }

    /// The same for a command that only looks: of the private one also while a gateway runs on it.
    pub(crate) async fn open_to_look(args: &DatabaseArgs) -> anyhow::Result<Self> {
        if let Some(url) = &args.database_url {
            return Ok(Self::of_others(Store::connect_read_only(url)?));
        }
        if let Some(data_dir) = DataDir::open_if_free(&args.data_dir)? {
            return Self::private(data_dir, Store::connect_read_only).await;
        }
        let Some(url) = embedded_postgres::running_url(&args.data_dir).await? else {
            bail!(
                "the data directory {} is in use by a Tollgate, and no private Postgres runs there: say with DATABASE_URL \
                 which one that Tollgate uses, or wait until it has started",
                args.data_dir.display()
            );
        };
        Ok(Self::of_others(Store::connect_read_only(&url)?))
    }

    fn of_others(store: Store) -> Self {
        Self { store, private: None }
    }

    async fn private(
        data_dir: DataDir,
        connect: impl FnOnce(&str) -> Result<Store, StoreError>,
    ) -> anyhow::Result<Self> {
        let postgres = EmbeddedPostgres::start(data_dir.path()).await?;
        Ok(Self {
            store: connect(postgres.url())?,
            private: Some((postgres, data_dir)),
        })
    }

    pub(crate) async fn close(self) {
        self.store.close().await;
        if let Some((postgres, data_dir)) = self.private {
            postgres.stop().await;
            drop(data_dir);
        }
    }
}

/// The one-time link for the first operator, while there is none.
async fn setup_link(running: &Running) -> anyhow::Result<Option<String>> {
    let made = timeout(SETUP_LINK_WAIT, running.control.create_setup_link(Utc::now())).await;
    match made {
        Ok(Ok(token)) => Ok(token.map(|token| format!("{}/setup?token={}", running.public_url, token.reveal()))),
        // The next start makes it, once there is a database.
        Ok(Err(control::ControlError::Unavailable(_))) | Err(_) => Ok(None),
        Ok(Err(error)) => Err(error).context("the set-up link cannot be made"),
    }
}

/// Adopts the token for automation; what there is to say of it.
async fn adopt(running: &Running, token: &TokenText) -> anyhow::Result<Option<String>> {
    let name = masked(token.public_id());
    let adopted = timeout(
        SETUP_LINK_WAIT,
        running.control.adopt_management_token(token, Utc::now()),
    )
    .await;
    match adopted {
        Ok(Ok(Adopted::Now(until))) => Ok(Some(format!(
            "The management token {name} is adopted. It may do everything, until {}.",
            until.format("%F %R UTC")
        ))),
        Ok(Ok(Adopted::Before)) => Ok(None),
        Ok(Ok(Adopted::Refused)) => Ok(Some(format!(
            "The management token {name} of TOLLGATE_BOOTSTRAP_TOKEN means nothing: others were issued before."
        ))),
        Ok(Err(control::ControlError::Unavailable(_))) | Err(_) => Ok(Some(format!(
            "The management token {name} is not adopted: the database cannot be reached. The next start does it."
        ))),
        Ok(Err(error)) => Err(error).context("the token of TOLLGATE_BOOTSTRAP_TOKEN cannot be adopted"),
    }
}

/// SIGTERM and Ctrl-C, caught from the first moment on: the private Postgres runs in a process group of its own, and
/// whoever just dies leaves it behind.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Catches them.
    pub(crate) fn install() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("SIGTERM cannot be caught")?,
            interrupt: signal(SignalKind::interrupt()).context("Ctrl-C cannot be caught")?,
        })
    }

    /// Returns at the next one.
    pub(crate) async fn told(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Does the work unless told to stop before it is done; then what it has opened is closed by being dropped.
    pub(crate) async fn unless_told<T>(&mut self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        tokio::select! {
            done = work => done,
            () = self.told() => bail!("told to stop before it was done"),
        }
    }

    /// Stops in good order unless told so once more. Dropped, what stops ends at once, the private Postgres too.
    pub(crate) async fn unless_told_again(&mut self, stopping: impl Future<Output = ()>) -> anyhow::Result<()> {
        tokio::select! {
            () = stopping => Ok(()),
            () = self.told() => bail!("stopped at once; the next start books what was under way as abandoned"),
        }
    }
}

/// Waits until the process is told to stop, or cannot go on and says why.
pub(crate) async fn until_told(running: &mut Running, signals: &mut Signals) -> anyhow::Result<()> {
    let outcome = tokio::select! {
        () = signals.told() => Ok(()),
        fault = running.fault() => Err(fault),
    };
    eprintln!("Stopping: answers under way are finished first. Once more to stop at once.");
    outcome
}

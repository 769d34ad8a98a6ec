//! `tollgate serve` and `tollgate migrate`.

use std::time::Duration;

use anyhow::Context as _;
use chrono::Utc;
use gateway::clock::SystemClock;
use ledger::JournalSettings;
use store::Store;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::{DatabaseArgs, ServeArgs};
use crate::data_dir::DataDir;
use crate::embedded_postgres::EmbeddedPostgres;
use crate::site;
use crate::wiring::{self, Running, Settings};

/// Serves until told to stop.
pub async fn serve(args: ServeArgs) -> anyhow::Result<()> {
    let data_dir = DataDir::open(&args.database.data_dir)?;
    let settings = Settings {
        listen: args.listen,
        admin_listen: args.admin_listen,
        public_url: args.public_url,
        gateway_url: args.gateway_url,
        database_url: args.database.database_url,
        secret_key: data_dir.secret_key(args.secret_key.as_deref())?,
        time_zone: args.time_zone,
        currency: args.currency,
        instance: data_dir.instance(args.instance.as_deref())?,
        data_dir,
        site_dir: site::directory(args.site_dir),
        journal: JournalSettings {
            fsync: args.journal_fsync,
            bytes_max: args.journal_mib_max << 20,
            ..JournalSettings::default()
        },
        upstream_timeouts: upstream::Timeouts::default(),
        grace: Duration::from_secs(args.grace_seconds),
        clock: std::sync::Arc::new(SystemClock::start()),
        after_admission: None,
    };
    let running = wiring::start(settings).await?;
    eprintln!("Tollgate serves on http://{}", running.address);
    eprintln!("Console: {}", running.public_url);
    if let Some(link) = setup_link(&running).await? {
        eprintln!("Nobody can sign in yet. Open this link within a day to create the first operator:\n  {link}");
    }
    until_told_to_stop().await?;
    running.stop().await;
    Ok(())
}

/// Brings the schema up to date, and stops.
pub async fn migrate(args: DatabaseArgs) -> anyhow::Result<()> {
    let open = OpenStore::open(&args).await?;
    let migrated = open.store.migrate().await;
    open.close().await;
    migrated?;
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
        if let Some(url) = &args.database_url {
            return Ok(Self {
                store: Store::connect_lazily(url)?,
                private: None,
            });
        }
        let data_dir = DataDir::open(&args.data_dir)?;
        let postgres = EmbeddedPostgres::start(data_dir.path()).await?;
        Ok(Self {
            store: Store::connect_lazily(postgres.url())?,
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
    match running.control.create_setup_link(Utc::now()).await {
        Ok(token) => Ok(token.map(|token| format!("{}/setup?token={}", running.public_url, token.reveal()))),
        Err(control::ControlError::Unavailable(_)) => Ok(None),
        Err(error) => Err(error).context("the set-up link cannot be made"),
    }
}

/// Returns at the first SIGTERM or Ctrl-C. A second one ends the process at once.
pub(crate) async fn until_told_to_stop() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    eprintln!("Stopping: answers under way are finished first. Once more to stop at once.");
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        std::process::exit(130);
    });
    Ok(())
}

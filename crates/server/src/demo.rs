//! `tollgate demo`: a made-up organisation with a month and a half behind it, light live traffic, and a provider made of
//! nothing. Everything else is the real product.

mod history;
mod organisation;
mod traffic;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use chrono::Utc;
use control::{Actor, Control};
use gateway::QueueSettings;
use gateway::clock::SystemClock;
use ledger::JournalSettings;
use serde::{Deserialize, Serialize};
use simulator::{Behaviour, Simulator, SimulatorConfig};
use store::Store;
use store::random::SystemRandom;
use tokio_util::sync::CancellationToken;

use crate::config::DemoArgs;
use crate::data_dir::DataDir;
use crate::embedded_postgres::EmbeddedPostgres;
use crate::serve::{Signals, until_told};
use crate::site;
use crate::wiring::{self, Running, Settings};

/// The operator's sign-in. Printed at each start: this is a demo, bound to this machine.
const OPERATOR_EMAIL: &str = "operator@example.com";
/// A member's sign-in.
const MEMBER_EMAIL: &str = "mira@example.com";
const PASSWORD: &str = "demo-password";
/// What the simulated provider wants to be told.
const CREDENTIAL: &str = "demo-provider-credential";
/// What the demo remembers; there once its first start is finished.
const MEMORY_FILE: &str = "demo.json";
/// There while its first start is under way, and after one that was interrupted.
const UNFINISHED_FILE: &str = "demo-unfinished";
const TIME_ZONE: chrono_tz::Tz = chrono_tz::Europe::Berlin;

/// What the demo remembers from its first start, in the data directory with mode 0600.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Memory {
    /// The key of the printed `curl`.
    example_key: String,
    /// The keys that live traffic comes from.
    traffic_keys: Vec<String>,
}

/// Runs the demo until told to stop.
pub async fn demo(args: DemoArgs) -> anyhow::Result<()> {
    let mut signals = Signals::install()?;
    let data_dir = DataDir::open(&args.data_dir)?;
    eprintln!(
        "Starting the demo in {} (delete it to start over) ...",
        data_dir.path().display()
    );
    let simulator = Simulator::start(SimulatorConfig {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        credential: Some(CREDENTIAL.to_owned()),
        behaviour: Behaviour {
            first_byte_ms: 250,
            chunk_ms: 20,
            ..Behaviour::default()
        },
        caches_prompts: true,
        ..SimulatorConfig::default()
    })
    .await
    .context("the simulated provider cannot listen")?;

    // The database is prepared before the gateway starts, so that its first policy has everything. Whoever is told to stop
    // meanwhile drops Postgres, which ends it.
    let preparing = async {
        let postgres = start_postgres(&data_dir).await?;
        let memory = prepare(&data_dir, postgres.url(), &simulator).await?;
        anyhow::Ok((postgres, memory))
    };
    let (postgres, memory) = signals.unless_told(preparing).await?;
    let starting = wiring::start(Settings {
        listen: args.listen,
        admin_listen: None,
        public_url: None,
        gateway_url: None,
        trusted_proxies: crate::trusted_proxies::TrustedProxies::default(),
        database_url: Some(postgres.url().to_owned()),
        secret_key: data_dir.secret_key(None)?,
        has_given_secret_key: false,
        has_private_postgres: true,
        time_zone: Some(TIME_ZONE),
        currency: None,
        instance: data_dir.instance(None)?,
        data_dir,
        site_dir: site::directory(args.site_dir),
        journal: JournalSettings::default(),
        redis: None,
        limits: limits::Settings::default(),
        upstream_timeouts: upstream::Timeouts::default(),
        queue: QueueSettings::default(),
        grace: Duration::from_secs(5),
        clock: Arc::new(SystemClock::start()),
        after_admission: None,
    });
    let mut running = signals.unless_told(starting).await?;
    eprintln!("Tollgate serves on http://{}", running.address);
    print_welcome(&running, &memory);

    let stop_traffic = CancellationToken::new();
    let traffic = (!args.quiet).then(|| {
        tokio::spawn(traffic::run(
            running.address,
            memory.traffic_keys.clone(),
            stop_traffic.clone(),
        ))
    });
    let outcome = until_told(&mut running, &mut signals).await;
    let stopping = async move {
        stop_traffic.cancel();
        if let Some(traffic) = traffic {
            // It ends at its next step; its requests are finished by the gateway's own stop.
            let _ = traffic.await;
        }
        running.stop().await;
        simulator.stop().await;
        postgres.stop().await;
    };
    signals.unless_told_again(stopping).await?;
    outcome
}

/// Starts Postgres. What a first start that was interrupted has left is thrown away, as half an organisation is of no use;
/// anybody else's database is left alone.
async fn start_postgres(data_dir: &DataDir) -> anyhow::Result<EmbeddedPostgres> {
    let cluster = data_dir.path().join("postgres");
    let unfinished = data_dir.path().join(UNFINISHED_FILE);
    let is_made = data_dir.path().join(MEMORY_FILE).exists();
    if !is_made && cluster.exists() {
        if !unfinished.exists() {
            bail!(
                "{} holds a database that is not the demo's; choose another directory with --data-dir",
                data_dir.path().display()
            );
        }
        // Starting it ends a server that was left behind on it.
        EmbeddedPostgres::start(data_dir.path()).await?.stop().await;
        std::fs::remove_dir_all(&cluster).with_context(|| format!("{} cannot be removed", cluster.display()))?;
    }
    if !is_made {
        std::fs::write(&unfinished, "").with_context(|| format!("{} cannot be written", unfinished.display()))?;
    }
    Ok(EmbeddedPostgres::start(data_dir.path()).await?)
}

/// Brings schema, organisation and history into the database, the first time; points the upstream at today's simulator.
async fn prepare(data_dir: &DataDir, url: &str, simulator: &Simulator) -> anyhow::Result<Memory> {
    let now = Utc::now();
    let store = Store::connect_lazily(url)?;
    let secret_key = data_dir.secret_key(None)?;
    store.migrate().await?;
    let settings = domain::policy::Settings {
        time_zone: TIME_ZONE,
        currency: "USD".to_owned(),
        unpriced: domain::prices::Unpriced::Refuse,
        rehearsal_percent: None,
    };
    let control = Control::new(store.clone(), secret_key, Arc::new(SystemRandom));
    control
        .create_settings(&Actor::System { name: "demo" }, &settings, now)
        .await?;
    let path = data_dir.path().join(MEMORY_FILE);
    let memory = match read_memory(&path)? {
        Some(memory) => {
            organisation::point_upstream_at(&control, &simulator.base_url(), now).await?;
            memory
        }
        None => {
            eprintln!("First start: making a made-up organisation with a month and a half of history ...");
            let made = organisation::create(&control, &simulator.base_url(), now).await?;
            history::create(&store, &made, now).await?;
            write_memory(&path, &made.memory)?;
            // With the memory there, it means nothing any more.
            let _ = std::fs::remove_file(data_dir.path().join(UNFINISHED_FILE));
            made.memory
        }
    };
    store.close().await;
    Ok(memory)
}

fn read_memory(path: &Path) -> anyhow::Result<Option<Memory>> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).with_context(|| {
            format!(
                "{} cannot be read; delete the demo's data directory to start over",
                path.display()
            )
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
    }
}

fn write_memory(path: &Path, memory: &Memory) -> anyhow::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    // It is there whole or not at all: its presence says that the first start was finished.
    let temporary = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .with_context(|| format!("{} cannot be written", temporary.display()))?;
    file.write_all(&serde_json::to_vec_pretty(memory)?)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path).with_context(|| format!("{} cannot be written", path.display()))
}

fn print_welcome(running: &Running, memory: &Memory) {
    let address = running.address;
    println!(
        r#"
Tollgate is running.

  Console   {url}
  Operator  {OPERATOR_EMAIL}   password: {PASSWORD}
  Member    {MEMBER_EMAIL}   password: {PASSWORD}

  Try a request:

curl http://{address}/v1/chat/completions \
  -H "Authorization: Bearer {key}" \
  -H "Content-Type: application/json" \
  -d '{{"model": "sim-small", "messages": [{{"role": "user", "content": "Say hello."}}]}}'

Stop with Ctrl-C. The next start finds everything as it was."#,
        url = running.public_url,
        key = memory.example_key,
    );
}

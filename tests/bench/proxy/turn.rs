//! One proxy's turn: begun anew, every load in turn, and what was seen.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum;
use tempfile::TempDir;
use test_support::speed::callers::{Calls, Identity, call, introduce};
use test_support::speed::processes::{Memory, cpu_time, memory, own_cpu_time};
use test_support::speed::upstream::Upstream;

use crate::house::{Counters, Furnishing, Tollgate};
use crate::loads::{Load, Loads, Prepared};
use crate::nginx::Nginx;

/// Before each load is measured it goes on for so long.
const WARM_UP: Duration = Duration::from_secs(1);
/// How long each key may take until it is served: its budgets are opened at its first request.
const OPENING_WAIT: Duration = Duration::from_secs(30);

/// What stands between callers and upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Proxy {
    /// Nothing.
    Direct,
    /// nginx as a plain reverse proxy.
    Nginx,
    /// Tollgate with its counters in memory.
    Memory,
    /// Tollgate with its counters in Redis.
    Redis,
}

impl Proxy {
    /// The table's column.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx",
            Self::Memory => "memory",
            Self::Redis => "Redis",
        }
    }
}

/// Processor time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    /// The proxy's.
    pub(crate) proxy: Duration,
    pub(crate) redis: Duration,
    pub(crate) postgres: Duration,
    /// Callers' and upstream's.
    pub(crate) bench: Duration,
}

impl Spent {
    fn since(self, before: Self) -> Self {
        Self {
            proxy: self.proxy.saturating_sub(before.proxy),
            redis: self.redis.saturating_sub(before.redis),
            postgres: self.postgres.saturating_sub(before.postgres),
            bench: self.bench.saturating_sub(before.bench),
        }
    }
}

/// What one load has shown.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) calls: Calls,
    /// Until the last answer.
    pub(crate) under_load: Spent,
    /// Until everything was in the ledger.
    pub(crate) in_all: Spent,
    /// How long that took after the last answer.
    pub(crate) caught_up: Duration,
    /// The proxy's memory at the last answer; none of no proxy.
    pub(crate) memory: Option<Memory>,
}

/// What one proxy has shown in one round.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) proxy: Proxy,
    /// Its memory before the first request.
    pub(crate) idle: Option<Memory>,
    pub(crate) loads: BTreeMap<Load, Measured>,
}

impl Turn {
    /// Starts it, has it asked everything, and stops it.
    pub(crate) async fn of(
        proxy: Proxy,
        upstream: &Upstream,
        loads: &Loads,
        furnishing: &Furnishing,
        duration: Duration,
    ) -> anyhow::Result<Self> {
        let standing = Standing::start(proxy, upstream.address(), furnishing).await?;
        let mut turn = Self {
            proxy,
            idle: standing.memory()?,
            loads: BTreeMap::new(),
        };
        let first = loads.first()?;
        upstream.answer(first.script.clone());
        let identities = standing.identities();
        let mut answered = introduce(standing.address(), &identities, &first.question, OPENING_WAIT).await?;
        for prepared in loads.all() {
            let title = prepared.load.title();
            upstream.answer(prepared.script.clone());
            let measured = measure(&standing, &identities, prepared, duration, &mut answered).await;
            let measured = measured.with_context(|| title.to_owned())?;
            eprintln!("  {title}: {}", measured.said());
            turn.loads.insert(prepared.load, measured);
        }
        standing.stop(answered).await?;
        Ok(turn)
    }
}

impl Measured {
    /// In a line, while it goes on.
    fn said(&self) -> String {
        let (whole, count) = (&self.calls.whole, self.calls.count());
        format!(
            "{count} requests, {:.0} a second, p50 {:.0?}, p99 {:.0?}; processor {:.2?} for the proxy, {:.2?} Redis, {:.2?} \
             Postgres, {:.2?} callers and upstream; ledger after {:.1?}",
            self.calls.per_second(),
            whole.percentile(50.0),
            whole.percentile(99.0),
            self.in_all.proxy,
            self.in_all.redis,
            self.in_all.postgres,
            self.in_all.bench,
            self.caught_up,
        )
    }
}

async fn measure(
    standing: &Standing,
    identities: &[Identity],
    prepared: &Prepared,
    duration: Duration,
    answered: &mut u64,
) -> anyhow::Result<Measured> {
    let (question, concurrency) = (&prepared.question, prepared.load.concurrency());
    let warm_up = call(standing.address(), identities, question, concurrency, WARM_UP).await?;
    standing.catch_up().await?;
    let before = standing.spent()?;
    let calls = call(standing.address(), identities, question, concurrency, duration).await?;
    let under_load = standing.spent()?.since(before);
    let memory = standing.memory()?;
    let caught_up = standing.catch_up().await?;
    *answered += warm_up.count() + calls.count();
    Ok(Measured {
        calls,
        under_load,
        in_all: standing.spent()?.since(before),
        caught_up,
        memory,
    })
}

/// What is asked, with the folder of its files, which goes last.
enum Standing {
    Direct(SocketAddr),
    Nginx(Nginx, TempDir),
    Tollgate(Box<Tollgate>, TempDir),
}

impl Standing {
    async fn start(proxy: Proxy, upstream: SocketAddr, furnishing: &Furnishing) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("tollgate-bench-").tempdir()?;
        let counters = match proxy {
            Proxy::Direct => return Ok(Self::Direct(upstream)),
            Proxy::Nginx => {
                let nginx = Nginx::start(folder.path(), upstream).await?;
                return Ok(Self::Nginx(nginx, folder));
            }
            Proxy::Memory => Counters::Memory,
            Proxy::Redis => Counters::Redis,
        };
        let tollgate = Tollgate::start(folder.path(), upstream, counters, furnishing).await?;
        Ok(Self::Tollgate(Box::new(tollgate), folder))
    }

    fn address(&self) -> SocketAddr {
        match self {
            Self::Direct(upstream) => *upstream,
            Self::Nginx(nginx, _) => nginx.address,
            Self::Tollgate(tollgate, _) => tollgate.address,
        }
    }

    /// Who asks. Where nobody looks at the key, one of the same length.
    fn identities(&self) -> Vec<Identity> {
        match self {
            Self::Direct(_) | Self::Nginx(..) => vec![Identity {
                key: format!("sk-tg-{}", "0".repeat(60)),
                user: "user-0".into(),
            }],
            Self::Tollgate(tollgate, _) => tollgate.identities.clone(),
        }
    }

    fn process_id(&self) -> Option<u32> {
        match self {
            Self::Direct(_) => None,
            Self::Nginx(nginx, _) => Some(nginx.process.id()),
            Self::Tollgate(tollgate, _) => Some(tollgate.process.id()),
        }
    }

    fn memory(&self) -> anyhow::Result<Option<Memory>> {
        self.process_id().map(memory).transpose()
    }

    fn spent(&self) -> anyhow::Result<Spent> {
        let of = |id: Option<u32>| id.map_or(Ok(Duration::ZERO), cpu_time);
        let (redis_id, postgres_id) = match self {
            Self::Direct(_) | Self::Nginx(..) => (None, None),
            Self::Tollgate(tollgate, _) => (tollgate.redis_id(), Some(tollgate.postgres_id())),
        };
        Ok(Spent {
            proxy: of(self.process_id())?,
            redis: of(redis_id)?,
            postgres: of(postgres_id)?,
            bench: own_cpu_time()?,
        })
    }

    async fn catch_up(&self) -> anyhow::Result<Duration> {
        match self {
            Self::Direct(_) | Self::Nginx(..) => Ok(Duration::ZERO),
            Self::Tollgate(tollgate, _) => tollgate.catch_up().await,
        }
    }

    async fn stop(self, answered: u64) -> anyhow::Result<()> {
        match self {
            Self::Direct(_) => Ok(()),
            Self::Nginx(nginx, _folder) => nginx.process.stop().await.context("nginx"),
            Self::Tollgate(tollgate, _folder) => tollgate.stop(answered).await,
        }
    }
}

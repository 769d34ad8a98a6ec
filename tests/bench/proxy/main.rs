//! What a request costs on its way through Tollgate with everything on, beside nginx as a plain reverse proxy.
//!
//! `cargo xtask bench proxy` builds the program and this in release and runs it. One processor is the proxy's alone; on
//! another are callers, upstream, Postgres and Redis. Each round begins every proxy anew, one after the other, so that what
//! is compared was measured within minutes. The upstream says what the simulator has said, and a round without any proxy
//! tells how much it could take. Processor time is what the system says of a proxy's process and all below it, from the first
//! request until everything is in the ledger.

mod house;
mod loads;
mod nginx;
mod pinned;
mod report;
mod turn;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Parser, ValueEnum as _};
use test_support::speed::upstream::Upstream;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use house::Furnishing;
use loads::{Load, Loads};
use report::Rounds;
use turn::{Proxy, Turn};

/// What to measure; everything, if nothing is said.
#[derive(Debug, Parser)]
pub(crate) struct Arguments {
    /// How often everything is measured, in turn.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How long each load goes on.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Only these, with commas between them.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Proxy>,
    /// Only these loads, with commas between them.
    #[arg(long, value_delimiter = ',')]
    loads: Vec<Load>,
    /// How many API keys there are, each of which asks in turn.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    keys: u32,
    /// The model's encoding is public: its input is counted exactly, instead of guessed by size.
    #[arg(long)]
    exact: bool,
    /// Cargo says this to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Arguments {
    fn proxies(&self) -> Vec<Proxy> {
        chosen(&self.only, Proxy::value_variants())
    }

    fn loads(&self) -> Vec<Load> {
        chosen(&self.loads, Load::value_variants())
    }
}

/// In the order of all.
fn chosen<T: Copy + PartialEq>(only: &[T], all: &[T]) -> Vec<T> {
    let is_chosen = |one: &&T| only.is_empty() || only.contains(one);
    all.iter().filter(is_chosen).copied().collect()
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(table) => {
            println!("{table}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<String> {
    // Threads and processes that begin after this are pinned as well.
    pinned::pin_this_process()?;
    // The thread that starts processes is the one at whose end the system ends them: this one, which runs everything.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).context("Ctrl-C cannot be caught")?;
        let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be caught")?;
        // Dropped in between, it ends what it has started.
        tokio::select! {
            measured = measure(arguments) => measured?.text(arguments),
            _ = interrupt.recv() => bail!("told to stop"),
            _ = terminate.recv() => bail!("told to stop"),
        }
    })
}

async fn measure(arguments: &Arguments) -> anyhow::Result<Rounds> {
    let loads = Loads::record(&arguments.loads()).await?;
    let upstream = Upstream::start(loads.first()?.script.clone()).context("the upstream does not start")?;
    let furnishing = Furnishing {
        keys: arguments.keys as usize,
        is_exact: arguments.exact,
    };
    let mut rounds = Rounds::default();
    for number in 1..=arguments.rounds {
        let mut turns = Vec::new();
        for proxy in arguments.proxies() {
            eprintln!("round {number} of {}, {}: starting", arguments.rounds, proxy.title());
            let turn = Turn::of(
                proxy,
                &upstream,
                &loads,
                &furnishing,
                Duration::from_secs(arguments.seconds),
            )
            .await;
            turns.push(turn.with_context(|| format!("round {number}, {}", proxy.title()))?);
        }
        rounds.push(turns);
    }
    Ok(rounds)
}

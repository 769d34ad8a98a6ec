//! The proving run: two hundred users on one provider account, with a gateway that protects nobody, one with rate limits,
//! and one with everything.
//!
//! `cargo xtask bench flow` builds this in release and runs all of it, in about half an hour; `cargo xtask bench flow
//! --quick` is a short one for trying, `--help` names what can be chosen. Time is real, so is Postgres, and the provider
//! is the simulator with the strictest account there is: it counts over any 60 seconds, to the millisecond. The gateways
//! run in this process. Figures of an attempt are those of the ledger, figures of a call those of the caller.

mod callers;
mod demand;
mod house;
mod ledger;
mod load;
mod protection;
mod report;

use std::process::ExitCode;

use clap::{Parser, ValueEnum as _};

use demand::Demand;
use house::{House, Queue};
use load::{Load, Run};
use protection::{Account, Protection};
use report::{Column, Figures};

/// What to run; everything, if nothing is said.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only this run.
    #[arg(long)]
    run: Option<Run>,
    /// Only the gateway with this protection; may be repeated.
    #[arg(long)]
    protection: Vec<Protection>,
    /// A short run for trying: its figures say little.
    #[arg(long)]
    quick: bool,
    /// How many users ask.
    #[arg(long, default_value_t = 200)]
    users: usize,
    /// How many requests each of them has.
    #[arg(long, default_value_t = 10)]
    requests: usize,
    /// Paced arrivals come at random moments instead of evenly.
    #[arg(long)]
    random: bool,
    /// Two gateways that share their counters in Redis instead of one with counters in memory.
    #[arg(long)]
    redis: bool,
    /// With everything: how many requests the account's limit lets through per `--account-seconds`.
    #[arg(long, default_value_t = protection::ACCOUNT.requests)]
    account_requests: u64,
    /// The window of `--account-requests`.
    #[arg(long, default_value_t = protection::ACCOUNT.seconds)]
    account_seconds: u32,
    /// With everything: how many requests may wait.
    #[arg(long, default_value_t = house::QUEUE.places)]
    queue_places: usize,
    /// With everything: how long a request may wait, in milliseconds.
    #[arg(long, default_value_t = house::QUEUE.timeout_ms)]
    queue_timeout_ms: u64,
    /// Cargo says this to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Arguments {
    fn demand(&self) -> Demand {
        Demand {
            users: self.users,
            requests_each: if self.quick { 2 } else { self.requests },
        }
    }

    fn queue(&self) -> Queue {
        Queue {
            places: self.queue_places,
            timeout_ms: self.queue_timeout_ms,
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let runs = arguments
        .run
        .map_or_else(|| Run::value_variants().to_vec(), |run| vec![run]);
    let protections = match arguments.protection.as_slice() {
        [] => Protection::value_variants().to_vec(),
        chosen => chosen.to_vec(),
    };
    let mut is_proven = true;
    for run in runs {
        let mut columns = Vec::new();
        for protection in &protections {
            columns.push(measure(&arguments, run, *protection).await?);
        }
        println!("{}", report::table(run, &arguments.demand(), &columns));
        if let Some(everything) = columns
            .iter()
            .find(|column| column.protection == Protection::Everything)
        {
            let (verdicts, are_met) = report::verdicts(run, everything);
            println!("{verdicts}");
            is_proven &= are_met;
        }
    }
    println!("{}", report::settings(arguments.queue(), account(&arguments)));
    // A short run proves nothing, so it cannot fail to.
    Ok(match is_proven || arguments.quick {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn account(arguments: &Arguments) -> Account {
    Account {
        requests: arguments.account_requests,
        seconds: arguments.account_seconds,
        ..protection::ACCOUNT
    }
}

/// One run on a house of its own.
async fn measure(arguments: &Arguments, run: Run, protection: Protection) -> anyhow::Result<Column> {
    let demand = arguments.demand();
    eprintln!("{} / {}: starting", run.title(), protection.title());
    let house = House::start(
        protection,
        &demand,
        arguments.queue(),
        account(arguments),
        arguments.redis,
    )
    .await?;
    let load = Load {
        run,
        demand,
        is_random: arguments.random,
    };
    let callers = house.callers(protection)?;
    let calls = load.run(callers, protection.title()).await;
    let figures = Figures {
        demand,
        calls,
        attempts: house.attempts().await?,
        provider: house.simulator.stats(),
        traffic: house.simulator.traffic(),
    };
    house.stop().await;
    Ok(Column { protection, figures })
}

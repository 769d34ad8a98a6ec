//! `cargo xtask`: everything a developer or CI does, on a machine that may lack half of it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bench;
mod browser;
mod check;
mod deny;
mod fuzz;
mod install;
mod nginx;
mod postgres;
mod prepare;
mod process;
mod redis;
mod run;
mod sdk;
mod site;
mod steps;
mod stylesheet;
mod test;
mod texts;
mod wasm_target;
mod workspace;

use workspace::Workspace;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Runs, tests and builds Tollgate, installing what it needs."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build everything and start the demo: a whole gateway with made-up data and traffic.
    Run {
        /// Optimised instead of quick to build.
        #[arg(long)]
        release: bool,
        /// Where the demo keeps its data [default: demo-data in the build folder].
        #[arg(long)]
        data_dir: Option<PathBuf>,
        /// Passed on to `tollgate demo`, after `--`.
        #[arg(last = true)]
        demo_arguments: Vec<String>,
    },
    /// Everything CI runs: format, lints, dependencies, queries, unit, integration, SDK and browser tests.
    Test,
    /// Build what the browser loads: WASM, stylesheet, public files.
    Site,
    /// What to run before each commit: format, lints, dependencies, unit tests, fuzzing.
    Check,
    /// Licences, sources and known weaknesses of what we depend on.
    Dependencies,
    /// Try the parsers of foreign bytes with inputs that libFuzzer makes up.
    Fuzz {
        /// How long, for each target.
        #[arg(long, default_value_t = fuzz::CHECK_SECONDS)]
        seconds: u64,
    },
    /// Measure, and print a table.
    Bench {
        /// What to measure.
        #[command(subcommand)]
        what: Bench,
    },
    /// Renew crates/store/.sqlx, the descriptions of all queries, from a database with all migrations.
    Prepare {
        /// Only compare, and fail if they are not current.
        #[arg(long)]
        check: bool,
    },
    /// Bring the catalogues of the console's texts up to date with the code.
    Texts {
        /// Only compare, and fail if they are not current.
        #[arg(long)]
        check: bool,
    },
}

#[derive(Subcommand)]
enum Bench {
    /// One decision, in memory and in Redis, alone, under contention, and with a million keys live.
    Limits,
    /// Input that is estimated against input that is counted, and what reading and estimating a request costs.
    Estimates,
    /// Ten million requests in the ledger: reports, pages and files.
    Ledger {
        /// Passed on; `cargo xtask bench ledger -- --help` names them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// A request through Tollgate with everything on, beside nginx as a plain reverse proxy.
    Proxy {
        #[command(flatten)]
        options: bench::ProxyOptions,
    },
    /// Two hundred users on one provider account: without protection, with rate limits, with everything.
    Flow {
        /// Passed on; `cargo xtask bench flow -- --help` names them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    match dispatch(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: Arguments) -> anyhow::Result<()> {
    let workspace = Workspace::find()?;
    match arguments.command {
        Command::Run {
            release,
            data_dir,
            demo_arguments,
        } => run::run(
            &workspace,
            &run::Options {
                is_release: release,
                data_dir,
                demo_arguments,
            },
        ),
        Command::Test => test::test(&workspace),
        Command::Site => site::build(&workspace).map(|_| ()),
        Command::Bench { what: Bench::Limits } => bench::limits(&workspace),
        Command::Bench { what: Bench::Estimates } => bench::estimates(&workspace),
        Command::Bench {
            what: Bench::Flow { arguments },
        } => bench::flow(&workspace, &arguments),
        Command::Bench {
            what: Bench::Proxy { options },
        } => bench::proxy(&workspace, &options),
        Command::Bench {
            what: Bench::Ledger { arguments },
        } => bench::ledger(&workspace, &arguments),
        Command::Check => check::check(&workspace),
        Command::Dependencies => deny::deny(&workspace),
        Command::Fuzz { seconds } => fuzz::fuzz(&workspace, seconds),
        Command::Prepare { check: false } => prepare::renew(&workspace),
        Command::Prepare { check: true } => prepare::compare(&workspace),
        Command::Texts { check: false } => texts::renew(&workspace),
        Command::Texts { check: true } => texts::compare(&workspace),
    }
}

//! The ledger at scale: makes millions of entries, and measures what people and finance ask of them.
//!
//! `cargo xtask bench ledger` builds this in release and makes ten million requests in one month, which takes a quarter of an
//! hour and 20 GB; `-- --rows 1000000` is a shorter one. Everything runs against a real Postgres that it starts itself, or the
//! one that `TOLLGATE_TEST_DATABASE_URL` names; the database is dropped at the end.

mod made;
mod measured;

use clap::Parser;
use test_support::console::{OPERATOR, PASSWORD, Window};
use test_support::tollgate::Tollgate;

use made::Size;

/// How much to make.
#[derive(Debug, Parser)]
struct Arguments {
    /// Requests that ran in the month; a twentieth as many were refused, a tenth as many ran in the month before.
    #[arg(long, default_value_t = 10_000_000)]
    rows: u64,
    /// Tenants.
    #[arg(long, default_value_t = 200)]
    tenants: u32,
    /// Keys; four of five are people's, the others applications'.
    #[arg(long, default_value_t = 2_000)]
    keys: u32,
    /// End users that each application names.
    #[arg(long, default_value_t = 40)]
    users: u32,
    /// Goes on serving what was made, until it is told to stop.
    #[arg(long)]
    serve: bool,
    /// Cargo says this to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let tollgate = Tollgate::start().await;
    let size = Size {
        rows: arguments.rows,
        tenants: arguments.tenants,
        keys: arguments.keys,
        users: arguments.users,
    };
    let mut operator = Window::operator(&tollgate).await;
    let month = made::make(&tollgate, &size).await?;
    measured::measure(&tollgate, &mut operator, month).await?;
    if arguments.serve {
        println!(
            "{} serves it; sign in as {OPERATOR} with {PASSWORD:?}. Ctrl-C ends it.",
            tollgate.url()
        );
        tokio::signal::ctrl_c().await?;
    }
    Ok(())
}

//! `cargo xtask bench`: measurements that print a table.

use anyhow::Result;

use crate::workspace::Workspace;
use crate::{postgres, process, redis};

/// What one decision costs; about three minutes after the build.
pub(crate) fn limits(workspace: &Workspace) -> Result<()> {
    redis::ensure_installed()?;
    process::run(
        workspace
            .cargo()
            .args(["bench", "--package", "limits", "--bench", "decision"]),
    )
}

/// How estimates compare with what is counted, and what they cost; seconds after the build.
pub(crate) fn estimates(workspace: &Workspace) -> Result<()> {
    process::run(
        workspace
            .cargo()
            .args(["bench", "--package", "tokens", "--bench", "estimates"]),
    )
}

/// The proving run; about half an hour after the build, unless `arguments` choose less.
pub(crate) fn flow(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    postgres::ensure_installed()?;
    if arguments.iter().any(|argument| argument == "--redis") {
        redis::ensure_installed()?;
    }
    let mut cargo = workspace.cargo();
    cargo.args(["bench", "--package", "tests", "--bench", "flow", "--"]);
    process::run(cargo.args(arguments))
}

/// The ledger at scale; a quarter of an hour and 20 GB of disk after the build, unless `arguments` choose less.
pub(crate) fn ledger(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    postgres::ensure_installed()?;
    let mut cargo = workspace.cargo();
    cargo.args(["bench", "--package", "tests", "--bench", "ledger", "--"]);
    process::run(cargo.args(arguments))
}

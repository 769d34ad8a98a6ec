//! `cargo xtask check`: what is quick enough to run before each commit.

use anyhow::Result;

use crate::fuzz;
use crate::postgres;
use crate::process;
use crate::redis;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// Format, lints, unit tests and fuzzing, up to the first that fails.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let mut steps = Steps::default();
    let outcome = all(workspace, &mut steps);
    print!("\n{}", steps.summary());
    outcome
}

fn all(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    steps.step("format", || format(workspace))?;
    steps.step("lints", || lints(workspace))?;
    steps.step("Postgres", postgres::ensure_installed)?;
    steps.step("Redis", redis::ensure_installed)?;
    steps.step("unit tests", || {
        process::run(workspace.cargo().args(["test", "--workspace", "--lib", "--bins"]))
    })?;
    steps.step("fuzzing", || fuzz::fuzz(workspace, fuzz::CHECK_SECONDS))
}

/// Is every file formatted?
pub(crate) fn format(workspace: &Workspace) -> Result<()> {
    process::run(workspace.cargo().args(["fmt", "--all", "--check"]))
}

/// Does any lint have something to say?
pub(crate) fn lints(workspace: &Workspace) -> Result<()> {
    let mut cargo = workspace.cargo();
    cargo.args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    process::run(&mut cargo)
}

//! `cargo xtask check`: what is quick enough to run before each commit.

use std::process::Command;

use anyhow::Result;

use crate::deny;
use crate::fuzz;
use crate::postgres;
use crate::process;
use crate::redis;
use crate::steps::Steps;
use crate::texts;
use crate::workspace::Workspace;

/// Format, lints, dependencies, unit tests and fuzzing, up to the first that fails.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let mut steps = Steps::default();
    let outcome = all(workspace, &mut steps);
    print!("\n{}", steps.summary());
    outcome
}

fn all(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    steps.step("format", || format(workspace))?;
    steps.step("texts", || texts::compare(workspace))?;
    steps.step("lints", || lints(workspace))?;
    steps.step("dependencies", || deny::deny(workspace))?;
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

/// Makes a build lint what it compiles, so that nothing is compiled twice: clippy's driver is the compiler with its lints, and
/// this is how `cargo clippy` calls it.
pub(crate) fn linting(cargo: &mut Command) -> &mut Command {
    cargo
        .env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver")
        .env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__")
}

/// Does any lint have something to say?
pub(crate) fn lints(workspace: &Workspace) -> Result<()> {
    let mut cargo = workspace.cargo();
    cargo.args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    process::run(&mut cargo)
}

//! `cargo xtask bench`: measurements that print a table.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::workspace::Workspace;
use crate::{nginx, postgres, process, redis};

#[cfg(test)]
mod tests;

/// Where the built program of `cargo xtask bench proxy` is kept, for `--skip-build`.
const PROXY_PROGRAM: &str = "release/tollgate-bench-proxy";

/// How to compare proxies. What is not said is as `tests/bench/proxy` has it.
#[derive(Args)]
pub(crate) struct ProxyOptions {
    /// How often everything is measured, in turn [default: 3].
    #[arg(long)]
    rounds: Option<u32>,
    /// How long each load goes on [default: 8].
    #[arg(long)]
    seconds: Option<u64>,
    /// Only these, with commas between them: direct, nginx, memory, redis.
    #[arg(long)]
    only: Option<String>,
    /// Only these loads, with commas between them: alone, many, long, longest, streams, paced-streams.
    #[arg(long)]
    loads: Option<String>,
    /// How many API keys there are [default: 1000].
    #[arg(long)]
    keys: Option<u32>,
    /// Count input exactly, as with models whose encoding is public, instead of guessing it by size.
    #[arg(long)]
    exact: bool,
    /// Take the programs that were built last.
    #[arg(long)]
    skip_build: bool,
}

impl ProxyOptions {
    fn passed_on(&self) -> Vec<String> {
        let said = [
            ("--rounds", self.rounds.map(|rounds| rounds.to_string())),
            ("--seconds", self.seconds.map(|seconds| seconds.to_string())),
            ("--only", self.only.clone()),
            ("--loads", self.loads.clone()),
            ("--keys", self.keys.map(|keys| keys.to_string())),
        ];
        let said = said
            .into_iter()
            .filter_map(|(name, value)| Some(format!("{name}={}", value?)));
        said.chain(self.exact.then(|| "--exact".to_owned())).collect()
    }
}

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

/// Tollgate beside nginx; about half an hour after the build. Returns only if something failed: the program takes our
/// place, so that Ctrl-C goes straight to it.
pub(crate) fn proxy(workspace: &Workspace, options: &ProxyOptions) -> Result<()> {
    nginx::ensure_installed()?;
    postgres::ensure_installed()?;
    redis::ensure_installed()?;
    let program = workspace.target_path(PROXY_PROGRAM);
    if !options.skip_build {
        build_proxy(workspace, &program)?;
    }
    for built in [&program, &workspace.server_path(true)] {
        ensure!(
            built.exists(),
            "{} is not there: leave out --skip-build",
            built.display()
        );
    }
    let error = Command::new(&program)
        .args(options.passed_on())
        .env("TOLLGATE_TEST_SERVER", workspace.server_path(true))
        .exec();
    Err(error).with_context(|| format!("{} cannot be started", program.display()))
}

/// Each by itself, so that the server is what `cargo build --release` makes.
fn build_proxy(workspace: &Workspace, program: &Path) -> Result<()> {
    process::run(
        workspace
            .cargo()
            .args(["build", "--release", "--package=server", "--bin=tollgate"]),
    )?;
    let messages = process::read_with_errors_shown(
        workspace
            .cargo()
            .args(["bench", "--package=tests", "--bench=proxy", "--no-run"])
            .arg("--message-format=json-render-diagnostics"),
    )?;
    let built = find_executable(&messages, "proxy").context("cargo does not tell where the benchmark is")?;
    fs::copy(&built, program).with_context(|| format!("{} cannot be kept", built.display()))?;
    Ok(())
}

/// Where cargo says that it has put a target of this name.
fn find_executable(messages: &str, target: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == target)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}
